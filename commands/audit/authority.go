package audit

import (
	"slices"

	"fleetledger/commands"
	"fleetledger/commands/gate"
	"fleetledger/events"
)

// authorityChange holds an event to the limits on changing authority, which no gate
// knows and no approval lifts.
func (a *auditor) authorityChange(r events.Record, e events.Event) {
	by := r.Header.Actor
	switch e := e.(type) {
	case events.ActorLevelSet:
		a.mayChange(r, e.ID)
		if me := commands.Standing(a.before, by).Level; e.AuthorityLevel > me {
			a.find(r, Decision, me, e.AuthorityLevel, "%s gave %s a level above its own", by, e.ID)
		}
	case events.ActorScopesChanged:
		a.mayChange(r, e.ID)
		parent := ""
		if x := a.before.Actor(e.ID); x != nil {
			parent = x.Parent
		}
		a.scopes(r, e.ID, parent, e.Added)
	case events.ActorSuspended:
		a.mayChange(r, e.ID)
	case events.ActorReinstated:
		a.mayChange(r, e.ID)
	case events.RuleWritten:
		a.ruleWritten(r, e)
		if !(gate.Rule{Rule: e.Rule}).Covers("rule.retire") {
			return // it keeps nobody from that
		}
	case events.RuleRetired:
		if x := a.before.Rule(e.RuleID); x != nil {
			a.ruleFloor(r, x.Rule)
		}
	case events.TokenIssued:
		a.tokenIssued(r, e)
		return
	case events.TokenRevoked:
		// One that was revoked before is in force no more: older programs recorded that.
		if t, _, ok := a.rebuilt.TokenByID(e.TokenID); ok && t.Actor != e.Actor {
			a.find(r, Decision, t.Actor, e.Actor, "the token is not %s's", e.Actor)
		}
		if e.Permit != nil {
			a.mayChange(r, e.Actor)
		}
		return
	default:
		return
	}
	a.changed = r.Header
}

// mayChange holds whoever changes an actor to its standing beside it.
func (a *auditor) mayChange(r events.Record, target string) {
	if by := r.Header.Actor; !commands.MayChange(a.before, by, target) {
		a.find(r, Decision, nil, target, "%s is neither above %s nor an ancestor of it", by, target)
	}
}

// scopes holds what an actor is given to what its registrar and its parent have.
func (a *auditor) scopes(r events.Record, id, parent string, given []string) {
	if s := commands.NotGiven(a.before, r.Header.Actor, given); s != "" {
		a.find(r, Decision, nil, s, "%s gave %s a scope that it lacks itself", r.Header.Actor, id)
	}
	if parent == "" {
		return
	}
	has := commands.Standing(a.before, parent).Scopes
	for _, s := range given {
		if !slices.Contains(has, s) {
			a.find(r, Decision, nil, s, "%s was given a scope that its parent %s lacks", id, parent)
		}
	}
}

// registration holds a new actor to what its registrar may hand on.
func (a *auditor) registration(r events.Record, e events.ActorRegistered) {
	a.registering = &e
	by := r.Header.Actor
	if level := commands.Standing(a.before, by).Level; e.AuthorityLevel > level {
		a.find(r, Decision, level, e.AuthorityLevel, "%s registered %s above its own level", by, e.ID)
	}
	action, may := commands.RegisterAction(a.before, by, e.Parent)
	if asked := e.Permit.Decision.Action; asked != action {
		a.find(r, Decision, action, asked, "the gate was asked about another action than that of this registration")
	}
	if !may || e.Parent != "" && !a.before.Active(e.Parent) {
		a.find(r, Decision, nil, e.Parent, "%s registered %s under an actor that it may not name", by, e.ID)
	}
	a.scopes(r, e.ID, e.Parent, e.Scopes)
	if !events.ValidID(e.ID) || e.Type == events.Machine && len(e.Scopes) > 1 {
		a.find(r, Decision, nil, e.ID, "no actor can be registered like this")
	}
}

// ruleWritten holds a rule to its writer's level, or to the machine that it comes with.
func (a *auditor) ruleWritten(r events.Record, e events.RuleWritten) {
	switch {
	case e.Permit == nil:
	case e.Permit.Decision.Action == "rule.write":
		a.ruleFloor(r, e.Rule)
	default:
		m := a.registering
		if m == nil || m.Type != events.Machine || len(m.Scopes) != 1 || !sameRuleText(e.Rule, commands.MachineRule(m.ID, m.Scopes[0])) {
			a.find(r, Decision, nil, e.Rule.Action, "the rule is not that of a machine which is registered with it")
		}
	}
}

// sameRuleText compares what two rules ask for; why is for people.
func sameRuleText(a, b events.Rule) bool {
	return a.Action == b.Action && samePointed(a.MinLevel, b.MinLevel) && samePointed(a.MatchingExemptLevel, b.MatchingExemptLevel) && samePointed(a.Scope, b.Scope)
}

func samePointed[T comparable](a, b *T) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

func (a *auditor) ruleFloor(r events.Record, rule events.Rule) {
	if floor := commands.RuleFloor(rule, commands.Standing(a.before, r.Header.Actor).Level); floor != nil {
		a.find(r, Decision, *floor, nil, "%s is below a level of the rule, and so may neither write nor retire it", r.Header.Actor)
	}
}

// tokenIssued holds a token that its issuer does not issue to itself to the gate that
// was asked: of a registration, of a pairing, or of somebody else's tokens.
func (a *auditor) tokenIssued(r events.Record, e events.TokenIssued) {
	if e.Permit == nil {
		return
	}
	action := e.Permit.Decision.Action
	if m := a.registering; m != nil && m.ID == e.Actor {
		if m.Permit != nil && m.Permit.Decision.Action == action {
			return
		}
	} else if x := a.before.Actor(e.Actor); x != nil {
		a.mayChange(r, e.Actor)
		if action == "actor.token" || action == "actor.register" && e.Use == events.PairingToken && x.Kind == events.Machine {
			return
		}
	}
	a.find(r, Decision, nil, e.Actor, "a token was issued to %s by leave for something else", e.Actor)
}
