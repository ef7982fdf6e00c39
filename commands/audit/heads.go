package audit

import (
	"slices"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// heads follow the heads of all streams, a little behind: a root is recorded some
// events after the position that it is of.
type heads struct {
	tree seal.Heads
	upTo events.Position // what tree has
	// recent are the events after upTo, in the order of positions.
	recent []headAt
	// lost is true when a header could not be read: no root can be made again then.
	lost bool
}

type headAt struct {
	position events.Position
	head     events.StreamHead
}

func (h *heads) add(r events.Record) {
	if len(h.recent) == 2*events.MaxHeadsLag {
		h.advance(h.recent[events.MaxHeadsLag-1].position)
	}
	h.recent = append(h.recent, headAt{r.Header.Position, events.StreamHead{Stream: r.Header.Stream, Revision: r.Header.Revision, LeafHash: r.LeafHash}})
}

// advance brings the tree to a position. Of each stream only the newest head counts.
func (h *heads) advance(to events.Position) {
	n, _ := slices.BinarySearchFunc(h.recent, to+1, func(x headAt, p events.Position) int {
		if x.position < p {
			return -1
		}
		return 1
	})
	done := make(map[events.Stream]bool, n)
	for i := n - 1; i >= 0; i-- {
		if x := h.recent[i].head; !done[x.Stream] {
			done[x.Stream] = true
			h.tree.Put(x)
		}
	}
	h.recent = append(h.recent[:0], h.recent[n:]...)
	h.upTo = max(h.upTo, to)
}

// rooted makes a recorded root again.
func (a *auditor) rooted(r events.Record) {
	e, err := events.DecodeAs[events.HeadsRooted](r)
	if err != nil || r.Verify() != nil {
		return // told elsewhere, if it is not to be so
	}
	h := &a.heads
	switch {
	case r.Header.Actor != events.RelayActor || r.Header.Stream != events.LedgerStream:
		a.find(r, Heads, events.RelayActor, r.Header.Actor, "only the relay roots the heads of streams, in stream %s", events.LedgerStream)
	case h.lost:
		a.report.Add(Finding{Kind: Undetermined, Position: r.Header.Position, Stream: r.Header.Stream,
			Detail: "the root over the heads of all streams is not checked: not all of their headers can be read"})
	case e.At >= r.Header.Position || e.At < h.upTo || r.Header.Position-e.At > events.MaxHeadsLag:
		a.find(r, Heads, nil, e.At, "the root is of position %d, which does not follow the last one's or lies more than %d events back", e.At, events.MaxHeadsLag)
	default:
		h.advance(e.At)
		if root := h.tree.Root(); root != e.Root || h.tree.Streams() != e.Streams {
			a.find(r, Heads, []any{h.tree.Streams(), root}, []any{e.Streams, e.Root}, "the root over the heads of all streams at position %d comes out otherwise", e.At)
			return
		}
		a.report.HeadsVerified++
	}
}
