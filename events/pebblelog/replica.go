package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
)

// replicaName is the file that marks a directory as a replica: its log must not
// be appended to but by what its cluster has ordered.
const replicaName = "replica"

const replicaLine = "a relay's replica of a log that a cluster keeps\n"

// ErrRole says that a directory holds a replica where a log of its own was wanted,
// or the other way round.
var ErrRole = errors.New("wrong kind of directory")

// Replica is a relay's own copy of a log that is ordered elsewhere. It is read like
// any log; what is appended comes in by Store. The position of its last event is
// the cursor: it is in the same batch as the event.
type Replica struct{ *Log }

// OpenReplica opens the replica in dir as Open opens a log, and makes one if dir is
// empty or missing. Afterwards it does not stage on opts.Fold: whoever calls Store
// does. A directory with a log of its own is refused with ErrRole.
func OpenReplica(dir string, opts Options) (*Replica, error) {
	l, err := openAs(dir, opts, true)
	if err != nil {
		return nil, err
	}
	return &Replica{l}, nil
}

// Append refuses: a replica's order is not its own.
func (r *Replica) Append(context.Context, events.Append) (events.Appended, error) {
	return events.Appended{}, fmt.Errorf("%w: %s is a replica; append to its cluster", ErrRole, r.dir)
}

// checkRole refuses a directory of the other kind.
func checkRole(fsys vfs.FS, dir string, replica bool) error {
	is, err := exists(fsys, fsys.PathJoin(dir, replicaName))
	if err != nil || is == replica {
		return err
	}
	if is {
		return fmt.Errorf("%w: %s is a relay's replica of a log that a cluster keeps: appending to it would fork the log", ErrRole, dir)
	}
	if isLog, err := exists(fsys, fsys.PathJoin(dir, formatName)); err != nil || isLog {
		return errors.Join(err, fmt.Errorf("%w: %s holds a log of its own, not a replica of a cluster's", ErrRole, dir))
	}
	return writeFileDurably(fsys, dir, replicaName, []byte(replicaLine))
}

func exists(fsys vfs.FS, path string) (bool, error) {
	_, err := fsys.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// IsReplica reports whether dir is marked as a replica.
func IsReplica(dir string) (bool, error) {
	return exists(vfs.Default, vfs.Default.PathJoin(dir, replicaName))
}

// SetReplica marks the log in dir, which nobody has open, as a replica, or as a log
// of its own: after it was moved into a cluster, or out of one. It changes no event.
func SetReplica(dir string, replica bool) error {
	fsys := vfs.Default
	lock, err := lockDir(fsys, dir)
	if err != nil {
		return err
	}
	if replica {
		err = writeFileDurably(fsys, dir, replicaName, []byte(replicaLine))
	} else if err = fsys.Remove(fsys.PathJoin(dir, replicaName)); err == nil || errors.Is(err, fs.ErrNotExist) {
		err = syncDir(fsys, dir)
	}
	return errors.Join(err, lock.Close())
}

// Head is the newest event of s: its revision and leaf hash, zero if there is none.
// It is for whoever calls Store, between two calls.
func (r *Replica) Head(s events.Stream) (events.Revision, events.Hash, error) {
	done, err := r.use()
	if err != nil {
		return 0, events.Hash{}, err
	}
	defer done()
	p, err := r.takeProber()
	if err != nil {
		return 0, events.Hash{}, err
	}
	if p.saw != r.applied.Load() {
		p.close()
		if p, err = r.newProber(); err != nil {
			return 0, events.Hash{}, err
		}
	}
	h, err := p.head(s)
	if err != nil {
		p.close()
		return 0, events.Hash{}, fmt.Errorf("look up the head of stream %s: %w", s, err)
	}
	r.putProber(p)
	return h.revision, h.leaf, nil
}

// Room returns events.ErrNoSpace when too little disk space is left to store
// anything.
func (r *Replica) Room() error {
	usage, err := r.opts.FS.GetDiskUsage(r.dir)
	if err == nil && usage.AvailBytes < r.opts.MinFreeBytes {
		return fmt.Errorf("%w: %s needs %d MiB free", events.ErrNoSpace, r.dir, r.opts.MinFreeBytes>>20)
	}
	return nil // a disk that cannot be asked is not known to be full
}

// Store adds appends that follow the last event there is, and returns once they are
// durable and their Publish functions were called, in this order. Records that do
// not follow are an *events.CorruptError, and nothing of their append is stored. One
// call at a time.
func (r *Replica) Store(appends []events.Placed) error {
	if err := r.failedErr(); err != nil {
		return err
	}
	requests := make([]*request, len(appends))
	for i, a := range appends {
		q := &request{placed: true, recs: a.Records, publish: a.Publish, done: make(chan struct{}, 1)}
		q.a.Key, q.a.Request = a.Records[0].Header.Key, a.Records[0].Header.Request
		for _, rec := range a.Records {
			q.bytes += len(rec.Leaf) + len(rec.Payload) + len(rec.Header.Stream) + len(rec.Header.ID) + 160
		}
		requests[i] = q
	}
	if !r.queue.push(requests...) {
		return events.ErrClosed
	}
	var failed error
	for _, q := range requests {
		select {
		case <-q.done:
		case <-r.failed:
			return r.failedErr()
		}
		if failed == nil {
			failed = q.err
		}
	}
	return failed
}

// follow stages an append that has its place.
func (t *turn) follow(r *request) error {
	st := &t.l.staged
	t.undo = t.undo[:0]
	last, at := st.last, st.time
	for i := range r.recs {
		h := &r.recs[i].Header
		was, err := t.head(h.Stream)
		if err == nil {
			err = t.follows(h, was, last, at)
		}
		if err != nil {
			t.takeBack()
			return err
		}
		t.undo = append(t.undo, undoHead{h.Stream, was})
		last, at = h.Position, h.Time
		st.heads.put(h.Stream, head{revision: h.Revision, leaf: r.recs[i].LeafHash})
	}
	first := st.last + 1
	st.last, st.time = last, at
	for i := range r.recs {
		st.tree.Append(r.recs[i].LeafHash, t.fill)
	}
	r.out = events.Appended{First: first, Last: last}
	return nil
}

// follows reports why h does not come after an event at last of time at, and after
// the head of its stream, if so.
func (t *turn) follows(h *events.Header, was head, last events.Position, at time.Time) error {
	wrong := func(format string, args ...any) error {
		return &events.CorruptError{Position: h.Position, Detail: fmt.Sprintf(format, args...)}
	}
	switch {
	case h.Fleet != t.l.opts.Fleet:
		return wrong("it is an event of fleet %q, this is the replica of %q", h.Fleet, t.l.opts.Fleet)
	case h.Position != last+1:
		return wrong("it came where position %d is due", last+1)
	case h.Revision != was.revision+1 || h.Prev != was.leaf:
		return wrong("it is revision %d of stream %s after %q, revision %d after %q is due", h.Revision, h.Stream, h.Prev, was.revision+1, was.leaf)
	case h.Time.Before(at):
		return wrong("its time %s is before the previous event's %s", h.Time, at)
	}
	return nil
}
