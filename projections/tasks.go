package projections

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"fleetledger/events"
)

// Statuses of a task.
const (
	TaskAwaitingApproval = "awaiting_approval"
	TaskOpen             = "open"
	TaskSettled          = "settled"
)

// Statuses of a leg.
const (
	LegWaiting  = "waiting" // for the task's approval
	LegOffered  = "offered"
	LegClaimed  = "claimed"
	LegReported = "reported"
	LegLost     = "lost"   // lapsed, with no attempt left
	LegClosed   = "closed" // the task settled before the leg ended
)

// Task is a task as its stream tells it. It is immutable.
type Task struct {
	ID          string
	Stream      events.Stream
	Revision    events.Revision
	Command     events.TaskCommand
	SubmittedBy string
	SubmittedAt time.Time
	Position    events.Position
	// CommandErased is true if the payload of the submission was erased: Command is
	// empty then, and Legs are those that were claimed.
	CommandErased bool
	// ReportErased is true if that of a report was: which attempt it ended, and with
	// what, is then known only where nothing else can have been.
	ReportErased bool

	// Gates are one for each target, in the order of the targets.
	Gates    []TaskGate
	Approval *Approval

	Status    string
	Verdict   events.TaskVerdict
	Reason    string
	SettledAt time.Time
	Cancelled bool
	Legs      []Leg
}

// TaskGate is the gate of one target.
type TaskGate struct {
	Machine  string
	GateID   string
	Decision events.Decision
}

// Leg is a task on one machine.
type Leg struct {
	Machine string
	Status  string
	// Offer is the position of the event that last offered the leg.
	Offer    events.Position
	Attempts []Attempt
}

// Attempt is one try of a leg.
type Attempt struct {
	Number         int
	ClaimedAt      time.Time
	LeaseExpiresAt time.Time
	Lapsed         bool
	Late           bool
	ReportedAt     time.Time
	// Report is the position of the report, 0 before it. Envelope is nil before it,
	// and if its payload was erased.
	Report   events.Position
	Envelope *events.Envelope
}

// Reported reports whether the attempt's machine has reported it.
func (a *Attempt) Reported() bool { return a.Report != 0 }

// Argv is what the leg at index i runs, nil if that was erased.
func (t *Task) Argv(i int) []string {
	if t.Command.Mode == events.Split {
		return t.Command.Parts[i]
	}
	return t.Command.Argv
}

// Leg returns the index of the machine's leg, -1 if it has none.
func (t *Task) Leg(machine string) int {
	return slices.IndexFunc(t.Legs, func(l Leg) bool { return l.Machine == machine })
}

// Attempt returns the leg and attempt with this number, nil if there is none.
func (t *Task) Attempt(number int) (*Leg, *Attempt) {
	for i := range t.Legs {
		for j := range t.Legs[i].Attempts {
			if t.Legs[i].Attempts[j].Number == number {
				return &t.Legs[i], &t.Legs[i].Attempts[j]
			}
		}
	}
	return nil, nil
}

// NextAttempt is the number of the task's next attempt.
func (t *Task) NextAttempt() int {
	n := 1
	for _, l := range t.Legs {
		n += len(l.Attempts)
	}
	return n
}

// Held reports whether a machine holds any leg.
func (t *Task) Held() bool {
	return slices.ContainsFunc(t.Legs, func(l Leg) bool { return l.Status == LegClaimed })
}

// Reported reports whether any leg has reported in time.
func (t *Task) Reported() bool {
	return slices.ContainsFunc(t.Legs, func(l Leg) bool { return l.Status == LegReported })
}

// Apply folds one event of the task's stream. t is nil before the first.
// Conclusions are about the task and change nothing in it.
func (t *Task) Apply(r events.Record) (*Task, error) {
	misfit := func(why string) error {
		return fmt.Errorf("position %d: %s: %s", r.Header.Position, r.Header.Type, why)
	}
	if r.Header.Type == (events.ConclusionRecorded{}).Kind() {
		if t == nil {
			return nil, misfit("no such task")
		}
		n := *t
		n.Revision = r.Header.Revision
		return &n, nil
	}
	if r.Erased {
		return t.applyErased(r)
	}
	e, err := events.Decode(r)
	if err != nil {
		return nil, err
	}
	if e, ok := e.(events.TaskSubmitted); ok {
		if t != nil {
			return nil, misfit("submitted before")
		}
		return submitted(e, r), nil
	}
	if t == nil {
		return nil, misfit("no such task")
	}
	n := *t
	n.Revision = r.Header.Revision
	n.Legs = slices.Clone(t.Legs)
	leg := func(machine string) (*Leg, error) {
		i := n.Leg(machine)
		if i < 0 && t.CommandErased {
			i = len(n.Legs)
			n.Legs = append(n.Legs, Leg{Machine: machine, Status: LegOffered})
		}
		if i < 0 {
			return nil, misfit("no leg on machine " + machine)
		}
		n.Legs[i].Attempts = slices.Clone(n.Legs[i].Attempts)
		return &n.Legs[i], nil
	}
	attempt := func(machine string, number int) (*Leg, *Attempt, error) {
		l, err := leg(machine)
		if err != nil {
			return nil, nil, err
		}
		for j := range l.Attempts {
			if l.Attempts[j].Number == number {
				return l, &l.Attempts[j], nil
			}
		}
		return nil, nil, misfit(fmt.Sprintf("machine %s has no attempt %d", machine, number))
	}
	switch e := e.(type) {
	case events.GateDecided:
		i := len(n.Gates)
		if !n.CommandErased {
			i = 0 // behind those of the targets before it
			for _, m := range n.Command.Targets[:max(0, slices.Index(n.Command.Targets, e.Machine))] {
				if i < len(n.Gates) && n.Gates[i].Machine == m {
					i++
				}
			}
		}
		n.Gates = slices.Insert(slices.Clip(n.Gates), i, TaskGate{Machine: e.Machine, GateID: e.GateID, Decision: e.Decision})
	case events.ApprovalRequested, events.ApprovalSettled:
		if n.Approval, err = t.Approval.apply(r); err != nil {
			return nil, err
		}
	case events.TaskOpened:
		if t.Status != TaskAwaitingApproval {
			return nil, misfit("the task is " + t.Status)
		}
		n.Status = TaskOpen
		for i := range n.Legs {
			n.Legs[i].Status, n.Legs[i].Offer = LegOffered, r.Header.Position
		}
	case events.TaskClaimed:
		l, err := leg(e.Machine)
		if err != nil {
			return nil, err
		}
		if l.Status != LegOffered {
			return nil, misfit("the leg is " + l.Status)
		}
		l.Status = LegClaimed
		l.Attempts = append(l.Attempts, Attempt{Number: e.Attempt, ClaimedAt: r.Header.Time, LeaseExpiresAt: e.LeaseExpiresAt})
	case events.TaskReported:
		l, a, err := attempt(e.Machine, e.Attempt)
		if err != nil {
			return nil, err
		}
		if a.Reported() {
			return nil, misfit("reported before")
		}
		a.Envelope, a.ReportedAt, a.Late, a.Report = &e.Envelope, r.Header.Time, e.Late, r.Header.Position
		if !e.Late {
			l.Status = LegReported
		}
	case events.LeaseLapsed:
		l, a, err := attempt(e.Machine, e.Attempt)
		if err != nil {
			return nil, err
		}
		if l.Status != LegClaimed {
			return nil, misfit("the leg is " + l.Status)
		}
		a.Lapsed = true
		l.Status = LegLost
		if e.Reoffered {
			l.Status, l.Offer = LegOffered, r.Header.Position
		}
	case events.TaskCancelled:
		n.Cancelled, n.Reason = true, e.Reason
	case events.TaskSettled:
		if t.Status == TaskSettled {
			return nil, misfit("settled before")
		}
		n.Status, n.Verdict, n.SettledAt = TaskSettled, e.Verdict, r.Header.Time
		if e.Reason != "" {
			n.Reason = e.Reason
		}
		for i := range n.Legs {
			switch n.Legs[i].Status {
			case LegWaiting, LegOffered, LegClaimed:
				n.Legs[i].Status = LegClosed
			}
		}
	default:
		return nil, misfit("does not belong in stream " + string(r.Header.Stream))
	}
	return &n, nil
}

// applyErased folds an event whose payload was erased: what its header tells and
// what can only have been so.
func (t *Task) applyErased(r events.Record) (*Task, error) {
	submission := r.Header.Type == events.TaskSubmitted{}.Kind()
	if submission == (t != nil) {
		return nil, fmt.Errorf("position %d: %s, erased: a task begins with its submission and has one", r.Header.Position, r.Header.Type)
	}
	if submission {
		n := submitted(events.TaskSubmitted{TaskID: strings.TrimPrefix(string(r.Header.Stream), string(events.TaskStream("")))}, r)
		n.CommandErased = true
		return n, nil
	}
	n := *t
	n.Revision = r.Header.Revision
	switch r.Header.Type {
	case events.TaskCancelled{}.Kind():
		n.Cancelled = true
	case events.TaskReported{}.Kind():
		n.ReportErased = true
		n.reportErased(r)
	default:
		return nil, fmt.Errorf("position %d: the payload of %s is not there: what became of the task cannot be told", r.Header.Position, r.Header.Type)
	}
	return &n, nil
}

// reportErased notes a report by its header: it came from the leg's machine. If
// more than one attempt of that may be meant, none is said to be.
func (t *Task) reportErased(r events.Record) {
	i := t.Leg(r.Header.Actor)
	if i < 0 {
		return
	}
	var open []int
	for j := range t.Legs[i].Attempts {
		if !t.Legs[i].Attempts[j].Reported() {
			open = append(open, j)
		}
	}
	if len(open) != 1 {
		return
	}
	t.Legs = slices.Clone(t.Legs)
	l := &t.Legs[i]
	l.Attempts = slices.Clone(l.Attempts)
	a := &l.Attempts[open[0]]
	a.Report, a.ReportedAt, a.Late = r.Header.Position, r.Header.Time, a.Lapsed || t.Status == TaskSettled
	if !a.Late {
		l.Status = LegReported
	}
}

func submitted(e events.TaskSubmitted, r events.Record) *Task {
	t := &Task{
		ID: e.TaskID, Stream: r.Header.Stream, Revision: r.Header.Revision, Command: e.Command,
		SubmittedBy: r.Header.Actor, SubmittedAt: r.Header.Time, Position: r.Header.Position,
		Status: TaskAwaitingApproval,
	}
	for _, g := range e.Gates {
		t.Gates = append(t.Gates, TaskGate(g))
	}
	for _, m := range e.Command.Targets {
		t.Legs = append(t.Legs, Leg{Machine: m, Status: LegWaiting})
	}
	return t
}

// LoadTask folds a task's stream up to position at (0: all of it). It returns
// nil for a task that does not exist (then).
func LoadTask(ctx context.Context, log events.Log, id string, at events.Position) (*Task, error) {
	if events.CheckName("task id", id) != nil {
		return nil, nil
	}
	var t *Task
	for r, err := range log.ReadStream(ctx, events.TaskStream(id), 0) {
		if err != nil {
			return nil, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		if t, err = t.Apply(r); err != nil {
			return nil, err
		}
	}
	return t, nil
}
