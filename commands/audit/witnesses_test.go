package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/testing/witnessstub"
)

// cosigned is a checkpoint with the cosignatures of these witnesses.
func cosigned(t *testing.T, signed []byte, by ...*witnessstub.Witness) []byte {
	t.Helper()
	for _, w := range by {
		k, err := seal.ParseWitnessKey(w.Key())
		if err != nil {
			t.Fatal(err)
		}
		if signed, _, err = seal.AddCosignature(signed, w.Cosign(signed), k); err != nil {
			t.Fatal(err)
		}
	}
	return signed
}

// TestWitnessed audits a log with two cosigned checkpoints, as it is and as somebody
// who has its key could have it otherwise.
func TestWitnessed(t *testing.T) {
	f, ctx := newFleet(t), context.Background()
	w1, w2, w3 := witnessstub.Offline("w.test/1"), witnessstub.Offline("w.test/2"), witnessstub.Offline("w.test/3")
	first := cosigned(t, f.sign(t, "key"), w1, w2)
	at1 := events.Position(len(f.records)) + 1
	if err := f.RecordWitnessed(ctx, first); err != nil {
		t.Fatal(err)
	}
	if f.ToWitness() {
		t.Error("a cosigned checkpoint is to be witnessed for its own sake")
	}
	f.sign(t, "second key")
	if !f.ToWitness() {
		t.Error("a key is not to be witnessed")
	}
	second := f.sign(t, "key") // of all that there is
	size := uint64(len(f.records))
	second = cosigned(t, second, w1)
	for range 2 { // the second time there is nothing to record
		if err := f.RecordWitnessed(ctx, second); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.RecordWitnessed(ctx, first); err != nil {
		t.Fatal(err)
	}
	f.sign(t, "key")
	if got := uint64(len(f.records)); got != size+1 {
		t.Fatalf("%d events, not %d", got, size+1)
	}
	if got := f.State().Witnessed(); got.Size != int64(size) || got.Told != events.Position(size)+1 || got.Checkpoint != string(second) {
		t.Errorf("the newest is %+v", got)
	}

	as := func(change func(e *events.CheckpointWitnessed)) []events.Record {
		return rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
			if n, ok := e.(events.CheckpointWitnessed); ok && r.Header.Position == at1 {
				change(&n)
				return n
			}
			return e
		})
	}
	otherCheckpoint := bytes.Replace(first, []byte(fmt.Sprintf("\n%d\n", at1-1)), []byte(fmt.Sprintf("\n%d\n", at1-2)), 1)
	for what, c := range map[string]struct {
		records  []events.Record
		keys     []*witnessstub.Witness
		recorded int
		reach    string
		finding  string // kind and a part of it
	}{
		"no key":          {f.records, nil, 2, "", ""},
		"one":             {f.records, []*witnessstub.Witness{w1}, 2, fmt.Sprint(size), ""},
		"both":            {f.records, []*witnessstub.Witness{w2, w1}, 2, fmt.Sprint(at1-1, " ", size), ""},
		"and one without": {f.records, []*witnessstub.Witness{w3, w1}, 2, fmt.Sprint("0 ", size), ""},
		"the same twice":  {f.records, []*witnessstub.Witness{w2, w2}, 2, fmt.Sprint(at1-1, " ", at1-1), ""},
		"a stranger":      {f.records, []*witnessstub.Witness{w3}, 2, "0", "witness: no checkpoint of this log"},
		"the checkpoint is not one": {as(func(e *events.CheckpointWitnessed) { e.Checkpoint = "x" }),
			nil, 0, "", "checkpoint: a checkpoint cannot be read"},
		"the checkpoint is of another size": {as(func(e *events.CheckpointWitnessed) { e.Size-- }),
			nil, 0, "", "order: the cosigned checkpoint has"},
		"the cosignature is of another checkpoint": {as(func(e *events.CheckpointWitnessed) {
			e.Checkpoint = string(first) + string(w3.Cosign(otherCheckpoint))
		}), []*witnessstub.Witness{w3}, 1, "0", `witness: the checkpoint over`},
	} {
		t.Run(what, func(t *testing.T) {
			var keys []seal.WitnessKey
			for _, w := range c.keys {
				k, err := seal.ParseWitnessKey(w.Key())
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, k)
			}
			r, err := audit.Run(t.Context(), seq(c.records), audit.Options{Witnesses: keys})
			if err != nil {
				t.Fatal(err)
			}
			var reach, found []string
			for _, w := range r.Witnessed.Witnesses {
				reach = append(reach, fmt.Sprint(w.Size))
				if (w.Size == 0) != w.At.IsZero() {
					t.Errorf("it was cosigned at %v", w.At)
				}
			}
			for _, x := range r.Findings {
				found = append(found, x.Kind+": "+x.Detail)
			}
			if got := strings.Join(reach, " "); got != c.reach {
				t.Errorf("the witnesses reach %q, not %q", got, c.reach)
			}
			told := strings.Join(found, "\n")
			if c.finding == "" && told != "" || !strings.Contains(told, c.finding) {
				t.Errorf("got %q, not %q", told, c.finding)
			}
			if c.finding == "" && (r.Witnessed.Recorded != c.recorded || r.Witnessed.Size != size) {
				t.Errorf("%+v", r.Witnessed)
			}
		})
	}

	// What the witnesses cosigned is held to another record of these events.
	rewritten := rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
		if n, ok := e.(events.ConclusionRecorded); ok {
			n.Text = "all was well"
			return n
		}
		return e
	})
	r, err := audit.Run(t.Context(), seq(rewritten), audit.Options{})
	if err != nil || r.OK || r.Witnessed.Recorded != 0 {
		t.Errorf("a log that was written anew: %+v, %v", r, err)
	}
}

// TestContradicted has nothing recorded while a witness contradicts.
func TestContradicted(t *testing.T) {
	f, ctx := newFleet(t), context.Background()
	before := f.Log().Durable()
	why := &commands.ContradictedError{Witness: "w.test/1", Known: 100, Size: 90}
	f.Contradict(why)
	_, err := f.RetireRule(ctx, commands.Caller{Actor: "root"}, commands.RetireRule{RuleID: f.State().Authority().Rules[0].ID})
	if !errors.Is(err, why) || !errors.Is(f.Degraded(), why) || f.Log().Durable() != before {
		t.Errorf("%v; %v", err, f.Degraded())
	}
	for want, e := range map[string]*commands.ContradictedError{
		"has cosigned 100 events of this log, and 90 are here: this is an older copy": why,
		"has cosigned other events as the first 80 of this log than are here":         {Witness: "w", Known: 80, Size: 90},
	} {
		if !strings.Contains(e.Error(), want) {
			t.Errorf("%v", e)
		}
	}
	f.Contradict(nil)
	if _, err := f.RetireRule(ctx, commands.Caller{Actor: "root"}, commands.RetireRule{RuleID: f.State().Authority().Rules[0].ID}); err != nil || f.Degraded() != nil {
		t.Errorf("%v; %v", err, f.Degraded())
	}
}
