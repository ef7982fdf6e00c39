package events

import (
	"bytes"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// strictToken is a set of kinds of JSON values.
type strictToken uint8

const (
	tokenObject strictToken = 1 << iota
	tokenArray
	tokenString
	tokenNumber
	tokenBool
	tokenNull

	tokenAny = tokenObject | tokenArray | tokenString | tokenNumber | tokenBool | tokenNull
)

func (t strictToken) String() string {
	switch t {
	case tokenObject:
		return "an object"
	case tokenArray:
		return "an array"
	default:
		panic("bug: only objects and arrays are named without their value")
	}
}

// tokens says what a value that starts with a byte is; zero for no value.
var tokens = [256]strictToken{
	'{': tokenObject, '[': tokenArray, '"': tokenString,
	't': tokenBool, 'f': tokenBool, 'n': tokenNull, '-': tokenNumber,
	'0': tokenNumber, '1': tokenNumber, '2': tokenNumber, '3': tokenNumber, '4': tokenNumber,
	'5': tokenNumber, '6': tokenNumber, '7': tokenNumber, '8': tokenNumber, '9': tokenNumber,
}

// plainInString marks the bytes that stand for themselves in a JSON string.
var plainInString = func() (t [256]bool) {
	for c := ' '; c < utf8.RuneSelf; c++ {
		t[c] = c != '"' && c != '\\'
	}
	return t
}()

// peek skips white space and returns the next byte, false at the end.
func (w *strictWalk) peek() (byte, bool) {
	for w.pos < len(w.data) {
		switch c := w.data[w.pos]; c {
		case ' ', '\t', '\n', '\r':
			w.pos++
		default:
			return c, true
		}
	}
	return 0, false
}

func (w *strictWalk) truncated() bool {
	if len(bytes.Trim(w.data, " \t\n\r")) == 0 {
		w.report(CodeTruncated, "the text is empty: one JSON value is expected")
	} else {
		w.report(CodeTruncated, "the text ends at byte %d, in the middle of its value", len(w.data))
	}
	return false
}

// unexpected reports the byte c at pos, where something else must stand.
func (w *strictWalk) unexpected(c byte, want string) bool {
	w.report(CodeSyntax, "byte %d is %s: %s is expected", w.pos, showByte(c), want)
	return false
}

func showByte(c byte) string {
	if c < utf8.RuneSelf {
		return strconv.QuoteRune(rune(c))
	}
	return fmt.Sprintf("0x%02x", c)
}

func (w *strictWalk) literal(word string) bool {
	for i := range len(word) {
		if w.pos+i >= len(w.data) {
			return w.truncated()
		}
		if c := w.data[w.pos+i]; c != word[i] {
			w.pos += i
			return w.unexpected(c, "the word "+word)
		}
	}
	w.pos += len(word)
	return true
}

// number scans a number and says whether it has neither fraction nor exponent.
func (w *strictWalk) number() (n []byte, integral, ok bool) {
	start := w.pos
	if w.data[w.pos] == '-' {
		w.pos++
	}
	first := w.pos
	if !w.digits() {
		return nil, false, false
	}
	if w.data[first] == '0' && w.pos > first+1 {
		w.pos = first + 1
		w.report(CodeSyntax, "byte %d is %s: a number has no leading zero", w.pos, showByte(w.data[w.pos]))
		return nil, false, false
	}
	integral = true
	if w.pos < len(w.data) && w.data[w.pos] == '.' {
		integral = false
		w.pos++
		if !w.digits() {
			return nil, false, false
		}
	}
	if w.pos < len(w.data) && w.data[w.pos]|0x20 == 'e' {
		integral = false
		w.pos++
		if w.pos < len(w.data) && (w.data[w.pos] == '+' || w.data[w.pos] == '-') {
			w.pos++
		}
		if !w.digits() {
			return nil, false, false
		}
	}
	return w.data[start:w.pos], integral, true
}

// digits scans at least one digit.
func (w *strictWalk) digits() bool {
	start := w.pos
	for w.pos < len(w.data) && w.data[w.pos]-'0' <= 9 {
		w.pos++
	}
	switch {
	case w.pos > start:
		return true
	case w.pos == len(w.data):
		return w.truncated()
	default:
		return w.unexpected(w.data[w.pos], "a digit")
	}
}

// text scans a string and returns it with its quotes. flaw says, for the end of
// a sentence, what keeps it from being Unicode; empty if nothing does.
func (w *strictWalk) text() (raw []byte, escaped bool, flaw string, ok bool) {
	data, start := w.data, w.pos
	i := start + 1
	for {
		for i < len(data) && plainInString[data[i]] {
			i++
		}
		if i >= len(data) {
			return nil, false, "", w.truncated()
		}
		switch c := data[i]; {
		case c == '"':
			w.pos = i + 1
			return data[start:w.pos], escaped, flaw, true
		case c == '\\':
			escaped = true
			n, lone, ok := w.escape(i)
			if !ok {
				return nil, false, "", false
			}
			if lone && flaw == "" {
				flaw = fmt.Sprintf("half a surrogate pair, %s, at byte %d", data[i:i+n], i)
			}
			i += n
		case c < ' ':
			w.pos = i
			return nil, false, "", w.unexpected(c, "an escape sequence for a control character")
		default:
			r, n := utf8.DecodeRune(data[i:])
			if r == utf8.RuneError && n == 1 && flaw == "" {
				flaw = fmt.Sprintf("a byte that is not UTF-8, 0x%02x, at byte %d", c, i)
			}
			i += n
		}
	}
}

// escape scans the escape sequence at i, a surrogate pair being one, and returns
// its length. lone says that it is half a pair, alone.
func (w *strictWalk) escape(i int) (n int, lone, ok bool) {
	if i+1 >= len(w.data) {
		return 0, false, w.truncated()
	}
	switch c := w.data[i+1]; c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2, false, true
	case 'u':
		u, ok := w.hex(i + 2)
		switch {
		case !ok:
			return 0, false, false
		case u < 0xd800 || u > 0xdfff:
			return 6, false, true
		case u >= 0xdc00 || i+7 >= len(w.data) || w.data[i+6] != '\\' || w.data[i+7] != 'u':
			return 6, true, true
		}
		low, ok := w.hex(i + 8)
		switch {
		case !ok:
			return 0, false, false
		case low < 0xdc00 || low > 0xdfff:
			return 6, true, true
		}
		return 12, false, true
	default:
		w.pos = i + 1
		return 0, false, w.unexpected(c, `one of "\/bfnrtu after a backslash`)
	}
}

// hex reads four hexadecimal digits at i.
func (w *strictWalk) hex(i int) (u uint16, ok bool) {
	for end := i + 4; i < end; i++ {
		if i >= len(w.data) {
			return 0, w.truncated()
		}
		c := w.data[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			w.pos = i
			return 0, w.unexpected(c, `four hexadecimal digits after \u`)
		}
		u = u<<4 | uint16(c)
	}
	return u, true
}
