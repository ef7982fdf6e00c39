package gate

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"fleetledger/events"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func TestParseRule(t *testing.T) {
	scope := func(s string) *string { return &s }
	for _, c := range []struct {
		raw  string
		want events.Rule
	}{
		{`{"action":"a","min_level":0}`, events.Rule{Action: "a", MinLevel: level(0)}},
		{` {"min_level":100,"action":"a.b.*"} `, events.Rule{Action: "a.b.*", MinLevel: level(100)}},
		{`{"action":"a","min_level":50,"matching_exempt_level":70,"scope":"team-a","why":"release week"}`,
			events.Rule{Action: "a", MinLevel: level(50), MatchingExemptLevel: level(70), Scope: scope("team-a"), Why: "release week"}},
		{`{"action":"a","min_level":50,"matching_exempt_level":0}`, events.Rule{Action: "a", MinLevel: level(50), MatchingExemptLevel: level(0)}},
		{`{"action":"a","min_level":50,"matching_exempt_level":null,"scope":null,"why":null}`, events.Rule{Action: "a", MinLevel: level(50)}},
		{`{"\u0061ction":"\u0061","min_level":50}`, events.Rule{Action: "a", MinLevel: level(50)}},
		{`{"action":"ext.My.Type","min_level":50}`, events.Rule{Action: "ext.My.Type", MinLevel: level(50)}},
	} {
		got, problems := ParseRule(jsontext.Value(c.raw))
		if problems != nil || !sameRule(got, c.want) {
			t.Errorf("%s: %s %v, want %s", c.raw, show(got), problems, show(c.want))
		}
	}
}

func TestParseRuleNamesEveryProblem(t *testing.T) {
	for _, c := range []struct {
		name, raw string
		want      []string // path, code
	}{
		{"nothing", ``, []string{" TRUNCATED"}},
		{"cut off", `{"action":"a","min_level":5`, []string{" TRUNCATED"}},
		{"null", `null`, []string{" NULL_NOT_ALLOWED"}},
		{"a list", `[]`, []string{" WRONG_TYPE"}},
		{"a text", `"a"`, []string{" WRONG_TYPE"}},
		{"an empty object", `{}`, []string{"/action REQUIRED", "/min_level REQUIRED"}},
		{"no floor", `{"action":"a"}`, []string{"/min_level REQUIRED"}},
		{"floor null", `{"action":"a","min_level":null}`, []string{"/min_level NULL_NOT_ALLOWED"}},
		{"floor as text", `{"action":"a","min_level":"50"}`, []string{"/min_level NOT_AN_INTEGER"}},
		{"floor with a fraction", `{"action":"a","min_level":50.5}`, []string{"/min_level NOT_AN_INTEGER"}},
		{"floor with a zero fraction", `{"action":"a","min_level":50.0}`, []string{"/min_level NOT_AN_INTEGER"}},
		{"floor with an exponent", `{"action":"a","min_level":5e1}`, []string{"/min_level NOT_AN_INTEGER"}},
		{"floor -0", `{"action":"a","min_level":-0}`, []string{"/min_level NOT_AN_INTEGER"}},
		{"floor true", `{"action":"a","min_level":true}`, []string{"/min_level WRONG_TYPE"}},
		{"floor -1", `{"action":"a","min_level":-1}`, []string{"/min_level OUT_OF_RANGE"}},
		{"floor 101", `{"action":"a","min_level":101}`, []string{"/min_level OUT_OF_RANGE"}},
		{"floor 2^64", `{"action":"a","min_level":18446744073709551616}`, []string{"/min_level OUT_OF_RANGE"}},
		{"exemption 101", `{"action":"a","min_level":1,"matching_exempt_level":101}`, []string{"/matching_exempt_level OUT_OF_RANGE"}},
		{"exemption as text", `{"action":"a","min_level":1,"matching_exempt_level":"90"}`, []string{"/matching_exempt_level NOT_AN_INTEGER"}},
		{"action null", `{"action":null,"min_level":1}`, []string{"/action NULL_NOT_ALLOWED"}},
		{"action a number", `{"action":7,"min_level":1}`, []string{"/action WRONG_TYPE"}},
		{"action empty", `{"action":"","min_level":1}`, []string{"/action INVALID"}},
		{"action blank", `{"action":"   ","min_level":1}`, []string{"/action INVALID"}},
		{"a bare star", `{"action":"*","min_level":1}`, []string{"/action INVALID"}},
		{"a star inside", `{"action":"a.*.b","min_level":1}`, []string{"/action INVALID"}},
		{"a case twin", `{"action":"Actor.register","min_level":1}`, []string{"/action INVALID"}},
		{"an invisible character", `{"action":"a\u200b","min_level":1}`, []string{"/action INVALID"}},
		{"scope empty", `{"action":"a","min_level":1,"scope":""}`, []string{"/scope INVALID"}},
		{"scope upper case", `{"action":"a","min_level":1,"scope":"Team"}`, []string{"/scope INVALID"}},
		{"scope a number", `{"action":"a","min_level":1,"scope":7}`, []string{"/scope WRONG_TYPE"}},
		{"why a number", `{"action":"a","min_level":1,"why":7}`, []string{"/why WRONG_TYPE"}},
		{"an unknown member", `{"action":"a","min_level":1,"id":"r1"}`, []string{"/id UNKNOWN_FIELD"}},
		{"a case variant", `{"action":"a","min_level":1,"Scope":"x"}`, []string{"/Scope CASE_VARIANT"}},
		{"a name twice", `{"action":"a","min_level":1,"min_level":0}`, []string{"/min_level DUPLICATE_NAME"}},
		{"something after it", `{"action":"a","min_level":1}{}`, []string{" TRAILING_DATA"}},
		{"a broken character", "{\"action\":\"a\xff\",\"min_level\":1}", []string{"/action INVALID_UTF8"}},
		{"a range and a name", `{"action":"*","min_level":101,"scope":"Team"}`, []string{"/min_level OUT_OF_RANGE", "/action INVALID", "/scope INVALID"}},
		{"both names", `{"action":"*","min_level":1,"scope":"Team"}`, []string{"/action INVALID", "/scope INVALID"}},
		{"a name behind an unknown member", `{"x":{"action":"b"},"action":"*","min_level":1}`, []string{"/x UNKNOWN_FIELD", "/action INVALID"}},
		{"a bad name twice", `{"action":"*","action":"a.","min_level":1}`, []string{"/action DUPLICATE_NAME", "/action INVALID"}},
		{"a bad name behind one that occurs twice", `{"min_level":1,"min_level":1,"action":"*"}`, []string{"/min_level DUPLICATE_NAME", "/action INVALID"}},
		{"a bad name behind a broken character", "{\"why\":\"\xff\",\"min_level\":1,\"action\":\"*\"}", []string{"/why INVALID_UTF8", "/action INVALID"}},
		{"a bad name before the end", `{"action":"*","min_level"`, []string{" TRUNCATED", "/action INVALID"}},
		{"all of it", `{"Action":"a","action":"*","min_level":"x","matching_exempt_level":1.5,"scope":"S","scope":"S","level":1}`,
			[]string{"/Action CASE_VARIANT", "/min_level WRONG_TYPE", "/matching_exempt_level NOT_AN_INTEGER", "/scope DUPLICATE_NAME", "/level UNKNOWN_FIELD", "/action INVALID", "/scope INVALID"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, problems := ParseRule(jsontext.Value(c.raw))
			var got []string
			for _, p := range problems {
				got = append(got, p.Path+" "+p.Code)
				if p.Detail == "" {
					t.Errorf("%s says nothing", p.Path)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s\ngot  %q\nwant %q", c.raw, got, c.want)
			}
			if !sameRule(r, events.Rule{}) {
				t.Errorf("a rule came along: %s", show(r))
			}
		})
	}
}

func TestProblemsAreShortAndPlain(t *testing.T) {
	long := strings.Repeat("б\n", 100_000)
	for _, p := range Problems(events.Rule{Action: long, MinLevel: level(0), Scope: &long}) {
		if len(p.Detail) > 600 || strings.ContainsFunc(p.Detail, func(r rune) bool { return r < ' ' || r > '~' }) {
			t.Errorf("%d bytes: %q", len(p.Detail), p.Detail)
		}
	}
}

// A rule that the log holds in whatever form can be read, and denies.
func TestAMalformedRuleInTheLogDenies(t *testing.T) {
	for _, raw := range []string{`null`, `[]`, `7`, `{}`, `{"action":["a"],"min_level":0}`, `{"action":"a","min_level":[0]}`, `{"action":"a","min_level":0,"scope":7}`} {
		var r events.Rule
		if err := json.Unmarshal([]byte(raw), &r); err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		d := Decide([]Rule{{ID: "old", Rule: r}, rule("r1", "a", 0)}, "a", actor(100), 1)
		if d.Verdict != events.Deny || d.Decisive.ReasonCode != events.ReasonRuleMalformed {
			t.Errorf("%s: %+v", raw, d)
		}
	}
}

func FuzzParseRule(f *testing.F) {
	for _, s := range []string{
		`{"action":"a","min_level":0}`,
		`{"action":"a.*","min_level":100,"matching_exempt_level":null,"scope":"team-a","why":"\u0000"}`,
		`{"action":"*","min_level":1e2,"Scope":7,"scope":"S","scope":null}`,
		`{"\u0061ction":"ext.A","min_level":-0,"why":"\ud800"}`,
		`{"action":"a","min_level":50}}`,
		"{\"action\":\"\xff\"",
		`[[[[`, `null`, ``, `{"":{}}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, problems := ParseRule(raw)
		for _, p := range problems {
			if p.Code == "" || p.Detail == "" || p.Path != "" && p.Path[0] != '/' {
				t.Errorf("%q: problem %+v", raw, p)
			}
		}
		// The oracle knows only the types: whatever it refuses is refused here too.
		var plain map[string]any
		err := json.Unmarshal(raw, &plain)
		if problems != nil {
			if !reflect.DeepEqual(r, events.Rule{}) {
				t.Errorf("%q: refused, and yet %s", raw, show(r))
			}
			return
		}
		if err != nil || plain == nil {
			t.Fatalf("%q is taken, and is no object: %v", raw, err)
		}
		for name, v := range plain {
			switch name {
			case "action", "min_level", "matching_exempt_level", "scope", "why":
			default:
				t.Errorf("%q is taken with the member %q = %v", raw, name, v)
			}
		}
		if plain["action"] != r.Action || plain["min_level"] != float64(*r.MinLevel) {
			t.Errorf("%q is taken as %s", raw, show(r))
		}
		if len(Problems(r)) > 0 {
			t.Errorf("%q is taken, with the problems %v", raw, Problems(r))
		}
		// What is taken is stored, and read back as it was.
		stored, err := json.Marshal(r)
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		var back events.Rule
		if err := json.Unmarshal(stored, &back); err != nil || !sameRule(back, r) {
			t.Errorf("%q: stored as %s, read back as %s (%v)", raw, stored, show(back), err)
		}
		if again, problems := ParseRule(stored); problems != nil || !sameRule(again, r) {
			t.Errorf("%q: stored as %s, which is refused: %v", raw, stored, problems)
		}
		// An exemption or a scope that is named is never lost.
		if (plain["matching_exempt_level"] != nil) != (r.MatchingExemptLevel != nil) || (plain["scope"] != nil) != (r.Scope != nil) {
			t.Errorf("%q is taken as %s", raw, show(r))
		}
	})
}
