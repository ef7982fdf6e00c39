package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Options says how a log is opened.
type Options struct {
	// Fleet is the fleet whose log this is: a valid id. A directory holds the
	// log of the fleet that it was made for.
	Fleet string
	// Fold, unless nil, is kept in step with the log. Open feeds it what the log
	// holds, record by record; afterwards its Stage and publish functions are
	// called one at a time. It must not call the log.
	Fold events.Fold
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Logger is told what the operator should know; nil means slog.Default().
	Logger *slog.Logger
	// FS is where the directory lies; nil means the operating system's files.
	FS vfs.FS
	// Signed, unless nil, is a signed head that OpenReadOnly holds the log to besides
	// its anchor.
	Signed *Head
	// MemTableBytes is the size of Pebble's memtable; 0 means 64 MiB.
	MemTableBytes uint64
	// MinFreeBytes is the free disk space below which nothing is appended; 0
	// means room for two memtables and 64 MiB.
	MinFreeBytes uint64
}

func (o Options) withDefaults() (Options, error) {
	if !events.ValidID(o.Fleet) {
		return o, fmt.Errorf("fleet %q is not a valid id", o.Fleet)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.FS == nil {
		o.FS = vfs.Default
	}
	if o.MemTableBytes == 0 {
		o.MemTableBytes = defaultMemTableBytes
	}
	if o.MinFreeBytes == 0 {
		o.MinFreeBytes = 2*o.MemTableBytes + 64<<20
	}
	return o, nil
}

// Log is an events.Log in a directory.
type Log struct {
	dir    string
	opts   Options
	clock  *events.Clock
	lock   *pebble.Lock
	db     *database
	logger *pebbleLogger

	queue queue
	// staged is how far the committer is; only it uses this.
	staged staged
	space  space
	// applied is the number of groups that Pebble holds, synced or not. A look
	// into Pebble sees at least these.
	applied atomic.Uint64
	// written is the last position that Pebble holds.
	written atomic.Uint64
	probers chan *prober // kept for the next callers

	// free has the groups that may be filled: their number bounds how many are on
	// their way to the disk.
	free, toSync, toFinish chan *group
	stages                 sync.WaitGroup // the three goroutines

	id     logID
	anchor *anchor // only the finisher uses it
	// folding is held when the fold is called. Staging and publishing happen in
	// two goroutines; the fold need not know.
	folding sync.Mutex

	durable atomic.Uint64
	tree    atomic.Pointer[seal.View] // of what is durable
	tail    tail                      // of what is, or is about to be, durable
	waiters waiters
	commits events.CommitCounter

	backingUp sync.Mutex // held while a backup is made

	snapshots sync.Mutex // held when snapshots are written or removed
	// forgets is the position before which no snapshot is kept; guarded by snapshots.
	forgets events.Position
	// verifyTo is how far the log is read behind a quick start, verified how far it
	// was.
	verifyTo uint64
	verified atomic.Uint64

	// scrubbing has one slot, held by whoever scrubs, and while a backup holds files
	// that may be scrubbed; scrubDue has one too, for a payload that was erased.
	scrubbing, scrubDue chan struct{}
	// scrubCtx ends, and scrubber is waited for, when the log is closed: with them what
	// is done behind the appends.
	scrubCtx  context.Context
	stopScrub context.CancelFunc
	scrubber  sync.WaitGroup

	failure  atomic.Pointer[error] // why nothing is appended any more
	failed   chan struct{}         // closed when the engine failed
	readOnly bool                  // it was opened so; no stage runs
	replica  bool                  // its order is decided elsewhere

	// inUse is held for reading by whoever uses db, and by Close when it takes it
	// away.
	inUse  sync.RWMutex
	closed atomic.Bool
	// closing makes Close run once.
	closing  sync.Once
	closeErr error
}

var (
	_ events.Log = (*Log)(nil)
	_ seal.Store = (*Log)(nil)

	_ events.Degraded  = (*Log)(nil)
	_ events.Verifying = (*Log)(nil)
)

// pipelineDepth is how many groups are on their way at once: one being filled,
// one whose WAL is synced, one whose anchor is. More groups would be smaller
// groups.
const pipelineDepth = 3

// start sets the log to work after what the directory holds was checked.
func (l *Log) start() {
	l.free = make(chan *group, pipelineDepth)
	l.toSync = make(chan *group, pipelineDepth)
	l.toFinish = make(chan *group, pipelineDepth)
	for range pipelineDepth {
		l.free <- &group{batch: l.db.NewBatch(pebble.WithInitialSizeBytes(256<<10), pebble.WithMaxRetainedSizeBytes(8<<20))}
	}
	l.stages.Go(l.commit)
	l.stages.Go(l.sync)
	l.stages.Go(l.finish)
	l.scrubber.Go(l.keepScrubbed)
	if l.verifyTo > 0 {
		l.scrubber.Go(l.deepCheck)
	}
}

// fail marks the engine failed: nothing more is acknowledged.
func (l *Log) fail(err error) {
	l.stop(fmt.Errorf("%w: %w; stop the program, see that the disk is well, and start it again", events.ErrFailed, err))
}

// stop ends appends, because of err.
func (l *Log) stop(err error) {
	if !l.failure.CompareAndSwap(nil, &err) {
		return
	}
	close(l.failed)
	l.waiters.end(err)
	l.opts.Logger.Error("the log takes no more appends", "dir", l.dir, "error", err)
}

// failedErr is the error of a failed engine, nil of a well one.
func (l *Log) failedErr() error {
	if p := l.failure.Load(); p != nil {
		return *p
	}
	return nil
}

// Commits implements events.Committing.
func (l *Log) Commits() events.CommitCounts { return l.commits.Counts() }

// Degraded implements events.Degraded.
func (l *Log) Degraded() error { return l.failedErr() }

// Durable implements events.Log.
func (l *Log) Durable() events.Position { return events.Position(l.durable.Load()) }

// Now implements events.Log.
func (l *Log) Now() time.Time { return l.clock.Now() }

// Wait implements events.Log.
func (l *Log) Wait(ctx context.Context, p events.Position) error {
	return l.waiters.wait(ctx, p, &l.durable)
}

// closeTimeout is how long an engine in trouble may take to end its work: what
// failed, or waits for space, may never end.
const closeTimeout = 2 * time.Second

// Close implements events.Log. When the engine failed, it returns why.
func (l *Log) Close() error {
	l.closing.Do(func() { l.closeErr = l.shut() })
	return l.closeErr
}

func (l *Log) shut() error {
	done := make(chan struct{})
	defer close(done)
	go l.abandon(done)
	l.stopScrub()
	l.queue.close()
	stopped := make(chan struct{})
	go func() {
		l.stages.Wait()
		close(stopped)
	}()
	select {
	case <-stopped:
	case <-l.logger.stuck:
	}
	l.closed.Store(true)
	l.waiters.end(events.ErrClosed)
	l.scrubber.Wait()

	stuckErr := func() error {
		// Pebble's own goroutines may still write to the directory, so the lock
		// stays until the process ends.
		return l.failedErr()
	}
	if l.logger.isStuck() {
		return stuckErr()
	}
	err := l.logger.await(func() error {
		l.inUse.Lock() // what is being read now, is read first
		defer l.inUse.Unlock()
		l.dropProbers()
		return l.db.Close()
	})
	if l.logger.isStuck() {
		return stuckErr()
	}
	if !l.readOnly {
		err = errors.Join(l.failedErr(), err, l.anchor.close(), l.lock.Close())
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", l.dir, err)
	}
	return nil
}

// abandon gives the database up when closing it takes long and will not end.
func (l *Log) abandon(done <-chan struct{}) {
	late := time.NewTicker(closeTimeout)
	defer late.Stop()
	for {
		select {
		case <-done:
			return
		case <-late.C:
			if !l.readOnly && l.failedErr() != nil || l.logger.flushFails() {
				l.logger.stick(errors.New("the database cannot end what it is doing"))
				return
			}
		}
	}
}

// use lets the caller use db until it calls done.
func (l *Log) use() (done func(), err error) {
	l.inUse.RLock()
	if l.closed.Load() {
		l.inUse.RUnlock()
		return nil, events.ErrClosed
	}
	return l.inUse.RUnlock, nil
}

// staged is the state of the log after everything that was accepted, durable or
// not.
type staged struct {
	last  events.Position
	time  time.Time // of the newest event; kept in a replica only
	group uint64    // the number of groups so far
	tree  seal.Tree
	view  seal.View // of tree, after the last group
	heads recent[events.Stream, head]
	ids   recent[string, events.Position]
	keys  recent[events.Hash, binding]
}

// head is the newest event of a stream.
type head struct {
	revision events.Revision
	leaf     events.Hash
}

const (
	headsKept = 1 << 16
	idsKept   = 1 << 15
	keysKept  = 1 << 15
)

func newStaged(tree seal.Tree, view seal.View) staged {
	return staged{
		last:  events.Position(tree.Size()),
		tree:  tree,
		view:  view,
		heads: newRecent[events.Stream, head](headsKept),
		ids:   newRecent[string, events.Position](idsKept),
		keys:  newRecent[events.Hash, binding](keysKept),
	}
}
