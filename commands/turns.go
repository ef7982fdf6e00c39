package commands

import (
	"context"
	"sync"

	"fleetledger/events"
)

// turns lets commands that write the same stream go one after the other once they
// were in each other's way: of all those that decided at one revision a single one
// is recorded, so a crowd that only tried again would mostly try in vain. The zero
// value is ready. It is for speed alone; what an append expects is what is safe.
type turns struct {
	mu    sync.Mutex
	lines map[events.Stream]*line
}

// line is the queue of a stream.
type line struct {
	turn    chan struct{} // has one slot, full while somebody has the turn
	members int           // who wait or have the turn; guarded by turns.mu
}

// take waits for the turn at a stream, until ctx ends. release gives it up.
func (t *turns) take(ctx context.Context, s events.Stream) (release func(), err error) {
	t.mu.Lock()
	l := t.lines[s]
	if l == nil {
		if t.lines == nil {
			t.lines = map[events.Stream]*line{}
		}
		l = &line{turn: make(chan struct{}, 1)}
		t.lines[s] = l
	}
	l.members++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if l.members--; l.members == 0 {
			delete(t.lines, s)
		}
	}
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn; leave() }, nil
	case <-ctx.Done():
		leave()
		return func() {}, ctx.Err()
	}
}
