package projections

import (
	"cmp"
	"slices"
	"time"

	"fleetledger/events"
)

// Page says which part of a list is wanted.
type Page struct {
	// At answers as of that position.
	At events.Position
	// After is the position of the last entry of the page before, 0 for none.
	After events.Position
	Limit int
}

// OpenTasks returns every task that is not settled, oldest first.
func (s *State) OpenTasks() []*Task {
	list, _ := s.OpenTasksAsOf()
	return list
}

// OpenTasksAsOf returns what OpenTasks does, and the position as of which it is so.
func (s *State) OpenTasksAsOf() ([]*Task, events.Position) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return oldestFirst(s.tasks, func(t *Task) events.Position { return t.Position }), s.position
}

// PendingApprovals returns every pending approval, oldest first.
func (s *State) PendingApprovals() []*Approval {
	list, _ := s.PendingApprovalsAsOf()
	return list
}

// PendingApprovalsAsOf returns what PendingApprovals does, and the position as of
// which it is so.
func (s *State) PendingApprovalsAsOf() ([]*Approval, events.Position) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return oldestFirst(s.approvals, func(a *Approval) events.Position { return a.Position }), s.position
}

// Open counts what is open: tasks that are offered or claimed, tasks that wait for an
// approval, and pending approvals.
func (s *State) Open() (offered, waiting, approvals int) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, t := range s.tasks {
		if t.Status == TaskAwaitingApproval {
			waiting++
		}
	}
	return len(s.tasks) - waiting, waiting, len(s.approvals)
}

func oldestFirst[T any](m map[string]*T, position func(*T) events.Position) []*T {
	list := make([]*T, 0, len(m))
	for _, v := range m {
		list = append(list, v)
	}
	slices.SortFunc(list, func(a, b *T) int { return cmp.Compare(position(a), position(b)) })
	return list
}

// Asked is an approval that was asked for.
type Asked struct {
	By string
	At time.Time
}

// asked keeps count of the approvals that are asked for.
func (tx *tx) asked(a *Approval) {
	now := Asked{a.RequestedBy, a.RequestedAt}
	tx.effect(func(s *State) {
		s.asked = append(s.asked, now)
		for now.At.Sub(s.asked[0].At) >= time.Minute {
			s.asked = s.asked[1:]
		}
	})
}

// AskedSince returns which approvals were asked for after the given time, oldest
// first. It knows of those within a minute of the newest.
func (s *State) AskedSince(t time.Time) []Asked {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := s.asked
	for len(list) > 0 && !list[0].At.After(t) {
		list = list[1:]
	}
	return slices.Clone(list)
}
