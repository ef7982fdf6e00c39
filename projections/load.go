package projections

import (
	"context"
	"slices"

	"fleetledger/events"
)

// LoadAuthority folds the authority stream up to position at (0: all of it).
func LoadAuthority(ctx context.Context, log events.Log, at events.Position) (*Authority, error) {
	auth := &Authority{}
	for r, err := range log.ReadStream(ctx, events.AuthorityStream, 0) {
		if err != nil {
			return nil, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		if auth, err = auth.apply(r, true); err != nil {
			return nil, err
		}
	}
	return auth, nil
}

// LoadSettings folds the settings stream up to position at (0: all of it).
func LoadSettings(ctx context.Context, log events.Log, at events.Position) (Settings, error) {
	s := DefaultSettings()
	for r, err := range log.ReadStream(ctx, events.SettingsStream, 0) {
		if err != nil {
			return s, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		if s, err = s.Apply(r); err != nil {
			return s, err
		}
	}
	return s, nil
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
		switch e := e.(type) {
		case events.TokenIssued:
			if e.Actor == actor {
				tokens = append(tokens, Token{ID: e.TokenID, Actor: actor, IssuedAt: r.Header.Position})
			}
		case events.TokenRevoked:
			tokens = slices.DeleteFunc(tokens, func(t Token) bool { return t.ID == e.TokenID })
		}
	}
	return tokens, nil
}
