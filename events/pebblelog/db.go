package pebblelog

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable"
)

const (
	defaultMemTableBytes = 64 << 20
	blockCacheBytes      = 64 << 20
	memTables            = 4 // at most, before appends wait for a flush
)

// pebbleOptions is the tuning. It was measured with events of 512 bytes; see
// the benchmarks before changing it.
func (o Options) pebbleOptions(lock *pebble.Lock, readOnly bool, logger *pebbleLogger) *pebble.Options {
	opts := &pebble.Options{
		FS:                 &pebbleFS{FS: o.FS, logger: logger},
		Lock:               lock,
		ReadOnly:           readOnly,
		Logger:             logger,
		FormatMajorVersion: pebble.FormatNewest,
		// Pebble takes memtables out of the block cache, all that may be there.
		CacheSize:                   blockCacheBytes + memTables*int64(o.MemTableBytes),
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: memTables,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       20,
		// Keys mostly come in order: a large base level spares rewriting them.
		LBaseMaxBytes: 512 << 20,
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
			BackgroundError: func(err error) {
				logger.log.Error("Pebble: background work failed", "error", err)
			},
		},
	}
	opts.Levels[0].FilterPolicy = bloom.FilterPolicy(10) // the other levels take it from here
	// What is flushed is soon compacted: compressing it twice only costs.
	opts.Levels[0].Compression = func() *sstable.CompressionProfile { return sstable.NoCompression }
	opts.Levels[1].Compression = func() *sstable.CompressionProfile { return sstable.SnappyCompression }
	return opts
}

// pebbleLogger is what Pebble tells its troubles to. Each open database has one
// of its own.
type pebbleLogger struct {
	log *slog.Logger
	// then is told why the database is stuck, once; it may be nil.
	then func(error)

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
		close(l.stuck)
		if l.then != nil {
			l.then(err)
		}
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

// await runs f, which calls Pebble, and returns even if Pebble calls Fatalf in
// it and f never does.
func (l *pebbleLogger) await(f func() error) error {
	done := make(chan error, 1)
	go func() { done <- l.protect(f) }()
	select {
	case err := <-done:
		return err
	case <-l.stuck:
		return l.err
	}
}
