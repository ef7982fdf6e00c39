package commands

import (
	"context"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// HeadsProver proves what the heads of streams are.
func (l *Ledger) HeadsProver() *seal.HeadsProver { return l.heads }

// RootHeads records, as the relay, a root over the heads of all streams: with it the
// evidence of a task can show that nothing of it was left out. The heads are read as
// of a position while appends go on; that takes as long as reading the index of all
// streams. If nothing was recorded since the last one but for the log's own sake, nothing is.
func (l *Ledger) RootHeads(ctx context.Context) error {
	if err := l.readable(ctx); err != nil {
		return err
	}
	at := l.log.Durable()
	if l.state.Newest().Event <= l.state.Rooted().At {
		return nil
	}
	tree, err := l.heads.Tree(ctx, at)
	if err != nil {
		return err
	}
	return l.asRelay(ctx, func(v view) (decided, error) {
		revision, head := l.state.LedgerRevision(), l.state.Position()
		if at <= l.state.Rooted().At || head-at > events.MaxHeadsLag/2 {
			return decided{}, nil // somebody else did it, or it took too long: another time
		}
		d := decided{expect: []events.Expectation{{Stream: events.LedgerStream, Revision: revision}}}
		d.add(events.LedgerStream, v.newID(), events.HeadsRooted{At: at, Streams: tree.Streams(), Root: tree.Root()})
		return d, nil
	})
}
