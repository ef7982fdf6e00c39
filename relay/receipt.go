package relay

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
)

// receipt says where an event lies in the log.
type receipt struct {
	Position events.Position `json:"position"`
	EventID  string          `json:"event_id"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	LeafHash events.Hash     `json:"leaf_hash" doc:"The event's leaf in the fleet's Merkle tree (RFC 6962)."`
}

// appendTo appends r as JSON to b: what the fields say, faster. Names and ids hold
// nothing that JSON escapes.
func (r receipt) appendTo(b []byte) []byte {
	b = strconv.AppendUint(append(b, `{"position":`...), uint64(r.Position), 10)
	b = append(append(b, `,"event_id":"`...), r.EventID...)
	b = append(append(b, `","stream":"`...), r.Stream...)
	b = strconv.AppendUint(append(b, `","revision":`...), uint64(r.Revision), 10)
	b = r.LeafHash.AppendTo(append(b, `,"leaf_hash":"`...))
	return append(b, `"}`...)
}

func receiptOf(r events.Record) receipt {
	return receipt{Position: r.Header.Position, EventID: r.Header.ID, Stream: r.Header.Stream, Revision: r.Header.Revision, LeafHash: r.LeafHash}
}

// recorded finds the event of kind E that a command recorded, which the receipt
// is of. Without one the command waits for an approval, which is an error of type
// *waiting. A recorded denial is answered with its receipt too. If its payload was
// erased since, e is empty: a repeated request has the same status and receipt, and
// nothing of what was erased.
func recorded[E events.Event](res commands.Result, err error) (e E, rec events.Record, _ error) {
	if err != nil {
		return e, rec, withReceipt(res, err)
	}
	rec, ok := res.Has(e.Kind())
	if !ok {
		if err := waitingIn(res); err != nil {
			return e, rec, err
		}
		return e, rec, fmt.Errorf("the command recorded no %s", e.Kind())
	}
	if rec.Erased {
		return e, rec, nil
	}
	e, err = events.DecodeAs[E](rec)
	return e, rec, err
}

// withReceipt adds the receipt of a recorded denial.
func withReceipt(res commands.Result, err error) error {
	var r *commands.Refusal
	if errors.As(err, &r) && r.Code == "DENIED" && len(res.Records) > 0 {
		r.With("receipt", receiptOf(res.Records[0]))
	}
	return err
}

// waiting is the answer to a command that was stopped and waits for an approval.
type waiting struct{ reply waitingReply }

func (w *waiting) Error() string { return "waits for approval " + w.reply.ApprovalID }

type waitingReply struct {
	GateID        string          `json:"gate_id"`
	ApprovalID    string          `json:"approval_id" doc:"Repeat the request with it in the header Approval-Id, once it is granted."`
	Verdict       events.Verdict  `json:"verdict" enum:"needs_approval"`
	Decision      events.Decision `json:"decision" doc:"The first decision that stopped the command."`
	Actions       []string        `json:"actions" doc:"Every action that was stopped."`
	GateIDs       []string        `json:"gate_ids"`
	RequiredLevel events.Level    `json:"required_level"`
	ExpiresAt     time.Time       `json:"expires_at"`
	Receipt       receipt         `json:"receipt"`
}

// waitingIn returns the *waiting of a command that was stopped, nil if it was not.
func waitingIn(res commands.Result) error {
	rec, ok := res.Has(events.ApprovalRequested{}.Kind())
	if !ok {
		return nil
	}
	req, err := events.DecodeAs[events.ApprovalRequested](rec)
	if err != nil {
		return err
	}
	first, err := events.DecodeAs[events.GateDecided](res.Records[0])
	if err != nil {
		return err
	}
	return &waiting{waitingReply{
		GateID: first.GateID, ApprovalID: req.ApprovalID, Verdict: first.Decision.Verdict, Decision: first.Decision,
		Actions: req.Actions, GateIDs: req.GateIDs, RequiredLevel: req.RequiredLevel, ExpiresAt: req.ExpiresAt,
		Receipt: receiptOf(res.Records[0]),
	}}
}
