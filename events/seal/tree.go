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

// RestoreTree makes the tree of the first size events again from its full tiles,
// reading a few hundred of them however many there are. leaf returns the leaf hash
// of an event, tile the TileBytes bytes of a full tile. Nothing vouches for what they
// return but the root, which the caller knows from elsewhere.
func RestoreTree(size uint64, leaf func(events.Position) (events.Hash, error), tile func(level int, n uint64) ([]byte, error)) (Tree, error) {
	var t Tree
	for level := range TileLevels {
		nodes := size >> (TileHeight * level)
		begin := nodes / TileWidth * TileWidth
		if nodes == 0 {
			break
		}
		right := make([]events.Hash, 0, TileWidth)
		for n := begin; n < nodes; n++ {
			node, err := restoredNode(level, n, leaf, tile)
			if err != nil {
				return Tree{}, err
			}
			right = append(right, node)
		}
		if len(right) == 0 {
			continue // the next leaf begins a new tile, as put has it
		}
		t.right[level] = right
		// The perfect subtrees on the edge that lie within this tile, the largest first.
		for bit, from := TileHeight-1, 0; bit >= 0; bit-- {
			if len(right)>>bit&1 == 1 {
				t.edge.nodes[TileHeight*level+bit] = perfectRoot(right[from : from+1<<bit])
				from += 1 << bit
			}
		}
	}
	t.edge.size = size
	return t, nil
}

// restoredNode is node n at the lowest level of the tiles of a level.
func restoredNode(level int, n uint64, leaf func(events.Position) (events.Hash, error), tile func(level int, n uint64) ([]byte, error)) (events.Hash, error) {
	if level == 0 {
		return leaf(events.Position(n + 1))
	}
	b, err := tile(level-1, n)
	if err != nil {
		return events.Hash{}, err
	}
	if len(b) != TileBytes {
		return events.Hash{}, &events.CorruptError{Position: Tile{Level: level - 1, N: n}.First(), Detail: fmt.Sprintf("%v has %d bytes", Tile{Level: level - 1, N: n}, len(b))}
	}
	hashes := make([]events.Hash, TileWidth)
	for i := range hashes {
		copy(hashes[i][:], b[i*len(events.Hash{}):])
	}
	return perfectRoot(hashes), nil
}

// perfectRoot is the root of a perfect subtree with these nodes at its lowest
// level.
func perfectRoot(nodes []events.Hash) events.Hash {
	if len(nodes) == 1 {
		return nodes[0]
	}
	half := len(nodes) / 2
	return nodeHash(perfectRoot(nodes[:half]), perfectRoot(nodes[half:]))
}
