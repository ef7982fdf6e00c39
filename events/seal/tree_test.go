package seal_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// grown is a tree with its full tiles in memory, and beside it the same tree as
// transparency-dev/merkle has it.
type grown struct {
	tree   seal.Tree
	tiles  map[string][]byte
	other  *compact.Range
	nodes  map[compact.NodeID][]byte
	leaves []events.Hash
}

func newGrown() *grown {
	f := compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}
	return &grown{tiles: map[string][]byte{}, other: f.NewEmptyRange(0), nodes: map[compact.NodeID][]byte{}}
}

func (g *grown) Tree() seal.View { return g.tree.View() }

func (g *grown) FullTile(level int, n uint64) ([]byte, error) {
	t := seal.Tile{Level: level, N: n}
	b, ok := g.tiles[t.String()]
	if !ok {
		return nil, &events.CorruptError{Position: t.First(), Detail: "missing"}
	}
	return b, nil
}

func (g *grown) grow(t testing.TB, size int) {
	for n := len(g.leaves); n < size; n++ {
		leaf := fmt.Appendf(nil, `{"leaf":%d}`, n)
		h := events.LeafHash(leaf)
		g.leaves = append(g.leaves, h)
		g.tree.Append(h, func(full seal.Tile) {
			if g.tiles[full.String()] != nil {
				t.Errorf("%s is filled twice", full)
			}
			g.tiles[full.String()] = full.AppendTo(nil)
		})
		err := g.other.Append(rfc6962.DefaultHasher.HashLeaf(leaf), func(id compact.NodeID, hash []byte) { g.nodes[id] = hash })
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (g *grown) otherRoot(t testing.TB) []byte {
	root, err := g.other.GetRootHash(nil)
	if err != nil {
		t.Fatal(err)
	}
	if root == nil {
		root = rfc6962.DefaultHasher.EmptyRoot()
	}
	return root
}

// checkTiles compares every tile that the tree of this size has, and finds none
// behind them.
func (g *grown) checkTiles(t *testing.T, r seal.Reader) {
	t.Helper()
	for level := range seal.TileLevels + 1 {
		nodes := int64(r.Size() >> min(63, seal.TileHeight*level))
		for n := int64(0); ; n++ {
			width := int(min(seal.TileWidth, nodes-n*seal.TileWidth))
			if width <= 0 {
				if b, err := r.Tile(tlog.Tile{H: seal.TileHeight, L: level, N: n, W: 1}); !errors.Is(err, seal.ErrBeyond) {
					t.Fatalf("tile %d/%d of a tree of %d: %x, %v", level, n, r.Size(), b, err)
				}
				break
			}
			got, err := r.Tile(tlog.Tile{H: seal.TileHeight, L: level, N: n, W: width})
			if err != nil {
				t.Fatalf("tile %d/%d.p/%d of a tree of %d: %v", level, n, width, r.Size(), err)
			}
			var want []byte
			for i := range width {
				want = append(want, g.nodes[compact.NewNodeID(uint(seal.TileHeight*level), uint64(n*seal.TileWidth+int64(i)))]...)
			}
			if !bytes.Equal(got, want) {
				t.Fatalf("tile %d/%d.p/%d of a tree of %d differs", level, n, width, r.Size())
			}
			if width < seal.TileWidth {
				if _, err := r.Tile(tlog.Tile{H: seal.TileHeight, L: level, N: n, W: width + 1}); !errors.Is(err, seal.ErrBeyond) {
					t.Fatalf("a wider tile than there is: %v", err)
				}
			}
		}
	}
}

// checkProofs has proofs of r's tree checked by transparency-dev/merkle.
func (g *grown) checkProofs(t *testing.T, r seal.Reader, p, old uint64, oldRoot []byte) {
	t.Helper()
	root, err := r.RootAt(r.Size())
	if err != nil {
		t.Fatal(err)
	}
	flat := func(hashes []tlog.Hash) (out [][]byte) {
		for _, h := range hashes {
			out = append(out, h[:])
		}
		return out
	}
	inclusion, err := r.Inclusion(events.Position(p), r.Size())
	if err != nil {
		t.Fatalf("position %d of %d: %v", p, r.Size(), err)
	}
	if err := proof.VerifyInclusion(rfc6962.DefaultHasher, p-1, r.Size(), g.leaves[p-1][:], flat(inclusion), root[:]); err != nil {
		t.Fatalf("position %d of %d: %v", p, r.Size(), err)
	}
	if got, err := r.RootAt(old); err != nil || !bytes.Equal(got[:], oldRoot) {
		t.Fatalf("root at %d, read in a tree of %d, is %s (%v), not %x", old, r.Size(), got, err, oldRoot)
	}
	if old == 0 {
		return
	}
	consistency, err := r.Consistency(old, r.Size())
	if err != nil {
		t.Fatalf("%d in %d: %v", old, r.Size(), err)
	}
	if err := proof.VerifyConsistency(rfc6962.DefaultHasher, old, r.Size(), flat(consistency), oldRoot, root[:]); err != nil {
		t.Fatalf("%d in %d: %v", old, r.Size(), err)
	}
}

func TestTreeAgreesWithMerkle(t *testing.T) {
	sizes := []int{0, 1, 2, 255, 256, 257, 511, 512, 513, 65535, 65536, 65537}
	if testing.Short() {
		sizes = sizes[:9]
	}
	g := newGrown()
	type earlier struct {
		seal.Reader
		root []byte
	}
	var readers []earlier
	for _, size := range sizes {
		g.grow(t, size)
		r := earlier{seal.NewReader(g), g.otherRoot(t)}
		if v := g.Tree(); v.Size != uint64(size) || !bytes.Equal(v.Root[:], r.root) {
			t.Fatalf("root at %d is %s, not %x", size, v.Root, r.root)
		}
		g.checkTiles(t, r.Reader)
		for _, old := range readers {
			if size > 0 {
				for _, p := range []uint64{1, uint64(size+1) / 2, uint64(size)} {
					g.checkProofs(t, r.Reader, p, old.Size(), old.root)
				}
			}
		}
		readers = append(readers, r)
	}
	// What was read before the tree grew reads the same after.
	for i, r := range readers {
		g.checkTiles(t, r.Reader)
		if i > 1 {
			g.checkProofs(t, r.Reader, r.Size(), readers[i-1].Size(), readers[i-1].root)
		}
	}
}

func TestProofsAtAnySize(t *testing.T) {
	g := newGrown()
	roots := [][]byte{g.otherRoot(t)}
	readers := []seal.Reader{seal.NewReader(g)}
	for n := range 700 {
		g.grow(t, n+1)
		roots, readers = append(roots, g.otherRoot(t)), append(readers, seal.NewReader(g))
	}
	rapid.Check(t, func(rt *rapid.T) {
		size := rapid.Uint64Range(1, 700).Draw(rt, "size")
		old := rapid.Uint64Range(0, size).Draw(rt, "old")
		p := rapid.Uint64Range(1, size).Draw(rt, "position")
		g.checkProofs(t, readers[size], p, old, roots[old])
	})
}

// TestReaderRefuses: what is not in the tree is not proved, and a proof never
// rests on a tile that does not belong to the root.
func TestReaderRefuses(t *testing.T) {
	g := newGrown()
	empty := seal.NewReader(g)
	g.grow(t, 600)
	r := seal.NewReader(g)
	for what, err := range map[string]error{
		"position 0":        second(r.Inclusion(0, 600)),
		"past the size":     second(r.Inclusion(501, 500)),
		"past the end":      second(r.Inclusion(1, 601)),
		"of an empty tree":  second(empty.Inclusion(1, 0)),
		"root past the end": second(r.RootAt(601)),
		"from nothing":      second(r.Consistency(0, 600)),
		"backwards":         second(r.Consistency(400, 300)),
		"to past the end":   second(r.Consistency(300, 601)),
		"level 8":           second(r.Tile(tlog.Tile{H: 8, L: 8, N: 0, W: 1})),
		"level 63":          second(r.Tile(tlog.Tile{H: 8, L: 63, N: 0, W: 1})),
		"far out":           second(r.Tile(tlog.Tile{H: 8, L: 0, N: 1 << 62, W: 256})),
	} {
		if !errors.Is(err, seal.ErrBeyond) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := r.Tile(tlog.Tile{H: 8, L: 0, N: -1, W: 1}); err == nil {
		t.Error("a tile of a negative number was read")
	}
	for name, tile := range g.tiles {
		for _, at := range []int{0, 31, 4000, seal.TileBytes - 1} {
			tile[at] ^= 4
			proved := 0
			for _, p := range []events.Position{1, 126, 256, 257, 382, 512} {
				proof, err := r.Inclusion(p, 600)
				if err != nil {
					continue
				}
				proved++
				if err := tlog.CheckRecord(proof, 600, tlog.Hash(g.Tree().Root), int64(p)-1, tlog.Hash(g.leaves[p-1])); err != nil {
					t.Errorf("%s with byte %d flipped: the proof of %d is wrong: %v", name, at, p, err)
				}
			}
			if proved == 6 {
				t.Errorf("%s with byte %d flipped was not noticed", name, at)
			}
			tile[at] ^= 4
		}
		missing := g.tiles[name]
		delete(g.tiles, name)
		var corrupt *events.CorruptError
		_, err1 := r.Inclusion(1, 600)
		_, err2 := r.Inclusion(300, 600)
		if !errors.As(err1, &corrupt) && !errors.As(err2, &corrupt) {
			t.Errorf("%s is missing: %v, %v", name, err1, err2)
		}
		g.tiles[name] = missing
	}
}

func second[T any](_ T, err error) error { return err }

func BenchmarkTreeAppend(b *testing.B) {
	var tree seal.Tree
	leaf := events.LeafHash([]byte("leaf"))
	buf := make([]byte, 0, seal.TileBytes)
	full := func(t seal.Tile) { buf = t.AppendTo(buf[:0]) }
	b.ReportAllocs()
	for b.Loop() {
		tree.Append(leaf, full)
	}
}
