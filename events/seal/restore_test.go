package seal

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"fleetledger/events"
)

// A tree that is restored from its tiles is the one that grew, and grows on alike.
func TestRestoreTree(t *testing.T) {
	leafOf := func(i uint64) events.Hash { return events.SumHash(fmt.Sprint(i)) }
	var grown Tree
	tiles := map[string][]byte{}
	keep := func(full Tile) { tiles[full.String()] = full.AppendTo(nil) }
	sizes := map[uint64]bool{0: true, 1: true, 2: true, 255: true, 256: true, 257: true, 511: true, 512: true, 1000: true, 65535: true, 65536: true, 65537: true, 65536 + 300: true, 140_000: true}
	for size := uint64(0); size <= 140_000; size++ {
		if sizes[size] {
			reads := 0
			got, err := RestoreTree(size, func(p events.Position) (events.Hash, error) { return leafOf(uint64(p)), nil },
				func(level int, n uint64) ([]byte, error) {
					reads++
					return tiles[Tile{Level: level, N: n}.String()], nil
				})
			if err != nil {
				t.Fatal(err)
			}
			if got.Size() != size || got.Root() != grown.Root() || reads > 2*TileWidth {
				t.Fatalf("size %d: restored %d events with root %s, want %s; %d tiles read", size, got.Size(), got.Root(), grown.Root(), reads)
			}
			// Both grow on, the restored one filling the same tiles.
			other := grown
			other.right = [TileLevels][]events.Hash{}
			for level := range grown.right {
				other.right[level] = slices.Clone(grown.right[level])
				if other.right[level] != nil {
					other.right[level] = append(make([]events.Hash, 0, TileWidth), grown.right[level]...)
				}
			}
			for i := range uint64(300) {
				var a, b []Tile
				got.Append(leafOf(size+i+1), func(x Tile) { a = append(a, x) })
				other.Append(leafOf(size+i+1), func(x Tile) { b = append(b, x) })
				if !reflect.DeepEqual(a, b) || got.Root() != other.Root() {
					t.Fatalf("size %d: after %d more leaves they differ", size, i+1)
				}
			}
		}
		grown.Append(leafOf(size+1), keep)
	}
	if _, err := RestoreTree(256*256, nil, func(int, uint64) ([]byte, error) { return make([]byte, 5), nil }); err == nil {
		t.Error("a tile of 5 bytes was taken")
	}
}
