package events

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

// The vectors were made by another program from the definition alone.
func TestBlockHashVectors(t *testing.T) {
	raw, err := os.ReadFile("testdata/blocks.json")
	if err != nil {
		t.Fatal(err)
	}
	var vectors []struct {
		Name    string            `json:"name"`
		Fields  map[string]string `json:"fields"`
		Parents []Hash            `json:"parents"`
		Hash    Hash              `json:"hash"`
	}
	if err := json.Unmarshal(raw, &vectors); err != nil || len(vectors) < 6 {
		t.Fatal(len(vectors), err)
	}
	for _, v := range vectors {
		if got := BlockHash(v.Fields, v.Parents); got != v.Hash {
			t.Errorf("%s: %s, not %s", v.Name, got, v.Hash)
		}
		slices.Reverse(v.Parents)
		if got := BlockHash(v.Fields, append(v.Parents, v.Parents...)); got != v.Hash {
			t.Errorf("%s: with its parents in another order, and twice: %s", v.Name, got)
		}
	}
	if vectors[0].Hash != vectors[1].Hash {
		t.Error("two spellings of one text are two blocks")
	}
}

// Whatever is said, two blocks that differ have different hashes: no text can be
// written so that it reads as a field, or a field's end, or a parent.
func TestBlockHashTellsBlocksApart(t *testing.T) {
	text := rapid.SampledFrom([]string{"", "a", "mood", "parents", "focus\x00", strings.Repeat("f", 64), "\x00\x00\x00\x00\x00\x00\x00\x04mood"})
	block := rapid.Custom(func(t *rapid.T) (b struct {
		Fields  map[string]string
		Parents []Hash
	}) {
		b.Fields = rapid.MapOf(rapid.SampledFrom(BlockFields), text).Draw(t, "fields")
		for i := range rapid.IntRange(0, 2).Draw(t, "parents") {
			b.Parents = append(b.Parents, SumHash(text.Draw(t, "parent"), strings.Repeat("x", i)))
		}
		b.Parents = SortedHashes(b.Parents)
		return b
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := block.Draw(t, "a"), block.Draw(t, "b")
		x, _ := json.Marshal(a, json.Deterministic(true))
		y, _ := json.Marshal(b, json.Deterministic(true))
		if same := BlockHash(a.Fields, a.Parents) == BlockHash(b.Fields, b.Parents); same != (string(x) == string(y)) {
			t.Fatalf("%s and %s: the same hash: %t", x, y, same)
		}
	})
}

func TestNarrowing(t *testing.T) {
	n := &Narrowing{MinLevels: map[string]Level{"mood": 50, "issue": 0}, Refuse: []string{"focus"}}
	for _, c := range []struct {
		n     *Narrowing
		field string
		level Level
		takes bool
	}{
		{nil, "mood", 0, true},
		{n, "mood", 49, false},
		{n, "mood", 50, true},
		{n, "issue", 0, true},
		{n, "issue", Unusable, false},
		{n, "focus", 100, false},
		{n, "intent", 0, true},
	} {
		if got := c.n.Takes(c.field, c.level); got != c.takes {
			t.Errorf("%s from level %d: %t", c.field, c.level, got)
		}
	}
}
