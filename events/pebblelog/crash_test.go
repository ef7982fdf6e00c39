package pebblelog_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

// snapshot is the disk as a power loss may have left it, and what had been
// acknowledged before.
type snapshot struct {
	what  string
	disk  *vfs.MemFS
	acked []events.Record
}

// checkSurvives opens the log that a power loss left: everything acknowledged is
// there, and it takes more.
func (s snapshot) checkSurvives(t *testing.T) {
	t.Helper()
	l, err := pebblelog.Open("data", options(s.disk))
	if err != nil {
		t.Fatalf("%s: %d events were acknowledged; open: %v", s.what, len(s.acked), err)
	}
	checkAcknowledged(t, l, s.acked)
	before := logtest.CheckWhole(t, l)
	if _, err := l.Append(t.Context(), one("after")); err != nil {
		t.Fatalf("%s: append: %v", s.what, err)
	}
	mustClose(t, l)
	l = mustOpen(t, options(s.disk))
	if after := logtest.CheckWhole(t, l); len(after) != len(before)+1 {
		t.Fatalf("%s: %d events, one more, and after opening again %d", s.what, len(before), len(after))
	}
	mustClose(t, l)
}

// acks collects what was acknowledged.
type acks struct {
	mu   sync.Mutex
	recs map[events.Position]events.Record
}

func (a *acks) add(recs []events.Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, r := range recs {
		a.recs[r.Header.Position] = r
	}
}

func (a *acks) list() map[events.Position]events.Record {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.recs)
}

// TestPowerLossAtRandom cuts the power at random moments under many writers.
func TestPowerLossAtRandom(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, options(disk))
	acked := acks{recs: make(map[events.Position]events.Record)}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for ctx.Err() == nil {
				s := events.Stream(fmt.Sprintf("s-%d", w))
				done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft(s, 300), draft("all", 20)}})
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				acked.add(done.Records)
			}
		})
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	type loss struct {
		disk    *vfs.MemFS
		acked   map[events.Position]events.Record
		percent int
	}
	var losses []loss
	for i := range rounds {
		if err := l.Wait(t.Context(), events.Position((i+1)*40+rng.IntN(40))); err != nil {
			t.Fatal(err)
		}
		before := acked.list()
		percent := []int{0, 100, 1 + rng.IntN(99)}[i%3]
		losses = append(losses, loss{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), before, percent})
	}
	stop()
	wg.Wait()
	mustClose(t, l)
	for i, c := range losses {
		what := fmt.Sprintf("seed %d, power loss %d with %d%% of what was not synced", seed, i, c.percent)
		l, err := pebblelog.Open("data", options(c.disk))
		if err != nil {
			t.Fatalf("%s: open: %v", what, err)
		}
		all := logtest.CheckWhole(t, l)
		for p, r := range c.acked {
			if int(p) > len(all) || string(all[p-1].Leaf) != string(r.Leaf) {
				t.Fatalf("%s: the event acknowledged at position %d is gone; the log has %d", what, p, len(all))
			}
		}
		mustClose(t, l)
		snapshot{what: what, disk: c.disk}.checkSurvives(t)
	}
}

// TestPowerLossAtEveryWrite cuts the power before each change to the disk, from
// the making of a log to its closing and opening again.
func TestPowerLossAtEveryWrite(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var (
		disk  = vfs.NewCrashableMem()
		f     faults
		mu    sync.Mutex
		acked []events.Record
		snaps []snapshot
		rng   = rand.New(rand.NewPCG(1, 2))
		n     int
	)
	f.set(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		n++
		percent := []int{0, 100, 50}[n%3]
		snaps = append(snaps, snapshot{
			what:  fmt.Sprintf("before write %d (kind %d of %s) with %d%% of what was not synced", n, op.Kind, op.Path, percent),
			disk:  disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}),
			acked: slices.Clone(acked),
		})
		return nil
	})
	ack := func(recs []events.Record) {
		mu.Lock()
		defer mu.Unlock()
		acked = append(acked, recs...)
	}
	opts := options(f.wrap(disk))
	for range 2 {
		l := mustOpen(t, opts)
		for i := range 6 {
			ack(fill(t, l, 1))
			if i == 3 {
				// One that is refused writes nothing and breaks nothing.
				_, err := l.Append(t.Context(), events.Append{
					Drafts: []events.Draft{draft("s-0", 30)}, Expect: []events.Expectation{{Stream: "none", Revision: 9}},
				})
				var conflict *events.ConflictError
				if !errors.As(err, &conflict) {
					t.Fatalf("a wrong expectation: %v", err)
				}
			}
		}
		mustClose(t, l)
	}
	f.set(nil)
	if len(snaps) < 60 {
		t.Fatalf("only %d writes were seen", len(snaps))
	}
	step := 1
	if testing.Short() {
		step = 5
	}
	for i := 0; i < len(snaps); i += step {
		snaps[i].checkSurvives(t)
	}
}

// TestUnanchoredTail opens a log whose last events reached the WAL and not the
// anchor: they are kept, and anchored.
func TestUnanchoredTail(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	fill(t, l, 5)
	old := content(t, disk, "data/anchor")
	want := fill(t, l, 3)
	mustClose(t, l)

	setContent(t, disk, "data/anchor", old)
	l = mustOpen(t, options(disk))
	if got := logtest.CheckWhole(t, l); len(got) != 8 || string(got[7].Leaf) != string(want[2].Leaf) {
		t.Fatalf("%d events are there, 8 were appended", len(got))
	}
	mustClose(t, l)
	audit, err := pebblelog.ReadForAudit("data", options(disk), pebblelog.Head{}, events.CheckOptions{}, func(_ *events.Checked, err error) error { return err })
	if err != nil || audit.Anchor == nil || audit.Anchor.Size != 8 || audit.Damage != nil {
		t.Fatalf("the tail was not anchored: %+v, %v", audit, err)
	}
}
