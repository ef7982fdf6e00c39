package kurrentlog

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"fleetledger/events"
)

// MaxBatchBytes is what one append to the cluster holds at most, as the server
// counts: older ones take 1 MB.
const MaxBatchBytes = 896 << 10

// placeBytes bounds an encoded place but for the fleet's name.
const placeBytes = 208

// request is an append on its way. Its caller makes it; then only the committer
// changes it.
type request struct {
	a     events.Append
	bytes int // what the server counts for it, at most
	// foreign is set for what another relay has handed over: it is written here.
	foreign bool

	// handed is set once another relay was given it: it may be written there at any time.
	handed bool
	// due is when it is looked for no longer, if the other relay says that it is written.
	due time.Time
	// answered is set once the caller was.
	answered bool

	// given is set when nobody waits for an answer any more. What is under way by
	// then may still be written.
	given atomic.Bool

	out  events.Appended
	err  error
	done chan struct{} // has one slot
}

func (l *Log) newRequest(a events.Append) (*request, error) {
	r := &request{a: a, done: make(chan struct{}, 1)}
	var buf []byte
	for i := range a.Drafts {
		n := &a.Drafts[i].Intent
		buf = n.AppendTo(buf[:0])
		r.bytes += len(buf) + placeBytes + len(l.opts.Fleet) + metaBytes + len(a.Drafts[i].Payload) + 2*len(n.Type)
	}
	if r.bytes > MaxBatchBytes {
		return nil, &events.TooLargeError{Bytes: r.bytes, Limit: MaxBatchBytes}
	}
	return r, nil
}

// own names the first event of r. A salt is random, so no other append has the same
// commitment for the same id.
func (r *request) own() own {
	n := &r.a.Drafts[0].Intent
	return own{n.ID, n.Commitment}
}

type own struct {
	id         string
	commitment events.Hash
}

// await has requests answered when their events come in the stream. Called by the
// committer.
func (l *Log) await(requests []*request) {
	for _, r := range requests {
		if !slices.Contains(l.awaited[r.own()], r) {
			l.awaited[r.own()] = append(l.awaited[r.own()], r)
		}
	}
}

// forget is the end of await.
func (l *Log) forget(r *request) {
	rest := slices.DeleteFunc(l.awaited[r.own()], func(x *request) bool { return x == r })
	if len(rest) == 0 {
		delete(l.awaited, r.own())
	} else {
		l.awaited[r.own()] = rest
	}
}

// answer ends r. Called by the committer.
func (l *Log) answer(r *request, out events.Appended, err error) {
	l.forget(r)
	r.answered = true
	r.out, r.err = out, err
	r.done <- struct{}{}
}

// Append implements events.Log. When the cluster is out of reach for long, it
// returns events.ErrUnavailable.
func (l *Log) Append(ctx context.Context, a events.Append) (events.Appended, error) {
	if err := a.Check(); err != nil {
		return events.Appended{}, err
	}
	if len(a.Erase) > 0 {
		return events.Appended{}, fmt.Errorf("%w: in a cluster a payload lies in the stream of its event, from which nothing is removed", events.ErrCannotErase)
	}
	if err := ctx.Err(); err != nil {
		return events.Appended{}, err
	}
	r, err := l.newRequest(a)
	if err != nil {
		return events.Appended{}, err
	}
	if !l.queue.push(r) {
		return events.Appended{}, events.ErrClosed
	}
	patience := time.NewTimer(l.opts.Patience)
	defer patience.Stop()
	select {
	case <-r.done:
		return r.out, r.err
	case <-ctx.Done():
		err = ctx.Err()
	case <-patience.C:
		err = fmt.Errorf("%w: it gave no answer for %s", events.ErrUnavailable, l.opts.Patience)
	case <-l.life.Done():
		err = context.Cause(l.life)
	}
	select {
	case <-r.done: // it was answered meanwhile
		return r.out, r.err
	default:
		r.given.Store(true)
		return events.Appended{}, err
	}
}

// queue is the appends that wait for the committer.
type queue struct {
	mu      sync.Mutex
	waiting []*request    // guarded by mu
	closed  bool          // guarded by mu
	ready   chan struct{} // has one slot: something changed
}

// push adds requests, or reports that the queue is closed.
func (q *queue) push(r ...*request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting = append(q.waiting, r...)
	q.signal()
	return true
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.signal()
}

// take moves what waits behind backlog. closed is true when nothing will come after
// it.
func (q *queue) take(backlog []*request) (_ []*request, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	backlog = append(backlog, q.waiting...)
	clear(q.waiting)
	q.waiting = q.waiting[:0]
	return backlog, q.closed
}
