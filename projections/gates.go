package projections

import (
	"context"
	"fmt"
	"time"

	"fleetledger/events"
)

// Approval is one approval, pending or ended.
type Approval struct {
	events.ApprovalRequested
	Stream      events.Stream
	RequestedAt time.Time
	Position    events.Position

	// Outcome is empty while the approval is pending.
	Outcome   events.ApprovalOutcome
	SettledBy string
	SettledAt time.Time
	Reason    string
	SettledIn events.Position

	Spent   bool
	SpentAt time.Time
}

// ApprovalPending is the status of an approval that has not ended; of one that has,
// it is its outcome.
const ApprovalPending = "pending"

// Pending reports whether the approval has not ended.
func (a *Approval) Pending() bool { return a.Outcome == "" }

// Status is the word that readers see: pending, or how it ended.
func (a *Approval) Status() string {
	if a.Pending() {
		return ApprovalPending
	}
	return string(a.Outcome)
}

// apply folds an approval's own events. a is nil before the first.
func (a *Approval) apply(r events.Record) (*Approval, error) {
	e, err := events.Decode(r)
	if err != nil {
		return nil, err
	}
	if e, ok := e.(events.ApprovalRequested); ok {
		if a != nil {
			return nil, fmt.Errorf("position %d: a second approval in %s", r.Header.Position, r.Header.Stream)
		}
		return &Approval{ApprovalRequested: e, Stream: r.Header.Stream, RequestedAt: r.Header.Time, Position: r.Header.Position}, nil
	}
	if a == nil {
		return nil, fmt.Errorf("position %d: %s without an approval in %s", r.Header.Position, r.Header.Type, r.Header.Stream)
	}
	n := *a
	switch e := e.(type) {
	case events.ApprovalSettled:
		if !a.Pending() {
			return nil, fmt.Errorf("position %d: approval %s ended before", r.Header.Position, a.ApprovalID)
		}
		n.Outcome, n.Reason = e.Outcome, e.Reason
		n.SettledBy, n.SettledAt, n.SettledIn = r.Header.Actor, r.Header.Time, r.Header.Position
	case events.ApprovalSpent:
		if a.Outcome != events.Granted || a.Spent {
			return nil, fmt.Errorf("position %d: approval %s cannot be spent", r.Header.Position, a.ApprovalID)
		}
		n.Spent, n.SpentAt = true, r.Header.Time
	}
	return &n, nil
}

// Gate is a gate that stands alone: the decisions in its stream, and the
// approval if one was opened.
type Gate struct {
	Stream   events.Stream
	Revision events.Revision
	// Decided are the gates that the command had to pass, in order.
	Decided  []events.GateDecided
	At       time.Time
	Position events.Position
	Approval *Approval
}

// LoadGate folds a gate's stream up to position at (0: all of it). It returns
// nil for a stream without events.
func LoadGate(ctx context.Context, log events.Log, s events.Stream, at events.Position) (*Gate, error) {
	var g *Gate
	for r, err := range log.ReadStream(ctx, s, 0) {
		if err != nil {
			return nil, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		if g == nil {
			g = &Gate{Stream: s, At: r.Header.Time, Position: r.Header.Position}
		}
		g.Revision = r.Header.Revision
		if r.Header.Type == (events.GateDecided{}).Kind() {
			e, err := events.DecodeAs[events.GateDecided](r)
			if err != nil {
				return nil, err
			}
			g.Decided = append(g.Decided, e)
		} else if g.Approval, err = g.Approval.apply(r); err != nil {
			return nil, err
		}
	}
	return g, nil
}
