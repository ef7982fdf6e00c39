package commands

import (
	"context"
	"errors"

	"fleetledger/events"
	"fleetledger/projections"
)

// Sweep records, as the relay, what time and suspensions have brought about:
// approvals that expired, approvals and unclaimed tasks of suspended actors,
// leases that lapsed. It is called every second, after a suspension, and at start. Of
// several relays, the one that has the duty does it.
func (l *Ledger) Sweep(ctx context.Context) error {
	if !l.OnDuty() {
		for _, k := range l.leases.lapsed(l.log.Now()) {
			l.leases.end(k.task, k.attempt) // whoever has the duty sees to it
		}
		return nil
	}
	l.adopt(l.state.OpenTasks())
	var errs []error
	auth := l.state.Authority()
	now := l.log.Now()
	for _, a := range l.state.PendingApprovals() {
		outcome, reason := events.ApprovalOutcome(""), ""
		switch {
		case !now.Before(a.ExpiresAt):
			outcome = events.Expired
		case !auth.Active(a.RequestedBy):
			outcome, reason = events.Withdrawn, a.RequestedBy+" is not active any more"
		default:
			continue
		}
		errs = append(errs, l.sweepApproval(ctx, a.ApprovalID, outcome, reason))
	}
	for _, t := range l.state.OpenTasks() {
		if t.Status == projections.TaskOpen && !auth.Active(t.SubmittedBy) {
			errs = append(errs, l.sweepTask(ctx, t.ID))
		}
		for _, leg := range t.Legs {
			if leg.Status == projections.LegClaimed && !auth.Active(leg.Machine) {
				errs = append(errs, l.lapse(ctx, leaseKey{t.ID, leg.Attempts[len(leg.Attempts)-1].Number}))
			}
		}
	}
	for _, k := range l.leases.lapsed(now) {
		errs = append(errs, l.lapse(ctx, k))
	}
	return errors.Join(errs...)
}

// asRelay decides something that nobody asked for. What has happened meanwhile
// without the relay is no error.
func (l *Ledger) asRelay(ctx context.Context, decide func(v view) (decided, error)) error {
	_, err := l.execute(ctx, Caller{Actor: events.RelayActor}, decide)
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Class == Conflict {
		return nil
	}
	return err
}

func (l *Ledger) sweepApproval(ctx context.Context, id string, outcome events.ApprovalOutcome, reason string) error {
	return l.asRelay(ctx, l.onDuty(func(v view) (decided, error) {
		s, err := l.subject(ctx, id, 0)
		if err != nil || !s.Approval.Pending() || outcome == events.Withdrawn && v.auth.Active(s.Approval.RequestedBy) {
			return decided{}, err
		}
		var d decided
		s.settle(v, &d, events.ApprovalSettled{ApprovalID: id, Outcome: outcome, Reason: reason, RequiredLevel: s.Approval.RequiredLevel})
		return d, nil
	}))
}

// sweepTask cancels a task of a suspended actor, also one whose leases have lapsed, so
// that it is not begun again.
func (l *Ledger) sweepTask(ctx context.Context, id string) error {
	return l.asRelay(ctx, l.onDuty(func(v view) (decided, error) {
		t, err := l.Task(ctx, id, 0)
		if err != nil || t.Status != projections.TaskOpen {
			return decided{}, err
		}
		d := decided{expect: []events.Expectation{{Stream: t.Stream, Revision: t.Revision}}}
		d.cancelIfUnheld(v, t)
		return d, nil
	}))
}

// cancelIfUnheld cancels an open task of a suspended actor that no machine holds or has
// reported.
func (d *decided) cancelIfUnheld(v view, t *projections.Task) {
	if v.auth.Active(t.SubmittedBy) || t.Held() || t.Reported() {
		return
	}
	reason := t.SubmittedBy + " is not active any more"
	d.add(t.Stream, v.newID(), events.TaskCancelled{Reason: reason})
	d.add(t.Stream, v.newID(), events.TaskSettled{Verdict: events.VerdictCancelled, Reason: reason})
}

// lapse ends an attempt that was not heard of in time, or whose machine is suspended,
// and offers its leg again if an attempt is left.
func (l *Ledger) lapse(ctx context.Context, k leaseKey) error {
	held := false
	err := l.asRelay(ctx, l.onDuty(func(v view) (decided, error) {
		t, err := l.Task(ctx, k.task, 0)
		if err != nil {
			return decided{}, err
		}
		leg, a := t.Attempt(k.attempt)
		// Recording others took its time: a heartbeat may have come meanwhile, and been
		// told how long it holds, or the machine been reinstated.
		if held = a != nil && v.auth.Active(leg.Machine) && l.leases.held(k, v.now); held {
			return decided{}, nil
		}
		if a == nil || leg.Status != projections.LegClaimed || a.Lapsed || a.Reported() {
			return decided{}, nil
		}
		lapsed := events.LeaseLapsed{Machine: leg.Machine, Attempt: k.attempt, Reoffered: len(leg.Attempts) < t.Command.Attempts && v.auth.Active(leg.Machine)}
		d := decided{expect: []events.Expectation{{Stream: t.Stream, Revision: t.Revision}}}
		d.add(t.Stream, v.newID(), lapsed)
		after := *t
		after.Legs = legsAfter(t, func(x *projections.Leg) {
			if x.Machine == leg.Machine {
				x.Status = projections.LegLost
				if lapsed.Reoffered {
					x.Status = projections.LegOffered
				}
			}
		})
		d.settleIfDone(v, t, after.Legs)
		if len(d.changes) == 1 {
			d.cancelIfUnheld(v, &after)
		}
		return d, nil
	}))
	if err == nil && !held {
		l.leases.end(k.task, k.attempt)
	}
	return err
}
