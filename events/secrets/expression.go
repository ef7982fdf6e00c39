package secrets

import (
	"cmp"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"sync"
)

// place says where an expression is tried. Tried on all of a text, those with
// counted parts cost up to 10 microseconds a byte, and a text can name dozens of
// rules; near their keywords most are done with after a few bytes.
type place int

const (
	// anywhere is the whole text, once.
	anywhere place = iota
	// atKeyword: each match begins with a keyword, and is bounded.
	atKeyword
	// afterName: a keyword is a name, or within one, to which a value is assigned.
	afterName
	// beforeKeyword: the secret is what lies before the keyword.
	beforeKeyword
)

// expression is that of a rule. Unless it is tried anywhere, it begins with \A: it is
// tried on the text from a keyword on.
type expression struct {
	*regexp.Regexp
	place place
	// needs are texts that each match holds. Keywords ask for a rule whatever the
	// case of their letters, and some are two letters: these say sooner than the
	// expression that there is no match.
	needs []string
	// leads is the text that each match of atKeyword begins with, as far as it is
	// always the same, and whether a word must begin there too.
	leads      string
	atBoundary bool
	// shortest and longest are the lengths of values of afterName, nameReach is how
	// much of the name a match has before the keyword at most.
	shortest, longest, nameReach int
}

// The parts of gitleaks' rules for "name = value". They are most rules.
const (
	nameBegin   = `[\w.-]{0,50}?`
	nameEnd     = `(?:[ \t\w.-]{0,20})[\s'"]{0,3}`
	assignment  = `(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)[\x60'"\s=]{0,5}`
	valueEnd    = `(?:[\x60'"\s;]|\\[nr]|$)`
	longestTail = 2048 // of a match of atKeyword, in bytes
)

// alternatives are the expressions of which a pattern consists: gitleaks joins one for
// a name and a value with one for a form, and values that are written differently.
func alternatives(pattern string) []string {
	if !strings.HasPrefix(pattern, "(?i)"+nameBegin) {
		return []string{pattern}
	}
	byName, byForm, two := strings.Cut(pattern, valueEnd+"|")
	if two {
		return []string{byName + valueEnd, "(?i)" + byForm}
	}
	name, value, ok := strings.Cut(pattern, assignment)
	value, ends := strings.CutSuffix(value, valueEnd)
	if !ok || !ends || !strings.Contains(value, "|") {
		return []string{pattern}
	}
	tree := parsed("(?i)" + value)
	if tree.Op != syntax.OpCapture || tree.Sub[0].Op != syntax.OpAlternate {
		return []string{pattern}
	}
	var list []string
	for _, sub := range tree.Sub[0].Sub {
		list = append(list, name+assignment+"("+sub.String()+")"+valueEnd)
	}
	return list
}

// namesOf are the names, in lower case, that a pattern for a name and a value begins
// with; for another it is nil. They serve it as keywords: those that gitleaks gives are
// in the value for some, or not all of the name.
func namesOf(pattern string) []string {
	name, _, ok := cutNamed(pattern)
	if !ok {
		return nil
	}
	names, whole := simpleNames(name)
	if !whole {
		names, whole = beginnings(parsed(name))
	}
	if !whole || slices.Contains(names, "") {
		return nil
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// simpleNames reads (?:one|another), which most are, without parsing: it is done for
// every rule at every start of the program.
func simpleNames(pattern string) (names []string, ok bool) {
	inner, begins := strings.CutPrefix(pattern, "(?:")
	inner, ends := strings.CutSuffix(inner, ")")
	for i := range len(inner) {
		if c := inner[i]; !isWord(c) && c != '-' && c != '|' {
			return nil, false
		}
	}
	return strings.Split(lower(inner), "|"), begins && ends
}

// cutNamed cuts a pattern for a name and a value into both.
func cutNamed(pattern string) (name, value string, ok bool) {
	if tail, folded := strings.CutPrefix(pattern, "(?i)"+nameBegin); folded {
		name, value, ok = strings.Cut(tail, nameEnd+assignment)
		value = "(?i)" + value
	} else if tail, folded := strings.CutPrefix(pattern, nameBegin+"(?i:"+nameBegin); folded {
		name, value, ok = strings.Cut(tail, nameEnd+`)`+assignment)
	}
	value, ends := strings.CutSuffix(value, valueEnd)
	return name, value, ok && ends
}

// expressionOf reads a pattern when it is first needed; keywords are in lower case.
func expressionOf(pattern string, keywords []string) func() *expression {
	return sync.OnceValue(func() *expression {
		if e, ok := namedValue(pattern); ok {
			return e
		}
		tree := parsed(pattern)
		e := &expression{needs: needed(nil, tree)}
		if start := tree; longest(tree) <= longestTail {
			if tree.Op == syntax.OpConcat && tree.Sub[0].Op == syntax.OpWordBoundary {
				e.atBoundary = true
				start = &syntax.Regexp{Op: syntax.OpConcat, Sub: tree.Sub[1:]}
			}
			if beginsWith(start, keywords) {
				e.place, e.leads = atKeyword, leading(start)
				pattern = `\A(?:` + pattern + `)`
			}
		}
		e.Regexp = regexp.MustCompile(pattern)
		return e
	})
}

// before is the expression of what begins at a keyword and comes after a secret.
func before(pattern string) func() *expression {
	return sync.OnceValue(func() *expression {
		return &expression{Regexp: regexp.MustCompile(`\A` + pattern), place: beforeKeyword}
	})
}

// namedValue reads a pattern for a name and a value whose keywords are namesOf it.
func namedValue(pattern string) (e *expression, ok bool) {
	_, value, ok := cutNamed(pattern)
	if !ok || namesOf(pattern) == nil {
		return nil, false
	}
	tree := parsed(value)
	if tree.Op != syntax.OpCapture || !holdsOnly(tree, inValue) || !loopsHoldOnly(tree, inLongValue) {
		return nil, false
	}
	e = &expression{place: afterName, shortest: shortest(tree), longest: longest(tree)}
	if tail, folded := strings.CutPrefix(pattern, "(?i)"+nameBegin); folded {
		pattern, e.nameReach = `\A(?i:`+tail+`)`, 50
	} else {
		pattern, e.nameReach = `\A(?:(?i:`+strings.TrimPrefix(pattern, nameBegin+"(?i:"+nameBegin)+`)`, 100
	}
	e.Regexp = regexp.MustCompile(pattern)
	return e, true
}

func parsed(pattern string) *syntax.Regexp {
	tree, err := syntax.Parse(pattern, syntax.Perl) // as regexp does
	if err != nil {
		panic("bug: " + err.Error())
	}
	return tree
}

// mayMatch is false only if the expression matches nowhere in text.
func (e *expression) mayMatch(text string) bool {
	for _, need := range e.needs {
		if !strings.Contains(text, need) {
			return false
		}
	}
	return true
}

// needed appends texts that every match of re holds.
func needed(list []string, re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			list = append(list, string(re.Rune))
		}
	case syntax.OpConcat, syntax.OpCapture, syntax.OpPlus:
		for _, sub := range re.Sub {
			list = needed(list, sub)
		}
	case syntax.OpRepeat:
		if re.Min > 0 {
			list = needed(list, re.Sub[0])
		}
	}
	return list
}

// leading is a text, in this case of its letters, that every match of re begins with.
func leading(re *syntax.Regexp) string {
	switch re.Op {
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase == 0 {
			return string(re.Rune)
		}
	case syntax.OpConcat, syntax.OpCapture:
		return leading(re.Sub[0])
	}
	return ""
}

// beginsWith reports whether every match of re begins with one of these words.
func beginsWith(re *syntax.Regexp, words []string) bool {
	starts, _ := beginnings(re)
	for _, start := range starts {
		found := false
		for _, w := range words {
			found = found || strings.HasPrefix(start, w)
		}
		if !found {
			return false
		}
	}
	return true
}

// beginnings are texts, in lower case, one of which every match of re begins with.
// They are all there is to match if whole is true.
func beginnings(re *syntax.Regexp) (list []string, whole bool) {
	const few = 200
	switch re.Op {
	case syntax.OpLiteral:
		return []string{lower(string(re.Rune))}, true
	case syntax.OpCapture:
		return beginnings(re.Sub[0])
	case syntax.OpQuest:
		list, whole = beginnings(re.Sub[0])
		return append(list, ""), whole
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= re.Rune[i+1]; r++ {
				if list = append(list, lower(string(r))); len(list) > few {
					return []string{""}, false
				}
			}
		}
		return list, true
	case syntax.OpAlternate:
		whole = true
		for _, sub := range re.Sub {
			more, all := beginnings(sub)
			list, whole = append(list, more...), whole && all
		}
		return list, whole
	case syntax.OpConcat:
		list, whole = []string{""}, true
		for _, sub := range re.Sub {
			more, all := beginnings(sub)
			if len(list)*len(more) > few {
				return list, false
			}
			var longer []string
			for _, a := range list {
				for _, b := range more {
					longer = append(longer, a+b)
				}
			}
			if list = longer; !all {
				return list, false
			}
		}
		return list, true
	}
	return []string{""}, false
}

// oneOf are texts, in lower case, one of which is in every match of re, in any case of
// its letters; nil if there are none such.
func oneOf(re *syntax.Regexp) (list []string) {
	if starts, _ := beginnings(re); !slices.Contains(starts, "") {
		return starts
	}
	switch re.Op {
	case syntax.OpCapture:
		return oneOf(re.Sub[0])
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			more := oneOf(sub)
			if more == nil {
				return nil
			}
			list = append(list, more...)
		}
	case syntax.OpConcat:
		// Those that are the longest are the least likely to be there.
		length := 0
		for _, sub := range re.Sub {
			some := oneOf(sub)
			if some == nil {
				continue
			}
			if n := len(slices.MinFunc(some, func(a, b string) int { return cmp.Compare(len(a), len(b)) })); n > length {
				list, length = some, n
			}
		}
	}
	return list
}

// unbounded is more than any match may have.
const unbounded = 1 << 30

// longest is the length of the longest match of re, in characters.
func longest(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpStar, syntax.OpPlus:
		return unbounded
	case syntax.OpRepeat:
		each := longest(re.Sub[0])
		if re.Max < 0 || each == unbounded {
			return unbounded
		}
		n = re.Max * each
	case syntax.OpAlternate:
		for _, sub := range re.Sub {
			n = max(n, longest(sub))
		}
	default:
		for _, sub := range re.Sub {
			n += longest(sub)
		}
	}
	return min(n, unbounded)
}

// shortest is the length of the shortest match of re, in characters.
func shortest(re *syntax.Regexp) int {
	n := 0
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1
	case syntax.OpStar, syntax.OpQuest:
		return 0
	case syntax.OpRepeat:
		return re.Min * shortest(re.Sub[0])
	case syntax.OpAlternate:
		n = shortest(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			n = min(n, shortest(sub))
		}
	default:
		for _, sub := range re.Sub {
			n += shortest(sub)
		}
	}
	return n
}

// loopsHoldOnly reports whether what may be repeated in re without end holds only bytes
// of which ok is true.
func loopsHoldOnly(re *syntax.Regexp, ok func(byte) bool) bool {
	if longest(re) < unbounded {
		return true
	}
	if re.Op == syntax.OpStar || re.Op == syntax.OpPlus || re.Op == syntax.OpRepeat && re.Max < 0 {
		return holdsOnly(re, ok)
	}
	for _, sub := range re.Sub {
		if !loopsHoldOnly(sub, ok) {
			return false
		}
	}
	return true
}

// holdsOnly reports whether matches of re hold only bytes of which ok is true; others
// than ASCII are.
func holdsOnly(re *syntax.Regexp, ok func(byte) bool) bool {
	switch re.Op {
	case syntax.OpLiteral:
		for _, r := range re.Rune {
			if r < 0x80 && !ok(byte(r)) {
				return false
			}
		}
	case syntax.OpCharClass:
		for i := 0; i < len(re.Rune); i += 2 {
			for r := re.Rune[i]; r <= min(re.Rune[i+1], 0x7f); r++ {
				if !ok(byte(r)) {
					return false
				}
			}
		}
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return false
	}
	for _, sub := range re.Sub {
		if !holdsOnly(sub, ok) {
			return false
		}
	}
	return true
}
