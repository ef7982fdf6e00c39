package commands

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/projections"
)

// AskGate is an explicit "may I?".
type AskGate struct {
	Action  string
	Command jsontext.Value // any JSON, or empty
	// RequestApproval opens an approval if that is what is needed.
	RequestApproval bool
}

// AskGate records the answer, which is a gate.decided whatever the verdict.
// Refusals: INVALID, MALFORMED_COMMAND, SECRET_IN_COMMAND.
func (l *Ledger) AskGate(ctx context.Context, caller Caller, c AskGate) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) { return c.decide(v) })
}

func (c AskGate) decide(v view) (decided, error) {
	if !gate.ValidAction(c.Action) {
		return decided{}, invalid(problem("/action", "INVALID_ACTION", "%q is not an action: dot-separated words of a-z 0-9 _ -", c.Action))
	}
	command, err := canonicalCommand(c.Command)
	if err != nil {
		return decided{}, err
	}
	if err := noSecretsInQuestion(c.Action, c.Command); err != nil {
		return decided{}, err
	}
	dec := v.decide(c.Action, v.caller.Actor)
	if dec.Verdict == events.NeedsApproval && c.RequestApproval {
		return v.ask([]events.Decision{dec}, command, true)
	}
	var d decided
	id := v.newID()
	d.add(events.GateStream(id), id, events.GateDecided{GateID: id, Decision: dec, Command: recorded(command), Asked: true})
	d.denial = dec.Verdict == events.Deny
	return d, nil
}

// SpendGate is the one use of a granted "may I?".
type SpendGate struct {
	GateID  string
	Command jsontext.Value
}

// SpendGate carries out c. Refusals: GATE_NOT_FOUND, NOT_REQUESTER, APPROVAL_SPENT,
// COMMAND_CHANGED, APPROVAL_NOT_GRANTED, APPROVAL_EXPIRED, RULES_CHANGED.
func (l *Ledger) SpendGate(ctx context.Context, caller Caller, c SpendGate) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		g, err := l.Gate(ctx, c.GateID, 0)
		if err != nil {
			return decided{}, err
		}
		if g.Task != "" {
			return decided{}, refuse(Conflict, "APPROVAL_NOT_GRANTED", "gate %s belongs to task %s, which its grant opens: there is nothing to spend", c.GateID, g.Task)
		}
		if by := g.Decided.Decision.Actor; by != caller.Actor {
			return decided{}, refuse(Forbidden, "NOT_REQUESTER", "gate %s was asked by %s: only the requester spends it", c.GateID, by)
		}
		if g.Alone.Approval == nil {
			return decided{}, refuse(Conflict, "APPROVAL_NOT_GRANTED", "gate %s has no approval: its verdict is %s", c.GateID, g.Decided.Decision.Verdict)
		}
		v.approval = g.Alone
		command, err := canonicalCommand(c.Command)
		if err != nil {
			return decided{}, err
		}
		var d decided
		err = v.spend(&d, command, true)
		return d, err
	})
}

// Disposition is what became of one gate.
type Disposition struct {
	Decided events.GateDecided
	Record  events.Record
	// Task is the id of the task the gate belongs to, empty for one that
	// stands alone, which is then Alone.
	Task     string
	Alone    *projections.Gate
	Approval *projections.Approval
}

// Gate returns what became of a gate, as of position at (0: now). Refusal:
// GATE_NOT_FOUND.
func (l *Ledger) Gate(ctx context.Context, id string, at events.Position) (Disposition, error) {
	missing := refuse(NotFound, "GATE_NOT_FOUND", "no gate %q", id)
	if events.CheckName("gate id", id) != nil {
		return Disposition{}, missing
	}
	if err := l.readable(ctx); err != nil {
		return Disposition{}, err
	}
	d, err := l.decidedGate(ctx, id, at)
	if err != nil {
		return d, err
	}
	if d.Record.Header.Position == 0 {
		return l.legGate(ctx, id, at, missing)
	}
	if d.Decided.Machine != "" {
		d.Task, _ = entityOf(d.Record.Header.Stream)
		t, err := projections.LoadTask(ctx, l.log, d.Task, at)
		if err != nil {
			return d, err
		}
		d.Approval = t.Approval
		return d, nil
	}
	if d.Alone, err = projections.LoadGate(ctx, l.log, d.Record.Header.Stream, at); err != nil {
		return d, err
	}
	d.Approval = d.Alone.Approval
	return d, nil
}

// decidedGate finds the gate that has an event of this id, up to position at (0: now);
// there is no record if none has.
func (l *Ledger) decidedGate(ctx context.Context, id string, at events.Position) (d Disposition, err error) {
	pos, err := l.log.FindID(ctx, id)
	if err != nil || pos == 0 || at != 0 && pos > at {
		return d, err
	}
	recs, err := l.Records(ctx, pos, pos)
	if err != nil || recs[0].Header.Type != (events.GateDecided{}).Kind() {
		return d, err
	}
	d.Record = recs[0]
	d.Decided, err = events.DecodeAs[events.GateDecided](recs[0])
	return d, err
}

// legGate is the gate of a target that was allowed at once, which the submission of
// its task tells of.
func (l *Ledger) legGate(ctx context.Context, id string, at events.Position, missing error) (Disposition, error) {
	task, ok := taskOfGate(id)
	if !ok {
		return Disposition{}, missing
	}
	t, err := projections.LoadTask(ctx, l.log, task, at)
	if err != nil {
		return Disposition{}, err
	}
	if t == nil {
		return Disposition{}, missing
	}
	i := slices.IndexFunc(t.Gates, func(g projections.TaskGate) bool { return g.GateID == id })
	if i < 0 {
		return Disposition{}, missing
	}
	rec, err := l.Records(ctx, t.Position, t.Position)
	if err != nil {
		return Disposition{}, err
	}
	g := t.Gates[i]
	return Disposition{Task: task, Record: rec[0], Decided: events.GateDecided{GateID: id, Decision: g.Decision, Machine: g.Machine}}, nil
}
