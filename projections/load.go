package projections

import (
	"context"

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
