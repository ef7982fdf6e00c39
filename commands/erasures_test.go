package commands_test

import (
	"context"
	"errors"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/testing/smallfleet"
)

// reluctant is a log whose engine cannot erase, or cannot scrub just now.
type reluctant struct {
	events.Log
	cannotErase bool
	scrub       error
	// first, if there is one, is done before the next append.
	first func()
}

func (l *reluctant) Append(ctx context.Context, a events.Append) (events.Appended, error) {
	if l.cannotErase && len(a.Erase) > 0 {
		return events.Appended{}, events.ErrCannotErase
	}
	if do := l.first; do != nil {
		l.first = nil
		do()
	}
	return l.Log.Append(ctx, a)
}

func (l *reluctant) Scrub(ctx context.Context) error { return l.scrub }

func (w *world) ext(id string) {
	w.t.Helper()
	w.ok(w.AppendExt(w.ctx(), as("root"), []commands.ExtEvent{{ID: id, Type: "ext.note", Stream: "ext-a", Body: events.Ext{Source: "/t", Data: jsontext.Value(`1`)}}}))
}

// over is the same ledger over another log.
func (w *world) over(l *reluctant) *world {
	l.Log = w.Log()
	return &world{Fleet: &smallfleet.Fleet{Ledger: commands.New(l, w.State(), commands.Random{
		ID:    func() string { w.ids++; return "over-" + events.SumHash(string(rune(w.ids))).String()[:8] },
		Bytes: func(b []byte) { clear(b) },
	})}, t: w.t}
}

func TestEngineThatCannotErase(t *testing.T) {
	w := newWorld(t)
	w.ext("e")
	o := w.over(&reluctant{cannotErase: true})
	o.refused("ERASURE_UNSUPPORTED", func() (commands.Result, error) {
		return o.ErasePayload(o.ctx(), as("root"), commands.ErasePayload{EventID: "e", Reason: "x"})
	})
	if recs, err := w.Records(w.ctx(), w.Log().Durable(), w.Log().Durable()); err != nil || recs[0].Erased || recs[0].Header.ID != "e" {
		t.Errorf("it is not as it was: %+v %v", recs, err)
	}
}

// While files may still hold the payload the caller is not told that it is done, and
// asking again, with the same key, goes on.
func TestErasureIsDoneWhenScrubbed(t *testing.T) {
	w := newWorld(t)
	w.ext("e")
	busy := errors.New("the disk is busy")
	slow := &reluctant{scrub: busy}
	o := w.over(slow)
	caller := commands.Caller{Actor: "root", Key: events.SumHash("key"), Request: events.SumHash("request")}
	erase := func() (commands.Result, error) {
		return o.ErasePayload(o.ctx(), caller, commands.ErasePayload{EventID: "e", Reason: "x"})
	}
	if _, err := erase(); !errors.Is(err, busy) {
		t.Fatalf("it is not scrubbed, and the answer is %v", err)
	}
	recorded := w.Log().Durable()
	if _, err := erase(); !errors.Is(err, busy) {
		t.Fatalf("asked again: %v", err)
	}
	slow.scrub = nil
	r := w.ok(erase())
	if e := first[events.PayloadErased](w, r); !r.Duplicate || e.EventID != "e" || w.Log().Durable() != recorded {
		t.Errorf("got %+v, duplicate %t, the log went from %d to %d", e, r.Duplicate, recorded, w.Log().Durable())
	}
}

// A task's command and reports are needed until it is settled; what became of it is
// known afterwards, without them.
func TestErasedTask(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.ok(w.SubmitTask(w.ctx(), as("ana"), commands.SubmitTask{TaskCommand: events.TaskCommand{Argv: []string{"a", "secret"}, Targets: []string{"m1"}, Attempts: 3}}))
	task := w.State().OpenTasks()[0]
	code := 0
	report := func(attempt int) commands.Result {
		t.Helper()
		return w.ok(w.ReportAttempt(w.ctx(), as("m1"), commands.ReportAttempt{TaskID: task.ID, Attempt: attempt,
			Envelope: events.Envelope{Outcome: events.Exited, ExitCode: &code, StartedAt: w.Now, EndedAt: w.Now, Machine: "m1"}}))
	}
	claim := func() {
		t.Helper()
		w.ok(w.ClaimTask(w.ctx(), as("m1"), commands.ClaimTask{TaskID: task.ID, Machine: "m1"}))
	}
	claim()
	w.Now = w.Now.Add(w.State().Settings().Lease())
	if err := w.Sweep(w.ctx()); err != nil {
		t.Fatal(err)
	}
	claim()
	late := report(1).Records[0].Header.ID // of the attempt that lapsed, beside one that runs
	erase := func(id string) (commands.Result, error) {
		return w.ErasePayload(w.ctx(), as("root"), commands.ErasePayload{EventID: id, Reason: "leaked"})
	}
	submitted := w.eventOf(task.Position)
	for _, id := range []string{late, submitted} {
		w.refused("NOT_ERASABLE", func() (commands.Result, error) { return erase(id) })
	}
	report(2)
	for _, id := range []string{late, submitted} {
		w.ok(erase(id))
	}
	got, err := w.Task(w.ctx(), task.ID, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got.Status != projections.TaskSettled || got.Verdict != events.VerdictSucceeded || !got.CommandErased || !got.ReportErased || len(got.Command.Argv) != 0 {
		t.Errorf("got %+v", got)
	}
	// Which attempt the erased report was of cannot be told: there were two. The other
	// report is what it was.
	legs := got.Legs[0]
	if len(legs.Attempts) != 2 || legs.Attempts[0].Reported() || !legs.Attempts[1].Reported() || legs.Attempts[1].Envelope == nil || legs.Attempts[1].Late {
		t.Errorf("got %+v", legs)
	}
	w.ok(w.Conclude(w.ctx(), as("ana"), commands.Conclude{About: &events.About{TaskID: task.ID}, Text: "it ran"}))
}

// eventOf is the id of the event at a position.
func (w *world) eventOf(p events.Position) string {
	w.t.Helper()
	recs, err := w.Records(w.ctx(), p, p)
	if err != nil {
		w.t.Fatal(err)
	}
	return recs[0].Header.ID
}

// A conclusion begins with the command that it is about. One that is being written while
// that command is erased does not bring it back.
func TestConclusionMeetsErasure(t *testing.T) {
	w := newWorld(t)
	w.people()
	code := 0
	ran := events.Envelope{Outcome: events.Exited, ExitCode: &code, StartedAt: w.Now, EndedAt: w.Now, Machine: "m1"}
	record := w.ok(w.RecordMemory(w.ctx(), as("m1"), commands.RecordMemory{Record: events.MemoryRecord{Argv: []string{"a", "leaked"}, Envelope: ran}})).Records[0].Header.ID
	w.ok(w.SubmitTask(w.ctx(), as("ana"), commands.SubmitTask{TaskCommand: events.TaskCommand{Argv: []string{"a", "leaked"}, Targets: []string{"m1"}}}))
	task := w.State().OpenTasks()[0]
	w.ok(w.ClaimTask(w.ctx(), as("m1"), commands.ClaimTask{TaskID: task.ID, Machine: "m1"}))
	w.ok(w.ReportAttempt(w.ctx(), as("m1"), commands.ReportAttempt{TaskID: task.ID, Attempt: 1, Envelope: ran}))
	slow := &reluctant{}
	o := w.over(slow)
	meets := func(erased string, about events.About) (commands.Result, error) {
		slow.first = func() {
			w.ok(w.ErasePayload(w.ctx(), as("root"), commands.ErasePayload{EventID: erased, Reason: "leaked"}))
		}
		return o.Conclude(o.ctx(), as("ana"), commands.Conclude{About: &about, Text: "it ran"})
	}
	_, err := meets(record, events.About{RecordID: record})
	if r, ok := errors.AsType[*commands.Refusal](err); !ok || r.Code != "RECORD_NOT_FOUND" {
		t.Errorf("got %v", err)
	}
	e := first[events.ConclusionRecorded](w, w.ok(meets(w.eventOf(task.Position), events.About{TaskID: task.ID})))
	if e.Subject == nil || len(e.Subject.Argv) != 0 || *e.Subject.ExitCode != 0 {
		t.Errorf("got %+v", e.Subject)
	}
}
