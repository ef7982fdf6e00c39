package seal

import (
	"context"
	"errors"
	"fmt"
	"math"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
)

// A Store is where a log keeps its tree: its engine. Methods may be called
// concurrently.
type Store interface {
	// Tree is the tree of all events that are durable.
	Tree() View
	// FullTile returns the TileBytes bytes of a full tile of that tree. One that is
	// missing, or not of this size, is an *events.CorruptError.
	FullTile(level int, n uint64) ([]byte, error)
}

// ErrBeyond: what was asked for is not in the tree, or not yet.
var ErrBeyond = errors.New("beyond the end of the log")

// Reader reads the tree of a log as it was when the reader was made. Whatever it
// proves, it proves from tiles that it has checked against the root.
type Reader struct {
	store Store
	view  View
}

// NewReader returns a reader of everything that is durable now.
func NewReader(store Store) Reader { return Reader{store, store.Tree()} }

// Size is the number of events in the tree.
func (r Reader) Size() uint64 { return r.view.Size }

// Tile returns the hashes of a tile, full or not, as they are stored.
func (r Reader) Tile(t tlog.Tile) ([]byte, error) {
	if t.H != TileHeight || t.L < 0 || t.N < 0 || t.W < 1 || t.W > TileWidth {
		return nil, fmt.Errorf("%v is no tile of hashes of height %d", t, TileHeight)
	}
	if t.L >= TileLevels {
		return nil, ErrBeyond
	}
	n, nodes := uint64(t.N), r.view.Size>>(TileHeight*t.L)
	switch fullTiles := nodes / TileWidth; {
	case n < fullTiles:
		b, err := r.store.FullTile(t.L, n)
		if err != nil {
			return nil, err
		}
		return b[:t.W*tlog.HashSize], nil
	case n > fullTiles || uint64(t.W) > nodes%TileWidth:
		return nil, ErrBeyond
	default:
		return Tile{Hashes: r.view.right[t.L][:t.W]}.AppendTo(make([]byte, 0, TileBytes)), nil
	}
}

// Entries returns a bundle of entries, full or not, in the form of C2SP
// tlog-tiles: the leaves of the t.W events from position TileWidth*t.N + 1 on,
// which are read from log.
func (r Reader) Entries(ctx context.Context, log events.Log, t tlog.Tile) ([]byte, error) {
	n, full := uint64(t.N), r.view.Size/TileWidth
	if n > full || n == full && uint64(t.W) > r.view.Size%TileWidth {
		return nil, ErrBeyond
	}
	var bundle []byte
	next := events.Position(n * TileWidth)
	end := next + events.Position(t.W)
	for rec, err := range log.ReadAll(ctx, next) {
		if err != nil {
			return nil, err
		}
		if next++; rec.Header.Position != next {
			return nil, &events.CorruptError{Position: next, Detail: fmt.Sprintf("the log has position %d in its place", rec.Header.Position)}
		}
		if bundle, err = torchwood.AppendTileEntry(bundle, rec.Leaf); err != nil {
			return nil, fmt.Errorf("position %d: %w", next, err)
		}
		if next == end {
			return bundle, nil
		}
	}
	return nil, &events.CorruptError{Position: next + 1, Detail: fmt.Sprintf("the log ends here, its tree has %d events", r.view.Size)}
}

// RootAt is the Merkle tree hash of the first size events.
func (r Reader) RootAt(size uint64) (events.Hash, error) {
	switch {
	case size > r.view.Size:
		return events.Hash{}, ErrBeyond
	case size == r.view.Size:
		return r.view.Root, nil
	case size == 0:
		return (&Edge{}).Root(), nil
	}
	root, err := tlog.TreeHash(int64(size), r.hashes())
	return events.Hash(root), err
}

// Inclusion proves that the event at p is in the tree of the first size events.
func (r Reader) Inclusion(p events.Position, size uint64) (tlog.RecordProof, error) {
	if p == 0 || uint64(p) > size || size > r.view.Size {
		return nil, ErrBeyond
	}
	return tlog.ProveRecord(int64(size), int64(p)-1, r.hashes())
}

// Inclusions is Inclusion for many events of one tree, best in the order of their
// positions: a tile that several proofs need is read and checked once.
func (r Reader) Inclusions(size uint64) func(events.Position) (tlog.RecordProof, error) {
	k := &keptTiles{tileReader: tileReader{r}, tiles: map[tlog.Tile][]byte{}, nodes: map[int64]tlog.Hash{}}
	k.checked = tlog.TileHashReader(tlog.Tree{N: int64(r.view.Size), Hash: tlog.Hash(r.view.Root)}, k)
	return func(p events.Position) (tlog.RecordProof, error) {
		if p == 0 || uint64(p) > size || size > r.view.Size {
			return nil, ErrBeyond
		}
		return tlog.ProveRecord(int64(size), int64(p)-1, tlog.HashReaderFunc(k.hashes))
	}
}

// CheckInclusion checks a proof of Inclusion: that the event at p with this leaf
// hash is among those of c.
func CheckInclusion(c Checkpoint, p events.Position, leaf events.Hash, proof []events.Hash) error {
	if p == 0 || uint64(p) > c.Size || c.Size > math.MaxInt64 {
		return ErrBeyond
	}
	hashes := make(tlog.RecordProof, len(proof))
	for i, h := range proof {
		hashes[i] = tlog.Hash(h)
	}
	return tlog.CheckRecord(hashes, int64(c.Size), tlog.Hash(c.Root), int64(p)-1, tlog.Hash(leaf))
}

// Consistency proves that the first old events are the beginning of the first
// size events.
func (r Reader) Consistency(old, size uint64) (tlog.TreeProof, error) {
	if old == 0 || old > size || size > r.view.Size {
		return nil, ErrBeyond
	}
	return tlog.ProveTree(int64(size), int64(old), r.hashes())
}

// hashes reads the tree's nodes, each checked against the root.
func (r Reader) hashes() tlog.HashReader {
	return tlog.TileHashReader(tlog.Tree{N: int64(r.view.Size), Hash: tlog.Hash(r.view.Root)}, tileReader{r})
}

// tileReader is a Reader as package tlog takes it.
type tileReader struct{ Reader }

func (tileReader) Height() int { return TileHeight }

func (r tileReader) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	for i, t := range tiles {
		var err error
		if data[i], err = r.Tile(t); err != nil {
			return nil, err
		}
	}
	return data, nil
}

func (tileReader) SaveTiles([]tlog.Tile, [][]byte) {}

// keptTiles keeps the last tiles that were checked against the root, and the last
// nodes that were computed from them.
type keptTiles struct {
	tileReader
	checked tlog.HashReader
	tiles   map[tlog.Tile][]byte // by their place: of width 0
	nodes   map[int64]tlog.Hash
}

// Enough for the way from a leaf to the root, and for the right edge.
const (
	maxKeptTiles = 64
	maxKeptNodes = 4096
)

func (k *keptTiles) SaveTiles(tiles []tlog.Tile, data [][]byte) {
	if len(k.tiles)+len(tiles) > maxKeptTiles {
		clear(k.tiles)
	}
	for i, t := range tiles {
		t.W = 0
		k.tiles[t] = data[i]
	}
}

func (k *keptTiles) hashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		h, ok := k.nodes[index]
		if !ok {
			var err error
			if h, err = k.node(index); err != nil {
				return nil, err
			}
			if len(k.nodes) == maxKeptNodes {
				clear(k.nodes)
			}
			k.nodes[index] = h
		}
		hashes[i] = h
	}
	return hashes, nil
}

// node computes a node from a kept tile, or else reads its tile.
func (k *keptTiles) node(index int64) (tlog.Hash, error) {
	t := tlog.TileForIndex(TileHeight, index)
	need := t.W * tlog.HashSize
	t.W = 0
	if data := k.tiles[t]; len(data) >= need {
		t.W = len(data) / tlog.HashSize
		return tlog.HashFromTile(t, data, index)
	}
	h, err := k.checked.ReadHashes([]int64{index})
	if err != nil {
		return tlog.Hash{}, err
	}
	return h[0], nil
}

// Extends checks that the log of an earlier checkpoint is the beginning of that of
// a later one. Both are verified; fetch reads the tiles of the later log by their
// paths of C2SP tlog-tiles, and is not trusted.
func Extends(old, now Checkpoint, fetch func(path string) ([]byte, error)) error {
	switch {
	case old.Origin != now.Origin:
		return fmt.Errorf("they are of different logs: %s and %s", old.Origin, now.Origin)
	case old.Size > now.Size:
		return fmt.Errorf("the log has lost events: the earlier checkpoint has %d, the later one %d", old.Size, now.Size)
	case old.Size == 0:
		return nil // every log begins with nothing
	}
	root := now.Root
	if old.Size < now.Size {
		h, err := tlog.TreeHash(int64(old.Size), tlog.TileHashReader(tlog.Tree{N: int64(now.Size), Hash: tlog.Hash(now.Root)}, fetcher(fetch)))
		if err != nil {
			return fmt.Errorf("the tiles do not show it: %w", err)
		}
		root = events.Hash(h)
	}
	if root != old.Root {
		return fmt.Errorf("the first %d events are not the ones that were signed: their Merkle root was %s, and is %s", old.Size, old.Root, root)
	}
	return nil
}

// fetcher reads tiles by their paths.
type fetcher func(path string) ([]byte, error)

func (fetcher) Height() int { return TileHeight }

func (f fetcher) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	for i, t := range tiles {
		var err error
		if data[i], err = f(torchwood.TilePath(t)); err != nil {
			return nil, err
		}
	}
	return data, nil
}

func (fetcher) SaveTiles([]tlog.Tile, [][]byte) {}
