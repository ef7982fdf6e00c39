package pebblelog

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Snapshots of the fold lie in a directory of their own:
//
//	snapshots/POSITION
//
// A line of JSON (see snapshotHead), then the state. They save time and nothing else:
// one that is missing, damaged, of another version or another log is passed over, and
// without any the whole log is folded.
const (
	snapshotsName   = "snapshots"
	snapshotFormat  = 1
	snapshotsKept   = 2
	maxSnapshotHead = 4 << 10
)

// snapshotHead says what a snapshot is of.
type snapshotHead struct {
	Format   int             `json:"format"`
	Log      string          `json:"log"`
	Version  string          `json:"version"`
	Position events.Position `json:"position"`
	// Root is the Merkle root of the events up to Position.
	Root events.Hash `json:"root"`
	// SHA256 is that of the state.
	SHA256 events.Hash `json:"sha256"`
	Bytes  int         `json:"bytes"`
}

// WriteSnapshot keeps the state that a fold of this version has at a position that
// is durable, and removes all but the newest snapshotsKept. It is there, whole, when
// WriteSnapshot returns nil.
func (l *Log) WriteSnapshot(version string, p events.Position, state []byte) error {
	if l.readOnly {
		return &events.ReadOnlyError{}
	}
	root, err := seal.NewReader(l).RootAt(uint64(p))
	if err != nil {
		return fmt.Errorf("snapshot at %d: %w", p, err)
	}
	head, err := json.Marshal(snapshotHead{
		Format: snapshotFormat, Log: fmt.Sprintf("%x", l.id[:]), Version: version, Position: p, Root: root, SHA256: sha256.Sum256(state), Bytes: len(state),
	})
	if err != nil {
		return err
	}
	fsys, dir := l.opts.FS, l.snapshotDir()
	l.snapshots.Lock()
	defer l.snapshots.Unlock()
	if p < l.forgets {
		return nil // it may hold what was erased since
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("snapshot at %d: %w", p, err)
	}
	if err := writeFileDurably(fsys, dir, strconv.FormatUint(uint64(p), 10), slices.Concat(head, []byte{'\n'}, state)); err != nil {
		return fmt.Errorf("snapshot at %d: %w", p, err)
	}
	all, err := l.listSnapshots()
	if err != nil {
		return err
	}
	for _, old := range all[min(snapshotsKept, len(all)):] {
		if err := fsys.Remove(fsys.PathJoin(dir, strconv.FormatUint(uint64(old), 10))); err != nil {
			return fmt.Errorf("remove the snapshot at %d: %w", old, err)
		}
	}
	return nil
}

// dropSnapshots removes every snapshot, and lets none be written of what is before
// now: what was erased is in none afterwards.
func (l *Log) dropSnapshots() error {
	l.snapshots.Lock()
	defer l.snapshots.Unlock()
	l.forgets = l.Durable()
	fsys, dir := l.opts.FS, l.snapshotDir()
	if err := fsys.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove the snapshots: %w", err)
	}
	return syncDir(fsys, l.dir)
}

func (l *Log) snapshotDir() string { return l.opts.FS.PathJoin(l.dir, snapshotsName) }

// listSnapshots lists the positions that there are snapshots of, newest first.
func (l *Log) listSnapshots() ([]events.Position, error) {
	names, err := l.opts.FS.List(l.snapshotDir())
	if err != nil {
		if _, statErr := l.opts.FS.Stat(l.snapshotDir()); statErr != nil {
			return nil, nil // there are none
		}
		return nil, fmt.Errorf("list the snapshots: %w", err)
	}
	var list []events.Position
	for _, n := range names {
		if p, err := strconv.ParseUint(n, 10, 64); err == nil && strconv.FormatUint(p, 10) == n {
			list = append(list, events.Position(p))
		}
	}
	slices.SortFunc(list, func(a, b events.Position) int { return cmp.Compare(b, a) })
	return list, nil
}

// readSnapshot reads a snapshot and checks what it says of itself.
func (l *Log) readSnapshot(p events.Position) (h snapshotHead, state []byte, err error) {
	f, err := l.opts.FS.Open(l.opts.FS.PathJoin(l.snapshotDir(), strconv.FormatUint(uint64(p), 10)))
	if err != nil {
		return h, nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		return h, nil, err
	}
	head, state, found := bytes.Cut(b[:min(len(b), maxSnapshotHead)], []byte{'\n'})
	if !found {
		return h, nil, errors.New("it has no head")
	}
	state = b[len(head)+1:]
	if err := json.Unmarshal(head, &h); err != nil {
		return h, nil, fmt.Errorf("its head does not read: %w", err)
	}
	switch {
	case h.Format != snapshotFormat:
		return h, nil, fmt.Errorf("it has format %d", h.Format)
	case h.Position != p:
		return h, nil, fmt.Errorf("it says that it is of position %d", h.Position)
	case h.Bytes != len(state) || h.SHA256 != sha256.Sum256(state):
		return h, nil, errors.New("its state is not the one that its head names")
	}
	return h, state, nil
}

// mayResume reports whether there are snapshots that resume looks at.
func (l *Log) mayResume() bool {
	_, ok := l.opts.Fold.(events.Snapshotter)
	list, err := l.listSnapshots()
	return ok && err == nil && len(list) > 0
}

// resume takes up the newest snapshot that fits the log: the fold has its state
// then, and was is what is known of the log there. It reports whether there is one.
// Nothing is said yet of what lies before: see deepCheck.
func (l *Log) resume(was *verified) bool {
	fold, ok := l.opts.Fold.(events.Snapshotter)
	if !ok || was.id == (logID{}) {
		return false
	}
	list, err := l.listSnapshots()
	if err != nil {
		l.opts.Logger.Warn("snapshots are passed over", "dir", l.dir, "error", err)
		return false
	}
	for _, p := range list {
		if err := l.resumeAt(p, fold, was); err != nil {
			l.opts.Logger.Warn("a snapshot is passed over", "dir", l.dir, "position", p, "reason", strings.TrimSpace(err.Error()))
			continue
		}
		return true
	}
	return false
}

func (l *Log) resumeAt(p events.Position, fold events.Snapshotter, was *verified) error {
	h, state, err := l.readSnapshot(p)
	if err != nil {
		return err
	}
	switch {
	case h.Log != fmt.Sprintf("%x", was.id[:]):
		return errors.New("it is that of another log")
	case h.Version != fold.SnapshotVersion():
		return fmt.Errorf("it has version %s, this program's is %s", h.Version, fold.SnapshotVersion())
	}
	r, err := newRecordReader(l.db, false)
	if err != nil {
		return err
	}
	defer r.close()
	tree, err := treeAt(l.db, uint64(p), r)
	if err != nil {
		return fmt.Errorf("the log does not reach it: %w", err)
	}
	if root := tree.Root(); root != h.Root {
		return fmt.Errorf("the log has the root %s at its position, it says %s", root, h.Root)
	}
	last, err := r.read(p)
	if err != nil {
		return err
	}
	if err := fold.RestoreSnapshot(p, state); err != nil {
		return fmt.Errorf("its state does not read: %w", err)
	}
	was.tree, was.time, was.resumed = tree, last.Header.Time, p
	return nil
}

// treeAt is the tree of the first size events, made from the stored tiles.
func treeAt(db *database, size uint64, r *recordReader) (seal.Tree, error) {
	return seal.RestoreTree(size, func(p events.Position) (events.Hash, error) {
		rec, err := r.read(p)
		return rec.LeafHash, err
	}, func(level int, n uint64) ([]byte, error) {
		v, found, err := db.Get(tileKey(nil, level, n))
		if err == nil && !found {
			err = corruptTile(seal.Tile{Level: level, N: n}, "is missing")
		}
		return v, err
	})
}
