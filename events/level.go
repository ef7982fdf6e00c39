package events

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Level is an authority level: an integer 0..100. Everything else is Unusable:
// whoever carries it is denied, never rounded.
type Level int

// Unusable stands for every value that is not a level.
const Unusable Level = -1

// Usable reports whether l is a level.
func (l Level) Usable() bool { return l >= 0 && l <= 100 }

// UnmarshalJSON decodes leniently, for what the log already holds: anything but
// an integer token from 0 to 100 becomes Unusable rather than an error, so that an
// old value denies instead of stopping a replay. Input from callers is held to
// ParseLevel before.
func (l *Level) UnmarshalJSON(b []byte) error {
	v, ok := ParseLevel(b)
	if !ok {
		v = Unusable
	}
	*l = v
	return nil
}

// ParseLevel reads a level from its JSON token: `50` is one; `50.5`, `"50"`,
// `5e1`, `-0`, null, true and 101 are not.
func ParseLevel(token []byte) (Level, bool) {
	token = bytes.TrimSpace(token)
	n, err := strconv.ParseUint(string(token), 10, 8)
	if err != nil || token[0] == '+' || n > 100 || len(token) > 1 && token[0] == '0' {
		return Unusable, false
	}
	return Level(n), true
}

// Rule is a condition on an action, as it was written. A rule met in the log
// may be malformed (written by an older program, or imported); gate.Problems
// tells, and a malformed rule denies.
type Rule struct {
	// Action is an exact name, or a prefix "a.*".
	Action string `json:"action"`
	// MinLevel is the floor; nil, like an unusable one, is malformed.
	MinLevel *Level `json:"min_level"`
	// MatchingExemptLevel, if present, skips the membership test for actors at
	// or above it. It never skips the floor.
	MatchingExemptLevel *Level `json:"matching_exempt_level,omitzero"`
	// Scope, if present, is the group that an actor must be a member of.
	Scope *string `json:"scope,omitzero"`
	// Why is for people: what the rule is for.
	Why string `json:"why,omitzero"`
}

// UnmarshalJSON reads a rule leniently: a member of a wrong type becomes a value
// that is malformed, so that the rule denies instead of stopping a replay. A
// value that is not an object is a rule with nothing in it.
func (r *Rule) UnmarshalJSON(raw []byte) error {
	*r = Rule{}
	dec := jsontext.NewDecoder(bytes.NewReader(raw))
	if dec.PeekKind() != '{' {
		return nil
	}
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return err
		}
		field := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return err
		}
		str := func() string {
			s, err := jsontext.AppendUnquote(nil, value)
			if err != nil {
				return ""
			}
			return string(s)
		}
		switch field {
		case "action":
			r.Action = str()
		case "min_level":
			l, _ := ParseLevel(value)
			r.MinLevel = &l
		case "matching_exempt_level":
			if value.Kind() != 'n' {
				l, _ := ParseLevel(value)
				r.MatchingExemptLevel = &l
			}
		case "scope":
			if value.Kind() != 'n' {
				s := str()
				r.Scope = &s
			}
		case "why":
			r.Why = str()
		}
	}
	_, err := dec.ReadToken()
	return err
}
