package commands_test

import (
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
)

func TestRegisterActor(t *testing.T) {
	for _, c := range []struct {
		name string
		by   string
		cmd  commands.RegisterActor
		// code is the refusal, empty if it is carried out with this level.
		code   string
		level  events.Level
		capped bool
	}{
		{"root registers", "root", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(40)}, "", 40, false},
		{"at the caller's own level", "olga", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(80)}, "", 80, false},
		{"above the caller's own level", "olga", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(81)}, "ABOVE_OWN_LEVEL", 0, false},
		{"taken id", "root", commands.RegisterActor{ID: "ana", Kind: events.Human, AuthorityLevel: level(1)}, "ACTOR_EXISTS", 0, false},
		{"upper case id", "root", commands.RegisterActor{ID: "Bo", Kind: events.Human, AuthorityLevel: level(1)}, "INVALID", 0, false},
		{"look-alike id", "root", commands.RegisterActor{ID: "rооt", Kind: events.Human, AuthorityLevel: level(1)}, "INVALID", 0, false},
		{"the relay's own name", "root", commands.RegisterActor{ID: events.RelayActor, Kind: events.Human, AuthorityLevel: level(1)}, "INVALID", 0, false},
		{"unusable level", "root", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(101)}, "INVALID", 0, false},
		{"unusable cap", "root", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(1), Cap: level(-1)}, "INVALID", 0, false},
		{"no level and no parent", "root", commands.RegisterActor{ID: "bo", Kind: events.Human}, "INVALID", 0, false},
		{"unknown kind", "root", commands.RegisterActor{ID: "bo", Kind: "robot", AuthorityLevel: level(1)}, "INVALID", 0, false},
		{"unknown parent", "root", commands.RegisterActor{ID: "bo", Kind: events.Agent, Parent: "nobody"}, "INVALID", 0, false},
		{"derived takes the parent's level", "ana", commands.RegisterActor{ID: "ana.bot", Kind: events.Agent, Parent: "ana"}, "", 20, false},
		{"derived is reduced to the parent", "ana", commands.RegisterActor{ID: "ana.bot", Kind: events.Agent, Parent: "ana", AuthorityLevel: level(90)}, "", 20, true},
		{"derived is reduced to the cap", "carl", commands.RegisterActor{ID: "bot", Kind: events.Agent, Parent: "carl", AuthorityLevel: level(50), Cap: level(30)}, "", 30, true},
		{"under somebody else", "olga", commands.RegisterActor{ID: "bot", Kind: events.Agent, Parent: "ana"}, "PARENT_NOT_YOURS", 0, false},
		{"a system_admin may name another parent", "root", commands.RegisterActor{ID: "bot", Kind: events.Agent, Parent: "ana"}, "", 20, false},
		{"a scope the parent lacks", "ana", commands.RegisterActor{ID: "bot", Kind: events.Agent, Parent: "ana", Scopes: []string{"team-a"}}, "INVALID", 0, false},
		{"a scope the caller lacks", "olga", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(1), Scopes: []string{"team-a"}}, "SCOPE_NOT_HELD", 0, false},
		{"a scope twice", "root", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(1), Scopes: []string{"a", "a"}}, "INVALID", 0, false},
		{"a machine of two scopes", "root", commands.RegisterActor{ID: "m2", Kind: events.Machine, AuthorityLevel: level(1), Scopes: []string{"a", "b"}}, "INVALID", 0, false},
		{"by an ordinary actor", "ana", commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(1)}, "202", 0, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			do := func() (commands.Result, error) { return w.RegisterActor(w.ctx(), as(c.by), c.cmd) }
			switch c.code {
			case "":
				r := w.ok(do())
				e := first[events.ActorRegistered](w, r)
				if e.AuthorityLevel != c.level || e.EffectiveLevel != c.level || e.Capped != c.capped {
					t.Errorf("got level %d, effective %d, capped %t", e.AuthorityLevel, e.EffectiveLevel, e.Capped)
				}
				if _, ok := w.Authenticate(r.Secret); !ok {
					t.Error("the token is not in force")
				}
			case "202":
				r := w.ok(do())
				if got := kindsOf(r); got != "gate.decided approval.requested" {
					t.Errorf("got %s", got)
				}
				if w.State().Authority().Actor(c.cmd.ID) != nil {
					t.Error("registered without its approval")
				}
			default:
				w.refused(c.code, do)
			}
		})
	}
}

func TestMachineOfAScopeGetsItsRule(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10, "team-a")
	w.register("root", "inside", events.Human, 10, "team-a")
	for by, want := range map[string]string{
		"inside": "task.submitted task.opened",
		"olga":   "task.submitted task.opened", // exempt
		"ana":    "task.submitted gate.decided approval.requested",
	} {
		r := w.ok(w.SubmitTask(w.ctx(), as(by), task([]string{"go"}, "m2")))
		if got := kindsOf(r); got != want {
			t.Errorf("%s: got %s, want %s", by, got, want)
		}
	}
}

func TestChangeActor(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name, by string
		cmd      commands.ChangeActor
		code     string
		kinds    string
	}{
		{"lower another", "olga", commands.ChangeActor{ID: "carl", AuthorityLevel: level(30)}, "", "actor.level_set"},
		{"no higher than oneself", "olga", commands.ChangeActor{ID: "carl", AuthorityLevel: level(81)}, "ABOVE_OWN_LEVEL", ""},
		{"nobody raises itself", "olga", commands.ChangeActor{ID: "olga", AuthorityLevel: level(90)}, "LEVEL_NOT_ABOVE", ""},
		{"an equal is not below", "olga", commands.ChangeActor{ID: "otto", AuthorityLevel: level(10)}, "LEVEL_NOT_ABOVE", ""},
		{"100 may act on 100", "root", commands.ChangeActor{ID: "root2", AuthorityLevel: level(99)}, "", "actor.level_set"},
		{"several at once", "root", commands.ChangeActor{ID: "ana", AuthorityLevel: level(30), AddScopes: []string{"a"}, Suspended: &yes}, "", "actor.level_set actor.scopes_changed actor.suspended"},
		{"what is so already", "root", commands.ChangeActor{ID: "ana", AuthorityLevel: level(20), Suspended: &no, RemoveScopes: []string{"zz"}}, "", ""},
		{"nothing asked", "root", commands.ChangeActor{ID: "ana"}, "INVALID", ""},
		{"unknown", "root", commands.ChangeActor{ID: "nobody", Suspended: &yes}, "ACTOR_NOT_FOUND", ""},
		{"a scope one lacks", "olga", commands.ChangeActor{ID: "ana", AddScopes: []string{"a"}}, "SCOPE_NOT_HELD", ""},
		{"added and removed", "root", commands.ChangeActor{ID: "ana", AddScopes: []string{"a"}, RemoveScopes: []string{"a"}}, "INVALID", ""},
		{"one's own descendant", "ana", commands.ChangeActor{ID: "ana.bot", AuthorityLevel: level(5)}, "", "gate.decided approval.requested"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			w.register("root", "otto", events.Human, 80)
			w.register("root", "root2", events.Human, 100)
			w.derive("ana", "ana.bot", nil)
			do := func() (commands.Result, error) { return w.ChangeActor(w.ctx(), as(c.by), c.cmd) }
			if c.code != "" {
				w.refused(c.code, do)
				return
			}
			if got := kindsOf(w.ok(do())); got != c.kinds {
				t.Errorf("got %q, want %q", got, c.kinds)
			}
		})
	}
}

func TestLoweringAParentReachesItsDescendants(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.derive("olga", "olga.bot", nil)
	w.derive("olga.bot", "olga.bot.sub", nil)
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "olga", AuthorityLevel: level(30)}))
	if got := commands.Standing(w.State().Authority(), "olga.bot.sub"); got.Level != 30 || !got.Active {
		t.Errorf("got %+v", got)
	}
	yes := true
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "olga", Suspended: &yes}))
	if commands.Standing(w.State().Authority(), "olga.bot.sub").Active {
		t.Error("a descendant of a suspended actor is active")
	}
	r := w.refused("DENIED", func() (commands.Result, error) {
		return w.SubmitTask(w.ctx(), as("olga.bot.sub"), task([]string{"go"}, "m1"))
	})
	if d := r.Facts["decision"].(events.Decision); d.Decisive.ReasonCode != events.ReasonActorNotActive {
		t.Errorf("got %+v", d.Decisive)
	}
}

func TestScopesShrinkWithTheParents(t *testing.T) {
	w := newWorld(t)
	w.register("root", "p", events.Human, 30, "a", "b")
	w.ok(w.RegisterActor(w.ctx(), as("p"), commands.RegisterActor{ID: "c", Kind: events.Agent, Parent: "p", Scopes: []string{"a", "b"}}))
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "p", RemoveScopes: []string{"a"}}))
	if got := commands.Standing(w.State().Authority(), "c").Scopes; len(got) != 1 || got[0] != "b" {
		t.Errorf("got %v", got)
	}
}

func TestRules(t *testing.T) {
	w := newWorld(t)
	w.people()
	high := w.rule("deploy.prod", 95)
	w.refused("RULE_ABOVE_OWN_LEVEL", func() (commands.Result, error) {
		return w.WriteRule(w.ctx(), as("olga"), commands.WriteRule{Rule: events.Rule{Action: "x", MinLevel: level(81)}})
	})
	w.refused("RULE_ABOVE_OWN_LEVEL", func() (commands.Result, error) {
		return w.WriteRule(w.ctx(), as("olga"), commands.WriteRule{Rule: events.Rule{Action: "x", MinLevel: level(1), MatchingExemptLevel: level(90)}})
	})
	w.refused("RULE_ABOVE_OWN_LEVEL", func() (commands.Result, error) {
		return w.RetireRule(w.ctx(), as("olga"), commands.RetireRule{RuleID: high})
	})
	w.ok(w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: high}))
	w.refused("RULE_NOT_FOUND", func() (commands.Result, error) {
		return w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: high})
	})
}

// Whatever would leave nobody able to retire a rule is refused, and never becomes
// an approval that would be.
func TestLockout(t *testing.T) {
	w := newWorld(t)
	yes := true
	var retire string
	for _, r := range w.State().Authority().Rules {
		if r.Rule.Action == "rule.retire" {
			retire = r.ID
		}
	}
	for name, do := range map[string]func() (commands.Result, error){
		"a scope nobody has": func() (commands.Result, error) {
			s := "nobody"
			return w.WriteRule(w.ctx(), as("root"), commands.WriteRule{Rule: events.Rule{Action: "rule.*", MinLevel: level(0), Scope: &s}})
		},
		"the last rule": func() (commands.Result, error) {
			return w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: retire})
		},
		"the last admin suspended": func() (commands.Result, error) {
			return w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "root", Suspended: &yes})
		},
		"the last admin lowered": func() (commands.Result, error) {
			return w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "root", AuthorityLevel: level(10)})
		},
	} {
		t.Run(name, func(t *testing.T) { w.refused("LOCKOUT", do) })
	}
}

func TestTokens(t *testing.T) {
	w := newWorld(t)
	w.people()
	own := w.ok(w.IssueToken(w.ctx(), as("ana"), commands.IssueToken{Actor: "ana"}))
	id := first[events.TokenIssued](w, own).TokenID
	if got, ok := w.Authenticate(own.Secret); !ok || got.Actor != "ana" {
		t.Fatalf("got %+v %t", got, ok)
	}
	if fleet, _, _ := commands.SplitToken(own.Secret); fleet != "default" {
		t.Errorf("the token %q does not name its fleet", own.Secret)
	}
	w.refused("LEVEL_NOT_ABOVE", func() (commands.Result, error) {
		return w.IssueToken(w.ctx(), as("ana"), commands.IssueToken{Actor: "carl"})
	})
	w.refused("TOKEN_NOT_FOUND", func() (commands.Result, error) {
		return w.RevokeToken(w.ctx(), as("root"), commands.RevokeToken{Actor: "carl", TokenID: id})
	})
	w.ok(w.RevokeToken(w.ctx(), as("root"), commands.RevokeToken{Actor: "ana", TokenID: id}))
	if _, ok := w.Authenticate(own.Secret); ok {
		t.Error("a revoked token is in force")
	}
	reset := w.ok(w.ResetRootToken(w.ctx()))
	if len(w.State().TokensOf("root")) != 1 {
		t.Error("root's old tokens are in force")
	}
	if _, ok := w.Authenticate(reset.Secret); !ok {
		t.Error("root's new token is not")
	}
}
