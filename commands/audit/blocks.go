package audit

import (
	"slices"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// blocks are those read so far, each text of a field as its hash. Of an erased one
// only its publisher is known.
type blocks map[events.Hash]*projections.Block

func (x blocks) add(r events.Record, e events.BlockPublished) {
	e.Fields = hashed(e.Fields)
	x[e.Hash] = projections.BlockOf(r, e)
}

func hashed(fields map[string]string) map[string]string {
	out := make(map[string]string, len(fields))
	for name, text := range fields {
		out[name] = events.SumHash(text).String()
	}
	return out
}

// published checks that a block is what its hash says and stems from what it says.
func (a *auditor) published(r events.Record, e events.BlockPublished) {
	a.permit(r, e.Permit, "memory.publish")
	if hash := events.BlockHash(e.Fields, e.Parents); hash != e.Hash || events.BlockStream(e.Hash) != r.Header.Stream {
		a.find(r, Decision, hash, e.Hash, "the block does not have the hash that it and its stream are named by")
	}
	if r.Header.Revision != 1 {
		a.find(r, Order, nil, e.Hash, "block %s was published before", e.Hash)
	}
	ancestors := slices.Clone(e.Parents)
	for _, p := range e.Parents {
		b := a.blocks[p]
		switch {
		case b == nil && !a.part:
			a.find(r, Order, nil, p, "the parent %s was not here", p)
			return
		case b == nil || b.Erased:
			return // what it stems from cannot be told
		}
		ancestors = append(ancestors, b.Ancestors...)
	}
	if ancestors = events.SortedHashes(ancestors); !slices.Equal(ancestors, e.Ancestors) {
		a.find(r, Decision, ancestors, e.Ancestors, "the block does not stem from what it says")
	}
}

// accepted decides again what a receiver took of a block.
func (a *auditor) accepted(r events.Record, e events.BlockAccepted) {
	b := a.blocks[e.Hash]
	switch {
	case b == nil && !a.part || events.BlockStream(e.Hash) != r.Header.Stream:
		a.find(r, Order, nil, e.Hash, "there was no such block to accept")
		return
	case b == nil:
		return // of a part of a log: it lies elsewhere
	case b.Erased:
		// What it said cannot be told any more, nor what it stems from.
		for _, dec := range e.Decisions {
			a.decision(r, dec, b.By, dec.Action)
		}
		return
	}
	if !commands.Standing(a.before, r.Header.Actor).Active {
		a.find(r, Decision, nil, r.Header.Actor, "%s accepted a block while it was not active", r.Header.Actor)
	}
	own, known := a.ownThoughts(b, r.Header.Actor)
	if !known {
		own = e.Own
	}
	want := commands.Accept(b, e.Narrowed, own, func(action string) events.Decision { return a.decide(action, b.By) })
	if len(want.Decisions) != len(e.Decisions) {
		a.find(r, Decision, len(want.Decisions), len(e.Decisions), "not every field of the block was decided")
		return
	}
	for i, dec := range want.Decisions {
		a.report.DecisionsRederived++
		a.same(r, dec, e.Decisions[i])
	}
	got := hashed(e.Fields)
	var stored events.Hash
	if len(e.Fields) > 0 {
		stored = events.BlockHash(e.Fields, b.Parents)
	}
	for _, name := range events.BlockFields {
		if want.Fields[name] != got[name] {
			a.find(r, Decision, want.Fields[name] != "", got[name] != "", "whether the field %s is taken, or what it says, comes out otherwise", name)
		}
	}
	if len(got) != len(want.Fields) || stored != e.Stored || !slices.Equal(e.Parents, b.Parents) || !slices.Equal(e.Ancestors, b.Ancestors) {
		a.find(r, Decision, stored, e.Stored, "what was taken of block %s does not have this hash or lineage", e.Hash)
	}
	if e.OwnThought != (len(own) > 0) || !slices.Equal(own, e.Own) {
		a.find(r, Decision, own, e.Own, "which of the thoughts behind block %s are %s's own comes out otherwise", e.Hash, r.Header.Actor)
	}
}

// ownThoughts are the actor's own among a block and its ancestors; known is false if
// that cannot be told of one.
func (a *auditor) ownThoughts(b *projections.Block, actor string) (own []events.Hash, known bool) {
	own = []events.Hash{}
	for _, h := range append([]events.Hash{b.Hash}, b.Ancestors...) {
		x := a.blocks[h]
		if x == nil || x.Erased {
			return nil, false
		}
		if x.OwnOf(actor) {
			own = append(own, h)
		}
	}
	return events.SortedHashes(own), true
}
