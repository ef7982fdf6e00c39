package commands_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections"
	"fleetledger/testing/smallfleet"
)

// air is what relays say to each other.
type air struct{ said [][]byte }

// ear is one relay's end of it.
type ear struct {
	air  *air
	next int
	dead bool
	lost bool // what it says reaches nobody
}

func (e *ear) Say(_ context.Context, m []byte) error {
	if e.dead {
		return errors.New("nobody hears")
	}
	if e.lost {
		return nil
	}
	e.air.said = append(e.air.said, slices.Clone(m))
	return nil
}

func (e *ear) Heard(context.Context) ([][]byte, error) {
	if e.dead {
		return nil, errors.New("nothing is heard")
	}
	out := e.air.said[e.next:]
	e.next = len(e.air.said)
	return out, nil
}

func (*ear) Peer() string  { return "" }
func (*ear) Admit(string)  {}
func (*ear) Follow(string) {}

// twoRelays are two ledgers on one log. Inside a bubble of synctest: how long a holder
// is silent is measured by a steady clock.
func twoRelays(t *testing.T) (w *world, b *commands.Ledger, ears [2]*ear) {
	w = newWorld(t)
	w.people()
	var sky air
	ears = [2]*ear{{air: &sky}, {air: &sky}}
	b = commands.New(w.Log(), w.State(), commands.Random{
		ID:    func() string { w.ids++; return fmt.Sprint("b-", w.ids) },
		Bytes: func(p []byte) { w.ids++; clear(p); p[0], p[1], p[2] = 'b', byte(w.ids), byte(w.ids>>8) },
	})
	w.Share("a", ears[0], nil)
	b.Share("b", ears[1], nil)
	return w, b, ears
}

func keep(t *testing.T, relays ...*commands.Ledger) {
	t.Helper()
	for _, l := range relays {
		if err := l.KeepDuty(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := l.Sweep(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestDutyIsOneRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b, ears := twoRelays(t)
		if w.OnDuty() || b.OnDuty() {
			t.Fatal("somebody has the duty before it was taken")
		}
		for range 20 {
			keep(t, w.Ledger, b)
			time.Sleep(time.Second)
		}
		if !w.OnDuty() || b.OnDuty() || w.State().Duty().Epoch != 1 {
			t.Fatalf("the duty: a %t, b %t, %+v", w.OnDuty(), b.OnDuty(), w.State().Duty())
		}

		// a is cut off; b takes over, once it was silent for long enough.
		ears[0].dead = true
		for range 4 {
			keep(t, b)
			time.Sleep(time.Second)
		}
		if b.OnDuty() {
			t.Fatal("b has taken the duty of a relay that was heard four seconds ago")
		}
		time.Sleep(2 * time.Second)
		keep(t, b)
		if w.OnDuty() || !b.OnDuty() || w.State().Duty().Epoch != 2 {
			t.Fatalf("the duty: a %t, b %t, %+v", w.OnDuty(), b.OnDuty(), w.State().Duty())
		}

		// b stops, and says so: a has the duty at once.
		ears[0].dead = false
		keep(t, w.Ledger)
		if err := b.LeaveDuty(w.ctx()); err != nil {
			t.Fatal(err)
		}
		keep(t, w.Ledger)
		if !w.OnDuty() || b.OnDuty() || w.State().Duty().Epoch != 3 {
			t.Fatalf("the duty: a %t, b %t, %+v", w.OnDuty(), b.OnDuty(), w.State().Duty())
		}
	})
}

func TestDutyLapsesWhatNobodyHears(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b, ears := twoRelays(t)
		lease := w.State().Settings().Lease()
		keep(t, w.Ledger, b)
		claim := func() (*projections.Task, int) {
			tk := w.taskOf(w.submit("ana", "sleep", "600"))
			r, err := b.ClaimTask(w.ctx(), as("m1"), commands.ClaimTask{TaskID: tk.ID, Machine: "m1"})
			return tk, first[events.TaskClaimed](w, w.ok(r, err)).Attempt
		}
		// Claimed at b, heard of at b, and a, which has the duty, knows.
		tk, n := claim()
		for range 6 {
			w.Now = w.Now.Add(lease / 2)
			if _, err := b.Heartbeat(w.ctx(), as("m1"), tk.ID, n); err != nil {
				t.Fatal(err)
			}
			keep(t, b, w.Ledger)
		}
		if got := w.reload(tk).Legs[0].Status; got != projections.LegClaimed {
			t.Fatalf("the leg is %s, and b hears of it", got)
		}
		// b takes over and has heard of nothing since: a lease is whole again.
		keep(t, b)
		ears[0].dead = true
		time.Sleep(6 * time.Second)
		w.Now = w.Now.Add(lease)
		keep(t, b)
		if got := w.reload(tk).Legs[0].Status; !b.OnDuty() || got != projections.LegClaimed {
			t.Fatalf("b has the duty: %t; the leg is %s", b.OnDuty(), got)
		}
		// a does not know yet that it has the duty no more, and may not use it.
		w.Now = w.Now.Add(lease / 2)
		if err := w.Sweep(w.ctx()); err != nil {
			t.Fatal(err)
		}
		w.Now = w.Now.Add(lease)
		keep(t, b)
		if got := w.reload(tk); got.Verdict != events.VerdictLost {
			t.Fatalf("nobody heard of it, and the verdict is %q", got.Verdict)
		}
		if n := len(w.recordKinds(tk.Stream)); n != 5 { // submitted, opened, claimed, lapsed, settled
			t.Errorf("the task has %d events", n)
		}

		// The channel fails for longer than a lease: what others heard could not be told.
		tk, n = claim()
		ears[0].dead, ears[1].dead = true, true
		w.Now = w.Now.Add(2 * lease)
		if err := b.KeepDuty(w.ctx()); err == nil {
			t.Fatal("a dead channel is no error")
		}
		if _, err := w.Heartbeat(w.ctx(), as("m1"), tk.ID, n); err != nil {
			t.Fatal(err)
		}
		ears[0].dead, ears[1].dead = false, false
		keep(t, b)
		if got := w.reload(tk).Legs[0].Status; got != projections.LegClaimed {
			t.Errorf("the leg is %s, and a has heard of it", got)
		}
	})
}

// TestDutyIsTakenOnce has the holder die before two others: one takes over, and the
// other does not take it from that one though it has not heard it yet.
func TestDutyIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b, ears := twoRelays(t)
		n := 0
		c := commands.New(w.Log(), w.State(), commands.Random{
			ID:    func() string { n++; return fmt.Sprint("c-", n) },
			Bytes: func(p []byte) { n++; clear(p); p[0], p[1] = 'c', byte(n) }})
		c.Share("c", &ear{air: ears[0].air}, nil)
		keep(t, w.Ledger, b, c)
		if !w.HoldsDuty() || b.HoldsDuty() || c.HoldsDuty() {
			t.Fatal("the first relay does not hold the duty alone")
		}
		// It says no more that it lives, and counts as silent before the others take over.
		time.Sleep(4500 * time.Millisecond)
		if w.HoldsDuty() || !w.OnDuty() {
			t.Errorf("after 4.5 s of silence: holds %t, on duty %t", w.HoldsDuty(), w.OnDuty())
		}
		keep(t, b, c)
		if w.State().Duty().Relay != "a" {
			t.Fatalf("taken over after 4.5 s: %+v", w.State().Duty())
		}
		time.Sleep(time.Second)
		ears[1].lost = true
		keep(t, b, c)
		ears[1].lost = false
		if d := w.State().Duty(); d.Relay != "b" || d.Epoch != 2 || !b.HoldsDuty() || c.HoldsDuty() {
			t.Errorf("the duty: %+v, b holds it: %t", d, b.HoldsDuty())
		}
		for range 20 {
			time.Sleep(time.Second)
			keep(t, w.Ledger, b, c)
		}
		if d := w.State().Duty(); d.Epoch != 2 {
			t.Errorf("the duty: %+v", d)
		}
	})
}

// Each relay signs with a key of its own. One changes its key while the others have
// theirs, and may retire another's, which signs nothing with it from then on and gets a
// new one.
func TestKeysOfSeveralRelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, b, ears := twoRelays(t)
		kept := map[string][]*seal.Key{}
		sealers := map[string]*seal.Sealer{}
		for i, l := range []*commands.Ledger{w.Ledger, b} {
			name := []string{"a", "b"}[i]
			key := smallfleet.NewKey(t, name)
			if err := l.AddKey(w.ctx(), key.Verifier()); err != nil {
				t.Fatal(err)
			}
			kept[name] = []*seal.Key{key}
			sealers[name] = smallfleet.NewSealer(t, w.Memory(), func(keys []*seal.Key) { kept[name] = keys }, key)
			l.Share(name, ears[i], sealers[name])
		}
		id := func(k *seal.Key) string { return seal.RingKey{Verifier: k.Verifier()}.ID() }
		verifies := func(relay string) seal.Checkpoint {
			t.Helper()
			ring, err := w.Keys(w.ctx())
			if err != nil {
				t.Fatal(err)
			}
			signed, err := sealers[relay].Checkpoint()
			if err != nil {
				t.Fatal(err)
			}
			c, err := ring.Verify(signed)
			if err != nil {
				t.Fatalf("relay %s: %v\n%s", relay, err, signed)
			}
			return c
		}
		keep(t, w.Ledger, b)
		root := as("root")
		a := sealers["a"]
		w.ok(w.RotateKey(w.ctx(), root, a, commands.RotateKey{Reason: "yearly"}))
		w.refused("KEY_OVERLAP", func() (commands.Result, error) { return w.RotateKey(w.ctx(), root, a, commands.RotateKey{}) })
		verifies("a")
		w.ok(w.RetireKey(w.ctx(), root, a, commands.RetireKey{ID: id(kept["a"][0]), Reason: "replaced"}))
		verifies("a")
		if len(kept["a"]) != 1 {
			t.Fatalf("a keeps %d keys", len(kept["a"]))
		}

		// a has the duty, and b retires the only key that a has.
		keep(t, w.Ledger, b)
		old := kept["a"][0]
		w.ok(b.RetireKey(w.ctx(), root, sealers["b"], commands.RetireKey{ID: id(old), Reason: "leaked"}))
		before := verifies("a")
		w.submit("ana", "true")
		if c := verifies("a"); c.Size != before.Size {
			t.Errorf("a has signed %d events with a key that was retired at %d", c.Size, before.Size)
		}
		keep(t, w.Ledger, b)
		if c := verifies("a"); c.Size != uint64(w.Log().Durable()) {
			t.Errorf("a signs %d events of %d", c.Size, w.Log().Durable())
		}
		if len(kept["a"]) != 1 || kept["a"][0].Verifier() == old.Verifier() || !slices.Equal(a.Verifiers(), []string{kept["a"][0].Verifier()}) {
			t.Errorf("a keeps %d keys, %q sign", len(kept["a"]), a.Verifiers())
		}
		keep(t, w.Ledger, b)
		if a, b := verifies("a"), verifies("b"); b.Size != a.Size {
			t.Errorf("b knows of a checkpoint over %d events, a has signed %d", b.Size, a.Size)
		}
	})
}
