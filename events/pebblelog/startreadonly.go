package pebblelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
)

// OpenReadOnly opens the log in dir for reading, and changes nothing there. Of a
// damaged log it serves what comes before the damage: the longest beginning whose
// events can be read, fit their hashes and follow one another. Degraded tells what
// is wrong, and from which position on. Every append is refused with an
// *events.ReadOnlyError.
func OpenReadOnly(dir string, opts Options) (*Log, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	opts.FS = readOnlyFS{opts.FS}
	l := newLog(dir, opts)
	l.readOnly = true
	l.logger = newPebbleLogger(opts.Logger, nil)
	if err := l.openReadOnly(); err != nil {
		if l.db != nil {
			err = errors.Join(err, l.db.Close())
		}
		l.stopScrub()
		return nil, err
	}
	return l, nil
}

func (l *Log) openReadOnly() error {
	fsys := l.opts.FS
	path := fsys.PathJoin(l.dir, pebbleName)
	if _, err := fsys.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("there is no log in %s", l.dir)
	} else if err != nil {
		return err
	}
	if isNew, err := checkFormat(fsys, l.dir); err != nil {
		return err
	} else if isNew {
		return fmt.Errorf("there is no log in %s", l.dir)
	}
	anchored, slots, err := readAnchor(fsys, fsys.PathJoin(l.dir, anchorName))
	if err != nil {
		return fmt.Errorf("read the anchor: %w", err)
	}
	var cuts []walCut
	l.db, err = openDatabase(path, l.opts.pebbleOptions(path, nil, true, l.logger), l.logger)
	if pebble.IsCorruptionError(err) {
		l.db, cuts, err = openCut(l.dir, l.opts, nil, l.logger, err)
	}
	if errors.Is(err, fs.ErrPermission) {
		l.db = nil
		return fmt.Errorf("the database in %s cannot be opened: %w", l.dir, err)
	}
	if err != nil {
		l.db = nil
		return fmt.Errorf("the database in %s cannot be opened, so none of its events can be read: %w; restore a backup", l.dir, err)
	}

	// What is wrong with the log's id, or with a WAL, is told if nothing before it is.
	var first *DamagedError
	found := func(err error) error {
		if err == nil {
			return nil
		}
		damage, ok := errors.AsType[*DamagedError](err)
		if !ok {
			return err
		}
		if first == nil || damage.Position < first.Position {
			first = damage
		}
		return nil
	}
	var was verified
	if was.id, err = l.readMeta(); found(err) != nil {
		return err
	}
	if anchored != nil && err == nil && was.id != anchored.log {
		first = &DamagedError{Dir: l.dir, Position: 1, Detail: "the anchor is that of another log"}
	}
	switch err = l.readLog(&was, anchored); {
	case found(err) != nil:
		return err
	case err != nil:
	case len(cuts) > 0:
		_ = found(&DamagedError{Dir: l.dir, Position: events.Position(was.tree.Size() + 1), Detail: cuts[0].String()}) // it is damage
	default:
		if err = l.checkSize(&was, anchored, slots); found(err) != nil {
			return err
		}
	}
	l.serveOnly(was, first)
	return nil
}

// serveOnly makes the log ready for readers, with what is wrong with it.
func (l *Log) serveOnly(was verified, damage *DamagedError) {
	refusal := &events.ReadOnlyError{}
	if damage != nil {
		refusal.Lost, refusal.Detail = damage.Position, damage.Detail
	}
	var err error = refusal
	l.failure.Store(&err)
	view := was.tree.View()
	l.tree.Store(&view)
	l.durable.Store(was.tree.Size())
	l.id = was.id
	l.clock = events.NewClock(was.time, l.opts.Now)
}

// LockDirectoryReadOnly is LockDirectory without making a file: where nothing can be
// written, nobody else writes either.
func LockDirectoryReadOnly(dir string) (io.Closer, error) {
	lock, err := pebble.LockDirectory(dir, readOnlyFS{vfs.Default})
	if err != nil {
		return nil, lockError(dir, err)
	}
	return lock, nil
}
