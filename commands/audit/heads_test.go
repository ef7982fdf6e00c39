package audit

import (
	"fmt"
	"testing"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Without roots for long, what is kept in mind stays bounded, and the next root comes
// out right.
func TestHeadsStayBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("it goes over a million events")
	}
	var h heads
	latest := map[events.Stream]events.StreamHead{}
	var want seal.Heads
	n := 2*events.MaxHeadsLag + 77
	root := events.Position(n - 1000)
	for p := events.Position(1); p <= events.Position(n); p++ {
		s := events.Stream(fmt.Sprint("s-", p%97))
		head := events.StreamHead{Stream: s, Revision: latest[s].Revision + 1, LeafHash: events.Hash{byte(p), byte(p >> 8), byte(p >> 16), 1}}
		latest[s] = head
		h.add(events.Record{Header: events.Header{Intent: events.Intent{Stream: s}, Place: events.Place{Position: p, Revision: head.Revision}}, LeafHash: head.LeafHash})
		if len(h.recent) > 2*events.MaxHeadsLag {
			t.Fatalf("%d are kept in mind", len(h.recent))
		}
		if p == root {
			for _, x := range latest {
				want.Put(x)
			}
		}
	}
	if h.upTo == 0 || h.upTo >= root {
		t.Errorf("it has gone on to %d", h.upTo)
	}
	h.advance(root)
	if h.tree.Root() != want.Root() || h.tree.Streams() != 97 || len(h.recent) != 1000 {
		t.Errorf("%d streams, %d in mind, another root: %t", h.tree.Streams(), len(h.recent), h.tree.Root() != want.Root())
	}
}
