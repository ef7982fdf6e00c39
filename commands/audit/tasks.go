package audit

import (
	"slices"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// task decides again what the events of a task's stream record, and follows the
// task until nothing more can come of it.
func (a *auditor) task(r events.Record, e events.Event) {
	key := string(r.Header.Stream)
	t := a.tasks[key]
	switch e := e.(type) {
	case events.TaskSubmitted:
		if events.TaskStream(e.TaskID) != r.Header.Stream {
			a.find(r, Kind, events.TaskStream(e.TaskID), r.Header.Stream, "the task's id is not its stream's")
		}
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
	case events.TaskOpened:
		a.opened(r, t)
	case events.TaskClaimed:
		if r.Header.Actor != e.Machine {
			a.find(r, Decision, e.Machine, r.Header.Actor, "a leg was claimed by somebody else than its machine")
		}
		if t != nil && e.Attempt != t.NextAttempt() {
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
		} else if t != nil && r.Header.Actor != t.SubmittedBy && (r.Header.Actor != events.RelayActor || a.before.Active(t.SubmittedBy)) {
			a.find(r, Decision, t.SubmittedBy, r.Header.Actor, "the task was cancelled by somebody who may not")
		}
		if t != nil && t.Reported() {
			a.find(r, Decision, nil, nil, "the task was cancelled after a report")
		}
	case events.TaskSettled:
		a.verdict(r, t, e)
	}
	next, err := t.Apply(r)
	if err != nil {
		a.find(r, Order, nil, nil, "%v", err)
		return
	}
	a.tasks[key] = next
	if _, ok := e.(events.TaskSubmitted); ok || a.submitted != nil && a.submitted.ID == next.ID {
		a.submitted = next
	}
}

func (a *auditor) opened(r events.Record, t *projections.Task) {
	if t == nil {
		return
	}
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

func (a *auditor) reported(r events.Record, t *projections.Task, e events.TaskReported) {
	if r.Header.Actor != e.Machine {
		a.find(r, Decision, e.Machine, r.Header.Actor, "a report came from somebody else than the leg's machine")
	}
	if t == nil {
		return
	}
	if _, attempt := t.Attempt(e.Attempt); attempt != nil {
		if late := attempt.Lapsed || t.Status == projections.TaskSettled; late != e.Late {
			a.find(r, Decision, late, e.Late, "whether the report was late comes out otherwise")
		}
	}
}

func (a *auditor) lapsed(r events.Record, t *projections.Task, e events.LeaseLapsed) {
	if r.Header.Actor != events.RelayActor {
		a.find(r, Decision, events.RelayActor, r.Header.Actor, "only the relay says that a lease has lapsed")
	}
	if t == nil {
		return
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
	if t == nil {
		return
	}
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
