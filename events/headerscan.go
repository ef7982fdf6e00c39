package events

import (
	"bytes"
	"math"
	"time"
)

// scanHeader decodes a header in its canonical form, several times faster than a
// JSON decoder does: replay and audit decode every header there is. It takes
// nothing that ParseHeader would refuse; what it does not take may still be a
// header, or ParseHeader knows what is wrong with it.
//
// was is a header that was taken before, or the zero Header. Neighbours in a log have
// most of their names in common: those are taken from was, neither checked nor made
// again.
func scanHeader(leaf []byte, was *Header) (Header, bool) {
	s := headerScanner{rest: leaf, ok: true}
	var h Header
	h.ID = s.name(`{"id":"`, "")
	h.Stream = Stream(s.name(`","stream":"`, string(was.Stream)))
	h.Type = s.kind(`","type":"`, was.Type)
	h.Schema = s.int(`","schema":`)
	h.Actor = s.name(`,"actor":"`, was.Actor)
	h.Correlation = s.text(`","correlation":"`, was.Correlation, was.ID)
	h.Causation = s.text(`","causation":"`, was.Causation, was.ID)
	h.Key = s.hash(`","key":"`)
	h.Request = s.hash(`","request":"`)
	h.Size = s.int(`","size":`)
	h.Commitment = s.hash(`,"commitment":"`)
	h.Version = s.int(`","version":`)
	h.Fleet = s.name(`,"fleet":"`, was.Fleet)
	h.Position = Position(s.uint(`","position":`))
	h.Revision = Revision(s.uint(`,"revision":`))
	h.Time = s.time(`,"time":"`)
	h.Prev = s.hash(`","prev":"`)
	s.literal(`"}`)
	return h, s.ok && len(s.rest) == 0 && h.Version == FormatVersion && h.Intent.checkNumbers() == nil &&
		(h.Fleet == was.Fleet || ValidID(h.Fleet)) && h.Place.checkNumbers() == nil
}

// headerScanner reads one value after another, each after the text that must
// come before it. ok is false once anything was not as it must be.
type headerScanner struct {
	rest []byte
	ok   bool
}

func (s *headerScanner) literal(want string) {
	if len(s.rest) < len(want) || string(s.rest[:len(want)]) != want {
		s.ok = false
		return
	}
	s.rest = s.rest[len(want):]
}

// quoted returns what comes before the next quote.
func (s *headerScanner) quoted(before string) []byte {
	s.literal(before)
	end := bytes.IndexByte(s.rest, '"')
	if !s.ok || end < 0 {
		s.ok = false
		return nil
	}
	v := s.rest[:end]
	s.rest = s.rest[end:]
	return v
}

// given takes a value that was checked before, if it is the next one.
func (s *headerScanner) given(v string) bool {
	if v == "" || len(s.rest) <= len(v) || s.rest[len(v)] != '"' || string(s.rest[:len(v)]) != v {
		return false
	}
	s.rest = s.rest[len(v):]
	return true
}

// plain scans to the next quote what passes checkPlain.
func (s *headerScanner) plain() []byte {
	n := 0
	for n < len(s.rest) && plainName[s.rest[n]] {
		n++
	}
	if n == len(s.rest) || s.rest[n] != '"' || n > MaxNameBytes {
		s.ok = false
		return nil
	}
	v := s.rest[:n]
	s.rest = s.rest[n:]
	return v
}

// plainName marks the bytes that a name may have.
var plainName = func() (t [256]bool) {
	for c := range t {
		t[c] = checkPlain("", string([]byte{byte(c)})) == nil
	}
	return t
}()

// text scans a name that may be empty, likely to be one of those given.
func (s *headerScanner) text(before, was, or string) string {
	s.literal(before)
	switch {
	case s.given(was):
		return was
	case s.given(or):
		return or
	}
	return string(s.plain())
}

func (s *headerScanner) name(before, was string) string {
	v := s.text(before, was, "")
	s.ok = s.ok && v != ""
	return v
}

func (s *headerScanner) kind(before string, was Kind) Kind {
	s.literal(before)
	if s.given(string(was)) {
		return was
	}
	v := s.plain()
	s.ok = s.ok && len(v) > 0
	if k, ok := kinds.names[string(v)]; ok {
		return k
	}
	return Kind(v)
}

func (s *headerScanner) hash(before string) (h Hash) {
	if h.UnmarshalText(s.quoted(before)) != nil {
		s.ok = false
	}
	return h
}

// uint leaves a number of more than 19 digits to the JSON decoder: it may be too large.
func (s *headerScanner) uint(before string) (v uint64) {
	s.literal(before)
	n := 0
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' && n < 20 {
		v = 10*v + uint64(s.rest[n]-'0')
		n++
	}
	if !s.ok || n == 0 || n == 20 || n > 1 && s.rest[0] == '0' {
		s.ok = false
		return 0
	}
	s.rest = s.rest[n:]
	return v
}

func (s *headerScanner) int(before string) int {
	v := s.uint(before)
	if v > math.MaxInt {
		s.ok = false
		return 0
	}
	return int(v)
}

func (s *headerScanner) time(before string) time.Time {
	v := s.quoted(before)
	if len(v) != len(TimeLayout) {
		s.ok = false
		return time.Time{}
	}
	num := func(from, to int) (n int) {
		for _, c := range v[from:to] {
			s.ok = s.ok && c >= '0' && c <= '9'
			n = 10*n + int(c-'0')
		}
		return n
	}
	month, day, hour, minute, second := num(5, 7), num(8, 10), num(11, 13), num(14, 16), num(17, 19)
	t := time.Date(num(0, 4), time.Month(month), day, hour, minute, second, num(20, 26)*1000, time.UTC)
	// Date takes a 31st of April for the 1st of May.
	if v[4] != '-' || v[7] != '-' || v[10] != 'T' || v[13] != ':' || v[16] != ':' || v[19] != '.' || v[26] != 'Z' ||
		month < 1 || month > 12 || day < 1 || t.Day() != day || hour > 23 || minute > 59 || second > 59 {
		s.ok = false
	}
	return t
}
