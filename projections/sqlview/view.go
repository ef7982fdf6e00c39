package sqlview

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"fleetledger/events"
)

// View is the read model of one fleet, kept in step with its log. Methods may be
// called concurrently.
type View struct {
	log    events.Log
	dir    string
	isTemp bool
	logger *slog.Logger

	stop    context.CancelFunc
	running sync.WaitGroup
	// hurry tells the follower that somebody waits.
	hurry chan struct{}

	mu       sync.Mutex
	current  *store // what readers get; nil if there is none yet
	position events.Position
	at       time.Time     // when the event at position was recorded
	moved    chan struct{} // closed when any of these changes
	fault    string
	// unbuilt is why it could not be made again when that was tried last, "" if it was.
	unbuilt  string
	parked   int
	building *building // under way, nil if none
	wanted   bool      // a rebuild is asked for
	why      string    // it is
	number   int       // of the newest file
	rebuilds int       // since Open
	closed   bool
}

// building is a rebuild under way.
type building struct {
	position events.Position
}

// Status says how a view stands.
type Status struct {
	// Position is that of the last event folded, Head the log's newest.
	Position, Head events.Position
	// Behind is how long ago the last event folded was recorded, 0 if there is
	// none to fold.
	Behind time.Duration
	// Fault says what keeps the view from following, or from being made again; empty if
	// nothing does.
	Fault string
	// Rebuilding is true while a new file is filled, up to Rebuilt so far.
	Rebuilding bool
	Rebuilt    events.Position
	// Rebuilds is how many files were made since Open.
	Rebuilds int
	// Parked is how many events could not be folded.
	Parked int
}

// Open opens the view of log in the folder dir, or begins to make it there, and
// follows the log until Close. With no dir it is made in a temporary folder that
// Close removes. Opening does not wait for the view to catch up.
func Open(log events.Log, dir string, logger *slog.Logger) (*View, error) {
	v := &View{log: log, dir: dir, logger: logger, hurry: make(chan struct{}, 1), moved: make(chan struct{})}
	if dir == "" {
		var err error
		if v.dir, err = os.MkdirTemp("", "fleetledger-view-"); err != nil {
			return nil, err
		}
		v.isTemp = true
	} else if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("the view: %w", err)
	}
	ctx, stop := context.WithCancel(context.Background())
	v.stop = stop
	if err := v.find(ctx); err != nil {
		stop()
		return nil, errors.Join(err, v.removeTemp())
	}
	v.running.Go(func() { v.run(ctx) })
	return v, nil
}

// Close ends the view. Readers under way finish first.
func (v *View) Close() error {
	v.stop()
	v.mu.Lock()
	v.closed = true
	v.wake()
	v.mu.Unlock()
	v.running.Wait()
	v.mu.Lock()
	s := v.current
	v.current = nil
	v.mu.Unlock()
	var err error
	if s != nil {
		err = s.close()
	}
	return errors.Join(err, v.removeTemp())
}

func (v *View) removeTemp() error {
	if v.isTemp {
		return os.RemoveAll(v.dir)
	}
	return nil
}

// find opens the newest file that can be trusted, and removes all others.
func (v *View) find(ctx context.Context) error {
	numbers, err := storesIn(v.dir)
	if err != nil {
		return err
	}
	for _, n := range slices.Backward(numbers) {
		v.number = max(v.number, n)
		path := v.path(n)
		if v.current == nil {
			s, err := openStore(ctx, path, v.log)
			if err == nil {
				v.current = s
				if v.position, v.at, v.parked, err = s.standing(ctx); err != nil {
					return err
				}
				continue
			}
			v.logger.Info("the view's file is not used and made again", "file", path, "why", err)
		}
		if err := removeStore(path); err != nil {
			return fmt.Errorf("the view: %w", err)
		}
	}
	return nil
}

func (v *View) path(n int) string { return filepath.Join(v.dir, storeName(n)) }

// wake tells everyone who waits that something changed. v.mu is held.
func (v *View) wake() {
	close(v.moved)
	v.moved = make(chan struct{})
}

// Status says how the view stands.
func (v *View) Status() Status {
	head, now := v.log.Durable(), v.log.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	s := Status{Position: v.position, Head: max(head, v.position), Fault: v.fault, Parked: v.parked, Rebuilds: v.rebuilds}
	if s.Fault == "" {
		s.Fault = v.unbuilt
	}
	if v.position < head {
		s.Behind = max(now.Sub(v.at), 0)
	}
	if v.building != nil {
		s.Rebuilding, s.Rebuilt = true, v.building.position
	}
	return s
}

// BehindError says that a view could not be waited for.
type BehindError struct {
	Wanted events.Position
	Status Status
}

func (e *BehindError) Error() string {
	return fmt.Sprintf("the view is at position %d, not at %d", e.Status.Position, e.Wanted)
}

// Wait returns once the view has folded position p, or with a *BehindError when
// ctx ends first.
func (v *View) Wait(ctx context.Context, p events.Position) error {
	for {
		v.mu.Lock()
		done, moved, closed := v.current != nil && v.position >= p, v.moved, v.closed
		v.mu.Unlock()
		switch {
		case closed:
			return events.ErrClosed
		case done:
			return nil
		}
		v.rush()
		select {
		case <-moved:
		case <-ctx.Done():
			return &BehindError{Wanted: p, Status: v.Status()}
		}
	}
}

// Rebuild has the view made again beside the one that is there, which goes on
// until the new one takes its place.
func (v *View) Rebuild(why string) {
	v.mu.Lock()
	v.wanted, v.why, v.unbuilt = true, why, ""
	v.mu.Unlock()
	v.rush()
}

// acquire returns the store to read from; the caller releases it.
func (v *View) acquire() (*store, func(), error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.closed {
		return nil, nil, events.ErrClosed
	}
	if v.current == nil {
		return nil, nil, &BehindError{}
	}
	s := v.current
	s.readers.Add(1)
	return s, func() { s.readers.Done() }, nil
}

// reading notes what went wrong in a read: a damaged file is made again, and gives
// no more answers until then.
func (v *View) reading(s *store, err error) error {
	if err == nil || !damaged(err) {
		return err
	}
	v.distrust(s, err)
	return &BehindError{Status: v.Status()}
}

// distrust takes a damaged store away from readers.
func (v *View) distrust(s *store, why error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.current != s || v.closed {
		return
	}
	v.logger.Error("the view is damaged and made again", "file", s.path, "error", why)
	v.current, v.position = nil, 0
	v.fault = "its file was damaged: " + why.Error()
	v.running.Go(func() { v.drop(s) })
	v.wake()
	v.rush()
}

// rush has the follower look at once.
func (v *View) rush() {
	select {
	case v.hurry <- struct{}{}:
	default:
	}
}
