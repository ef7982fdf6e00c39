package events

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
)

// FormatVersion is the header format this package writes.
const FormatVersion = 1

// TimeLayout is RFC 3339 in UTC with exactly six fractional digits: the form of
// every time in a header, so that equal times are equal bytes.
const TimeLayout = "2006-01-02T15:04:05.000000Z"

// Intent is the part of a header that whoever decides fills in. Names of
// streams, kinds, actors and ids must pass CheckName; Correlation and Causation
// may be empty.
type Intent struct {
	ID          string `json:"id"`
	Stream      Stream `json:"stream"`
	Type        Kind   `json:"type"`
	Schema      int    `json:"schema"`
	Actor       string `json:"actor"`
	Correlation string `json:"correlation"`
	Causation   string `json:"causation"`
	// Key is SHA-256 over actor and idempotency key; zero without one.
	Key Hash `json:"key"`
	// Request is a SHA-256 that a repeated request has too and another has not: of the
	// client's idempotency key and the body. Without a key it is random; it is zero
	// for the ledger's own events. It must give nothing of an erased payload away.
	Request Hash `json:"request"`
	// Size is the payload's length in bytes.
	Size int `json:"size"`
	// Commitment is SHA-256(salt || payload).
	Commitment Hash `json:"commitment"`
}

// Place is the part of a header that whoever holds the head fills in.
type Place struct {
	Version  int      `json:"version"`
	Fleet    string   `json:"fleet"`
	Position Position `json:"position"`
	Revision Revision `json:"revision"`
	// Time never runs backwards along positions; microseconds, UTC.
	Time time.Time `json:"time"`
	// Prev is the leaf hash of the stream's previous header; zero for the first.
	Prev Hash `json:"prev"`
}

// Header is an event's header. Its encoding is one line of JSON without
// spaces, the keys in the order of the fields of Intent and then of Place, every
// key present. The encoded bytes are the event's Merkle leaf in every engine.
type Header struct {
	Intent
	Place
}

// AppendTo appends the intent's keys, with the opening brace and a trailing
// comma, to b: the first part of a header's encoding. It can be done before the
// place is known.
func (n Intent) AppendTo(b []byte) []byte {
	b = append(b, `{"id":"`...)
	b = append(b, n.ID...)
	b = append(b, `","stream":"`...)
	b = append(b, n.Stream...)
	b = append(b, `","type":"`...)
	b = append(b, n.Type...)
	b = append(b, `","schema":`...)
	b = strconv.AppendInt(b, int64(n.Schema), 10)
	b = append(b, `,"actor":"`...)
	b = append(b, n.Actor...)
	b = append(b, `","correlation":"`...)
	b = append(b, n.Correlation...)
	b = append(b, `","causation":"`...)
	b = append(b, n.Causation...)
	b = append(b, `","key":"`...)
	b = n.Key.AppendTo(b)
	b = append(b, `","request":"`...)
	b = n.Request.AppendTo(b)
	b = append(b, `","size":`...)
	b = strconv.AppendInt(b, int64(n.Size), 10)
	b = append(b, `,"commitment":"`...)
	b = n.Commitment.AppendTo(b)
	return append(b, `",`...)
}

// AppendTo appends the place's keys and the closing brace to b.
func (p Place) AppendTo(b []byte) []byte {
	b = append(b, `"version":`...)
	b = strconv.AppendInt(b, int64(p.Version), 10)
	b = append(b, `,"fleet":"`...)
	b = append(b, p.Fleet...)
	b = append(b, `","position":`...)
	b = strconv.AppendUint(b, uint64(p.Position), 10)
	b = append(b, `,"revision":`...)
	b = strconv.AppendUint(b, uint64(p.Revision), 10)
	b = append(b, `,"time":"`...)
	b = p.Time.UTC().AppendFormat(b, TimeLayout)
	b = append(b, `","prev":"`...)
	b = p.Prev.AppendTo(b)
	return append(b, `"}`...)
}

// Encode returns the header's exact bytes, the Merkle leaf.
func (h Header) Encode() []byte {
	b := make([]byte, 0, 640)
	return h.Place.AppendTo(h.Intent.AppendTo(b))
}

// AppendTo appends the text form of h to b.
func (h Hash) AppendTo(b []byte) []byte {
	if h.IsZero() {
		return b
	}
	const digits = "0123456789abcdef"
	for _, c := range h {
		b = append(b, digits[c>>4], digits[c&15])
	}
	return b
}

// ParseHeader decodes exactly what Encode writes and refuses every other
// spelling of the same header: a leaf has one form.
func ParseHeader(leaf []byte) (Header, error) {
	return parseHeaderAfter(leaf, &Header{})
}

// parseHeaderAfter is ParseHeader for a leaf that comes after that of was, which
// ParseHeader has returned, or which is zero.
func parseHeaderAfter(leaf []byte, was *Header) (Header, error) {
	if h, ok := scanHeader(leaf, was); ok {
		return h, nil
	}
	return parseHeader(leaf)
}

// parseHeader is ParseHeader without the quick way.
func parseHeader(leaf []byte) (Header, error) {
	var h Header
	if err := json.Unmarshal(leaf, &h, json.RejectUnknownMembers(true)); err != nil {
		return Header{}, fmt.Errorf("header: %w", err)
	}
	if h.Version != FormatVersion {
		return Header{}, fmt.Errorf("header: format version %d, this program reads %d", h.Version, FormatVersion)
	}
	if err := h.Check(); err != nil {
		return Header{}, fmt.Errorf("header: %w", err)
	}
	if !bytes.Equal(h.Encode(), leaf) {
		return Header{}, fmt.Errorf("header: not in its one canonical form")
	}
	return h, nil
}

// Check reports why the intent cannot be put in a header, if so.
func (n Intent) Check() error {
	for _, f := range [...]struct{ what, value string }{
		{"event id", n.ID}, {"stream", string(n.Stream)}, {"type", string(n.Type)}, {"actor", n.Actor},
	} {
		if err := CheckName(f.what, f.value); err != nil {
			return err
		}
	}
	if err := checkPlain("correlation id", n.Correlation); err != nil {
		return err
	}
	if err := checkPlain("causation id", n.Causation); err != nil {
		return err
	}
	return n.checkNumbers()
}

// checkNumbers is Check but for the names.
func (n *Intent) checkNumbers() error {
	switch {
	case n.Schema < 1:
		return fmt.Errorf("schema is %d, it starts at 1", n.Schema)
	case n.Size < 0:
		return fmt.Errorf("size is negative")
	case n.Commitment.IsZero():
		return fmt.Errorf("commitment is missing")
	}
	return nil
}

// Check reports why h is not a header that a log can hold, if so.
func (h Header) Check() error {
	if err := h.Intent.Check(); err != nil {
		return err
	}
	if !ValidID(h.Fleet) {
		return fmt.Errorf("fleet %q is not a valid id", h.Fleet)
	}
	return h.Place.checkNumbers()
}

// checkNumbers is Header.Check for p, but for the fleet.
func (p *Place) checkNumbers() error {
	switch {
	case p.Position == 0:
		return fmt.Errorf("position is 0, it starts at 1")
	case p.Revision == 0:
		return fmt.Errorf("revision is 0, it starts at 1")
	case (p.Revision == 1) != p.Prev.IsZero():
		return fmt.Errorf("revision %d and prev %q do not fit: exactly the first event of a stream has no previous one", p.Revision, p.Prev)
	}
	return nil
}

// LeafHash is the Merkle leaf hash of a header's bytes: SHA-256(0x00 || leaf),
// RFC 6962 section 2.1.
func LeafHash(leaf []byte) Hash {
	d := sha256.New()
	d.Write([]byte{0})
	d.Write(leaf)
	var h Hash
	d.Sum(h[:0])
	return h
}

// SaltBytes is the length of the random salt that lies with each payload.
const SaltBytes = 16

// Commit is the commitment of a header to its payload: SHA-256(salt || payload).
// Without the salt nobody can test a guess of an erased payload against it.
func Commit(salt [SaltBytes]byte, payload []byte) Hash {
	d := sha256.New()
	d.Write(salt[:])
	d.Write(payload)
	var h Hash
	d.Sum(h[:0])
	return h
}
