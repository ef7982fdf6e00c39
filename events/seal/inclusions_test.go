package seal_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Many proofs are the same as each alone, whatever their order, and are checked by
// CheckInclusion.
func TestInclusions(t *testing.T) {
	g := newGrown()
	g.grow(t, 70_000)
	r := seal.NewReader(g)
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, size := range []uint64{1, 2, 255, 256, 257, 600, 65_535, 65_537, 70_000} {
		root, err := r.RootAt(size)
		if err != nil {
			t.Fatal(err)
		}
		c := seal.Checkpoint{Size: size, Root: root}
		prove := r.Inclusions(size)
		positions := []events.Position{1, events.Position(size)}
		for range 60 {
			positions = append(positions, events.Position(rnd.Uint64N(size)+1))
		}
		for near := range min(size, 300) { // neighbours, whose tiles are kept
			positions = append(positions, events.Position(size-near))
		}
		for _, p := range positions {
			got, err := prove(p)
			if err != nil {
				t.Fatalf("position %d of %d: %v", p, size, err)
			}
			var proof []events.Hash
			for _, h := range got {
				proof = append(proof, events.Hash(h))
			}
			leaf := g.leaves[p-1]
			if err := seal.CheckInclusion(c, p, events.Hash(leaf), proof); err != nil {
				t.Fatalf("position %d of %d: %v", p, size, err)
			}
			if rnd.IntN(20) == 0 {
				alone, err := r.Inclusion(p, size)
				if err != nil || !slices.Equal(alone, got) {
					t.Fatalf("position %d of %d: alone its proof is another, %v", p, size, err)
				}
			}
			if size > 1 && seal.CheckInclusion(c, p%events.Position(size)+1, events.Hash(leaf), proof) == nil {
				t.Fatalf("position %d of %d: its proof is taken for the next", p, size)
			}
			if seal.CheckInclusion(c, p, events.Hash(leaf), append(proof, root)) == nil || size > 1 && seal.CheckInclusion(c, p, events.Hash(leaf), proof[1:]) == nil {
				t.Fatalf("position %d of %d: a proof of another length is taken", p, size)
			}
		}
		for _, p := range []events.Position{0, events.Position(size + 1)} {
			if _, err := prove(p); !errors.Is(err, seal.ErrBeyond) {
				t.Errorf("position %d of %d: %v", p, size, err)
			}
			if err := seal.CheckInclusion(c, p, root, nil); !errors.Is(err, seal.ErrBeyond) {
				t.Errorf("position %d of %d: %v", p, size, err)
			}
		}
	}
	if _, err := r.Inclusions(70_001)(1); !errors.Is(err, seal.ErrBeyond) {
		t.Errorf("a larger tree: %v", err)
	}
	// What is kept was checked: a changed tile is noticed at its first use.
	for n := range 3 {
		tile := g.tiles[seal.Tile{Level: 0, N: uint64(n)}.String()]
		tile[40] ^= 1
		if _, err := r.Inclusions(70_000)(events.Position(n*seal.TileWidth + 9)); err == nil {
			t.Errorf("tile %d was changed, and used", n)
		}
		tile[40] ^= 1
	}
}
