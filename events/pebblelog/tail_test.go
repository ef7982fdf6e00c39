package pebblelog

import (
	"fmt"
	"testing"

	"fleetledger/events"
)

// tailOf holds appends of some sizes, each record of ten bytes, from position 1 on.
func tailOf(limit int, appends ...int) *tail {
	t, p := &tail{limit: limit}, events.Position(0)
	for _, n := range appends {
		recs := make([]events.Record, n)
		for i := range recs {
			p++
			recs[i].Header.Position, recs[i].Payload = p, []byte{byte(p)}
		}
		t.add(recs, 10*n)
	}
	return t
}

func TestTail(t *testing.T) {
	for _, c := range []struct {
		limit      int
		appends    []int
		next, last events.Position
		most       int
		want       string
	}{
		{100, []int{1, 3, 2}, 1, 6, 10, "[1 2 3 4 5 6]"},
		{100, []int{1, 3, 2}, 3, 6, 10, "[3 4 5 6]"},
		{100, []int{1, 3, 2}, 5, 6, 10, "[5 6]"},
		{100, []int{1, 3, 2}, 2, 5, 10, "[2 3 4 5]"},
		{100, []int{1, 3, 2}, 2, 6, 2, "[2 3]"},
		{100, []int{1, 3, 2}, 7, 9, 10, "[]"},
		{50, []int{1, 3, 2}, 1, 6, 10, "[]"},          // let go of
		{50, []int{1, 3, 2}, 2, 6, 10, "[2 3 4 5 6]"}, // still there
		{49, []int{1, 3, 2}, 4, 6, 10, "[]"},
		{49, []int{1, 3, 2}, 5, 6, 10, "[5 6]"},
		{10, []int{1, 3}, 2, 4, 10, "[]"}, // larger than the limit
		{0, []int{1}, 1, 1, 10, "[]"},
		{100, nil, 1, 1, 10, "[]"},
	} {
		var got []events.Position
		for _, r := range tailOf(c.limit, c.appends...).read(c.next, c.last, c.most, nil) {
			got = append(got, r.Header.Position)
		}
		if fmt.Sprint(got) != c.want {
			t.Errorf("%v within %d: %d to %d, at most %d, are %v, want %s", c.appends, c.limit, c.next, c.last, c.most, got, c.want)
		}
	}
}

func TestTailErases(t *testing.T) {
	tail := tailOf(50, 1, 3, 2)
	before := tail.read(2, 6, 10, nil)
	for _, p := range []events.Position{1, 3, 7} { // 1 is not kept, 7 not there
		tail.erase(p)
	}
	for i, r := range tail.read(2, 6, 10, nil) {
		erased := r.Header.Position == 3
		if r.Erased != erased || (r.Payload == nil) != erased {
			t.Errorf("position %d: erased %v, payload %v", r.Header.Position, r.Erased, r.Payload)
		}
		if before[i].Erased || before[i].Payload == nil {
			t.Errorf("position %d was taken from whoever had read it", r.Header.Position)
		}
	}
}
