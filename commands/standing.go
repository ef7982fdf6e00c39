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

// decide asks the gate about one action of one actor.
func (v view) decide(action, actor string) events.Decision {
	return v.list.decide(action, actor)
}

var systemAdmin = gate.SystemAdmin.Floor()

// aboveOrAncestor refuses a caller who may not change the target: its level
// must be strictly above the target's (100 may act on 100), or the target its
// own descendant.
func (v view) aboveOrAncestor(target string) error {
	me, it := v.me(), Standing(v.auth, target)
	if slices.Contains(v.auth.Ancestors(target), v.caller.Actor) || me.Level > it.Level || me.Level == 100 {
		return nil
	}
	needs := fmt.Sprintf("a level above %d", it.Level)
	if it.Level == 100 {
		needs = "level 100"
	}
	return refuse(Forbidden, "LEVEL_NOT_ABOVE", "%s has level %d: changing %s needs %s, or to be its ancestor",
		me.ID, me.Level, target, needs).With("level", me.Level).With("target_level", it.Level)
}
