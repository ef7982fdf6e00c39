package commands_test

import (
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
)

// The answer to a batch tells of all its events, those that were known before it
// too, and so does the answer to its repetition.
func TestBatchWithKnownEventsIsRepeated(t *testing.T) {
	w := newWorld(t)
	event := func(id, data string) commands.ExtEvent { return ext(id, "ext.note", "ext-notes", data) }
	w.ok(w.AppendExt(w.ctx(), as("root"), []commands.ExtEvent{event("b", "9007199254740993")}))
	caller := commands.Caller{Actor: "root", Key: events.SumHash("key"), Request: events.SumHash("request")}
	batch := []commands.ExtEvent{event("a", "1"), event("b", "9007199254740993"), event("c", "3")}
	first := w.ok(w.AppendExt(w.ctx(), caller, batch))
	if first.Duplicate || len(first.Records) != 3 {
		t.Fatalf("recorded %s, duplicate %t", kindsOf(first), first.Duplicate)
	}
	// Whatever the rules are by then.
	w.rule("ext.*", 100)
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "root", AddScopes: []string{"x"}}))
	w.rule("ext.*", 0, scope("nobody"))
	before := w.Log().Durable()
	for _, c := range []commands.Caller{caller, as("root")} {
		again := w.ok(w.AppendExt(w.ctx(), c, batch))
		if !again.Duplicate || len(again.Records) != 3 {
			t.Fatalf("repeated: %s, duplicate %t", kindsOf(again), again.Duplicate)
		}
		for i, r := range again.Records {
			if r.LeafHash != first.Records[i].LeafHash || r.Header.ID != batch[i].ID {
				t.Errorf("event %d of the repetition is %s at %d", i, r.Header.ID, r.Header.Position)
			}
		}
	}
	if after := w.Log().Durable(); after != before {
		t.Errorf("the repetition recorded %d events", after-before)
	}
}

// The same report without a key is answered with all of its append.
func TestRepeatedReportTellsOfTheSettlement(t *testing.T) {
	w := newWorld(t)
	w.people()
	submitted := w.taskOf(w.submit("ana", "ls"))
	machine := submitted.Legs[0].Machine
	n := w.claim(submitted, machine)
	e := w.envelope(machine, 0, "out")
	e.ElapsedMS = 1<<53 + 1 // no integer that RFC 8785 knows
	first := w.ok(w.report(submitted, machine, n, e))
	again := w.ok(w.report(submitted, machine, n, e))
	if !again.Duplicate || kindsOf(again) != kindsOf(first) {
		t.Errorf("first %s, then %s", kindsOf(first), kindsOf(again))
	}
}
