package sim

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"fleetledger/events"
	"fleetledger/projections"
)

// A state that is written down and taken up anywhere in the log goes on to be the
// same, item by item and byte by byte.
func TestSnapshotAnywhere(t *testing.T) {
	ctx := context.Background()
	for _, s := range seeds(t) {
		f, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		log, state := f.Log, f.State
		for i := range 400 {
			if err := f.Step(ctx); err != nil {
				t.Fatalf("seed %d, step %d: %v", s, i, err)
			}
		}
		var records []events.Record
		for r, err := range log.ReadAll(ctx, 0) {
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, r)
		}
		_, want, err := state.EncodeSnapshot()
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(s, 2))
		for range 12 {
			cut := 1 + rng.IntN(len(records))
			at := events.Position(cut)
			before := projections.NewState()
			fold(t, before, records[:cut])
			p, saved, err := before.EncodeSnapshot()
			if err != nil || p != at {
				t.Fatalf("seed %d: a snapshot of position %d, not %d (%v)", s, p, at, err)
			}
			after := projections.NewState()
			if err := after.RestoreSnapshot(p, saved); err != nil {
				t.Fatal(err)
			}
			if _, again, err := after.EncodeSnapshot(); err != nil || !bytes.Equal(again, saved) {
				t.Fatalf("seed %d, position %d: written down again it differs (%v)", s, at, err)
			}
			for _, d := range projections.Compare(before.Snapshot(), after.Snapshot()) {
				t.Errorf("seed %d, position %d: %s: %s\n was %s\n taken up %s", s, at, d.View, d.Item, d.Live, d.Rebuilt)
			}
			fold(t, after, records[cut:])
			if _, got, err := after.EncodeSnapshot(); err != nil || !bytes.Equal(got, want) {
				t.Errorf("seed %d: from position %d on it comes to another state (%v)", s, at, err)
			}
			for _, d := range projections.Compare(state.Snapshot(), after.Snapshot()) {
				t.Errorf("seed %d, from position %d: %s: %s\n live %s\n then %s", s, at, d.View, d.Item, d.Live, d.Rebuilt)
			}
			if t.Failed() {
				t.Fatalf("again: go test ./testing/sim -seed %d", s)
			}
		}
	}
}

func fold(t *testing.T, state *projections.State, records []events.Record) {
	t.Helper()
	for _, r := range records {
		publish, err := state.Stage([]events.Record{r})
		if err != nil {
			t.Fatal(err)
		}
		publish()
	}
}

// What does not read leaves the state unused.
func TestSnapshotThatDoesNotRead(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "{", "an unknown member": `{"Surprise":1}`, "a task without an id": `{"Tasks":[{}]}`,
	} {
		state := projections.NewState()
		if err := state.RestoreSnapshot(7, []byte(text)); err == nil {
			t.Errorf("%s: taken up", name)
		}
		if p := state.Position(); p != 0 {
			t.Errorf("%s: the state is at %d", name, p)
		}
	}
}
