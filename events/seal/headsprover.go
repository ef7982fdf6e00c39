package seal

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"fleetledger/events"
)

// HeadsProver makes the tree over the heads of a log's streams, and proves from it.
// It keeps the last one that it made. Methods may be called concurrently.
type HeadsProver struct {
	log events.Log

	mu   sync.Mutex
	at   events.Position // guarded by mu
	tree *HeadsTree      // guarded by mu
}

// NewHeadsProver returns a prover for log.
func NewHeadsProver(log events.Log) *HeadsProver { return &HeadsProver{log: log} }

// Tree returns the tree as of a position that is durable. It reads the heads of all
// streams, while appends go on.
func (p *HeadsProver) Tree(ctx context.Context, at events.Position) (*HeadsTree, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.tree != nil && p.at == at {
		return p.tree, nil
	}
	tree := &HeadsTree{}
	for h, err := range p.log.Heads(ctx, "", at) {
		if err != nil {
			return nil, fmt.Errorf("read the heads of all streams at position %d: %w", at, err)
		}
		if err := tree.Add(h); err != nil {
			return nil, err
		}
	}
	p.at, p.tree = at, tree
	return tree, nil
}

// Prove proves what the heads of streams were, under a root that was recorded; told is
// the position of the event that tells of it. The proofs come in the order of streams.
func (p *HeadsProver) Prove(ctx context.Context, root events.HeadsRooted, told events.Position, streams []events.Stream) ([]HeadProof, error) {
	tree, err := p.Tree(ctx, root.At)
	if err != nil {
		return nil, err
	}
	if tree.Root() != root.Root {
		return nil, &events.CorruptError{Position: told, Detail: fmt.Sprintf(
			"the root over the heads of all streams at position %d comes out as %s, %s was recorded", root.At, tree.Root(), root.Root)}
	}
	proofs := make([]HeadProof, len(streams))
	for i, s := range streams {
		proofs[i], err = tree.Prove(s, func(after events.Stream) iter.Seq2[events.StreamHead, error] { return p.log.Heads(ctx, after, root.At) })
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", s, err)
		}
	}
	return proofs, nil
}
