package kurrentlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"fleetledger/events"
)

// maxBatchEvents bounds a batch; the server counts bytes only.
const maxBatchEvents = events.MaxAppendEvents

// commit is the committer: it alone appends to the stream, stages on the fold, and
// stores in the replica.
func (l *Log) commit() {
	defer close(l.stopped)
	poll := time.NewTicker(l.opts.Poll)
	defer poll.Stop()
	look := time.NewTicker(handedLook)
	look.Stop()
	defer look.Stop()
	looking := false
	var here, backlog []*request // what is to be appended here, and what may be handed over
	for {
		var closed bool
		var more []*request
		// Callers who can run now, run first: it makes batches larger and costs a lone
		// caller nothing.
		runtime.Gosched()
		more, closed = l.queue.take(nil)
		for _, r := range more {
			// When a time bounds it, it matters whose clock is asked.
			if r.foreign || !r.a.Before.IsZero() {
				here = append(here, r)
			} else {
				backlog = append(backlog, r)
			}
		}
		p := l.leader.Load()
		at := p.at()
		if at == "" {
			here, backlog = append(here, backlog...), nil
		}
		var batch []*request
		switch {
		case len(here) > 0:
			batch, here = cut(here)
			l.settle(batch, false)
		case len(backlog) > 0 && l.onTheirWay < maxHanded:
			batch, backlog = cut(backlog)
			here = append(here, l.handOver(p, at, batch)...)
		case closed && len(backlog) == 0 && len(l.awaited) == 0:
			return
		}
		if l.life.Err() != nil {
			return
		}
		if batch != nil {
			continue
		}
		if looking != (len(l.unseen) > 0) {
			if looking = !looking; looking {
				look.Reset(handedLook)
			} else {
				look.Stop()
			}
		}
		select {
		case <-l.queue.ready:
		case recs := <-l.tail:
			l.applyTail(recs)
		case h := <-l.back:
			l.takeBack(h)
		case <-look.C:
			l.lookForHanded()
		case <-poll.C:
			// A cluster that is out of reach is met by whoever appends.
			if err := l.catchUp(l.life); isFinal(err) {
				l.fail(err)
			}
		case <-l.life.Done():
			return
		}
	}
}

// cut takes as many requests as one batch holds.
func cut(backlog []*request) (batch, rest []*request) {
	n, bytes := 0, 0
	for i, r := range backlog {
		if n > 0 && (n+len(r.a.Drafts) > maxBatchEvents || bytes+r.bytes > MaxBatchBytes) {
			return slices.Clone(backlog[:i]), slices.Clone(backlog[i:])
		}
		n += len(r.a.Drafts)
		bytes += r.bytes
	}
	return slices.Clone(backlog), backlog[:0]
}

// settle gives every request of a batch its answer, however often it takes. behind says
// that the replica may lack what the stream has.
func (l *Log) settle(batch []*request, behind bool) {
	l.await(batch)
	defer func() { // those whose callers have given up
		for _, r := range batch {
			l.forget(r)
		}
	}()
	pause, stale, early := minPause, 0, 0
	wait := func() {
		select {
		case <-time.After(pause):
		case <-l.life.Done():
		}
		pause = min(2*pause, maxPause)
	}
	for {
		batch = l.open(batch)
		if len(batch) == 0 || l.life.Err() != nil {
			return
		}
		if behind {
			before := l.applied.Load()
			err := l.catchUp(l.life)
			switch {
			case isFinal(err):
				l.fail(err)
				return
			case err != nil:
				l.opts.Logger.Warn("the cluster cannot be read; trying again", "stream", l.cluster.stream, "error", err)
				wait()
				continue
			case l.applied.Load() > before:
				stale, pause = 0, minPause
			default:
				// Nothing is there: what was sent is lost or still on its way, or a node
				// lags.
				if stale++; stale >= 5 {
					if err := l.retry(l.life, l.checkSame); isFinal(err) {
						l.fail(err)
						return
					}
				}
				if early > 0 && len(batch) > 1 {
					l.settleEach(batch)
					return
				}
				if early >= maxEarly {
					l.answer(batch[0], events.Appended{}, fmt.Errorf("%w: it refuses this append, and the client does not say why; see that MaxAppendSize is at least 1 MB there", events.ErrUnavailable))
					return
				}
				if stale > 1 {
					wait()
				}
			}
			behind = false
			continue
		}
		t := l.place(batch)
		if t.ahead {
			// Someone expects what this relay has not seen yet.
			l.unstage()
			if err := l.retry(l.life, func(ctx context.Context) error { return l.catchUp(ctx) }); isFinal(err) {
				l.fail(err)
				return
			}
			batch = l.open(batch)
			t = l.place(batch)
		}
		if len(t.placed) == 0 {
			l.answerAll(t)
			return
		}
		err := l.cluster.append(l.life, l.applied.Load(), t.batch)
		switch {
		case err == nil:
			if err := l.store(t.placed); err != nil {
				l.fail(err)
				return
			}
			l.commits.Add(len(t.placed), len(t.batch))
			l.answerAll(t)
			return
		case errors.Is(err, errWrongHead):
		case hasCode(err, esdb.ErrorCodeStreamDeleted):
			l.fail(fmt.Errorf("the stream %s was deleted: restore the cluster from a backup: %w", l.cluster.stream, err))
			return
		case isRefused(err):
			l.unstage()
			for _, r := range batch {
				l.answer(r, events.Appended{}, fmt.Errorf("%w: it refuses these credentials; nothing was recorded: %w", events.ErrUnavailable, err))
			}
			return
		case tooLarge(err):
			l.unstage()
			if len(batch) == 1 {
				l.answer(batch[0], events.Appended{}, fmt.Errorf("%w: the server refuses it: %w", events.ErrTooLarge, err))
				return
			}
			l.settleEach(batch)
			return
		case errors.Is(err, io.EOF):
			// The server has answered before it was sent all, and the client does not say
			// what. Mostly it is too large for it.
			early++
			l.opts.Logger.Info("the server refused an append early; looking", "stream", l.cluster.stream)
		default:
			l.opts.Logger.Info("the outcome of an append is not known; looking", "stream", l.cluster.stream, "error", err)
		}
		l.unstage()
		behind = true
	}
}

// maxEarly is how often an append is sent that is refused without a reason.
const maxEarly = 5

// settleEach settles every request by itself.
func (l *Log) settleEach(batch []*request) {
	for _, r := range batch {
		l.settle([]*request{r}, false)
	}
}

// open is what of a batch waits for an answer.
func (l *Log) open(batch []*request) []*request {
	return slices.DeleteFunc(batch, func(r *request) bool {
		if !r.answered && r.given.Load() {
			l.forget(r)
		}
		return r.answered || r.given.Load()
	})
}

// turn is a batch as it would be written now.
type turn struct {
	requests []*request
	outs     []events.Appended
	errs     []error
	placed   []events.Placed
	batch    []esdb.EventData
	// ahead is set when a request expects what the replica does not hold yet.
	ahead bool

	heads map[events.Stream]head
	ids   map[string]events.Position
	keys  map[events.Hash]events.Appended
}

type head struct {
	revision events.Revision
	leaf     events.Hash
}

// answerAll tells each request what became of it.
func (l *Log) answerAll(t *turn) {
	for i, r := range t.requests {
		l.answer(r, t.outs[i], t.errs[i])
	}
}

// place checks every request against the replica and all before it, and gives those
// that stand their places.
func (l *Log) place(requests []*request) *turn {
	t := &turn{
		requests: requests, outs: make([]events.Appended, len(requests)), errs: make([]error, len(requests)),
		heads: map[events.Stream]head{}, ids: map[string]events.Position{}, keys: map[events.Hash]events.Appended{},
	}
	now, room := l.clock.Now(), l.replica.Room()
	last := events.Position(l.applied.Load())
	for i, r := range requests {
		var recs []events.Record
		if t.outs[i], recs, t.errs[i] = l.decide(t, r, last, now, room); recs != nil {
			last = recs[len(recs)-1].Header.Position
		}
	}
	return t
}

// decide places r after the position last, or says why it does not stand. The order
// of checks is the contract of events.Log.
func (l *Log) decide(t *turn, r *request, last events.Position, now time.Time, room error) (out events.Appended, recs []events.Record, err error) {
	ctx := l.life
	if !r.a.Key.IsZero() {
		var request events.Hash
		b, ok := t.keys[r.a.Key]
		if ok {
			request = b.Records[0].Header.Request
		} else if b, request, err = l.replica.FindKey(ctx, r.a.Key); err != nil {
			return out, nil, err
		}
		switch {
		case b.First == 0:
		case request != r.a.Request:
			return out, nil, &events.KeyMismatchError{First: b.First}
		default:
			return events.Appended{First: b.First, Last: b.Last, Duplicate: true}, nil, nil
		}
	}
	for i := range r.a.Drafts {
		id := r.a.Drafts[i].Intent.ID
		p, ok := t.ids[id]
		if !ok {
			if p, err = l.replica.FindID(ctx, id); err != nil {
				return out, nil, err
			}
		}
		if p != 0 {
			return out, nil, &events.DuplicateIDError{ID: id, Position: p}
		}
	}
	for _, e := range r.a.Expect {
		h, err := l.head(t, e.Stream)
		if err != nil {
			return out, nil, err
		}
		if h.revision != e.Revision {
			t.ahead = t.ahead || e.Revision > h.revision
			return out, nil, &events.ConflictError{Stream: e.Stream, Expected: e.Revision, Actual: h.revision}
		}
	}
	if !r.a.Before.IsZero() && !now.Before(r.a.Before) {
		return out, nil, events.ErrTooLate
	}
	if room != nil {
		return out, nil, r.unknown(room)
	}

	recs = make([]events.Record, len(r.a.Drafts))
	heads := make(map[events.Stream]head)
	for i, d := range r.a.Drafts {
		s := d.Intent.Stream
		h, ok := heads[s]
		if !ok {
			if h, err = l.head(t, s); err != nil {
				return out, nil, err
			}
		}
		last++
		recs[i] = d.Place(events.Place{Version: events.FormatVersion, Fleet: l.opts.Fleet, Position: last, Revision: h.revision + 1, Time: now, Prev: h.leaf})
		heads[s] = head{h.revision + 1, recs[i].LeafHash}
	}
	placed := events.Placed{Records: recs}
	if l.opts.Fold != nil {
		if placed.Publish, err = l.opts.Fold.Stage(recs); err != nil {
			return out, nil, r.unknown(err)
		}
	}
	for s, h := range heads {
		t.heads[s] = h
	}
	for i := range recs {
		t.ids[recs[i].Header.ID] = recs[i].Header.Position
		t.batch = append(t.batch, encode(&recs[i], len(recs)-1-i))
	}
	t.placed = append(t.placed, placed)
	out = events.Appended{First: recs[0].Header.Position, Last: last, Records: recs}
	if !r.a.Key.IsZero() {
		t.keys[r.a.Key] = out
	}
	return out, recs, nil
}

// head is the newest event of s among all that is accepted.
func (l *Log) head(t *turn, s events.Stream) (head, error) {
	if h, ok := t.heads[s]; ok {
		return h, nil
	}
	revision, leaf, err := l.replica.Head(s)
	h := head{revision, leaf}
	if err == nil {
		t.heads[s] = h
	}
	return h, err
}

// unstage has the fold forget what was staged for a batch that was not written, or
// not yet.
func (l *Log) unstage() {
	if l.opts.Fold != nil {
		l.opts.Fold.Unstage()
	}
}

// store makes appends that are in the cluster durable here, and visible.
func (l *Log) store(placed []events.Placed) error {
	if len(placed) == 0 {
		return nil
	}
	if err := l.replica.Store(placed); err != nil {
		return fmt.Errorf("store what the cluster has recorded: %w", err)
	}
	of := placed[len(placed)-1].Records
	last := &of[len(of)-1].Header
	l.clock.Reach(last.Time)
	l.applied.Store(uint64(last.Position))
	return nil
}
