package secrets

// keywords are the words that say which rules to try. A text is looked at byte by
// byte, once for all of them: mostly it holds none, and that must cost little, as
// every event of an agent is looked at before it is recorded.
type keywords struct {
	list []string // in lower case
	// byStart has, by the classes of three bytes, the number of a list of words that
	// may begin with these; 0 is the empty one.
	byStart [1 << (3 * classBits)]uint16
	lists   [][]uint16
	numbers map[string]uint16
}

// occurrence is a keyword in a text.
type occurrence struct {
	key uint16
	at  int
}

const (
	classBits = 5
	classes   = 1 << classBits
)

// classOf says which bytes are told apart: letters, not their case, and a few
// classes of others. Class 0 is what comes after the end of a text.
var classOf = func() (class [256]uint16) {
	for b := range class {
		class[b] = uint16(27 + b%5)
	}
	for b := range 26 {
		class['a'+b] = uint16(1 + b)
		class['A'+b] = uint16(1 + b)
	}
	return class
}()

// add makes word, in lower case, one of the keywords, and returns its number.
func (k *keywords) add(word string) uint16 {
	if n, ok := k.numbers[word]; ok {
		return n
	}
	if k.lists == nil {
		k.lists, k.numbers = [][]uint16{nil}, map[string]uint16{}
	}
	n := uint16(len(k.list))
	k.list, k.numbers[word] = append(k.list, word), n
	start, free := 0, 0
	for i := range 3 {
		start <<= classBits
		if i < len(word) {
			start |= int(classOf[word[i]])
		} else {
			free += classBits // any byte may follow, or none
		}
	}
	for s := start; s < start+1<<free; s++ {
		if k.byStart[s] == 0 {
			k.byStart[s] = uint16(len(k.lists))
			k.lists = append(k.lists, nil)
		}
		list := &k.lists[k.byStart[s]]
		*list = append(*list, n)
	}
	return n
}

// index is one of these words; nil if there are none.
func index(words []string) *keywords {
	if len(words) == 0 {
		return nil
	}
	k := &keywords{}
	for _, w := range words {
		k.add(lower(w))
	}
	return k
}

// occurrences returns where the keywords are in text, in any case of their letters.
func occurrences[T string | []byte](k *keywords, text T) (words []occurrence) {
	begin := func(list uint16, at int) {
		for _, n := range k.lists[list] {
			if hasPrefixFold(text[at:], k.list[n]) {
				words = append(words, occurrence{n, at})
			}
		}
	}
	// The classes of the last three bytes, and of more before them.
	start := uint32(0)
	for i := range len(text) {
		start = start<<classBits | uint32(classOf[text[i]])
		if list := k.byStart[start%uint32(len(k.byStart))]; list != 0 {
			begin(list, i-2)
		}
	}
	for i := range 2 { // the last two bytes begin a word too
		start <<= classBits
		if list := k.byStart[start%uint32(len(k.byStart))]; list != 0 {
			begin(list, len(text)-2+i)
		}
	}
	return words
}

// hasPrefixFold reports whether s begins with prefix, which is in lower case,
// whatever the case of the ASCII letters of s.
func hasPrefixFold[T string | []byte](s T, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := len(prefix) - 1; i >= 0; i-- { // the beginning is mostly known to fit
		c := s[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != prefix[i] {
			return false
		}
	}
	return true
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
