package secrets

import (
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The index finds what a plain search does, at the ends of a text too.
func TestKeywords(t *testing.T) {
	var k keywords
	for _, w := range []string{"~", "sk", "s.", "key", "api_key", "://", "sk", "-----begin", "ke"} {
		k.add(w)
	}
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = "kKeEyYsS.~:/-_aApPiI\x00\xc3\n"
	texts := []string{"", "~", "s", "sk", "SK", "ke", "key", "Key", "a~", "~~", "-----BEGIN", "xAPI_KEY", "api_ke"}
	for range 2000 {
		b := make([]byte, random.IntN(40))
		for i := range b {
			b[i] = alphabet[random.IntN(len(alphabet))]
		}
		texts = append(texts, string(b))
	}
	for _, text := range texts {
		var want []occurrence
		for at := range len(text) {
			for n, w := range k.list {
				if strings.HasPrefix(lower(text)[at:], w) {
					want = append(want, occurrence{uint16(n), at})
				}
			}
		}
		if got := occurrences(&k, text); !slices.Equal(got, want) {
			t.Errorf("in %q are %v, want %v", text, got, want)
		}
	}
}

func TestExpressionNeeds(t *testing.T) {
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{`SK[0-9a-fA-F]{32}`, []string{"SK"}},
		{`\b(ey[a-zA-Z0-9]{17,}\.ey[a-z]{17,}\.(?:[a-z]{10,})?)(?:;|$)`, []string{"ey", ".ey", "."}},
		{`(?i)adobe=[a-z]`, nil},
		{`(?:xoxb|xoxp)-[0-9]+`, []string{"xox", "-"}},
		{`(?:ab)?c(?:de)*(?:fg){2,3}`, []string{"c", "fg"}},
		{`a|bc`, nil},
	} {
		if got := expressionOf(c.pattern, nil)().needs; !slices.Equal(got, c.want) {
			t.Errorf("%s needs %q, want %q", c.pattern, got, c.want)
		}
	}
	// Each part is in every match: of a match of a rule's expression too.
	for _, c := range []struct{ pattern, text string }{
		{`SK[0-9a-fA-F]{32}`, "SK0123456789abcdef0123456789abcdef"},
		{`(?:xoxb|xoxp)-[0-9]+`, "xoxp-1"},
		{`(?:ab)?c(?:de)*(?:fg){2,3}`, "cfgfg"},
	} {
		if !regexp.MustCompile(c.pattern).MatchString(c.text) || !expressionOf(c.pattern, nil)().mayMatch(c.text) {
			t.Errorf("%s: %q is not let through", c.pattern, c.text)
		}
	}
}

// BenchmarkFind looks at an event of letters at random, which holds no secret.
func BenchmarkFind(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	texts := make([]string, 64)
	for i := range texts {
		text := []byte(`{"client":12,"text":"`)
		for len(text) < 310 {
			text = append(text, 'a'+byte(random.IntN(26)))
		}
		texts[i] = string(append(text, `"}`...))
	}
	b.SetBytes(int64(len(texts[0])))
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if found := Find(texts[i%len(texts)]); len(found) > 0 {
			b.Fatal(found)
		}
	}
}
