package events

import (
	"context"
	"fmt"
	"iter"
)

// Stored is an event as an engine keeps it, not looked at. Who reads a log from end to
// end has it so, and makes records of many at a time.
type Stored struct {
	// Position is the one that it is kept under.
	Position Position
	Leaf     []byte
	Salt     [SaltBytes]byte
	// Payload is nil, and Erased true, when the payload was erased.
	Payload []byte
	Erased  bool
}

// Record makes a record of s that shares its bytes. A leaf that is not a header in its
// one form, or that of another position, is a *CorruptError. The payload is not
// compared with the header: that is Record.Verify.
func (s Stored) Record() (Record, error) { return s.recordAfter(&Header{}) }

// recordAfter is Record for an event behind that of was, the header of a record, or the
// zero Header.
func (s Stored) recordAfter(was *Header) (Record, error) {
	h, err := parseHeaderAfter(s.Leaf, was)
	if err != nil {
		return Record{}, &CorruptError{Position: s.Position, Detail: err.Error()}
	}
	if h.Position != s.Position {
		return Record{}, &CorruptError{Position: s.Position, Detail: fmt.Sprintf("the header is that of position %d", h.Position)}
	}
	return Record{Header: h, Leaf: s.Leaf, LeafHash: LeafHash(s.Leaf), Salt: s.Salt, Payload: s.Payload, Erased: s.Erased}, nil
}

// Stored is r as an engine would keep it, what was made of it left aside.
func (r Record) Stored() Stored {
	return Stored{Position: r.Header.Position, Leaf: r.Leaf, Salt: r.Salt, Payload: r.Payload, Erased: r.Erased}
}

// StoredReader is a Log that hands its events out as it keeps them.
type StoredReader interface {
	// ReadStored is Log.ReadAll, but that nobody looked at the events. The bytes of
	// one are overwritten once the next is asked for.
	ReadStored(ctx context.Context, after Position) iter.Seq2[Stored, error]
}

// ReadStored reads l as a StoredReader does, if it is one or not.
func ReadStored(ctx context.Context, l Log, after Position) iter.Seq2[Stored, error] {
	if s, ok := l.(StoredReader); ok {
		return s.ReadStored(ctx, after)
	}
	return func(yield func(Stored, error) bool) {
		for r, err := range l.ReadAll(ctx, after) {
			if !yield(r.Stored(), err) {
				return
			}
		}
	}
}
