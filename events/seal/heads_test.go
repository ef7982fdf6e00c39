package seal

import (
	"cmp"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"fleetledger/events"
)

// plainRoot is the root of heads by the words of its definition: bit by bit, without
// looking for where names differ.
func plainRoot(heads []events.StreamHead, bit int) events.Hash {
	if len(heads) == 1 {
		return headHash(heads[0])
	}
	var sides [2][]events.StreamHead
	for _, h := range heads {
		side := 0
		if name := string(h.Stream) + strings.Repeat("\x00", 200); name[bit/8]&(0x80>>(bit%8)) != 0 {
			side = 1
		}
		sides[side] = append(sides[side], h)
	}
	if len(sides[0]) == 0 || len(sides[1]) == 0 {
		return plainRoot(heads, bit+1)
	}
	return joinHash(bit, plainRoot(sides[0], bit+1), plainRoot(sides[1], bit+1))
}

func headNamed(s events.Stream, r int) events.StreamHead {
	return events.StreamHead{Stream: s, Revision: events.Revision(r), LeafHash: events.SumHash(string(s), fmt.Sprint(r))}
}

// from reads heads as a log does.
func from(heads []events.StreamHead) func(events.Stream) iter.Seq2[events.StreamHead, error] {
	return func(after events.Stream) iter.Seq2[events.StreamHead, error] {
		return func(yield func(events.StreamHead, error) bool) {
			for _, h := range heads {
				if h.Stream > after && !yield(h, nil) {
					return
				}
			}
		}
	}
}

func built(t interface{ Fatal(...any) }, heads []events.StreamHead) *HeadsTree {
	var tree HeadsTree
	for _, h := range heads {
		if err := tree.Add(h); err != nil {
			t.Fatal(err)
		}
	}
	return &tree
}

func inOrder(heads map[events.Stream]events.StreamHead) []events.StreamHead {
	var list []events.StreamHead
	for _, h := range heads {
		list = append(list, h)
	}
	slices.SortFunc(list, func(a, b events.StreamHead) int { return cmp.Compare(a.Stream, b.Stream) })
	return list
}

var streamNames = rapid.StringMatching(`(task-|gate-|ext-)?[!ab~]{1,12}|a{1,160}`)

// One set of heads has one root, however it came about, and every name can be proved
// to be in it, or not.
func TestHeads(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		heads := map[events.Stream]events.StreamHead{}
		var kept Heads
		for i, name := range rapid.SliceOfN(streamNames, 1, 60).Draw(rt, "names") {
			h := headNamed(events.Stream(name), i+1)
			heads[h.Stream] = h
			kept.Put(h)
			if i%7 == 0 {
				kept.Root() // what was hashed is hashed again if it changes
			}
		}
		list := inOrder(heads)
		tree := built(rt, list)
		want := plainRoot(list, 0)
		if tree.Root() != want || kept.Root() != want || tree.Streams() != len(list) || kept.Streams() != len(list) {
			rt.Fatalf("%d heads: the tree has %d and %s, the map %d and %s, not %s", len(list), tree.Streams(), tree.Root(), kept.Streams(), kept.Root(), want)
		}
		for _, name := range append(rapid.SliceOfN(streamNames, 5, 5).Draw(rt, "others"), string(list[0].Stream)) {
			s := events.Stream(name)
			p, err := tree.Prove(s, from(list))
			if err != nil {
				rt.Fatal(err)
			}
			got, err := CheckHead(want, s, p)
			if err != nil {
				rt.Fatalf("%s: %v", s, err)
			}
			if h := heads[s]; got.Revision != h.Revision || got.LeafHash != h.LeafHash {
				rt.Fatalf("of %s it is proved that its head is %+v, not %+v", s, got, h)
			}
			// A proof of one name is none of another, unless it leads to the same leaf.
			for _, other := range list {
				if got, err := CheckHead(want, other.Stream, p); err == nil && got != other {
					rt.Fatalf("the proof of %s says of %s that its head is %+v, not %+v", s, other.Stream, got, other)
				}
			}
		}
	})
}

// Nothing in a proof can be changed.
func TestHeadProofsAreExact(t *testing.T) {
	heads := map[events.Stream]events.StreamHead{}
	for i := range 40 {
		h := headNamed(events.Stream(fmt.Sprintf("task-%03d", i*i)), i+1)
		heads[h.Stream] = h
	}
	list := inOrder(heads)
	tree := built(t, list)
	root := tree.Root()
	for _, s := range []events.Stream{"task-000", "task-100", "task-1521", "task-999", "nothing"} {
		p, err := tree.Prove(s, from(list))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := CheckHead(root, s, p); err != nil {
			t.Fatal(err)
		}
		changed := map[string]func(*HeadProof){
			"no path":          func(p *HeadProof) { p.Path = nil },
			"one step less":    func(p *HeadProof) { p.Path = p.Path[:len(p.Path)-1] },
			"first step twice": func(p *HeadProof) { p.Path = append([]HeadStep{p.Path[0]}, p.Path...) },
			"turned round":     func(p *HeadProof) { slices.Reverse(p.Path) },
			"revision":         func(p *HeadProof) { p.Found.Revision++ },
			"no revision":      func(p *HeadProof) { p.Found.Revision = 0 },
			"leaf":             func(p *HeadProof) { p.Found.LeafHash[3] ^= 1 },
			"name":             func(p *HeadProof) { p.Found.Stream += "x" },
			"no name":          func(p *HeadProof) { p.Found.Stream = "" },
		}
		for i := range p.Path {
			changed[fmt.Sprint("bit of step ", i)] = func(p *HeadProof) { p.Path[i].Bit ^= 1 }
			changed[fmt.Sprint("sign of step ", i)] = func(p *HeadProof) { p.Path[i].Bit = -p.Path[i].Bit }
			changed[fmt.Sprint("hash of step ", i)] = func(p *HeadProof) { p.Path[i].Hash[31] ^= 1 }
		}
		for what, change := range changed {
			bad := HeadProof{p.Found, slices.Clone(p.Path)}
			change(&bad)
			if _, err := CheckHead(root, s, bad); err == nil {
				t.Errorf("%s: a proof is taken that differs in its %s", s, what)
			}
		}
	}
	if err := tree.Add(headNamed("task-000", 1)); err == nil {
		t.Error("a head out of order was taken")
	}
	wrong := slices.Clone(list)
	wrong[3].Revision++
	if _, err := tree.Prove("task-000", from(wrong)); err == nil {
		t.Error("a proof was made from other heads than the tree's")
	}
	var none HeadsTree
	if _, err := none.Prove("a", from(nil)); err == nil || none.Root() != (&Heads{}).Root() {
		t.Error("of no heads something is proved, or they have two roots")
	}
}

// A large tree keeps little of its inside, and proves all the same.
func TestLargeHeads(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var kept Heads
	heads := map[events.Stream]events.StreamHead{}
	n := 20_000
	for i := range n {
		h := headNamed(events.Stream(fmt.Sprintf("task-%08x-%04x", i, rng.IntN(1<<16))), 1+rng.IntN(9))
		heads[h.Stream] = h
		kept.Put(h)
	}
	list := inOrder(heads)
	tree := built(t, list)
	root := tree.Root()
	if root != kept.Root() {
		t.Fatal("they have two roots")
	}
	nodes := 0
	var count func(headsNode)
	count = func(x headsNode) {
		nodes++
		if x.left != nil {
			count(*x.left)
			count(*x.right)
		}
	}
	count(tree.root())
	if nodes > 8*n/keptLeaves {
		t.Errorf("of %d heads %d nodes are kept", n, nodes)
	}
	for range 200 {
		h := list[rng.IntN(n)]
		p, err := tree.Prove(h.Stream, from(list))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := CheckHead(root, h.Stream, p); err != nil || got != h {
			t.Fatalf("%+v is proved to be %+v: %v", h, got, err)
		}
		if len(p.Path) > 64 {
			t.Errorf("a proof in %d heads has %d steps", n, len(p.Path))
		}
	}
}

func BenchmarkHeads(b *testing.B) {
	list := make([]events.StreamHead, 100_000)
	for i := range list {
		list[i] = headNamed(events.Stream(fmt.Sprintf("task-%036x", i)), 5)
	}
	b.Run("tree", func(b *testing.B) {
		for b.Loop() {
			built(b, list).Root()
		}
		b.ReportMetric(float64(len(list)*b.N)/b.Elapsed().Seconds(), "streams/s")
	})
	b.Run("map", func(b *testing.B) {
		for b.Loop() {
			var kept Heads
			for _, h := range list {
				kept.Put(h)
			}
			kept.Root()
		}
		b.ReportMetric(float64(len(list)*b.N)/b.Elapsed().Seconds(), "streams/s")
	})
}

// TestHeadsAgain: what is written of heads reads as it was, and goes on alike.
func TestHeadsAgain(t *testing.T) {
	var h Heads
	head := func(n int, r events.Revision) events.StreamHead {
		return events.StreamHead{Stream: events.Stream(fmt.Sprintf("s-%d", n*7919)), Revision: r, LeafHash: events.SumHash(fmt.Sprint(n, r))}
	}
	for n := range 1000 {
		if n < 3 || n == 999 {
			b, err := h.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			var again Heads
			if err := again.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			if again.Root() != h.Root() || again.Streams() != h.Streams() {
				t.Errorf("of %d streams: %d, another root: %t", n, again.Streams(), again.Root() != h.Root())
			}
			if n > 0 {
				again.Put(head(0, 2))
				if again.Streams() != n || again.Root() == h.Root() {
					t.Errorf("of %d streams: one of them is another now", n)
				}
				if again.UnmarshalBinary(b[:len(b)-1]) == nil {
					t.Error("it was cut off")
				}
			}
		}
		h.Put(head(n, 1))
	}
}
