package kurrentlog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// isFinal reports whether trying again will not change err.
func isFinal(err error) bool {
	var (
		truncated *TruncatedError
		foreign   *ForeignError
		corrupt   *events.CorruptError
		refused   *foldError
		other     *NotEmptyError
	)
	return errors.As(err, &truncated) || errors.As(err, &foreign) || errors.As(err, &corrupt) || errors.As(err, &refused) || errors.As(err, &other) ||
		errors.Is(err, events.ErrFailed) || errors.Is(err, events.ErrClosed) || hasCode(err, esdb.ErrorCodeStreamDeleted)
}

// foldError says that the fold does not take what another relay has recorded.
type foldError struct {
	position events.Position
	err      error
}

func (e *foldError) Error() string {
	return fmt.Sprintf("position %d was recorded by another relay, and this one does not understand it: %v; run the same version of fleetledger on every relay", e.position, e.err)
}

func (e *foldError) Unwrap() error { return e.err }

// checkWhole refuses a stream of which events were, or will be, removed.
func (l *Log) checkWhole(ctx context.Context) error {
	name := l.cluster.stream
	meta, err := l.cluster.newest(ctx, "$$"+name)
	if err != nil {
		return err
	}
	if meta != nil {
		var limits map[string]any
		if err := json.Unmarshal(meta.Data, &limits); err != nil {
			return &TruncatedError{Stream: name, Detail: fmt.Sprintf("its metadata cannot be read: %v", err)}
		}
		for _, limit := range []string{"$maxAge", "$maxCount", "$tb"} {
			if v, ok := limits[limit]; ok {
				return &TruncatedError{Stream: name, Detail: fmt.Sprintf("its metadata has %s %v", limit, v)}
			}
		}
	}
	first, err := l.cluster.at(ctx, 0)
	if err != nil {
		return err
	}
	if first != nil && first.EventNumber != 0 {
		return &TruncatedError{Stream: name, Detail: fmt.Sprintf("its first revision is %d, not 0", first.EventNumber)}
	}
	return nil
}

// checkSame refuses a stream that does not go on from what the replica holds.
func (l *Log) checkSame(ctx context.Context) error {
	size := l.applied.Load()
	if size == 0 {
		return nil
	}
	foreign := func(format string, args ...any) error {
		return &ForeignError{Stream: l.cluster.stream, Position: events.Position(size), Detail: fmt.Sprintf(format, args...)}
	}
	last, err := l.cluster.newest(ctx, l.cluster.stream)
	if err != nil {
		return err
	}
	if last == nil {
		return foreign("the stream is empty")
	}
	if ends := last.EventNumber + 1; ends < size {
		return foreign("the stream ends at position %d: the cluster has lost events, or a node lags", ends)
	}
	there, err := l.cluster.at(ctx, size-1)
	if err != nil {
		return err
	}
	if there == nil {
		return errors.New("the newest event that this relay knows cannot be read")
	}
	theirs, _, err := decode(there)
	if err != nil {
		return err
	}
	for ours, err := range l.replica.ReadAll(ctx, events.Position(size-1)) {
		if err != nil {
			return err
		}
		if ours.LeafHash != theirs.LeafHash {
			return foreign("it holds event %s there, this relay has %s", theirs.Header.ID, ours.Header.ID)
		}
		break
	}
	return nil
}

// catchUp applies what the stream holds after the last event applied. Requests that are
// awaited, and whose events are among it, are answered.
func (l *Log) catchUp(ctx context.Context) error {
	for {
		end, err := l.catchUpPage(ctx)
		if err != nil || end {
			return err
		}
	}
}

// catchUpPage is catchUp for at most one page; end says that it was the last.
func (l *Log) catchUpPage(ctx context.Context) (end bool, err error) {
	page, end, err := l.cluster.read(ctx, l.applied.Load())
	if err != nil {
		return false, err
	}
	appends, err := group(page, l.applied.Load())
	if err != nil {
		return false, err
	}
	return end, l.apply(appends)
}

// group cuts the events after the first size of the stream into appends. What lacks
// its end, where a page or a lagging node cuts it off, is left out.
func group(page []*esdb.RecordedEvent, size uint64) (appends [][]events.Record, err error) {
	var open []events.Record
	for _, e := range page {
		if e.EventNumber != size {
			return nil, &events.CorruptError{Position: events.Position(size + 1), Detail: fmt.Sprintf("the stream goes on with revision %d where %d is due: events were removed", e.EventNumber, size)}
		}
		r, left, err := decode(e)
		if err != nil {
			return nil, err
		}
		size++
		if open = append(open, r); left == 0 {
			appends, open = append(appends, open), nil
		}
	}
	return appends, nil
}

// apply stages and stores appends that follow, and answers those who await them.
func (l *Log) apply(appends [][]events.Record) error {
	var placed []events.Placed
	for _, recs := range appends {
		p := events.Placed{Records: recs}
		if l.opts.Fold != nil {
			var err error
			if p.Publish, err = l.opts.Fold.Stage(recs); err != nil {
				l.unstage()
				return &foldError{recs[0].Header.Position, err}
			}
		}
		placed = append(placed, p)
	}
	if err := l.store(placed); err != nil {
		return fmt.Errorf("%w: %w", events.ErrFailed, err)
	}
	for _, recs := range appends {
		first := &recs[0].Header
		if waiting := l.awaited[own{first.ID, first.Commitment}]; len(waiting) > 0 {
			l.answer(waiting[0], events.Appended{First: first.Position, Last: recs[len(recs)-1].Header.Position, Records: recs}, nil)
		}
	}
	return nil
}

// tailAppends is how many appends of other relays may wait to be applied.
const tailAppends = 256

// applyTail applies what the subscription has brought, if it follows; what does not
// is read when it is needed.
func (l *Log) applyTail(recs []events.Record) {
	var appends [][]events.Record
	next := events.Position(l.applied.Load()) + 1
	for n := 0; ; {
		if recs[0].Header.Position == next {
			appends = append(appends, recs)
			next += events.Position(len(recs))
			n += len(recs)
		}
		if n >= pageEvents {
			break
		}
		select {
		case recs = <-l.tail:
			continue
		default:
		}
		break
	}
	if err := l.apply(appends); err != nil {
		l.fail(err)
	}
}

// follow keeps a subscription open, so that what other relays record is seen at once.
func (l *Log) follow() {
	for pause := minPause; l.life.Err() == nil; pause = min(2*pause, maxPause) {
		next := l.applied.Load()
		var open []events.Record
		err := l.cluster.subscribe(l.life, next, func(e *esdb.RecordedEvent) bool {
			pause = minPause
			if e.EventNumber != next {
				return false // it begins again
			}
			r, left, err := decode(e)
			if err != nil {
				// Whoever reads it for the log says what is wrong.
				l.opts.Logger.Error("the subscription brought what is no event of this log", "error", err)
				return false
			}
			next++
			if open = append(open, r); left > 0 {
				return true
			}
			select {
			case l.tail <- open:
				open = nil
				return true
			case <-l.life.Done():
				return false
			}
		})
		if err != nil && l.life.Err() == nil {
			l.opts.Logger.Debug("the subscription ended", "stream", l.cluster.stream, "error", err)
		}
		select {
		case <-time.After(pause):
		case <-l.life.Done():
		}
	}
}
