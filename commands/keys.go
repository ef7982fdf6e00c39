package commands

import (
	"context"
	"slices"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// AddKey records a key by which checkpoints of this ledger can be verified, in the
// form of golang.org/x/mod/sumdb/note. One that is recorded already is not
// recorded again.
func (l *Ledger) AddKey(ctx context.Context, verifier string) error {
	if _, err := seal.VerifierOrigin(verifier); err != nil {
		return err
	}
	return l.asRelay(ctx, func(v view) (decided, error) {
		keys, revision, err := l.keys(ctx)
		if err != nil || slices.Contains(keys, verifier) {
			return decided{}, err
		}
		d := decided{expect: []events.Expectation{{Stream: events.LedgerStream, Revision: revision}}}
		d.add(events.LedgerStream, v.newID(), events.KeyAdded{VerifierKey: verifier})
		return d, nil
	})
}

// Keys are the keys that were ever added, in that order.
func (l *Ledger) Keys(ctx context.Context) ([]string, error) {
	keys, _, err := l.keys(ctx)
	return keys, err
}

func (l *Ledger) keys(ctx context.Context) (keys []string, revision events.Revision, err error) {
	for r, err := range l.log.ReadStream(ctx, events.LedgerStream, 0) {
		if err != nil {
			return nil, 0, err
		}
		revision = r.Header.Revision
		if r.Header.Type != (events.KeyAdded{}).Kind() {
			continue
		}
		e, err := events.DecodeAs[events.KeyAdded](r)
		if err != nil {
			return nil, 0, err
		}
		keys = append(keys, e.VerifierKey)
	}
	return keys, revision, nil
}
