// Package evidence_test holds the two verifiers of evidence files, the product's and
// verify.py, to the same files.
package evidence_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/commands"
	"fleetledger/commands/evidence"
	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/events/seal"
	"fleetledger/testing/smallfleet"
)

// sealed is a log with its key, and the task that its evidence is asked for.
type sealed struct {
	log    *memlog.Log
	sealer *seal.Sealer
	ledger *commands.Ledger // nil of a forged one
	key    string
	task   string
}

// newLog makes a log in which a task of ana's waited for carl, was claimed twice and
// reported. A rule was written with leave of another, settings were changed. At its end
// the heads of its streams are rooted, and something else comes after that.
func newLog(t testing.TB) sealed {
	t.Helper()
	s := unrootedLog(t)
	s.root(t)
	if _, err := s.ledger.RegisterActor(t.Context(), smallfleet.As("root"), commands.RegisterActor{ID: "later", Kind: events.Human, AuthorityLevel: smallfleet.Level(20)}); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s sealed) root(t testing.TB) {
	t.Helper()
	if err := s.ledger.RootHeads(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// erase erases the payload of the nth event, from 0, of a kind.
func (s sealed) erase(t testing.TB, kind events.Kind, nth int) events.Position {
	t.Helper()
	records := smallfleet.Records(t, s.log)
	h := records[smallfleet.Find(t, records, kind, nth)].Header
	if _, err := s.ledger.ErasePayload(t.Context(), smallfleet.As("root"), commands.ErasePayload{EventID: h.ID, Reason: "leaked"}); err != nil {
		t.Fatal(err)
	}
	return h.Position
}

// unrootedLog is newLog before the root.
func unrootedLog(t testing.TB) sealed {
	t.Helper()
	ctx := t.Context()
	f := smallfleet.New(t)
	l, do, as, level, approval := f.Ledger, f.Do, smallfleet.As, smallfleet.Level, f.Asked
	for _, a := range []commands.RegisterActor{
		{ID: "ana", Kind: events.Human, AuthorityLevel: level(20)},
		{ID: "carl", Kind: events.Human, AuthorityLevel: level(60)},
		{ID: "m1", Kind: events.Machine, AuthorityLevel: level(5)},
		{ID: "m2", Kind: events.Machine, AuthorityLevel: level(5)},
	} {
		do(l.RegisterActor(ctx, as("root"), a))
	}
	rule := commands.WriteRule{Rule: events.Rule{Action: "task.submit.m1", MinLevel: level(50)}}
	do(l.WriteRule(ctx, as("carl"), rule))
	id := approval()
	do(l.SettleApproval(ctx, as("root"), commands.SettleApproval{ApprovalID: id, Outcome: events.Granted}))
	do(l.WriteRule(ctx, commands.Caller{Actor: "carl", ApprovalID: id}, rule))
	separate := true
	do(l.ChangeSettings(ctx, as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{SeparationOfDuties: &separate}}))

	do(l.SubmitTask(ctx, as("ana"), commands.SubmitTask{TaskCommand: events.TaskCommand{Argv: []string{"go", "vet"}, Targets: []string{"m1", "m2"}, Mode: events.Replicate, Attempts: 2}}))
	task := l.State().OpenTasks()[0].ID
	do(l.SettleApproval(ctx, as("carl"), commands.SettleApproval{ApprovalID: approval(), Outcome: events.Granted}))
	do(l.ClaimTask(ctx, as("m1"), commands.ClaimTask{TaskID: task, Machine: "m1"}))
	f.Now = f.Now.Add(l.State().Settings().Lease())
	if err := l.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	do(l.ClaimTask(ctx, as("m1"), commands.ClaimTask{TaskID: task, Machine: "m1"}))
	do(l.ClaimTask(ctx, as("m2"), commands.ClaimTask{TaskID: task, Machine: "m2"}))
	code := 0
	for i, m := range []string{"m1", "m2"} {
		e := events.Envelope{Outcome: events.Exited, ExitCode: &code, StartedAt: f.Now, EndedAt: f.Now, Machine: m,
			Stdout: events.Output{Bytes: 4, SHA256: events.SumHash("out"), Tail: "é\"\n"}, Stderr: events.Output{SHA256: events.SumHash("err")}}
		do(l.ReportAttempt(ctx, as(m), commands.ReportAttempt{TaskID: task, Attempt: 2 + i, Envelope: e}))
	}
	do(l.Conclude(ctx, as("ana"), commands.Conclude{About: &events.About{TaskID: task}, Text: "sound"}))
	do(l.RegisterActor(ctx, as("root"), commands.RegisterActor{ID: "late", Kind: events.Human, AuthorityLevel: level(20)}))
	s := seals(t, f.Memory(), task)
	s.ledger = l
	return s
}

// seals gives a log a key; the same each time.
func seals(t testing.TB, log *memlog.Log, task string) sealed {
	t.Helper()
	key := smallfleet.NewKey(t, "key")
	return sealed{log: log, sealer: smallfleet.NewSealer(t, log, nil, key), key: key.Verifier(), task: task}
}

// forged is the log as somebody who holds its key could have made it: sound in every
// hash, in it what change makes of the events.
func (s sealed) forged(t testing.TB, change func(r *events.Record, e events.Event) events.Event) sealed {
	t.Helper()
	return s.rewritten(t, func(r *events.Record) []byte {
		e, err := events.Decode(*r)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := events.Encode(change(r, e))
		if err != nil {
			t.Fatal(err)
		}
		return payload
	})
}

// rewritten is forged, of payloads as they are stored.
func (s sealed) rewritten(t testing.TB, change func(r *events.Record) []byte) sealed {
	t.Helper()
	var now time.Time
	log, err := memlog.New(memlog.Options{Fleet: "default", Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range smallfleet.Records(t, s.log) {
		if r.Header.Type == (events.HeadsRooted{}).Kind() {
			// Whoever holds the key roots the log as it is.
			root, err := events.DecodeAs[events.HeadsRooted](r)
			if err != nil {
				t.Fatal(err)
			}
			tree, err := seal.NewHeadsProver(log).Tree(t.Context(), root.At)
			if err != nil {
				t.Fatal(err)
			}
			root.Root = tree.Root()
			if r.Payload, err = events.Encode(root); err != nil {
				t.Fatal(err)
			}
		}
		payload := change(&r)
		now = r.Header.Time
		r.Header.Key, r.Header.Request = events.Hash{}, events.Hash{}
		if _, err := log.Append(t.Context(), events.Append{Drafts: []events.Draft{events.NewDraft(r.Header.Intent, r.Salt, payload)}}); err != nil {
			t.Fatal(err)
		}
	}
	return seals(t, log, s.task)
}

func (s sealed) export(t testing.TB) []byte {
	t.Helper()
	file, err := evidence.Export(t.Context(), s.log, s.sealer, seal.NewHeadsProver(s.log), s.task)
	if err != nil || file == nil {
		t.Fatalf("no evidence: %v", err)
	}
	return file
}

func verify(t testing.TB, file []byte, keys ...string) evidence.Report {
	t.Helper()
	r, err := evidence.Verify(file, nil, keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// line is any line of a file: its members, to be changed.
type line map[string]any

// edit changes a file by its lines; the first is the head.
func edit(t testing.TB, file []byte, change func(lines []line) []line) []byte {
	t.Helper()
	var lines []line
	for text := range bytes.Lines(file) {
		var l line
		if err := json.Unmarshal(text, &l); err != nil {
			t.Fatal(err)
		}
		if n, ok := l["events"].(float64); ok {
			l["events"] = int(n)
		}
		lines = append(lines, l)
	}
	var out []byte
	for _, l := range change(lines) {
		text, err := json.Marshal(l, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		out = append(append(out, text...), '\n')
	}
	return out
}

// header is that of an event's line.
func (l line) header(t testing.TB) events.Header {
	t.Helper()
	h, err := events.ParseHeader([]byte(l["leaf"].(string)))
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// find is the index of the nth line, from 0, of an event of this kind.
func find(t testing.TB, lines []line, kind events.Kind, nth int) int {
	t.Helper()
	for i, l := range lines[1:] {
		if l.header(t).Type == kind {
			if nth == 0 {
				return i + 1
			}
			nth--
		}
	}
	t.Fatalf("there is no %s", kind)
	return 0
}

func without(lines []line, i int) []line { return slices.Delete(lines, i, i+1) }
