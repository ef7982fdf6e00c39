package projections_test

import (
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"fleetledger/projections"
)

func TestPlace(t *testing.T) {
	for _, same := range [][]string{
		{`d:\docu2`, `D:\Docu2`, `D:/docu2/`, `d:\DOCU2\\`},
		{`D:\`, `d:/`, `d:\\`},
		{`D:`, `d:`},
		{`\\Server\Share\x`, `\\server\share\X\`},
		{"/home/ana/caf\u00e9", "/home/ana/cafe\u0301", "/home/ana/caf\u00e9/"},
		{"C:\\Caf\u00c9", "c:\\cafe\u0301"},
		{"C:\\STRASSE", "c:\\straße"},
		{"https://example.org/a/b", "https://example.org/a/b/"},
	} {
		want := projections.Place(same[0])
		for _, path := range same {
			if got := projections.Place(path); got != want {
				t.Errorf("%q is the place %q, not %q as %q", path, got, want, same[0])
			}
		}
	}
	for _, two := range [][2]string{{"/a/B", "/a/b"}, {`d:\a`, `e:\a`}, {"/", ""}, {`\a`, `\A`}, {"https://example.org/A", "https://example.org/a"}, {"/a", "a"}, {"C:/a", "/c/a"}, {"d:", `d:\`}} {
		if projections.Place(two[0]) == projections.Place(two[1]) {
			t.Errorf("%q and %q are one place", two[0], two[1])
		}
	}
}

// The place of a place is itself, however a path is spelled.
func TestPlaceIsOneForm(t *testing.T) {
	part := rapid.SampledFrom([]string{"d:", "D:", `\`, "/", `\\`, "caf\u00e9", "e\u0301", "İ", "ß", "Docu2", ".", " ", "\u1e9e", "ﬁ", "\u0345"})
	rapid.Check(t, func(t *rapid.T) {
		path := strings.Join(rapid.SliceOf(part).Draw(t, "path"), "")
		place := projections.Place(path)
		for _, again := range []string{place, norm.NFD.String(path), norm.NFC.String(path)} {
			if got := projections.Place(again); got != place {
				t.Fatalf("%q: %q, and of %q %q", path, place, again, got)
			}
		}
	})
}
