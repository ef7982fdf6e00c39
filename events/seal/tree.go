package seal

import (
	"fmt"

	"fleetledger/events"
)

// Tiles are those of C2SP tlog-tiles: TileHeight levels of the tree lie in one
// tile, of which only the lowest is kept.
const (
	TileHeight = 8
	TileWidth  = 1 << TileHeight
	// TileBytes is the size of a full tile.
	TileBytes = TileWidth * len(events.Hash{})
	// TileLevels is how many levels of tiles a tree can have.
	TileLevels = 64 / TileHeight
)

// Tile is a full tile: the hashes of nodes TileWidth*N and after, at level
// TileHeight*Level of the tree. Nobody changes them.
type Tile struct {
	Level  int
	N      uint64
	Hashes []events.Hash
}

// AppendTo appends the tile's bytes to b.
func (t Tile) AppendTo(b []byte) []byte {
	for i := range t.Hashes {
		b = append(b, t.Hashes[i][:]...)
	}
	return b
}

// First is the position of the first event below a tile.
func (t Tile) First() events.Position {
	return events.Position(t.N<<(TileHeight*(t.Level+1)) + 1)
}

// String names the tile as its path over HTTP does.
func (t Tile) String() string { return fmt.Sprintf("tile %d/%d", t.Level, t.N) }

// Tree is an Edge that fills tiles. The zero Tree is empty. Assigning one makes a
// copy that may be read, but only one of the two may grow.
type Tree struct {
	edge Edge
	// right has the tiles that are not full. What is in one stays as it is: a full
	// tile is followed by a new slice.
	right [TileLevels][]events.Hash
}

// Append adds the leaf with this hash at the right, and calls full with each
// tile that it fills, the lower before the higher.
func (t *Tree) Append(leaf events.Hash, full func(Tile)) {
	e := &t.edge
	for level, node := 0, leaf; ; level++ {
		if level%TileHeight == 0 {
			t.put(level/TileHeight, node, full)
		}
		if e.size>>level&1 == 0 {
			e.nodes[level] = node
			break
		}
		node = nodeHash(e.nodes[level], node)
	}
	e.size++
}

// put adds the next node of a level of tiles. The edge has its old size.
func (t *Tree) put(level int, node events.Hash, full func(Tile)) {
	right := t.right[level]
	if right == nil {
		right = make([]events.Hash, 0, TileWidth)
	}
	right = append(right, node)
	if len(right) == TileWidth {
		full(Tile{Level: level, N: t.edge.size >> (TileHeight * (level + 1)), Hashes: right})
		right = nil
	}
	t.right[level] = right
}

// Size is the number of leaves.
func (t *Tree) Size() uint64 { return t.edge.Size() }

// Root is the Merkle tree hash of all leaves.
func (t *Tree) Root() events.Hash { return t.edge.Root() }

// View is the tree as it is now.
func (t *Tree) View() View { return View{Size: t.Size(), Root: t.Root(), right: t.right} }

// View is a tree of one size, without its full tiles. It never changes.
type View struct {
	Size uint64
	Root events.Hash
	// right has the first Size>>(8*level) mod 256 hashes of the level's last tile.
	right [TileLevels][]events.Hash
}
