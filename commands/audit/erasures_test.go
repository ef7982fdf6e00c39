package audit_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/testing/smallfleet"
)

// erasedFleet is a fleet of which some payloads were erased, and whose heads were
// rooted before and after.
func erasedFleet(t *testing.T) fleet {
	t.Helper()
	f := newFleet(t)
	ctx := context.Background()
	root := func() {
		t.Helper()
		if err := f.RootHeads(ctx); err != nil {
			t.Fatal(err)
		}
	}
	root()
	for _, kind := range []events.Kind{"conclusion.recorded", "task.submitted", "task.reported", "memory.recorded", "memory.consolidated", "section.revised", "block.accepted", "block.published", "ext.note"} {
		i := slices.IndexFunc(f.records, func(r events.Record) bool { return r.Header.Type == kind })
		if _, err := f.ErasePayload(ctx, commands.Caller{Actor: "root"}, commands.ErasePayload{EventID: f.records[i].Header.ID, Reason: "leaked"}); err != nil {
			t.Fatal(err)
		}
	}
	root()
	root() // nothing but a root was recorded since
	f.read()
	return f
}

// place makes a record with another payload of record i, sound in itself; what comes
// after it in its stream is chained to it.
func (f fleet) replaced(t *testing.T, i int, e events.Event) []events.Record {
	t.Helper()
	records := slices.Clone(f.records)
	payload, err := events.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	r := records[i]
	records[i] = events.NewDraft(r.Header.Intent, r.Salt, payload).Place(r.Header.Place)
	prev := records[i]
	for j := i + 1; j < len(records); j++ {
		if next := records[j]; next.Header.Stream == r.Header.Stream {
			place := next.Header.Place
			place.Prev = prev.LeafHash
			again := events.Draft{Intent: next.Header.Intent, Salt: next.Salt, Payload: next.Payload}.Place(place)
			again.Erased = next.Erased
			records[j], prev = again, again
		}
	}
	return records
}

func (f fleet) find(t *testing.T, kind events.Kind, nth int) int {
	t.Helper()
	return smallfleet.Find(t, f.records, kind, nth)
}

func TestErasedLogPasses(t *testing.T) {
	f := erasedFleet(t)
	whole := run(t, newFleet(t).records)
	report, err := audit.Run(context.Background(), seq(f.records), audit.Options{Live: f.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK || report.Erased != 9 || report.HeadsVerified != 2 || report.ProjectionsCompared == 0 {
		t.Errorf("got %+v", report)
	}
	// What is gone counts as erased and not as decided again; each erasure was decided.
	if report.DecisionsRederived >= whole.DecisionsRederived+9 {
		t.Errorf("%d decisions were made again, %d before 9 payloads were erased", report.DecisionsRederived, whole.DecisionsRederived)
	}
	if again := run(t, f.records); !again.OK || again.Erased != 9 {
		t.Errorf("without the ledger: %+v", again)
	}
}

// A payload that is gone without a word, one that is there although it was erased, an
// erasure of something else: each is named.
func TestForgedErasuresAreFound(t *testing.T) {
	f := erasedFleet(t)
	gone := func(records []events.Record, i int) []events.Record {
		records = slices.Clone(records)
		records[i].Payload, records[i].Salt, records[i].Erased = nil, [events.SaltBytes]byte{}, true
		return records
	}
	told := f.find(t, "payload.erased", 0)
	e, err := events.DecodeAs[events.PayloadErased](f.records[told])
	if err != nil {
		t.Fatal(err)
	}
	other, here := e, e
	other.EventID = "another"
	here.EventID, here.Position, here.Type = f.records[1].Header.ID, 2, "actor.registered"
	denied := e
	denied.Permit.Decision.Verdict = events.Deny
	section := f.find(t, "section.revised", 1)
	for _, c := range []struct {
		name    string
		records []events.Record
		kind    string
		at      events.Position
		part    string
	}{
		{"a payload gone", gone(f.records, section), audit.Payload, events.Position(section + 1), "no event says who erased it"},
		{"a gate's payload gone", gone(f.records, f.find(t, "gate.decided", 0)), audit.Payload, events.Position(f.find(t, "gate.decided", 0) + 1), "decisions rest on it"},
		{"another event erased", f.replaced(t, told, other), audit.Order, events.Position(told + 1), "where another event lies"},
		{"what is not erasable", f.replaced(t, told, here), audit.Payload, events.Position(told + 1), "it is there"},
		{"by somebody who may not", f.replaced(t, told, denied), audit.Decision, events.Position(told + 1), ""},
		{"by nobody", slices.Delete(slices.Clone(f.records), told, len(f.records)), audit.Payload, e.Position, "no event says who erased it"},
	} {
		report := run(t, c.records)
		if !slices.ContainsFunc(report.Findings, func(x audit.Finding) bool {
			return x.Kind == c.kind && x.Position == c.at && strings.Contains(x.Detail, c.part)
		}) {
			t.Errorf("%s: no %s at %d in %+v", c.name, c.kind, c.at, report.Findings)
		}
	}
}

// Every root is made again, and one that is not right is named.
func TestForgedHeadsAreFound(t *testing.T) {
	f := erasedFleet(t)
	first, second := f.find(t, "heads.rooted", 0), f.find(t, "heads.rooted", 1)
	e, err := events.DecodeAs[events.HeadsRooted](f.records[second])
	if err != nil {
		t.Fatal(err)
	}
	early, err := events.DecodeAs[events.HeadsRooted](f.records[first])
	if err != nil {
		t.Fatal(err)
	}
	change := func(of events.HeadsRooted, by func(*events.HeadsRooted)) events.HeadsRooted {
		by(&of)
		return of
	}
	for name, c := range map[string]struct {
		records []events.Record
		at      int
	}{
		"another root":         {f.replaced(t, second, change(e, func(h *events.HeadsRooted) { h.Root[0] ^= 1 })), second},
		"fewer streams":        {f.replaced(t, second, change(e, func(h *events.HeadsRooted) { h.Streams-- })), second},
		"another position":     {f.replaced(t, second, change(e, func(h *events.HeadsRooted) { h.At-- })), second},
		"a position to come":   {f.replaced(t, second, change(e, func(h *events.HeadsRooted) { h.At += 9 })), second},
		"its own position":     {f.replaced(t, second, change(e, func(h *events.HeadsRooted) { h.At = events.Position(second + 1) })), second},
		"before the last root": {f.replaced(t, second, change(early, func(h *events.HeadsRooted) { h.At-- })), second},
		"the first":            {f.replaced(t, first, change(early, func(h *events.HeadsRooted) { h.Root[0] ^= 1 })), first},
	} {
		report := run(t, c.records)
		if !slices.ContainsFunc(report.Findings, func(x audit.Finding) bool {
			return x.Kind == audit.Heads && x.Position == events.Position(c.at+1)
		}) {
			t.Errorf("%s: not found: %+v", name, report.Findings)
		}
	}
	forger := slices.Clone(f.records)
	intent := forger[second].Header.Intent
	intent.Actor = "root"
	forger[second] = events.NewDraft(intent, forger[second].Salt, forger[second].Payload).Place(forger[second].Header.Place)
	if report := run(t, forger); report.OK {
		t.Error("a root that the relay did not record was taken")
	}
}
