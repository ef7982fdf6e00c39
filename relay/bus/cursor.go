package bus

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// Cursors are named places in a log that survive restarts. Methods may be called
// concurrently.
type Cursors struct {
	store Store
	where string // for people

	mu   sync.Mutex
	open map[string]*cursor // guarded by mu
}

// NewCursors returns the cursors kept in dir, one file each; an empty dir keeps them
// in memory.
func NewCursors(dir string) *Cursors {
	if dir == "" {
		return &Cursors{store: &memory{values: map[string][]byte{}}, where: "memory", open: map[string]*cursor{}}
	}
	return &Cursors{store: Files(dir), where: filepath.Clean(dir), open: map[string]*cursor{}}
}

// sharedCursors returns cursors of which each is used by one process at a time.
func sharedCursors(s Store) *Cursors {
	return &Cursors{store: s, where: "the cluster", open: map[string]*cursor{}}
}

// cursor is one of them.
type cursor struct {
	name  string
	store Store

	// turn has one slot, full while somebody reads the log by this cursor.
	turn chan struct{}

	saving  sync.Mutex // held while the store is written to
	version uint64     // of what the store holds; guarded by saving

	mu    sync.Mutex
	state cursorState // guarded by mu
	dirty bool        // guarded by mu
	saved time.Time   // guarded by mu; when it was last written
}

// cursorState is what is kept of a cursor.
type cursorState struct {
	// Position is the last event that is done with.
	Position events.Position `json:"position"`
	// Delivered counts events taken by the destination, over all time.
	Delivered uint64   `json:"delivered"`
	Parked    []Parked `json:"parked,omitzero"`
	// DeliveredAt is when the last one was taken.
	DeliveredAt time.Time `json:"delivered_at,omitzero"`
	// Acted is the last event of the subscriptions' stream that was acted on, or is
	// kept here as something to do: Replay says that the parked ones are to be
	// delivered, Skip is the position of an event to park.
	Acted  events.Position `json:"acted,omitzero"`
	Replay bool            `json:"replay,omitzero"`
	Skip   events.Position `json:"skip,omitzero"`
	// Failing is why the event at Stuck is not taken yet, RetryAt when it is tried again.
	Failing string          `json:"failing,omitzero"`
	Stuck   events.Position `json:"stuck,omitzero"`
	RetryAt time.Time       `json:"retry_at,omitzero"`
	// Relay is the relay of a cluster that delivers.
	Relay string `json:"relay,omitzero"`
}

// Parked is an event that was put aside.
type Parked struct {
	Position events.Position `json:"position"`
	EventID  string          `json:"event_id"`
	At       time.Time       `json:"at"`
	// Reason is what the destination said.
	Reason string `json:"reason"`
}

// get returns the cursor of a name; a new one stands at after.
func (c *Cursors) get(ctx context.Context, name string, after events.Position) (*cursor, error) {
	c.mu.Lock()
	x := c.open[name]
	c.mu.Unlock()
	if x != nil {
		return x, nil
	}
	x = &cursor{name: name, store: c.store, turn: make(chan struct{}, 1)}
	var err error
	if x.state, x.version, err = c.load(ctx, name, after); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if first := c.open[name]; first != nil {
		return first, nil
	}
	c.open[name] = x
	return x, nil
}

// load reads how a cursor stands in the store.
func (c *Cursors) load(ctx context.Context, name string, after events.Position) (cursorState, uint64, error) {
	s := cursorState{Position: after}
	b, version, err := c.store.Get(ctx, name)
	if err != nil {
		return s, 0, fmt.Errorf("cursor %s: %w", name, err)
	}
	if b == nil {
		return s, version, nil
	}
	if err := json.Unmarshal(b, &s); err != nil {
		return s, 0, &badCursorError{fmt.Sprintf("cursor %s: what %s holds of it does not read: %v; remove it there, and everything is delivered anew", name, c.where, err)}
	}
	return s, version, nil
}

// badCursorError says why nothing is delivered by a cursor until somebody helps.
type badCursorError struct{ why string }

func (e *badCursorError) Error() string { return e.why }

// forget has a cursor read from the store again. Nobody may be reading by it.
func (c *Cursors) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, name)
}

func (c *Cursors) forgetAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.open)
}

// remove removes a cursor. Nobody may be reading by it.
func (c *Cursors) remove(ctx context.Context, name string) error {
	c.forget(name)
	return c.store.Remove(ctx, name)
}

// acquire waits until nobody else reads by this cursor, or ctx ends.
func (x *cursor) acquire(ctx context.Context) (release func(), err error) {
	select {
	case x.turn <- struct{}{}:
		return func() { <-x.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (x *cursor) get() cursorState {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.state.clone()
}

// repeats reports whether forget would change it.
func (x *cursor) repeats(erased func(events.Position) bool) bool {
	s := x.get()
	return s.forget(erased)
}

// forget takes out what was said of events whose payloads were erased, and reports
// whether there was anything.
func (s *cursorState) forget(erased func(events.Position) bool) (had bool) {
	if s.Failing != "" && s.Failing != withheld && s.Stuck != 0 && erased(s.Stuck) {
		s.Failing, had = withheld, true
	}
	for i := range s.Parked {
		if p := &s.Parked[i]; p.Reason != withheld && erased(p.Position) {
			p.Reason, had = withheld, true
		}
	}
	return had
}

func (s cursorState) clone() cursorState {
	s.Parked = slices.Clone(s.Parked)
	return s
}

// saveEvery bounds how often a cursor that moves on is written: what was delivered
// since comes again after a crash.
const saveEvery = time.Second

// note changes the cursor; it reports whether it is time to write it.
func (x *cursor) note(f func(*cursorState)) (due bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.state)
	x.dirty = true
	return time.Since(x.saved) > saveEvery
}

// change changes the cursor and writes it if that was long ago, or if now is set. On
// an error it is changed and not written.
func (x *cursor) change(ctx context.Context, now bool, f func(*cursorState)) error {
	if due := x.note(f); !due && !now {
		return nil
	}
	return x.flush(ctx)
}

// flush writes the cursor if it changed since.
func (x *cursor) flush(ctx context.Context) (err error) {
	x.saving.Lock()
	defer x.saving.Unlock()
	x.mu.Lock()
	dirty, state := x.dirty, x.state.clone()
	x.dirty = false
	x.mu.Unlock()
	if !dirty {
		return nil
	}
	defer func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if err == nil {
			x.saved = time.Now()
			return
		}
		x.dirty = true
		err = fmt.Errorf("write cursor %s: %w", x.name, err)
	}()
	b, err := json.Marshal(state)
	if err != nil {
		return err
	}
	version, err := x.store.Put(ctx, x.name, b, x.version)
	if err == nil {
		x.version = version
	}
	return err
}

// isLost reports whether err says that another process has the cursor now.
func isLost(err error) bool {
	_, lost := errors.AsType[*events.ConflictError](err)
	return lost
}
