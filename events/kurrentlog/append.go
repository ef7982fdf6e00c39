package kurrentlog

import (
	"context"
	"fmt"
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
		return nil, fmt.Errorf("%w: it takes up to %d bytes in the cluster, at most %d are sent at once", events.ErrTooLarge, r.bytes, MaxBatchBytes)
	}
	return r, nil
}

// own reports whether rec was written for r. A salt is random, so no other append
// has the same commitment for the same id.
func (r *request) own(rec *events.Record) bool {
	n := &r.a.Drafts[0].Intent
	return n.ID == rec.Header.ID && n.Commitment == rec.Header.Commitment
}

// answer ends r.
func (r *request) answer(out events.Appended, err error) {
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

// push adds r, or reports that the queue is closed.
func (q *queue) push(r *request) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting = append(q.waiting, r)
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
