package events_test

import (
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"time"

	"fleetledger/events"
)

// placed makes n events of one stream; of those that spoil names the payload is not
// what was committed to.
func placed(n int, spoil ...int) []events.Record {
	var list []events.Record
	var prev events.Hash
	for i := 1; i <= n; i++ {
		d := events.NewDraft(events.Intent{ID: fmt.Sprint("e", i), Stream: "s", Type: "ext.a", Schema: 1, Actor: "ana"}, [events.SaltBytes]byte{byte(i)}, fmt.Appendf(nil, "%d", i))
		r := d.Place(events.Place{Version: events.FormatVersion, Fleet: "f", Position: events.Position(i), Revision: events.Revision(i), Time: time.Unix(int64(i), 0).UTC(), Prev: prev})
		prev = r.LeafHash
		list = append(list, r)
	}
	for _, i := range spoil {
		list[i-1].Payload = []byte("spoilt")
	}
	return list
}

// reusing yields records as they are stored, each in the bytes of the one before. missing
// cannot be read; left is set when it was left.
func reusing(list []events.Record, missing int, left *atomic.Bool) iter.Seq2[events.Stored, error] {
	return func(yield func(events.Stored, error) bool) {
		defer left.Store(true)
		var buf []byte
		for i, r := range list {
			if i+1 == missing {
				if !yield(events.Stored{Position: events.Position(missing)}, &events.CorruptError{Position: events.Position(missing)}) {
					return
				}
				continue
			}
			clear(buf)
			buf = append(append(buf[:0], r.Leaf...), r.Payload...)
			s := r.Stored()
			s.Position = events.Position(i + 1)
			s.Leaf, s.Payload = buf[:len(r.Leaf)], buf[len(r.Leaf):]
			if !yield(s, nil) {
				return
			}
		}
	}
}

func TestCheckAheadYieldsInOrder(t *testing.T) {
	const n, missing, spoilt, foreign = 6000, 1500, 3000, 4500
	list := placed(n, spoilt)
	list[foreign-1] = list[0] // in another's place
	var left atomic.Bool
	var seen atomic.Int64
	next := 1
	also := func(*events.Checked) { seen.Add(1) }
	for c := range events.CheckAhead(reusing(list, missing, &left), events.CheckOptions{Verify: true, Also: also}) {
		want := &list[next-1]
		switch {
		case next == missing || next == foreign:
			if c.Err == nil || !c.Record.LeafHash.IsZero() {
				t.Fatalf("position %d: it is read", next)
			}
		case c.Err != nil:
			t.Fatalf("position %d: %v", next, c.Err)
		case (c.Payload != nil) != (next == spoilt):
			t.Fatalf("position %d: payload: %v", next, c.Payload)
		case c.Record.Header != want.Header || c.Record.LeafHash != want.LeafHash || string(c.Record.Leaf) != string(want.Leaf) || string(c.Record.Payload) != string(want.Payload):
			t.Fatalf("position %d: it is another record", next)
		}
		next++
	}
	if next != n+1 || seen.Load() != n || !left.Load() {
		t.Errorf("%d events came, %d were seen, left: %t", next-1, seen.Load(), left.Load())
	}
}

// Whoever has seen enough leaves the source, wherever it is.
func TestCheckAheadIsLeft(t *testing.T) {
	list := placed(6000)
	for _, enough := range []int{1, 256, 257, 5999} {
		var left atomic.Bool
		n := 0
		for c := range events.CheckAhead(reusing(list, 0, &left), events.CheckOptions{}) {
			if n++; c.Record.Header.Position != events.Position(n) {
				t.Fatalf("position %d came where %d is due", c.Record.Header.Position, n)
			}
			if n == enough {
				break
			}
		}
		if n != enough || !left.Load() {
			t.Errorf("%d of %d, left: %t", n, enough, left.Load())
		}
	}
}
