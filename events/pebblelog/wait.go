package pebblelog

import (
	"container/heap"
	"context"
	"sync"
	"sync/atomic"

	"fleetledger/events"
)

// waiters are the callers of Wait, the one who waits for the lowest position
// first.
type waiters struct {
	mu   sync.Mutex
	heap waitHeap // guarded by mu
	err  error    // guarded by mu; set when nobody can wait any more
}

type waiter struct {
	position events.Position
	index    int // in the heap; -1 once it was taken out
	woken    chan error
}

// wait returns when durable is at or past p. durable is raised before wake is
// called.
func (w *waiters) wait(ctx context.Context, p events.Position, durable *atomic.Uint64) error {
	if durable.Load() >= uint64(p) {
		return nil
	}
	w.mu.Lock()
	switch {
	case durable.Load() >= uint64(p): // raised since; its wake may be over
		w.mu.Unlock()
		return nil
	case w.err != nil:
		defer w.mu.Unlock()
		return w.err
	}
	me := &waiter{position: p, woken: make(chan error, 1)}
	heap.Push(&w.heap, me)
	w.mu.Unlock()

	select {
	case err := <-me.woken:
		return err
	case <-ctx.Done():
		w.mu.Lock()
		defer w.mu.Unlock()
		if me.index >= 0 {
			heap.Remove(&w.heap, me.index)
		}
		return ctx.Err()
	}
}

// wake ends the waits for positions up to p.
func (w *waiters) wake(p events.Position) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.heap) > 0 && w.heap[0].position <= p {
		heap.Pop(&w.heap).(*waiter).woken <- nil
	}
}

// end ends every wait, now and later, with err. The first err stays.
func (w *waiters) end(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = err
	}
	for len(w.heap) > 0 {
		heap.Pop(&w.heap).(*waiter).woken <- w.err
	}
}

type waitHeap []*waiter

func (h waitHeap) Len() int           { return len(h) }
func (h waitHeap) Less(i, j int) bool { return h[i].position < h[j].position }

func (h waitHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *waitHeap) Push(x any) {
	w := x.(*waiter)
	w.index = len(*h)
	*h = append(*h, w)
}

func (h *waitHeap) Pop() any {
	last := len(*h) - 1
	w := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	w.index = -1
	return w
}
