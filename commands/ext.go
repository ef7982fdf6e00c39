package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/gate"
	"fleetledger/events"
)

// ExtEvent is an agent's own event.
type ExtEvent struct {
	ID          string           `json:"id"`
	Type        events.Kind      `json:"type"`
	Stream      events.Stream    `json:"stream"`
	Expected    *events.Revision `json:"expected,omitzero"`
	Correlation string           `json:"correlation,omitzero"`
	Causation   string           `json:"causation,omitzero"`
	Body        events.Ext       `json:"body"`
}

// ExtStreamPrefix starts the streams that agents' own events may go into.
const ExtStreamPrefix = "ext-"

// AppendExt adds agents' own events, all or none. An event whose id is in the log
// already, from the same actor and with the same content, counts as recorded: its
// record is the earlier one. Records come in the order of the events. Refusals:
// KIND_RESERVED, STREAM_RESERVED, KIND_UNKNOWN, INVALID, SECRET_IN_EVENT,
// PAYLOAD_TOO_LARGE, EVENT_ID_MISMATCH, REVISION_CONFLICT, and what gates answer.
func (l *Ledger) AppendExt(ctx context.Context, caller Caller, list []ExtEvent) (Result, error) {
	if err := checkExt(list); err != nil {
		return Result{}, err
	}
	if err := noSecretsInExt(list); err != nil {
		return Result{}, err
	}
	var earlier []events.Record // by index, zero for new ones; nil if all are
	// Mostly all are new, and the log itself says so when it takes them: only what
	// it does not take, or a gate would not allow, is looked up.
	look := caller.ApprovalID != ""
	r, err := l.execute(ctx, caller, func(v view) (decided, error) {
		if !look {
			look = true
			if d, err := decideExt(v, list, earlier); err == nil && !d.denial && !d.asks {
				return d, nil
			}
		}
		var err error
		if earlier, err = l.known(ctx, caller.Actor, list); err != nil {
			return decided{}, err
		}
		return decideExt(v, list, earlier)
	})
	if err != nil {
		return r, err
	}
	if _, pending := r.Has(events.ApprovalRequested{}.Kind()); pending {
		return r, nil
	}
	if r.Duplicate {
		// The append that the key is bound to holds those events that were new
		// then. By now all are known.
		r.Records, err = l.known(ctx, caller.Actor, list)
		return r, err
	}
	if earlier == nil {
		return r, nil
	}
	all := Result{Duplicate: len(r.Records) == 0}
	written := r.Records
	for _, rec := range earlier {
		if rec.Header.Position == 0 {
			rec, written = written[0], written[1:]
		}
		all.Records = append(all.Records, rec)
	}
	all.Records = append(all.Records, written...) // a spent approval
	return all, nil
}

func decideExt(v view, list []ExtEvent, earlier []events.Record) (decided, error) {
	fresh := list
	if earlier != nil {
		fresh = nil
		for i := range list {
			if earlier[i].Header.Position == 0 {
				fresh = append(fresh, list[i])
			}
		}
	}
	var actions []string
	var expect map[events.Stream]events.Revision
	for i := range fresh {
		e := &fresh[i]
		if !slices.Contains(actions, string(e.Type)) {
			actions = append(actions, string(e.Type))
		}
		if e.Expected != nil {
			if expect == nil {
				expect = map[events.Stream]events.Revision{}
			}
			expect[e.Stream] = *e.Expected // all of one stream agree
		}
	}
	if len(fresh) == 0 {
		return decided{}, nil
	}
	var failed error
	d, err := v.gated(actions, named("events.append", shownList(fresh)), func(permits []events.Permit, d *decided) {
		encoded := make([]jsontext.Value, len(permits))
		for i, p := range permits {
			if encoded[i], failed = v.encodedPermit(p); failed != nil {
				return
			}
		}
		d.changes = make([]change, 0, len(fresh)+1) // a spent approval may follow
		for i := range fresh {
			e := &fresh[i]
			d.changes = append(d.changes, change{stream: e.Stream, id: e.ID, event: &e.Body, kind: e.Type, correlation: e.Correlation, causation: e.Causation,
				permit: encoded[slices.Index(actions, string(e.Type))]})
		}
		for s, r := range expect {
			d.expect = append(d.expect, events.Expectation{Stream: s, Revision: r})
		}
	})
	return d, errors.Join(err, failed)
}

func (v view) encodedPermit(p events.Permit) (jsontext.Value, error) {
	if p.ApprovalID != "" {
		return p.Encode()
	}
	return v.list.permit(p.Decision.Action, p.Decision.Actor)
}

// shownEvent is an event as an approver sees it, and as an approval is bound to it.
type shownEvent struct {
	ID          string           `json:"id"`
	Type        events.Kind      `json:"type"`
	Stream      events.Stream    `json:"stream"`
	Expected    *events.Revision `json:"expected,omitzero"`
	Correlation string           `json:"correlation,omitzero"`
	Causation   string           `json:"causation,omitzero"`

	Source          string                    `json:"source"`
	Time            string                    `json:"time,omitzero"`
	DataContentType string                    `json:"datacontenttype,omitzero"`
	DataSchema      string                    `json:"dataschema,omitzero"`
	Data            jsontext.Value            `json:"data,omitzero"`
	DataBase64      string                    `json:"data_base64,omitzero"`
	Extensions      map[string]jsontext.Value `json:"extensions,omitzero"`
}

// shownList encodes as the shownEvents of a list; mostly nobody asks for them.
type shownList []ExtEvent

// MarshalJSONTo implements json.MarshalerTo.
func (l shownList) MarshalJSONTo(enc *jsontext.Encoder) error {
	return json.MarshalEncode(enc, shown(l))
}

func shown(list []ExtEvent) []shownEvent {
	out := make([]shownEvent, len(list))
	for i, e := range list {
		out[i] = shownEvent{
			e.ID, e.Type, e.Stream, e.Expected, e.Correlation, e.Causation, e.Body.Source, e.Body.Time, e.Body.DataContentType,
			e.Body.DataSchema, e.Body.Data, e.Body.DataBase64, e.Body.Extensions,
		}
	}
	return out
}

func checkExt(list []ExtEvent) error {
	var bad []events.Problem
	ids := make(map[string]int, len(list))
	expects := map[events.Stream]int{}
	for i := range list {
		e := &list[i]
		at := func(name string) string {
			if len(list) == 1 {
				return "/" + name
			}
			return fmt.Sprintf("/%d/%s", i, name)
		}
		switch {
		case events.Known(e.Type):
			return refuse(Forbidden, "KIND_RESERVED", "%s is one of the ledger's own kinds: it is recorded by its command, never appended", e.Type).With("kind", e.Type)
		case !e.Type.IsExt() || !gate.ValidAction(string(e.Type)):
			bad = append(bad, problem(at("type"), "KIND_UNKNOWN", "%q is no kind that can be appended: an agent's own kinds start with %q", e.Type, events.ExtPrefix))
		case !strings.HasPrefix(string(e.Stream), ExtStreamPrefix) || len(e.Stream) == len(ExtStreamPrefix):
			return refuse(Forbidden, "STREAM_RESERVED", "%q is not a stream of agents: subject must start with %q", e.Stream, ExtStreamPrefix).With("stream", e.Stream)
		}
		for _, f := range []struct{ name, value string }{
			{"id", e.ID}, {"subject", string(e.Stream)}, {"type", string(e.Type)}, {"correlationid", e.Correlation}, {"causationid", e.Causation},
		} {
			if f.value == "" && (f.name == "correlationid" || f.name == "causationid") {
				continue
			}
			if err := events.CheckName(f.name, f.value); err != nil {
				bad = append(bad, problem(at(f.name), "INVALID_NAME", "%v", err))
			}
		}
		if len(list) == 1 {
			break
		}
		if j, taken := ids[e.ID]; taken {
			bad = append(bad, problem(at("id"), "DUPLICATE", "event %d of the batch has the same id", j))
		}
		ids[e.ID] = i
		if e.Expected == nil {
			continue
		}
		if j, seen := expects[e.Stream]; seen && *list[j].Expected != *e.Expected {
			bad = append(bad, problem(at("expectedrevision"), "CONTRADICTION", "event %d of the batch expects revision %d of the same stream: name the revision before the batch", j, *list[j].Expected))
		} else if !seen {
			expects[e.Stream] = i
		}
	}
	if len(bad) > 0 {
		if r := refuse(Impossible, "INVALID", "the events have values that cannot be").With("problems", bad); bad[0].Code != "KIND_UNKNOWN" {
			return r
		}
		return refuse(Impossible, "KIND_UNKNOWN", "%s", bad[0].Detail).With("problems", bad)
	}
	return nil
}

// known returns the records of those events that are in the log already.
func (l *Ledger) known(ctx context.Context, actor string, list []ExtEvent) ([]events.Record, error) {
	earlier := make([]events.Record, len(list))
	for i, e := range list {
		pos, err := l.log.FindID(ctx, e.ID)
		if err != nil {
			return nil, err
		}
		if pos == 0 {
			continue
		}
		recs, err := l.Records(ctx, pos, pos)
		if err != nil {
			return nil, err
		}
		if earlier[i] = recs[0]; !sameExt(recs[0], actor, e) {
			return nil, refuse(Conflict, "EVENT_ID_MISMATCH", "event id %s is taken, at position %d, by another event", e.ID, pos).With("position", pos)
		}
	}
	return earlier, nil
}

// sameExt reports whether rec is what recording e for the actor would give, but
// for the gate's decision. Of an erased event only the header can be compared.
func sameExt(rec events.Record, actor string, e ExtEvent) bool {
	h := rec.Header
	if h.Actor != actor || h.Type != e.Type || h.Stream != e.Stream || h.Correlation != e.Correlation || h.Causation != e.Causation {
		return false
	}
	if rec.Erased {
		return true
	}
	body, err := events.DecodeAs[events.Ext](rec)
	if err != nil {
		return false
	}
	body.Permit = e.Body.Permit
	return sameJSON(body, e.Body)
}
