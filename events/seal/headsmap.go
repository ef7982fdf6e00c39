package seal

import "fleetledger/events"

// Heads are the heads of all streams as they change: the tree that HeadsTree builds
// at once, kept up to date. The zero Heads has none. It is for reading a log from its
// start; a node is hashed again only when a root is asked for.
type Heads struct {
	root *mapNode
	n    int
}

// mapNode is a leaf, whose kids are nil, or a node.
type mapNode struct {
	hash  events.Hash
	name  events.Stream // of a leaf
	bit   uint16
	stale bool // something below has changed since it was hashed
	kids  [2]*mapNode
}

// Put sets the head of a stream.
func (t *Heads) Put(h events.StreamHead) {
	leaf := &mapNode{hash: headHash(h), name: h.Stream}
	if t.root == nil {
		t.root, t.n = leaf, 1
		return
	}
	// Whatever leaf the name leads to differs from it first where it is to go.
	near := t.root
	for near.kids[0] != nil {
		near.stale = true
		near = near.kids[bitOf(h.Stream, int(near.bit))]
	}
	if near.name == h.Stream {
		near.hash = leaf.hash
		return
	}
	t.n++
	bit := firstDifference(near.name, h.Stream)
	at := &t.root
	for (*at).kids[0] != nil && int((*at).bit) < bit {
		at = &(*at).kids[bitOf(h.Stream, int((*at).bit))]
	}
	side := bitOf(h.Stream, bit)
	node := &mapNode{bit: uint16(bit), stale: true}
	node.kids[side], node.kids[1-side] = leaf, *at
	*at = node
}

// Streams is the number of heads.
func (t *Heads) Streams() int { return t.n }

// Root is the root of their tree.
func (t *Heads) Root() events.Hash {
	if t.root == nil {
		return noHeads()
	}
	return t.root.rehash()
}

// rehash is at most as deep as a name has bits.
func (n *mapNode) rehash() events.Hash {
	if n.stale {
		n.hash, n.stale = joinHash(int(n.bit), n.kids[0].rehash(), n.kids[1].rehash()), false
	}
	return n.hash
}
