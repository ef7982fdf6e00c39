package kurrentlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"fleetledger/events"
)

// What is handed over is, in this order, numbers as unsigned varints:
//
//	the number of appends; for each
//	  the number of drafts; for each
//	    the length of its intent, as a header begins with it, and the intent
//	    the salt
//	    the length of its payload, and the payload
//	  the number of expectations; for each
//	    the length of the stream's name, the name, the revision
//
// Key and request are those of the first intent.

// encodeHanded is what another relay is sent.
func encodeHanded(batch []*request) []byte {
	size := 16
	for _, r := range batch {
		size += r.bytes
	}
	b := binary.AppendUvarint(make([]byte, 0, size), uint64(len(batch)))
	var intent []byte
	for _, r := range batch {
		b = binary.AppendUvarint(b, uint64(len(r.a.Drafts)))
		for i := range r.a.Drafts {
			d := &r.a.Drafts[i]
			intent = d.Intent.AppendTo(intent[:0])
			b = append(binary.AppendUvarint(b, uint64(len(intent))), intent...)
			b = append(b, d.Salt[:]...)
			b = append(binary.AppendUvarint(b, uint64(len(d.Payload))), d.Payload...)
		}
		b = binary.AppendUvarint(b, uint64(len(r.a.Expect)))
		for _, e := range r.a.Expect {
			b = append(binary.AppendUvarint(b, uint64(len(e.Stream))), e.Stream...)
			b = binary.AppendUvarint(b, uint64(e.Revision))
		}
	}
	return b
}

// anyPlace completes an intent to a header that can be parsed.
var anyPlace = events.Place{Version: events.FormatVersion, Fleet: "any", Position: 1, Revision: 1, Time: time.Unix(0, 0)}.AppendTo(nil)

var errHanded = errors.New("what was handed over does not read")

// decodeHanded is the inverse of encodeHanded. What it returns passes Check.
func decodeHanded(b []byte) ([]events.Append, error) {
	r := handedReader{rest: b}
	n := r.count(maxBatchEvents)
	appends := make([]events.Append, 0, n)
	for range n {
		var a events.Append
		for range r.count(events.MaxAppendEvents) {
			d, err := r.draft()
			if err != nil {
				return nil, err
			}
			a.Drafts = append(a.Drafts, d)
		}
		for range r.count(maxHandedExpect) {
			s := events.Stream(r.bytes(r.count(events.MaxNameBytes)))
			a.Expect = append(a.Expect, events.Expectation{Stream: s, Revision: events.Revision(r.number())})
		}
		if r.bad || len(a.Drafts) == 0 {
			return nil, errHanded
		}
		a.Key, a.Request = a.Drafts[0].Intent.Key, a.Drafts[0].Intent.Request
		if err := a.Check(); err != nil {
			return nil, fmt.Errorf("%w: %w", errHanded, err)
		}
		appends = append(appends, a)
	}
	if r.bad || len(r.rest) > 0 || len(appends) == 0 {
		return nil, errHanded
	}
	return appends, nil
}

// maxHandedExpect bounds the expectations of one append.
const maxHandedExpect = 2 * events.MaxAppendEvents

// handedReader reads bytes that may be anything.
type handedReader struct {
	rest []byte
	bad  bool
}

func (r *handedReader) number() uint64 {
	n, size := binary.Uvarint(r.rest)
	if size <= 0 {
		r.bad, r.rest = true, nil
		return 0
	}
	r.rest = r.rest[size:]
	return n
}

// count is a number of at most so much.
func (r *handedReader) count(most int) int {
	n := r.number()
	if n > uint64(most) {
		r.bad, r.rest = true, nil
		return 0
	}
	return int(n)
}

func (r *handedReader) bytes(n int) []byte {
	if n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *handedReader) draft() (events.Draft, error) {
	intent := r.bytes(r.count(maxHandedBytes))
	salt := r.bytes(events.SaltBytes)
	payload := r.bytes(r.count(maxHandedBytes))
	if r.bad {
		return events.Draft{}, errHanded
	}
	h, err := events.ParseHeader(append(append(make([]byte, 0, len(intent)+len(anyPlace)), intent...), anyPlace...))
	if err != nil {
		return events.Draft{}, fmt.Errorf("%w: %w", errHanded, err)
	}
	d := events.NewDraft(h.Intent, [events.SaltBytes]byte(salt), payload)
	if d.Intent != h.Intent {
		return events.Draft{}, fmt.Errorf("%w: event %s: its payload is not the one that its header is of", errHanded, h.ID)
	}
	return d, nil
}
