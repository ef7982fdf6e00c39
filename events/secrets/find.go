package secrets

import (
	"cmp"
	"math"
	"slices"
	"strings"
)

// subject is a text that is looked at.
type subject struct {
	text  string
	words []occurrence
	marks [][]int // where secrets were, each [begin, end]
	// The bytes that runEnd looked at last, all but the last of which can be in a value.
	runFrom, runTo int
	work           work
}

// work is what was done to look at a text, for tests: time would tell less.
type work struct {
	tried int // how often an expression was tried at a keyword
	bytes int // on how many bytes those were tried that are tried anywhere
}

// look finds the keywords and the marks in text; nil if it has no keyword.
func look[T string | []byte](set *ruleSet, text T) *subject {
	words := occurrences(&set.keys, text)
	if len(words) == 0 {
		return nil
	}
	s := &subject{text: string(text), words: words}
	if strings.Contains(s.text, markBegin) {
		s.marks = markForm.FindAllStringIndex(s.text, -1)
	}
	return s
}

// find returns the secrets in s by where they begin, and then in the order of the
// rules. Each keyword costs a bounded look at what surrounds it, for each rule that
// has it, and each rule that is tried anywhere one pass at most: the cost of a text
// is within a constant of its length, whatever is in it.
func (set *ruleSet) find(s *subject) []Finding {
	type finding struct {
		Finding
		rule uint16
	}
	var found []finding
	done := map[uint16]int{} // where the last match of a rule ends, from where on it is tried again
	for _, o := range s.words {
		var v value
		looked, assigned := false, false
		for _, n := range set.byKey[o.key] {
			if o.at < done[n] {
				continue
			}
			r := &set.list[n]
			e := r.pattern()
			if e.place == afterName {
				if !looked {
					v, assigned = s.valueAfter(o.at + len(set.keys.list[o.key]))
					looked = true
				}
				if !assigned || !v.fits(e.shortest, e.longest) {
					continue
				}
			}
			for _, m := range s.matches(e, r, o.at, v, done[n]) {
				done[n] = m[1]
				if f, ok := r.secretIn(s, m, set.allowed); ok {
					found = append(found, finding{f, n})
				}
			}
			if e.place == anywhere {
				done[n] = len(s.text)
			}
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.rule, b.rule)) })
	var out []Finding
	for _, f := range found {
		out = append(out, f.Finding)
	}
	return out
}

// matches are those of a rule's expression because of a keyword at k: one, or all of
// the text if it is tried anywhere. The rule's last match ended at end.
func (s *subject) matches(e *expression, r *rule, k int, v value, end int) [][]int {
	if e.place == anywhere {
		if !e.mayMatch(s.text) {
			return nil
		}
		s.work.bytes += len(s.text)
		return e.FindAllStringSubmatchIndex(s.text, -1)
	}
	rest := s.text[k:]
	switch e.place {
	case atKeyword:
		if !strings.HasPrefix(rest, e.leads) || e.atBoundary && k > 0 && isWord(s.text[k-1]) == isWord(s.text[k]) {
			return nil
		}
	case afterName:
		rest = s.text[k:min(len(s.text), v.end+len(`\n`))]
	}
	s.work.tried++
	m := e.FindStringSubmatchIndex(rest)
	if m == nil {
		return nil
	}
	for i := range m {
		if m[i] >= 0 {
			m[i] += k
		}
	}
	switch e.place {
	case afterName:
		for m[0] > max(end, k-e.nameReach) && (isWord(s.text[m[0]-1]) || s.text[m[0]-1] == '.' || s.text[m[0]-1] == '-') {
			m[0]--
		}
	case beforeKeyword:
		from, to := r.before(s.text, k)
		if from == to {
			return nil
		}
		m = []int{from, m[1], from, to}
	}
	return [][]int{m}
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_'
}

// inValue reports whether c can be in a value that is assigned to a name.
func inValue(c byte) bool {
	return isWord(c) || strings.IndexByte("-.=+/:%", c) >= 0
}

// inLongValue reports whether c can be in a value of any length. Nothing that assigns
// can: so what begins after one name ends before the value of the next.
func inLongValue(c byte) bool { return inValue(c) && c != '=' && c != ':' }

// value is where a value can lie that is assigned to a name: it begins at from or up
// to at latest, and ends before end.
type value struct{ from, latest, end int }

// fits reports whether a value of this length can lie there.
func (v value) fits(shortest, longest int) bool {
	return v.end-v.from >= shortest && v.end-v.latest <= longest
}

// valueAfter is where the value lies that is assigned to the name before at, as nameEnd,
// assignment and valueEnd have it.
func (s *subject) valueAfter(at int) (v value, ok bool) {
	i := at
	for ; ; i++ {
		if i == len(s.text) || i > at+20+3 {
			return v, false
		}
		if c := s.text[i]; !isWord(c) && strings.IndexByte(".- \t\n\f\r'\"", c) < 0 {
			break
		}
	}
	if strings.IndexByte("=>:|?,", s.text[i]) < 0 {
		return v, false
	}
	v.from = i + 1
	// The rest of an operator, and quotes; some of them can be within a value too.
	v.latest = v.from
	for limit := v.from + len("::=") + 5; v.latest < limit && v.latest < len(s.text) && strings.IndexByte("=>:|`'\" \t\n\f\r", s.text[v.latest]) >= 0; v.latest++ {
		if !inValue(s.text[v.latest]) {
			v.from = v.latest + 1
		}
	}
	v.end = s.runEnd(v.latest)
	return v, v.end == len(s.text) || strings.IndexByte("`'\" \t\n\f\r;", s.text[v.end]) >= 0 ||
		s.text[v.end] == '\\' && v.end+1 < len(s.text) && strings.IndexByte("nrNR", s.text[v.end+1]) >= 0
}

// runEnd is where the bytes that can be in a value end that begin at at. What is asked
// for lies ever further on in the text, so that each byte is looked at once.
func (s *subject) runEnd(at int) int {
	if at < s.runFrom || at > s.runTo {
		s.runFrom, s.runTo = at, at
		for s.runTo < len(s.text) && inValue(s.text[s.runTo]) {
			s.runTo++
		}
	}
	return s.runTo
}

// secretIn is the secret in a match, unless it is none.
func (r *rule) secretIn(s *subject, m []int, allowed []allowlist) (Finding, bool) {
	g := 2 * r.group
	for i := 2; i < len(m) && g == 0; i += 2 {
		if m[i+1] > m[i] {
			g = i
		}
	}
	if m[g] < 0 {
		return Finding{}, false
	}
	f := s.besideMarks(Finding{r.id, m[g], m[g+1]})
	for f.End > f.Start && s.text[f.End-1] == '\n' {
		f.End--
	}
	secret, match := s.text[f.Start:f.End], s.text[m[0]:m[1]]
	switch line := lineAround(s.text, m[0], m[1]); {
	case secret == "" || isMark(secret),
		r.entropy > 0 && entropy(secret) <= r.entropy,
		holdsAny(r.allowed, secret, match, line) || holdsAny(allowed, secret, match, line),
		r.harmless != nil && r.harmless(s.text[m[0]:f.Start], secret):
		return Finding{}, false
	}
	return f, true
}

// besideMarks is f without the part of a mark that it would cut.
func (s *subject) besideMarks(f Finding) Finding {
	// The mark that begins before at, if it ends after it.
	cut := func(at int) []int {
		i, _ := slices.BinarySearchFunc(s.marks, at, func(m []int, at int) int { return cmp.Compare(m[0], at) })
		if i > 0 && at < s.marks[i-1][1] {
			return s.marks[i-1]
		}
		return nil
	}
	if m := cut(f.Start); m != nil {
		f.Start = m[1]
	}
	if m := cut(f.End); m != nil {
		f.End = m[0]
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

// looksRandom reports whether words in s are chance: one of the fifteen hundred stop
// words is in one of a hundred keys.
func looksRandom(s string) bool {
	var small, large bool
	digits := 0
	for i := range len(s) {
		switch c := s[i]; {
		case '0' <= c && c <= '9':
			digits++
		case 'a' <= c && c <= 'z':
			small = true
		case 'A' <= c && c <= 'Z':
			large = true
		}
	}
	// A name in a program has one digit, or two.
	return len(s) >= 20 && digits > 2 && small && large && entropy(s) > 4
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
