package histories

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
)

// fuzz reads b as a file: whatever it holds is no error, gives records that the
// ledger takes, and the same ones when it is read again.
func fuzz(t *testing.T, tool Tool, name string, b []byte) {
	path := filepath.Join(folder(t, map[string]string{name: string(b)}), name)
	items, err := read(t, tool, path)
	if err != nil && !errors.Is(err, ErrNothing) {
		t.Fatal(err)
	}
	var first, again []string
	for _, it := range items {
		valid(t, it)
		first = append(first, it.Key()+brief(it))
	}
	items, _ = read(t, tool, path)
	for _, it := range items {
		again = append(again, it.Key()+brief(it))
	}
	if !slices.Equal(first, again) {
		t.Errorf("first\n%q\nagain\n%q", first, again)
	}
}
