package audit

import (
	"fmt"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// checkpoints compares signed checkpoints with the tree of what is read.
type checkpoints struct {
	tree seal.Edge
	lost bool     // a header could not be read: there is no tree any more
	keys []string // that the log has named so far
	// due are those whose tree is not reached yet.
	due []*checkpoint
	all []*checkpoint
}

type checkpoint struct {
	signed []byte
	claims seal.Checkpoint
	found  *Finding // what is wrong with it
	met    bool     // its tree was compared
}

func newCheckpoints(signed [][]byte) *checkpoints {
	c := &checkpoints{}
	for _, text := range signed {
		p := &checkpoint{signed: text}
		var err error
		if p.claims, err = seal.ParseCheckpoint(text); err != nil {
			p.found = &Finding{Kind: Checkpoint, Position: 1, Detail: "a checkpoint cannot be read: " + err.Error()}
		} else {
			c.due = append(c.due, p)
		}
		c.all = append(c.all, p)
	}
	c.compare()
	return c
}

// add takes the next record.
func (c *checkpoints) add(r events.Record, leaf events.Hash) {
	c.tree.Append(leaf)
	if r.Header.Type == (events.KeyAdded{}).Kind() && r.Header.Stream == events.LedgerStream && r.Verify() == nil {
		if e, err := events.DecodeAs[events.KeyAdded](r); err == nil {
			c.keys = append(c.keys, e.VerifierKey)
		}
	}
	c.compare()
}

// compare compares those whose size the tree has now.
func (c *checkpoints) compare() {
	rest := c.due[:0]
	for _, p := range c.due {
		if c.lost || p.claims.Size != c.tree.Size() {
			rest = append(rest, p)
			continue
		}
		p.met = true
		if root := c.tree.Root(); root != p.claims.Root {
			p.found = &Finding{Kind: Checkpoint, Position: 1, Expected: p.claims.Root, Actual: root, Detail: fmt.Sprintf(
				"the Merkle root of the first %d events is not the one that was signed: at least one of them was replaced", p.claims.Size)}
		}
	}
	c.due = rest
}

// end reports on all of them, the log having been read to its end.
func (c *checkpoints) end(r *Report) {
	for _, p := range c.all {
		switch {
		case p.found != nil:
		case !p.met && c.lost:
			p.found = &Finding{Kind: Undetermined, Position: r.To, Detail: fmt.Sprintf(
				"the checkpoint over %d events is not checked: not all of their headers can be read", p.claims.Size)}
		case !p.met:
			p.found = &Finding{Kind: Checkpoint, Position: r.To + 1, Expected: p.claims.Size, Actual: c.tree.Size(), Detail: fmt.Sprintf(
				"a checkpoint was signed over %d events, %d are there", p.claims.Size, c.tree.Size())}
		default:
			// Last, so that a log that lost its keys is told as what it is.
			if _, err := seal.VerifyCheckpoint(p.signed, c.keys...); err != nil {
				p.found = &Finding{Kind: Checkpoint, Position: events.Position(p.claims.Size), Detail: fmt.Sprintf(
					"the checkpoint over %d events does not verify: %v", p.claims.Size, err)}
			}
		}
		if p.found != nil {
			r.Add(*p.found)
		} else {
			r.CheckpointsVerified++
		}
	}
}
