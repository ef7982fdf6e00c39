package pebblelog

import (
	"slices"
	"strings"
	"testing"

	"fleetledger/events"
)

func TestRelyFirst(t *testing.T) {
	// A request is written as its name, the streams it writes, and, after a
	// colon, those it relies on.
	for _, c := range []struct {
		name string
		in   []string
		want string
	}{
		{"nobody relies", []string{"1 a", "2 b", "3 a"}, "123"},
		{"reliers already first", []string{"1 a:x", "2 x"}, "12"},
		{"a change of authority goes last", []string{"1 auth", "2 a:auth", "3 b:auth", "4 auth", "5 c"}, "23145"},
		{"who writes what it relies on is a writer", []string{"1 auth:auth", "2 a:auth"}, "21"},
		{"a chain", []string{"1 x", "2 y:x", "3 z:y"}, "321"},
		{"a relier that comes later", []string{"1 x", "2 y", "3 a:x", "4 b:y"}, "3142"},
		{"a circle keeps its order", []string{"1 x:y", "2 y:x", "3 a"}, "312"},
		{"one of several streams", []string{"1 a,x", "2 b:x"}, "21"},
	} {
		var requests []*request
		for _, s := range c.in {
			name, rest, _ := strings.Cut(s, " ")
			writes, relies, _ := strings.Cut(rest, ":")
			r := &request{}
			for _, w := range strings.Split(writes, ",") {
				r.a.Drafts = append(r.a.Drafts, events.Draft{Intent: events.Intent{ID: name, Stream: events.Stream(w)}})
			}
			if relies != "" {
				r.a.Expect = append(r.a.Expect, events.Expectation{Stream: events.Stream(relies)})
			}
			requests = append(requests, r)
		}
		relyFirst(requests)
		got := ""
		for _, r := range requests {
			got += r.a.Drafts[0].Intent.ID
		}
		if got != c.want {
			t.Errorf("%s: decided in the order %s, not %s", c.name, got, c.want)
		}
	}
}

func TestRecentKnowsWhatItForgot(t *testing.T) {
	r := newRecent[string, int](2)
	group := uint64(0)
	write := func(keys ...string) {
		r.turn(group)
		group++
		for _, k := range keys {
			r.put(k, int(group))
		}
	}
	holds := func(k string) bool {
		_, young := r.young[k]
		_, old := r.old[k]
		return young || old
	}
	write("a", "b") // group 1
	write("c", "d") // 2
	if r.floor != 0 || !holds("a") {
		t.Fatalf("forgot too early: floor %d", r.floor)
	}
	if v, ok := r.get("a"); !ok || v != 1 { // kept for longer
		t.Fatalf("a is %d, %v", v, ok)
	}
	write("e") // 3: what was only in the older half goes
	if r.floor != 1 {
		t.Fatalf("floor is %d after group 1 was forgotten", r.floor)
	}
	for k, want := range map[string]bool{"a": true, "b": false, "c": true, "d": true, "e": true} {
		if holds(k) != want {
			t.Errorf("it holds %s: %v", k, !want)
		}
	}
}

func TestHeadRoundTrip(t *testing.T) {
	b := make([]byte, anchorSlotLen)
	h := Head{Generation: 7, Size: 12345, Root: events.SumHash("root"), log: logID{1, 2, 3}}
	h.encode(b)
	if got, err := decodeHead(1, b); err != nil || got != h {
		t.Fatalf("%+v came back as %+v, %v", h, got, err)
	}
	if _, err := decodeHead(0, b); err == nil {
		t.Fatal("record 7 was taken from slot 0")
	}
	for at := range anchorSummed + len(events.Hash{}) {
		b[at] ^= 0x10
		if _, err := decodeHead(1, b); err == nil {
			t.Fatalf("byte %d changed and nobody noticed", at)
		}
		b[at] ^= 0x10
	}
}

func TestKeysKeepOrderAndDoNotCollide(t *testing.T) {
	var keys [][]byte
	for _, s := range []events.Stream{"a", "a-1", "aa", "b"} {
		for _, r := range []events.Revision{1, 2, 255, 256, 1 << 40} {
			key := streamKey(nil, s, r)
			if gotS, gotR, err := parseStreamKey(key); err != nil || gotS != s || gotR != r {
				t.Fatalf("%s/%d came back as %s/%d, %v", s, r, gotS, gotR, err)
			}
			if end := streamEnd(nil, s); slices.Compare(key, end) >= 0 {
				t.Fatalf("%s/%d lies past the stream's end", s, r)
			}
			keys = append(keys, key)
		}
	}
	if !slices.IsSortedFunc(keys, func(a, b []byte) int { return slices.Compare(a, b) }) {
		t.Fatal("streams interleave")
	}
}
