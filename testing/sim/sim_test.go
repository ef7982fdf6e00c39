package sim

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"strings"
	"testing"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/projections"
)

var seed = flag.Uint64("seed", 0, "the one seed to run, instead of several")

func seeds(t *testing.T) []uint64 {
	if *seed != 0 {
		return []uint64{*seed}
	}
	n := 12
	if testing.Short() {
		n = 4
	} else if os.Getenv("FLEETLEDGER_LONG") != "" {
		n = 60
	}
	var list []uint64
	for i := range n {
		list = append(list, uint64(i+1))
	}
	return list
}

func TestFleetByChance(t *testing.T) {
	ctx := context.Background()
	roots := 0
	kinds, erased := map[events.Kind]int{}, map[events.Kind]int{}
	for _, s := range seeds(t) {
		f, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		log, state := f.Log, f.State
		for i := range 600 {
			if err := f.Step(ctx); err != nil {
				t.Fatalf("step %d: %v\nagain: go test ./testing/sim -seed %d", i, err, s)
			}
			if i%100 == 50 {
				// The log as it is now, without what was erased, folds to what is live.
				sameRebuilt(t, fmt.Sprintf("seed %d, step %d", s, i), f)
			}
		}
		var records []events.Record
		for r, err := range log.ReadAll(ctx, 0) {
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
			kinds[r.Header.Type]++
			if r.Erased {
				erased[r.Header.Type]++
			}
			if p, ok := f.acknowledged[r.Header.ID]; ok && p != r.Header.Position {
				t.Errorf("seed %d: event %s was acknowledged at %d and is at %d", s, r.Header.ID, p, r.Header.Position)
			}
			delete(f.acknowledged, r.Header.ID)
		}
		if len(f.acknowledged) != 0 {
			t.Errorf("seed %d: %d acknowledged events are not in the log", s, len(f.acknowledged))
		}
		report, err := audit.Run(ctx, events.ReadStored(ctx, log, 0), audit.Options{Live: f.Ledger})
		if err != nil {
			t.Fatal(err)
		}
		roots += report.HeadsVerified
		for _, x := range report.Findings {
			t.Errorf("seed %d: position %d: %s: %s: expected %v, actual %v", s, x.Position, x.Kind, x.Detail, x.Expected, x.Actual)
		}
		sameHoweverFolded(t, s, records, state.Snapshot())
		if t.Failed() {
			t.Fatalf("again: go test ./testing/sim -seed %d", s)
		}
	}
	if *seed != 0 {
		return
	}
	// A simulation that never gets anywhere proves nothing.
	for _, k := range []events.Kind{"approval.settled", "approval.spent", "task.claimed", "task.reported", "lease.lapsed", "task.cancelled",
		"task.settled", "conclusion.recorded", "section.revised", "section.retired", "actor.suspended", "actor.level_set", "rule.retired", "ext.note",
		"memory.recorded", "memory.consolidated", "block.published", "block.accepted", "payload.erased", "heads.rooted"} {
		if kinds[k] == 0 {
			t.Errorf("no %s in any simulation", k)
		}
	}
	if roots != kinds["heads.rooted"] {
		t.Errorf("of %d roots %d were made again", kinds["heads.rooted"], roots)
	}
	// So does one that erases nothing; a short one does not come to every kind.
	if len(erased) == 0 {
		t.Error("nothing was erased in any simulation")
	}
	for _, k := range append(events.Kinds(), "ext.note") {
		if k.Erasable() != (erased[k] > 0) && !(k.Erasable() && testing.Short()) {
			t.Errorf("%s can be erased: %t, and %d of them were in all simulations", k, k.Erasable(), erased[k])
		}
	}
}

// sameRebuilt folds the whole log anew and compares it with what is live.
func sameRebuilt(t *testing.T, when string, f *Fleet) {
	t.Helper()
	rebuilt := projections.NewState()
	var tasks []string
	for r, err := range f.Log.ReadAll(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if id, ok := strings.CutPrefix(string(r.Header.Stream), "task-"); ok && r.Header.Revision == 1 {
			tasks = append(tasks, id)
		}
		publish, err := rebuilt.Stage([]events.Record{r})
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		publish()
	}
	for _, d := range projections.Compare(f.State.Snapshot(), rebuilt.Snapshot()) {
		t.Errorf("%s: %s: %s\n live %s\n then %s", when, d.View, d.Item, d.Live, d.Rebuilt)
	}
	for _, id := range tasks {
		task, err := projections.LoadTask(context.Background(), f.Log, id, 0)
		if err != nil {
			t.Errorf("%s: task %s: %v", when, id, err)
		} else if live := f.State.OpenTask(id); live != nil && !reflect.DeepEqual(live, task) {
			t.Errorf("%s: task %s is\n%+v, not\n%+v", when, id, live, task)
		}
	}
	for _, at := range []events.Position{0, f.State.Position()} {
		doc, err := f.Ledger.Collective(context.Background(), at)
		if err != nil {
			t.Fatal(err)
		}
		if live := f.State.Collective(); !reflect.DeepEqual(doc.Sections(), live.Sections()) || doc.Unsure() {
			t.Errorf("%s: read from its stream, the collective memory differs from the live one", when)
		}
	}
}

// sameHoweverFolded folds the records one by one, in batches of a hundred, and
// with a pipeline of batches staged ahead of what is published.
func sameHoweverFolded(t *testing.T, s uint64, records []events.Record, live projections.Views) {
	t.Helper()
	rng := rand.New(rand.NewPCG(s, 1))
	for name, batch := range map[string]func() (size, ahead int){
		"one by one":            func() (int, int) { return 1, 0 },
		"a hundred at a time":   func() (int, int) { return 100, 0 },
		"staged ahead":          func() (int, int) { return 1 + rng.IntN(5), rng.IntN(8) },
		"one by one, far ahead": func() (int, int) { return 1, 64 },
	} {
		state := projections.NewState()
		var waiting []func()
		for rest := records; len(rest) > 0; {
			size, ahead := batch()
			size = min(size, len(rest))
			publish, err := state.Stage(rest[:size])
			if err != nil {
				t.Errorf("seed %d: %s: %v", s, name, err)
				return
			}
			waiting, rest = append(waiting, publish), rest[size:]
			for len(waiting) > ahead {
				waiting[0]()
				waiting = waiting[1:]
			}
		}
		for _, publish := range waiting {
			publish()
		}
		for _, d := range projections.Compare(live, state.Snapshot()) {
			t.Errorf("seed %d: %s: %s: %s\n live %s\n then %s", s, name, d.View, d.Item, d.Live, d.Rebuilt)
		}
	}
}

// What a fold refuses leaves nothing of itself staged.
func TestRefusedStageLeavesNothing(t *testing.T) {
	f, err := New(1)
	if err != nil {
		t.Fatal(err)
	}
	log, state := f.Log, f.State
	before := state.Snapshot()
	draft := func(id string, stream events.Stream, e events.Event) events.Draft {
		payload, err := events.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		return events.NewDraft(events.Intent{ID: id, Stream: stream, Type: e.Kind(), Schema: events.Schema, Actor: "root"}, [events.SaltBytes]byte{}, payload)
	}
	_, err = log.Append(context.Background(), events.Append{Drafts: []events.Draft{
		draft("x1", events.AuthorityStream, events.ActorRegistered{ID: "ghost", Type: events.Human, Scopes: []string{}}),
		draft("x2", events.AuthorityStream, events.RuleRetired{RuleID: "no such rule"}),
	}})
	if err == nil {
		t.Fatal("an append that does not fold was taken")
	}
	if d := projections.Compare(before, state.Snapshot()); len(d) != 0 {
		t.Errorf("the refused append shows: %+v", d)
	}
	if _, err := log.Append(context.Background(), events.Append{Drafts: []events.Draft{
		draft("x3", events.AuthorityStream, events.ActorRegistered{ID: "ghost", Type: events.Human, Scopes: []string{}}),
	}}); err != nil {
		t.Errorf("the refused append is still staged: %v", err)
	}
}
