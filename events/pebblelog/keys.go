package pebblelog

import (
	"encoding/binary"
	"fmt"

	"fleetledger/events"
)

// The first byte of every key; the package comment has the layout.
const (
	headerSpace  = 'h'
	payloadSpace = 'p'
	streamSpace  = 's'
	idSpace      = 'i'
	keySpace     = 'k'
	tileSpace    = 't'
	metaSpace    = 'm'
	erasedSpace  = 'e'
)

const (
	positionKeyLen  = 1 + 8
	tileKeyLen      = 1 + 1 + 8
	streamValueLen  = 8 + len(events.Hash{})
	bindingValueLen = 8 + 8 + len(events.Hash{})
)

var metaKey = []byte("mlog")

func headerKey(b []byte, p events.Position) []byte  { return positionKey(b, headerSpace, p) }
func payloadKey(b []byte, p events.Position) []byte { return positionKey(b, payloadSpace, p) }
func erasedKey(b []byte, p events.Position) []byte  { return positionKey(b, erasedSpace, p) }

func positionKey(b []byte, space byte, p events.Position) []byte {
	return binary.BigEndian.AppendUint64(append(b, space), uint64(p))
}

// positionOf is the position of a header's, a payload's or an erased event's key.
func positionOf(key []byte) (events.Position, error) {
	if len(key) != positionKeyLen {
		return 0, fmt.Errorf("key %q is %d bytes long, not %d", key, len(key), positionKeyLen)
	}
	return events.Position(binary.BigEndian.Uint64(key[1:])), nil
}

// spaceEnd is the end of the keys that begin with this byte.
func spaceEnd(space byte) []byte { return []byte{space + 1} }

func streamKeyLen(s events.Stream) int { return 1 + len(s) + 1 + 8 }

func streamKey(b []byte, s events.Stream, r events.Revision) []byte {
	b = append(append(append(b, streamSpace), s...), 0)
	return binary.BigEndian.AppendUint64(b, uint64(r))
}

// streamEnd is the end of the keys of a stream.
func streamEnd(b []byte, s events.Stream) []byte {
	return append(append(append(b, streamSpace), s...), 1)
}

// parseStreamKey is the inverse of streamKey.
func parseStreamKey(key []byte) (events.Stream, events.Revision, error) {
	sep := len(key) - 9
	if sep < 1 || key[0] != streamSpace || key[sep] != 0 {
		return "", 0, fmt.Errorf("%q is not the key of a stream's event", key)
	}
	return events.Stream(key[1:sep]), events.Revision(binary.BigEndian.Uint64(key[sep+1:])), nil
}

func putStreamValue(b []byte, p events.Position, leaf events.Hash) {
	binary.BigEndian.PutUint64(b, uint64(p))
	copy(b[8:], leaf[:])
}

func parseStreamValue(v []byte) (events.Position, events.Hash, error) {
	if len(v) != streamValueLen {
		return 0, events.Hash{}, fmt.Errorf("a stream's entry is %d bytes long, not %d", len(v), streamValueLen)
	}
	return events.Position(binary.BigEndian.Uint64(v)), events.Hash(v[8:]), nil
}

func idKey(b []byte, id string) []byte { return append(append(b, idSpace), id...) }

func putPosition(b []byte, p events.Position) { binary.BigEndian.PutUint64(b, uint64(p)) }

func parseIDValue(v []byte) (events.Position, error) {
	if len(v) != 8 {
		return 0, fmt.Errorf("an id's entry is %d bytes long, not 8", len(v))
	}
	return events.Position(binary.BigEndian.Uint64(v)), nil
}

func bindingKey(b []byte, key events.Hash) []byte { return append(append(b, keySpace), key[:]...) }

// binding is what an idempotency key is bound to.
type binding struct {
	first, last events.Position
	request     events.Hash
}

func (v binding) put(b []byte) {
	binary.BigEndian.PutUint64(b, uint64(v.first))
	binary.BigEndian.PutUint64(b[8:], uint64(v.last))
	copy(b[16:], v.request[:])
}

func parseBinding(v []byte) (binding, error) {
	if len(v) != bindingValueLen {
		return binding{}, fmt.Errorf("an idempotency key's entry is %d bytes long, not %d", len(v), bindingValueLen)
	}
	return binding{
		first:   events.Position(binary.BigEndian.Uint64(v)),
		last:    events.Position(binary.BigEndian.Uint64(v[8:])),
		request: events.Hash(v[16:]),
	}, nil
}

func tileKey(b []byte, level int, n uint64) []byte {
	return binary.BigEndian.AppendUint64(append(b, tileSpace, byte(level)), n)
}

// logID tells one log from every other, so that an anchor is not taken for
// that of another log.
type logID [16]byte

func metaValue(id logID, fleet string) []byte { return append(id[:], fleet...) }

func parseMeta(v []byte) (logID, string, error) {
	if len(v) < len(logID{}) {
		return logID{}, "", fmt.Errorf("the log's id is %d bytes long, not %d", len(v), len(logID{}))
	}
	return logID(v[:len(logID{})]), string(v[len(logID{}):]), nil
}
