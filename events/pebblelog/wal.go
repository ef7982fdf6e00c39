package pebblelog

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"

	"fleetledger/events"
)

// walCut is where a WAL stops being readable.
type walCut struct {
	path   string
	offset int64 // of the first record that cannot be read
	err    error
}

func (c walCut) String() string {
	return fmt.Sprintf("the WAL %s cannot be read from byte %d on: %v", c.path, c.offset, c.err)
}

// scanWALs finds where the WALs in dir stop being readable before their end.
func scanWALs(fsys vfs.FS, dir string) ([]walCut, error) {
	logs, err := wal.Scan(wal.Dir{FS: fsys, Dirname: dir})
	if err != nil {
		return nil, err
	}
	var cuts []walCut
	for _, l := range logs {
		r := l.OpenForRead()
		for err == nil {
			var at wal.Offset
			if _, at, err = r.NextRecord(); err != nil && !errors.Is(err, io.EOF) {
				cuts = append(cuts, walCut{path: at.PhysicalFile, offset: at.Physical, err: err})
			}
		}
		err = r.Close()
		if err != nil {
			return cuts, err
		}
	}
	return cuts, nil
}

// cutFS shows WALs only as far as they can be read. Pebble refuses a database with
// a WAL that is damaged before its end; what lies before the damage can still be
// looked at.
type cutFS struct {
	readOnlyFS
	cuts []walCut
}

func (f cutFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	for _, c := range f.cuts {
		if c.path == name {
			return f.openCut(c)
		}
	}
	return f.readOnlyFS.Open(name, opts...)
}

func (f cutFS) openCut(c walCut) (vfs.File, error) {
	whole, err := f.readOnlyFS.Open(c.path)
	if err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(whole, c.offset))
	if err := errors.Join(err, whole.Close()); err != nil {
		return nil, err
	}
	mem := vfs.NewMem()
	file, err := mem.Create("wal", vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	if _, err := file.Write(content); err != nil {
		return nil, err
	}
	if err := file.Close(); err != nil {
		return nil, err
	}
	return mem.Open("wal")
}

// openCut opens the database for reading, as far as its WALs go. It fails, with
// what Pebble said first, if the WALs are not what is wrong. lock is the directory's
// lock if it is held already.
func openCut(dir string, opts Options, lock *pebble.Lock, logger *pebbleLogger, was error) (*database, []walCut, error) {
	fsys := readOnlyFS{opts.FS}
	path := fsys.PathJoin(dir, pebbleName)
	cuts, err := scanWALs(fsys, path)
	if err != nil || len(cuts) == 0 {
		return nil, nil, was
	}
	opts.FS = cutFS{fsys, cuts}
	db, err := openDatabase(path, opts.pebbleOptions(path, lock, true, logger), logger)
	if err != nil {
		return nil, nil, was
	}
	return db, cuts, nil
}

// damagedWAL names the first position that is lost in a database that Pebble
// does not open.
func (l *Log) damagedWAL(was error) *DamagedError {
	e := &DamagedError{Dir: l.dir, Position: 1, Detail: fmt.Sprintf("Pebble cannot open its files: %v", was)}
	db, cuts, err := openCut(l.dir, l.opts, l.lock, newPebbleLogger(l.opts.Logger, nil), was)
	if err != nil {
		return e
	}
	defer db.Close()
	if last, err := lastPosition(db, headerSpace); err == nil {
		e.Position, e.Detail = events.Position(last)+1, cuts[0].String()
	}
	return e
}
