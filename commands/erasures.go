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
// log's storage either. With it goes what repeats it: of a block, what its receivers
// took of it; of a task's submission and of a run, what was concluded about them, which
// begins with their words. There is a payload.erased for each. A payload of a task can
// be erased once the task is settled.
// Refusals: EVENT_NOT_FOUND, ALREADY_ERASED, NOT_ERASABLE, INVALID, SECRET_IN_TEXT,
// ERASURE_UNSUPPORTED, and what gates answer.
func (l *Ledger) ErasePayload(ctx context.Context, caller Caller, c ErasePayload) (Result, error) {
	var repeated copies
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
		if err := repeated.of(ctx, l.log, rec); err != nil {
			return decided{}, err
		}
		d, err := c.decide(v, append([]events.Record{rec}, repeated.list...))
		// One of two who erase it at the same time decides again, and finds it gone.
		d.expect = append(d.expect, events.Expectation{Stream: events.LedgerStream, Revision: revision})
		if repeated.last > 0 { // nor is it copied meanwhile
			d.expect = append(d.expect, events.Expectation{Stream: rec.Header.Stream, Revision: repeated.last})
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

// copies are the events that repeat an event's payload.
type copies struct {
	list []events.Record
	// last is the revision up to which their stream was read, 0 if there can be none.
	last events.Revision
}

// of reads the copies of rec, or those that came since it read them last: the stream
// of a busy machine does not stand still.
func (c *copies) of(ctx context.Context, log events.Log, rec events.Record) error {
	repeats, there := repeating[rec.Header.Type]
	if !there {
		return nil
	}
	if c.last == 0 {
		c.last = rec.Header.Revision
	}
	for r, err := range log.ReadStream(ctx, rec.Header.Stream, c.last) {
		if err != nil {
			return err
		}
		c.last = r.Header.Revision
		if r.Erased {
			continue
		}
		if is, err := repeats(rec, r); err != nil {
			return err
		} else if is {
			c.list = append(c.list, r)
		}
	}
	if len(c.list) > maxCopies {
		return tooLarge("TOO_MANY_COPIES", len(c.list), maxCopies, "events repeat it: erase some of them first; at once")
	}
	return nil
}

// repeating tells, of kinds that later events of their stream repeat, whether r is one
// that repeats of.
var repeating = map[events.Kind]func(of, r events.Record) (bool, error){
	events.BlockPublished{}.Kind(): func(_, _ events.Record) (bool, error) { return true, nil },
	// Whatever is concluded in a task's stream begins with its command.
	events.TaskSubmitted{}.Kind(): func(_, r events.Record) (bool, error) {
		return r.Header.Type == events.ConclusionRecorded{}.Kind(), nil
	},
	events.MemoryRecorded{}.Kind(): func(of, r events.Record) (bool, error) {
		if r.Header.Type != (events.ConclusionRecorded{}).Kind() {
			return false, nil
		}
		e, err := events.DecodeAs[events.ConclusionRecorded](r)
		return err == nil && e.About != nil && e.About.RecordID == of.Header.ID, err
	},
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
