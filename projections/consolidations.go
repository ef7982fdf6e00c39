package projections

import (
	"time"

	"fleetledger/events"
)

// Consolidation is what somebody said that records amount to, or had views leave
// out.
type Consolidation struct {
	events.MemoryConsolidated
	ID       string
	Position events.Position
	Stream   events.Stream
	By       string
	At       time.Time
}

// ConsolidationOf is the consolidation that an event of its kind tells of.
func ConsolidationOf(r events.Record, e events.MemoryConsolidated) Consolidation {
	h := r.Header
	return Consolidation{MemoryConsolidated: e, ID: h.ID, Position: h.Position, Stream: h.Stream, By: h.Actor, At: h.Time}
}
