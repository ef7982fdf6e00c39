package seal

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"slices"
	"sort"

	"fleetledger/events"
)

// The heads of all streams make a tree of their own, in which what is not there can
// be proved too. It is a binary trie over the streams' names, taken as bits, each byte
// from its highest on, with zeros behind without end (no name has a zero byte):
//
//	a leaf  SHA-256(0x00 || name || 0x00 || revision || leaf hash of that event)
//	a node  SHA-256(0x01 || bit || node or leaf on the left || on the right)
//	none    SHA-256 of nothing
//
// with the revision in eight bytes and the bit in two, big endian. A node's bit is the
// first in which the names below it differ: on its left are those with a 0 there. So
// one set of heads has one root, however it came about; names that begin alike lie
// together, and reading heads in the order of names builds the tree from left to
// right.

// headHash is the hash of a leaf.
func headHash(h events.StreamHead) events.Hash {
	b := make([]byte, 0, 1+events.MaxNameBytes+1+8+sha256.Size)
	b = append(append(append(b, 0), h.Stream...), 0)
	b = binary.BigEndian.AppendUint64(b, uint64(h.Revision))
	return sha256.Sum256(append(b, h.LeafHash[:]...))
}

// joinHash is the hash of a node.
func joinHash(bit int, left, right events.Hash) events.Hash {
	var b [1 + 2 + 2*sha256.Size]byte
	b[0] = 1
	binary.BigEndian.PutUint16(b[1:], uint16(bit))
	copy(b[3:], left[:])
	copy(b[3+sha256.Size:], right[:])
	return sha256.Sum256(b[:])
}

// noHeads is the root of no heads.
func noHeads() events.Hash { return sha256.Sum256(nil) }

// maxBit is more than any node's bit.
const maxBit = 8 * (events.MaxNameBytes + 1)

// bitOf is a bit of a name, 0 or 1.
func bitOf(s events.Stream, bit int) int {
	if bit/8 >= len(s) {
		return 0
	}
	return int(s[bit/8]>>(7-bit%8)) & 1
}

// firstDifference is the first bit in which two names differ, which they do.
func firstDifference(a, b events.Stream) int {
	for i := 0; ; i++ {
		var x, y byte
		if i < len(a) {
			x = a[i]
		}
		if i < len(b) {
			y = b[i]
		}
		if x != y {
			return 8*i + bits.LeadingZeros8(x^y)
		}
	}
}

// keptLeaves is how many leaves a subtree has at least for its inside to be kept:
// what is smaller is read again when something in it is to be proved.
const keptLeaves = 256

// HeadsTree is the tree over the heads of all streams at one position: its root, and
// as much of it as proving a head takes. The zero HeadsTree is empty; once built it
// may be read concurrently.
type HeadsTree struct {
	last events.Stream
	n    int
	// stack has the subtrees along the right edge, each with the bit in which its
	// first name differs from the one before it.
	stack []headsNode
}

// headsNode is a subtree.
type headsNode struct {
	hash        events.Hash
	n           int           // of leaves
	first       events.Stream // the name of the first
	since       int           // in which bit that differs from the leaf before it
	bit         int           // of the subtree's root
	left, right *headsNode    // nil where the inside is not kept
}

// Add adds the head of the next stream in the order of names.
func (t *HeadsTree) Add(h events.StreamHead) error {
	leaf := headsNode{hash: headHash(h), n: 1, first: h.Stream}
	if t.n > 0 {
		if h.Stream <= t.last {
			return fmt.Errorf("the head of stream %s comes after that of %s", h.Stream, t.last)
		}
		leaf.since = firstDifference(t.last, h.Stream)
		for len(t.stack) > 1 && t.stack[len(t.stack)-1].since > leaf.since {
			t.stack = joinLast(t.stack)
		}
	}
	t.stack = append(t.stack, leaf)
	t.last = h.Stream
	t.n++
	return nil
}

// joinLast joins the last two subtrees of a stack.
func joinLast(stack []headsNode) []headsNode {
	left, right := stack[len(stack)-2], stack[len(stack)-1]
	node := headsNode{hash: joinHash(right.since, left.hash, right.hash), n: left.n + right.n, first: left.first, since: left.since, bit: right.since}
	if node.n >= keptLeaves {
		node.left, node.right = &left, &right
	}
	return append(stack[:len(stack)-2], node)
}

// Streams is the number of heads.
func (t *HeadsTree) Streams() int { return t.n }

// root joins what is on the stack.
func (t *HeadsTree) root() headsNode {
	stack := slices.Clone(t.stack)
	for len(stack) > 1 {
		stack = joinLast(stack)
	}
	return stack[0]
}

// Root is the root of the tree.
func (t *HeadsTree) Root() events.Hash {
	if t.n == 0 {
		return noHeads()
	}
	return t.root().hash
}

// HeadProof proves what the head of a stream is, or that there is none. Found is the
// head of the stream; if there is none, of that stream which its name leads to.
type HeadProof struct {
	Found events.StreamHead
	// Path is the way from the leaf up to the root.
	Path []HeadStep
}

// HeadStep is a node on the way: its bit, and the hash of its other side.
type HeadStep struct {
	Bit  int
	Hash events.Hash
}

// Prove proves the head of a stream. heads reads, in the order of names, the heads
// that the tree was built from, after the stream of a name.
func (t *HeadsTree) Prove(s events.Stream, heads func(after events.Stream) iter.Seq2[events.StreamHead, error]) (HeadProof, error) {
	if t.n == 0 {
		return HeadProof{}, errors.New("there is no stream yet")
	}
	var p HeadProof
	node := t.root()
	for node.left != nil {
		on, off := node.left, node.right
		if bitOf(s, node.bit) == 1 {
			on, off = off, on
		}
		p.Path = append(p.Path, HeadStep{node.bit, off.hash})
		node = *on
	}
	within := make([]events.StreamHead, 0, node.n)
	// Names from the first on come after what is one byte shorter, or before it.
	for h, err := range heads(node.first[:len(node.first)-1]) {
		if err != nil {
			return HeadProof{}, err
		}
		if h.Stream < node.first {
			continue
		}
		if within = append(within, h); len(within) == node.n {
			break
		}
	}
	if len(within) != node.n || hashOfHeads(within) != node.hash {
		return HeadProof{}, fmt.Errorf("the heads of %d streams from %s on are not those that the tree was built from", node.n, node.first)
	}
	for len(within) > 1 {
		bit, at := split(within)
		on, off := within[:at], within[at:]
		if bitOf(s, bit) == 1 {
			on, off = off, on
		}
		p.Path = append(p.Path, HeadStep{bit, hashOfHeads(off)})
		within = on
	}
	p.Found = within[0]
	slices.Reverse(p.Path)
	return p, nil
}

// split divides two heads or more, in the order of names, as the node over them does.
func split(heads []events.StreamHead) (bit, at int) {
	bit = firstDifference(heads[0].Stream, heads[len(heads)-1].Stream)
	return bit, sort.Search(len(heads), func(i int) bool { return bitOf(heads[i].Stream, bit) == 1 })
}

// hashOfHeads is the hash of the subtree of these heads, in the order of names.
func hashOfHeads(heads []events.StreamHead) events.Hash {
	if len(heads) == 1 {
		return headHash(heads[0])
	}
	bit, at := split(heads)
	return joinHash(bit, hashOfHeads(heads[:at]), hashOfHeads(heads[at:]))
}

// CheckHead checks a proof of what the head of a stream is under a root: of revision
// 0 if there is no such stream.
func CheckHead(root events.Hash, s events.Stream, p HeadProof) (events.StreamHead, error) {
	if events.CheckName("stream", string(s)) != nil || events.CheckName("stream", string(p.Found.Stream)) != nil || p.Found.Revision == 0 {
		return events.StreamHead{}, errors.New("it is not about a stream")
	}
	hash, below := headHash(p.Found), maxBit
	for _, step := range p.Path {
		if step.Bit < 0 || step.Bit >= below {
			return events.StreamHead{}, errors.New("its bits do not fall on the way up")
		}
		below = step.Bit
		side := bitOf(p.Found.Stream, step.Bit)
		if bitOf(s, step.Bit) != side {
			return events.StreamHead{}, fmt.Errorf("the name %s does not lead to %s", s, p.Found.Stream)
		}
		if side == 0 {
			hash = joinHash(step.Bit, hash, step.Hash)
		} else {
			hash = joinHash(step.Bit, step.Hash, hash)
		}
	}
	switch {
	case hash != root:
		return events.StreamHead{}, errors.New("it does not lead to the root")
	case p.Found.Stream != s:
		return events.StreamHead{Stream: s}, nil
	}
	return p.Found, nil
}
