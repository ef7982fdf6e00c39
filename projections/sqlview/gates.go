package sqlview

import (
	"strings"

	"fleetledger/events"
)

// gate folds what happens at a gate, of a task or by itself.
func (f *fold) gate(h *events.Header, e events.Event) error {
	task := ""
	if strings.HasPrefix(string(h.Stream), "task-") {
		task = taskOf(h.Stream)
	}
	now := timeText(h.Time)
	switch e := e.(type) {
	case events.GateDecided:
		return f.decided(h, e, task)
	case events.ApprovalRequested:
		for _, id := range e.GateIDs {
			if err := f.insert(`UPDATE gates SET approval_id = ? WHERE gate_id = ?`, e.ApprovalID, id); err != nil {
				return err
			}
		}
		return f.insert(`INSERT INTO approvals VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'pending', NULL, NULL, NULL, NULL, NULL)`,
			e.ApprovalID, int64(h.Position), string(h.Stream), orNull(task), e.RequestedBy, now, jsonText(e.Actions), int64(e.Level), int64(e.RequiredLevel),
			orNull(e.Scope), orNull(e.Why), orNull(string(e.Command)), timeText(e.ExpiresAt))
	case events.ApprovalSettled:
		return f.insert(`UPDATE approvals SET status = ?, settled_by = ?, settled = ?, settled_at = ?, reason = ? WHERE approval_id = ?`,
			string(e.Outcome), h.Actor, int64(h.Position), now, orNull(e.Reason), e.ApprovalID)
	case events.ApprovalSpent:
		return f.insert(`UPDATE approvals SET spent_at = ? WHERE approval_id = ?`, now, e.ApprovalID)
	}
	return nil
}

func (f *fold) decided(h *events.Header, e events.GateDecided, task string) error {
	d := e.Decision
	var rule, code, reason any
	if d.Decisive != nil {
		code, reason = string(d.Decisive.ReasonCode), d.Decisive.Reason
		if d.Decisive.RuleID != nil {
			rule = *d.Decisive.RuleID
		}
	}
	return f.insert(`INSERT INTO gates VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)`,
		e.GateID, int64(h.Position), timeText(h.Time), d.Actor, int64(d.Level), d.Action, orNull(e.Machine), orNull(task), string(d.Verdict),
		rule, code, reason, int64(d.AuthorityRevision), e.Asked, orNull(string(e.Command)))
}
