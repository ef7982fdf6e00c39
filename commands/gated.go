package commands

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/projections"
)

// CommandHash binds an approval to one command of one actor: SHA-256 over the
// RFC 8785 form of {"actor", "actions", "command"}. command is JSON, or empty for
// a question without one.
func CommandHash(actor string, actions []string, command jsontext.Value) (events.Hash, error) {
	if len(command) == 0 {
		command = jsontext.Value("null")
	}
	b, err := json.Marshal(struct {
		Actor   string         `json:"actor"`
		Actions []string       `json:"actions"`
		Command jsontext.Value `json:"command"`
	}{actor, actions, command})
	if err != nil {
		return events.Hash{}, err
	}
	return events.CanonicalHash(b)
}

// canonicalCommand is the form in which a command is recorded and bound.
func canonicalCommand(command any) (jsontext.Value, error) {
	raw, ok := command.(jsontext.Value)
	if ok && len(raw) == 0 {
		return nil, nil
	}
	if !ok {
		b, err := json.Marshal(command, json.Deterministic(true))
		if err != nil {
			return nil, err
		}
		raw = b
	}
	c, err := events.Canonical(raw)
	if err != nil {
		return nil, refuse(Malformed, "MALFORMED_COMMAND", "the command has no canonical form (RFC 8785): %v", err)
	}
	return c, nil
}

// maxRecordedCommand bounds how much of a command a gate's event repeats.
const maxRecordedCommand = 16 << 10

// recorded is the command as a gate's events show it: itself, or its size and
// hash if it is large. An approval is bound to all of it either way.
func recorded(command jsontext.Value) jsontext.Value {
	if len(command) <= maxRecordedCommand {
		return command
	}
	return fmt.Appendf(nil, `{"bytes":%d,"sha256":"%x"}`, len(command), sha256.Sum256(command))
}

// gated asks the gate about each action, in order. If all are allowed, or the
// caller's approval covers those that are not, the command's changes are made,
// with a permit for each action. Else the first denial is recorded, or an approval
// is opened for what needs one; nothing else changes then.
//
// command is what an approval is bound to: a value that encodes all arguments.
func (v view) gated(actions []string, command any, changes func(permits []events.Permit, d *decided)) (decided, error) {
	permits := make([]events.Permit, len(actions))
	var stopped []events.Decision
	for i, action := range actions {
		dec := v.decide(action, v.caller.Actor)
		permits[i].Decision = dec
		if dec.Verdict == events.Deny && v.caller.ApprovalID == "" {
			var d decided
			// A command without a canonical form is denied all the same.
			bound, _ := canonicalCommand(command)
			id := v.newID()
			d.add(events.GateStream(id), id, events.GateDecided{GateID: id, Decision: dec, Command: recorded(bound)})
			d.denial = true
			return d, nil
		}
		if dec.Verdict == events.NeedsApproval {
			stopped = append(stopped, dec)
		}
	}
	if len(stopped) == 0 && v.caller.ApprovalID == "" {
		var d decided
		changes(permits, &d)
		return d, nil
	}
	bound, err := canonicalCommand(command)
	if err != nil {
		return decided{}, err
	}
	if v.caller.ApprovalID == "" {
		return v.ask(stopped, bound, false)
	}
	var d decided
	if err := v.spend(&d, bound, false); err != nil {
		return decided{}, err
	}
	covered := v.approval.Approval.Actions
	for i := range permits {
		if permits[i].Decision.Verdict == events.Allow {
			continue
		}
		if !slices.Contains(covered, permits[i].Decision.Action) {
			return decided{}, rulesChanged("%s is not allowed now, and this approval does not cover it", permits[i].Decision.Action)
		}
		permits[i].ApprovalID = v.caller.ApprovalID
	}
	spent := d.changes
	d.changes = nil
	changes(permits, &d)
	// The command's own events lead: the receipt is theirs.
	d.changes = append(d.changes, spent...)
	return d, nil
}

// ask records the gates that stopped a command, and opens an approval for them.
func (v view) ask(stopped []events.Decision, command jsontext.Value, explicit bool) (decided, error) {
	var d decided
	var gateIDs []string
	stream := events.Stream("")
	for _, dec := range stopped {
		id := v.newID()
		if stream == "" {
			stream = events.GateStream(id)
		}
		gateIDs = append(gateIDs, id)
		d.add(stream, id, events.GateDecided{GateID: id, Decision: dec, Command: recorded(command), Asked: explicit})
	}
	req, err := v.approvalFor(stopped, gateIDs, command)
	if err != nil {
		return d, err
	}
	d.add(stream, req.ApprovalID, req)
	d.asks = true
	return d, nil
}

// approvalFor is the approval that would lift what stopped a command.
func (v view) approvalFor(stopped []events.Decision, gateIDs []string, command jsontext.Value) (events.ApprovalRequested, error) {
	req := events.ApprovalRequested{
		ApprovalID: v.newID(), GateIDs: gateIDs, RequestedBy: v.caller.Actor, Level: stopped[0].Level,
		Command: recorded(command), ExpiresAt: v.now.Add(v.settings.ApprovalExpires),
	}
	for _, dec := range stopped {
		req.Actions = append(req.Actions, dec.Action)
		req.RequiredLevel = max(req.RequiredLevel, gate.RequiredLevel(v.list.rules, dec.Action, dec.Level))
	}
	var why []string
	for _, dec := range stopped {
		text := dec.Decisive.Reason
		if r := v.auth.Rule(*dec.Decisive.RuleID); r != nil {
			if r.Rule.Why != "" {
				text = r.Rule.Why + ": " + text
			}
			if r.Rule.Scope != nil && req.Scope == "" {
				req.Scope = *r.Rule.Scope
			}
		}
		if !slices.Contains(why, text) {
			why = append(why, text)
		}
	}
	req.Why = strings.Join(why, "; ")
	var err error
	req.CommandHash, err = CommandHash(v.caller.Actor, req.Actions, command)
	return req, err
}

// spend uses the approval that the caller names, after evaluating requester and
// approver again. explicit is true for a "may I?".
func (v view) spend(d *decided, command jsontext.Value, explicit bool) error {
	g := v.approval
	a := g.Approval
	switch {
	case a.RequestedBy != v.caller.Actor:
		return refuse(Forbidden, "NOT_REQUESTER", "approval %s was requested by %s: only the requester spends it", a.ApprovalID, a.RequestedBy)
	case g.Decided[0].Asked && !explicit:
		return refuse(Conflict, "COMMAND_CHANGED", "approval %s is for a question, not for this command: spend it at POST /v1/gates/%s/spend", a.ApprovalID, g.Decided[0].GateID)
	case !g.Decided[0].Asked && explicit:
		return refuse(Conflict, "COMMAND_CHANGED", "approval %s is for a command: repeat that request with the header Approval-Id: %s", a.ApprovalID, a.ApprovalID)
	case a.Outcome == events.Expired, a.Outcome == events.Granted && !a.Spent && !v.now.Before(a.ExpiresAt):
		return refuse(Conflict, "APPROVAL_EXPIRED", "approval %s expired at %s; ask again", a.ApprovalID, a.ExpiresAt.Format(events.TimeLayout))
	case a.Pending():
		return refuse(Conflict, "APPROVAL_NOT_GRANTED", "approval %s is still pending", a.ApprovalID).With("approval_status", a.Status())
	case a.Outcome != events.Granted:
		return refuse(Conflict, "APPROVAL_NOT_GRANTED", "approval %s ended: %s", a.ApprovalID, a.Status()).With("approval_status", a.Status())
	case a.Spent:
		return refuse(Conflict, "APPROVAL_SPENT", "approval %s was spent at %s; ask again for another", a.ApprovalID, a.SpentAt.Format(events.TimeLayout))
	}
	hash, err := CommandHash(v.caller.Actor, a.Actions, command)
	if err != nil {
		return refuse(Malformed, "MALFORMED_COMMAND", "%v", err)
	}
	if hash != a.CommandHash {
		return refuse(Conflict, "COMMAND_CHANGED", "approval %s is bound to another command; change one argument and it is another request", a.ApprovalID).
			With("expected", a.CommandHash).With("actual", hash)
	}
	var decisions []events.Decision
	for _, dec := range g.Decided {
		decisions = append(decisions, dec.Decision)
	}
	requester, err := v.stillStands(decisions, a.RequestedBy)
	if err != nil {
		return err
	}
	evaluations, code, why := v.mayApprove(a.SettledBy, a.RequestedBy, a.Actions)
	if code != "" {
		return rulesChanged("approver %s is no longer entitled: %s", a.SettledBy, why)
	}
	d.add(g.Stream, v.newID(), events.ApprovalSpent{
		ApprovalID: a.ApprovalID, CommandHash: hash, Approver: a.SettledBy, Requester: requester, ApproverEvaluations: evaluations,
	})
	d.expect = append(d.expect, events.Expectation{Stream: g.Stream, Revision: g.Revision}, v.onSettings())
	d.before = a.ExpiresAt
	return nil
}

// stillStands decides again, for the requester, what an approval was asked for.
// A denial, or another decisive rule, is not what the approver saw.
func (v view) stillStands(asked []events.Decision, requester string) ([]events.Decision, error) {
	var out []events.Decision
	for _, old := range asked {
		if old.Verdict != events.NeedsApproval {
			continue
		}
		now := v.decide(old.Action, requester)
		if now.Verdict == events.Deny {
			return nil, rulesChanged("%s is denied to %s now: %s", now.Action, requester, now.Decisive.Reason)
		}
		if now.Verdict == events.NeedsApproval && *now.Decisive.RuleID != *old.Decisive.RuleID {
			return nil, rulesChanged("%s is stopped by another rule now: %s", now.Action, now.Decisive.Reason)
		}
		out = append(out, now)
	}
	return out, nil
}

// mayApprove is MayApprove as things stand.
func (v view) mayApprove(approver, requester string, actions []string) (evaluations []events.Decision, code, why string) {
	return MayApprove(v.auth, v.list.rules, v.settings.SeparationOfDuties, approver, requester, actions)
}

func rulesChanged(format string, args ...any) *Refusal {
	r := refuse(Conflict, "RULES_CHANGED", format, args...)
	r.Detail += "; ask again under the rules in force"
	return r
}

// denialIn returns the recorded denial of a command, nil if it was not denied. An
// explicit question that is answered "deny" is an answer, not a refusal.
func denialIn(r Result) error {
	for _, rec := range r.Records {
		if rec.Header.Type != (events.GateDecided{}).Kind() {
			continue
		}
		g, err := events.DecodeAs[events.GateDecided](rec)
		if err != nil {
			return err
		}
		if g.Decision.Verdict == events.Deny && !g.Asked {
			ref := refuse(Forbidden, "DENIED", "%s may not %s: %s", g.Decision.Actor, g.Decision.Action, g.Decision.Decisive.Reason).
				With("gate_id", g.GateID).With("decision", g.Decision)
			if id, ok := entityOf(rec.Header.Stream); ok && g.Machine != "" {
				ref = ref.With("task_id", id)
			}
			return ref
		}
	}
	return nil
}

// approvalGate folds the stand-alone gate that an approval belongs to.
func (l *Ledger) approvalGate(ctx context.Context, approval string) (*projections.Gate, error) {
	stream, err := l.approvalStream(ctx, approval, 0)
	if err != nil {
		return nil, err
	}
	if task, ok := taskOfStream(stream); ok {
		return nil, refuse(Conflict, "COMMAND_CHANGED", "approval %s is for task %s, which its grant opens: it is not spent by a request", approval, task)
	}
	return projections.LoadGate(ctx, l.log, stream, 0)
}

// limit keeps the limiters: denials recorded for an actor, approvals opened.
func (l *Ledger) limit(v view, d decided) error {
	if d.denial {
		limit := v.settings.DenialsPerMinute
		if list := l.state.Denials(v.caller.Actor, v.now.Add(-time.Minute)); len(list) >= limit {
			return tooMany("DENIALS_LIMITED", list[len(list)-limit].Add(time.Minute).Sub(v.now), limit,
				"%s was denied %d times within a minute: further denials are not recorded", v.caller.Actor, len(list))
		}
	}
	if d.asks {
		return l.limitApprovals(v)
	}
	return nil
}

func (l *Ledger) limitApprovals(v view) error {
	root := v.auth.DerivationRoot(v.caller.Actor)
	pending, all := 0, 0
	for _, a := range l.state.PendingApprovals() {
		all++
		if v.auth.DerivationRoot(a.RequestedBy) == root {
			pending++
		}
	}
	s := v.settings
	if pending >= s.ApprovalsPending {
		return tooMany("APPROVALS_PENDING_LIMITED", time.Minute, s.ApprovalsPending,
			"%d approvals of %s and its descendants are pending: settle or withdraw some first", pending, root)
	}
	minute := map[string]int{}
	total := 0
	var oldest time.Time
	for i, a := range l.state.AskedSince(v.now.Add(-time.Minute)) {
		minute[v.auth.DerivationRoot(a.By)]++
		total++
		if i == 0 {
			oldest = a.At
		}
	}
	wait := oldest.Add(time.Minute).Sub(v.now)
	if minute[root] >= s.ApprovalsPerMinute {
		return tooMany("APPROVALS_LIMITED", wait, s.ApprovalsPerMinute,
			"%s and its descendants asked for %d approvals within a minute", root, minute[root])
	}
	// The fleet's own limits never refuse whoever keeps to its fair share.
	minute[root]++
	share := max(1, s.FleetApprovalsPerMinute/len(minute))
	if total >= s.FleetApprovalsPerMinute && minute[root] > share {
		return tooMany("APPROVALS_LIMITED", wait, s.FleetApprovalsPerMinute, "the fleet asked for %d approvals within a minute", total)
	}
	if all >= s.FleetApprovalsPending && pending >= max(1, s.FleetApprovalsPending/max(1, len(v.auth.Actors()))) {
		return tooMany("APPROVALS_PENDING_LIMITED", time.Minute, s.FleetApprovalsPending, "%d approvals of the fleet are pending", all)
	}
	return nil
}

func tooMany(code string, wait time.Duration, limit int, format string, args ...any) *Refusal {
	return refuse(TooMany, code, format, args...).
		With("limit", limit).With("retry_after_s", max(1, int((wait+time.Second-1)/time.Second)))
}
