package relay

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// approvalItem is an approval in the queue, or one that ended.
type approvalItem struct {
	ApprovalID    string         `json:"approval_id"`
	GateID        string         `json:"gate_id" doc:"The first gate that it is for."`
	GateIDs       []string       `json:"gate_ids"`
	Action        string         `json:"action" doc:"The first action that it is for."`
	Actions       []string       `json:"actions"`
	RequestedBy   string         `json:"requested_by"`
	Level         events.Level   `json:"level" doc:"The requester's effective level at the time."`
	RequiredLevel events.Level   `json:"required_level" doc:"What an approver needs at least."`
	Scope         *string        `json:"scope" doc:"The scope that the requester was outside of."`
	Why           string         `json:"why" doc:"Why the gate stopped it."`
	Command       jsontext.Value `json:"command" doc:"What was asked; its size and hash if it is large."`
	CommandHash   events.Hash    `json:"command_hash"`
	CreatedAt     time.Time      `json:"created_at"`
	ExpiresAt     time.Time      `json:"expires_at"`
	Status        string         `json:"status" enum:"pending,granted,refused,expired,withdrawn"`
	TaskID        string         `json:"task_id,omitzero" doc:"The task that waits for it."`
	SettledBy     string         `json:"settled_by,omitzero"`
	SettledAt     *time.Time     `json:"settled_at,omitzero"`
	Reason        string         `json:"reason,omitzero" doc:"Of whoever settled it."`
	Spent         bool           `json:"spent"`
	TriedBefore   []triedRun     `json:"tried_before" doc:"The newest runs of the same command on the same machines."`
	TriedUnknown  bool           `json:"tried_before_unknown,omitzero" doc:"True while the view that knows them is behind: tried_before is empty then."`
	MaySettle     bool           `json:"may_settle" doc:"Whether the reader may."`
	MayNotBecause string         `json:"may_not_settle_because,omitzero"`
}

// triedRun is a run in a few words.
type triedRun struct {
	RecordID  string         `json:"record_id"`
	TaskID    string         `json:"task_id,omitzero"`
	Machine   string         `json:"machine"`
	Command   string         `json:"command"`
	Outcome   events.Outcome `json:"outcome"`
	ExitCode  *int           `json:"exit_code"`
	Masked    bool           `json:"masked"`
	EndedAt   time.Time      `json:"ended_at"`
	ElapsedMS int64          `json:"elapsed_ms"`
}

const triedBeforeLimit = 5

// standpoint is what the reader's entitlement is judged by.
func (c *call) standpoint() (p commands.Standpoint, err error) {
	auth, err := c.authority()
	if err != nil {
		return p, err
	}
	settings, err := c.settings()
	return commands.NewStandpoint(auth, settings), err
}

func (c *call) approval(id string, p commands.Standpoint) (approvalItem, error) {
	s, err := c.ledger.Approval(c.ctx(), id, c.asOf)
	if err != nil {
		return approvalItem{}, err
	}
	a := s.Approval
	out := approvalItem{
		ApprovalID: a.ApprovalID, GateID: a.GateIDs[0], GateIDs: a.GateIDs, Action: a.Actions[0], Actions: a.Actions,
		RequestedBy: a.RequestedBy, Level: a.Level, RequiredLevel: p.RequiredLevel(a), Scope: orNull(a.Scope), Why: a.Why,
		Command: a.Command, CommandHash: a.CommandHash, CreatedAt: a.RequestedAt, ExpiresAt: a.ExpiresAt, Status: a.Status(),
		SettledBy: a.SettledBy, Reason: a.Reason, Spent: a.Spent,
	}
	if !a.Pending() {
		out.SettledAt = &a.SettledAt
	}
	if s.Task != nil {
		out.TaskID = s.Task.ID
	}
	if out.TriedBefore, err = c.triedBefore(s); err != nil {
		return approvalItem{}, err
	}
	out.TriedUnknown = out.TriedBefore == nil
	out.MaySettle, out.MayNotBecause = p.MaySettle(c.token.Actor, a)
	return out, nil
}

func (c *call) listApprovals() (list[approvalItem], error) {
	out := list[approvalItem]{Items: []approvalItem{}}
	page, err := c.page()
	if err != nil {
		return out, err
	}
	status := c.q("status")
	var ids []string
	var last events.Position
	if c.at == 0 && status == projections.ApprovalPending {
		ids, last = c.pendingApprovals(page)
	} else if ids, last, err = c.allApprovals(page, status); err != nil {
		return out, err
	}
	p, err := c.standpoint()
	if err != nil {
		return out, err
	}
	for _, id := range ids {
		item, err := c.approval(id, p)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, item)
	}
	out.Scope = c.scope()
	out.Scope.Status = status
	out.NextCursor = cursor(last != 0, last)
	return out, nil
}

// pendingApprovals is a page of the queue as of now; the next one is after last,
// unless that is 0.
func (c *call) pendingApprovals(page projections.Page) (ids []string, last events.Position) {
	pending, at := c.ledger.State().PendingApprovalsAsOf()
	c.asOf = at
	for _, a := range pending {
		if a.Position <= page.After {
			continue
		}
		if len(ids) == page.Limit {
			return ids, last
		}
		ids, last = append(ids, a.ApprovalID), a.Position
	}
	return ids, 0
}

// allApprovals is a page of approvals as of the answer's position.
func (c *call) allApprovals(page projections.Page, status string) ([]string, events.Position, error) {
	if err := c.awaitFolded(); err != nil {
		return nil, 0, err
	}
	found, last, err := c.view().Approvals(c.ctx(), page, status)
	if err != nil {
		return nil, 0, c.viewError(err)
	}
	ids := make([]string, len(found))
	for i, e := range found {
		ids[i] = e.ID
	}
	return ids, last, nil
}

func (c *call) getApproval() (approvalItem, error) {
	p, err := c.standpoint()
	if err != nil {
		return approvalItem{}, err
	}
	return c.approval(c.path("id"), p)
}

type settleBody struct {
	Outcome events.ApprovalOutcome `json:"outcome" enum:"granted,refused"`
	Reason  string                 `json:"reason"`
}

type settleReply struct {
	ApprovalID string                 `json:"approval_id"`
	Outcome    events.ApprovalOutcome `json:"outcome" enum:"granted,refused,withdrawn"`
	SettledBy  string                 `json:"settled_by"`
	Reason     string                 `json:"reason"`
	TaskID     string                 `json:"task_id,omitzero" doc:"The task that waited for it."`
	Receipt    receipt                `json:"receipt"`
}

func settled(res commands.Result, err error) (settleReply, error) {
	e, rec, err := recorded[events.ApprovalSettled](res, err)
	return settleReply{e.ApprovalID, e.Outcome, rec.Header.Actor, e.Reason, taskOf(rec), receiptOf(rec)}, err
}

func (c *call) settleApproval(in settleBody) (settleReply, error) {
	return settled(c.ledger.SettleApproval(c.ctx(), c.caller,
		commands.SettleApproval{ApprovalID: c.path("id"), Outcome: in.Outcome, Reason: in.Reason}))
}

type reasonBody struct {
	Reason string `json:"reason,omitzero"`
}

func (c *call) withdrawApproval(in reasonBody) (settleReply, error) {
	return settled(c.ledger.WithdrawApproval(c.ctx(), c.caller, commands.WithdrawApproval{ApprovalID: c.path("id"), Reason: in.Reason}))
}

type settleAllBody struct {
	Settlements []settlement `json:"settlements" minItems:"1" maxItems:"1000"`
}

type settlement struct {
	ApprovalID string                 `json:"approval_id"`
	Outcome    events.ApprovalOutcome `json:"outcome" enum:"granted,refused"`
	Reason     string                 `json:"reason"`
}

type settleAllReply struct {
	Results []settleResult `json:"results" doc:"One for each settlement, in their order."`
}

type settleResult struct {
	ApprovalID string        `json:"approval_id"`
	Status     int           `json:"status" doc:"What settling it alone would have been answered with."`
	Outcome    string        `json:"outcome,omitzero"`
	TaskID     string        `json:"task_id,omitzero"`
	Receipt    *receipt      `json:"receipt,omitzero"`
	Problem    *problemReply `json:"problem,omitzero"`
}

const maxSettlements = 1000

// settleApprovals settles each alone: what one is answered says nothing about
// the next. Each is bound to a key made of the request's and its place, so a
// repeated request goes on where it was broken off.
func (c *call) settleApprovals(in settleAllBody) (settleAllReply, error) {
	out := settleAllReply{Results: []settleResult{}}
	switch n := len(in.Settlements); {
	case n == 0:
		return out, invalidFields(events.Problem{Path: "/settlements", Code: events.CodeRequired, Detail: "there is nothing to settle: name at least one"})
	case n > maxSettlements:
		return out, &problem{status: http.StatusRequestEntityTooLarge, code: "SETTLEMENTS_TOO_MANY",
			detail: fmt.Sprintf("%d settlements, at most %d are taken", n, maxSettlements), facts: facts{"limit": maxSettlements, "actual": n}}
	}
	whole := c.caller
	if err := c.sameBatch(whole); err != nil {
		return out, err
	}
	for i, s := range in.Settlements {
		c.caller = ofBatch(whole, i)
		r, err := settled(c.ledger.SettleApproval(c.ctx(), c.caller,
			commands.SettleApproval{ApprovalID: s.ApprovalID, Outcome: s.Outcome, Reason: s.Reason}))
		result := settleResult{ApprovalID: s.ApprovalID, Status: http.StatusOK, Outcome: string(r.Outcome), TaskID: r.TaskID, Receipt: &r.Receipt}
		if err != nil {
			p := problemOf(err)
			if p == nil || p.status >= http.StatusInternalServerError {
				return out, err // the rest would fare alike; the same request again goes on here
			}
			reply := p.reply()
			result = settleResult{ApprovalID: s.ApprovalID, Status: p.status, Problem: &reply}
		}
		out.Results = append(out.Results, result)
	}
	return out, nil
}

// ofBatch is the caller of the i-th command of a request.
func ofBatch(c commands.Caller, i int) commands.Caller {
	if !c.Key.IsZero() {
		c.Key = events.SumHash(c.Key.String(), strconv.Itoa(i))
	}
	return c
}

// sameBatch refuses a key that an earlier request with another body has used, for
// whichever of its settlements.
func (c *call) sameBatch(whole commands.Caller) error {
	if whole.Key.IsZero() {
		return nil
	}
	for i := range maxSettlements {
		a, request, err := c.ledger.Log().FindKey(c.ctx(), ofBatch(whole, i).Key)
		if err != nil {
			return err
		}
		if a.First == 0 {
			continue
		}
		if request != whole.Request {
			return &problem{status: http.StatusConflict, code: "IDEMPOTENCY_MISMATCH",
				detail: "this Idempotency-Key was used for another request; use a new key for a new request", facts: facts{"position": a.First}}
		}
		return nil
	}
	return nil
}
