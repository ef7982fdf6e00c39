package commands

import (
	"context"

	"fleetledger/events"
)

// WriteRule adds a rule at the end of the list. The rule is well formed: see
// gate.ParseRule.
type WriteRule struct {
	Rule events.Rule `json:"rule"`
}

// WriteRule carries out c. Refusals: RULE_ABOVE_OWN_LEVEL, SECRET_IN_TEXT, LOCKOUT,
// and what gates answer.
func (l *Ledger) WriteRule(ctx context.Context, caller Caller, c WriteRule) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		if err := v.mayTouchRule(c.Rule); err != nil {
			return decided{}, err
		}
		texts := []text{{"/action", c.Rule.Action}, {"/why", c.Rule.Why}}
		if c.Rule.Scope != nil {
			texts = append(texts, text{"/scope", *c.Rule.Scope})
		}
		if err := noSecretsInText("the rule", texts...); err != nil {
			return decided{}, err
		}
		return v.gatedAuthority([]string{"rule.write"}, named("rule.write", c), func(permits []events.Permit, d *decided) {
			d.add(events.AuthorityStream, v.newID(), events.RuleWritten{RuleID: v.newID(), Rule: c.Rule, Permit: &permits[0]})
		})
	})
}

// RetireRule takes a rule out of the list.
type RetireRule struct {
	RuleID string `json:"rule_id"`
}

// RetireRule carries out c. Refusals: RULE_NOT_FOUND, RULE_ABOVE_OWN_LEVEL,
// LOCKOUT, and what gates answer.
func (l *Ledger) RetireRule(ctx context.Context, caller Caller, c RetireRule) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		r := v.auth.Rule(c.RuleID)
		if r == nil {
			return decided{}, refuse(NotFound, "RULE_NOT_FOUND", "no rule %q is in force; see GET /v1/rules", c.RuleID)
		}
		if err := v.mayTouchRule(r.Rule); err != nil {
			return decided{}, err
		}
		return v.gatedAuthority([]string{"rule.retire"}, named("rule.retire", c), func(permits []events.Permit, d *decided) {
			d.add(events.AuthorityStream, v.newID(), events.RuleRetired{RuleID: c.RuleID, Permit: permits[0]})
		})
	})
}

// mayTouchRule refuses a caller below the rule's own floors.
func (v view) mayTouchRule(r events.Rule) error {
	me := v.me()
	if floor := RuleFloor(r, me.Level); floor != nil {
		return refuse(Forbidden, "RULE_ABOVE_OWN_LEVEL", "%s has level %d: writing or retiring this rule needs level %d", me.ID, me.Level, *floor).
			With("level", me.Level).With("required", *floor)
	}
	return nil
}
