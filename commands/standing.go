package commands

import (
	"fmt"
	"slices"

	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/projections"
)

// Standing is an actor as a gate sees it, at one revision of authority: its
// effective level is min(own, cap, parent's effective level), its scopes those
// that its parent has too. An unknown actor is not active.
func Standing(auth *projections.Authority, id string) gate.Actor {
	line := auth.Lineage(id)
	if len(line) == 0 {
		return gate.Actor{ID: id, Level: events.Unusable, Scopes: []string{}}
	}
	top := line[len(line)-1]
	a := gate.Actor{ID: id, Level: gate.Effective(top.Level, top.Cap, nil), Scopes: top.Scopes, Active: !top.Suspended}
	for _, x := range slices.Backward(line[:len(line)-1]) {
		a.Level = gate.Effective(x.Level, x.Cap, &a.Level)
		a.Active = a.Active && !x.Suspended
		parents := a.Scopes
		a.Scopes = slices.DeleteFunc(slices.Clone(x.Scopes), func(s string) bool { return !slices.Contains(parents, s) })
	}
	if a.Scopes == nil {
		a.Scopes = []string{}
	}
	return a
}

// Kin is the derivation of an actor, as the check of approvers needs it.
func Kin(auth *projections.Authority, id string) gate.Kin {
	k := gate.Kin{ID: id, Ancestors: auth.Ancestors(id)}
	if a := auth.Actor(id); a != nil {
		k.RegisteredBy = a.RegisteredBy
	}
	// Whoever stands behind an actor: its parent and its registrar, and whoever
	// stands behind these.
	seen := map[string]bool{id: true}
	for next := []string{id}; len(next) > 0; next = next[1:] {
		a := auth.Actor(next[0])
		if a == nil {
			continue
		}
		for _, behind := range []string{a.Parent, a.RegisteredBy} {
			if behind == "" || seen[behind] {
				continue
			}
			seen[behind] = true
			next = append(next, behind)
			if behind != k.RegisteredBy && !slices.Contains(k.Ancestors, behind) {
				k.Backers = append(k.Backers, behind)
			}
		}
	}
	return k
}

// Rules is the list of rules in force as the gate takes it.
func Rules(auth *projections.Authority) []gate.Rule {
	rules := make([]gate.Rule, len(auth.Rules))
	for i, r := range auth.Rules {
		rules[i] = gate.Rule{ID: r.ID, Rule: r.Rule}
	}
	return rules
}

// MayApprove evaluates an approver for what a requester asks, past every decisive
// rule. code is empty if it may settle it; else why says why not.
func MayApprove(auth *projections.Authority, rules []gate.Rule, separationOfDuties bool, approver, requester string, actions []string) (evaluations []events.Decision, code, why string) {
	a := Standing(auth, approver)
	for _, action := range actions {
		evaluations = append(evaluations, gate.DecideAll(rules, action, a, auth.Revision))
	}
	_, code, why = gate.MayApprove(a, Kin(auth, approver), Standing(auth, requester), Kin(auth, requester), evaluations, separationOfDuties)
	return evaluations, code, why
}

// isSelfOrDescendant reports whether id is of or below ancestor.
func isSelfOrDescendant(auth *projections.Authority, id, ancestor string) bool {
	return id == ancestor || slices.Contains(auth.Ancestors(id), ancestor)
}

// me is the caller's standing.
func (v view) me() gate.Actor { return Standing(v.auth, v.caller.Actor) }

// active refuses a caller that was suspended after it was let in, for what asks no gate.
func (v view) active() error {
	if v.auth.Active(v.caller.Actor) {
		return nil
	}
	return refuse(Forbidden, "ACTOR_NOT_ACTIVE", "%s is suspended, or an actor that it acts under is", v.caller.Actor).With("actor", v.caller.Actor)
}

// decide asks the gate about one action of one actor.
func (v view) decide(action, actor string) events.Decision {
	return v.list.decide(action, actor)
}

var systemAdmin = gate.SystemAdmin.Floor()

// MayChange reports whether an actor may change another: its level must be strictly
// above the target's (100 may act on 100), or the target its own descendant.
func MayChange(auth *projections.Authority, actor, target string) bool {
	me, it := Standing(auth, actor), Standing(auth, target)
	return slices.Contains(auth.Ancestors(target), actor) || me.Level > it.Level || me.Level == 100
}

// aboveOrAncestor refuses a caller who may not change the target.
func (v view) aboveOrAncestor(target string) error {
	if MayChange(v.auth, v.caller.Actor, target) {
		return nil
	}
	me, it := v.me(), Standing(v.auth, target)
	needs := fmt.Sprintf("a level above %d", it.Level)
	if it.Level == 100 {
		needs = "level 100"
	}
	return refuse(Forbidden, "LEVEL_NOT_ABOVE", "%s has level %d: changing %s needs %s, or to be its ancestor",
		me.ID, me.Level, target, needs).With("level", me.Level).With("target_level", it.Level)
}

// NotGiven returns the first of the scopes that an actor cannot give, since it lacks it
// and is no system_admin; "" if there is none.
func NotGiven(auth *projections.Authority, actor string, scopes []string) string {
	me := Standing(auth, actor)
	for _, s := range scopes {
		if me.Level < systemAdmin && !slices.Contains(me.Scopes, s) {
			return s
		}
	}
	return ""
}

// RuleFloor returns the first level of a rule that an actor of level me is below, and so
// may neither write nor retire it; nil if there is none.
func RuleFloor(r events.Rule, me events.Level) *events.Level {
	for _, floor := range []*events.Level{r.MinLevel, r.MatchingExemptLevel} {
		if floor != nil && me < *floor {
			return floor
		}
	}
	return nil
}

// LockedOut reports whether no active actor could retire a rule: such a fleet could
// never be mended.
func LockedOut(auth *projections.Authority) bool {
	rules := Rules(auth)
	return !slices.ContainsFunc(auth.Actors(), func(a *projections.Actor) bool {
		return gate.Decide(rules, "rule.retire", Standing(auth, a.ID), auth.Revision).Verdict == events.Allow
	})
}

// RegisterAction is the action of registering an actor under a parent ("" for none), and
// whether that parent may be named at all: an actor names itself or a descendant, only a
// system_admin another.
func RegisterAction(auth *projections.Authority, by, parent string) (action string, may bool) {
	switch {
	case parent == "":
		return "actor.register", true
	case isSelfOrDescendant(auth, parent, by):
		return "actor.derive", true
	}
	return "actor.register", Standing(auth, by).Level >= systemAdmin
}
