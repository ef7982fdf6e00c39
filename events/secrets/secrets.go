// Package secrets finds what must never be stored: access keys, tokens, private
// keys and passwords in commands and in what commands print.
//
//	for _, f := range secrets.Find(line) { … }      // what is where
//	tail, n := secrets.Mask(output)                  // [secret:github-pat] in its place
//
// The rules are those that gitleaks carries in its module, kept as Go in gitleaks.go,
// which a test holds to the module, and the few of own.go. The engine is ours, for three reasons: gitleaks' detector
// tells the line of a finding where masking needs its bytes, lets whoever writes
// "gitleaks:allow" beside a secret through, and needs 100 ms to compile all its
// expressions and archive readers for a dozen formats in the program. Here an
// expression is compiled when a word that it needs first occurs.
//
// The answer depends on the text alone. A secret without a known form, such as
// a password that is a plain word, is found by nobody.
package secrets

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// Finding is a secret: text[Start:End].
type Finding struct {
	Rule       string // as in github-pat
	Start, End int
}

// Find returns the secrets in text, in order, none overlapping another.
func Find(text string) []Finding {
	found, _ := find(text)
	return found
}

func find[T string | []byte](text T) ([]Finding, work) {
	set := rules()
	s := look(set, text)
	if s == nil {
		return nil, work{} // each rule has keywords
	}
	found := set.find(s)
	if plain := unquoted(s.text); plain != s.text {
		if inner := look(set, plain); inner != nil {
			found = append(found, set.find(inner)...)
			s.work.tried, s.work.bytes = s.work.tried+inner.work.tried, s.work.bytes+inner.work.bytes
		}
	}
	return disjoint(found), s.work
}

// unquoted is a text with spaces for the backslashes before quotes: a name and its
// value in JSON that is a string in other JSON are told as they are in the inner. Every
// byte keeps its place.
func unquoted(text string) string {
	if !strings.Contains(text, `\"`) {
		return text
	}
	b := []byte(text)
	for i := len(b) - 2; i >= 0; i-- {
		if b[i] == '\\' && (b[i+1] == '"' || b[i+1] == ' ' && text[i+1] == '\\') {
			b[i] = ' '
		}
	}
	return string(b)
}

// byContext are the rules that know a secret by what is beside it. One that
// knows it by its own form says more.
var byContext = []string{genericRule, "authorization-header", "bearer-token", "basic-credentials", "curl-auth-header", "curl-auth-user", "url-password"}

// disjoint joins findings that overlap. The first rule names them, one that goes
// by context last.
func disjoint(found []Finding) []Finding {
	slices.SortStableFunc(found, func(a, b Finding) int { return cmp.Compare(a.Start, b.Start) })
	out := found[:0]
	for _, f := range found {
		if n := len(out); n > 0 && f.Start < out[n-1].End {
			last := &out[n-1]
			last.End = max(last.End, f.End)
			if slices.Contains(byContext, last.Rule) && !slices.Contains(byContext, f.Rule) {
				last.Rule = f.Rule
			}
			continue
		}
		out = append(out, f)
	}
	return out
}

// Mask replaces each secret in text by a mark that names its rule, and returns
// how many it replaced. All other bytes stay. A masked text has no secret left:
// masking it again changes nothing.
func Mask(text string) (masked string, n int) {
	masked, _, n, _ = mask(text, 0)
	return masked, n
}

// MaskTail masks text and returns the end of it, valid UTF-8 of at most keep
// bytes, and whether something before it was left out. It looks at all of text,
// so a secret that begins before the cut is masked if its beginning is there. No
// mark is cut in two.
func MaskTail(text string, keep int) (tail string, cut bool) {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	masked, from, _, _ := mask(text, max(0, len(text)-keep))
	if over := len(masked) - keep; over > from {
		// Marks are longer than some of what they stand for.
		from = over
		for _, m := range markForm.FindAllStringIndex(masked, -1) {
			if m[0] < from && from < m[1] {
				from = m[1]
			}
		}
	}
	for from < len(masked) && !utf8.RuneStart(masked[from]) {
		from++
	}
	return masked[from:], from > 0
}

// mask masks text and returns where the offset cut of it went: one inside a
// secret is moved to its beginning.
func mask(text string, cut int) (masked string, at, n int, w work) {
	for round := 1; ; round++ {
		// A mark beside other text can read as a secret in turn, and of several secrets
		// in a line some rules see the last alone.
		found, more := find(text)
		w.tried, w.bytes = w.tried+more.tried, w.bytes+more.bytes
		if len(found) == 0 {
			return text, cut, n, w
		}
		if round > patience {
			found = wholeLines(text, found)
		}
		n += len(found)
		var b strings.Builder
		from, to := 0, cut
		for _, f := range found {
			b.WriteString(text[from:f.Start])
			switch {
			case f.End <= cut:
				to += len(mark(f.Rule)) - (f.End - f.Start)
			case f.Start < cut:
				to = b.Len()
			}
			b.WriteString(mark(f.Rule))
			from = f.End
		}
		b.WriteString(text[from:])
		text, cut = b.String(), to
	}
}

// patience is how many rounds secrets are masked each by itself. What is found after
// that is masked with its line, or its word of a command: so there are few more, and
// the cost stays within a constant of the text's length. Each round leaves fewer bytes
// outside of marks, so there is a last one.
const patience = 8

// wholeLines are the findings with the lines that they lie in.
func wholeLines(text string, found []Finding) []Finding {
	for i := range found {
		f := &found[i]
		f.Start = strings.LastIndexByte(text[:f.Start], '\n') + 1
		if n := strings.IndexByte(text[f.End:], '\n'); n >= 0 {
			f.End += n
		} else {
			f.End = len(text)
		}
	}
	return disjoint(found)
}

// markBegin is how a mark begins.
const markBegin = "[secret:"

func mark(rule string) string { return markBegin + rule + "]" }

var markForm = regexp.MustCompile(`\[secret:[a-z0-9-]+\]`)

// isMark reports whether s is nothing but marks.
func isMark(s string) bool {
	return strings.HasPrefix(s, markBegin) && markForm.ReplaceAllLiteralString(s, "") == ""
}
