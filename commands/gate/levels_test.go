package gate

import (
	"strings"
	"testing"

	"fleetledger/events"

	"pgregory.net/rapid"
)

func TestBandEdges(t *testing.T) {
	for _, c := range []struct {
		level    events.Level
		band     Band
		required events.Level
	}{
		{-2, "", 90},
		{events.Unusable, "", 90},
		{0, Ordinary, 50},
		{49, Ordinary, 50},
		{50, Captain, 70},
		{69, Captain, 70},
		{70, OrgAdmin, 90},
		{89, OrgAdmin, 90},
		{90, SystemAdmin, 90},
		{100, SystemAdmin, 90},
		{101, "", 90},
	} {
		if got := BandOf(c.level); got != c.band {
			t.Errorf("BandOf(%d) = %q, want %q", c.level, got, c.band)
		}
		if got := RequiredApproverLevel(c.level); got != c.required {
			t.Errorf("RequiredApproverLevel(%d) = %d, want %d", c.level, got, c.required)
		}
	}
	for _, c := range []struct {
		band  Band
		floor events.Level
	}{{Ordinary, 0}, {Captain, 50}, {OrgAdmin, 70}, {SystemAdmin, 90}, {"", events.Unusable}, {"captains", events.Unusable}} {
		if got := c.band.Floor(); got != c.floor {
			t.Errorf("%q.Floor() = %d, want %d", c.band, got, c.floor)
		}
	}
}

func TestDeriveReasons(t *testing.T) {
	for _, c := range []struct {
		name   string
		asked  *events.Level
		parent events.Level
		cap    *events.Level
		level  events.Level
		capped bool
		reason string
	}{
		{"asked for less than both", level(10), 50, level(40), 10, false, ""},
		{"asked for exactly both", level(50), 50, level(50), 50, false, ""},
		{"asked for nothing", nil, 50, nil, 50, false, ""},
		{"asked for nothing under a cap that does not bind", nil, 50, level(50), 50, false, ""},
		{"reduced by the parent", level(60), 50, nil, 50, true, "the level 60 asked for was reduced to 50: the parent has 50"},
		{"reduced by the parent, not by the cap", level(60), 50, level(55), 50, true, "the level 60 asked for was reduced to 50: the parent has 50"},
		{"reduced by the cap", level(60), 50, level(20), 20, true, "the level 60 asked for was reduced to 20: the cap is 20"},
		{"reduced by both", level(60), 50, level(50), 50, true, "the level 60 asked for was reduced to 50: the parent has 50 and the cap is 50"},
		{"asked for nothing, reduced by the cap", nil, 50, level(20), 20, true, "the parent's level 50 was reduced to 20: the cap is 20"},
		{"unusable level", level(101), 50, nil, events.Unusable, false, "the level asked for is not an integer from 0 to 100"},
		{"unusable parent", level(10), events.Unusable, nil, events.Unusable, false, "the parent has no usable level"},
		{"unusable cap", level(10), 50, level(-1), events.Unusable, false, "the cap is not an integer from 0 to 100"},
	} {
		l, capped, reason := Derive(c.asked, c.parent, c.cap)
		if l != c.level || capped != c.capped || reason != c.reason {
			t.Errorf("%s: %d %t %q, want %d %t %q", c.name, l, capped, reason, c.level, c.capped, c.reason)
		}
	}
}

// anyLevel draws levels, some of them unusable, with the edges of the bands often.
func anyLevel() *rapid.Generator[events.Level] {
	return rapid.OneOf(
		usableLevel(),
		rapid.SampledFrom([]events.Level{-2, events.Unusable, 101, 1000}),
	)
}

func usableLevel() *rapid.Generator[events.Level] {
	return rapid.OneOf(
		rapid.Map(rapid.IntRange(0, 100), func(n int) events.Level { return events.Level(n) }),
		rapid.SampledFrom([]events.Level{0, 1, 49, 50, 51, 69, 70, 71, 89, 90, 91, 99, 100}),
	)
}

func optional[T any](t *rapid.T, g *rapid.Generator[T], label string) *T {
	if !rapid.Bool().Draw(t, "has "+label) {
		return nil
	}
	v := g.Draw(t, label)
	return &v
}

func TestDeriveNeverGivesMoreThanAnyBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked, cap := optional(t, anyLevel(), "asked"), optional(t, anyLevel(), "cap")
		parent := anyLevel().Draw(t, "parent")
		got, capped, reason := Derive(asked, parent, cap)

		bounds, want := []events.Level{parent}, parent
		if asked != nil {
			bounds, want = append(bounds, *asked), *asked
		}
		if cap != nil {
			bounds = append(bounds, *cap)
		}
		met := false
		for _, b := range bounds {
			if !b.Usable() {
				if got != events.Unusable || capped || reason == "" {
					t.Fatalf("%d %t %q with an unusable bound", got, capped, reason)
				}
				return
			}
			if got > b {
				t.Fatalf("%d is above the bound %d", got, b)
			}
			met = met || got == b
		}
		if !met {
			t.Fatalf("%d is less than every bound %v", got, bounds)
		}
		if capped != (got < want) || capped != strings.Contains(reason, "reduced") {
			t.Fatalf("capped %t, %q: got %d of %d", capped, reason, got, want)
		}
		// Deriving again with what was given reduces nothing further.
		if again, capped, _ := Derive(&got, parent, cap); again != got || capped {
			t.Fatalf("derived again: %d %t, first %d", again, capped, got)
		}
	})
}

func TestEffective(t *testing.T) {
	for _, c := range []struct {
		name        string
		own         events.Level
		cap, parent *events.Level
		want        events.Level
	}{
		{"own alone", 60, nil, nil, 60},
		{"own is the least", 10, level(20), level(30), 10},
		{"the cap is", 60, level(20), level(30), 20},
		{"the parent is", 60, level(40), level(30), 30},
		{"a parent at 0", 60, nil, level(0), 0},
		{"own unusable", 101, level(20), level(30), events.Unusable},
		{"own negative", -5, nil, nil, events.Unusable},
		{"cap unusable", 60, level(101), level(30), events.Unusable},
		{"parent unusable", 60, level(20), level(-1), events.Unusable},
		{"parent above 100", 60, level(20), level(101), events.Unusable},
	} {
		if got := Effective(c.own, c.cap, c.parent); got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
	}
}

func TestLoweringAnAncestorReachesEveryDescendant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type link struct {
			own events.Level
			cap *events.Level
		}
		chain := make([]link, rapid.IntRange(1, 6).Draw(t, "depth"))
		for i := range chain {
			chain[i] = link{usableLevel().Draw(t, "own"), optional(t, usableLevel(), "cap")}
		}
		effective := func() []events.Level {
			var list []events.Level
			var parent *events.Level
			for _, l := range chain {
				e := Effective(l.own, l.cap, parent)
				list = append(list, e)
				parent = &e
			}
			return list
		}
		before := effective()
		for i := 1; i < len(before); i++ {
			if before[i] > before[i-1] {
				t.Fatalf("a child has %d under a parent with %d", before[i], before[i-1])
			}
		}
		at := rapid.IntRange(0, len(chain)-1).Draw(t, "lowered")
		chain[at].own = events.Level(rapid.IntRange(0, int(chain[at].own)).Draw(t, "to"))
		for i, after := range effective() {
			switch {
			case i < at && after != before[i]:
				t.Fatalf("lowering %d changed its ancestor %d from %d to %d", at, i, before[i], after)
			case i >= at && (after > chain[at].own || after > before[i]):
				t.Fatalf("lowering %d to %d left %d at %d", at, chain[at].own, i, after)
			}
		}
	})
}
