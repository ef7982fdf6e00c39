package commands

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"

	"fleetledger/events"
)

// IssueToken gives an actor another token.
type IssueToken struct {
	Actor string `json:"actor"`
}

// IssueToken carries out c. An actor's own tokens need no gate. Refusals:
// ACTOR_NOT_FOUND, ACTOR_NOT_ACTIVE, LEVEL_NOT_ABOVE, and what gates answer.
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
		t, revision, ok := l.state.TokenByID(c.TokenID)
		if !ok || t.Actor != c.Actor {
			return decided{}, refuse(NotFound, "TOKEN_NOT_FOUND", "actor %s has no token %q in force", c.Actor, c.TokenID)
		}
		return v.manageTokens(c.Actor, named("token.revoke", c), func(permit *events.Permit, d *decided) {
			// It is in force still: of two who revoke it one does.
			d.expect = append(d.expect, events.Expectation{Stream: events.TokensStream, Revision: revision})
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
		return d, v.active()
	}
	if err := v.aboveOrAncestor(actor); err != nil {
		return decided{}, err
	}
	return v.gated([]string{"actor.token"}, command, func(permits []events.Permit, d *decided) { changes(&permits[0], d) })
}

// issue makes a bearer token for an actor.
func (v view) issue(d *decided, actor string, permit *events.Permit) {
	var secret [32]byte
	v.random(secret[:])
	v.issueAs(d, base64.RawURLEncoding.EncodeToString(secret[:]), events.TokenIssued{Actor: actor, Permit: permit})
}

// issueAs makes a token with a secret. Its text names fleet and actor, and is
// shown once; its hash alone is recorded.
func (v view) issueAs(d *decided, secret string, t events.TokenIssued) {
	d.secret = v.auth.Fleet + "~" + t.Actor + "~" + secret
	t.TokenID, t.TokenHash = v.newID(), TokenHash(d.secret)
	d.add(events.TokensStream, v.newID(), t)
}

// TokenHash is what is kept of a token.
func TokenHash(token string) events.Hash { return sha256.Sum256([]byte(token)) }

// SplitToken takes apart the text of a token, of a pairing code or of a device's
// name: each is FLEET~ACTOR~REST. Everything is empty if it is not of the form.
func SplitToken(token string) (fleet, actor, rest string) {
	parts := strings.Split(token, "~")
	if len(parts) != 3 || !events.ValidID(parts[0]) || !events.ValidID(parts[1]) {
		return "", "", ""
	}
	return parts[0], parts[1], parts[2]
}
