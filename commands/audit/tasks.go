package audit

import (
	"slices"
	"strings"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// task decides again what the events of a task's stream record. What the task is
// before r, the fold has, until it is settled.
func (a *auditor) task(r events.Record, e events.Event) {
	t := a.openTask(r.Header.Stream)
	if _, submission := e.(events.TaskSubmitted); t == nil && !submission {
		a.afterEnd(r, e)
		return
	}
	switch e := e.(type) {
	case events.TaskSubmitted:
		if events.TaskStream(e.TaskID) != r.Header.Stream {
			a.find(r, Kind, events.TaskStream(e.TaskID), r.Header.Stream, "the task's id is not its stream's")
		}
		if _, ended := a.ended[r.Header.Stream]; ended {
			a.find(r, Order, nil, e.TaskID, "task %s was submitted before", e.TaskID)
		}
		a.submitted = &submission{r.Header, len(e.Command.Targets), len(e.Gates)}
		for _, g := range e.Gates {
			a.decision(r, g.Decision, r.Header.Actor, "task.submit."+g.Machine)
			if g.Decision.Verdict != events.Allow || !slices.Contains(e.Command.Targets, g.Machine) {
				a.find(r, Decision, events.Allow, g.Decision.Verdict, "the gate of target %s is not one that lets it in at once", g.Machine)
			}
		}
	case events.GateDecided:
		if want := "task.submit." + e.Machine; e.Decision.Action != want {
			a.find(r, Decision, want, e.Decision.Action, "the gate of a target was asked about another action")
		}
		if a.submitted != nil && a.submitted.header.Stream == r.Header.Stream {
			a.submitted.gates++
		}
	case events.TaskOpened:
		a.opened(r, t)
	case events.TaskClaimed:
		if r.Header.Actor != e.Machine {
			a.find(r, Decision, e.Machine, r.Header.Actor, "a leg was claimed by somebody else than its machine")
		}
		if e.Attempt != t.NextAttempt() {
			a.find(r, Decision, t.NextAttempt(), e.Attempt, "the attempt has the wrong number")
		}
	case events.TaskReported:
		a.kept(r, e.Envelope)
		a.reported(r, t, e)
	case events.LeaseLapsed:
		a.lapsed(r, t, e)
	case events.TaskCancelled:
		if e.Permit != nil {
			a.permit(r, *e.Permit, "task.cancel")
		} else if r.Header.Actor != t.SubmittedBy && (r.Header.Actor != events.RelayActor || a.before.Active(t.SubmittedBy)) {
			a.find(r, Decision, t.SubmittedBy, r.Header.Actor, "the task was cancelled by somebody who may not")
		}
		if t.Reported() {
			a.find(r, Decision, nil, nil, "the task was cancelled after a report")
		}
	case events.TaskSettled:
		a.verdict(r, t, e)
		a.ended[r.Header.Stream] = endOf(t)
	}
}

// openTask is the task of a stream, nil if it is not open.
func (a *auditor) openTask(s events.Stream) *projections.Task {
	id, ok := strings.CutPrefix(string(s), string(events.TaskStream("")))
	if !ok {
		return nil
	}
	return a.rebuilt.OpenTask(id)
}

// submission is a task that the append being read submits.
type submission struct {
	header         events.Header
	targets, gates int
}

// endedTask has the attempts of a task that is settled: one that was not reported may
// be still, late. All else that happened is in the log, and there are many such tasks.
type endedTask []endedAttempt

type endedAttempt struct {
	Machine  string
	Number   int
	Reported bool
}

func endOf(t *projections.Task) (ended endedTask) {
	for i := range t.Legs {
		for j := range t.Legs[i].Attempts {
			at := &t.Legs[i].Attempts[j]
			ended = append(ended, endedAttempt{t.Legs[i].Machine, at.Number, at.Reported()})
		}
	}
	return ended
}

// afterEnd checks an event in the stream of a task that is settled, or never was
// submitted.
func (a *auditor) afterEnd(r events.Record, e events.Event) {
	t, known := a.ended[r.Header.Stream]
	if !known {
		a.find(r, Order, nil, nil, "there is no such task")
		return
	}
	switch e := e.(type) {
	case events.ConclusionRecorded:
	case events.TaskReported:
		a.kept(r, e.Envelope)
		a.reporter(r, e)
		i := slices.IndexFunc(t, func(at endedAttempt) bool { return at.Machine == e.Machine && at.Number == e.Attempt })
		switch {
		case i < 0:
			a.find(r, Order, nil, e.Attempt, "machine %s has no attempt %d", e.Machine, e.Attempt)
			return
		case t[i].Reported:
			a.find(r, Order, nil, e.Attempt, "attempt %d was reported before", e.Attempt)
		case !e.Late:
			a.find(r, Decision, true, e.Late, "whether the report was late comes out otherwise")
		}
		t[i].Reported = true
	default:
		a.find(r, Order, nil, nil, "the task was settled before")
	}
}

// reportErased notes the report of a settled task that was erased, if it can tell
// which.
func (a *auditor) reportErased(h events.Header) {
	open := -1
	for i, at := range a.ended[h.Stream] {
		switch {
		case at.Machine != h.Actor || at.Reported:
		case open >= 0:
			return
		default:
			open = i
		}
	}
	if open >= 0 {
		a.ended[h.Stream][open].Reported = true
	}
}

func (a *auditor) opened(r events.Record, t *projections.Task) {
	a.report.DecisionsRederived++
	needed := false
	for _, g := range t.Gates {
		switch g.Decision.Verdict {
		case events.Deny:
			a.find(r, Decision, events.Deny, nil, "the task was opened although it was denied on %s", g.Machine)
		case events.NeedsApproval:
			needed = true
			now := a.decide(g.Decision.Action, t.SubmittedBy)
			if now.Verdict == events.Deny || now.Verdict == events.NeedsApproval && !sameRule(now.Decisive, g.Decision.Decisive) {
				a.find(r, Decision, g.Decision.Decisive, now.Decisive, "the rules had changed since the approval was asked for")
			}
		}
	}
	if needed && (t.Approval == nil || t.Approval.Outcome != events.Granted) {
		a.find(r, Decision, nil, nil, "the task was opened without a granted approval")
	}
}

func (a *auditor) reporter(r events.Record, e events.TaskReported) {
	if r.Header.Actor != e.Machine {
		a.find(r, Decision, e.Machine, r.Header.Actor, "a report came from somebody else than the leg's machine")
	}
}

func (a *auditor) reported(r events.Record, t *projections.Task, e events.TaskReported) {
	a.reporter(r, e)
	if _, attempt := t.Attempt(e.Attempt); attempt != nil {
		if attempt.Lapsed != e.Late {
			a.find(r, Decision, attempt.Lapsed, e.Late, "whether the report was late comes out otherwise")
		}
	}
}

func (a *auditor) lapsed(r events.Record, t *projections.Task, e events.LeaseLapsed) {
	if r.Header.Actor != events.RelayActor {
		a.find(r, Decision, events.RelayActor, r.Header.Actor, "only the relay says that a lease has lapsed")
	}
	if leg, _ := t.Attempt(e.Attempt); leg != nil && !t.CommandErased {
		a.report.DecisionsRederived++
		if again := len(leg.Attempts) < t.Command.Attempts && a.before.Active(leg.Machine); again != e.Reoffered {
			a.find(r, Decision, again, e.Reoffered, "whether the leg is offered again comes out otherwise")
		}
	}
}

// verdict settles the task again.
func (a *auditor) verdict(r events.Record, t *projections.Task, e events.TaskSettled) {
	var want events.TaskVerdict
	switch {
	case t.Cancelled:
		want = events.VerdictCancelled
	case t.Status == projections.TaskAwaitingApproval:
		denied := slices.ContainsFunc(t.Gates, func(g projections.TaskGate) bool { return g.Decision.Verdict == events.Deny })
		ended := t.Approval != nil && !t.Approval.Pending() && t.Approval.Outcome != events.Granted
		if !denied && !ended {
			a.find(r, Decision, nil, e.Verdict, "the task was settled while it waited for its approval")
			return
		}
		want = events.VerdictRefused
	case t.CommandErased || t.ReportErased:
		return // it rests on what is not there any more
	default:
		for _, l := range t.Legs {
			if l.Status != projections.LegReported && l.Status != projections.LegLost {
				a.find(r, Decision, nil, e.Verdict, "the task was settled although the leg on %s had not ended", l.Machine)
				return
			}
		}
		want, _ = commands.Verdict(t.Command, t.Legs)
	}
	a.report.DecisionsRederived++
	if want != e.Verdict {
		a.find(r, Decision, want, e.Verdict, "the verdict of the task comes out otherwise")
	}
}
