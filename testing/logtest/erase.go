package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"fleetledger/events"
)

// erasing makes a erase positions.
func erasing(a events.Append, positions ...events.Position) events.Append {
	a.Erase = positions
	return a
}

// testErase erases payloads: the events, their headers and the tree stay, and no
// read shows the payload or its salt any more.
func testErase(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	for i := range 12 {
		mustAppend(t, l, keyed(to(events.Stream(fmt.Sprintf("s-%d", i%3))), fmt.Sprint(i), "r"))
	}
	before := CheckWhole(t, l)
	if e.CannotErase {
		if _, err := l.Append(t.Context(), erasing(to("ledger"), 2)); !errors.Is(err, events.ErrCannotErase) {
			t.Fatalf("it is to refuse to erase, and answers %v", err)
		}
		if after := CheckWhole(t, l); len(after) != len(before) {
			t.Fatalf("it refused, and %d events are there, not %d", len(after), len(before))
		}
		return
	}
	done := mustAppend(t, l, erasing(to("ledger"), 2, 7))
	check := func(when string, erased ...events.Position) {
		t.Helper()
		all := CheckWhole(t, l, erased...)
		for i, r := range before {
			if !slices.Contains(erased, r.Header.Position) {
				if !sameRecord(all[i], r) {
					t.Fatalf("%s: position %d is another event than before", when, i+1)
				}
				continue
			}
			r.Payload, r.Salt, r.Erased = nil, [events.SaltBytes]byte{}, true
			if !sameRecord(all[i], r) {
				t.Fatalf("%s: position %d differs in more than its payload", when, i+1)
			}
		}
		if got := all[len(before)]; !sameRecord(got, done.Records[0]) {
			t.Fatalf("%s: the event that tells of it is not as it was appended", when)
		}
	}
	check("at once", 2, 7)
	if err := l.Scrub(t.Context()); err != nil {
		t.Fatalf("scrub: %v", err)
	}
	check("after scrubbing", 2, 7)
	// What was erased can be erased again, and other payloads later.
	mustAppend(t, l, erasing(to("ledger"), 2, 12))
	check("after more", 2, 7, 12)
	if e.Durable {
		l = reopen(t, l, place, Options{})
		check("opened again", 2, 7, 12)
		if err := l.Scrub(t.Context()); err != nil {
			t.Fatalf("scrub: %v", err)
		}
		check("scrubbed when opened again", 2, 7, 12)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Scrub(ended); !errors.Is(err, context.Canceled) {
		t.Fatalf("scrub with a context that has ended: %v", err)
	}
}

// testEraseAtomic: what is refused erases nothing, whatever refused it.
func testEraseAtomic(t *testing.T, e Engine) {
	if e.CannotErase {
		t.Skip("the engine does not erase")
	}
	f := &switchable{}
	l := e.open(t, Options{Fold: f})
	id := freshID()
	mustAppend(t, l, keyed(events.Append{Drafts: []events.Draft{draft("s", id)}}, "k", "r"))
	for _, c := range []struct {
		name string
		a    events.Append
	}{
		{"an expectation", expecting(erasing(to("s"), 1), "s", 9)},
		{"an id that is taken", erasing(events.Append{Drafts: []events.Draft{draft("s", id)}}, 1)},
		{"a key of another request", erasing(keyed(to("s"), "k", "other"), 1)},
		{"position 0", erasing(to("s"), 0)},
		{"a position past the end", erasing(to("s"), 2)},
		{"its own position", erasing(to("s"), 1, 2)},
	} {
		if _, err := l.Append(t.Context(), c.a); err == nil {
			t.Fatalf("%s was taken", c.name)
		}
	}
	// One that was recorded before is not done again.
	if done := mustAppend(t, l, erasing(keyed(to("s"), "k", "r"), 1)); !done.Duplicate {
		t.Fatal("the key was used before")
	}
	f.refuse(errModelRefusal)
	if _, err := l.Append(t.Context(), erasing(to("s"), 1)); !errors.Is(err, errModelRefusal) {
		t.Fatalf("the fold refuses, and the answer is %v", err)
	}
	f.refuse(nil)
	checkHolds(t, l, id)
}

// testHeads reads the heads of streams as they were at every position.
func testHeads(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	if got := readHeads(t, l, "", 0); len(got) != 0 {
		t.Fatalf("an empty log has heads: %v", got)
	}
	names := []events.Stream{"a", "ab", "a-b", "b", "B", "ba", "~", "!"}
	for i := range 40 {
		s := names[i*i%len(names)]
		if i > 8 && i%2 == 0 {
			s = "long" // more events than one looks at
		}
		mustAppend(t, l, to(s))
	}
	heads := map[events.Stream]events.Record{}
	for _, r := range CheckWhole(t, l) {
		heads[r.Header.Stream] = r
		for _, after := range []events.Stream{"", "a", "aa", "long", "~"} {
			var want []events.StreamHead
			for _, s := range sorted(heads) {
				if s > after {
					want = append(want, headOf(heads[s]))
				}
			}
			if got := readHeads(t, l, after, r.Header.Position); !slices.Equal(got, want) {
				t.Fatalf("at position %d, after %q: %v, not %v", r.Header.Position, after, got, want)
			}
		}
	}
	for _, err := range l.Heads(t.Context(), "", l.Durable()+1) {
		if err == nil {
			t.Fatal("the heads of a position that is not there yet were told")
		}
	}
	for range l.Heads(t.Context(), "", l.Durable()) {
		break // whoever has seen enough is told no more
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, err := range l.Heads(ended, "", l.Durable()) {
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("heads with a context that has ended: %v", err)
		}
	}
}

func headOf(r events.Record) events.StreamHead {
	return events.StreamHead{Stream: r.Header.Stream, Revision: r.Header.Revision, LeafHash: r.LeafHash}
}

func readHeads(t *testing.T, l events.Log, after events.Stream, at events.Position) []events.StreamHead {
	t.Helper()
	var out []events.StreamHead
	for h, err := range l.Heads(t.Context(), after, at) {
		if err != nil {
			t.Fatalf("heads at %d: %v", at, err)
		}
		out = append(out, h)
	}
	return out
}
