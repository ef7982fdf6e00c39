package projections

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"time"

	"fleetledger/events"
)

// Token is what an actor shows to be known by: a bearer token in force, a pairing
// code that waits to be redeemed, or the device that it was redeemed for.
type Token struct {
	ID       string
	Actor    string
	IssuedAt events.Position
	// Use is that of a pairing code, and ExpiresAt its end. Both stay when it is
	// redeemed.
	Use       events.TokenUse
	ExpiresAt time.Time
	// Key is the device's Ed25519 key, nil if there is none.
	Key ed25519.PublicKey
}

// Bearer reports whether whoever shows the token is its actor.
func (t Token) Bearer() bool { return t.Use == "" }

// Device reports whether whoever signs with the token's key is its actor.
func (t Token) Device() bool { return len(t.Key) > 0 }

// applyToken is the token after r, an event of the stream of tokens that is about
// it; nil if it is in force no more, and before is nil if it was not yet.
func applyToken(before *Token, r events.Record, e events.Event) (*Token, error) {
	switch e := e.(type) {
	case events.TokenIssued:
		return &Token{ID: e.TokenID, Actor: e.Actor, IssuedAt: r.Header.Position, Use: e.Use, ExpiresAt: e.ExpiresAt}, nil
	case events.DevicePaired:
		key, err := base64.RawURLEncoding.Strict().DecodeString(e.PublicKey)
		if err != nil || len(key) != ed25519.PublicKeySize || before == nil || before.Use != events.PairingToken || before.Device() {
			return nil, fmt.Errorf("position %d: no pairing code %s waits for this device key", r.Header.Position, e.TokenID)
		}
		paired := *before
		paired.Key = key
		return &paired, nil
	}
	return nil, nil
}

func (tx *tx) applyToken(r events.Record) error {
	e, err := events.Decode(r)
	if err != nil {
		return err
	}
	var id string
	var hash events.Hash
	switch e := e.(type) {
	case events.TokenIssued:
		id, hash = e.TokenID, e.TokenHash
	case events.TokenRevoked:
		id = e.TokenID
	case events.DevicePaired:
		id = e.TokenID
	}
	before := tx.token(id)
	t, err := applyToken(before, r, e)
	if err != nil {
		return err
	}
	if tx.tokens == nil {
		tx.tokens = map[string]*Token{}
	}
	tx.tokens[id] = t
	revision := r.Header.Revision
	tx.effect(func(s *State) {
		s.tokensRevision = revision
		if !hash.IsZero() {
			s.tokenIDs[id] = hash
		}
		if t == nil {
			delete(s.tokens, s.tokenIDs[id])
			delete(s.tokenIDs, id)
			return
		}
		s.tokens[s.tokenIDs[id]] = *t
	})
	return nil
}

// token is the token of this id, as staged; nil if none is in force.
func (tx *tx) token(id string) *Token {
	if t, ok := tx.tokens[id]; ok {
		return t
	}
	if c, ok := tx.state.next.tokens[id]; ok {
		return c.value
	}
	if t, _, ok := tx.state.TokenByID(id); ok {
		return &t
	}
	return nil
}

// Token returns the token in force with this hash, and the revision of the stream
// of tokens at which it is.
func (s *State) Token(hash events.Hash) (Token, events.Revision, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	t, ok := s.tokens[hash]
	return t, s.tokensRevision, ok
}

// TokenByID returns the token in force with this id, and the revision as Token does.
func (s *State) TokenByID(id string) (Token, events.Revision, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	h, ok := s.tokenIDs[id]
	return s.tokens[h], s.tokensRevision, ok
}

// TokensOf lists an actor's tokens in force, oldest first.
func (s *State) TokensOf(actor string) []Token {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var out []Token
	for _, t := range s.tokens {
		if t.Actor == actor {
			out = append(out, t)
		}
	}
	slices.SortFunc(out, func(a, b Token) int { return int(int64(a.IssuedAt) - int64(b.IssuedAt)) })
	return out
}

// LoadTokensOf lists an actor's tokens that were in force at a position (0: now),
// oldest first.
func LoadTokensOf(ctx context.Context, log events.Log, actor string, at events.Position) ([]Token, error) {
	var tokens []Token
	for r, err := range log.ReadStream(ctx, events.TokensStream, 0) {
		if err != nil {
			return nil, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		e, err := events.Decode(r)
		if err != nil {
			return nil, err
		}
		id := ""
		switch e := e.(type) {
		case events.TokenIssued:
			if e.Actor != actor {
				continue
			}
			id = e.TokenID
		case events.DevicePaired:
			id = e.TokenID
		case events.TokenRevoked:
			id = e.TokenID
		}
		i := slices.IndexFunc(tokens, func(t Token) bool { return t.ID == id })
		var before *Token
		if i >= 0 {
			before = &tokens[i]
		} else if r.Header.Type != (events.TokenIssued{}).Kind() {
			continue // another actor's
		}
		switch t, err := applyToken(before, r, e); {
		case err != nil:
			return nil, err
		case t == nil:
			tokens = slices.Delete(tokens, i, i+1)
		case before != nil:
			*before = *t
		default:
			tokens = append(tokens, *t)
		}
	}
	return tokens, nil
}
