package secrets

import (
	"bytes"
	"encoding/base64"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// own are the rules that gitleaks has not. What the first group matches is the
// secret.
var own = []struct {
	id       string
	pattern  string
	entropy  float64
	keywords []string
	// before finds what lies before a keyword and is the secret, if pattern, from
	// there on, matches; or nil.
	before func(text string, keyword int) (from, to int)
	// harmless knows what has the form and is no secret; or nil.
	harmless func(name, value string) bool
}{
	// The tokens and pairing codes of this ledger: fleet~actor~secret. Whose it was
	// stays readable, for whoever has to revoke it.
	{"fleetledger-token", `~[a-z0-9][a-z0-9._-]{0,63}~([A-Za-z0-9_-]{43}|[a-km-np-z2-9]{26})(?:[^A-Za-z0-9_-]|$)`, 3, []string{"~"}, nil, nil},
	// A private key of which only the end or the beginning is there: the tail of
	// an output begins anywhere.
	{"private-key-end", `-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----`, 0, []string{"-----end"}, keyLines, nil},
	{"private-key-begin", `-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----` + lineEnd + `((?:[A-Za-z0-9+/=]{60,}` + lineEnd + `)*[A-Za-z0-9+/=]{16,})`,
		3, []string{"-----begin"}, nil, nil},
	// gitleaks knows a header in the words of curl, and a value only right behind its name.
	{"authorization-header", `(?i)\bauthorization[\\"']{0,4}[ \t]{0,5}[:=][ \t]{0,5}[\\"']{0,4}(?:bearer|basic|token|digest|negotiate)[ \t]{1,5}([A-Za-z0-9+/=_.~-]{8,})`,
		3, []string{"authorization"}, nil, nil},
	// The same where nothing names the header: in a command's words, in what a program logs.
	{"bearer-token", `(?i)\bbearer[\\"']{0,4}(?:[ \t]|%20|\+|[ \t]{0,5}[:=])[ \t]{0,5}[\\"']{0,4}([A-Za-z0-9+/=_.~-]{16,})`, 3, []string{"bearer"}, nil, ofWords},
	{"basic-credentials", `(?i)\bbasic(?:[ \t]|%20|\+)[ \t]{0,5}([A-Za-z0-9+/]{12,}={0,2})`, 2, []string{"basic"}, nil, noCredentials},
	{"url-password", `[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'"<>]*:([^\s/:@'"<>]{8,})@[A-Za-z0-9\[]`, 3, []string{"://"}, nil, nil},
}

// lineEnd is that of a file, or of a file in a JSON string.
const lineEnd = `(?:\r?\n|\\n)`

// keyLines are the lines of a private key before its end at end. The first may be cut
// by the beginning of the text.
func keyLines(text string, end int) (from, to int) {
	// A line's characters, and its end behind them.
	lineBefore := func(at int) (chars, from int) {
		switch {
		case strings.HasSuffix(text[:at], "\r\n"), strings.HasSuffix(text[:at], `\n`):
			at -= 2
		case strings.HasSuffix(text[:at], "\n"):
			at--
		default:
			return 0, at
		}
		from = at
		for from > 0 && isBase64(text[from-1]) {
			from--
		}
		return at - from, from
	}
	const full, cut = 60, 64
	chars, from := lineBefore(end)
	if chars == 0 {
		return end, end
	}
	for chars, before := lineBefore(from); chars >= full || before == 0 && 0 < chars && chars <= cut; chars, before = lineBefore(from) {
		from = before
	}
	return from, end
}

func isBase64(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '+' || c == '/' || c == '='
}

// ofWords reports whether a value consists of words, as a path, a name in a program and
// what a challenge asks for do: of letters, a few digits behind them.
func ofWords(_, value string) bool { return words.MatchString(value) }

var words = regexp.MustCompile(`^(?:[a-z]*(?:[A-Z][a-z]+|[A-Z]{2,})*[0-9]{0,4}(?:[-+/=_.~]+|$))*$`)

// noCredentials reports whether a value is not a name and a password as HTTP's scheme
// Basic writes them.
func noCredentials(_, value string) bool {
	b, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(value, "="))
	return err != nil || !utf8.Valid(b) || bytes.IndexByte(b, ':') < 0 || bytes.ContainsFunc(b, unicode.IsControl)
}

// harmlessValue reports whether a value that only its name makes a secret is
// none: a hash or an id, under a name that does not say more, alone or behind words, as
// caches have it; or a hash that says so.
func harmlessValue(name, value string) bool {
	switch {
	case shortHash.MatchString(value), moduleHash.MatchString(value) && strings.HasSuffix(name, " h1:"):
		return true
	case !hashOrID.MatchString(value):
		return false
	}
	return nameOfHash.MatchString(name) || !nameOfSecret.MatchString(name)
}

var (
	shortHash    = regexp.MustCompile(`^sha-?(?:1|256|512)?-[0-9a-f]{7,128}$`)
	moduleHash   = regexp.MustCompile(`^[A-Za-z0-9+/]{43}=$`) // of go.sum
	hashOrID     = regexp.MustCompile(`^(?:[A-Za-z0-9._]{1,40}-){0,12}(?i:[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)
	nameOfHash   = regexp.MustCompile(`(?i)(?:hash|sha-?\d*|digest|sum|[_. -]ids?|fingerprint|commit|revision)[\s'"]*(?:=|>|:|\|\||\?|,)[\x60'"\s=:>]*$`)
	nameOfSecret = regexp.MustCompile(`(?i)secret|token|passw|cred|api|auth|(?:access|private|encryption|signing|master|session|shared)[ _.-]?key`)
)
