package commands

import (
	"context"
	"strconv"

	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/projections"
)

// Simulate decides under proposed rules, and records nothing.
type Simulate struct {
	// Rules replace the list in force; nil keeps it.
	Rules []events.Rule
	// After leaves out the decisions up to that position.
	After events.Position
	// MaxDifferences bounds how many differences are listed; all are counted.
	MaxDifferences int
}

// Simulated is what history would have been.
type Simulated struct {
	// To is the last position looked at.
	To events.Position
	// Decided counts the recorded decisions, Differ those that would differ.
	Decided, Differ int
	Differences     []Difference
}

// Difference is a recorded decision that the proposed rules decide otherwise.
type Difference struct {
	Position events.Position
	Was      events.Decision
	// WouldBe is decided with the level and scopes that the actor had then.
	WouldBe events.Decision
}

// rules is the proposed list; proposed rules are named by their place in it.
func (c Simulate) rules(inForce *projections.Authority) []gate.Rule {
	if c.Rules == nil {
		return Rules(inForce)
	}
	out := make([]gate.Rule, len(c.Rules))
	for i, r := range c.Rules {
		out[i] = gate.Rule{ID: ProposedRuleID(i), Rule: r}
	}
	return out
}

// ProposedRuleID names the proposed rule at index i.
func ProposedRuleID(i int) string { return "proposed-" + strconv.Itoa(i+1) }

// SimulateOne decides one action of one actor, as in force and as proposed.
// Refusals: INVALID, ACTOR_NOT_FOUND.
func (l *Ledger) SimulateOne(c Simulate, action, actor string) (inForce, proposed events.Decision, err error) {
	auth := l.state.Authority()
	if !gate.ValidAction(action) {
		return inForce, proposed, invalid(problem("/action", "INVALID_ACTION", "%q is not an action", action))
	}
	if auth.Actor(actor) == nil {
		return inForce, proposed, refuse(NotFound, "ACTOR_NOT_FOUND", "no actor %q", actor)
	}
	who := Standing(auth, actor)
	return gate.Decide(Rules(auth), action, who, auth.Revision), gate.Decide(c.rules(auth), action, who, auth.Revision), nil
}

// SimulateHistory decides every recorded decision again under the proposed rules,
// in one pass over the log. progress, if not nil, is called now and then.
func (l *Ledger) SimulateHistory(ctx context.Context, c Simulate, progress func(done events.Position)) (Simulated, error) {
	rules := c.rules(l.state.Authority())
	s := Simulated{To: c.After, Differences: []Difference{}}
	for r, err := range l.log.ReadAll(ctx, c.After) {
		if err != nil {
			return s, err
		}
		s.To = r.Header.Position
		if progress != nil && s.To%8192 == 0 {
			progress(s.To)
		}
		if r.Erased {
			continue
		}
		e, err := events.Decode(r)
		if err != nil {
			return s, err
		}
		for _, was := range DecisionsIn(e) {
			s.Decided++
			who := gate.Actor{ID: was.Actor, Level: was.Level, Scopes: was.Scopes,
				Active: was.Decisive == nil || was.Decisive.ReasonCode != events.ReasonActorNotActive}
			would := gate.Decide(rules, was.Action, who, was.AuthorityRevision)
			if would.Verdict == was.Verdict {
				continue
			}
			s.Differ++
			// Those of one event stay together: a list goes on behind a position.
			if n := len(s.Differences); n < c.MaxDifferences || s.Differences[n-1].Position == s.To {
				s.Differences = append(s.Differences, Difference{Position: s.To, Was: was, WouldBe: would})
			}
		}
	}
	return s, nil
}

// DecisionsIn lists the gate decisions that an event records about its actor's
// command, or about the publisher of what its actor accepts: not the evaluations of
// approvers.
func DecisionsIn(e events.Event) []events.Decision {
	permit := func(p *events.Permit) []events.Decision {
		if p == nil {
			return nil
		}
		return []events.Decision{p.Decision}
	}
	switch e := e.(type) {
	case events.ActorRegistered:
		return permit(e.Permit)
	case events.ActorLevelSet:
		return permit(&e.Permit)
	case events.ActorScopesChanged:
		return permit(&e.Permit)
	case events.ActorSuspended:
		return permit(&e.Permit)
	case events.ActorReinstated:
		return permit(&e.Permit)
	case events.RuleWritten:
		return permit(e.Permit)
	case events.RuleRetired:
		return permit(&e.Permit)
	case events.SettingsChanged:
		return permit(e.Permit)
	case events.SubscriptionCreated:
		return permit(&e.Permit)
	case events.SubscriptionPaused:
		return permit(&e.Permit)
	case events.SubscriptionResumed:
		return permit(&e.Permit)
	case events.SubscriptionRemoved:
		return permit(&e.Permit)
	case events.SubscriptionReplayed:
		return permit(&e.Permit)
	case events.SubscriptionParked:
		return permit(&e.Permit)
	case events.GateDecided:
		return []events.Decision{e.Decision}
	case events.TaskSubmitted:
		var out []events.Decision
		for _, g := range e.Gates {
			out = append(out, g.Decision)
		}
		return out
	case events.TaskCancelled:
		return permit(e.Permit)
	case events.MemoryRecorded:
		return permit(&e.Permit)
	case events.TokenIssued:
		return permit(e.Permit)
	case events.TokenRevoked:
		return permit(e.Permit)
	case events.ConclusionRecorded:
		return permit(&e.Permit)
	case events.MemoryConsolidated:
		return append(permit(&e.Permit), permit(e.ForAllPermit)...)
	case events.SectionRevised:
		return permit(&e.Permit)
	case events.SectionRetired:
		return permit(&e.Permit)
	case events.BlockPublished:
		return permit(&e.Permit)
	case events.BlockAccepted:
		return e.Decisions
	case events.PayloadErased:
		return permit(&e.Permit)
	case events.Ext:
		return permit(&e.Permit)
	}
	return nil
}
