package commands

import (
	"context"

	"fleetledger/events"
)

// IssueToken gives an actor another token.
type IssueToken struct {
	Actor string `json:"actor"`
}

// IssueToken carries out c. An actor's own tokens need no gate.
func (l *Ledger) IssueToken(ctx context.Context, caller Caller, c IssueToken) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		return v.manageTokens(c.Actor, named("token.issue", c), func(permit *events.Permit, d *decided) {
			v.issue(d, c.Actor, permit)
		})
	})
}

// RevokeToken ends a token.
type RevokeToken struct {
	Actor   string `json:"actor"`
	TokenID string `json:"token_id"`
}

// RevokeToken carries out c. Refusals: TOKEN_NOT_FOUND, and as IssueToken.
func (l *Ledger) RevokeToken(ctx context.Context, caller Caller, c RevokeToken) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		if t, ok := l.state.TokenByID(c.TokenID); !ok || t.Actor != c.Actor {
			return decided{}, refuse(NotFound, "TOKEN_NOT_FOUND", "actor %s has no token %q in force", c.Actor, c.TokenID)
		}
		return v.manageTokens(c.Actor, named("token.revoke", c), func(permit *events.Permit, d *decided) {
			d.add(events.TokensStream, v.newID(), events.TokenRevoked{TokenID: c.TokenID, Actor: c.Actor, Permit: permit})
		})
	})
}

func (v view) manageTokens(actor string, command any, changes func(*events.Permit, *decided)) (decided, error) {
	if v.auth.Actor(actor) == nil {
		return decided{}, refuse(NotFound, "ACTOR_NOT_FOUND", "no actor %q", actor)
	}
	if actor == v.caller.Actor {
		var d decided
		changes(nil, &d)
		return d, nil
	}
	if err := v.aboveOrAncestor(actor); err != nil {
		return decided{}, err
	}
	return v.gated([]string{"actor.token"}, command, func(permits []events.Permit, d *decided) { changes(&permits[0], d) })
}
