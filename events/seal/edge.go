// Package seal makes a log provable: a Merkle tree over its leaf hashes, as in
// RFC 6962 section 2.1, and checkpoints, signed heads of that tree.
//
// An engine grows a Tree as it appends, keeps the full tiles beside the events,
// and shows the tree of what is durable as a Store. A Sealer signs and serves it
// in the formats of C2SP: tlog-checkpoint, tlog-tiles, tlog-proof. Where only a root
// is asked for, an Edge does.
package seal

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"math/bits"

	"fleetledger/events"
)

// Edge is the right edge of a Merkle tree: the roots of its largest perfect
// subtrees, which is all that is needed to add leaves and to tell the root. The
// zero Edge is the empty tree. An Edge is a plain value: assigning it makes an
// independent copy.
type Edge struct {
	size uint64
	// nodes[i] is the root of a perfect subtree of 2^i leaves; it counts only
	// where bit i of size is set. The larger the subtree, the further left it lies.
	nodes [64]events.Hash
}

// Append adds the leaf with this hash (see events.LeafHash) at the right.
func (e *Edge) Append(leaf events.Hash) {
	level := 0
	for ; e.size>>level&1 == 1; level++ {
		leaf = nodeHash(e.nodes[level], leaf)
	}
	e.nodes[level] = leaf
	e.size++
}

// Size is the number of leaves.
func (e *Edge) Size() uint64 { return e.size }

// Root is the Merkle tree hash of all leaves; of none it is the SHA-256 of the
// empty string.
func (e *Edge) Root() events.Hash {
	if e.size == 0 {
		return sha256.Sum256(nil)
	}
	var root events.Hash
	found := false
	for level := range e.nodes {
		switch {
		case e.size>>level&1 == 0:
		case found:
			root = nodeHash(e.nodes[level], root)
		default:
			root, found = e.nodes[level], true
		}
	}
	return root
}

// Recent is an Edge that tells the roots of its last sizes too: as many as
// events.MaxCheckpointLag at least.
type Recent struct {
	Edge
	// marks are the edge at every recentStep leaves, the oldest first, each with the
	// leaves that came after it: recentStep but for the last.
	marks []*recentMark
}

type recentMark struct {
	edge   Edge
	leaves []events.Hash
}

// recentStep bounds what a root takes, and divides events.MaxCheckpointLag.
const recentStep = 256

// Append adds the leaf with this hash at the right.
func (r *Recent) Append(leaf events.Hash) {
	if n := len(r.marks); n == 0 || len(r.marks[n-1].leaves) == recentStep {
		var next *recentMark
		if n > events.MaxCheckpointLag/recentStep {
			next = r.marks[0]
			r.marks = append(r.marks[:0], r.marks[1:]...)
		} else {
			next = &recentMark{leaves: make([]events.Hash, 0, recentStep)}
		}
		next.edge, next.leaves = r.Edge, next.leaves[:0]
		r.marks = append(r.marks, next)
	}
	last := r.marks[len(r.marks)-1]
	last.leaves = append(last.leaves, leaf)
	r.Edge.Append(leaf)
}

// RootAt is the root of the first size leaves, if it is remembered.
func (r *Recent) RootAt(size uint64) (events.Hash, bool) {
	if size == r.size {
		return r.Root(), true
	}
	if len(r.marks) == 0 || size < r.marks[0].edge.size || size > r.size {
		return events.Hash{}, false
	}
	m := r.marks[(size-r.marks[0].edge.size)/recentStep]
	e := m.edge
	for _, leaf := range m.leaves[:size-m.edge.size] {
		e.Append(leaf)
	}
	return e.Root(), true
}

// MarshalBinary writes the oldest edge that is remembered, and the leaves after it.
func (r *Recent) MarshalBinary() ([]byte, error) {
	first := r.Edge
	if len(r.marks) > 0 {
		first = r.marks[0].edge
	}
	b := binary.BigEndian.AppendUint64(nil, first.size)
	for level := range first.nodes {
		if first.size>>level&1 == 1 {
			b = append(b, first.nodes[level][:]...)
		}
	}
	for _, m := range r.marks {
		for i := range m.leaves {
			b = append(b, m.leaves[i][:]...)
		}
	}
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary has written.
func (r *Recent) UnmarshalBinary(b []byte) error {
	if len(b) < 8 || len(b)%sha256.Size != 8 {
		return errors.New("the edge of a tree is cut off")
	}
	first := Edge{size: binary.BigEndian.Uint64(b)}
	b = b[8:]
	if len(b) < bits.OnesCount64(first.size)*sha256.Size {
		return errors.New("the edge of a tree is cut off")
	}
	for level := range first.nodes {
		if first.size>>level&1 == 1 {
			b = b[copy(first.nodes[level][:], b):]
		}
	}
	*r = Recent{Edge: first}
	for len(b) > 0 {
		r.Append(events.Hash(b[:sha256.Size]))
		b = b[sha256.Size:]
	}
	return nil
}

// nodeHash is the hash of an inner node: SHA-256(0x01 || left || right).
func nodeHash(left, right events.Hash) events.Hash {
	var b [1 + 2*sha256.Size]byte
	b[0] = 1
	copy(b[1:], left[:])
	copy(b[1+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}
