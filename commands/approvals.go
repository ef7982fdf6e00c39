package commands

import (
	"context"
	"errors"
	"strings"

	"github.com/go-json-experiment/json"

	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/projections"
)

// SettleApproval grants or refuses an approval.
type SettleApproval struct {
	ApprovalID string
	Outcome    events.ApprovalOutcome // granted or refused
	Reason     string
}

// SettleApproval carries out c. Who may is fixed by the domain; there is no gate.
// Refusals: APPROVAL_NOT_FOUND, APPROVER_NOT_ENTITLED, APPROVAL_ENDED,
// SECRET_IN_TEXT, RULES_CHANGED.
func (l *Ledger) SettleApproval(ctx context.Context, caller Caller, c SettleApproval) (Result, error) {
	settle := func() (Result, error) {
		return l.execute(ctx, caller, func(v view) (decided, error) {
			s, err := l.subject(ctx, c.ApprovalID, 0)
			if err != nil {
				return decided{}, err
			}
			return c.decide(v, s)
		})
	}
	r, err := settle()
	if l.expiredUnrecorded(ctx, c.ApprovalID, err) {
		return settle()
	}
	return r, err
}

// expiredUnrecorded records the expiry of an approval that was met before the
// relay's own sweep, so that whoever came too late is told what is recorded.
func (l *Ledger) expiredUnrecorded(ctx context.Context, id string, err error) bool {
	refusal, ok := errors.AsType[*Refusal](err)
	if !ok || refusal.Code != "APPROVAL_ENDED" || l.state.PendingApproval(id) == nil {
		return false
	}
	return l.sweepApproval(ctx, id, events.Expired, "") == nil
}

// Subject is an approval with what it belongs to: a task, or a gate that stands
// alone.
type Subject struct {
	Approval *projections.Approval
	Task     *projections.Task
	Gate     *projections.Gate
}

// decisions are those that the approval was asked for.
func (s Subject) decisions() []events.Decision {
	var out []events.Decision
	if s.Task != nil {
		for _, g := range s.Task.Gates {
			if g.Decision.Verdict == events.NeedsApproval {
				out = append(out, g.Decision)
			}
		}
		return out
	}
	for _, g := range s.Gate.Decided {
		out = append(out, g.Decision)
	}
	return out
}

// settle adds the end of the approval, and what it means for a waiting task.
func (s Subject) settle(v view, d *decided, settled events.ApprovalSettled) {
	d.add(s.Approval.Stream, v.newID(), settled)
	revision := events.Revision(0)
	switch {
	case s.Gate != nil:
		revision = s.Gate.Revision
	case settled.Outcome == events.Granted:
		revision = s.Task.Revision
		d.add(s.Approval.Stream, v.newID(), events.TaskOpened{ApprovalID: s.Approval.ApprovalID})
	default:
		revision = s.Task.Revision
		reason := "its approval was " + string(settled.Outcome)
		if settled.Outcome == events.Expired {
			reason = "its approval expired"
		}
		if settled.Reason != "" {
			reason += ": " + settled.Reason
		}
		d.add(s.Approval.Stream, v.newID(), events.TaskSettled{Verdict: events.VerdictRefused, Reason: reason})
	}
	d.expect = append(d.expect, events.Expectation{Stream: s.Approval.Stream, Revision: revision})
}

func (c SettleApproval) decide(v view, s Subject) (decided, error) {
	if c.Outcome != events.Granted && c.Outcome != events.Refused {
		return decided{}, invalid(problem("/outcome", "UNKNOWN_OUTCOME", "%q is neither granted nor refused", c.Outcome))
	}
	if err := noSecretsInText("the reason", text{"/reason", c.Reason}); err != nil {
		return decided{}, err
	}
	a := s.Approval
	if err := ended(v, a); err != nil {
		return decided{}, err
	}
	evaluations, code, why := v.mayApprove(v.caller.Actor, a.RequestedBy, a.Actions)
	if code != "" {
		return decided{}, refuse(Forbidden, "APPROVER_NOT_ENTITLED", "%s may not settle approval %s: %s", v.caller.Actor, a.ApprovalID, why).
			With("why", why).With("reason_code", code).With("required_level", v.required(a))
	}
	if c.Outcome == events.Granted && s.Task != nil {
		// The grant opens the task at once: what it was asked for must still stand.
		if _, err := v.stillStands(s.decisions(), a.RequestedBy); err != nil {
			return decided{}, err
		}
	}
	d := decided{before: a.ExpiresAt, expect: []events.Expectation{v.onSettings()}}
	s.settle(v, &d, events.ApprovalSettled{
		ApprovalID: a.ApprovalID, Outcome: c.Outcome, Reason: c.Reason, RequiredLevel: v.required(a), Evaluations: evaluations,
	})
	return d, nil
}

// required is the level that settling takes as things stand.
func (v view) required(a *projections.Approval) events.Level {
	return Standpoint{v.auth, v.list.rules, v.settings}.RequiredLevel(a)
}

// ended refuses to end an approval again, or past its expiry.
func ended(v view, a *projections.Approval) error {
	if !a.Pending() {
		return refuse(Conflict, "APPROVAL_ENDED", "approval %s ended: %s by %s at %s", a.ApprovalID, a.Status(), a.SettledBy,
			a.SettledAt.Format(events.TimeLayout)).With("outcome", a.Outcome).With("settled_by", a.SettledBy).With("reason", a.Reason)
	}
	if !v.now.Before(a.ExpiresAt) {
		return refuse(Conflict, "APPROVAL_ENDED", "approval %s ended: it expired at %s", a.ApprovalID,
			a.ExpiresAt.Format(events.TimeLayout)).With("outcome", events.Expired)
	}
	return nil
}

// WithdrawApproval takes a pending approval back.
type WithdrawApproval struct {
	ApprovalID string
	Reason     string
}

// WithdrawApproval carries out c: the requester withdraws, an ancestor of it, or
// an actor of a level above its. Refusals: APPROVAL_NOT_FOUND, ACTOR_NOT_ACTIVE,
// NOT_REQUESTER, APPROVAL_ENDED, SECRET_IN_TEXT.
func (l *Ledger) WithdrawApproval(ctx context.Context, caller Caller, c WithdrawApproval) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		s, err := l.subject(ctx, c.ApprovalID, 0)
		if err != nil {
			return decided{}, err
		}
		if err := noSecretsInText("the reason", text{"/reason", c.Reason}); err != nil {
			return decided{}, err
		}
		if err := v.active(); err != nil {
			return decided{}, err
		}
		a := s.Approval
		if !isSelfOrDescendant(v.auth, a.RequestedBy, caller.Actor) && v.me().Level <= Standing(v.auth, a.RequestedBy).Level {
			return decided{}, refuse(Forbidden, "NOT_REQUESTER", "approval %s was requested by %s: the requester withdraws it, or an actor above it", a.ApprovalID, a.RequestedBy)
		}
		if err := ended(v, a); err != nil {
			return decided{}, err
		}
		d := decided{before: a.ExpiresAt}
		s.settle(v, &d, events.ApprovalSettled{ApprovalID: a.ApprovalID, Outcome: events.Withdrawn, Reason: c.Reason, RequiredLevel: a.RequiredLevel})
		return d, nil
	})
}

// approvalStream is the stream that an approval lies in, if it was asked for up to
// position at (0: now), and readable there. Its id is that of the event that asked for
// it. Refusal: APPROVAL_NOT_FOUND.
func (l *Ledger) approvalStream(ctx context.Context, id string, at events.Position) (events.Stream, error) {
	a := l.state.PendingApproval(id)
	if err := l.readable(ctx); err != nil {
		return "", err
	}
	if a != nil && (at == 0 || a.Position <= at) {
		return a.Stream, nil
	}
	missing := refuse(NotFound, "APPROVAL_NOT_FOUND", "no approval %q; see GET /v1/approvals", id)
	if events.CheckName("approval id", id) != nil {
		return "", missing
	}
	p, err := l.log.FindID(ctx, id)
	if err != nil {
		return "", err
	}
	if p == 0 || at != 0 && p > at {
		return "", missing
	}
	recs, err := l.Records(ctx, p, p)
	if err != nil {
		return "", err
	}
	if recs[0].Header.Type != (events.ApprovalRequested{}).Kind() {
		return "", missing
	}
	return recs[0].Header.Stream, nil
}

// subject loads an approval as of position at (0: now).
func (l *Ledger) subject(ctx context.Context, id string, at events.Position) (Subject, error) {
	stream, err := l.approvalStream(ctx, id, at)
	if err != nil {
		return Subject{}, err
	}
	if task, ok := taskOfStream(stream); ok {
		t, err := projections.LoadTask(ctx, l.log, task, at)
		if err != nil {
			return Subject{}, err
		}
		return Subject{Approval: t.Approval, Task: t}, nil
	}
	g, err := projections.LoadGate(ctx, l.log, stream, at)
	if err != nil {
		return Subject{}, err
	}
	return Subject{Approval: g.Approval, Gate: g}, nil
}

// Approval returns an approval as of position at (0: now), for reading: with its
// task, if a task waits for it. Refusal: APPROVAL_NOT_FOUND.
func (l *Ledger) Approval(ctx context.Context, id string, at events.Position) (Subject, error) {
	if a := l.state.PendingApproval(id); a != nil && (at == 0 || a.Position <= at) {
		// Pending now is pending ever since: the queue need not read the log.
		task, ok := taskOfStream(a.Stream)
		if !ok {
			return Subject{Approval: a}, nil
		}
		if t := l.state.OpenTask(task); t != nil {
			return Subject{Approval: a, Task: t}, nil
		}
	}
	return l.subject(ctx, id, at)
}

// Standpoint is what a reader's entitlement to settle is judged by: authority and
// settings as of one position.
type Standpoint struct {
	auth     *projections.Authority
	rules    []gate.Rule
	settings projections.Settings
}

// NewStandpoint returns the standpoint of an authority and settings.
func NewStandpoint(auth *projections.Authority, s projections.Settings) Standpoint {
	return Standpoint{auth, Rules(auth), s}
}

// RequiredLevel is what an approver of a pending approval needs at least: the
// floor of the band above the requester's, or the highest min_level of the rules
// that match. What was required of one that ended is in its record.
func (p Standpoint) RequiredLevel(a *projections.Approval) events.Level {
	if !a.Pending() {
		return a.ApprovalRequested.RequiredLevel
	}
	required := events.Level(0)
	requester := Standing(p.auth, a.RequestedBy).Level
	for _, action := range a.Actions {
		required = max(required, gate.RequiredLevel(p.rules, action, requester))
	}
	return required
}

// MaySettle reports whether an actor may settle a pending approval, and why not.
func (p Standpoint) MaySettle(actor string, a *projections.Approval) (bool, string) {
	if !a.Pending() {
		return false, "it ended: " + a.Status()
	}
	_, code, why := MayApprove(p.auth, p.rules, p.settings.SeparationOfDuties, actor, a.RequestedBy, a.Actions)
	return code == "", why
}

// MachineCommand is a command on the machine that is to run it.
type MachineCommand struct {
	Machine string
	Argv    []string
}

// Commands lists what an approval asks to run, for each machine that it asks for.
func (s Subject) Commands() []MachineCommand {
	if s.Task != nil {
		var list []MachineCommand
		for i, m := range s.Task.Command.Targets {
			list = append(list, MachineCommand{m, s.Task.Argv(i)})
		}
		return list
	}
	machine, ok := strings.CutPrefix(s.Approval.Actions[0], "task.submit.")
	// A command to run where it was asked about; another question has no argv.
	var asked struct {
		Argv []string `json:"argv"`
	}
	if !ok || json.Unmarshal(s.Approval.Command, &asked) != nil || len(asked.Argv) == 0 {
		return nil
	}
	return []MachineCommand{{machine, asked.Argv}}
}
