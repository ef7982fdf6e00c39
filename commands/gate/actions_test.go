package gate

import (
	"strings"
	"testing"

	"fleetledger/events"

	"pgregory.net/rapid"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, action string
		want            bool
	}{
		{"a", "a", true},
		{"a", "a.x", false},
		{"a", "ab", false},
		{"a.x", "a.x", true},
		{"a.x", "a", false},
		{"a.x", "a.x.y", false},
		{"a.*", "a.x", true},
		{"a.*", "a.x.y", true},
		{"a.*", "a", false},
		{"a.*", "a.", false},
		{"a.*", "ab", false},
		{"a.*", "ab.x", false},
		{"a.*", "b.a.x", false},
		{"a.*", "A.x", false},
		{"a.*", "a.*", false}, // no name of an action
		{"a.x.*", "a.x.y", true},
		{"a.x.*", "a.x", false},
		{"a.x.*", "a.xx.y", false},
		{"a-b.*", "a-b.c_d", true},
		{"task.submit.*", "task.submit.m1", true},
		{"task.submit.*", "task.submit.rack.7.", true},
		{"task.submit.*", "task.submit", false},
		{"task.submit.m.*", "task.submit.m.", false},
		{"task.submit.m.*", "task.submit.m..", true},
		{"ext.*", "ext.My.Type", true},
		{"ext.My.*", "ext.My.Type", true},
		{"ext.My.*", "ext.my.Type", false},
		// Malformed patterns match nothing.
		{"*", "a", false},
		{"*", "*", false},
		{".*", ".a", false},
		{"a*", "ab", false},
		{"a.x*", "a.xy", false},
		{"a.*.y", "a.x.y", false},
		{"*.a", "b.a", false},
		{"a.**", "a.x", false},
		{"a.*.*", "a.x.y", false},
		{"", "", false},
		{"a..*", "a..x", false},
		{" a", " a", false},
		{"A.*", "A.x", false},
	} {
		if got := Matches(c.pattern, c.action); got != c.want {
			t.Errorf("Matches(%q, %q) = %t, want %t", c.pattern, c.action, got, c.want)
		}
	}
}

func TestValidAction(t *testing.T) {
	long := strings.Repeat("a", events.MaxNameBytes)
	for action, want := range map[string]bool{
		"a":                                true,
		"actor.register":                   true,
		"memory.accept.focus":              true,
		"a_b-c.0":                          true,
		long:                               true,
		long + "a":                         false,
		"":                                 false,
		".":                                false,
		"a.":                               false,
		".a":                               false,
		"a..b":                             false,
		"*":                                false,
		"a.*":                              false,
		"   ":                              false,
		"a b":                              false,
		"a\n":                              false,
		"a\x00":                            false,
		"A.b":                              false,
		"a.B":                              false,
		"а.b":                              false, // a Cyrillic letter
		"a/b":                              false,
		"task.submit.m1":                   true,
		"task.submit.m.":                   true, // odd, but an id
		"task.submit.m..x":                 true,
		"task.submit.m-_.x":                true,
		"task.submit..x":                   false,
		"task.submit.":                     false,
		"task.submit.M1":                   false,
		"task.cancel.m.":                   false,
		"ext":                              true,
		"ext.":                             false,
		"ext.My.Type":                      true,
		"ext.my..type":                     false,
		"Ext.my":                           false,
		"extra.My":                         false,
		"ext.my type":                      false,
		"ext." + long:                      false,
		"ext." + long[len("ext."):]:        true,
		"ext." + long[len("ext.Z"):] + "Z": true,
	} {
		if got := ValidAction(action); got != want {
			t.Errorf("ValidAction(%q) = %t, want %t", action, got, want)
		}
	}
}

func TestValidPattern(t *testing.T) {
	long := strings.Repeat("a", events.MaxNameBytes-len(".*"))
	for pattern, want := range map[string]bool{
		"a":                true,
		"a.*":              true,
		"a.b.*":            true,
		"ext.*":            true,
		"ext.My.*":         true,
		"task.submit.*":    true,
		"task.submit.m..*": true,
		long + ".*":        true,
		long + "a.*":       false,
		"":                 false,
		"*":                false,
		".*":               false,
		"a*":               false,
		"a.*.*":            false,
		"*.a":              false,
		"a..*":             false,
		"A.*":              false,
		"a.* ":             false,
	} {
		if got := ValidPattern(pattern); got != want {
			t.Errorf("ValidPattern(%q) = %t, want %t", pattern, got, want)
		}
	}
}

func TestEveryMachineCanBeNamedByAnAction(t *testing.T) {
	id := rapid.StringMatching(`[a-z0-9][a-z0-9._-]{0,63}`)
	rapid.Check(t, func(t *rapid.T) {
		m := id.Draw(t, "machine")
		action := "task.submit." + m
		if !events.ValidID(m) || !ValidAction(action) || !ValidPattern(action) || !Matches(action, action) || !Matches("task.submit.*", action) {
			t.Fatalf("machine %q has no action", m)
		}
		if other := id.Draw(t, "other"); other != m && Matches(action, "task.submit."+other) {
			t.Fatalf("the rule of %q matches %q", m, other)
		}
	})
}

// A prefix matches exactly what lies below it, segment by segment.
func TestMatchesBySegments(t *testing.T) {
	segments := rapid.SliceOfN(rapid.StringMatching(`[ab_]{1,2}`), 1, 4)
	rapid.Check(t, func(t *rapid.T) {
		p, a := segments.Draw(t, "pattern"), segments.Draw(t, "action")
		below := len(a) > len(p)
		for i := 0; below && i < len(p); i++ {
			below = p[i] == a[i]
		}
		pattern, action := strings.Join(p, "."), strings.Join(a, ".")
		if got := Matches(pattern+".*", action); got != below {
			t.Fatalf("Matches(%q, %q) = %t", pattern+".*", action, got)
		}
		if got := Matches(pattern, action); got != (pattern == action) {
			t.Fatalf("Matches(%q, %q) = %t", pattern, action, got)
		}
	})
}
