package projections

import (
	"context"
	"time"

	"fleetledger/events"
)

// Block is a peer's claim as it was published.
type Block struct {
	// Only the hash is known of an erased block.
	events.BlockPublished
	Position events.Position
	EventID  string
	By       string
	At       time.Time
	Erased   bool
}

// OwnOf reports whether an actor published the block as its own: what it imported
// is somebody else's. Of an erased block nobody can tell.
func (b *Block) OwnOf(actor string) bool { return b.By == actor && b.Origin == nil && !b.Erased }

// BlockOf is the block that an event of kind block.published publishes.
func BlockOf(r events.Record, e events.BlockPublished) *Block {
	h := r.Header
	return &Block{BlockPublished: e, Position: h.Position, EventID: h.ID, By: h.Actor, At: h.Time, Erased: r.Erased}
}

// LoadBlock reads a block as of position at (0: now), nil if it is not here.
func LoadBlock(ctx context.Context, log events.Log, hash events.Hash, at events.Position) (*Block, error) {
	for r, err := range log.ReadStream(ctx, events.BlockStream(hash), 0) {
		if err != nil {
			return nil, err
		}
		if at != 0 && r.Header.Position > at {
			return nil, nil
		}
		if r.Erased {
			return BlockOf(r, events.BlockPublished{Hash: hash}), nil
		}
		e, err := events.DecodeAs[events.BlockPublished](r)
		return BlockOf(r, e), err
	}
	return nil, nil
}

// Acceptance is what one receiver took of a block.
type Acceptance struct {
	events.BlockAccepted
	Position events.Position
	EventID  string
	By       string
	At       time.Time
}

// LoadAcceptances reads the newest acceptances of a block as of position at (0:
// now), newest first, and how many there are.
func LoadAcceptances(ctx context.Context, log events.Log, hash events.Hash, at events.Position, newest int) (list []Acceptance, all int, err error) {
	kept := make([]events.Record, 0, newest) // the newest, as a ring
	for r, err := range log.ReadStream(ctx, events.BlockStream(hash), 1) {
		if err != nil {
			return nil, 0, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		if len(kept) < newest {
			kept = append(kept, r)
		} else {
			kept[all%newest] = r
		}
		all++
	}
	for i := range kept {
		r := kept[(all-1-i)%newest]
		if r.Erased {
			continue
		}
		e, err := events.DecodeAs[events.BlockAccepted](r)
		if err != nil {
			return nil, 0, err
		}
		h := r.Header
		list = append(list, Acceptance{BlockAccepted: e, Position: h.Position, EventID: h.ID, By: h.Actor, At: h.Time})
	}
	return list, all, nil
}
