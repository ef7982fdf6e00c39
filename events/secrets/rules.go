package secrets

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// genericRule is the one that knows a secret by the name beside it.
const genericRule = "generic-api-key"

// ruleSet are the rules, and the words that say which of them to try, and where.
type ruleSet struct {
	list    []rule
	allowed []allowlist
	keys    keywords
	byKey   [][]uint16 // by number of a keyword, the rules that have it
}

// rules are read once, when they are first needed.
var rules = sync.OnceValue(load)

type rule struct {
	id      string
	pattern func() *expression
	group   int // of pattern, which the secret is; 0 is the first that is not empty
	entropy float64
	allowed []allowlist
	// before finds what lies before a keyword and is the secret; or nil.
	before func(text string, keyword int) (from, to int)
	// harmless knows values that the name or word before them does not make a secret; or nil.
	harmless func(name, value string) bool
}

// allowlist are reasons why a finding is no secret.
type allowlist struct {
	all     bool // all reasons together, not one of them
	target  string
	pattern func() *regexp.Regexp // or nil
	// one of which is in each match of pattern; or nil.
	needs func() *keywords
	words func() *keywords // or nil
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
	add := func(r rule, words []string) {
		for _, w := range words {
			k := int(s.keys.add(w))
			if k == len(s.byKey) {
				s.byKey = append(s.byKey, nil)
			}
			s.byKey[k] = append(s.byKey[k], uint16(len(s.list)))
		}
		s.list = append(s.list, r)
	}
	for _, f := range gitleaks.Rules {
		// A rule for files of some name says nothing about other text.
		if f.Path != "" || f.Regex == "" {
			continue
		}
		r := rule{id: f.ID, group: f.SecretGroup, entropy: f.Entropy}
		for _, a := range f.Allowlists {
			r.allowed = appendAllow(r.allowed, a)
		}
		// Words cost less than expressions.
		slices.SortStableFunc(r.allowed, func(a, b allowlist) int {
			switch {
			case (a.words == nil) == (b.words == nil):
				return 0
			case a.words == nil:
				return 1
			}
			return -1
		})
		if r.id == genericRule {
			r.harmless = harmlessValue
		}
		for _, pattern := range alternatives(f.Regex) {
			words := namesOf(pattern)
			if words == nil {
				words = f.Keywords
			}
			r.pattern = expressionOf(pattern, words)
			add(r, words)
		}
	}
	for _, o := range own {
		r := rule{id: o.id, entropy: o.entropy, pattern: expressionOf(o.pattern, o.keywords), harmless: o.harmless}
		if o.before != nil {
			r.pattern, r.before = before(o.pattern), o.before
		}
		add(r, o.keywords)
	}
	return s
}

func appendAllow(list []allowlist, f ruleFileAllow) []allowlist {
	a := allowlist{all: strings.EqualFold(f.Condition, "AND"), target: f.RegexTarget}
	if a.all && len(f.Paths) > 0 {
		return list // it holds for files only
	}
	if len(f.Regexes) > 0 {
		pattern := "(?:" + strings.Join(f.Regexes, "|") + ")"
		a.pattern = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
		a.needs = sync.OnceValue(func() *keywords { return index(oneOf(parsed(pattern))) })
	}
	if len(f.StopWords) > 0 {
		a.words = sync.OnceValue(func() *keywords { return index(f.StopWords) })
	}
	return append(list, a)
}

func (a allowlist) holds(secret, match, line string) bool {
	target := secret
	switch a.target {
	case "match":
		target = match
	case "line":
		target = line
	}
	byWord := a.words != nil && !looksRandom(secret) && len(occurrences(a.words(), secret)) > 0
	if a.pattern == nil || a.words != nil && byWord != a.all {
		return byWord
	}
	if needs := a.needs(); needs != nil && len(occurrences(needs, target)) == 0 {
		return false
	}
	return a.pattern().MatchString(target)
}
