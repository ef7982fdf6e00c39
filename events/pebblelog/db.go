package pebblelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
)

const (
	defaultMemTableBytes = 64 << 20
	blockCacheBytes      = 64 << 20
	memTables            = 4 // at most, before appends wait for a flush
)

// pebbleOptions is the tuning, for the database in dir. It was measured with events of 512 bytes; see
// the benchmarks before changing it.
func (o Options) pebbleOptions(dir string, lock *pebble.Lock, readOnly bool, logger *pebbleLogger) *pebble.Options {
	opts := &pebble.Options{
		FS:                 &pebbleFS{FS: o.FS, dir: dir, logger: logger},
		Lock:               lock,
		ReadOnly:           readOnly,
		Logger:             logger,
		FormatMajorVersion: pebble.FormatNewest,
		// Pebble takes memtables out of the block cache, all that may be there. With less a
		// flush that lags takes the filters and indexes that appends ask for: at ten
		// million events their p99 was three times that at a hundred thousand.
		CacheSize:                   blockCacheBytes + memTables*int64(o.MemTableBytes),
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: memTables,
		// With twice as many, appends cost a tenth less. But a read of a damaged block asks
		// every table above it again, each time with Pebble's search for a flipped bit.
		L0CompactionThreshold: 4,
		L0StopWritesThreshold: 20,
		// Most tables in L0 are on their way down without being read again; see spanPolicy.
		L0CompactionFileThreshold: 100,
		LBaseMaxBytes:             512 << 20,
		// Every batch is synced, so syncing in between only costs.
		WALBytesPerSync:            0,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		EventListener: &pebble.EventListener{
			// Without this Pebble calls Fatalf. A block that cannot be read fails
			// whoever reads it; it is no reason to stop taking appends.
			DataCorruption: func(info pebble.DataCorruptionInfo) {
				logger.log.Error("Pebble found a damaged file; run an audit", "file", info.Path, "error", info.Details)
			},
			// Pebble tries again by itself; if it gives up, it calls Fatalf.
			BackgroundError: logger.backgroundError,
			FlushEnd:        logger.flushEnd,
		},
	}
	opts.Experimental.SpanPolicyFunc = spanPolicy
	// A compaction into the base level takes along what else lies in L0 between the tables
	// that it replaces there, up to 25 tables of that level's size. With small ones it
	// leaves a flush of headers or payloads alone, to be moved. Index 1 is the base level.
	opts.TargetFileSizes = [7]int64{16 << 20, 1 << 20, 8 << 20}
	opts.Levels[0].FilterPolicy = bloom.FilterPolicy(10) // the other levels take it from here
	return opts
}

// spanPolicy gives each space of keys tables of its own. Headers, payloads and mostly
// ids come in order, so that their tables do not overlap and go down the levels by a
// move. A table that held the last payloads and the first streams would overlap every
// table of later payloads, and have them all written again.
func spanPolicy(key []byte) (policy pebble.SpanPolicy, end []byte, err error) {
	return pebble.SpanPolicy{}, spaceEnd(key[0]), nil
}

// database is an open Pebble database. What it adds to one makes sure that nobody
// but the engine's own goroutines waits for a database that is stuck: it may hold
// any of its locks, and letting go of an iterator takes one.
type database struct {
	*pebble.DB
	logger *pebbleLogger
}

// openDatabase opens the database at path. logger is the one in opts.
func openDatabase(path string, opts *pebble.Options, logger *pebbleLogger) (*database, error) {
	d := &database{logger: logger}
	logger.opening.Store(true)
	err := logger.await(func() error {
		db, err := pebble.Open(path, opts)
		if err == nil {
			d.DB = db
		}
		return err
	})
	logger.opening.Store(false)
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Close closes the database, unless it is stuck.
func (d *database) Close() error { return d.logger.await(d.DB.Close) }

// NewIter is Pebble's, with an iterator that can always be closed.
func (d *database) NewIter(o *pebble.IterOptions) (*iterator, error) {
	it, err := d.DB.NewIter(o)
	if err != nil {
		return nil, err
	}
	return &iterator{Iterator: it, logger: d.logger}, nil
}

// Get returns a copy of the value of key, and whether there is one.
func (d *database) Get(key []byte) (value []byte, found bool, err error) {
	v, closer, err := d.DB.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	value = bytes.Clone(v)
	_ = d.logger.await(closer.Close) // only returns what Get would have
	return value, true, nil
}

// iterator is one of Pebble's.
type iterator struct {
	*pebble.Iterator
	logger *pebbleLogger
}

// Close lets go of what the iterator uses. A stuck database keeps it.
func (it *iterator) Close() error { return it.logger.await(it.Iterator.Close) }

// pebbleLogger is what Pebble tells its troubles to. Each open database has one
// of its own.
type pebbleLogger struct {
	log *slog.Logger
	// then is told why the database is stuck, once; it may be nil.
	then func(error)
	// flushEnded is how the last flush ended, flushing why flushes fail at present.
	// Pebble ends a flush of nothing with an error too, but reports that one no
	// further.
	flushEnded, flushing atomic.Pointer[error]
	told                 atomic.Int64 // when a background error was last told, in ns
	// opening is true while the database is opened. What was in the WAL is written to
	// tables then, and nobody is there yet who could wait for space.
	opening atomic.Bool
	// flushFailed is told why a memtable cannot be written; it may be nil.
	flushFailed func(error)

	once  sync.Once
	stuck chan struct{} // closed when the database is stuck: it holds locks for ever
	err   error         // why; set before stuck is closed
}

func newPebbleLogger(log *slog.Logger, then func(error)) *pebbleLogger {
	return &pebbleLogger{log: log, then: then, stuck: make(chan struct{})}
}

func (l *pebbleLogger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("Pebble: " + fmt.Sprintf(format, args...))
	}
}

func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error("Pebble: " + fmt.Sprintf(format, args...))
}

func (l *pebbleLogger) flushEnd(info pebble.FlushInfo) {
	l.flushEnded.Store(&info.Err)
	l.flushing.Store(nil)
}

// backgroundTold is how often it is told that background work fails: a full disk
// makes it fail ten times a second.
const backgroundTold = 10 * time.Second

// backgroundError takes what Pebble could not do. Pebble tries again, for ever.
func (l *pebbleLogger) backgroundError(err error) {
	now := time.Now().UnixNano()
	if told := l.told.Load(); now-told > int64(backgroundTold) && l.told.CompareAndSwap(told, now) {
		l.log.Error("Pebble: background work failed", "error", err)
	}
	// Appends would soon wait for a flush that always fails. On a full disk they
	// are refused before, and space may come back.
	ended := l.flushEnded.Load()
	if ended == nil || *ended == nil || !errors.Is(err, *ended) {
		return
	}
	l.flushing.Store(&err)
	if l.opening.Load() {
		l.stick(fmt.Errorf("write what is in the WAL to a table: %w", err))
		return
	}
	if l.flushFailed != nil && !errors.Is(err, syscall.ENOSPC) {
		l.flushFailed(fmt.Errorf("write a memtable to its file: %w", err))
	}
}

// flushFails reports whether the last flush failed.
func (l *pebbleLogger) flushFails() bool { return l.flushing.Load() != nil }

// Fatalf never returns. Where Pebble calls it after a failed write, it would
// otherwise go on as if the write had succeeded, and acknowledge what is not on
// disk.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	l.stick(fmt.Errorf(format, args...))
	select {}
}

// stick records that the database cannot be used, nor closed, any more.
func (l *pebbleLogger) stick(err error) {
	l.once.Do(func() {
		l.err = err
		// First, or else whoever stops waiting finds a log that has not failed.
		if l.then != nil {
			l.then(err)
		}
		close(l.stuck)
	})
}

func (l *pebbleLogger) isStuck() bool {
	select {
	case <-l.stuck:
		return true
	default:
		return false
	}
}

// protect runs f, which calls Pebble, and turns a panic into an error. Pebble
// panics when a WAL cannot be written, and leaves its locks held.
func (l *pebbleLogger) protect(f func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic in Pebble: %v", r)
			l.stick(err)
		}
	}()
	return f()
}

// await runs f, which calls Pebble, and returns even if f never does because the
// database is stuck.
func (l *pebbleLogger) await(f func() error) error {
	if l.isStuck() {
		return l.err
	}
	done := make(chan error, 1)
	go func() { done <- l.protect(f) }()
	select {
	case err := <-done:
		return err
	case <-l.stuck:
		return l.err
	}
}
