package seal

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"fleetledger/events"
)

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
func (t *Heads) Put(h events.StreamHead) { t.put(h.Stream, headHash(h)) }

func (t *Heads) put(name events.Stream, hash events.Hash) {
	leaf := &mapNode{hash: hash, name: name}
	if t.root == nil {
		t.root, t.n = leaf, 1
		return
	}
	// Whatever leaf the name leads to differs from it first where it is to go.
	near := t.root
	for near.kids[0] != nil {
		near.stale = true
		near = near.kids[bitOf(name, int(near.bit))]
	}
	if near.name == name {
		near.hash = leaf.hash
		return
	}
	t.n++
	bit := firstDifference(near.name, name)
	at := &t.root
	for (*at).kids[0] != nil && int((*at).bit) < bit {
		at = &(*at).kids[bitOf(name, int((*at).bit))]
	}
	side := bitOf(name, bit)
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

// MarshalBinary writes the names and leaf hashes of all heads.
func (t *Heads) MarshalBinary() ([]byte, error) {
	var b []byte
	var walk func(n *mapNode)
	walk = func(n *mapNode) {
		if n.kids[0] != nil {
			walk(n.kids[0])
			walk(n.kids[1])
			return
		}
		b = binary.AppendUvarint(b, uint64(len(n.name)))
		b = append(append(b, n.name...), n.hash[:]...)
	}
	if t.root != nil {
		walk(t.root)
	}
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary has written.
func (t *Heads) UnmarshalBinary(b []byte) error {
	*t = Heads{}
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n == 0 || n > events.MaxNameBytes || uint64(len(b)-used) < n+sha256.Size {
			return errors.New("the heads of streams are cut off")
		}
		b = b[used:]
		name := events.Stream(b[:n])
		t.put(name, events.Hash(b[n:n+sha256.Size]))
		b = b[n+sha256.Size:]
	}
	return nil
}
