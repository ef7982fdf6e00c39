package secrets

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// Wherever a secret lies in a JSON value, and however its letters are escaped, it is
// found, and its place is told without it.
func TestFindInJSON(t *testing.T) {
	secret := githubPAT
	rapid.Check(t, func(t *rapid.T) {
		quoted := ""
		for _, c := range secret {
			if rapid.IntRange(0, 9).Draw(t, "escape") == 0 {
				quoted += fmt.Sprintf(`\u%04x`, c)
			} else {
				quoted += string(c)
			}
		}
		quoted = `"` + rapid.SampledFrom([]string{"", "is ", `\n`, `a\tb `}).Draw(t, "before") + quoted + rapid.SampledFrom([]string{"", " now", `\n`}).Draw(t, "after") + `"`
		raw, path, inName := quoted, "", false
		if rapid.Bool().Draw(t, "as a name") {
			raw, inName = `{"a":1,`+quoted+`:[2]}`, true
		}
		for range rapid.IntRange(0, 4).Draw(t, "depth") {
			if rapid.Bool().Draw(t, "array") {
				raw, path = `[{"x":"y"}, 7 ,`+raw+`]`, "/2"+path
			} else {
				raw, path = `{"n\"":"v", "deep/er" : `+raw+`, "z":[]}`, "/deep~1er"+path
			}
		}
		found := FindInJSON(jsontext.Value(raw))
		if len(found) != 1 || string(found[0].Path) != path || found[0].InName != inName || found[0].Rule != "github-pat" {
			t.Fatalf("%s: found %+v, not one at %q (in a name: %t)", strings.ReplaceAll(raw, secret, "SECRET"), found, path, inName)
		}
	})
}

func TestFindInJSONTellsNoSecretInAPath(t *testing.T) {
	secret := githubPAT
	found := FindInJSON(jsontext.Value(`{"a":{"` + secret + `":{"b":"` + secret + `"}}}`))
	if len(found) != 2 || found[0].Path != "/a" || found[1].Path != "/a" {
		t.Errorf("found %+v", found)
	}
	for _, raw := range []string{`null`, `{}`, `"\u00e9\n"`, `{"tokens":[1,2,3]}`, `{"id":"0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51"}`} {
		if found := FindInJSON(jsontext.Value(raw)); len(found) != 0 {
			t.Errorf("%s: found %+v", raw, found)
		}
	}
}
