package pebblelog_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

func isWAL(op errorfs.Op) bool    { return strings.HasSuffix(op.Path, ".log") }
func isAnchor(op errorfs.Op) bool { return strings.HasSuffix(op.Path, "/anchor") }
func isSync(op errorfs.Op) bool {
	return op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData
}

// TestFaults makes each step of an append fail, once without having been done and once
// after it was, and looks at what a power loss leaves then of what was not synced.
// Nothing that failed is acknowledged, the engine
// takes nothing more, and opened again the log holds what was acknowledged.
//
// Where Pebble gives up for good its goroutines stay, as they must; so this test
// looks for no leaks.
func TestFaults(t *testing.T) {
	for _, c := range []struct {
		name string
		hit  func(errorfs.Op) bool
		fill bool // keep appending until the fault is met
	}{
		{name: "the WAL cannot be written", hit: func(op errorfs.Op) bool { return isWAL(op) && op.Kind == errorfs.OpFileWrite }},
		{name: "the WAL cannot be synced", hit: func(op errorfs.Op) bool { return isWAL(op) && isSync(op) }},
		{name: "the anchor cannot be written", hit: func(op errorfs.Op) bool { return isAnchor(op) && op.Kind == errorfs.OpFileWriteAt }},
		{name: "the anchor cannot be synced", hit: func(op errorfs.Op) bool { return isAnchor(op) && isSync(op) }},
		{name: "no new WAL can be made", hit: func(op errorfs.Op) bool { return isWAL(op) && op.Kind == errorfs.OpCreate }, fill: true},
		{name: "the manifest cannot be written", hit: func(op errorfs.Op) bool {
			return strings.Contains(op.Path, "MANIFEST") && op.Kind == errorfs.OpFileWrite
		}, fill: true},
		{name: "the manifest cannot be synced", hit: func(op errorfs.Op) bool {
			return strings.Contains(op.Path, "MANIFEST") && isSync(op)
		}, fill: true},
	} {
		for _, fault := range []struct {
			cause error
			late  bool // it is done, and said to have failed
		}{{errInjected, false}, {errInjected, true}, {syscall.ENOSPC, false}, {syscall.ENOSPC, true}} {
			cause := fault.cause
			t.Run(fmt.Sprintf("%s/%v, done: %v", c.name, cause, fault.late), func(t *testing.T) {
				var f faults
				disk := vfs.NewCrashableMem()
				l := mustOpen(t, options(f.wrap(disk)))
				acked := fill(t, l, 7)

				var hit atomic.Bool
				f.setLate(func(op errorfs.Op) error {
					if c.hit(op) {
						hit.Store(true)
						return cause
					}
					return nil
				}, fault.late)
				waiting := make(chan error, 1)
				go func() { waiting <- l.Wait(context.Background(), 1<<40) }()
				var err error
				for range 2000 {
					var done events.Appended
					done, err = l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft("s", 4000)}})
					if err != nil {
						break
					}
					acked = append(acked, done.Records...)
					if !c.fill {
						t.Fatal("an append was acknowledged over the fault")
					}
				}
				if !hit.Load() {
					t.Fatal("the fault was never met")
				}
				if !errors.Is(err, events.ErrFailed) {
					t.Fatalf("append: %v", err)
				}
				if !strings.Contains(err.Error(), cause.Error()) {
					t.Errorf("the error does not say what failed: %v", err)
				}
				if err := <-waiting; !errors.Is(err, events.ErrFailed) {
					t.Errorf("wait: %v", err)
				}
				f.set(nil) // the disk is well again, but nobody knows what is on it
				for range 3 {
					if _, err := l.Append(t.Context(), one("s")); !errors.Is(err, events.ErrFailed) {
						t.Errorf("a later append: %v", err)
					}
				}
				// One whose outcome is unknown may have become durable.
				if d := l.Durable(); int(d) < len(acked) {
					t.Errorf("durable is %d, acknowledged were %d", d, len(acked))
				}
				checkAcknowledged(t, l, acked) // readers are still served
				if err := l.Close(); !errors.Is(err, events.ErrFailed) {
					t.Errorf("close: %v", err)
				}
				for _, percent := range []int{0, 50, 100} {
					s := snapshot{what: fmt.Sprintf("with %d%% of what was not synced", percent), acked: acked,
						disk: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(1, uint64(percent)))})}
					s.checkSurvives(t)
				}
			})
		}
	}
}

// TestOpenFaults makes every single operation of opening fail, without having been
// done and after it was. Opening then fails or succeeds, but damages nothing and does
// not hang.
func TestOpenFaults(t *testing.T) {
	base := vfs.NewMem()
	l := mustOpen(t, options(base))
	acked := fill(t, l, 10)
	mustClose(t, l)
	for _, late := range []bool{false, true} {
		openFaults(t, base, acked, late)
	}
}

func openFaults(t *testing.T, base *vfs.MemFS, acked []events.Record, late bool) {
	step := int64(1)
	if testing.Short() {
		step = 7
	}
	for n := int64(0); ; n += step {
		disk := clone(t, base)
		var f faults
		var count atomic.Int64
		f.setLate(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && count.Add(1) == n+1 {
				return errInjected
			}
			return nil
		}, late)
		l, err := pebblelog.Open("data", options(f.wrap(disk)))
		met := count.Load() > n
		f.set(nil)
		var damage *pebblelog.DamagedError
		switch {
		case errors.As(err, &damage):
			t.Fatalf("write %d failed, and open says: %v", n, err)
		case err == nil:
			checkAcknowledged(t, l, acked)
			_ = l.Close() // may report the fault
		}
		again := clone(t, disk) // the first may be stuck, and hold its lock
		l, err = pebblelog.Open("data", options(again))
		if err != nil {
			t.Fatalf("write %d failed when the log was opened; then: %v", n, err)
		}
		checkAcknowledged(t, l, acked)
		mustClose(t, l)
		if !met {
			return
		}
	}
}

// published is a fold that counts.
type published struct{ staged, visible atomic.Int64 }

func (f *published) Stage(recs []events.Record) (func(), error) {
	f.staged.Add(int64(len(recs)))
	return func() { f.visible.Add(int64(len(recs))) }, nil
}

func (f *published) Unstage() {}

// TestNothingShowsBeforeItIsDurable holds up the WAL's sync, then the anchor's.
// Until both are done nobody sees the event or is answered, not even those who
// lost to it or repeat it.
func TestNothingShowsBeforeItIsDurable(t *testing.T) {
	var (
		f       faults
		fold    published
		walHeld = make(chan struct{}) // closed to let the WAL's sync go on
		ancHeld = make(chan struct{})
		reached = make(chan string, 64)
	)
	opts := options(f.wrap(vfs.NewMem()))
	opts.Fold = &fold
	l := mustOpen(t, opts)
	defer l.Close()
	f.set(func(op errorfs.Op) error {
		switch {
		case isWAL(op) && isSync(op):
			reached <- "wal"
			<-walHeld
		case isAnchor(op) && isSync(op):
			reached <- "anchor"
			<-ancHeld
		}
		return nil
	})

	first := keyed(events.Append{Drafts: []events.Draft{draft("s", 50)}}, "k")
	answers := make(chan string, 4)
	appendTo := func(name string, a events.Append, check func(events.Appended, error) bool) {
		done, err := l.Append(t.Context(), a)
		if !check(done, err) {
			t.Errorf("%s: %+v, %v", name, done, err)
		}
		answers <- name
	}
	go appendTo("winner", first, func(d events.Appended, err error) bool { return err == nil && d.First == 1 && !d.Duplicate })
	if at := <-reached; at != "wal" {
		t.Fatalf("the first thing synced is the %s", at)
	}
	go appendTo("repeater", first, func(d events.Appended, err error) bool { return err == nil && d.First == 1 && d.Duplicate })
	loser := one("other")
	loser.Expect = []events.Expectation{{Stream: "s", Revision: 0}}
	go appendTo("loser", loser, func(_ events.Appended, err error) bool {
		var c *events.ConflictError
		return errors.As(err, &c) && c.Actual == 1
	})
	go appendTo("same id", events.Append{Drafts: []events.Draft{first.Drafts[0]}, Key: first.Key, Request: events.SumHash("another")},
		func(_ events.Appended, err error) bool {
			var m *events.KeyMismatchError
			return errors.As(err, &m)
		})

	check := func(when string) {
		t.Helper()
		select {
		case name := <-answers:
			t.Fatalf("%s, the %s was answered", when, name)
		case <-time.After(30 * time.Millisecond):
		}
		if d := l.Durable(); d != 0 {
			t.Errorf("%s, durable is %d", when, d)
		}
		if v := l.Tree(); v.Size != 0 {
			t.Errorf("%s, the tree to be signed has %d leaves", when, v.Size)
		}
		for range l.ReadAll(t.Context(), 0) {
			t.Errorf("%s, the event can be read", when)
		}
		for range l.ReadStream(t.Context(), "s", 0) {
			t.Errorf("%s, the stream can be read", when)
		}
		if p, err := l.FindID(t.Context(), first.Drafts[0].Intent.ID); p != 0 || err != nil {
			t.Errorf("%s, the id is found: %d, %v", when, p, err)
		}
		if a, _, err := l.FindKey(t.Context(), first.Key); a.First != 0 || err != nil {
			t.Errorf("%s, the key is found: %d, %v", when, a.First, err)
		}
		if fold.staged.Load() != 1 || fold.visible.Load() != 0 {
			t.Errorf("%s, the fold has staged %d and published %d", when, fold.staged.Load(), fold.visible.Load())
		}
	}
	check("before the WAL is synced")
	close(walHeld)
	if at := <-reached; at != "anchor" {
		t.Fatalf("after the WAL the %s is synced", at)
	}
	check("before the anchor is synced")
	close(ancHeld)
	for range 4 {
		<-answers
	}
	if d := l.Durable(); d != 1 {
		t.Errorf("at the end durable is %d", d)
	}
	if v := l.Tree(); v.Size != 1 {
		t.Errorf("at the end the tree has %d leaves", v.Size)
	}
	if n := fold.visible.Load(); n != 1 {
		t.Errorf("at the end the fold has published %d", n)
	}
}

// TestNoSpace refuses appends below the mark and takes them again above it.
func TestNoSpace(t *testing.T) {
	disk := vfs.NewMem()
	free := func(bytes uint64) { disk.TestingSetDiskUsage(vfs.DiskUsage{AvailBytes: bytes, TotalBytes: 1 << 40}) }
	free(1 << 30)
	opts := options(disk)
	opts.MinFreeBytes = 32 << 20
	l := mustOpen(t, opts)
	first := keyed(one("s"), "k")
	if _, err := l.Append(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	// The look at the disk is good for a while, but not for much writing.
	big := func() events.Append { return events.Append{Drafts: []events.Draft{draft("s", 1<<20)}} }
	free(32<<20 - 1)
	var err error
	for range 5 {
		if _, err = l.Append(t.Context(), big()); err != nil {
			break
		}
	}
	if !errors.Is(err, events.ErrNoSpace) {
		t.Fatalf("on a nearly full disk: %v", err)
	}
	durable := l.Durable()
	for range 3 {
		if _, err := l.Append(t.Context(), big()); !errors.Is(err, events.ErrNoSpace) {
			t.Fatalf("again: %v", err)
		}
	}
	if d := l.Durable(); d != durable {
		t.Fatalf("durable moved from %d to %d", durable, d)
	}
	// What writes nothing is answered as ever.
	if done, err := l.Append(t.Context(), first); err != nil || !done.Duplicate {
		t.Fatalf("a repeated request: %+v, %v", done, err)
	}
	free(32 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for {
		_, err := l.Append(ctx, one("s"))
		if err == nil {
			break
		}
		if !errors.Is(err, events.ErrNoSpace) {
			t.Fatalf("with space again: %v", err)
		}
	}
	logtest.CheckWhole(t, l)
	mustClose(t, l)
}

// TestDecisionsBesideAuthorityChanges has many appends rely on a stream that some
// of them change, all waiting for the disk together.
func TestDecisionsBesideAuthorityChanges(t *testing.T) {
	l := mustOpen(t, options(vfs.NewMem()))
	var (
		wg      sync.WaitGroup
		refused atomic.Int32
	)
	for i := range 200 {
		wg.Go(func() {
			a := one(events.Stream(fmt.Sprintf("task-%d", i)))
			if i%50 == 0 {
				a = one("authority")
			} else {
				a.Expect = []events.Expectation{{Stream: "authority", Revision: 0}}
			}
			_, err := l.Append(t.Context(), a)
			var conflict *events.ConflictError
			if errors.As(err, &conflict) {
				refused.Add(1)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	changed := false
	for _, r := range logtest.CheckWhole(t, l) {
		if changed && r.Header.Stream != "authority" {
			t.Fatalf("position %d was decided before authority changed and recorded after", r.Header.Position)
		}
		changed = changed || r.Header.Stream == "authority"
	}
	if got := int(l.Durable()) + int(refused.Load()); got != 200 {
		t.Fatalf("%d events and %d refusals for 200 appends", l.Durable(), refused.Load())
	}
	mustClose(t, l)
}
