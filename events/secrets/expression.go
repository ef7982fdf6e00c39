package secrets

import (
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// expression is that of a rule. Keywords ask for a rule whatever the case of their
// letters, and some are two letters: the texts that each match must hold say sooner
// than the expression that there is none.
type expression struct {
	*regexp.Regexp
	needs []string
}

// mayMatch is false only if the expression matches nowhere in text.
func (e expression) mayMatch(text string) bool {
	for _, need := range e.needs {
		if !strings.Contains(text, need) {
			return false
		}
	}
	return true
}

// expressionOf compiles a pattern when it is first needed.
func expressionOf(pattern string) func() expression {
	return sync.OnceValue(func() expression {
		e := expression{Regexp: regexp.MustCompile(pattern)}
		tree, err := syntax.Parse(pattern, syntax.Perl) // as regexp does
		if err != nil {
			panic("bug: " + err.Error())
		}
		e.needs = needed(nil, tree)
		return e
	})
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
