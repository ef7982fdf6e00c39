package commands

import (
	"context"
	"crypto/ed25519"
	"encoding/base32"
	"encoding/base64"
	"time"

	"fleetledger/events"
)

// PairMachine makes a pairing code, by which a machine registers the key of its
// device. A machine that is not registered is registered with it.
type PairMachine struct {
	ID             string        `json:"id"`
	AuthorityLevel *events.Level `json:"authority_level,omitzero"`
	Scopes         []string      `json:"scopes,omitzero"`
	Parent         string        `json:"parent,omitzero"`
	Cap            *events.Level `json:"cap,omitzero"`
	// ExpiresSeconds is how long the code may be redeemed; 0 means
	// StandardPairingSeconds.
	ExpiresSeconds int `json:"expires_s,omitzero"`
}

// How long a pairing code can be redeemed.
const (
	StandardPairingSeconds = 15 * 60
	MaxPairingSeconds      = 7 * 24 * 60 * 60
)

// PairMachine carries out c. The code is the result's Secret: only its hash is
// recorded. For a machine that is registered already, its level, scopes, parent
// and cap are left out; another device of it is paired then, and those that it has
// stay. Refusals: INVALID, ACTOR_EXISTS, LEVEL_NOT_ABOVE, and as RegisterActor.
func (l *Ledger) PairMachine(ctx context.Context, caller Caller, c PairMachine) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) { return c.decide(v) })
}

func (c PairMachine) decide(v view) (decided, error) {
	expires := c.ExpiresSeconds
	if expires == 0 {
		expires = StandardPairingSeconds
	}
	if expires < 1 || expires > MaxPairingSeconds {
		return decided{}, invalid(problem("/expires_s", "OUT_OF_RANGE", "is %d: a pairing code lives from 1 to %d s", expires, MaxPairingSeconds))
	}
	code := func(d *decided, permit *events.Permit) {
		var secret [16]byte
		v.random(secret[:])
		v.issueAs(d, pairingText.EncodeToString(secret[:]), events.TokenIssued{
			Actor: c.ID, Use: events.PairingToken, ExpiresAt: v.now.Add(time.Duration(expires) * time.Second), Permit: permit,
		})
	}
	machine := v.auth.Actor(c.ID)
	if machine == nil {
		if c.AuthorityLevel == nil && c.Parent == "" {
			none := events.Level(0)
			c.AuthorityLevel = &none
		}
		return RegisterActor{ID: c.ID, Kind: events.Machine, AuthorityLevel: c.AuthorityLevel, Scopes: c.Scopes, Parent: c.Parent, Cap: c.Cap}.
			register(v, named("machine.pair", c), code)
	}
	if machine.Kind != events.Machine {
		return decided{}, refuse(Conflict, "ACTOR_EXISTS", "actor %s is registered already, and no machine: a device is a machine's", c.ID)
	}
	if c.AuthorityLevel != nil || c.Parent != "" || c.Cap != nil || len(c.Scopes) > 0 {
		return decided{}, refuse(Conflict, "ACTOR_EXISTS", "machine %s is registered already: to pair another device of it, name nothing but its id", c.ID)
	}
	if c.ID == v.caller.Actor {
		var d decided
		code(&d, nil)
		return d, v.active()
	}
	if err := v.aboveOrAncestor(c.ID); err != nil {
		return decided{}, err
	}
	return v.gated([]string{"actor.register"}, named("machine.pair", c), func(permits []events.Permit, d *decided) { code(d, &permits[0]) })
}

// pairingText is how a code's secret is written: it can be read out and typed.
var pairingText = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

// RedeemPairing registers the key of a device, once per code.
type RedeemPairing struct {
	Code string `json:"code"`
	// PublicKey is a raw Ed25519 key in base64url without padding.
	PublicKey string `json:"public_key"`
}

// RedeemPairing carries out c. Whoever has the code is its machine: caller.Actor is
// the one that the code names. Refusals: INVALID, and PAIRING_INVALID, which does
// not tell a code that never was from one that was used or has expired.
func (l *Ledger) RedeemPairing(ctx context.Context, caller Caller, c RedeemPairing) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		key, err := base64.RawURLEncoding.Strict().DecodeString(c.PublicKey)
		if err != nil || len(key) != ed25519.PublicKeySize {
			return decided{}, invalid(problem("/public_key", "INVALID_KEY", "is not a raw Ed25519 public key, %d bytes, in base64url without padding", ed25519.PublicKeySize))
		}
		t, revision, ok := l.state.Token(TokenHash(c.Code))
		if !ok || t.Use != events.PairingToken || t.Device() || t.Actor != v.caller.Actor || !v.auth.Active(t.Actor) || !v.now.Before(t.ExpiresAt) {
			return decided{}, refuse(Unknown, "PAIRING_INVALID", "the pairing code is not in force: it was never made, was redeemed or revoked, or has expired; ask for another")
		}
		d := decided{before: t.ExpiresAt, expect: []events.Expectation{{Stream: events.TokensStream, Revision: revision}}}
		d.add(events.TokensStream, v.newID(), events.DevicePaired{TokenID: t.ID, Actor: t.Actor, PublicKey: c.PublicKey})
		return d, nil
	})
}
