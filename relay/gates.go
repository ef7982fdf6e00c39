package relay

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
)

type askGateBody struct {
	Action          string         `json:"action"`
	Command         jsontext.Value `json:"command,omitzero" doc:"Any JSON: what an approval is bound to."`
	RequestApproval bool           `json:"request_approval,omitzero" doc:"Open an approval if that is what it takes."`
}

type askGateReply struct {
	GateID            string             `json:"gate_id"`
	Verdict           events.Verdict     `json:"verdict" enum:"allow,needs_approval,deny"`
	Action            string             `json:"action"`
	Actor             string             `json:"actor"`
	Decisive          *events.Evaluated  `json:"decisive" doc:"The one rule that decided; null when allowed."`
	Evaluated         []events.Evaluated `json:"evaluated"`
	Level             events.Level       `json:"level"`
	Scopes            []string           `json:"scopes"`
	AuthorityRevision events.Revision    `json:"authority_revision"`
	ApprovalID        string             `json:"approval_id,omitzero"`
	RequiredLevel     *events.Level      `json:"required_level,omitzero" doc:"Of an approver, with approval_id."`
	ExpiresAt         *time.Time         `json:"expires_at,omitzero" doc:"Of the approval, with approval_id."`
	Receipt           receipt            `json:"receipt"`
}

func (c *call) askGate(in askGateBody) (askGateReply, error) {
	res, err := c.ledger.AskGate(c.ctx(), c.caller, commands.AskGate{Action: in.Action, Command: in.Command, RequestApproval: in.RequestApproval})
	e, rec, err := recorded[events.GateDecided](res, err)
	if err != nil {
		return askGateReply{}, err
	}
	d := e.Decision
	out := askGateReply{
		GateID: e.GateID, Verdict: d.Verdict, Action: d.Action, Actor: d.Actor, Decisive: d.Decisive, Evaluated: d.Evaluated,
		Level: d.Level, Scopes: d.Scopes, AuthorityRevision: d.AuthorityRevision, Receipt: receiptOf(rec),
	}
	if _, opened := res.Has(events.ApprovalRequested{}.Kind()); opened {
		req, _, err := recorded[events.ApprovalRequested](res, nil)
		if err != nil {
			return out, err
		}
		out.ApprovalID, out.RequiredLevel, out.ExpiresAt = req.ApprovalID, &req.RequiredLevel, &req.ExpiresAt
	}
	return out, nil
}

type spendGateBody struct {
	Command jsontext.Value `json:"command,omitzero" doc:"The command that was asked about, unchanged."`
}

type spendGateReply struct {
	GateID     string  `json:"gate_id"`
	ApprovalID string  `json:"approval_id"`
	Approver   string  `json:"approver"`
	Spent      bool    `json:"spent"`
	Receipt    receipt `json:"receipt"`
}

func (c *call) spendGate(in spendGateBody) (spendGateReply, error) {
	e, rec, err := recorded[events.ApprovalSpent](c.ledger.SpendGate(c.ctx(), c.caller, commands.SpendGate{GateID: c.path("id"), Command: in.Command}))
	return spendGateReply{c.path("id"), e.ApprovalID, e.Approver, true, receiptOf(rec)}, err
}

// gateReply is what became of a gate.
type gateReply struct {
	GateID            string             `json:"gate_id"`
	Verdict           events.Verdict     `json:"verdict" enum:"allow,needs_approval,deny"`
	Action            string             `json:"action"`
	Actor             string             `json:"actor"`
	Decisive          *events.Evaluated  `json:"decisive"`
	Evaluated         []events.Evaluated `json:"evaluated"`
	Level             events.Level       `json:"level"`
	Scopes            []string           `json:"scopes"`
	AuthorityRevision events.Revision    `json:"authority_revision"`
	DecidedAt         time.Time          `json:"decided_at"`
	TaskID            string             `json:"task_id,omitzero" doc:"The task that it is the gate of."`
	Machine           string             `json:"machine,omitzero" doc:"The target, for the gate of a task."`
	Command           jsontext.Value     `json:"command,omitzero"`
	Approval          *gateApproval      `json:"approval" doc:"Null if none was opened."`
	Spent             bool               `json:"spent"`
	Receipt           receipt            `json:"receipt"`
}

type gateApproval struct {
	ApprovalID    string       `json:"approval_id"`
	Status        string       `json:"status" enum:"pending,granted,refused,expired,withdrawn"`
	RequestedBy   string       `json:"requested_by"`
	RequiredLevel events.Level `json:"required_level"`
	CreatedAt     time.Time    `json:"created_at"`
	ExpiresAt     time.Time    `json:"expires_at"`
	SettledBy     string       `json:"settled_by,omitzero"`
	SettledAt     *time.Time   `json:"settled_at,omitzero"`
	Reason        string       `json:"reason,omitzero"`
	SpentAt       *time.Time   `json:"spent_at,omitzero"`
}

func (c *call) getGate() (gateReply, error) {
	g, err := c.ledger.Gate(c.ctx(), c.path("id"), c.asOf)
	if err != nil {
		return gateReply{}, err
	}
	d := g.Decided.Decision
	out := gateReply{
		GateID: g.Decided.GateID, Verdict: d.Verdict, Action: d.Action, Actor: d.Actor, Decisive: d.Decisive, Evaluated: d.Evaluated,
		Level: d.Level, Scopes: d.Scopes, AuthorityRevision: d.AuthorityRevision, DecidedAt: g.Record.Header.Time,
		TaskID: g.Task, Machine: g.Decided.Machine, Command: g.Decided.Command, Receipt: receiptOf(g.Record),
	}
	if a := g.Approval; a != nil {
		out.Spent = a.Spent
		out.Approval = &gateApproval{
			ApprovalID: a.ApprovalID, Status: a.Status(), RequestedBy: a.RequestedBy, RequiredLevel: a.RequiredLevel,
			CreatedAt: a.RequestedAt, ExpiresAt: a.ExpiresAt, SettledBy: a.SettledBy, Reason: a.Reason,
		}
		if !a.Pending() {
			out.Approval.SettledAt = &a.SettledAt
		}
		if a.Spent {
			out.Approval.SpentAt = &a.SpentAt
		}
	}
	return out, nil
}
