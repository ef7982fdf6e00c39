package projections

import (
	"slices"
	"time"

	"fleetledger/events"
)

// index holds what readers page through: a few words and the positions for
// each task and approval. The rest is read from the log.
// Guarded by State.mu.
type index struct {
	tasks     []*TaskEntry
	taskByID  map[string]*TaskEntry
	approvals []*ApprovalEntry
	approval  map[string]*ApprovalEntry
	// gates says in which task the gate of a target allowed at once is told.
	gates map[string]string
}

func newIndex() index {
	return index{
		taskByID: map[string]*TaskEntry{}, approval: map[string]*ApprovalEntry{}, gates: map[string]string{},
	}
}

// TaskEntry is a task in the list of tasks.
type TaskEntry struct {
	ID      string
	Command *events.TaskCommand
	// Opened and Settled are 0 until it happens.
	Submitted, Opened, Settled events.Position
}

// StatusAt is the task's status as of position at.
func (e *TaskEntry) StatusAt(at events.Position) string {
	switch {
	case e.Settled != 0 && e.Settled <= at:
		return TaskSettled
	case e.Opened != 0 && e.Opened <= at:
		return TaskOpen
	}
	return TaskAwaitingApproval
}

// ApprovalEntry is an approval in the list of approvals.
type ApprovalEntry struct {
	ID     string
	Stream events.Stream
	// TaskID is empty for an approval of a gate that stands alone.
	TaskID           string
	RequestedBy      string
	RequestedAt      time.Time
	Requested, Ended events.Position
	Outcome          events.ApprovalOutcome
}

// StatusAt is the approval's status as of position at.
func (e *ApprovalEntry) StatusAt(at events.Position) string {
	if e.Ended == 0 || e.Ended > at {
		return "pending"
	}
	return string(e.Outcome)
}

func (x *index) approvalRequested(a *Approval, task string) {
	e := &ApprovalEntry{ID: a.ApprovalID, Stream: a.Stream, TaskID: task, RequestedBy: a.RequestedBy, RequestedAt: a.RequestedAt, Requested: a.Position}
	x.approvals = append(x.approvals, e)
	x.approval[e.ID] = e
}

func (x *index) approvalEnded(a *Approval) {
	if e := x.approval[a.ApprovalID]; e != nil {
		e.Outcome, e.Ended = a.Outcome, a.SettledIn
	}
}

// indexTask keeps the lists in step with a task that is held in State.
func (tx *tx) indexTask(id string, t *Task, r events.Record) {
	pos := r.Header.Position
	switch r.Header.Type {
	case events.TaskSubmitted{}.Kind():
		tx.effect(func(s *State) {
			e := &TaskEntry{ID: id, Command: &t.Command, Submitted: pos}
			s.index.tasks = append(s.index.tasks, e)
			s.index.taskByID[id] = e
			for _, g := range t.Gates {
				s.index.gates[g.GateID] = id
			}
		})
	case events.TaskOpened{}.Kind():
		tx.effect(func(s *State) { s.index.taskByID[id].Opened = pos })
	case events.TaskSettled{}.Kind():
		tx.effect(func(s *State) { s.index.taskByID[id].Settled = pos })
	}
}

// page returns up to limit entries that lie after the cursor and match, newest
// first if desc. The cursor of an entry is its position; 0 starts.
func page[T any](list []T, position func(T) events.Position, match func(T) bool, after events.Position, limit int, desc bool) (out []T, more bool) {
	visit := func(e T) bool {
		p := position(e)
		if after != 0 && (desc && p >= after || !desc && p <= after) || !match(e) {
			return true
		}
		if len(out) == limit {
			more = true
			return false
		}
		out = append(out, e)
		return true
	}
	if desc {
		for _, e := range slices.Backward(list) {
			if !visit(e) {
				break
			}
		}
	} else {
		for _, e := range list {
			if !visit(e) {
				break
			}
		}
	}
	return out, more
}

// Page says which part of a list is wanted.
type Page struct {
	// At answers as of that position.
	At events.Position
	// After is the position of the last entry of the page before, 0 for none.
	After events.Position
	Limit int
}

// Tasks lists tasks, newest first, of one status and one machine if given.
func (s *State) Tasks(p Page, status, machine string) (list []TaskEntry, more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	found, more := page(s.index.tasks, func(e *TaskEntry) events.Position { return e.Submitted }, func(e *TaskEntry) bool {
		return e.Submitted <= p.At && (status == "" || e.StatusAt(p.At) == status) &&
			(machine == "" || slices.Contains(e.Command.Targets, machine))
	}, p.After, p.Limit, true)
	return deref(found), more
}

// HasTask reports whether a task of this id was ever submitted.
func (s *State) HasTask(id string) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.index.taskByID[id] != nil
}

// Approvals lists approvals, oldest first, of one status if given.
func (s *State) Approvals(p Page, status string) (list []ApprovalEntry, more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	match := func(e *ApprovalEntry) bool {
		return e.Requested <= p.At && (status == "" || e.StatusAt(p.At) == status)
	}
	position := func(e *ApprovalEntry) events.Position { return e.Requested }
	if status == "pending" && p.At >= s.position {
		// The queue is asked for often and its history only grows.
		found, more := page(s.pendingEntries(), position, match, p.After, p.Limit, false)
		return deref(found), more
	}
	found, more := page(s.index.approvals, position, match, p.After, p.Limit, false)
	return deref(found), more
}

func (s *State) pendingEntries() []*ApprovalEntry {
	list := make([]*ApprovalEntry, 0, len(s.approvals))
	for id := range s.approvals {
		list = append(list, s.index.approval[id])
	}
	slices.SortFunc(list, func(a, b *ApprovalEntry) int { return int(int64(a.Requested) - int64(b.Requested)) })
	return list
}

// Approval returns the entry of an approval, pending or ended.
func (s *State) Approval(id string) (ApprovalEntry, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if e := s.index.approval[id]; e != nil {
		return *e, true
	}
	return ApprovalEntry{}, false
}

// GateTask returns the id of the task that tells of a gate allowed at once.
func (s *State) GateTask(gate string) (string, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	id, ok := s.index.gates[gate]
	return id, ok
}

// PendingApprovals returns every pending approval, oldest first.
func (s *State) PendingApprovals() []*Approval {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*Approval, 0, len(s.approvals))
	for _, e := range s.pendingEntries() {
		out = append(out, s.approvals[e.ID])
	}
	return out
}

// ApprovalsSince calls f with each approval requested after t, newest first.
func (s *State) ApprovalsSince(t time.Time, f func(ApprovalEntry)) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, e := range slices.Backward(s.index.approvals) {
		if !e.RequestedAt.After(t) {
			return
		}
		f(*e)
	}
}

// OpenTasks returns every task that is not settled, oldest first.
func (s *State) OpenTasks() []*Task {
	s.mu.RLock()
	defer s.mu.RUnlock()
	out := make([]*Task, 0, len(s.tasks))
	for _, t := range s.tasks {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *Task) int { return int(int64(a.Position) - int64(b.Position)) })
	return out
}

func deref[T any](list []*T) []T {
	out := make([]T, len(list))
	for i, p := range list {
		out[i] = *p
	}
	return out
}
