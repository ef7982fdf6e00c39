package gate

import (
	"fmt"
	"os"
	"testing"

	"fleetledger/events"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The worked cases of the model, with the right answers.
type vectors struct {
	Evaluate        []ruleCase `json:"evaluate"`
	MalformedRules  []ruleCase `json:"malformed_rules"`
	UnusableLevels  []ruleCase `json:"unusable_levels"`
	EvaluateAll     []listCase `json:"evaluate_all"`
	Bands           []bandCase `json:"bands"`
	MayApproveCases []struct {
		Approver vectorActor `json:"approver"`
		Subject  vectorActor `json:"subject"`
		Want     struct {
			OK       bool         `json:"ok"`
			Required events.Level `json:"required"`
		} `json:"want"`
	} `json:"may_approve"`
	Derive []struct {
		Parent vectorActor `json:"parent"`
		Child  struct {
			Level *events.Level `json:"level"`
			Cap   *events.Level `json:"cap"`
		} `json:"child"`
		Want struct {
			Level  events.Level `json:"level"`
			Capped bool         `json:"capped"`
		} `json:"want"`
	} `json:"derive"`
}

type vectorActor struct {
	ID      string       `json:"id"`
	Level   events.Level `json:"level"`
	InScope bool         `json:"in_scope"`
}

type ruleCase struct {
	Rule  jsontext.Value `json:"rule"`
	Actor vectorActor    `json:"actor"`
	Want  struct {
		Verdict    events.Verdict    `json:"verdict"`
		Exempt     bool              `json:"exempt"`
		ReasonCode events.ReasonCode `json:"reason_code"`
	} `json:"want"`
}

type listCase struct {
	Rules []events.Rule `json:"rules"`
	Actor vectorActor   `json:"actor"`
	Want  struct {
		Verdict            events.Verdict     `json:"verdict"`
		Evaluated          int                `json:"evaluated"`
		DecisiveIndex      *int               `json:"decisive_index"`
		DecisiveReasonCode *events.ReasonCode `json:"decisive_reason_code"`
	} `json:"want"`
}

type bandCase struct {
	Level                 events.Level `json:"level"`
	Band                  Band         `json:"band"`
	RequiredApproverLevel events.Level `json:"required_approver_level"`
}

// actor is a member of every scope of the vectors, or of none.
func (a vectorActor) actor() Actor {
	out := Actor{ID: a.ID, Level: a.Level, Active: true}
	if out.ID == "" {
		out.ID = "ana"
	}
	if a.InScope {
		out.Scopes = []string{"org", "team-a"}
	}
	return out
}

func readVectors(t *testing.T) vectors {
	t.Helper()
	b, err := os.ReadFile("testdata/authority.json")
	if err != nil {
		t.Fatal(err)
	}
	var v vectors
	if err := json.Unmarshal(b, &v, json.RejectUnknownMembers(true)); err != nil {
		t.Fatal(err)
	}
	for name, n := range map[string]int{
		"evaluate": len(v.Evaluate), "malformed_rules": len(v.MalformedRules), "unusable_levels": len(v.UnusableLevels),
		"evaluate_all": len(v.EvaluateAll), "bands": len(v.Bands), "may_approve": len(v.MayApproveCases), "derive": len(v.Derive),
	} {
		if n == 0 {
			t.Fatalf("the vectors have no cases of %s", name)
		}
	}
	return v
}

func TestVectorsEvaluate(t *testing.T) {
	v := readVectors(t)
	check := func(group string, malformed bool, cases []ruleCase) {
		for i, c := range cases {
			t.Run(fmt.Sprintf("%s/%d", group, i), func(t *testing.T) {
				var r events.Rule
				if err := json.Unmarshal(c.Rule, &r); err != nil {
					t.Fatalf("%s: %v", c.Rule, err)
				}
				got := Evaluate(Rule{ID: "r1", Rule: r}, c.Actor.actor())
				if got.Verdict != c.Want.Verdict || got.Exempt != c.Want.Exempt || got.ReasonCode != c.Want.ReasonCode {
					t.Errorf("rule %s, actor %+v: %+v, want %+v", c.Rule, c.Actor, got, c.Want)
				}
				parsed, problems := ParseRule(c.Rule)
				if (len(problems) > 0) != malformed {
					t.Errorf("ParseRule(%s) names %v", c.Rule, problems)
				}
				if !malformed && !sameRule(parsed, r) {
					t.Errorf("ParseRule(%s) = %s, the log reads %s", c.Rule, show(parsed), show(r))
				}
				if (len(Problems(r)) > 0) != malformed {
					t.Errorf("Problems(%s) = %v", c.Rule, Problems(r))
				}
			})
		}
	}
	check("evaluate", false, v.Evaluate)
	check("malformed_rules", true, v.MalformedRules)
	check("unusable_levels", false, v.UnusableLevels)
}

func TestVectorsEvaluateAll(t *testing.T) {
	for i, c := range readVectors(t).EvaluateAll {
		rules := make([]Rule, len(c.Rules))
		for i, r := range c.Rules {
			rules[i] = Rule{ID: fmt.Sprintf("r%d", i), Rule: r}
		}
		d := Decide(rules, "goal.create", c.Actor.actor(), 7)
		if d.Verdict != c.Want.Verdict || len(d.Evaluated) != c.Want.Evaluated {
			t.Errorf("case %d: %s after %d rules, want %s after %d", i, d.Verdict, len(d.Evaluated), c.Want.Verdict, c.Want.Evaluated)
		}
		if c.Want.DecisiveIndex == nil {
			if d.Decisive != nil {
				t.Errorf("case %d: decisive is %+v, want none", i, *d.Decisive)
			}
			continue
		}
		if d.Decisive == nil || d.Decisive.RuleID == nil {
			t.Errorf("case %d: no decisive rule", i)
			continue
		}
		if want := rules[*c.Want.DecisiveIndex].ID; *d.Decisive.RuleID != want || d.Decisive.ReasonCode != *c.Want.DecisiveReasonCode {
			t.Errorf("case %d: decisive is %s with %s, want %s with %s", i, *d.Decisive.RuleID, d.Decisive.ReasonCode, want, *c.Want.DecisiveReasonCode)
		}
	}
}

func TestVectorsBands(t *testing.T) {
	for _, c := range readVectors(t).Bands {
		if got := BandOf(c.Level); got != c.Band {
			t.Errorf("BandOf(%d) = %s, want %s", c.Level, got, c.Band)
		}
		if got := RequiredApproverLevel(c.Level); got != c.RequiredApproverLevel {
			t.Errorf("RequiredApproverLevel(%d) = %d, want %d", c.Level, got, c.RequiredApproverLevel)
		}
	}
}

func TestVectorsMayApprove(t *testing.T) {
	for i, c := range readVectors(t).MayApproveCases {
		approver, requester := c.Approver.actor(), c.Subject.actor()
		// No floor of a rule's own in these cases: whoever is evaluated is allowed.
		open := []events.Decision{DecideAll([]Rule{rule("r1", "goal.create", 0)}, "goal.create", approver, 1)}
		ok, code, why := MayApprove(approver, Kin{ID: approver.ID}, requester, Kin{ID: requester.ID}, open, false)
		if ok != c.Want.OK || ok != (code == "") || ok != (why == "") {
			t.Errorf("case %d: %+v for %+v: %t %s %q, want %t", i, c.Approver, c.Subject, ok, code, why, c.Want.OK)
		}
		if got := RequiredApproverLevel(requester.Level); got != c.Want.Required {
			t.Errorf("case %d: level %d is required, want %d", i, got, c.Want.Required)
		}
	}
}

func TestVectorsDerive(t *testing.T) {
	for i, c := range readVectors(t).Derive {
		level, capped, reason := Derive(c.Child.Level, c.Parent.Level, c.Child.Cap)
		if level != c.Want.Level || capped != c.Want.Capped || capped != (reason != "") {
			t.Errorf("case %d: %d %t %q, want %d %t", i, level, capped, reason, c.Want.Level, c.Want.Capped)
		}
	}
}
