package bus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// Cursors are named places in a log that survive restarts. Methods may be called
// concurrently.
type Cursors struct {
	dir string // empty keeps them in memory only

	mu   sync.Mutex
	open map[string]*cursor
}

// NewCursors returns the cursors kept in dir, one file each; an empty dir keeps them
// in memory.
func NewCursors(dir string) *Cursors { return &Cursors{dir: dir, open: map[string]*cursor{}} }

// cursor is one of them.
type cursor struct {
	name string // of its file
	dir  string

	// turn has one slot, full while somebody reads the log by this cursor.
	turn chan struct{}

	mu    sync.Mutex
	state cursorState
	dirty bool
	saved time.Time
}

// cursorState is what a cursor's file holds.
type cursorState struct {
	// Position is the last event that is done with.
	Position events.Position `json:"position"`
	// Delivered counts events taken by the destination, over all time.
	Delivered uint64   `json:"delivered"`
	Parked    []Parked `json:"parked,omitzero"`
	// DeliveredAt is when the last one was taken.
	DeliveredAt time.Time `json:"delivered_at,omitzero"`
	// Acted is the last event of the subscriptions' stream that was acted on.
	Acted events.Position `json:"acted,omitzero"`
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
func (c *Cursors) get(name string, after events.Position) (*cursor, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if x := c.open[name]; x != nil {
		return x, nil
	}
	x := &cursor{name: name + ".json", dir: c.dir, turn: make(chan struct{}, 1), state: cursorState{Position: after}}
	if c.dir != "" {
		b, err := os.ReadFile(filepath.Join(c.dir, x.name))
		switch {
		case errors.Is(err, fs.ErrNotExist):
		case err != nil:
			return nil, fmt.Errorf("cursor %s: %w", name, err)
		default:
			if err := json.Unmarshal(b, &x.state); err != nil {
				return nil, fmt.Errorf("cursor %s: %s does not read: %w; remove the file, and everything is delivered anew", name, filepath.Join(c.dir, x.name), err)
			}
		}
	}
	c.open[name] = x
	return x, nil
}

// remove forgets a cursor. Nobody may be reading by it.
func (c *Cursors) remove(name string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, name)
	if c.dir == "" {
		return nil
	}
	if err := os.Remove(filepath.Join(c.dir, name+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
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
	s := x.state
	s.Parked = append([]Parked{}, s.Parked...)
	return s
}

// saveEvery bounds how often a cursor that moves on is written: what was delivered
// since comes again after a crash.
const saveEvery = time.Second

// change changes the cursor and writes it if that was long ago, or if now is set.
func (x *cursor) change(now bool, f func(*cursorState)) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.state)
	x.dirty = true
	if now || time.Since(x.saved) > saveEvery {
		return x.save()
	}
	return nil
}

// flush writes the cursor if it changed since.
func (x *cursor) flush() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if !x.dirty {
		return nil
	}
	return x.save()
}

// save writes the file, whole or not at all. Called with mu held.
func (x *cursor) save() (err error) {
	x.saved, x.dirty = time.Now(), false
	if x.dir == "" {
		return nil
	}
	defer func() {
		if err != nil {
			x.dirty = true
			err = fmt.Errorf("write cursor %s: %w", x.name, err)
		}
	}()
	b, err := json.Marshal(x.state)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(x.dir, 0o700); err != nil {
		return err
	}
	name := filepath.Join(x.dir, x.name)
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}
