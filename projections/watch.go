package projections

import (
	"slices"
	"sync"

	"fleetledger/events"
)

// Offer is a leg that waits for its machine.
type Offer struct {
	// Position is that of the event that offered it, and orders offers.
	Position events.Position
	Task     *Task
	Leg      int
}

// Offers returns the legs offered to a machine after the given position, in the
// order they were offered.
func (s *State) Offers(machine string, after events.Position) []Offer {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []Offer
	for id, at := range s.offers[machine] {
		if at <= after {
			continue
		}
		if t := s.tasks[id]; t != nil {
			out = append(out, Offer{Position: at, Task: t, Leg: t.Leg(machine)})
		}
	}
	slices.SortFunc(out, func(a, b Offer) int { return int(int64(a.Position) - int64(b.Position)) })
	return out
}

// watchers wakes whoever waits for offers of a machine. Each has a channel of
// one slot: register, read, wait. A slow one misses wake-ups, never offers.
type watchers struct {
	mu       sync.Mutex
	machines map[string]map[chan struct{}]bool
}

// WatchOffers returns a channel that gets a value after new offers for the
// machine were published, and a function that ends the watch.
func (s *State) WatchOffers(machine string) (<-chan struct{}, func()) {
	w := &s.watchers
	c := make(chan struct{}, 1)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.machines == nil {
		w.machines = map[string]map[chan struct{}]bool{}
	}
	if w.machines[machine] == nil {
		w.machines[machine] = map[chan struct{}]bool{}
	}
	w.machines[machine][c] = true
	return c, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.machines[machine], c)
		if len(w.machines[machine]) == 0 {
			delete(w.machines, machine)
		}
	}
}

func (w *watchers) wake(machines []string) {
	if len(machines) == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, m := range machines {
		for c := range w.machines[m] {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
}
