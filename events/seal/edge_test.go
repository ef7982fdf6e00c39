package seal_test

import (
	"crypto/sha256"
	"fmt"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// stored is a tlog tree in memory: the independent implementation that Edge is
// checked against.
type stored []tlog.Hash

func (s stored) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	out := make([]tlog.Hash, len(indexes))
	for i, x := range indexes {
		out[i] = s[x]
	}
	return out, nil
}

func TestEdgeAgreesWithTlog(t *testing.T) {
	var (
		edge seal.Edge
		tree stored
	)
	if got, want := edge.Root(), events.Hash(sha256.Sum256(nil)); got != want {
		t.Fatalf("root of the empty tree is %s, RFC 6962 says %s", got, want)
	}
	for n := range int64(700) {
		leaf := fmt.Appendf(nil, `{"leaf":%d}`, n)
		hashes, err := tlog.StoredHashes(n, leaf, tree)
		if err != nil {
			t.Fatal(err)
		}
		tree = append(tree, hashes...)
		edge.Append(events.LeafHash(leaf))

		want, err := tlog.TreeHash(n+1, tree)
		if err != nil {
			t.Fatal(err)
		}
		if got := edge.Root(); got != events.Hash(want) {
			t.Fatalf("root at size %d is %s, tlog says %s", n+1, got, events.Hash(want))
		}
		if got := edge.Size(); got != uint64(n+1) {
			t.Fatalf("size is %d after %d leaves", got, n+1)
		}
	}
}

func TestEdgeCopiesAreIndependent(t *testing.T) {
	var a seal.Edge
	for i := range 13 {
		a.Append(events.LeafHash([]byte{byte(i)}))
	}
	root := a.Root()
	b := a
	for i := range 50 {
		b.Append(events.LeafHash([]byte{1, byte(i)}))
	}
	if a.Root() != root || a.Size() != 13 {
		t.Fatal("appending to a copy changed the original")
	}
	if b.Size() != 63 || b.Root() == root {
		t.Fatal("the copy did not grow")
	}
}

func BenchmarkEdgeAppend(b *testing.B) {
	var e seal.Edge
	leaf := events.LeafHash([]byte("leaf"))
	b.ReportAllocs()
	for b.Loop() {
		e.Append(leaf)
	}
}

// TestRecentAgain: what is written of an edge and its last sizes reads as it was, and
// goes on alike.
func TestRecentAgain(t *testing.T) {
	var r seal.Recent
	leaf := func(n int) events.Hash { return events.SumHash(fmt.Sprint(n)) }
	for n := 0; n <= 200_000; n++ {
		if n < 5 || n == 8191 || n == 8192 || n == 8193 || n == 199_999 {
			b, err := r.MarshalBinary()
			if err != nil {
				t.Fatal(err)
			}
			var again seal.Recent
			if err := again.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			for _, back := range []uint64{0, 1, 100, events.MaxCheckpointLag} {
				size := r.Size() - min(back, r.Size())
				want, _ := r.RootAt(size)
				if got, ok := again.RootAt(size); !ok || got != want {
					t.Errorf("of %d, at %d: %s %t, not %s", n, size, got, ok, want)
				}
			}
			again.Append(leaf(n))
			var one seal.Recent
			if err := one.UnmarshalBinary(b); err != nil {
				t.Fatal(err)
			}
			one.Append(leaf(n))
			if again.Root() != one.Root() || again.Size() != r.Size()+1 {
				t.Errorf("of %d: it goes on otherwise", n)
			}
			for _, bad := range [][]byte{nil, b[:len(b)-1], append(b, 0)} {
				if again.UnmarshalBinary(bad) == nil {
					t.Errorf("of %d: %d bytes are taken for %d", n, len(bad), len(b))
				}
			}
		}
		r.Append(leaf(n))
	}
}

// TestRecentRoots: the roots of the last sizes are those that the tree had.
func TestRecentRoots(t *testing.T) {
	var r seal.Recent
	var roots []events.Hash
	check := func(size int) {
		t.Helper()
		got, ok := r.RootAt(uint64(size))
		if remembered := size <= len(roots)-1 && size >= len(roots)-1-events.MaxCheckpointLag; remembered && !ok || ok && (size >= len(roots) || got != roots[size]) {
			t.Fatalf("of %d, at %d: %s %t", len(roots)-1, size, got, ok)
		}
	}
	for n := 0; n <= 140_000; n++ {
		roots = append(roots, r.Root())
		if n%9973 == 0 || n < 600 && n%7 == 0 {
			for _, back := range []int{0, 1, 2, 255, 256, 257, 8192, events.MaxCheckpointLag - 1, events.MaxCheckpointLag} {
				check(max(n-back, 0))
			}
			check(0)
			check(n + 1)
		}
		r.Append(events.SumHash(fmt.Sprint(n)))
	}
}
