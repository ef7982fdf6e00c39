package gate

import (
	"slices"
	"strconv"

	"fleetledger/events"
)

// Actor is what a gate needs to know of whoever asks.
type Actor struct {
	ID string
	// Level is the effective level, see Effective.
	Level events.Level
	// Scopes are the groups that the actor is known to be a member of.
	Scopes []string
	// Active is false for an actor that is suspended, has a suspended ancestor,
	// or is not registered.
	Active bool
}

// Rule is a rule of the list with its name. It is not a stored form: decoding
// JSON into it would lose the ID. What is stored is events.RuleWritten.
type Rule struct {
	ID string
	events.Rule
}

// Covers reports whether r has a say in action: its pattern matches, or is
// malformed, so that nobody can tell what it was written for. Decide gives the
// same answer for a list from which the rules that do not cover are left out.
func (r Rule) Covers(action string) bool { return ValidAction(action) && r.covers(action) }

// covers is Covers for a valid action.
func (r *Rule) covers(action string) bool {
	return matches(r.Action, action) || !ValidPattern(r.Action)
}

// Evaluate evaluates r for a, whatever the action, in the order that is the
// security property: exemption, membership, floor. An exemption skips the
// membership, never the floor. Whether a is active is not looked at.
func Evaluate(r Rule, a Actor) events.Evaluated {
	id := r.ID // a copy of its own, so that the result holds nothing else of r
	e := events.Evaluated{RuleID: &id}
	if problems := Problems(r.Rule); len(problems) > 0 {
		e.Verdict, e.ReasonCode = events.Deny, events.ReasonRuleMalformed
		e.Reason = "rule " + id + " is malformed and denies: "
		for i, p := range problems {
			if i > 0 {
				e.Reason += "; "
			}
			e.Reason += p.Detail
		}
		return e
	}
	if !a.Level.Usable() {
		e.Verdict, e.ReasonCode = events.Deny, events.ReasonLevelUnusable
		e.Reason = "actor " + a.ID + " has no usable level: only an integer from 0 to 100 is one"
		return e
	}
	floor := *r.MinLevel
	e.Exempt = r.MatchingExemptLevel != nil && a.Level >= *r.MatchingExemptLevel
	switch {
	case r.Scope != nil && !e.Exempt && !slices.Contains(a.Scopes, *r.Scope):
		e.Verdict, e.ReasonCode = events.NeedsApproval, events.ReasonOutOfScope
		e.Reason = "actor " + a.ID + " is not a member of " + *r.Scope + ", which rule " + id + " asks for"
		if r.MatchingExemptLevel != nil {
			e.Reason += " of everyone below level " + text(*r.MatchingExemptLevel)
		}
	case a.Level < floor:
		e.Verdict, e.ReasonCode = events.NeedsApproval, events.ReasonBelowMinimum
		e.Reason = "level " + text(a.Level) + " is below " + text(floor) + ", the minimum of rule " + id
		if e.Exempt {
			e.Reason += ", which holds for exempt actors too"
		}
	case e.Exempt:
		e.Verdict, e.ReasonCode = events.Allow, events.ReasonExempt
		e.Reason = "level " + text(a.Level) + " is not below " + text(*r.MatchingExemptLevel) + ", from which rule " + id +
			" exempts from membership, and meets its minimum " + text(floor)
	case r.Scope != nil:
		e.Verdict, e.ReasonCode = events.Allow, events.ReasonMeetsMinimum
		e.Reason = "actor " + a.ID + " is a member of " + *r.Scope + ", and level " + text(a.Level) + " meets " + text(floor) + ", the minimum of rule " + id
	default:
		e.Verdict, e.ReasonCode = events.Allow, events.ReasonMeetsMinimum
		e.Reason = "level " + text(a.Level) + " meets " + text(floor) + ", the minimum of rule " + id
	}
	return e
}

func text(l events.Level) string { return strconv.Itoa(int(l)) }

// Decide checks action by a against the rules of the list that cover it, in
// written order, and stops at the first that does not allow: that one is
// decisive. An actor that is not active, and an action that no rule covers, are
// denied by no rule. rev is the revision of the authority stream that rules and
// a were read at.
//
// The list may be filtered by Covers beforehand. The decision shares nothing
// with the arguments.
func Decide(rules []Rule, action string, a Actor, rev events.Revision) events.Decision {
	return decide(rules, action, a, rev, false)
}

// DecideAll is the evaluation of an approver: it goes past the decisive rule,
// so Evaluated holds every rule that covers the action. The verdict and the
// decisive rule are those of Decide: allow only if every rule allows.
func DecideAll(rules []Rule, action string, a Actor, rev events.Revision) events.Decision {
	return decide(rules, action, a, rev, true)
}

func decide(rules []Rule, action string, a Actor, rev events.Revision, all bool) events.Decision {
	d := events.Decision{
		Verdict: events.Allow,
		Action:  action,
		Actor:   a.ID,
		Level:   a.Level,
		// Never nil: an actor without scopes is recorded as [].
		Scopes:            append([]string{}, a.Scopes...),
		Evaluated:         make([]events.Evaluated, 0, min(len(rules), 2)), // mostly one or two cover
		AuthorityRevision: rev,
	}
	if !d.Level.Usable() {
		d.Level = events.Unusable // the one form that the log reads back
	}
	stop := func(e events.Evaluated) {
		d.Verdict, d.Decisive = e.Verdict, &e
	}
	if !a.Active {
		stop(events.Evaluated{
			Verdict:    events.Deny,
			ReasonCode: events.ReasonActorNotActive,
			Reason:     "actor " + a.ID + " is suspended or not registered",
		})
		return d
	}
	if !ValidAction(action) {
		stop(events.Evaluated{
			Verdict:    events.Deny,
			ReasonCode: events.ReasonNoRule,
			Reason:     strconv.Quote(action) + " is not the name of an action, so no rule covers it",
		})
		return d
	}
	for i := range rules {
		if !rules[i].covers(action) {
			continue
		}
		e := Evaluate(rules[i], a)
		d.Evaluated = append(d.Evaluated, e)
		if e.Verdict == events.Allow || d.Decisive != nil {
			continue
		}
		stop(e)
		if !all {
			return d
		}
	}
	if len(d.Evaluated) == 0 {
		stop(events.Evaluated{
			Verdict:    events.Deny,
			ReasonCode: events.ReasonNoRule,
			Reason:     "no rule covers " + action + ", and what no rule covers is denied",
		})
	}
	return d
}

// RequiredLevel is the level that the queue shows for an approval of action:
// the larger of what the requester's band asks for and the highest minimum
// among the rules that cover the action. It is what an approver needs at
// least; MayApprove decides.
func RequiredLevel(rules []Rule, action string, requester events.Level) events.Level {
	required := RequiredApproverLevel(requester)
	if !ValidAction(action) {
		return required
	}
	for i := range rules {
		if floor := rules[i].MinLevel; floor != nil && floor.Usable() && rules[i].covers(action) {
			required = max(required, *floor)
		}
	}
	return required
}
