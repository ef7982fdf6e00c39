package projections

import (
	"fmt"
	"strings"
	"time"

	"fleetledger/events"
)

// Erasure is the erasure of one event's payload.
type Erasure struct {
	// EventID, Position, Stream and Type are those of the erased event.
	EventID  string
	Position events.Position
	Stream   events.Stream
	Type     events.Kind
	// By, At and Reason say who erased it, when and why, in the event Told.
	By     string
	At     time.Time
	Reason string
	Told   events.Position
}

// Erasure returns the erasure of the payload at a position.
func (s *State) Erasure(p events.Position) (Erasure, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	e, ok := s.erasures[p]
	return e, ok
}

// Erased is how many payloads were erased.
func (s *State) Erased() int {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return len(s.erasures)
}

// applyErasure takes back whatever the erased event told. This is the one place
// where the fold learns of an erasure, and the one rule for it: from here on the
// state is what it would be had the payload never been met, for a fold of the log as
// it is now does not meet it. In between, from the erased event to this one, the two
// differ, and nothing compares them.
func (tx *tx) applyErasure(r events.Record, e events.PayloadErased) error {
	misfit := func(why string) error {
		return fmt.Errorf("position %d: the payload of %s at position %d cannot be erased: %s", r.Header.Position, e.Type, e.Position, why)
	}
	if e.Position == 0 || e.Position >= r.Header.Position {
		return misfit("it is not in the log before")
	}
	if !e.Type.Erasable() {
		return misfit("what is decided may rest on it")
	}
	if id, ok := strings.CutPrefix(string(e.Stream), string(events.TaskStream(""))); ok && e.Type != (events.ConclusionRecorded{}).Kind() && tx.task(id) != nil {
		return misfit("the task is not settled")
	}
	if e.Type == (events.SectionRevised{}).Kind() {
		tx.collective = tx.collective.erase(e)
	}
	tx.effect(func(s *State) {
		s.erasures[e.Position] = Erasure{EventID: e.EventID, Position: e.Position, Stream: e.Stream, Type: e.Type,
			By: r.Header.Actor, At: r.Header.Time, Reason: e.Reason, Told: r.Header.Position}
	})
	return nil
}
