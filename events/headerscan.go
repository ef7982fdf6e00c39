package events

import (
	"bytes"
	"math"
	"strconv"
	"time"
)

// scanHeader decodes a header in its canonical form, several times faster than a
// JSON decoder does: replay and audit decode every header there is. It takes
// nothing that ParseHeader would refuse; what it does not take may still be a
// header, or ParseHeader knows what is wrong with it.
func scanHeader(leaf []byte) (Header, bool) {
	s := headerScanner{rest: leaf, ok: true}
	var h Header
	h.ID = s.text(`{"id":"`)
	h.Stream = Stream(s.text(`","stream":"`))
	h.Type = Kind(s.text(`","type":"`))
	h.Schema = s.int(`","schema":`)
	h.Actor = s.text(`,"actor":"`)
	h.Correlation = s.text(`","correlation":"`)
	h.Causation = s.text(`","causation":"`)
	h.Key = s.hash(`","key":"`)
	h.Request = s.hash(`","request":"`)
	h.Size = s.int(`","size":`)
	h.Commitment = s.hash(`,"commitment":"`)
	h.Version = s.int(`","version":`)
	h.Fleet = s.text(`,"fleet":"`)
	h.Position = Position(s.uint(`","position":`))
	h.Revision = Revision(s.uint(`,"revision":`))
	h.Time = s.time(`,"time":"`)
	h.Prev = s.hash(`","prev":"`)
	s.literal(`"}`)
	return h, s.ok && len(s.rest) == 0 && h.Version == FormatVersion && h.Check() == nil
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

// quoted returns what comes before the next quote. Escapes are not decoded:
// Header.Check refuses the backslash.
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

func (s *headerScanner) text(before string) string { return string(s.quoted(before)) }

func (s *headerScanner) hash(before string) (h Hash) {
	if h.UnmarshalText(s.quoted(before)) != nil {
		s.ok = false
	}
	return h
}

func (s *headerScanner) uint(before string) uint64 {
	s.literal(before)
	n := 0
	for n < len(s.rest) && s.rest[n] >= '0' && s.rest[n] <= '9' {
		n++
	}
	v, err := strconv.ParseUint(string(s.rest[:n]), 10, 64)
	if !s.ok || err != nil || n > 1 && s.rest[0] == '0' {
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
