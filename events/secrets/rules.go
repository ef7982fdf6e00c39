package secrets

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// genericRule is the one that knows a secret by the name beside it.
const genericRule = "generic-api-key"

// ruleSet are the rules, and the words that say which of them to try.
type ruleSet struct {
	list    []rule
	allowed []allowlist
	keys    keywords
}

// rules are read once, when they are first needed.
var rules = sync.OnceValue(load)

type rule struct {
	id      string
	pattern func() expression
	group   int // of pattern, which the secret is; 0 is the first that is not empty
	entropy float64
	keys    []uint16
	narrow  bool // it matches only close to its keywords
	allowed []allowlist
	// harmless knows values that a name alone does not make a secret; or nil.
	harmless func(name, value string) bool
}

// allowlist are reasons why a finding is no secret.
type allowlist struct {
	all     bool // all reasons together, not one of them
	target  string
	pattern func() *regexp.Regexp // or nil
	words   []string              // in lower case
}

// ruleFile are gitleaks' rules as its configuration has them.
type ruleFile struct {
	AllowList ruleFileAllow
	Rules     []ruleFileRule
}

type ruleFileRule struct {
	ID          string
	Regex       string
	Path        string
	SecretGroup int
	Entropy     float64
	Keywords    []string
	Allowlists  []ruleFileAllow
}

type ruleFileAllow struct {
	Condition   string
	Paths       []string
	RegexTarget string
	Regexes     []string
	StopWords   []string
}

// load makes the rules ready. An expression that does not compile is wrong in every
// run, and a test shows it.
func load() *ruleSet {
	s := &ruleSet{}
	s.allowed = appendAllow(nil, gitleaks.AllowList)
	add := func(r rule, keywords []string) {
		for _, k := range keywords {
			r.keys = append(r.keys, s.keys.add(lower(k)))
		}
		s.list = append(s.list, r)
	}
	for _, f := range gitleaks.Rules {
		// A rule for files of some name says nothing about other text.
		if f.Path != "" || f.Regex == "" {
			continue
		}
		r := rule{id: f.ID, pattern: expressionOf(f.Regex), group: f.SecretGroup, entropy: f.Entropy, narrow: strings.Contains(f.Regex, assigned)}
		for _, a := range f.Allowlists {
			r.allowed = appendAllow(r.allowed, a)
		}
		if r.id == genericRule {
			r.harmless = harmlessValue
		}
		add(r, f.Keywords)
	}
	for _, o := range own {
		add(rule{id: o.id, pattern: expressionOf(o.pattern), entropy: o.entropy}, o.keywords)
	}
	return s
}

func appendAllow(list []allowlist, f ruleFileAllow) []allowlist {
	a := allowlist{all: strings.EqualFold(f.Condition, "AND"), target: f.RegexTarget}
	if a.all && len(f.Paths) > 0 {
		return list // it holds for files only
	}
	if len(f.Regexes) > 0 {
		a.pattern = compiled("(?:" + strings.Join(f.Regexes, "|") + ")")
	}
	for _, w := range f.StopWords {
		a.words = append(a.words, lower(w))
	}
	return append(list, a)
}

func compiled(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

func (a allowlist) holds(secret, match, line string) bool {
	target := secret
	switch a.target {
	case "match":
		target = match
	case "line":
		target = line
	}
	byPattern := a.pattern != nil && a.pattern().MatchString(target)
	if a.pattern != nil && byPattern != a.all || len(a.words) == 0 {
		return byPattern
	}
	small := lower(secret)
	return slices.ContainsFunc(a.words, func(w string) bool { return strings.Contains(small, w) })
}

// subject is a text that is looked at.
type subject struct {
	text  string
	words []occurrence
	has   []bool  // by keyword
	marks [][]int // where secrets were, each [begin, end]
}

// look finds the keywords and the marks in text; nil if it has no keyword.
func (set *ruleSet) look(text string) *subject {
	words, has := set.keys.find(text)
	if len(words) == 0 {
		return nil
	}
	s := &subject{text: text, words: words, has: has}
	if strings.Contains(text, markBegin) {
		s.marks = markForm.FindAllStringIndex(text, -1)
	}
	return s
}

// lower is s with its ASCII letters small; every byte keeps its place.
func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

func (r *rule) asksFor(s *subject) bool {
	return slices.ContainsFunc(r.keys, func(k uint16) bool { return s.has[k] })
}

// assigned is the middle of the rules for "name = value": what may lie between
// the name, which is a keyword, and the value, which holds no space. They are
// most rules, they are slow, and they cannot match far from their keyword.
const assigned = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}`

// More than such a rule reads before its keyword, and from there to the
// beginning of the value.
const (
	assignedBefore = 100
	assignedAfter  = 100
)

// find appends the secrets that r knows in s.
func (r *rule) find(found []Finding, s *subject, keys *keywords, allowed []allowlist) []Finding {
	if !r.narrow {
		return r.findIn(found, s, 0, len(s.text), allowed)
	}
	before, after := assignedBefore, assignedAfter
	if r.id == genericRule {
		before, after = 50, 10+20+3+4+5
	}
	from, to := 0, -1
	for _, o := range s.words {
		if !slices.Contains(r.keys, o.key) || r.id == genericRule && !assignedTo(s.text[o.at+len(keys.list[o.key]):]) {
			continue
		}
		near, far := max(0, o.at-before), o.at+after
		if near <= to && far <= to {
			continue
		}
		begin, end := from, valueEnd(s.text, far)
		if near > to {
			begin = near
		}
		if to >= 0 && begin > to {
			found = r.findIn(found, s, from, to, allowed)
			to = -1
		}
		if to < 0 {
			from = begin
		}
		to = max(to, end)
	}
	if to >= 0 {
		found = r.findIn(found, s, from, to, allowed)
	}
	return found
}

// valueEnd is where a value ends that began before from, with what ends it: values
// hold no space and no quote from there on.
func valueEnd(text string, from int) int {
	for i := from; i < len(text); i++ {
		switch c := text[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("_.-=+/:%", c) >= 0, c >= utf8.RuneSelf:
		default:
			return min(len(text), i+len(`\n`))
		}
	}
	return len(text)
}

// assignedTo reports whether rest, which follows a name, can begin with assigned:
// whether its first byte of another kind than those before an operator is one.
func assignedTo(rest string) bool {
	for i := 0; i < len(rest) && i <= 20+3; i++ {
		switch c := rest[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte("_.- \t\n\f\r'\"", c) >= 0:
		default:
			return strings.IndexByte("=>:|?,", c) >= 0
		}
	}
	return false
}

// findIn appends the secrets that r knows in text[from:to].
func (r *rule) findIn(found []Finding, s *subject, from, to int, allowed []allowlist) []Finding {
	pattern := r.pattern()
	if !pattern.mayMatch(s.text[from:to]) {
		return found
	}
	for _, m := range pattern.FindAllStringSubmatchIndex(s.text[from:to], -1) {
		g := 2 * r.group
		if r.group == 0 {
			for i := 2; i < len(m) && g == 0; i += 2 {
				if m[i+1] > m[i] {
					g = i
				}
			}
		}
		if m[g] < 0 {
			continue
		}
		f := s.besideMarks(Finding{r.id, from + m[g], from + m[g+1]})
		for f.End > f.Start && s.text[f.End-1] == '\n' {
			f.End--
		}
		secret, match := s.text[f.Start:f.End], s.text[from+m[0]:from+m[1]]
		switch line := lineAround(s.text, from+m[0], from+m[1]); {
		case secret == "" || isMark(secret):
		case r.entropy > 0 && entropy(secret) <= r.entropy:
		case holdsAny(allowed, secret, match, line) || holdsAny(r.allowed, secret, match, line):
		case r.harmless != nil && r.harmless(s.text[from+m[0]:f.Start], secret):
		default:
			found = append(found, f)
		}
	}
	return found
}

// besideMarks is f without the part of a mark that it would cut.
func (s *subject) besideMarks(f Finding) Finding {
	for _, m := range s.marks {
		if m[0] < f.Start && f.Start < m[1] {
			f.Start = m[1]
		}
		if m[0] < f.End && f.End < m[1] {
			f.End = m[0]
		}
	}
	f.End = max(f.Start, f.End)
	return f
}

func holdsAny(list []allowlist, secret, match, line string) bool {
	return slices.ContainsFunc(list, func(a allowlist) bool { return a.holds(secret, match, line) })
}

// lineReach is how far from a match its line is looked at: a text may be one line.
const lineReach = 256

func lineAround(text string, from, to int) string {
	before, after := text[max(0, from-lineReach):from], text[to:min(len(text), to+lineReach)]
	if i := strings.IndexByte(after, '\n'); i >= 0 {
		after = after[:i]
	}
	before = before[strings.LastIndexByte(before, '\n')+1:]
	return text[from-len(before) : to+len(after)]
}

// entropy is Shannon's, in bits a character.
func entropy(s string) float64 {
	count := map[rune]int{}
	for _, c := range s {
		count[c]++
	}
	// Summed in the order of the counts, so that the last bit is always the same.
	var counts []int
	for _, n := range count {
		counts = append(counts, n)
	}
	slices.Sort(counts)
	bits := 0.0
	for _, n := range counts {
		p := float64(n) / float64(len(s))
		bits -= p * math.Log2(p)
	}
	return bits
}
