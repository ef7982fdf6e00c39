package kurrentlog

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"fleetledger/events"
)

// Source is a log to be moved, or compared, that nobody appends to meanwhile.
type Source interface {
	Durable() events.Position
	ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Record, error]
}

// NotEmptyError says that a stream holds something else than the log that is to be
// moved into it.
type NotEmptyError struct {
	Stream string
	Detail string
}

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("the stream %s holds another log: %s; nothing was changed", e.Stream, e.Detail)
}

// Import copies a log into its stream, byte for byte, and then reads the stream to
// compare every event. The stream is empty, or holds the beginning of the same log:
// an import that was interrupted goes on. progress is told how many events are there.
func Import(ctx context.Context, source Source, opts Options, progress func(events.Position)) error {
	l, err := connect(opts)
	if err != nil {
		return err
	}
	defer l.cluster.close()
	if err := l.retry(ctx, l.checkWhole); err != nil {
		return err
	}
	for size := source.Durable(); ; {
		has, err := l.holds(ctx, source)
		if err != nil {
			return err
		}
		progress(has)
		if has == size {
			break
		}
		if err := l.copy(ctx, source, has, progress); err != nil {
			return err
		}
	}
	return l.compare(ctx, source)
}

// Compare reads the whole stream and compares every event with that of a log.
func Compare(ctx context.Context, source Source, opts Options) error {
	l, err := connect(opts)
	if err != nil {
		return err
	}
	defer l.cluster.close()
	return l.compare(ctx, source)
}

// holds returns how many events of source are in the stream, which holds no other.
func (l *Log) holds(ctx context.Context, source Source) (has events.Position, err error) {
	err = l.retry(ctx, func(ctx context.Context) error {
		last, err := l.cluster.newest(ctx, l.cluster.stream)
		if err != nil || last == nil {
			has = 0
			return err
		}
		has = events.Position(last.EventNumber + 1)
		theirs, _, err := decode(last)
		if err != nil {
			return err
		}
		for ours, err := range source.ReadAll(ctx, has-1) {
			if err != nil {
				return err
			}
			if ours.LeafHash == theirs.LeafHash {
				return nil
			}
			break
		}
		return &NotEmptyError{l.cluster.stream, fmt.Sprintf("its last event, at position %d, is %s", has, theirs.Header.ID)}
	})
	return has, err
}

// copy appends the events of source after has. It ends early, and without an error,
// when the outcome of an append is not known: then the stream is to be looked at.
func (l *Log) copy(ctx context.Context, source Source, has events.Position, progress func(events.Position)) error {
	var (
		batch []esdb.EventData
		bytes int
	)
	errLook := errors.New("look")
	send := func() error {
		err := l.cluster.append(ctx, uint64(has), batch)
		if tooLarge(err) {
			return fmt.Errorf("the server refuses the events from position %d on for their size: %w", has+1, err)
		}
		if err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return errLook
		}
		has += events.Position(len(batch))
		progress(has)
		batch, bytes = batch[:0], 0
		return nil
	}
	add := func(r *events.Record, left int) error {
		e := encode(r, left)
		n := len(e.Data) + len(e.Metadata) + 2*len(e.EventType)
		if len(batch) > 0 && (bytes+n > MaxBatchBytes || len(batch) >= maxBatchEvents) {
			if err := send(); err != nil {
				return err
			}
		}
		batch, bytes = append(batch, e), bytes+n
		return nil
	}
	// Events of one key are one append, which a key finds as a whole.
	var run []events.Record
	flush := func() error {
		for i := range run {
			if err := add(&run[i], len(run)-1-i); err != nil {
				return err
			}
		}
		run = run[:0]
		return nil
	}
	err := func() error {
		for r, err := range source.ReadAll(ctx, has) {
			if err != nil {
				return err
			}
			if len(run) > 0 && (r.Header.Key.IsZero() || r.Header.Key != run[0].Header.Key) {
				if err := flush(); err != nil {
					return err
				}
			}
			run = append(run, r)
		}
		if err := flush(); err != nil || len(batch) == 0 {
			return err
		}
		return send()
	}()
	if errors.Is(err, errLook) {
		return nil
	}
	return err
}

// compare holds the stream to source, event by event.
func (l *Log) compare(ctx context.Context, source Source) error {
	size, next := source.Durable(), uint64(0)
	ours, stop := iter.Pull2(source.ReadAll(ctx, 0))
	defer stop()
	for end := false; !end; {
		var page []*esdb.RecordedEvent
		err := l.retry(ctx, func(ctx context.Context) (err error) {
			page, end, err = l.cluster.read(ctx, next)
			if err == nil && end && next+uint64(len(page)) < uint64(size) {
				end = false
				if len(page) == 0 { // or a node lags
					return fmt.Errorf("the stream %s ends before position %d, the log at %d", l.cluster.stream, next+1, size)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range page {
			theirs, _, err := decode(e)
			if err != nil {
				return err
			}
			next++
			r, err, ok := ours()
			switch {
			case err != nil:
				return err
			case !ok:
				return &NotEmptyError{l.cluster.stream, fmt.Sprintf("it goes on after position %d, where the log ends", size)}
			case e.EventNumber+1 != next || theirs.LeafHash != r.LeafHash || theirs.Salt != r.Salt || string(theirs.Payload) != string(r.Payload) || theirs.Erased != r.Erased:
				return &events.CorruptError{Position: r.Header.Position, Detail: "the stream " + l.cluster.stream + " holds other bytes there than the log"}
			}
		}
	}
	return nil
}
