package sqlview

import (
	"strings"
	"testing"
)

// Texts of ASCII alone are cut into words in another way, with the same result.
func FuzzTokensOfASCII(f *testing.F) {
	for _, p := range pasted {
		f.Add(p.query)
	}
	f.Add(strings.Repeat("a1-", 5000) + strings.Repeat("Zz9", 100))
	f.Fuzz(func(t *testing.T, text string) {
		want := ""
		for _, token := range tokensOf(text) {
			want += " " + token
		}
		var b strings.Builder
		writeTokens(&b, text)
		if b.String() != want {
			t.Errorf("%q: got %q, want %q", text, b.String(), want)
		}
	})
}
