package gate

import (
	"slices"
	"strings"
	"testing"

	"fleetledger/events"

	"pgregory.net/rapid"
)

// member is one actor of a fleet in a test.
type member struct {
	level        events.Level
	parent       string
	registeredBy string
	suspended    bool
}

type fleet map[string]member

func (f fleet) actor(id string) Actor {
	return Actor{ID: id, Level: f[id].level, Active: !f[id].suspended}
}

func (f fleet) kin(id string) Kin {
	k := Kin{ID: id, RegisteredBy: f[id].registeredBy}
	for p := f[id].parent; p != ""; p = f[p].parent {
		k.Ancestors = append(k.Ancestors, p)
		k.Backers = append(k.Backers, f[p].registeredBy)
	}
	return k
}

// mayApprove asks for one action with one rule.
func (f fleet) mayApprove(approver, requester string, r Rule, separate bool) (bool, string, string) {
	evaluations := []events.Decision{DecideAll([]Rule{r}, "deploy.prod", f.actor(approver), 1)}
	return MayApprove(f.actor(approver), f.kin(approver), f.actor(requester), f.kin(requester), evaluations, separate)
}

func TestMayApproveKin(t *testing.T) {
	// Everybody has level enough, so that only where they come from decides.
	// Agents act under people, and root registered the people.
	f := fleet{
		"root":     {level: 100},
		"ana":      {level: 90, registeredBy: "root"},
		"bo":       {level: 90, registeredBy: "root"},
		"bot":      {level: 90, parent: "ana", registeredBy: "ana"},
		"bot2":     {level: 90, parent: "ana", registeredBy: "ana"},
		"sub":      {level: 90, parent: "bot", registeredBy: "bot"},
		"sub2":     {level: 90, parent: "bot2", registeredBy: "root"},
		"bob-bot":  {level: 90, parent: "bo", registeredBy: "bo"},
		"puppet":   {level: 90, registeredBy: "ana"},
		"puppets":  {level: 90, parent: "puppet", registeredBy: "puppet"},
		"root-bot": {level: 90, parent: "root", registeredBy: "root"},
		"root-b2":  {level: 90, parent: "root", registeredBy: "root"},
		// Registered by ana, at bo's request and under him.
		"bo-by-ana": {level: 90, parent: "bo", registeredBy: "ana"},
	}
	for _, c := range []struct {
		name                string
		approver, requester string
		code                string // empty: may
		separated           string // the code under separation of duties
	}{
		{"nobody approves their own request", "ana", "ana", ApproverIsRequester, ApproverIsRequester},
		{"two whom root registered are not related", "bo", "ana", "", ""},
		{"root may approve whom it registered", "root", "ana", "", ""},
		{"who was registered by root may not approve root", "ana", "root", ApproverRegistered, ApproverRegistered},
		{"a child may not", "bot", "ana", ApproverDerived, ApproverDerived},
		{"a grandchild may not", "sub", "ana", ApproverDerived, ApproverDerived},
		{"nor one registered by somebody else", "sub2", "ana", ApproverDerived, ApproverDerived},
		{"a parent may, unless duties are separate", "ana", "bot", "", ApproverIsAncestor},
		{"a grandparent may, unless duties are separate", "ana", "sub", "", ApproverIsAncestor},
		{"a child of root is approved by root", "root", "root-bot", "", ApproverIsAncestor},
		{"siblings may not", "bot2", "bot", ApproverSibling, ApproverSibling},
		{"siblings under root may not", "root-b2", "root-bot", ApproverSibling, ApproverSibling},
		{"cousins may not", "sub2", "sub", ApproverSibling, ApproverSibling},
		{"an uncle may not", "bot2", "sub", ApproverSibling, ApproverSibling},
		{"a nephew may not", "sub2", "bot", ApproverSibling, ApproverSibling},
		{"another's agent may", "bob-bot", "bot", "", ""},
		{"another's agent may, for a person", "bob-bot", "ana", "", ""},
		{"another person may, for an agent", "bo", "sub", "", ""},
		{"one whom the requester registered may not", "puppet", "ana", ApproverRegistered, ApproverRegistered},
		{"nor one who acts under it", "puppets", "ana", ApproverRegistered, ApproverRegistered},
		{"nor one registered under somebody else", "bo-by-ana", "ana", ApproverRegistered, ApproverRegistered},
		{"who registered may approve", "ana", "puppet", "", ""},
		{"who registered its ancestor may approve", "ana", "puppets", "", ""},
		{"having the same registrar is not being related", "puppet", "bot", "", ""},
		{"agents of root and of others are not related", "root-bot", "bot", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, separate := range []bool{false, true} {
				want := c.code
				if separate {
					want = c.separated
				}
				ok, code, why := f.mayApprove(c.approver, c.requester, rule("r1", "deploy.prod", 0), separate)
				if ok != (want == "") || code != want || ok != (why == "") {
					t.Errorf("separation of duties %t: %t %s %q, want %q", separate, ok, code, why, want)
				}
				if !ok && !strings.Contains(why, c.requester) {
					t.Errorf("the reason does not name the requester: %s", why)
				}
			}
		})
	}
}

func TestMayApproveEntitlement(t *testing.T) {
	f := fleet{
		"root":     {level: 100},
		"ordinary": {level: 49}, "captain": {level: 50}, "captain2": {level: 69}, "admin": {level: 70}, "admin2": {level: 89}, "system": {level: 90},
		"gone": {level: 100, suspended: true}, "broken": {level: 101},
	}
	for _, c := range []struct {
		name                string
		approver, requester string
		rule                Rule
		code                string
		why                 string
	}{
		{"the floor of the band above", "captain", "ordinary", rule("r1", "deploy.*", 0), "", ""},
		{"one's own band is not enough", "captain2", "captain", rule("r1", "deploy.*", 0), ApproverLevelTooLow,
			"captain2 has level 69, and to approve what captain (level 50, captain) asks takes level 70"},
		{"for captains, org_admins", "admin", "captain2", rule("r1", "deploy.*", 0), "", ""},
		{"for org_admins, system_admins", "admin2", "admin", rule("r1", "deploy.*", 0), ApproverLevelTooLow,
			"admin2 has level 89, and to approve what admin (level 70, org_admin) asks takes level 90"},
		{"system_admins answer each other", "system", "root", rule("r1", "deploy.*", 0), "", ""},
		{"nobody grants what they may not do", "captain", "ordinary", rule("r1", "deploy.*", 51), ApproverNotAllowed,
			"captain may not do deploy.prod itself: level 50 is below 51, the minimum of rule r1"},
		{"nor what they are outside of", "system", "ordinary", rule("r1", "deploy.*", 0).in("ops"), ApproverNotAllowed,
			"system may not do deploy.prod itself: actor system is not a member of ops, which rule r1 asks for"},
		{"but an exemption counts", "system", "ordinary", rule("r1", "deploy.*", 0).in("ops").exempt(90), "", ""},
		{"nobody grants past a malformed rule", "root", "ordinary", rule("r1", "deploy.*", 101), ApproverNotAllowed,
			"root may not do deploy.prod itself: rule r1 is malformed and denies: its min_level is not an integer from 0 to 100"},
		{"nobody grants what no rule covers", "root", "ordinary", rule("r1", "build.*", 0), ApproverNotAllowed,
			"root may not do deploy.prod itself: no rule covers deploy.prod, and what no rule covers is denied"},
		{"not active", "gone", "ordinary", rule("r1", "deploy.*", 0), ApproverNotActive, "gone is suspended or not registered"},
		{"an unusable level is not a high one", "broken", "ordinary", rule("r1", "deploy.*", 0), ApproverLevelTooLow,
			"broken has no usable level, and to approve what ordinary asks takes level 50"},
		{"what an unusable level asks is denied", "root", "broken", rule("r1", "deploy.*", 0), RequesterLevelUnusable,
			"broken has no usable level, so nobody can approve what it asks: set a level from 0 to 100"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ok, code, why := f.mayApprove(c.approver, c.requester, c.rule, false)
			if ok != (c.code == "") || code != c.code || why != c.why {
				t.Errorf("%t %s %q, want %s %q", ok, code, why, c.code, c.why)
			}
		})
	}
}

func TestMayApproveLooksAtEveryAction(t *testing.T) {
	f := fleet{"ana": {level: 10}, "bo": {level: 60}, "cy": {level: 60}}
	rules := []Rule{rule("r1", "deploy.a", 0), rule("r2", "deploy.b", 0), rule("r3", "deploy.b", 61), rule("r4", "deploy.b", 0)}
	of := func(id, action string) events.Decision { return DecideAll(rules, action, f.actor(id), 1) }
	for _, c := range []struct {
		name        string
		evaluations []events.Decision
		code, why   string
	}{
		{"one that is allowed", []events.Decision{of("bo", "deploy.a")}, "", ""},
		{"one of two is not, past its first rule", []events.Decision{of("bo", "deploy.a"), of("bo", "deploy.b")}, ApproverNotAllowed,
			"bo may not do deploy.b itself: level 60 is below 61, the minimum of rule r3"},
		{"none at all", nil, ApproverNotAllowed, "bo was evaluated for no action, and nobody grants what they may not do themselves"},
		{"somebody else's", []events.Decision{of("bo", "deploy.a"), of("cy", "deploy.a")}, ApproverNotAllowed,
			"the evaluation of deploy.a is that of cy, not of bo"},
		{"one without a verdict", []events.Decision{{Actor: "bo", Action: "deploy.a"}}, ApproverNotAllowed, `bo may not do deploy.a itself: its verdict is ""`},
	} {
		ok, code, why := MayApprove(f.actor("bo"), f.kin("bo"), f.actor("ana"), f.kin("ana"), c.evaluations, false)
		if ok != (c.code == "") || code != c.code || why != c.why {
			t.Errorf("%s: %t %s %q, want %s %q", c.name, ok, code, why, c.code, c.why)
		}
	}
}

func TestMayApproveWithTheWrongKinIsABug(t *testing.T) {
	f := fleet{"ana": {level: 10}, "bo": {level: 60}}
	for _, kin := range [][2]Kin{{f.kin("ana"), f.kin("ana")}, {f.kin("bo"), f.kin("bo")}, {{}, f.kin("ana")}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("no panic with the kin %+v", kin)
				}
			}()
			MayApprove(f.actor("bo"), kin[0], f.actor("ana"), kin[1], nil, false)
		}()
	}
}

// In a random fleet the relation is decided by walking up from both, one step
// at a time.
func TestMayApproveInAnyFleet(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g"}
	rapid.Check(t, func(t *rapid.T) {
		f := fleet{"a": {level: 100}}
		for i := 1; i < len(names); i++ {
			m := member{level: 100, registeredBy: rapid.SampledFrom(names[:i]).Draw(t, "registrar of "+names[i])}
			if rapid.Bool().Draw(t, names[i]+" is derived") {
				m.parent = rapid.SampledFrom(names[:i]).Draw(t, "parent of "+names[i])
			}
			f[names[i]] = m
		}
		approver, requester := rapid.SampledFrom(names).Draw(t, "approver"), rapid.SampledFrom(names).Draw(t, "requester")
		separate := rapid.Bool().Draw(t, "separate")

		var line func(string) []string // an actor and what it acts under
		line = func(id string) []string {
			if id == "" {
				return nil
			}
			return append(line(f[id].parent), id)
		}
		up, down := line(approver), line(requester)
		made := func(id string) bool { return f[id].registeredBy == requester }
		sharesRoot := up[0] == down[0] // the same tree: they share an ancestor, or one is the other's
		above := approver != requester && slices.Contains(down, approver)
		want := !slices.ContainsFunc(up, made) && (!sharesRoot || above && !separate)

		ok, code, _ := f.mayApprove(approver, requester, rule("r1", "deploy.*", 0), separate)
		if ok != want {
			t.Fatalf("%s for %s in %+v: %t %s, want %t", approver, requester, f, ok, code, want)
		}
	})
}
