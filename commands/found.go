package commands

import (
	"context"
	"fmt"

	"fleetledger/events"
	"fleetledger/projections"
)

// foundingRules are written when a fleet is founded. They are rules like any
// other and can be retired and replaced.
var foundingRules = []struct {
	action string
	floor  events.Level
	why    string
}{
	{"actor.register", 70, "org_admins register people, agents and machines"},
	{"actor.derive", 0, "anyone registers agents under itself"},
	{"actor.change", 70, "org_admins change levels and suspend"},
	{"actor.scope", 50, "captains say who belongs to their scopes"},
	{"actor.token", 70, "org_admins manage other actors' tokens"},
	{"rule.write", 70, "org_admins write rules"},
	{"rule.retire", 70, "org_admins retire rules"},
	{"fleet.configure", 90, "system_admins configure the fleet"},
	{"task.submit.*", 0, "anyone submits tasks; machines with a scope have a rule of their own"},
	{"task.cancel", 50, "captains cancel other actors' tasks"},
	{"memory.record", 0, "any machine remembers what it ran"},
	{"conclusion.record", 0, "any reader concludes"},
	{"memory.publish", 0, "anyone publishes blocks"},
	{"memory.consolidate", 0, "anyone consolidates records"},
	{"memory.accept.*", 0, "fields are accepted from any publisher"},
	{"collective.revise", 50, "captains revise the collective memory"},
	{"ext.*", 0, "agents record events of their own"},
	{"council.convene", 50, "captains convene councils"},
	{"council.take_part", 0, "anyone takes part in a council"},
	{"payload.erase", 90, "system_admins erase payloads"},
}

// Found starts a fleet on an empty log, in one append: the fleet, its actor root of
// level 100, the founding rules, and a token for root, which it returns.
func (l *Ledger) Found(ctx context.Context, fleet string) (Result, error) {
	if !events.ValidID(fleet) {
		return Result{}, invalid(badID("/fleet", fleet))
	}
	if l.log.Durable() != 0 {
		return Result{}, fmt.Errorf("the log has %d events already: a fleet is founded on an empty one", l.log.Durable())
	}
	v := l.view(Caller{Actor: "root"})
	named := *v.auth
	named.Fleet = fleet
	v.auth = &named
	var d decided
	d.add(events.AuthorityStream, v.newID(), events.FleetFounded{Fleet: fleet, LogID: v.newID()})
	d.add(events.AuthorityStream, v.newID(), events.ActorRegistered{
		ID: "root", Type: events.Human, AuthorityLevel: 100, EffectiveLevel: 100, Scopes: []string{},
	})
	for _, r := range foundingRules {
		d.add(events.AuthorityStream, v.newID(), events.RuleWritten{RuleID: v.newID(), Rule: events.Rule{Action: r.action, MinLevel: &r.floor, Why: r.why}})
	}
	v.issue(&d, "root", nil)
	a, err := l.append(ctx, v, d)
	return Result{Records: a.Records, Secret: d.secret}, err
}

// ResetRootToken gives root a new token and ends its old ones.
func (l *Ledger) ResetRootToken(ctx context.Context) (Result, error) {
	return l.execute(ctx, Caller{Actor: "root"}, func(v view) (decided, error) {
		var d decided
		v.issue(&d, "root", nil)
		for _, t := range l.state.TokensOf("root") {
			d.add(events.TokensStream, v.newID(), events.TokenRevoked{TokenID: t.ID, Actor: "root"})
		}
		return d, nil
	})
}

// Authenticate returns the actor of a bearer token, and whether the token is in
// force. Whether the actor may do anything is for the gate.
func (l *Ledger) Authenticate(token string) (projections.Token, bool) {
	t, _, ok := l.state.Token(TokenHash(token))
	return t, ok && t.Bearer()
}
