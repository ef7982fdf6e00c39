package pebblelog

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Tree implements seal.Store.
func (l *Log) Tree() seal.View { return *l.tree.Load() }

// FullTile implements seal.Store.
func (l *Log) FullTile(level int, n uint64) ([]byte, error) {
	t := seal.Tile{Level: level, N: n}
	v, found, err := l.get(tileKey(nil, level, n))
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, corruptTile(t, "is missing")
	case len(v) != seal.TileBytes:
		return nil, corruptTile(t, fmt.Sprintf("has %d bytes, not %d", len(v), seal.TileBytes))
	}
	return v, nil
}

func corruptTile(t seal.Tile, what string) *events.CorruptError {
	return &events.CorruptError{Position: t.First(), Detail: t.String() + " of the Merkle tree " + what}
}

// tileChecker compares the stored tiles with those that the headers give.
type tileChecker struct {
	db *database
	// inOrder, unless nil, spares a search for each of the lowest tiles.
	inOrder *iterator
	lacking int   // how many are not stored
	err     error // the first that differs
	buf     []byte
}

// check takes the next full tile.
func (c *tileChecker) check(t seal.Tile) {
	if c.err != nil {
		return
	}
	v, found, err := c.stored(t)
	if err != nil {
		c.err = corruptTile(t, "cannot be read: "+err.Error())
		return
	}
	if !found {
		c.lacking++
		return
	}
	c.buf = t.AppendTo(c.buf[:0])
	if !bytes.Equal(v, c.buf) {
		c.err = corruptTile(t, "is not the one that its events give")
	}
}

// stored is the tile as it is stored, until the next is asked for.
func (c *tileChecker) stored(t seal.Tile) ([]byte, bool, error) {
	key := tileKey(nil, t.Level, t.N)
	if c.inOrder == nil || t.Level > 0 {
		return c.db.Get(key)
	}
	v, err := at(c.inOrder, key)
	if errors.Is(err, errMissing) {
		return nil, false, nil
	}
	return v, err == nil, err
}

// checkEnd looks for tiles behind the last event.
func (c *tileChecker) checkEnd(size uint64) error {
	it, err := c.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tileSpace}, UpperBound: spaceEnd(tileSpace)})
	if err != nil {
		return err
	}
	defer it.Close()
	for level := range seal.TileLevels {
		full := size >> (seal.TileHeight * (level + 1))
		if it.SeekGE(tileKey(nil, level, full)) && bytes.HasPrefix(it.Key(), []byte{tileSpace, byte(level)}) {
			return &events.CorruptError{Position: events.Position(size + 1), Detail: fmt.Sprintf(
				"the Merkle tree has %d tiles of level %d and one more, whose last event is lost", full, level)}
		}
	}
	return it.Error()
}

// checkTiles compares every stored tile with the one that the headers give. It is
// called when all headers could be read.
func (a *auditor) checkTiles() error {
	r, err := newRecordReader(a.db, false)
	if err != nil {
		return err
	}
	defer r.close()
	var (
		tree     seal.Tree
		problems error
		stored   = tileChecker{db: a.db}
	)
	compare := func(t seal.Tile) {
		stored.check(t)
		if stored.lacking > 0 {
			stored.err = corruptTile(t, "is missing")
		}
		if corrupt, ok := errors.AsType[*events.CorruptError](stored.err); ok {
			problems = errors.Join(problems, a.report(corrupt.Position, "%s", corrupt.Detail))
		}
		stored = tileChecker{db: a.db, buf: stored.buf}
	}
	for p := events.Position(1); p <= events.Position(a.out.Size) && problems == nil; p++ {
		rec, err := r.read(p)
		if err != nil {
			return nil // reported with its position, unless it was read a moment ago
		}
		tree.Append(rec.LeafHash, compare)
	}
	if errors.Is(problems, errEnough) {
		return nil
	}
	if corrupt, ok := errors.AsType[*events.CorruptError](stored.checkEnd(a.out.Size)); ok {
		if err := a.report(corrupt.Position, "%s", corrupt.Detail); !errors.Is(err, errEnough) {
			return err
		}
	}
	return nil
}

// tileBatch is how many tiles are written at once.
const tileBatch = 128

// writeTiles writes every full tile. A crash on the way leaves some of them; the
// next start lacks the others.
func (l *Log) writeTiles(lacking int) error {
	headers, err := l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{headerSpace}, UpperBound: spaceEnd(headerSpace)})
	if err != nil {
		return err
	}
	defer headers.Close()
	var (
		tree  seal.Tree
		batch = l.db.NewBatch()
		errs  error
	)
	defer batch.Close()
	commit := func(o *pebble.WriteOptions) error {
		err := l.logger.await(func() error { return batch.Commit(o) })
		batch.Reset()
		return err
	}
	fill := func(t seal.Tile) {
		errs = errors.Join(errs, batch.Set(tileKey(nil, t.Level, t.N), t.AppendTo(nil), nil))
		if batch.Count() == tileBatch {
			errs = errors.Join(errs, commit(pebble.NoSync))
		}
	}
	for valid := headers.First(); valid && errs == nil; valid = headers.Next() {
		leaf, err := headers.ValueAndErr()
		if err != nil {
			return err
		}
		tree.Append(events.LeafHash(leaf), fill)
	}
	if err := errors.Join(errs, headers.Error()); err != nil {
		return err
	}
	// Synced even if it is empty: with it, all before it.
	if err := errors.Join(batch.LogData(nil, nil), commit(pebble.Sync)); err != nil {
		return err
	}
	l.opts.Logger.Info("the tiles of the Merkle tree were written; the log was made before there were any", "dir", l.dir, "tiles", lacking)
	return nil
}
