package audit

import (
	"fmt"
	"slices"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// checkpoints compares signed checkpoints with the tree of what is read: those that
// the auditor has, and those that are in the log.
type checkpoints struct {
	tree seal.Recent
	lost bool // a header could not be read: there is no tree any more
	ring seal.Keyring
	// trusted are the keys that the auditor has; nil if it takes those of the log.
	trusted []string
	// due are those whose tree is not reached yet.
	due []*checkpoint
	all []*checkpoint
	// witnesses are the keys of witnesses that the auditor has.
	witnesses []seal.WitnessKey
}

type checkpoint struct {
	signed []byte
	claims seal.Checkpoint
	at     events.Position // of the event that holds it, 0 if the auditor has it
	found  *Finding        // what is wrong with it
	met    bool            // its tree was compared

	witnessed bool // recorded for the cosignatures on it
	earlier   bool // the audit that this one goes on from has compared it
}

// bring adds the checkpoints that the auditor has. Where the audit goes on from an
// earlier one, that must have compared those that are over fewer events.
func (c *checkpoints) bring(signed [][]byte) error {
	for _, text := range signed {
		p := c.take(text, 0)
		if p.found != nil || p.claims.Size >= c.tree.Size() {
			continue
		}
		c.due = c.due[:len(c.due)-1]
		p.met = slices.ContainsFunc(c.all, func(e *checkpoint) bool { return e.earlier && e.claims == p.claims })
		if !p.met {
			return &BeforeError{p.claims.Size, events.Position(c.tree.Size() + 1)}
		}
	}
	c.compare()
	return nil
}

// take adds a checkpoint to those that are compared.
func (c *checkpoints) take(text []byte, at events.Position) *checkpoint {
	p := &checkpoint{signed: text, at: at}
	var err error
	if p.claims, err = seal.ParseCheckpoint(text); err != nil {
		p.found = &Finding{Kind: Checkpoint, Position: max(at, 1), Detail: "a checkpoint cannot be read: " + err.Error()}
	} else {
		c.due = append(c.due, p)
	}
	c.all = append(c.all, p)
	return p
}

// add takes the next record, and returns what is wrong with the key that it adds or
// retires, or with the cosigned checkpoint that it holds.
func (c *checkpoints) add(r events.Record) error {
	c.tree.Append(r.LeafHash)
	var wrong error
	if r.Header.Stream == events.LedgerStream && !r.Erased && r.Verify() == nil {
		if wrong = c.ring.Read(r); wrong == nil && r.Header.Type == (events.KeyRetired{}).Kind() {
			i := slices.IndexFunc(c.ring, func(k seal.RingKey) bool { return k.Retired == r.Header.Position })
			c.take(c.ring[i].Last, r.Header.Position)
		}
		if r.Header.Type == (events.CheckpointWitnessed{}).Kind() {
			wrong = c.witnessed(r)
		}
	}
	if len(c.due) > 0 {
		c.compare()
	}
	return wrong
}

// compare compares those whose size the tree has now, or has had.
func (c *checkpoints) compare() {
	rest := c.due[:0]
	for _, p := range c.due {
		if c.lost || p.claims.Size > c.tree.Size() {
			rest = append(rest, p)
			continue
		}
		root, known := c.tree.RootAt(p.claims.Size)
		p.met = known
		switch {
		case !known:
			p.found = &Finding{Kind: Checkpoint, Position: p.at, Detail: fmt.Sprintf(
				"a checkpoint over %d events lies more than %d events behind the event that holds it", p.claims.Size, events.MaxCheckpointLag)}
		case root != p.claims.Root:
			p.found = &Finding{Kind: Checkpoint, Position: max(p.at, 1), Expected: p.claims.Root, Actual: root, Detail: fmt.Sprintf(
				"the Merkle root of the first %d events is not the one that was signed: at least one of them was replaced", p.claims.Size)}
		}
	}
	c.due = rest
}

// doubt adds to what a checkpoint says of the log that it is not signed as it should be, if
// so: then the one or the other was changed.
func (p *checkpoint) doubt(unsigned error) {
	if unsigned != nil && p.claims.Size > 0 { // of one that cannot be read it is told as that
		p.found.Detail += fmt.Sprintf("; or the checkpoint was changed: %v", unsigned)
	}
}

// end reports on all of them, the log having been read to its end.
func (c *checkpoints) end(r *Report) {
	ring := c.ring
	if c.trusted != nil {
		var texts [][]byte
		for _, p := range c.all {
			// Those that are witnessed are many, and lead to no key that the last one of a
			// retired key does not.
			if p.met && p.found == nil && !p.witnessed {
				texts = append(texts, p.signed)
			}
		}
		ring = c.ring.Trusted(c.trusted, texts, func(shown seal.Checkpoint) bool {
			return slices.ContainsFunc(c.all, func(p *checkpoint) bool { return p.met && p.found == nil && p.claims == shown })
		})
		if len(ring) == 0 && !c.lost {
			r.Add(Finding{Kind: Checkpoint, Position: 1, Expected: c.trusted, Detail: "the log names none of the keys that were given: it is another log, or one that was written anew"})
		}
	}
	for _, p := range c.all {
		_, unsigned := ring.Verify(p.signed)
		switch {
		case p.found != nil:
			p.doubt(unsigned)
		case !p.met && c.lost:
			p.found = &Finding{Kind: Undetermined, Position: r.To, Detail: fmt.Sprintf(
				"the checkpoint over %d events is not checked: not all of their headers can be read", p.claims.Size)}
		case !p.met:
			p.found = &Finding{Kind: Checkpoint, Position: r.To + 1, Expected: p.claims.Size, Actual: c.tree.Size(), Detail: fmt.Sprintf(
				"a checkpoint was signed over %d events, %d are there", p.claims.Size, c.tree.Size())}
			p.doubt(unsigned)
		case unsigned != nil:
			// Last, so that a log that lost its keys is told as what it is.
			p.found = &Finding{Kind: Checkpoint, Position: max(p.at, events.Position(p.claims.Size)), Detail: fmt.Sprintf(
				"the checkpoint over %d events does not verify: %v", p.claims.Size, unsigned)}
		}
		switch {
		case p.found != nil:
			r.Add(*p.found)
		case !p.earlier:
			r.CheckpointsVerified++
		}
	}
	c.endWitnesses(r)
}
