package evidence

import (
	"errors"
	"maps"
	"slices"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
)

// signature verifies the file's checkpoint: a key given must have signed it, or one
// that follows from a key given by what the file has of the log's keys. That is not
// more than the checkpoint itself vouches for, so each of those events must be in its
// log, and so must each checkpoint that one key leads to another by.
func (v *verifier) signature(keys []string) (seal.Checkpoint, error) {
	text := []byte(v.head.Checkpoint)
	claims, err := seal.ParseCheckpoint(text)
	if err != nil {
		return seal.Checkpoint{}, err
	}
	ring, shown := v.ring(claims)
	known := ring.Trusted(keys, [][]byte{text}, func(c seal.Checkpoint) bool { return slices.Contains(shown, c) })
	// Of a key that the file has nothing of, nothing is known but that it was given.
	given := slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		return slices.ContainsFunc(ring, func(k seal.RingKey) bool { return k.Verifier == key })
	})
	c, err := known.Verify(text)
	if err != nil && len(given) > 0 {
		c, err = seal.VerifyCheckpoint(text, given...)
		return c, err
	}
	if err != nil {
		return seal.Checkpoint{}, err
	}
	for i, k := range known {
		if _, err := seal.VerifyCheckpoint(text, k.Verifier); err != nil || !k.Counts(c.Size) {
			continue
		}
		if slices.Contains(keys, k.Verifier) {
			v.followed = nil
			break
		}
		if v.followed == nil {
			v.followed = &known[i]
		}
	}
	return c, nil
}

// ring reads the keys of the log from the events of the file, and returns with them
// the checkpoints that are shown to be of the log that claims is of.
func (v *verifier) ring(claims seal.Checkpoint) (ring seal.Keyring, shown []seal.Checkpoint) {
	shown = []seal.Checkpoint{claims}
	proofs := map[events.Position][]events.Hash{}
	last := events.Position(0)
	for _, k := range v.head.Keys {
		if k.Position <= last {
			v.find(Malformed, k.Position, events.LedgerStream, "the proofs of last checkpoints are out of order")
		}
		last = k.Position
		proofs[k.Position] = k.Proof
	}
	for _, r := range v.told {
		h := r.Header
		if !ofKeys(h) {
			continue
		}
		proof, found := proofs[h.Position]
		delete(proofs, h.Position)
		if retired := h.Type == (events.KeyRetired{}).Kind(); retired != found {
			v.find(Malformed, h.Position, h.Stream, "the head proves of what log the last checkpoint of the key is: %t, and it retires one: %t", found, retired)
			continue
		}
		if r.Erased || r.Verify() != nil || !v.proves(claims, h.Position) {
			continue // told elsewhere
		}
		if err := ring.Read(r); err != nil {
			v.find(audit.Order, h.Position, h.Stream, "%v", err)
			continue
		}
		if !found {
			continue
		}
		i := slices.IndexFunc(ring, func(k seal.RingKey) bool { return k.Retired == h.Position })
		of, err := seal.ParseCheckpoint(ring[i].Last)
		switch {
		case err != nil:
		case of.Size > 0:
			err = seal.CheckConsistency(of, claims, proof)
		case len(proof) > 0:
			err = errors.New("of nothing there is nothing to prove")
		}
		if err != nil {
			v.find(audit.Checkpoint, h.Position, h.Stream, "the last checkpoint of the key is not proved to be of this log: %v", err)
			continue
		}
		shown = append(shown, of)
	}
	for _, p := range slices.Sorted(maps.Keys(proofs)) {
		v.find(Malformed, p, events.LedgerStream, "the head proves of what log the last checkpoint of a key is whose retirement is not in the file")
	}
	return ring, shown
}

// proves reports whether the file's event at a position is in a log.
func (v *verifier) proves(c seal.Checkpoint, p events.Position) bool {
	i := slices.IndexFunc(v.proofs, func(i inclusion) bool { return i.position == p })
	return i >= 0 && v.proofs[i].check(c) == nil
}
