package pebblelog

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
)

// Scrub implements events.Log.
//
// An erased payload has been overwritten with nothing in the batch of the event
// that tells of it, but Pebble's files still hold the older value: the WAL that it
// came in, and tables until a compaction drops it. The key "e position", written in
// that same batch, stands until both are gone, so a crash on the way leaves the work
// for the next start.
func (l *Log) Scrub(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(l.scrubCtx, cancel)()
	err := l.scrub(ctx)
	if err != nil && l.scrubCtx.Err() != nil {
		return events.ErrClosed
	}
	return err
}

func (l *Log) scrub(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case l.scrubbing <- struct{}{}:
		defer func() { <-l.scrubbing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	done, err := l.use()
	if err != nil {
		return err
	}
	defer done()
	if err := l.failedErr(); err != nil {
		return err
	}
	due, err := l.erased()
	if err != nil || len(due) == 0 {
		return err
	}
	if err := l.dropSnapshots(); err != nil {
		return err
	}
	if err := l.rotateWALs(ctx); err != nil {
		return fmt.Errorf("remove the WALs that hold erased payloads: %w", err)
	}
	for _, span := range spans(due) {
		err := l.logger.await(func() error {
			return l.db.Compact(ctx, payloadKey(nil, span[0]), payloadKey(nil, span[1]+1), false)
		})
		if err != nil {
			return fmt.Errorf("compact the tables that hold erased payloads: %w", err)
		}
	}
	if err := l.awaitRemoval(ctx); err != nil {
		return fmt.Errorf("remove the tables that held erased payloads: %w", err)
	}
	batch := l.db.NewBatch()
	defer batch.Close()
	for _, p := range due {
		if err := batch.Delete(erasedKey(nil, p), nil); err != nil {
			return err
		}
	}
	return l.logger.await(func() error { return batch.Commit(pebble.Sync) })
}

// scrubRetry is when a scrub that failed is tried again.
const scrubRetry = time.Minute

// keepScrubbed scrubs at the start, for what an earlier run of the program left
// undone, and after every erasure, whether its caller waits for that or not.
func (l *Log) keepScrubbed() {
	for {
		retry := make(<-chan time.Time)
		if err := l.Scrub(l.scrubCtx); err != nil && l.scrubCtx.Err() == nil {
			// Readers see nothing of it any more; what is left is in files only.
			l.opts.Logger.Error("erased payloads are still in files; it is tried again", "dir", l.dir, "error", err)
			retry = time.After(scrubRetry)
		}
		select {
		case <-l.scrubDue:
		case <-retry:
		case <-l.scrubCtx.Done():
			return
		}
	}
}

func (l *Log) signalScrub() {
	select {
	case l.scrubDue <- struct{}{}:
	default:
	}
}

// erased lists the positions whose payloads files may still hold, in order.
func (l *Log) erased() (list []events.Position, err error) {
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{erasedSpace}, UpperBound: spaceEnd(erasedSpace)})
	if err != nil {
		return nil, err
	}
	defer it.Close()
	for valid := it.First(); valid; valid = it.Next() {
		p, err := positionOf(it.Key())
		if err != nil {
			return nil, err
		}
		list = append(list, p)
	}
	return list, it.Error()
}

// spanGap is how far apart erased positions are compacted together: as much as
// about one table holds anyway.
const spanGap = 10_000

// spans are the ranges that positions, which are in order, lie in.
func spans(list []events.Position) (out [][2]events.Position) {
	for _, p := range list {
		if n := len(out); n > 0 && p-out[n-1][1] <= spanGap {
			out[n-1][1] = p
			continue
		}
		out = append(out, [2]events.Position{p, p})
	}
	return out
}

// maxRotations is more often than any WAL is kept for reuse.
const maxRotations = 64

// rotateWALs flushes what is in memory, and begins new WALs until none of those
// written so far is left: Pebble keeps a few to reuse, and what is reused here is
// deleted first (see pebbleFS).
func (l *Log) rotateWALs(ctx context.Context) error {
	before, err := l.files(".log")
	if err != nil {
		return err
	}
	for range maxRotations {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := l.logger.await(l.db.Flush); err != nil {
			return err
		}
		now, err := l.files(".log")
		if err != nil {
			return err
		}
		if !overlap(before, now) {
			return nil
		}
	}
	return fmt.Errorf("after %d rotations some are still there", maxRotations)
}

// removalPoll is how often it is looked whether files are gone.
const removalPoll = 5 * time.Millisecond

// awaitRemoval waits until the tables that no version needs any more are gone. They
// go when nobody reads them any longer.
func (l *Log) awaitRemoval(ctx context.Context) error {
	before, err := l.files(".sst")
	if err != nil {
		return err
	}
	for {
		l.dropProbers()
		levels, err := l.db.SSTables()
		if err != nil {
			return err
		}
		now, err := l.files(".sst")
		if err != nil {
			return err
		}
		for _, level := range levels {
			for _, t := range level {
				delete(now, fmt.Sprintf("%s.sst", t.BackingSSTNum))
			}
		}
		if !overlap(before, now) {
			return nil
		}
		select {
		case <-time.After(removalPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// files are the database's files with this ending.
func (l *Log) files(ending string) (map[string]bool, error) {
	names, err := l.opts.FS.List(l.opts.FS.PathJoin(l.dir, pebbleName))
	if err != nil {
		return nil, err
	}
	out := make(map[string]bool)
	for _, name := range names {
		if strings.HasSuffix(name, ending) {
			out[name] = true
		}
	}
	return out, nil
}

func overlap(a, b map[string]bool) bool {
	for name := range a {
		if b[name] {
			return true
		}
	}
	return false
}
