package sqlview

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/projections"
)

// shelf is a log with a view, into which events are put as they are.
type shelf struct {
	t    testing.TB
	log  events.Log
	view *View
	ids  int
}

func newShelf(t testing.TB) *shelf {
	t.Helper()
	log, err := memlog.New(memlog.Options{Fleet: "default", Fold: anything{}, Now: func() time.Time { return time.Date(2026, 6, 1, 0, 0, 0, 0, time.UTC) }})
	if err != nil {
		t.Fatal(err)
	}
	v, err := Open(log, "", slog.New(slog.NewTextHandler(io.Discard, nil)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Error(err)
		}
	})
	return &shelf{t: t, log: log, view: v}
}

// anything is a fold that takes everything.
type anything struct{}

func (anything) Stage([]events.Record) (func(), error) { return func() {}, nil }

func (anything) Unstage() {}

func (s *shelf) put(stream events.Stream, actor string, e events.Event) events.Header {
	s.t.Helper()
	payload, err := events.Encode(e)
	if err != nil {
		s.t.Fatal(err)
	}
	s.ids++
	n := events.Intent{ID: fmt.Sprint("e", s.ids), Stream: stream, Type: e.Kind(), Schema: events.Schema, Actor: actor}
	a, err := s.log.Append(context.Background(), events.Append{Drafts: []events.Draft{events.NewDraft(n, [events.SaltBytes]byte{}, payload)}})
	if err != nil {
		s.t.Fatal(err)
	}
	return a.Records[0].Header
}

// ran puts a run of a command, on a day of January; exit code 1 if it failed.
func (s *shelf) ran(machine, command string, day, code int) events.Header {
	at := time.Date(2026, 1, day, 12, 0, 0, 0, time.UTC)
	return s.put(events.MachineStream(machine), "ana", events.MemoryRecorded{Record: events.MemoryRecord{
		Argv: strings.Fields(command), Envelope: events.Envelope{Machine: machine, Outcome: events.Exited, ExitCode: &code, StartedAt: at, EndedAt: at},
	}})
}

func (s *shelf) caughtUp() context.Context {
	s.t.Helper()
	if err := s.view.Wait(context.Background(), s.log.Durable()); err != nil {
		s.t.Fatal(err)
	}
	return context.Background()
}

// runs lists the runs that a reader sees, by their ids, newest first.
func (s *shelf) runs(reader string, at events.Position, f RunFilter) string {
	s.t.Helper()
	f.Forgetful = reader
	list, _, err := s.view.Runs(s.caughtUp(), projections.Page{At: at, Limit: 100}, f)
	if err != nil {
		s.t.Fatal(err)
	}
	var ids []string
	for _, r := range list {
		ids = append(ids, r.RecordID)
	}
	return strings.Join(ids, " ")
}

// tried lists what a reader is told was tried: command, runs and failures.
func (s *shelf) tried(reader, text string) string {
	s.t.Helper()
	found, err := s.view.Tried(s.caughtUp(), Query{Text: text, Forgetful: reader, Limit: 100})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, a := range found.Answers {
		out = append(out, fmt.Sprintf("%s on %s %d/%d last %s", a.Command, a.Machine, a.Failed, a.Runs, a.Last.RecordID))
	}
	for _, c := range found.InPlace {
		out = append(out, "in place: "+c.Text)
	}
	return strings.Join(out, "; ")
}

func TestForgetting(t *testing.T) {
	s := newShelf(t)
	a := s.ran("m1", "make test", 1, 1)
	b := s.ran("m1", "make test", 2, 0)
	c := s.ran("m1", "make deploy", 3, 0)
	d := s.ran("m2", "make test", 4, 1)
	all := strings.Join([]string{d.ID, c.ID, b.ID, a.ID}, " ")
	before := s.log.Durable()
	if got := s.runs("ana", before, RunFilter{}); got != all {
		t.Fatalf("got %s", got)
	}

	// One's own forgetting is one's own; everybody's is everybody's.
	mine := s.put("machine-m1", "ana", events.MemoryConsolidated{Text: "enough", Records: []string{a.ID}, Forgets: &events.Forgetting{Cited: true}})
	for reader, want := range map[string]string{"ana": d.ID + " " + c.ID + " " + b.ID, "bo": all, "": all} {
		if got := s.runs(reader, s.log.Durable(), RunFilter{}); got != want {
			t.Errorf("%s sees %s, not %s", reader, got, want)
		}
	}
	if got := s.runs("ana", before, RunFilter{}); got != all {
		t.Errorf("before it was forgotten, ana saw %s", got)
	}
	if got := s.tried("ana", "make test"); got != "make test on m2 1/1 last "+d.ID+"; make test on m1 0/1 last "+b.ID {
		t.Errorf("got %s", got)
	}
	if got := s.tried("bo", "make test"); got != "make test on m2 1/1 last "+d.ID+"; make test on m1 1/2 last "+b.ID {
		t.Errorf("got %s", got)
	}

	// By machine, command and time; only what is here by then.
	day := time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC)
	old := s.put("machine-m1", "bo", events.MemoryConsolidated{Text: "old", Records: []string{}, Forgets: &events.Forgetting{Machine: "m1", Command: "make  test", Before: &day}})
	e := s.ran("m1", "make test", 1, 1)
	if got := s.runs("bo", s.log.Durable(), RunFilter{Machine: "m1"}); got != e.ID+" "+c.ID+" "+b.ID {
		t.Errorf("bo sees %s", got)
	}
	if got := s.runs("bo", s.log.Durable(), RunFilter{Command: "make test"}); got != e.ID+" "+d.ID+" "+b.ID {
		t.Errorf("bo sees %s", got)
	}

	// A whole series: what it amounts to stands in its place.
	s.put("machine-m1", "carl", events.MemoryConsolidated{Text: "deploys work", Records: []string{c.ID}, Forgets: &events.Forgetting{Cited: true, ForAll: true}})
	for reader, want := range map[string]string{"bo": "in place: deploys work", "dora": "in place: deploys work", "": "make deploy on m1 0/1 last " + c.ID} {
		if got := s.tried(reader, "make deploy"); got != want {
			t.Errorf("%s is told %s", reader, got)
		}
	}
	if got := s.tried("dora", ""); got != "make test on m2 1/1 last "+d.ID+"; make test on m1 2/3 last "+b.ID+"; in place: deploys work" {
		t.Errorf("got %s", got)
	}
	found, err := s.view.Tried(s.caughtUp(), Query{Text: "make deploy", Limit: 10})
	if err != nil || len(found.Answers[0].Consolidations) != 1 || found.Answers[0].Consolidations[0].Records[0] != c.ID {
		t.Errorf("got %+v, %v", found, err)
	}
	on, err := s.view.ConsolidationsOn(s.caughtUp(), a.Position, s.log.Durable())
	if err != nil || len(on) != 1 || on[0].ID != mine.ID || !on[0].Forgets.Cited {
		t.Errorf("got %+v, %v", on, err)
	}

	// Recalled it is shown again, from then on.
	forgotten := s.log.Durable()
	s.put("machine-m1", "ana", events.MemoryConsolidated{Text: "again", Records: []string{}, Recalls: mine.ID})
	s.put("machine-m1", "bo", events.MemoryConsolidated{Text: "again", Records: []string{}, Recalls: old.ID})
	if got := s.runs("ana", s.log.Durable(), RunFilter{Machine: "m1"}); got != strings.Join([]string{e.ID, b.ID, a.ID}, " ") {
		t.Errorf("ana sees %s", got)
	}
	if got := s.runs("bo", s.log.Durable(), RunFilter{Machine: "m1"}); got != strings.Join([]string{e.ID, b.ID, a.ID}, " ") {
		t.Errorf("bo sees %s", got)
	}
	if got := s.runs("ana", forgotten, RunFilter{Machine: "m1"}); got != e.ID+" "+b.ID {
		t.Errorf("before, ana saw %s", got)
	}

	for f, want := range map[ConsolidationFilter]string{
		{}:                                "again again deploys work old enough",
		{Machine: "m1"}:                   "again again deploys work old enough",
		{Machine: "m2"}:                   "",
		{Record: c.ID}:                    "deploys work",
		{Machine: "m2", Record: c.ID}:     "",
		{Machine: "m1", Record: "nobody"}: "",
	} {
		list, more, err := s.view.Consolidations(s.caughtUp(), projections.Page{At: s.log.Durable(), Limit: 10}, f)
		var texts []string
		for _, c := range list {
			texts = append(texts, c.Text)
		}
		if err != nil || more || strings.Join(texts, " ") != want {
			t.Errorf("%+v: got %v, %t, %v", f, texts, more, err)
		}
	}
	if list, more, err := s.view.Consolidations(s.caughtUp(), projections.Page{At: s.log.Durable(), Limit: 2, After: old.Position}, ConsolidationFilter{}); err != nil || more || len(list) != 1 || list[0].ID != mine.ID {
		t.Errorf("got %+v, %t, %v", list, more, err)
	}
}

// Whatever is run, forgotten and recalled, each reader sees at each position what a
// plain look at the events says.
func TestForgettingAgainstThePlainWay(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelf(t)
		type run struct {
			events.Header
			machine, command string
			day              int
		}
		type forgetting struct {
			events.MemoryConsolidated
			events.Header
			recalled events.Position
		}
		var runs []run
		var forgotten []*forgetting
		readers := []string{"ana", "bo"}
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			reader := rapid.SampledFrom(readers).Draw(rt, "reader")
			switch what := rapid.IntRange(0, 9).Draw(rt, "what"); {
			case what < 5 || len(runs) == 0:
				r := run{machine: rapid.SampledFrom([]string{"m1", "m2"}).Draw(rt, "machine"), command: rapid.SampledFrom([]string{"make a", "make b"}).Draw(rt, "command"), day: rapid.IntRange(1, 5).Draw(rt, "day")}
				r.Header = s.ran(r.machine, r.command, r.day, 0)
				runs = append(runs, r)
			case what < 8:
				e := events.MemoryConsolidated{Text: "x", Records: []string{}, Forgets: &events.Forgetting{ForAll: rapid.Bool().Draw(rt, "for all")}}
				if e.Forgets.Cited = rapid.Bool().Draw(rt, "cited"); e.Forgets.Cited {
					e.Records = append(e.Records, rapid.SampledFrom(runs).Draw(rt, "record").ID)
				}
				if !e.Forgets.Cited || rapid.Bool().Draw(rt, "machine too") {
					e.Forgets.Machine = rapid.SampledFrom([]string{"m1", "m2"}).Draw(rt, "machine")
					e.Forgets.Command = rapid.SampledFrom([]string{"", "make a"}).Draw(rt, "command")
					if day := rapid.IntRange(0, 5).Draw(rt, "before"); day > 0 {
						at := time.Date(2026, 1, day, 12, 0, 0, 0, time.UTC)
						e.Forgets.Before = &at
					}
				}
				forgotten = append(forgotten, &forgetting{e, s.put("machine-m1", reader, e), 0})
			case len(forgotten) > 0:
				f := rapid.SampledFrom(forgotten).Draw(rt, "recalled")
				h := s.put("machine-m1", f.Actor, events.MemoryConsolidated{Text: "x", Records: []string{}, Recalls: f.ID})
				if f.recalled == 0 {
					f.recalled = h.Position
				}
			}
		}
		hides := func(f *forgetting, r run, reader string, at events.Position) bool {
			g := f.Forgets
			if f.Position > at || f.recalled != 0 && f.recalled <= at || !g.ForAll && f.Actor != reader || r.Position > f.Position {
				return false
			}
			ended := time.Date(2026, 1, r.day, 12, 0, 0, 0, time.UTC)
			return g.Cited && slices.Contains(f.Records, r.ID) ||
				g.Machine == r.machine && (g.Command == "" || g.Command == r.command) && (g.Before == nil || ended.Before(*g.Before))
		}
		for _, reader := range append(readers, "dora") {
			for _, at := range []events.Position{s.log.Durable(), events.Position(rapid.IntRange(1, int(s.log.Durable())).Draw(rt, "at"))} {
				for _, filter := range []RunFilter{{}, {Machine: "m1"}, {Command: "make a"}, {Machine: "m2", Command: "make b"}} {
					var want []string
					for _, r := range slices.Backward(runs) {
						if r.Position <= at && (filter.Machine == "" || filter.Machine == r.machine) && (filter.Command == "" || filter.Command == r.command) &&
							!slices.ContainsFunc(forgotten, func(f *forgetting) bool { return hides(f, r, reader, at) }) {
							want = append(want, r.ID)
						}
					}
					if got := s.runs(reader, at, filter); got != strings.Join(want, " ") {
						rt.Fatalf("%s at %d sees %s, not %v, of %+v", reader, at, got, want, filter)
					}
				}
			}
			counted := map[string]int{}
			for _, r := range runs {
				if !slices.ContainsFunc(forgotten, func(f *forgetting) bool { return hides(f, r, reader, s.log.Durable()) }) {
					counted[r.command+" "+r.machine]++
				}
			}
			for _, text := range []string{"", "make a", "make"} {
				found, err := s.view.Tried(s.caughtUp(), Query{Text: text, Forgetful: reader, Limit: 100})
				if err != nil {
					rt.Fatal(err)
				}
				n := 0
				for _, a := range found.Answers {
					if n++; a.Runs != counted[a.Command+" "+a.Machine] || a.Succeeded != a.Runs {
						rt.Fatalf("%s asking %q is told of %d runs of %s on %s, not %d", reader, text, a.Runs, a.Command, a.Machine, counted[a.Command+" "+a.Machine])
					}
				}
				want := 0
				for name := range counted {
					if strings.Contains(name, text) {
						want++
					}
				}
				if n != want {
					rt.Fatalf("%s asking %q is given %d answers, not %d", reader, text, n, want)
				}
			}
		}
	})
}

func TestBlocksAreListed(t *testing.T) {
	s := newShelf(t)
	publish := func(by string, parents []events.Hash, text string) events.BlockPublished {
		e := events.BlockPublished{Fields: map[string]string{"focus": text}, Parents: parents, Ancestors: parents}
		e.Hash = events.BlockHash(e.Fields, e.Parents)
		s.put(events.BlockStream(e.Hash), by, e)
		return e
	}
	a := publish("ana", []events.Hash{}, "a")
	b := publish("bo", []events.Hash{a.Hash}, "b")
	c := publish("ana", []events.Hash{a.Hash}, "c")
	s.put(events.BlockStream(a.Hash), "bo", events.BlockAccepted{Hash: a.Hash, Stored: a.Hash, Fields: a.Fields, Own: []events.Hash{}})
	s.put(events.BlockStream(b.Hash), "bo", events.BlockAccepted{Hash: b.Hash, Fields: map[string]string{}, Own: []events.Hash{}})
	for f, want := range map[BlockFilter]string{
		{}:                                      "c b a",
		{PublishedBy: "ana"}:                    "c a",
		{AcceptedBy: "bo"}:                      "a",
		{AcceptedBy: "bo", PublishedBy: "bo"}:   "",
		{Parent: a.Hash}:                        "c b",
		{Parent: a.Hash, PublishedBy: "bo"}:     "b",
		{Parent: c.Hash}:                        "",
		{AcceptedBy: "ana", Parent: a.Hash}:     "",
		{PublishedBy: "nobody", Parent: a.Hash}: "",
	} {
		list, more, err := s.view.Blocks(s.caughtUp(), projections.Page{At: s.log.Durable(), Limit: 10}, f)
		var got []string
		for _, b := range list {
			got = append(got, b.Fields["focus"])
		}
		if err != nil || more || strings.Join(got, " ") != want {
			t.Errorf("%+v: got %v, %t, %v", f, got, more, err)
		}
	}
	list, more, err := s.view.Blocks(s.caughtUp(), projections.Page{At: s.log.Durable(), Limit: 1, After: 3}, BlockFilter{})
	if err != nil || !more || list[0].Hash != b.Hash || list[0].Parents[0] != a.Hash || list[0].By != "bo" {
		t.Errorf("got %+v, %t, %v", list, more, err)
	}
	if list, _, err := s.view.Blocks(s.caughtUp(), projections.Page{At: 1, Limit: 10}, BlockFilter{}); err != nil || len(list) != 1 {
		t.Errorf("got %+v, %v", list, err)
	}
	if list, _, err := s.view.Blocks(s.caughtUp(), projections.Page{At: 3, Limit: 10}, BlockFilter{AcceptedBy: "bo"}); err != nil || len(list) != 0 {
		t.Errorf("before it was accepted: got %+v, %v", list, err)
	}
}

// A conclusion says what stands in its place, as of the position asked about.
func TestSuperseded(t *testing.T) {
	s := newShelf(t)
	first := s.put("collective", "ana", events.ConclusionRecorded{Text: "flaky"})
	second := s.put("collective", "bo", events.ConclusionRecorded{Text: "mended", Supersedes: first.ID})
	third := s.put("collective", "bo", events.ConclusionRecorded{Text: "gone", Supersedes: first.ID})
	for at, want := range map[events.Position]string{1: "", 2: second.ID, 3: third.ID} {
		list, _, err := s.view.Conclusions(s.caughtUp(), projections.Page{At: at, Limit: 10}, "")
		if err != nil || list[len(list)-1].ID != first.ID || list[len(list)-1].SupersededBy != want {
			t.Errorf("at %d: %+v, %v", at, list, err)
		}
	}
}

// What only a forgotten run said, its tags and what went wrong in it, is told with none of
// the runs that are left, and finds none.
func TestForgottenWords(t *testing.T) {
	l := newLedger(t)
	says := func(tag, stderr string) func(*events.MemoryRecord) {
		return func(r *events.MemoryRecord) { r.Tags, r.Stderr.Tail = []string{tag, "both"}, stderr }
	}
	l.ran(1, []string{"make", "disk"}, says("kept", "error: out of memory\n"), in(`D:\Kept`))
	l.ran(0, []string{"make"}, says("plain", ""))
	gone := l.ran(1, []string{"make", "disk"}, says("lost", "error: the disk is full\n"), in(`d:\kept`))
	l.append("machine-m1", events.MemoryConsolidated{Text: "mended", Records: []string{gone}, Forgets: &events.Forgetting{Cited: true}})
	v := l.view()
	for _, c := range []struct{ reader, query, want string }{
		{"bo", "make disk", "make disk 2 same_command error: the disk is full"},
		{"ana", "make disk", "make disk 1 same_command error: out of memory"},
		{"bo", "disk full", "make disk 2 same_words error: the disk is full"},
		{"ana", "disk full", ""},
		{"bo", "lost both", "make disk 2 same_words error: the disk is full"},
		{"ana", "lost both", ""},
		{"ana", "kept", "make disk 1 same_phrase error: out of memory"},
		{"ana", "kept both", "make disk 1 same_words error: out of memory"},
	} {
		found, err := v.Tried(t.Context(), Query{Text: c.query, Forgetful: c.reader, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, a := range found.Answers {
			got = append(got, fmt.Sprint(a.Command, " ", a.Runs, " ", a.WhyMatched, " ", a.Failure))
		}
		if strings.Join(got, "; ") != c.want {
			t.Errorf("%s asking %q is told %q, not %q", c.reader, c.query, got, c.want)
		}
	}
	for reader, want := range map[string]string{
		"bo":  `[[d:\kept ["kept","both","lost"] error: the disk is full] [ ["plain","both"] ]]`,
		"ana": `[[D:\Kept ["kept","both"] error: out of memory] [ ["plain","both"] ]]`,
	} {
		got, err := v.Ask(t.Context(), `SELECT repo, tags, failure FROM series ORDER BY id`, nil, 10, reader)
		if err != nil || fmt.Sprint(got.Rows) != want {
			t.Errorf("%s: got %v, %v, not %s", reader, got.Rows, err, want)
		}
	}
}
