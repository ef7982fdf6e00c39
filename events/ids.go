package events

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
)

// Position is an event's place in its fleet's log: 1, 2, 3, ... without gaps.
// Zero is before the first event.
type Position uint64

// Revision is an event's place in its stream: 1, 2, 3, ... without gaps.
// Zero is the revision of a stream that has no event yet.
type Revision uint64

// Stream names one sequence of events: "authority", "task-<id>", "ext-...".
type Stream string

// The streams of which a fleet has exactly one each.
const (
	AuthorityStream  Stream = "authority"
	TokensStream     Stream = "tokens"
	SettingsStream   Stream = "settings"
	CollectiveStream Stream = "collective"
	LedgerStream     Stream = "ledger"
)

// TaskStream holds a task from its submission to its settlement and the
// conclusions after it.
func TaskStream(id string) Stream { return Stream("task-" + id) }

// GateStream holds a gate that stands alone, with its approval.
func GateStream(id string) Stream { return Stream("gate-" + id) }

// MachineStream holds the memory of one machine.
func MachineStream(id string) Stream { return Stream("machine-" + id) }

// BlockStream holds a block, and what its receivers took of it.
func BlockStream(h Hash) Stream { return Stream("block-" + h.String()) }

// BlockOfStream is the block that a stream is about; ok is false for other streams.
func BlockOfStream(s Stream) (h Hash, ok bool) {
	text, ok := strings.CutPrefix(string(s), "block-")
	return h, ok && h.UnmarshalText([]byte(text)) == nil && !h.IsZero()
}

// MaxNameBytes bounds stream names, kinds and event ids, so that a header is
// bounded too.
const MaxNameBytes = 160

// CheckName refuses what a header cannot carry verbatim: an empty or over-long
// name, and any byte outside printable ASCII or with a meaning in JSON. what
// says which name it is, for the error.
func CheckName(what, s string) error {
	if s == "" {
		return fmt.Errorf("%s is empty", what)
	}
	if len(s) > MaxNameBytes {
		return fmt.Errorf("%s is %d bytes long, at most %d are allowed", what, len(s), MaxNameBytes)
	}
	return checkPlain(what, s)
}

// checkPlain is CheckName for names that may be empty.
func checkPlain(what, s string) error {
	if len(s) > MaxNameBytes {
		return fmt.Errorf("%s is %d bytes long, at most %d are allowed", what, len(s), MaxNameBytes)
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c > '~' || c == '"' || c == '\\' {
			return fmt.Errorf("%s has the byte %q at %d: only visible ASCII without quotes and backslashes is allowed", what, c, i)
		}
	}
	return nil
}

// ValidID reports whether s may name an actor, a scope or a fleet:
// [a-z0-9][a-z0-9._-]{0,63}. Nothing outside it is accepted anywhere, so no
// look-alike, case twin or invisible character can stand for somebody else.
func ValidID(s string) bool {
	if len(s) == 0 || len(s) > 64 {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// Hash is a SHA-256 value. Its text form is lower-case hexadecimal; the zero
// Hash means "none" and its text form is empty.
type Hash [sha256.Size]byte

// IsZero reports whether h means "none".
func (h Hash) IsZero() bool { return h == Hash{} }

func (h Hash) String() string {
	if h.IsZero() {
		return ""
	}
	return hex.EncodeToString(h[:])
}

// MarshalText implements encoding.TextMarshaler.
func (h Hash) MarshalText() ([]byte, error) { return []byte(h.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. It refuses every text
// that MarshalText does not write.
func (h *Hash) UnmarshalText(text []byte) error {
	if len(text) == 0 {
		*h = Hash{}
		return nil
	}
	if len(text) != hex.EncodedLen(len(h)) {
		return fmt.Errorf("hash has %d characters, not %d", len(text), hex.EncodedLen(len(h)))
	}
	var v Hash
	for i := 0; i < len(v); i += 4 {
		four, ok := hexBytes(binary.LittleEndian.Uint64(text[2*i:]))
		if !ok {
			at := slices.IndexFunc(text, func(c byte) bool { return (c < '0' || c > '9') && (c < 'a' || c > 'f') })
			return fmt.Errorf("hash has the character %q: only 0-9 and a-f are allowed", text[at])
		}
		binary.LittleEndian.PutUint32(v[i:], four)
	}
	if v.IsZero() {
		return fmt.Errorf("a hash of zeros is written as the empty string")
	}
	*h = v
	return nil
}

// hexBytes reads eight hexadecimal digits in lower case, the first in the lowest byte,
// as four bytes, all at once: every header has several hashes, and digit by digit takes
// four times as long.
func hexBytes(text uint64) (four uint32, ok bool) {
	const each = 0x0101010101010101
	letter := text >> 6 & each // is set for letters
	v := text&(0x0f*each) + 9*letter
	// The digits that these values are written with: any other text gives another.
	over9 := (v + 0x76*each) >> 7 & each
	ok = v+'0'*each+('a'-'0'-10)*over9 == text && v&(0xf0*each) == 0
	v = (v<<4 | v>>8) & 0x00ff00ff00ff00ff
	v = (v | v>>8) & 0x0000ffff0000ffff
	return uint32(v | v>>16), ok
}

// SumHash is the SHA-256 of its parts, each preceded by its length as eight
// bytes, big endian, so that no two lists of parts share an input.
func SumHash(parts ...string) Hash {
	d := sha256.New()
	var n [8]byte
	for _, p := range parts {
		for i := range n {
			n[i] = byte(uint64(len(p)) >> (56 - 8*i))
		}
		d.Write(n[:])
		d.Write([]byte(p))
	}
	var h Hash
	d.Sum(h[:0])
	return h
}
