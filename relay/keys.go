package relay

import (
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/seal"
)

// keyReply is a key that the log names.
type keyReply struct {
	Key         string          `json:"key" doc:"Tells the keys of this log apart: it is in the verifier key, after the origin."`
	VerifierKey string          `json:"verifier_key" doc:"As golang.org/x/mod/sumdb/note writes it."`
	Added       events.Position `json:"added" doc:"The position of its event."`
	Retired     events.Position `json:"retired,omitzero" doc:"The position of the event that retired it."`
	Until       uint64          `json:"until_size,omitzero" doc:"A retired key counts for checkpoints of at most so many events."`
	Signs       bool            `json:"signs" doc:"Whether this relay signs with it."`
}

func keysOf(ring seal.Keyring, signs []string) []keyReply {
	out := []keyReply{}
	for _, k := range ring {
		r := keyReply{Key: k.ID(), VerifierKey: k.Verifier, Added: k.Added, Retired: k.Retired, Until: k.Until}
		for _, v := range signs {
			r.Signs = r.Signs || v == k.Verifier
		}
		out = append(out, r)
	}
	return out
}

// listKeys lists all keys; the log has few.
func (c *call) listKeys() (list[keyReply], error) {
	s, err := c.sealer()
	if err != nil {
		return list[keyReply]{}, err
	}
	ring, err := c.ledger.Keys(c.ctx())
	return list[keyReply]{Items: keysOf(ring, s.Verifiers()), Scope: c.scope()}, err
}

type rotateKeyBody struct {
	Reason string `json:"reason,omitzero"`
}

type rotateKeyReply struct {
	Key         string    `json:"key"`
	VerifierKey string    `json:"verifier_key"`
	AddedAt     time.Time `json:"added_at"`
	Receipt     receipt   `json:"receipt"`
}

func (c *call) rotateKey(in rotateKeyBody) (rotateKeyReply, error) {
	s, err := c.sealer()
	if err != nil {
		return rotateKeyReply{}, err
	}
	res, err := c.ledger.RotateKey(c.ctx(), c.caller, s, commands.RotateKey{Reason: in.Reason})
	e, rec, err := recorded[events.KeyAdded](res, err)
	return rotateKeyReply{
		Key: seal.RingKey{Verifier: e.VerifierKey}.ID(), VerifierKey: e.VerifierKey, AddedAt: rec.Header.Time, Receipt: receiptOf(rec),
	}, err
}

type retireKeyBody struct {
	Reason string `json:"reason,omitzero"`
}

type retireKeyReply struct {
	Key     string  `json:"key"`
	Until   int64   `json:"until_size" doc:"The key counts for checkpoints of at most so many events."`
	Receipt receipt `json:"receipt"`
}

func (c *call) retireKey(in retireKeyBody) (retireKeyReply, error) {
	s, err := c.sealer()
	if err != nil {
		return retireKeyReply{}, err
	}
	res, err := c.ledger.RetireKey(c.ctx(), c.caller, s, commands.RetireKey{ID: c.path("key"), Reason: in.Reason})
	e, rec, err := recorded[events.KeyRetired](res, err)
	return retireKeyReply{Key: seal.RingKey{Verifier: e.VerifierKey}.ID(), Until: e.Size, Receipt: receiptOf(rec)}, err
}
