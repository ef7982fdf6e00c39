package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// maxKeysInForce is a key and the one that comes after it, of one relay.
const maxKeysInForce = 2

// AddKey records a key by which checkpoints of this ledger can be verified, in the
// form of golang.org/x/mod/sumdb/note, as the relay: that of a new log, or of one
// whose keys are lost. One that is recorded already is not recorded again.
func (l *Ledger) AddKey(ctx context.Context, verifier string) error {
	if _, err := seal.VerifierOrigin(verifier); err != nil {
		return err
	}
	return l.asRelay(ctx, func(v view) (decided, error) {
		keys, revision, err := l.keys(ctx)
		if err != nil || slices.ContainsFunc(keys, func(k seal.RingKey) bool { return k.Verifier == verifier }) {
			return decided{}, err
		}
		d := decided{expect: []events.Expectation{{Stream: events.LedgerStream, Revision: revision}}}
		d.add(events.LedgerStream, v.newID(), events.KeyAdded{VerifierKey: verifier})
		return d, nil
	})
}

// Keys are the keys that were ever added, in that order.
func (l *Ledger) Keys(ctx context.Context) (seal.Keyring, error) {
	keys, _, err := l.keys(ctx)
	return keys, err
}

func (l *Ledger) keys(ctx context.Context) (seal.Keyring, events.Revision, error) {
	l.ring.mu.Lock()
	defer l.ring.mu.Unlock()
	for r, err := range l.log.ReadStream(ctx, events.LedgerStream, l.ring.revision) {
		if err != nil {
			return nil, 0, err
		}
		if err := l.ring.keys.Read(r); err != nil {
			return nil, 0, &events.CorruptError{Position: r.Header.Position, Detail: err.Error()}
		}
		l.ring.revision = r.Header.Revision
	}
	return slices.Clone(l.ring.keys), l.ring.revision, nil
}

// ring is the keys as far as the ledger's stream was read for them.
type ring struct {
	mu       sync.Mutex
	keys     seal.Keyring
	revision events.Revision
}

// retired are those of some keys that the log has retired.
func (l *Ledger) retired(ctx context.Context, verifiers []string) ([]string, error) {
	keys, err := l.Keys(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, k := range keys {
		if k.Retired != 0 && slices.Contains(verifiers, k.Verifier) {
			out = append(out, k.Verifier)
		}
	}
	return out, nil
}

// dropRetired ends the use of this relay's keys that another relay has retired. A new
// one takes the place of the last.
func (l *Ledger) dropRetired(ctx context.Context) error {
	s := l.duty.sealer
	if s == nil {
		return nil
	}
	held := s.Verifiers()
	gone, err := l.retired(ctx, held)
	if err != nil || len(gone) == 0 {
		return err
	}
	if len(gone) == len(held) {
		err := s.Rotate(reader(l.random.Bytes), func(verifier string) (bool, error) {
			err := l.AddKey(ctx, verifier)
			return err == nil, err
		})
		if err != nil {
			return fmt.Errorf("a key for this relay, whose own was retired: %w", err)
		}
	}
	return s.Drop(gone...)
}

// RotateKey adds a key that signs the log's checkpoints beside the one there is.
type RotateKey struct {
	Reason string `json:"reason,omitzero"`
}

// RotateKey carries out c with the sealer that will sign with the key. Its action is
// fleet.configure, which every fleet has a rule for. Refusals: KEY_OVERLAP, INVALID,
// SECRET_IN_TEXT, and what gates answer.
func (l *Ledger) RotateKey(ctx context.Context, caller Caller, s *seal.Sealer, c RotateKey) (Result, error) {
	return l.changeKeys(ctx, caller, c.Reason, func(ctx context.Context, done func(Result, error) (bool, error)) error {
		return s.Rotate(reader(l.random.Bytes), func(verifier string) (bool, error) {
			return done(l.execute(ctx, caller, func(v view) (decided, error) {
				keys, revision, err := l.keys(ctx)
				if err != nil {
					return decided{}, err
				}
				in := keys.InForce()
				if l.duty.channel != nil { // the others are those of other relays
					held := s.Verifiers()
					in = slices.DeleteFunc(in, func(k seal.RingKey) bool { return !slices.Contains(held, k.Verifier) })
				}
				if len(in) >= maxKeysInForce {
					return decided{}, refuse(Conflict, "KEY_OVERLAP",
						"%d keys are in force already: retire one before another is added", len(in)).With("keys", ids(in))
				}
				d, err := v.gated([]string{"fleet.configure"}, named("key.rotate", c), func(permits []events.Permit, d *decided) {
					d.add(events.LedgerStream, v.newID(), events.KeyAdded{VerifierKey: verifier, Reason: c.Reason, Permit: &permits[0]})
				})
				d.expect = append(d.expect, events.Expectation{Stream: events.LedgerStream, Revision: revision})
				return d, err
			}))
		})
	})
}

// RetireKey ends the signing use of a key.
type RetireKey struct {
	// ID is that of seal.RingKey.
	ID     string `json:"key"`
	Reason string `json:"reason,omitzero"`
}

// RetireKey carries out c with the sealer that signs with the key. It is gated as
// RotateKey is. Refusals: KEY_NOT_FOUND, KEY_RETIRED, KEY_LAST, CHECKPOINT_BEHIND,
// INVALID, SECRET_IN_TEXT, and what gates answer.
func (l *Ledger) RetireKey(ctx context.Context, caller Caller, s *seal.Sealer, c RetireKey) (Result, error) {
	return l.changeKeys(ctx, caller, c.Reason, func(ctx context.Context, done func(Result, error) (bool, error)) error {
		keys, err := l.Keys(ctx)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(keys, func(k seal.RingKey) bool { return k.ID() == c.ID })
		if i < 0 {
			return refuse(NotFound, "KEY_NOT_FOUND", "the log names no key %+q; see GET /v1/keys", c.ID)
		}
		verifier := keys[i].Verifier
		return s.Retire(verifier, func(last seal.Checkpoint, signed []byte) (bool, error) {
			return done(l.execute(ctx, caller, func(v view) (decided, error) {
				keys, revision, err := l.keys(ctx)
				if err != nil {
					return decided{}, err
				}
				k, in := keys[i], keys.InForce() // keys stay in the ring
				switch {
				case k.Retired != 0:
					return decided{}, refuse(Conflict, "KEY_RETIRED", "key %s was retired at position %d", c.ID, k.Retired).With("position", k.Retired)
				case !slices.ContainsFunc(s.Verifiers(), func(held string) bool { return held != verifier }):
					return decided{}, refuse(Conflict, "KEY_LAST", "key %s is the only one that signs this log: add another first, with POST /v1/keys", c.ID)
				case last.Size < uint64(in[len(in)-1].Added) || uint64(l.log.Durable())-last.Size > events.MaxCheckpointLag/2:
					return decided{}, refuse(Unavailable, "CHECKPOINT_BEHIND",
						"the newest checkpoint has %d events: it does not show every key, or lies too far back; try again", last.Size).With("retry_after_s", 1)
				}
				d, err := v.gated([]string{"fleet.configure"}, named("key.retire", c), func(permits []events.Permit, d *decided) {
					d.add(events.LedgerStream, v.newID(), events.KeyRetired{
						VerifierKey: verifier, Reason: c.Reason, Size: int64(last.Size), Checkpoint: string(signed), Permit: permits[0],
					})
				})
				d.expect = append(d.expect, events.Expectation{Stream: events.LedgerStream, Revision: revision})
				return d, err
			}))
		})
	})
}

// changeKeys does what RotateKey and RetireKey have in common. change tells done
// what came of the command; done tells a sealer whether the event is recorded, or
// that nobody knows.
func (l *Ledger) changeKeys(ctx context.Context, caller Caller, reason string, change func(ctx context.Context, done func(Result, error) (bool, error)) error) (Result, error) {
	if len(reason) > maxReason {
		return Result{}, invalid(problem("/reason", "OUT_OF_RANGE", "has %d bytes, at most %d are kept", len(reason), maxReason))
	}
	if err := noSecretsInText("the reason", text{"/reason", reason}); err != nil {
		return Result{}, err
	}
	if !caller.Key.IsZero() {
		if r, found, err := l.replayed(ctx, caller); found || err != nil {
			return r, err
		}
	}
	var res Result
	var refused error
	// A caller who goes away must not leave the sealer behind the log.
	err := change(context.WithoutCancel(ctx), func(r Result, err error) (bool, error) {
		res = r
		var refusal *Refusal
		if errors.As(err, &refusal) {
			refused = err
			return false, nil
		}
		_, added := r.Has(events.KeyAdded{}.Kind())
		_, retired := r.Has(events.KeyRetired{}.Kind())
		return added || retired, err
	})
	if err == nil {
		err = refused
	}
	return res, err
}

func ids(keys []seal.RingKey) []string {
	var out []string
	for _, k := range keys {
		out = append(out, k.ID())
	}
	return out
}

// reader makes an io.Reader of what fills bytes.
type reader func(b []byte)

var _ io.Reader = reader(nil)

func (r reader) Read(b []byte) (int, error) {
	r(b)
	return len(b), nil
}
