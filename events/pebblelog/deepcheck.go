package pebblelog

import (
	"context"
	"errors"
	"time"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Verified returns how far the log was read and found to be what it says, of what a
// start from a snapshot left for later: all of it if both are 0.
func (l *Log) Verified() (done, of events.Position) {
	return events.Position(l.verified.Load()), events.Position(l.verifyTo)
}

// deepCheck reads what a start from a snapshot passed over. It takes its time: half
// of what one core gives. Damage ends appends, with its position.
func (l *Log) deepCheck() {
	err := l.checkBefore(l.scrubCtx)
	switch corrupt, ok := errors.AsType[*events.CorruptError](err); {
	case err == nil:
		l.opts.Logger.Info("the events before the snapshot were read too", "dir", l.dir, "events", l.verifyTo)
	case ok:
		l.stop(&events.ReadOnlyError{Lost: corrupt.Position, Detail: corrupt.Detail})
	case l.scrubCtx.Err() == nil && !errors.Is(err, events.ErrClosed):
		l.opts.Logger.Error("the events before the snapshot could not be read", "dir", l.dir, "error", err)
	}
}

func (l *Log) checkBefore(ctx context.Context) error {
	chain := newChain(l.opts.Fleet)
	chain.index = l.db
	tiles := tileChecker{db: l.db}
	var tree seal.Tree
	for tree.Size() < l.verifyTo {
		began := time.Now()
		if err := l.checkPortion(chain, &tree, &tiles); err != nil {
			return err
		}
		l.verified.Store(tree.Size())
		select {
		case <-time.After(time.Since(began)):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	root, err := seal.NewReader(l).RootAt(l.verifyTo)
	if err == nil && root != tree.Root() {
		err = &events.CorruptError{Position: 1, Detail: "the tiles of the Merkle tree are not those that the events give"}
	}
	return err
}

// checkPortion checks the next fullPortion events, holding the database meanwhile.
func (l *Log) checkPortion(chain *chain, tree *seal.Tree, tiles *tileChecker) error {
	done, err := l.use()
	if err != nil {
		return err
	}
	defer done()
	r, err := newRecordReader(l.db, true)
	if err != nil {
		return err
	}
	defer r.close()
	for range fullPortion {
		if tree.Size() == l.verifyTo {
			return nil
		}
		p := events.Position(tree.Size() + 1)
		rec, err := r.read(p)
		if err == nil {
			err = chain.check(&rec)
		}
		if err == nil {
			err = corruptAt(p, rec.Verify())
		}
		if err != nil {
			return err
		}
		if tree.Append(rec.LeafHash, tiles.check); tiles.err != nil {
			return tiles.err
		}
		if tiles.lacking > 0 {
			return corruptTile(seal.Tile{N: uint64(p-1) / seal.TileWidth}, "is missing")
		}
	}
	return nil
}
