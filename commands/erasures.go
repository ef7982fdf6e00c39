package commands

import (
	"context"
	"fmt"
	"strings"

	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/projections"
)

// ErasePayload removes the payload of an event for good. The event, its header and
// every proof stay.
type ErasePayload struct {
	EventID string `json:"event_id"`
	Reason  string `json:"reason"`
}

// maxReason bounds the reason of an erasure, in bytes.
const maxReason = 1000

// ErasePayload carries out c, and returns when nothing of the payload is left in the
// log's storage either. With a block goes what its receivers took of it, which repeats
// it: there is a payload.erased for each. A payload of a task can be erased once the
// task is settled.
// Refusals: EVENT_NOT_FOUND, ALREADY_ERASED, NOT_ERASABLE, INVALID, SECRET_IN_TEXT,
// ERASURE_UNSUPPORTED, and what gates answer.
func (l *Ledger) ErasePayload(ctx context.Context, caller Caller, c ErasePayload) (Result, error) {
	r, err := l.execute(ctx, caller, func(v view) (decided, error) {
		revision := l.state.LedgerRevision()
		rec, err := l.event(ctx, c.EventID)
		if err != nil {
			return decided{}, err
		}
		if rec.Erased {
			return decided{}, l.alreadyErased(rec)
		}
		if err := l.erasable(ctx, rec); err != nil {
			return decided{}, err
		}
		copies, last, err := l.copies(ctx, rec)
		if err != nil {
			return decided{}, err
		}
		d, err := c.decide(v, append([]events.Record{rec}, copies...))
		// One of two who erase it at the same time decides again, and finds it gone.
		d.expect = append(d.expect, events.Expectation{Stream: events.LedgerStream, Revision: revision})
		if last > 0 { // nor is it copied meanwhile
			d.expect = append(d.expect, events.Expectation{Stream: rec.Header.Stream, Revision: last})
		}
		return d, err
	})
	if _, erased := r.Has(events.PayloadErased{}.Kind()); err != nil || !erased {
		return r, err
	}
	// It is recorded, and no read shows the payload any more. Until it is gone from
	// the files too, a caller is not told that it is done: asking again goes on here.
	if err := l.log.Scrub(ctx); err != nil {
		return r, fmt.Errorf("the payload of event %s is erased; removing it from the files: %w", c.EventID, err)
	}
	return r, nil
}

// decide erases the first of the records, and with it the others.
func (c ErasePayload) decide(v view, list []events.Record) (decided, error) {
	switch reason := strings.TrimSpace(c.Reason); {
	case reason == "":
		return decided{}, invalid(problem("/reason", "REQUIRED", "say why: the record keeps who erased what, and the reason"))
	case len(c.Reason) > maxReason:
		return decided{}, invalid(problem("/reason", "OUT_OF_RANGE", "has %d bytes, at most %d are kept", len(c.Reason), maxReason))
	}
	for _, found := range secrets.Find(c.Reason) {
		return decided{}, refuse(Impossible, "SECRET_IN_TEXT", "the reason holds what looks like a secret (%s), and it is kept: say it without; nothing was recorded", found.Rule)
	}
	slug := ""
	if list[0].Header.Type == (events.SectionRevised{}).Kind() {
		s, err := events.DecodeAs[events.SectionRevised](list[0])
		if err != nil {
			return decided{}, err
		}
		slug = s.Slug
	}
	return v.gated([]string{"payload.erase"}, named("payload.erase", c), func(permits []events.Permit, d *decided) {
		for _, rec := range list {
			h := rec.Header
			d.add(events.LedgerStream, v.newID(), events.PayloadErased{EventID: h.ID, Position: h.Position, Stream: h.Stream, Type: h.Type, Slug: slug, Reason: c.Reason, Permit: permits[0]})
			d.erase = append(d.erase, h.Position)
		}
	})
}

// maxCopies bounds the events that are erased with another.
const maxCopies = 900

// copies are the events that repeat what rec says: of a block, what was taken of it.
// last is the revision of their stream that they were found at, 0 if there can be none.
func (l *Ledger) copies(ctx context.Context, rec events.Record) (list []events.Record, last events.Revision, err error) {
	if rec.Header.Type != (events.BlockPublished{}).Kind() {
		return nil, 0, nil
	}
	last = rec.Header.Revision
	for r, err := range l.log.ReadStream(ctx, rec.Header.Stream, last) {
		if err != nil {
			return nil, 0, err
		}
		last = r.Header.Revision
		if !r.Erased {
			list = append(list, r)
		}
	}
	if len(list) > maxCopies {
		return nil, 0, tooLarge("TOO_MANY_COPIES", len(list), maxCopies, "acceptances repeat the block: erase some of them first; at once")
	}
	return list, last, nil
}

// event reads the event with this id. Refusal: EVENT_NOT_FOUND.
func (l *Ledger) event(ctx context.Context, id string) (events.Record, error) {
	missing := refuse(NotFound, "EVENT_NOT_FOUND", "no event %+q; see GET /v1/events", id)
	if events.CheckName("event id", id) != nil {
		return events.Record{}, missing
	}
	p, err := l.log.FindID(ctx, id)
	if err != nil {
		return events.Record{}, err
	}
	if p == 0 {
		return events.Record{}, missing
	}
	recs, err := l.Records(ctx, p, p)
	if err != nil {
		return events.Record{}, err
	}
	return recs[0], nil
}

func (l *Ledger) alreadyErased(rec events.Record) error {
	r := refuse(Conflict, "ALREADY_ERASED", "the payload of event %s, at position %d, was erased before", rec.Header.ID, rec.Header.Position).
		With("position", rec.Header.Position)
	if e, ok := l.state.Erasure(rec.Header.Position); ok {
		r.Detail = fmt.Sprintf("the payload of event %s was erased by %s at %s, at position %d", rec.Header.ID, e.By, e.At.Format(events.TimeLayout), e.Told)
		r.With("erased_by", e.By).With("erased_at", e.At).With("erasure_position", e.Told)
	}
	return r
}

// erasable refuses an event whose payload something rests on.
func (l *Ledger) erasable(ctx context.Context, rec events.Record) error {
	h := rec.Header
	if !h.Type.Erasable() {
		return refuse(Impossible, "NOT_ERASABLE", "the payload of a %s cannot be erased: decisions and what became of things rest on it", h.Type).With("kind", h.Type)
	}
	id, ofTask := strings.CutPrefix(string(h.Stream), string(events.TaskStream("")))
	if !ofTask || h.Type == (events.ConclusionRecorded{}).Kind() {
		return nil
	}
	t, err := l.Task(ctx, id, 0)
	if err != nil {
		return err
	}
	if t.Status != projections.TaskSettled {
		return refuse(Impossible, "NOT_ERASABLE", "task %s is not settled, and its machine still needs it: cancel it first, or wait", id).
			With("kind", h.Type).With("task_status", t.Status)
	}
	return nil
}
