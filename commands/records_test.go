package commands_test

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
)

func keyed(actor, key, request string) commands.Caller {
	return commands.Caller{Actor: actor, Key: events.SumHash(actor, key), Request: events.SumHash(request)}
}

// The same key and request is answered with what was recorded then, whatever has
// happened since; another request is a conflict.
func TestKeysBindForEver(t *testing.T) {
	w := newWorld(t)
	w.people()
	cmd := commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(10)}
	c := keyed("root", "k1", "body")
	one := w.ok(w.RegisterActor(w.ctx(), c, cmd))
	yes := true
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "bo", Suspended: &yes}))
	two := w.ok(w.RegisterActor(w.ctx(), c, cmd))
	if !two.Duplicate || two.Secret != "" || !reflect.DeepEqual(one.Records, two.Records) {
		t.Errorf("got %+v", two)
	}
	w.refused("IDEMPOTENCY_MISMATCH", func() (commands.Result, error) {
		return w.RegisterActor(w.ctx(), keyed("root", "k1", "another body"), cmd)
	})
	// A recorded denial binds its key too.
	denied := keyed("ana", "k2", "body")
	ask := func() (commands.Result, error) {
		return w.SubmitTask(w.ctx(), denied, task([]string{"go"}, "m1"))
	}
	for _, r := range w.State().Authority().Rules {
		if r.Rule.Action == "task.submit.*" {
			w.ok(w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: r.ID}))
		}
	}
	first := w.refused("DENIED", ask)
	w.rule("task.submit.*", 0)
	again := w.refused("DENIED", ask)
	if first.Facts["gate_id"] != again.Facts["gate_id"] {
		t.Error("a repeated denial is another gate")
	}
}

// However many clients send one keyed command at once, it is recorded once.
func TestConcurrentRetries(t *testing.T) {
	w := newWorld(t)
	w.people()
	var ids sync.Mutex
	w.Ledger = commands.New(w.Log(), w.State(), commands.Random{
		ID: func() string {
			ids.Lock()
			defer ids.Unlock()
			w.ids++
			return fmt.Sprintf("00000000-0000-7000-9000-%012d", w.ids)
		},
		Bytes: func(b []byte) { clear(b) },
	})
	before := w.Log().Durable()
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			if _, err := w.SubmitTask(w.ctx(), keyed("ana", "k", "b"), task([]string{"go"}, "m1")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.Log().Durable() - before; n != 2 {
		t.Errorf("%d events were recorded, not 2", n)
	}
}

func ext(id, kind, stream, data string) commands.ExtEvent {
	return commands.ExtEvent{ID: id, Type: events.Kind(kind), Stream: events.Stream(stream), Body: events.Ext{Source: "/test", Data: jsontext.Value(data)}}
}

func TestAppendExt(t *testing.T) {
	w := newWorld(t)
	w.people()
	send := func(by string, list ...commands.ExtEvent) func() (commands.Result, error) {
		return func() (commands.Result, error) { return w.AppendExt(w.ctx(), as(by), list) }
	}
	one := w.ok(send("ana", ext("e1", "ext.note", "ext-a", `{"x":1}`))())
	same := w.ok(send("ana", ext("e1", "ext.note", "ext-a", ` {"x": 1}`))())
	if !same.Duplicate || same.Records[0].Header.Position != one.Records[0].Header.Position {
		t.Errorf("the same event again: %+v", same)
	}
	big := ext("big", "ext.note", "ext-a2", `{"n":9007199254740993}`) // has no canonical form
	w.ok(send("ana", big)())
	if again := w.ok(send("ana", big)()); !again.Duplicate {
		t.Error("the same event with a large number counts as another")
	}
	batch := w.ok(send("ana", ext("e1", "ext.note", "ext-a", `{"x":1}`), ext("e2", "ext.note", "ext-b", `{}`))())
	if len(batch.Records) != 2 || batch.Records[0].Header.ID != "e1" || batch.Records[1].Header.ID != "e2" {
		t.Errorf("got %s", kindsOf(batch))
	}
	rev := func(n events.Revision, e commands.ExtEvent) commands.ExtEvent { e.Expected = &n; return e }
	for _, c := range []struct {
		name, code string
		list       []commands.ExtEvent
		by         string
	}{
		{"another body", "EVENT_ID_MISMATCH", []commands.ExtEvent{ext("e1", "ext.note", "ext-a", `{"x":2}`)}, "ana"},
		{"another actor", "EVENT_ID_MISMATCH", []commands.ExtEvent{ext("e1", "ext.note", "ext-a", `{"x":1}`)}, "carl"},
		{"another stream", "EVENT_ID_MISMATCH", []commands.ExtEvent{ext("e1", "ext.note", "ext-b", `{"x":1}`)}, "ana"},
		{"a ledger kind", "KIND_RESERVED", []commands.ExtEvent{ext("e9", "rule.written", "ext-a", `{}`)}, "root"},
		{"a kind that is none", "KIND_UNKNOWN", []commands.ExtEvent{ext("e9", "note.taken", "ext-a", `{}`)}, "root"},
		{"a case twin of a kind", "KIND_UNKNOWN", []commands.ExtEvent{ext("e9", "Rule.Written", "ext-a", `{}`)}, "root"},
		{"a ledger stream", "STREAM_RESERVED", []commands.ExtEvent{ext("e9", "ext.note", "authority", `{}`)}, "root"},
		{"a task's stream", "STREAM_RESERVED", []commands.ExtEvent{ext("e9", "ext.note", "task-1", `{}`)}, "root"},
		{"no stream", "STREAM_RESERVED", []commands.ExtEvent{ext("e9", "ext.note", "ext-", `{}`)}, "root"},
		{"an id twice", "INVALID", []commands.ExtEvent{ext("e9", "ext.note", "ext-a", `{}`), ext("e9", "ext.note", "ext-a", `{}`)}, "ana"},
		{"an id with a space", "INVALID", []commands.ExtEvent{ext("e 9", "ext.note", "ext-a", `{}`)}, "ana"},
		{"a revision that is past", "REVISION_CONFLICT", []commands.ExtEvent{rev(0, ext("e9", "ext.note", "ext-a", `{}`))}, "ana"},
		{"a revision to come", "REVISION_CONFLICT", []commands.ExtEvent{rev(2, ext("e9", "ext.note", "ext-a", `{}`))}, "ana"},
		{"all or none", "REVISION_CONFLICT", []commands.ExtEvent{ext("e8", "ext.note", "ext-c", `{}`), rev(7, ext("e9", "ext.note", "ext-a", `{}`))}, "ana"},
		{"too large", "PAYLOAD_TOO_LARGE", []commands.ExtEvent{ext("e9", "ext.note", "ext-a", `"`+strings.Repeat("x", projections.DefaultSettings().PayloadBytes)+`"`)}, "ana"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.refused(c.code, send(c.by, c.list...))
			if c.code == "REVISION_CONFLICT" && r.Facts["actual"] != events.Revision(1) {
				t.Errorf("got %v", r.Facts)
			}
		})
	}
	w.ok(send("ana", rev(1, ext("e3", "ext.note", "ext-a", `{}`)), rev(1, ext("e4", "ext.note", "ext-a", `{}`)))())
	w.rule("ext.secret.*", 50)
	if got := kindsOf(w.ok(send("ana", ext("e5", "ext.secret.x", "ext-a", `{}`))())); got != "gate.decided approval.requested" {
		t.Errorf("got %s", got)
	}
}

func TestMemoryAndConclusions(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.derive("m1", "m1.agent", nil)
	tk := w.taskOf(w.submit("ana", "go", "vet", "./..."))
	w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 1, "vet: fault")))

	record := func(by, machine, from string) func() (commands.Result, error) {
		rec := events.MemoryRecord{Envelope: w.envelope(machine, 0, "ok"), Argv: []string{"go", "vet", "./..."}, Tags: []string{"nightly"}}
		return func() (commands.Result, error) {
			return w.RecordMemory(w.ctx(), as(by), commands.RecordMemory{Record: rec, ImportedFrom: from})
		}
	}
	w.refused("NOT_YOUR_MEMORY", record("ana", "m1", ""))
	own := w.ok(record("m1", "m1", "")())
	w.ok(record("m1.agent", "m1", "")())
	w.ok(record("ana", "laptop", "atuin")())

	conclude := func(by string, about *events.About, text, supersedes string) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.Conclude(w.ctx(), as(by), commands.Conclude{About: about, Text: text, Supersedes: supersedes})
		}
	}
	onTask := &events.About{TaskID: tk.ID}
	w.refused("MACHINE_MAY_NOT_CONCLUDE", conclude("m1", onTask, "fine", ""))
	w.refused("MACHINE_MAY_NOT_CONCLUDE", conclude("m1.agent", onTask, "fine", ""))
	w.refused("TASK_NOT_FOUND", conclude("ana", &events.About{TaskID: "nope"}, "fine", ""))
	w.refused("RECORD_NOT_FOUND", conclude("ana", &events.About{RecordID: "nope"}, "fine", ""))
	w.refused("INVALID", conclude("ana", &events.About{RecordID: "a", TaskID: "b"}, "fine", ""))
	w.refused("INVALID", conclude("ana", onTask, "  ", ""))
	w.refused("INVALID", conclude("ana", onTask, "fine", "nope"))
	c := w.ok(conclude("ana", onTask, "the linter is right", "")())
	if s := first[events.ConclusionRecorded](w, c).Subject; s == nil || *s.ExitCode != 1 || s.Argv[1] != "vet" {
		t.Errorf("got subject %+v", s)
	}
	w.ok(conclude("carl", onTask, "mended since", c.Records[0].Header.ID)())
	w.ok(conclude("carl", &events.About{RecordID: own.Records[0].Header.ID}, "passes on m1", "")())
	w.ok(conclude("carl", nil, "nobody has tried windows", "")())

	got := w.tried("go vet ./...")
	if len(got) != 2 || got[0].WhyMatched != sqlview.MatchedCommand {
		t.Fatalf("got %+v", got)
	}
	m1 := got[0]
	if m1.Machine != "m1" {
		m1 = got[1]
	}
	if m1.Runs != 3 || m1.Succeeded != 2 || m1.Failed != 1 || len(m1.Conclusions) != 3 {
		t.Errorf("got %+v", m1)
	}
	if got := w.tried("linter right"); len(got) != 1 || got[0].WhyMatched != sqlview.MatchedWords {
		t.Errorf("by conclusion: got %+v", got)
	}
	if got := w.tried("go build"); len(got) != 0 {
		t.Errorf("got %+v", got)
	}
	stdout, _, err := w.Output(w.ctx(), m1.Last)
	if err != nil || stdout.Tail == "" {
		t.Errorf("got %+v %v", stdout, err)
	}
}

// A record says what let its run begin, and nobody says "allowed" without a gate
// of theirs that allowed it there.
func TestRecordsNameTheirGate(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("task.submit.m1", 50)
	ask := func(actor, action string, approval bool) string {
		res := w.ok(w.AskGate(w.ctx(), as(actor), commands.AskGate{Action: action, Command: jsontext.Value(`{"argv":["ls"]}`), RequestApproval: approval}))
		return first[events.GateDecided](w, res).GateID
	}
	record := func(gate events.RunGate, id string) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.RecordMemory(w.ctx(), as("ana"), commands.RecordMemory{Record: events.MemoryRecord{
				Envelope: w.envelope("ana", 0, "x"), Argv: []string{"ls"}, Gate: gate, GateID: id,
			}})
		}
	}
	allowed, other, others, denied := ask("ana", "task.submit.ana", false), ask("ana", "ext.note", false), ask("carl", "task.submit.carl", false), ask("ana", "no.rule", false)
	w.ok(record("", "")())
	w.ok(record(events.GateOffline, "")())
	w.ok(record(events.GateAllowed, allowed)())
	for _, c := range []struct {
		gate events.RunGate
		id   string
	}{
		{events.GateAllowed, ""}, {events.GateAllowed, "nothing"}, {events.GateAllowed, other}, {events.GateAllowed, others}, {events.GateAllowed, denied},
		{events.GateOffline, allowed}, {"", allowed}, {"approved", allowed},
	} {
		w.refused("INVALID", record(c.gate, c.id))
	}

	// One that needed an approval is allowed once that is spent.
	w.rule("task.submit.ana", 50)
	res := w.ok(w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "task.submit.ana", Command: jsontext.Value(`{"argv":["ls"]}`), RequestApproval: true}))
	id, approval := first[events.GateDecided](w, res).GateID, first[events.ApprovalRequested](w, res).ApprovalID
	subject, err := w.Approval(w.ctx(), approval, 0)
	if err != nil {
		t.Fatal(err)
	}
	if c := subject.Commands(); len(c) != 1 || c[0].Machine != "ana" || !slices.Equal(c[0].Argv, []string{"ls"}) {
		t.Errorf("it asks to run %+v", c)
	}
	if got := w.tried("ls"); len(got) != 1 || got[0].Runs != 3 || got[0].Last.Gate != events.GateAllowed || got[0].Last.GateID != allowed {
		t.Errorf("tried before: %+v", got)
	}
	w.refused("INVALID", record(events.GateAllowed, id))
	w.ok(w.settle("carl", approval, events.Granted))
	w.refused("INVALID", record(events.GateAllowed, id))
	w.ok(w.SpendGate(w.ctx(), as("ana"), commands.SpendGate{GateID: id, Command: jsontext.Value(`{"argv":["ls"]}`)}))
	w.ok(record(events.GateAllowed, id)())
}

// tried asks the view of the world's log.
func (w *world) tried(q string) []sqlview.Tried {
	w.t.Helper()
	v, err := sqlview.Open(w.Log(), "", slog.New(slog.DiscardHandler))
	if err != nil {
		w.t.Fatal(err)
	}
	defer v.Close()
	if err := v.Wait(w.ctx(), w.Log().Durable()); err != nil {
		w.t.Fatal(err)
	}
	found, err := v.Tried(w.ctx(), sqlview.Query{Text: q, Limit: 10})
	if err != nil {
		w.t.Fatal(err)
	}
	return found.Answers
}
