package commands

import (
	"context"
	"fmt"
	"iter"
	"sync"

	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// rootedHeads is the tree of the newest root that was recorded, kept for proofs.
type rootedHeads struct {
	mu   sync.Mutex
	at   events.Position
	tree *seal.HeadsTree
}

// RootHeads records, as the relay, a root over the heads of all streams: with it the
// evidence of a task can show that nothing of it was left out. The heads are read as
// of a position while appends go on; that takes as long as reading the index of all
// streams. If nothing but a root was recorded since the last one, nothing is.
func (l *Ledger) RootHeads(ctx context.Context) error {
	if err := l.readable(ctx); err != nil {
		return err
	}
	at := l.log.Durable()
	if at <= l.state.Rooted().Told {
		return nil
	}
	l.rooted.mu.Lock()
	defer l.rooted.mu.Unlock()
	tree, err := l.headsTree(ctx, at)
	if err != nil {
		return err
	}
	return l.asRelay(ctx, func(v view) (decided, error) {
		revision, head := l.state.LedgerRevision(), l.state.Position()
		if at <= l.state.Rooted().Told || head-at > events.MaxHeadsLag/2 {
			return decided{}, nil // somebody else did it, or it took too long: another time
		}
		d := decided{expect: []events.Expectation{{Stream: events.LedgerStream, Revision: revision}}}
		d.add(events.LedgerStream, v.newID(), events.HeadsRooted{At: at, Streams: tree.Streams(), Root: tree.Root()})
		return d, nil
	})
}

// headsTree returns the tree as of a position. l.rooted.mu is held.
func (l *Ledger) headsTree(ctx context.Context, at events.Position) (*seal.HeadsTree, error) {
	if l.rooted.tree != nil && l.rooted.at == at {
		return l.rooted.tree, nil
	}
	var tree seal.HeadsTree
	for h, err := range l.log.Heads(ctx, "", at) {
		if err != nil {
			return nil, fmt.Errorf("read the heads of all streams at position %d: %w", at, err)
		}
		if err := tree.Add(h); err != nil {
			return nil, err
		}
	}
	l.rooted.at, l.rooted.tree = at, &tree
	return &tree, nil
}

// ProveHeads proves what the heads of streams were, under the newest root that is
// recorded: whose Told is 0 if none is. The proofs come in the order of the streams.
func (l *Ledger) ProveHeads(ctx context.Context, root projections.Rooted, streams []events.Stream) ([]seal.HeadProof, error) {
	l.rooted.mu.Lock()
	defer l.rooted.mu.Unlock()
	tree, err := l.headsTree(ctx, root.At)
	if err != nil {
		return nil, err
	}
	if tree.Root() != root.Root {
		return nil, &events.CorruptError{Position: root.Told, Detail: fmt.Sprintf(
			"the root over the heads of all streams at position %d comes out as %s, %s was recorded", root.At, tree.Root(), root.Root)}
	}
	proofs := make([]seal.HeadProof, len(streams))
	for i, s := range streams {
		proofs[i], err = tree.Prove(s, func(after events.Stream) iter.Seq2[events.StreamHead, error] { return l.log.Heads(ctx, after, root.At) })
		if err != nil {
			return nil, fmt.Errorf("stream %s: %w", s, err)
		}
	}
	return proofs, nil
}
