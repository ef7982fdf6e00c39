package kurrentlog

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strconv"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// The parts of an event's metadata; see the package comment.
const (
	leftPart   = `{"left":`
	saltPart   = `,"salt":"`
	headerPart = `","header":`
	metaEnd    = `}`
	// metaBytes bounds the metadata but for the header.
	metaBytes = len(leftPart) + 4 + len(saltPart) + 2*events.SaltBytes + len(headerPart) + len(metaEnd)
)

// encode makes the cluster's event of a record, which left more of its append follow.
func encode(r *events.Record, left int) esdb.EventData {
	m := make([]byte, 0, metaBytes+len(r.Leaf))
	m = strconv.AppendInt(append(m, leftPart...), int64(left), 10)
	m = append(m, saltPart...)
	if !r.Erased {
		m = hex.AppendEncode(m, r.Salt[:])
	}
	m = append(append(append(m, headerPart...), r.Leaf...), metaEnd...)
	e := esdb.EventData{
		EventID:   [16]byte(r.LeafHash[:16]),
		EventType: string(r.Header.Type),
		Data:      r.Payload,
		Metadata:  m,
	}
	if jsontext.Value(r.Payload).IsValid() {
		e.ContentType = esdb.ContentTypeJson
	}
	return e
}

// decode is the inverse of encode. It refuses what is not, byte for byte, an event
// that encode made for this place.
func decode(e *esdb.RecordedEvent) (r events.Record, left int, err error) {
	p := events.Position(e.EventNumber + 1)
	wrong := func(format string, args ...any) error {
		return &events.CorruptError{Position: p, Detail: fmt.Sprintf("revision %d of stream %s: ", e.EventNumber, e.StreamID) + fmt.Sprintf(format, args...)}
	}
	m, ok := bytes.CutPrefix(e.UserMetadata, []byte(leftPart))
	n, m, ok2 := bytes.Cut(m, []byte(saltPart))
	salt, m, ok3 := bytes.Cut(m, []byte(headerPart))
	leaf, ok4 := bytes.CutSuffix(m, []byte(metaEnd))
	if !ok || !ok2 || !ok3 || !ok4 {
		return r, 0, wrong("it is no event of fleetledger: its metadata begins %.60q", e.UserMetadata)
	}
	if left, err = strconv.Atoi(string(n)); err != nil || left < 0 || left >= events.MaxAppendEvents {
		return r, 0, wrong("%q events are left of its append", n)
	}
	r.Leaf = bytes.Clone(leaf)
	if r.Header, err = events.ParseHeader(r.Leaf); err != nil {
		return r, 0, wrong("%v", err)
	}
	r.LeafHash = events.LeafHash(r.Leaf)
	switch {
	case r.Header.Position != p:
		return r, 0, wrong("its header is that of position %d", r.Header.Position)
	case len(salt) == 0 && len(e.Data) == 0:
		r.Erased = true
		return r, left, nil
	case len(salt) != 2*events.SaltBytes:
		return r, 0, wrong("its salt has %d digits", len(salt))
	}
	if _, err := hex.Decode(r.Salt[:], salt); err != nil {
		return r, 0, wrong("its salt: %v", err)
	}
	r.Payload = append([]byte{}, e.Data...)
	if err := r.Verify(); err != nil {
		return r, 0, wrong("%v", err)
	}
	return r, left, nil
}
