package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

// tally is a fold that can be written down: how many events there were, and a hash
// over them all.
type tally struct {
	version string

	mu     sync.Mutex
	last   events.Position
	sum    events.Hash
	folded int // by this very tally, not before
}

func (f *tally) Stage(recs []events.Record) (func(), error) {
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		for _, r := range recs {
			f.last, f.sum = r.Header.Position, events.SumHash(f.sum.String(), r.LeafHash.String())
			f.folded++
		}
	}, nil
}

func (f *tally) Unstage() {}

func (f *tally) SnapshotVersion() string { return "tally/" + f.version }

func (f *tally) EncodeSnapshot() (events.Position, []byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.last, []byte(f.sum.String()), nil
}

func (f *tally) RestoreSnapshot(p events.Position, state []byte) error {
	if err := f.sum.UnmarshalText(state); err != nil {
		return err
	}
	f.last = p
	return nil
}

func (f *tally) write(t *testing.T, l *pebblelog.Log) {
	t.Helper()
	p, state, err := f.EncodeSnapshot()
	if err == nil {
		err = l.WriteSnapshot(f.SnapshotVersion(), p, state)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func tallied(disk vfs.FS, f *tally) pebblelog.Options {
	o := options(disk)
	o.Fold = f
	return o
}

// snapshotted is a closed log of 700 events with snapshots at 400 and 600.
func snapshotted(t *testing.T) (*vfs.MemFS, []events.Record, events.Hash) {
	t.Helper()
	disk := vfs.NewMem()
	f := &tally{}
	l := mustOpen(t, tallied(disk, f))
	acked := fill(t, l, 300)
	f.write(t, l) // goes when there are two newer ones
	acked = append(acked, fill(t, l, 100)...)
	f.write(t, l)
	acked = append(acked, fill(t, l, 200)...)
	f.write(t, l)
	acked = append(acked, fill(t, l, 100)...)
	mustClose(t, l)
	if got, err := disk.List("data/snapshots"); err != nil || len(got) != 2 {
		t.Fatalf("the snapshots are %v (%v)", got, err)
	}
	return disk, acked, f.sum
}

// A start folds what comes after the newest snapshot that fits, and comes to the
// same state; what does not fit is passed over, never taken up.
func TestStartFromSnapshot(t *testing.T) {
	base, acked, want := snapshotted(t)
	newest := content(t, base, "data/snapshots/600")
	edit := func(f func(b []byte) []byte) func(*testing.T, *vfs.MemFS) {
		return func(t *testing.T, d *vfs.MemFS) { setContent(t, d, "data/snapshots/600", f(bytes.Clone(newest))) }
	}
	for _, c := range []struct {
		name    string
		damage  func(*testing.T, *vfs.MemFS)
		version string
		folded  int
	}{
		{name: "as it was left", folded: 100},
		{name: "the newest is gone", damage: func(t *testing.T, d *vfs.MemFS) { remove(t, d, "data/snapshots/600") }, folded: 300},
		{name: "none is there", damage: func(t *testing.T, d *vfs.MemFS) {
			remove(t, d, "data/snapshots/600")
			remove(t, d, "data/snapshots/400")
		}, folded: 700},
		{name: "it is empty", damage: edit(func(b []byte) []byte { return nil }), folded: 300},
		{name: "it is cut", damage: edit(func(b []byte) []byte { return b[:len(b)-1] }), folded: 300},
		{name: "its state was changed", damage: edit(func(b []byte) []byte { b[len(b)-1] ^= 1; return b }), folded: 300},
		{name: "its root was changed", damage: edit(func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"root":"`), []byte(`"root":"0`), 1)[:len(b)]
		}), folded: 300},
		{name: "its position was changed", damage: edit(func(b []byte) []byte { return bytes.Replace(b, []byte(`"position":600`), []byte(`"position":601`), 1) }), folded: 300},
		{name: "it is of a log that went on otherwise", damage: edit(func(b []byte) []byte {
			i := bytes.Index(b, []byte(`"root":"`)) + len(`"root":"`)
			b[i] = map[bool]byte{true: '1', false: '0'}[b[i] == '0']
			return b
		}), folded: 300},
		{name: "another's stands in its place", damage: func(t *testing.T, d *vfs.MemFS) {
			setContent(t, d, "data/snapshots/600", content(t, d, "data/snapshots/400"))
		}, folded: 300},
		{name: "it is ahead of the log", damage: func(t *testing.T, d *vfs.MemFS) {
			setContent(t, d, "data/snapshots/900", bytes.Replace(bytes.Clone(newest), []byte(`"position":600`), []byte(`"position":900`), 1))
		}, folded: 100},
		{name: "the program folds otherwise now", version: "2", folded: 700},
		{name: "a write was cut off", damage: func(t *testing.T, d *vfs.MemFS) { setContent(t, d, "data/snapshots/700.new", newest[:50]) }, folded: 100},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := clone(t, base)
			if c.damage != nil {
				c.damage(t, d)
			}
			f := &tally{version: c.version}
			l := mustOpen(t, tallied(d, f))
			defer mustClose(t, l)
			if f.folded != c.folded || f.last != 700 || f.sum != want {
				t.Errorf("%d events were folded, to position %d; want %d", f.folded, f.last, c.folded)
			}
			checkAcknowledged(t, l, acked)
			verifiedTo(t, l, events.Position(700-c.folded))
			if more := fill(t, l, 3); more[0].Header.Position != 701 {
				t.Errorf("the next position is %d", more[0].Header.Position)
			}
		})
	}
}

func remove(t *testing.T, d vfs.FS, name string) {
	t.Helper()
	if err := d.Remove(name); err != nil {
		t.Fatal(err)
	}
}

// verifiedTo waits until what the start left for later was read.
func verifiedTo(t *testing.T, l *pebblelog.Log, want events.Position) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		done, of := l.Verified()
		if of != want {
			t.Fatalf("the start left %d events for later, want %d", of, want)
		}
		if done == of && l.Degraded() == nil {
			return
		}
		if time.Now().After(limit) || l.Degraded() != nil {
			t.Fatalf("verified %d of %d: %v", done, of, l.Degraded())
		}
	}
}

// Damage before the snapshot does not stop a start; it is found behind it, named,
// and ends appends. Damage after it stops the start.
func TestDamageAroundSnapshot(t *testing.T) {
	base, acked, _ := snapshotted(t)
	payload := func(p events.Position) []byte { return []byte{'p', 0, 0, 0, 0, 0, 0, byte(p >> 8), byte(p)} }
	header := func(p events.Position) []byte { return []byte{'h', 0, 0, 0, 0, 0, 0, byte(p >> 8), byte(p)} }
	forged := func(p events.Position) []byte {
		h := acked[p-1].Header
		h.Actor = "somebody-else"
		return h.Encode()
	}
	for _, c := range []struct {
		name string
		edit func(db *pebble.DB) error
		lost events.Position
		// start is true if the start itself finds it.
		start bool
	}{
		{name: "a payload", edit: func(db *pebble.DB) error {
			return db.Set(payload(77), append(bytes.Clone(acked[76].Salt[:]), "{}"...), pebble.Sync)
		}, lost: 77},
		{name: "a payload that is gone", edit: func(db *pebble.DB) error { return db.Delete(payload(5), pebble.Sync) }, lost: 5},
		{name: "a header", edit: func(db *pebble.DB) error { return db.Set(header(77), forged(77), pebble.Sync) }, lost: 82},
		{name: "a header that is gone", edit: func(db *pebble.DB) error { return db.Delete(header(300), pebble.Sync) }, lost: 300},
		{name: "a payload of the tail", edit: func(db *pebble.DB) error {
			return db.Set(payload(650), append(bytes.Clone(acked[649].Salt[:]), "{}"...), pebble.Sync)
		}, lost: 650, start: true},
		{name: "the last header", edit: func(db *pebble.DB) error { return db.Set(header(700), forged(700), pebble.Sync) }, lost: 1, start: true},
		{name: "the last event is gone", edit: func(db *pebble.DB) error { return db.Delete(header(700), pebble.Sync) }, lost: 700, start: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := clone(t, base)
			db, err := pebble.Open("data/pebble", &pebble.Options{FS: d, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.edit(db), db.Close()); err != nil {
				t.Fatal(err)
			}
			l, err := pebblelog.Open("data", tallied(d, &tally{}))
			var damage *pebblelog.DamagedError
			if c.start {
				if !errors.As(err, &damage) || damage.Position != c.lost {
					t.Fatalf("the start says %v, want position %d", err, c.lost)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			for limit := time.Now().Add(20 * time.Second); l.Degraded() == nil; time.Sleep(time.Millisecond) {
				if time.Now().After(limit) {
					t.Fatal("it was not found")
				}
			}
			var why *events.ReadOnlyError
			if err := l.Degraded(); !errors.As(err, &why) || why.Lost != c.lost {
				t.Errorf("found: %v, want position %d", err, c.lost)
			}
			if _, err := l.Append(t.Context(), one("s-1")); !errors.Is(err, events.ErrReadOnly) {
				t.Errorf("an append: %v", err)
			}
		})
	}
}

// What is erased is in no snapshot, and none is written of what was before.
func TestErasureDropsSnapshots(t *testing.T) {
	disk := vfs.NewMem()
	f := &tally{}
	l := mustOpen(t, tallied(disk, f))
	acked := fill(t, l, 50)
	f.write(t, l)
	p, old, err := f.EncodeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	a := one("s-erasing")
	a.Erase = []events.Position{acked[9].Header.Position}
	if _, err := l.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	if err := l.Scrub(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.WriteSnapshot(f.SnapshotVersion(), p, old); err != nil {
		t.Fatal(err)
	}
	if got, err := disk.List("data/snapshots"); err == nil && len(got) > 0 {
		t.Errorf("there are %v", got)
	}
	f.write(t, l)
	mustClose(t, l)
	again := &tally{}
	l = mustOpen(t, tallied(disk, again))
	defer mustClose(t, l)
	if again.folded != 0 || again.sum != f.sum {
		t.Errorf("%d events were folded after a snapshot at the head", again.folded)
	}
	verifiedTo(t, l, 51)
}

// A crash at any step of writing a snapshot leaves a log that opens, and comes to the
// same state.
func TestCrashWhileWritingSnapshot(t *testing.T) {
	disk := vfs.NewCrashableMem()
	f := &tally{}
	var at []*vfs.MemFS
	var faulty faults
	l, err := pebblelog.Open("data", tallied(faulty.wrap(disk), f))
	if err != nil {
		t.Fatal(err)
	}
	acked := fill(t, l, 60)
	faulty.set(func(op errorfs.Op) error {
		if strings.Contains(op.Path, "snapshots") {
			at = append(at, disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, uint64(len(at))))}))
		}
		return nil
	})
	f.write(t, l)
	acked = append(acked, fill(t, l, 20)...)
	f.write(t, l)
	faulty.set(nil)
	mustClose(t, l)
	if len(at) < 6 {
		t.Fatalf("the disk was looked at %d times only", len(at))
	}
	for i, d := range at {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			again := &tally{}
			l := mustOpen(t, tallied(d, again))
			defer mustClose(t, l)
			n := int(l.Durable())
			if n < 60 {
				t.Fatalf("%d events are left", n)
			}
			checkAcknowledged(t, l, acked[:min(n, len(acked))])
		})
	}
}
