package relay

import (
	"bytes"
	"fmt"
	"net/http"

	"fleetledger/commands"
	"fleetledger/events"
)

// appendBody is one event or a batch of them.
type appendBody struct {
	batch bool
	list  []commands.ExtEvent
}

func (b *appendBody) decodeBody(media string, raw []byte) error {
	b.batch = media == cloudEventBatchType
	if media != cloudEventType && !b.batch {
		b.batch = bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("["))
	}
	if !b.batch {
		e, err := decodeCloudEvent(raw)
		if err != nil {
			return err
		}
		b.list = []commands.ExtEvent{e.event()}
		if problems := e.problems(); problems != nil {
			return invalidFields(problems...)
		}
		return nil
	}
	list, err := decodeBatch(raw)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return invalidFields(events.Problem{Code: events.CodeRequired, Detail: "the batch is empty: send at least one event"})
	}
	var bad []events.Problem
	b.list = make([]commands.ExtEvent, len(list))
	for i := range list {
		b.list[i] = list[i].event()
		for _, p := range list[i].problems() {
			p.Path = fmt.Sprintf("/%d%s", i, p.Path)
			bad = append(bad, p)
		}
	}
	if bad != nil {
		return invalidFields(bad[:min(len(bad), events.MaxProblems)]...)
	}
	return nil
}

type appendReply struct {
	Receipt  *receipt  `json:"receipt,omitzero" doc:"For one event."`
	Receipts []receipt `json:"receipts,omitzero" doc:"For a batch, in its order."`
}

// appendTo appends r as JSON to b: what the fields say, faster.
func (r appendReply) appendTo(b []byte) []byte {
	if r.Receipt != nil {
		return append(r.Receipt.appendTo(append(b, `{"receipt":`...)), '}')
	}
	b = append(b, `{"receipts":[`...)
	for i := range r.Receipts {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.Receipts[i].appendTo(b)
	}
	return append(b, "]}"...)
}

func (c *call) appendEvents(in appendBody) (appendReply, error) {
	if n, limit := len(in.list), c.ledger.State().Settings().BatchEvents; n > limit {
		return appendReply{}, &problem{status: http.StatusRequestEntityTooLarge, code: "BATCH_TOO_LARGE",
			detail: fmt.Sprintf("%d events, at most %d are taken at once; send them in parts", n, limit),
			facts:  facts{"limit": limit, "actual": n}}
	}
	res, err := c.ledger.AppendExt(c.ctx(), c.caller, in.list)
	if err != nil {
		return appendReply{}, withReceipt(res, err)
	}
	if err := waitingIn(res); err != nil {
		return appendReply{}, err
	}
	receipts := make([]receipt, len(in.list))
	for i := range receipts {
		receipts[i] = receiptOf(res.Records[i])
	}
	if in.batch {
		return appendReply{Receipts: receipts}, nil
	}
	return appendReply{Receipt: &receipts[0]}, nil
}
