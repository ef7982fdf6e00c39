package gate

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"fleetledger/events"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

func level(l events.Level) *events.Level { return &l }

// rule is a rule with a floor and nothing else.
func rule(id, action string, floor events.Level) Rule {
	return Rule{ID: id, Rule: events.Rule{Action: action, MinLevel: &floor}}
}

// in asks for membership of scope.
func (r Rule) in(scope string) Rule {
	r.Scope = &scope
	return r
}

// exempt exempts from l on.
func (r Rule) exempt(l events.Level) Rule {
	r.MatchingExemptLevel = &l
	return r
}

func actor(l events.Level, scopes ...string) Actor {
	return Actor{ID: "ana", Level: l, Scopes: scopes, Active: true}
}

func show(r events.Rule) string {
	b, err := json.Marshal(r)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func sameRule(a, b events.Rule) bool { return reflect.DeepEqual(a, b) }

func TestEvaluateOrder(t *testing.T) {
	const allow, needs, deny = events.Allow, events.NeedsApproval, events.Deny
	full := rule("r1", "a", 50).in("ops").exempt(80)
	for _, c := range []struct {
		name    string
		rule    Rule
		actor   Actor
		verdict events.Verdict
		code    events.ReasonCode
		exempt  bool
		reason  string
	}{
		{"a member at the floor", full, actor(50, "dev", "ops"), allow, "MEETS_MINIMUM", false,
			"actor ana is a member of ops, and level 50 meets 50, the minimum of rule r1"},
		{"a member below the floor", full, actor(49, "ops"), needs, "BELOW_MINIMUM", false,
			"level 49 is below 50, the minimum of rule r1"},
		{"membership is looked at before the floor", full, actor(49), needs, "OUT_OF_SCOPE", false,
			"actor ana is not a member of ops, which rule r1 asks for of everyone below level 80"},
		{"a level is no membership", full, actor(79), needs, "OUT_OF_SCOPE", false,
			"actor ana is not a member of ops, which rule r1 asks for of everyone below level 80"},
		{"an exemption at its own level skips membership", full, actor(80), allow, "EXEMPT", true,
			"level 80 is not below 80, from which rule r1 exempts from membership, and meets its minimum 50"},
		{"an exemption is looked at before membership", full, actor(80, "ops"), allow, "EXEMPT", true,
			"level 80 is not below 80, from which rule r1 exempts from membership, and meets its minimum 50"},
		{"an exemption never skips the floor", rule("r1", "a", 90).in("ops").exempt(80), actor(85), needs, "BELOW_MINIMUM", true,
			"level 85 is below 90, the minimum of rule r1, which holds for exempt actors too"},
		{"an absent exemption exempts nobody", rule("r1", "a", 50).in("ops"), actor(100), needs, "OUT_OF_SCOPE", false,
			"actor ana is not a member of ops, which rule r1 asks for"},
		{"an exemption at 0 exempts everybody", rule("r1", "a", 0).in("ops").exempt(0), actor(0), allow, "EXEMPT", true,
			"level 0 is not below 0, from which rule r1 exempts from membership, and meets its minimum 0"},
		{"an exemption shows without a scope too", rule("r1", "a", 0).exempt(0), actor(0), allow, "EXEMPT", true,
			"level 0 is not below 0, from which rule r1 exempts from membership, and meets its minimum 0"},
		{"without a scope everybody is in", rule("r1", "a", 50), actor(50), allow, "MEETS_MINIMUM", false,
			"level 50 meets 50, the minimum of rule r1"},
		{"a scope is compared as a whole", full, actor(60, "op", "ops2", "OPS"), needs, "OUT_OF_SCOPE", false,
			"actor ana is not a member of ops, which rule r1 asks for of everyone below level 80"},
		{"unusable level, where even 0 would do", rule("r1", "a", 0), actor(-1), deny, "ACTOR_LEVEL_UNUSABLE", false,
			"actor ana has no usable level: only an integer from 0 to 100 is one"},
		{"a level above 100 is not a high one", full, actor(101, "ops"), deny, "ACTOR_LEVEL_UNUSABLE", false,
			"actor ana has no usable level: only an integer from 0 to 100 is one"},
		{"a malformed rule comes before an unusable level", rule("r1", "a", 101), actor(101), deny, "RULE_MALFORMED", false,
			"rule r1 is malformed and denies: its min_level is not an integer from 0 to 100"},
		{"a malformed rule comes before everything", rule("r1", "a", 101).exempt(0), actor(100), deny, "RULE_MALFORMED", false,
			"rule r1 is malformed and denies: its min_level is not an integer from 0 to 100"},
		{"a malformed exemption denies where it would not be needed", rule("r1", "a", 0).exempt(101), actor(100), deny, "RULE_MALFORMED", false,
			"rule r1 is malformed and denies: its matching_exempt_level is not an integer from 0 to 100"},
		{"a malformed scope denies a member of it", rule("r1", "a", 0).in(""), actor(100, ""), deny, "RULE_MALFORMED", false,
			`rule r1 is malformed and denies: its scope "" is not an id like "team-a": a-z, 0-9, ".", "_" and "-", beginning with a letter or digit, at most 64 bytes`},
		{"no floor", Rule{ID: "r1", Rule: events.Rule{Action: "a"}}, actor(100), deny, "RULE_MALFORMED", false,
			"rule r1 is malformed and denies: its min_level is not an integer from 0 to 100"},
		{"every problem is named", rule("r1", "*", -1).exempt(-1), actor(100), deny, "RULE_MALFORMED", false,
			`rule r1 is malformed and denies: its action "*" is neither a name like "deploy.prod" nor a prefix like "deploy.*": segments of a-z, 0-9, _ and - between single dots, at most 160 bytes; ` +
				"its min_level is not an integer from 0 to 100; its matching_exempt_level is not an integer from 0 to 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			id := c.rule.ID
			want := events.Evaluated{RuleID: &id, Verdict: c.verdict, ReasonCode: c.code, Reason: c.reason, Exempt: c.exempt}
			if got := Evaluate(c.rule, c.actor); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	low, high, scoped := rule("low", "a.*", 10), rule("high", "a.x", 90), rule("scoped", "a.x", 0).in("ops")
	for _, c := range []struct {
		name      string
		rules     []Rule
		action    string
		actor     Actor
		verdict   events.Verdict
		code      events.ReasonCode // of the decisive one, empty for none
		decisive  string            // rule id, empty for none
		evaluated []string
	}{
		{"all allow", []Rule{low, high}, "a.x", actor(90), events.Allow, "", "", []string{"low", "high"}},
		{"the first to stop is decisive", []Rule{low, high, scoped}, "a.x", actor(50), events.NeedsApproval, "BELOW_MINIMUM", "high", []string{"low", "high"}},
		{"in the order written, not by floor", []Rule{scoped, high}, "a.x", actor(50), events.NeedsApproval, "OUT_OF_SCOPE", "scoped", []string{"scoped"}},
		{"a later rule does not weaken", []Rule{high, low}, "a.x", actor(50), events.NeedsApproval, "BELOW_MINIMUM", "high", []string{"high"}},
		{"rules of other actions are not looked at", []Rule{high, low, rule("b", "b", 100)}, "a.y", actor(10), events.Allow, "", "", []string{"low"}},
		{"no rule at all", nil, "a.x", actor(100), events.Deny, "NO_RULE", "", nil},
		{"no rule covers", []Rule{low, high}, "a", actor(100), events.Deny, "NO_RULE", "", nil},
		{"an action that is none", []Rule{low}, "a.*", actor(100), events.Deny, "NO_RULE", "", nil},
		{"not active", []Rule{low}, "a.x", Actor{ID: "ana", Level: 100}, events.Deny, "ACTOR_NOT_ACTIVE", "", nil},
		{"not active comes before no rule", nil, "a.x", Actor{ID: "ana", Level: 100}, events.Deny, "ACTOR_NOT_ACTIVE", "", nil},
		{"unusable level", []Rule{low, high}, "a.x", actor(101), events.Deny, "ACTOR_LEVEL_UNUSABLE", "low", []string{"low"}},
		{"no rule comes before an unusable level", nil, "a.x", actor(101), events.Deny, "NO_RULE", "", nil},
		{"a malformed rule that covers denies", []Rule{low, rule("bad", "a.x", 101), high}, "a.x", actor(100), events.Deny, "RULE_MALFORMED", "bad", []string{"low", "bad"}},
		{"a malformed rule of another action does not", []Rule{low, rule("bad", "b", 101)}, "a.x", actor(100), events.Allow, "", "", []string{"low"}},
		{"a rule with a malformed action denies every action", []Rule{low, rule("bad", "*", 0)}, "a.x", actor(100), events.Deny, "RULE_MALFORMED", "bad", []string{"low", "bad"}},
		{"even what nothing else covers", []Rule{rule("bad", "A", 0)}, "b", actor(100), events.Deny, "RULE_MALFORMED", "bad", []string{"bad"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Decide(c.rules, c.action, c.actor, 7)
			if d.Verdict != c.verdict || d.Action != c.action || d.Actor != "ana" || d.AuthorityRevision != 7 {
				t.Errorf("%+v, want verdict %s", d, c.verdict)
			}
			if got := evaluatedIDs(d); !slices.Equal(got, c.evaluated) {
				t.Errorf("evaluated %q, want %q", got, c.evaluated)
			}
			switch {
			case c.code == "":
				if d.Decisive != nil {
					t.Errorf("decisive is %+v, want none", *d.Decisive)
				}
			case d.Decisive == nil:
				t.Errorf("nothing is decisive, want %s", c.code)
			default:
				if id := d.Decisive.RuleID; (id == nil) != (c.decisive == "") || id != nil && *id != c.decisive {
					t.Errorf("decisive is %+v, want rule %q", *d.Decisive, c.decisive)
				}
				if d.Decisive.ReasonCode != c.code || d.Decisive.Verdict != c.verdict || d.Decisive.Reason == "" {
					t.Errorf("decisive is %+v, want %s %s", *d.Decisive, c.verdict, c.code)
				}
			}
		})
	}
}

func evaluatedIDs(d events.Decision) []string {
	var ids []string
	for _, e := range d.Evaluated {
		ids = append(ids, *e.RuleID)
	}
	return ids
}

func TestDecideAllGoesPastTheDecisiveRule(t *testing.T) {
	rules := []Rule{rule("r1", "a.x", 10), rule("r2", "a.*", 60), rule("r3", "b", 0), rule("r4", "a.x", 101), rule("r5", "a.x", 0)}
	d := DecideAll(rules, "a.x", actor(50), 7)
	if got, want := evaluatedIDs(d), []string{"r1", "r2", "r4", "r5"}; !slices.Equal(got, want) {
		t.Errorf("evaluated %q, want %q", got, want)
	}
	// The later deny does not replace the first that stopped.
	if d.Verdict != events.NeedsApproval || *d.Decisive.RuleID != "r2" {
		t.Errorf("%s by %s, want needs_approval by r2", d.Verdict, *d.Decisive.RuleID)
	}
}

func TestRequiredLevel(t *testing.T) {
	rules := []Rule{rule("r1", "a.*", 60), rule("r2", "a.x", 80), rule("r3", "b", 100), rule("r4", "a.x", 101), rule("r5", "a.x", 5)}
	for _, c := range []struct {
		action    string
		requester events.Level
		want      events.Level
	}{
		{"a.x", 0, 80},
		{"a.y", 0, 60},
		{"c", 0, 50},
		{"c", 50, 70},
		{"a.x", 50, 80},
		{"a.x", 70, 90},
		{"a.x", 100, 90},
		{"b", 100, 100},
		{"a.*", 0, 50},
		{"c", events.Unusable, 90},
	} {
		if got := RequiredLevel(rules, c.action, c.requester); got != c.want {
			t.Errorf("RequiredLevel(%s, %d) = %d, want %d", c.action, c.requester, got, c.want)
		}
	}
	if got := RequiredLevel([]Rule{rule("bad", "*", 95)}, "a", 0); got != 95 {
		t.Errorf("a rule that covers everything asks for 95, got %d", got)
	}
}

func TestDecisionsAreCompleteJSON(t *testing.T) {
	for name, d := range map[string]events.Decision{
		"not active": Decide(nil, "a", Actor{ID: "ana", Level: 101}, 3),
		"allowed":    Decide([]Rule{rule("r1", "a", 0)}, "a", actor(5), 3),
		"stopped":    Decide([]Rule{rule("r1", "a", 9)}, "a", actor(5, "ops"), 3),
		"past it":    DecideAll([]Rule{rule("r1", "a", 9), rule("r2", "a", 0)}, "a", actor(5, "ops"), 3),
	} {
		b, err := json.Marshal(d)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d.Scopes == nil || d.Evaluated == nil || strings.Contains(string(b), `"scopes":null`) || strings.Contains(string(b), `"evaluated":null`) {
			t.Errorf("%s: a list is null: %s", name, b)
		}
		// What the log gives back is the same decision.
		var back events.Decision
		if err := json.Unmarshal(b, &back); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if !reflect.DeepEqual(back, d) {
			t.Errorf("%s: read back as %+v, was %+v", name, back, d)
		}
	}
	if d := Decide(nil, "a", Actor{ID: "ana", Level: 101}, 3); d.Level != events.Unusable {
		t.Errorf("an unusable level is recorded as %d", d.Level)
	}
}

func TestADecisionSharesNothingWithItsArguments(t *testing.T) {
	rules, a := []Rule{rule("r1", "a", 60)}, actor(50, "ops")
	d := DecideAll(rules, "a", a, 1)
	rules[0].ID, a.Scopes[0] = "other", "other"
	*rules[0].MinLevel = 0
	d.Evaluated[0].Exempt = true
	if *d.Evaluated[0].RuleID != "r1" || *d.Decisive.RuleID != "r1" || d.Scopes[0] != "ops" || d.Decisive.Exempt {
		t.Errorf("the decision changed: %+v", d)
	}
}

// plainRule and plainDecide say the model once more, as simply as it can be
// said: pairs of numbers, no pointers, a table of the four questions.
type plainRule struct {
	id, action        string
	min, exempt       int // exempt is 1000 for nobody
	scope             string
	malformed, unread bool // unread: the action itself is malformed
}

type plainEvaluated struct {
	id, verdict, code string
	exempt            bool
}

func plainEvaluate(r plainRule, l int, member map[string]bool) plainEvaluated {
	exempt := l >= r.exempt
	in := r.scope == "" || member[r.scope]
	for _, row := range []struct {
		when          bool
		verdict, code string
		exempt        bool
	}{
		{r.malformed || r.unread, "deny", "RULE_MALFORMED", false},
		{l < 0 || l > 100, "deny", "ACTOR_LEVEL_UNUSABLE", false},
		{!exempt && !in, "needs_approval", "OUT_OF_SCOPE", false},
		{l < r.min, "needs_approval", "BELOW_MINIMUM", exempt},
		{exempt, "allow", "EXEMPT", true},
		{true, "allow", "MEETS_MINIMUM", false},
	} {
		if row.when {
			return plainEvaluated{r.id, row.verdict, row.code, row.exempt}
		}
	}
	panic("unreachable")
}

// plainDecide returns every rule evaluated and the index of the decisive one, -1
// for none.
func plainDecide(rules []plainRule, action string, l int, member map[string]bool) (all []plainEvaluated, decisive int) {
	decisive = -1
	for _, r := range rules {
		below := strings.TrimSuffix(r.action, "*")
		if !r.unread && r.action != action && (below == r.action || !strings.HasPrefix(action, below)) {
			continue
		}
		e := plainEvaluate(r, l, member)
		if e.verdict != "allow" && decisive < 0 {
			decisive = len(all)
		}
		all = append(all, e)
	}
	return all, decisive
}

func TestDecideAgreesWithThePlainModel(t *testing.T) {
	scopes := []string{"dev", "ops", "org"}
	rapid.Check(t, func(t *rapid.T) {
		var rules []Rule
		var plain []plainRule
		for i := range rapid.IntRange(0, 6).Draw(t, "rules") {
			p := plainRule{
				id:     fmt.Sprintf("r%d", i),
				action: rapid.SampledFrom([]string{"a", "a.*", "a.x", "a.x.*", "a.x.y", "b.*"}).Draw(t, "action"),
				min:    int(usableLevel().Draw(t, "min")),
				exempt: 1000,
			}
			r := rule(p.id, p.action, events.Level(p.min))
			if e := optional(t, usableLevel(), "exempt"); e != nil {
				p.exempt, r = int(*e), r.exempt(*e)
			}
			if s := optional(t, rapid.SampledFrom(scopes), "scope"); s != nil {
				p.scope, r = *s, r.in(*s)
			}
			switch rapid.IntRange(0, 19).Draw(t, "flaw") {
			case 0:
				p.malformed, r = true, r.exempt(101)
			case 1:
				p.malformed, r.MinLevel = true, nil
			case 2:
				p.malformed, r = true, r.in("Ops")
			case 3:
				p.unread, r.Action = true, rapid.SampledFrom([]string{"", "*", "a..x", "A.x", "a*"}).Draw(t, "bad action")
			}
			rules, plain = append(rules, r), append(plain, p)
		}
		a := Actor{ID: "ana", Level: anyLevel().Draw(t, "level"), Active: rapid.IntRange(0, 9).Draw(t, "active") > 0}
		member := map[string]bool{}
		for _, s := range scopes {
			if rapid.Bool().Draw(t, "member of "+s) {
				a.Scopes, member[s] = append(a.Scopes, s), true
			}
		}
		action := rapid.SampledFrom([]string{"a", "a.x", "a.x.y", "a.z", "ax", "b", "b.x", "c"}).Draw(t, "action")

		want, decisive := plainDecide(plain, action, int(a.Level), member)
		if !a.Active {
			want, decisive = nil, -1
		}
		first, all := Decide(rules, action, a, 3), DecideAll(rules, action, a, 3)
		if got := plainOf(all); !slices.Equal(got, want) {
			t.Fatalf("DecideAll evaluated %+v, want %+v", got, want)
		}
		upTo := want
		if decisive >= 0 {
			upTo = want[:decisive+1]
		}
		if got := plainOf(first); !slices.Equal(got, upTo) {
			t.Fatalf("Decide evaluated %+v, want %+v", got, upTo)
		}
		if first.Verdict != all.Verdict || !reflect.DeepEqual(first.Decisive, all.Decisive) {
			t.Fatalf("Decide says %s by %+v, DecideAll %s by %+v", first.Verdict, first.Decisive, all.Verdict, all.Decisive)
		}
		code := events.ReasonCode("")
		switch {
		case !a.Active:
			code = events.ReasonActorNotActive
		case len(want) == 0:
			code = events.ReasonNoRule
		}
		switch {
		case code != "":
			if first.Verdict != events.Deny || first.Decisive == nil || first.Decisive.RuleID != nil || first.Decisive.ReasonCode != code {
				t.Fatalf("%s by %+v, want deny by no rule, %s", first.Verdict, first.Decisive, code)
			}
		case decisive < 0:
			if first.Verdict != events.Allow || first.Decisive != nil {
				t.Fatalf("%s by %+v, want allow by none", first.Verdict, first.Decisive)
			}
		case !reflect.DeepEqual(*first.Decisive, all.Evaluated[decisive]) || first.Verdict != first.Decisive.Verdict:
			t.Fatalf("%s by %+v, want %+v", first.Verdict, *first.Decisive, all.Evaluated[decisive])
		}

		// A list filtered beforehand gives the same decisions.
		covering := slices.DeleteFunc(slices.Clone(rules), func(r Rule) bool { return !r.Covers(action) })
		if again := Decide(covering, action, a, 3); !reflect.DeepEqual(again, first) {
			t.Fatalf("filtered: %+v, want %+v", again, first)
		}
		// So does deciding from what the log gives back.
		for i, r := range rules {
			b, err := json.Marshal(r.Rule)
			if err != nil {
				t.Fatal(err)
			}
			rules[i].Rule = events.Rule{}
			if err := json.Unmarshal(b, &rules[i].Rule); err != nil {
				t.Fatal(err)
			}
		}
		if again := DecideAll(rules, action, a, 3); !reflect.DeepEqual(again, all) {
			t.Fatalf("decided again: %+v, first %+v", again, all)
		}
		// And a rule more never turns a stop into an allow.
		if more := Decide(append(rules, rule("more", action, 0)), action, a, 3); decisive >= 0 && !reflect.DeepEqual(more, first) {
			t.Fatalf("with a rule more: %+v, before %+v", more, first)
		}
	})
}

func plainOf(d events.Decision) []plainEvaluated {
	var list []plainEvaluated
	for _, e := range d.Evaluated {
		list = append(list, plainEvaluated{*e.RuleID, string(e.Verdict), string(e.ReasonCode), e.Exempt})
	}
	return list
}

// founding is about as many rules as a fleet starts with.
func founding() []Rule {
	var rules []Rule
	for i, action := range []string{
		"actor.register", "actor.derive", "actor.change", "actor.scope", "actor.token", "rule.write", "rule.retire", "fleet.configure",
		"task.submit.*", "task.cancel", "memory.record", "conclusion.record", "memory.publish", "memory.consolidate", "memory.accept.*",
		"collective.revise", "ext.*", "council.convene", "council.take_part", "payload.erase",
	} {
		rules = append(rules, rule(fmt.Sprintf("0192-%d", i), action, 0))
	}
	return rules
}

// The list of what was evaluated, and for each rule a name and a reason; the
// actor's scopes.
func TestDecideAllocatesOnlyTheDecision(t *testing.T) {
	rules, a := founding(), actor(50, "ops")
	if n := testing.AllocsPerRun(100, func() { Decide(rules, "ext.build.done", a, 7) }); n > 4 {
		t.Errorf("%v allocations, want 4", n)
	}
}

func BenchmarkDecide(b *testing.B) {
	rules, a := founding(), actor(50, "ops")
	b.ReportAllocs()
	for b.Loop() {
		Decide(rules, "ext.build.done", a, 7)
	}
}
