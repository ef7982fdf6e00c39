package audit

import (
	"fmt"
	"iter"
	"maps"
	"slices"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// eraseAgain follows what the fold does not over an event whose payload is gone. Nothing
// that the event decided can be decided again: it is counted as erased, and as nothing
// else.
func (a *auditor) eraseAgain(r events.Record) {
	h := r.Header
	if hash, ok := events.BlockOfStream(h.Stream); ok && h.Revision == 1 {
		a.blocks.add(r, events.BlockPublished{Hash: hash})
	}
	if h.Type == (events.MemoryConsolidated{}).Kind() {
		a.forgotten[h.ID] = forgottenUnknown
	}
	if h.Type == (events.TaskReported{}).Kind() {
		a.reportErased(h)
	}
}

// payloadErased checks that e tells of an event that was, and whose payload is gone.
func (a *auditor) payloadErased(r events.Record, e events.PayloadErased) {
	h, gone := a.erased[e.Position]
	switch {
	case gone && (h.ID != e.EventID || h.Stream != e.Stream || h.Type != e.Type):
		a.find(r, Order, h.ID, e.EventID, "it says that the payload of %s in %s was erased at position %d, where another event lies", e.Type, e.Stream, e.Position)
	case !gone && !a.told[e.Position] && a.report.RestsOn != nil && e.Position <= a.report.RestsOn.Position:
		a.retold = append(a.retold, e)
	case !gone && !a.told[e.Position]:
		a.find(r, Payload, nil, e.Position, "it says that the payload at position %d was erased, and it is there", e.Position)
	}
	delete(a.erased, e.Position)
	a.told[e.Position] = true
	// What an earlier audit knew of it is known no more.
	if hash, ok := events.BlockOfStream(e.Stream); ok && a.blocks[hash] != nil && e.Type == (events.BlockPublished{}).Kind() {
		b := a.blocks[hash]
		a.blocks[hash] = &projections.Block{BlockPublished: events.BlockPublished{Hash: hash}, Position: b.Position, EventID: b.EventID, By: b.By, At: b.At, Erased: true}
	}
	if _, known := a.forgotten[e.EventID]; known && e.Type == (events.MemoryConsolidated{}).Kind() {
		a.forgotten[e.EventID] = forgottenUnknown
	}
}

// lookAgain looks again at the events that an earlier audit has read, and that were
// erased since.
func (a *auditor) lookAgain(again func([]events.Position) ([]events.Stored, error)) {
	if len(a.retold) == 0 {
		return
	}
	positions := make([]events.Position, len(a.retold))
	for i, e := range a.retold {
		positions[i] = e.Position
	}
	list, err := again(positions)
	if err != nil {
		a.report.Add(Finding{Kind: Undetermined, Position: positions[0], Detail: fmt.Sprintf("whether the payloads are gone that were erased since the earlier audit cannot be said: %v", err)})
		return
	}
	for i, e := range a.retold {
		f := Finding{Kind: Payload, Position: e.Position, Stream: e.Stream}
		r, err := list[i].Record()
		switch h := r.Header; {
		case err != nil:
			f.Kind, f.Detail = Header, err.Error()
		case h.Position != e.Position || h.ID != e.EventID || h.Stream != e.Stream || h.Type != e.Type:
			f.Kind, f.Detail = Order, "it is said to be another event that was erased"
		case !r.Erased:
			f.Detail = "it is said to be erased, and its payload is there"
		default:
			continue
		}
		a.report.Add(f)
	}
}

// erasedMeanwhile looks behind what was audited for events that tell of payloads that
// are gone. What is looked at there is held to a checkpoint of its own, and what it
// decides is not decided again: that is for the next audit.
func (a *auditor) erasedMeanwhile(behind func() ([]byte, iter.Seq2[events.Stored, error], error)) {
	if behind == nil || len(a.erased) == 0 || a.signed.lost {
		return
	}
	signed, src, err := behind()
	if err == nil {
		for s, wrong := range src {
			var r events.Record
			if err = wrong; err == nil {
				r, err = s.Record()
			}
			if err != nil {
				break
			}
			a.toldBehind(r)
		}
	}
	if err != nil {
		a.report.Add(Finding{Kind: Undetermined, Position: a.report.To + 1,
			Detail: fmt.Sprintf("whether an event behind what was read tells of payloads that are gone cannot be said: %v", err)})
		return
	}
	a.signed.take(signed, 0)
	a.signed.compare()
}

// toldBehind takes an event that was not there when the audit began.
func (a *auditor) toldBehind(r events.Record) {
	if err := a.signed.add(r); err != nil {
		a.find(r, Order, nil, nil, "%v", err)
	}
	if r.Header.Type != (events.PayloadErased{}).Kind() || r.Header.Stream != events.LedgerStream || r.Erased || r.Verify() != nil {
		return
	}
	e, err := events.DecodeAs[events.PayloadErased](r)
	if h, gone := a.erased[e.Position]; err == nil && gone && h.ID == e.EventID && h.Stream == e.Stream && h.Type == e.Type {
		delete(a.erased, e.Position)
	}
}

// endErased reports payloads that are gone although no event tells of it. What is
// erased while the audit runs is told behind the part that it reads.
func (a *auditor) endErased(live *commands.Ledger) {
	for _, p := range slices.Sorted(maps.Keys(a.erased)) {
		if live != nil {
			if e, ok := live.State().Erasure(p); ok && e.Told > a.report.To {
				continue
			}
		}
		h := a.erased[p]
		a.report.Add(Finding{Kind: Payload, Position: p, Stream: h.Stream,
			Detail: fmt.Sprintf("the payload of %s is gone, and no event says who erased it", h.Type)})
	}
}
