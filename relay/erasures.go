package relay

import (
	"context"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
)

type eraseBody struct {
	Reason string `json:"reason" doc:"Why; kept with who erased it."`
}

type eraseReply struct {
	EventID  string          `json:"event_id"`
	Position events.Position `json:"position" doc:"Of the event whose payload is gone."`
	Stream   events.Stream   `json:"stream"`
	Type     events.Kind     `json:"type"`
	Reason   string          `json:"reason"`
	Copies   []string        `json:"copies" doc:"Ids of events that repeated it and were erased with it: what receivers took of a block, what was concluded about a task or a run."`
	Receipt  receipt         `json:"receipt" doc:"Of the event that tells of the erasure."`
}

func (c *call) eraseEvent(in eraseBody) (eraseReply, error) {
	res, err := c.ledger.ErasePayload(c.ctx(), c.caller, commands.ErasePayload{EventID: c.path("id"), Reason: in.Reason})
	copies, last := []string{}, events.Position(0)
	for _, rec := range res.Records {
		if rec.Header.Type != (events.PayloadErased{}).Kind() {
			continue
		}
		copied, decodeErr := events.DecodeAs[events.PayloadErased](rec)
		if decodeErr != nil {
			return eraseReply{}, decodeErr
		}
		if last != 0 {
			copies = append(copies, copied.EventID)
		}
		last = rec.Header.Position
	}
	e, rec, err := recorded[events.PayloadErased](res, err)
	if err == nil {
		// What destinations said of it may repeat it, and the view holds what it was
		// told, in files of their own. It is recorded, so the answer is yes even if they
		// take longer to forget: both try again.
		ctx, cancel := context.WithTimeout(c.ctx(), c.cfg.PositionPatience)
		defer cancel()
		_ = c.buses[c.fleet].Forget(ctx)
		if c.view() != nil {
			_ = c.view().Wait(ctx, last)
		}
	}
	return eraseReply{e.EventID, e.Position, e.Stream, e.Type, e.Reason, copies, receiptOf(rec)}, err
}

// erasureReply tells of an erasure where the erased event is read.
type erasureReply struct {
	By       string          `json:"by"`
	At       time.Time       `json:"at"`
	Reason   string          `json:"reason"`
	Position events.Position `json:"position" doc:"Of the event that tells of it."`
}

// eventOut is an event as it is read, with what became of its payload.
func (c *call) eventOut(r events.Record) (eventReply, error) {
	out, err := eventOut(r)
	if r.Erased {
		if e, ok := c.ledger.State().Erasure(r.Header.Position); ok {
			out.Erasure = &erasureReply{e.By, e.At, e.Reason, e.Told}
		}
	}
	return out, err
}
