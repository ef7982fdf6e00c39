package seal

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"fleetledger/events"
)

// Keyring has the keys that a log names, in the order in which it added them, and
// for which sizes each of them counts.
type Keyring []RingKey

// RingKey is a key of a Keyring. Until it is retired it counts for every size: for
// those before it was added too, since whoever signs a log today vouches for how it
// began.
type RingKey struct {
	Verifier string
	// Added is the position of the event that added it.
	Added events.Position
	// Retired is the position of the event that retired it, 0 for a key in force.
	// From then on it counts for checkpoints of at most Until events: of Last, the
	// last one it signed.
	Retired events.Position
	Until   uint64
	Last    []byte
}

// ID is the part of a verifier key that tells the keys of one log apart.
func (k RingKey) ID() string {
	parts := strings.SplitN(k.Verifier, "+", 3)
	if len(parts) < 3 {
		return k.Verifier
	}
	return parts[1]
}

// Counts reports whether the key counts for a checkpoint of this size.
func (k RingKey) Counts(size uint64) bool { return k.Retired == 0 || size <= k.Until }

// Read takes the next event of the log: it matters if it adds or retires a key. The
// error says why it cannot follow those before it.
func (r *Keyring) Read(rec events.Record) error {
	if rec.Header.Stream != events.LedgerStream {
		return nil
	}
	switch rec.Header.Type {
	case events.KeyAdded{}.Kind():
		e, err := events.DecodeAs[events.KeyAdded](rec)
		if err != nil {
			return err
		}
		origin, err := VerifierOrigin(e.VerifierKey)
		if err != nil {
			return err
		}
		if len(*r) > 0 {
			if is, _ := VerifierOrigin((*r)[0].Verifier); is != origin {
				return fmt.Errorf("the key is of %s, this log is %s", origin, is)
			}
		}
		if r.find(e.VerifierKey) != nil {
			return errors.New("the key was added before")
		}
		*r = append(*r, RingKey{Verifier: e.VerifierKey, Added: rec.Header.Position})
	case events.KeyRetired{}.Kind():
		e, err := events.DecodeAs[events.KeyRetired](rec)
		if err != nil {
			return err
		}
		k := r.find(e.VerifierKey)
		switch {
		case k == nil:
			return errors.New("the key was never added")
		case k.Retired != 0:
			return fmt.Errorf("the key was retired at position %d", k.Retired)
		case len(r.InForce()) == 1:
			return errors.New("it is the only key in force: nothing would sign the log")
		}
		last, err := r.Verify([]byte(e.Checkpoint))
		switch {
		case err != nil:
			return fmt.Errorf("the last checkpoint of the key: %w", err)
		case e.Size < 0 || last.Size != uint64(e.Size) || last.Size >= uint64(rec.Header.Position):
			return fmt.Errorf("the last checkpoint of the key has %d events, it is to count for %d", last.Size, e.Size)
		}
		k.Retired, k.Until, k.Last = rec.Header.Position, last.Size, []byte(e.Checkpoint)
	}
	return nil
}

func (r Keyring) find(verifier string) *RingKey {
	i := slices.IndexFunc(r, func(k RingKey) bool { return k.Verifier == verifier })
	if i < 0 {
		return nil
	}
	return &r[i]
}

// InForce are the keys that are not retired.
func (r Keyring) InForce() []RingKey {
	var keys []RingKey
	for _, k := range r {
		if k.Retired == 0 {
			keys = append(keys, k)
		}
	}
	return keys
}

// ErrKeyRetired: only keys have signed a checkpoint that were retired before its
// size.
var ErrKeyRetired = errors.New("it is signed only by a key that had been retired by then")

// Verify is VerifyCheckpoint with the keys that count for the checkpoint's size.
func (r Keyring) Verify(signed []byte) (Checkpoint, error) {
	claims, err := ParseCheckpoint(signed)
	if err != nil {
		return Checkpoint{}, err
	}
	var counts, past []string
	for _, k := range r {
		if k.Counts(claims.Size) {
			counts = append(counts, k.Verifier)
		} else {
			past = append(past, k.Verifier)
		}
	}
	c, err := VerifyCheckpoint(signed, counts...)
	if errors.Is(err, ErrNotSigned) {
		if _, was := VerifyCheckpoint(signed, past...); was == nil {
			return Checkpoint{}, ErrKeyRetired
		}
	}
	return c, err
}

// Trusted returns the keys of the ring that follow from those that somebody trusts,
// who need not know of any change: a key is trusted if the log of a checkpoint that
// a trusted key signed has added it. checkpoints are looked at besides the last of
// each retired key; shown reports whether a checkpoint is of the log that the ring
// was read from.
func (r Keyring) Trusted(trusted []string, checkpoints [][]byte, shown func(Checkpoint) bool) Keyring {
	var known Keyring
	for _, k := range r {
		if slices.Contains(trusted, k.Verifier) {
			known = append(known, k)
		}
	}
	for _, k := range r {
		if k.Last != nil {
			checkpoints = append(slices.Clip(checkpoints), k.Last)
		}
	}
	for grown := true; grown; {
		grown = false
		for _, text := range checkpoints {
			c, err := known.Verify(text)
			if err != nil || !shown(c) {
				continue
			}
			for _, k := range r {
				if uint64(k.Added) <= c.Size && known.find(k.Verifier) == nil {
					known, grown = append(known, k), true
				}
			}
		}
	}
	return known
}
