package bus

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"fleetledger/events"
)

// TestDamagedFiles: what is kept of deliveries reads as it was written, or not at all:
// a cursor that says a later place would leave events out, and nobody would miss them.
func TestDamagedFiles(t *testing.T) {
	dir := t.TempDir()
	c := NewCursors(dir)
	for _, name := range []string{"a-1", "b-2"} {
		x, err := c.get(t.Context(), name, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := x.change(t.Context(), true, func(s *cursorState) { s.Position, s.Delivered = 1234, 99 }); err != nil {
			t.Fatal(err)
		}
	}
	key, err := OpenWebhookKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	cursor := func() (string, error) {
		x, err := NewCursors(dir).get(t.Context(), "a-1", 0)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%+v", x.get()), nil
	}
	webhook := func() (string, error) {
		k, err := OpenWebhookKey(dir)
		if err != nil {
			return "", err
		}
		return k.Public(), nil
	}
	for name, read := range map[string]func() (string, error){"a-1.json": cursor, webhookKeyName: webhook} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := read()
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, b []byte) {
			t.Helper()
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if got, err := read(); err == nil && got != want {
				t.Errorf("%s: %s: it reads otherwise", name, what)
			}
		}
		found := 0
		for bit := range 8 * len(whole) {
			b := bytes.Clone(whole)
			b[bit/8] ^= 1 << (bit % 8)
			check("a flipped bit", b)
			if _, err := read(); err != nil {
				found++
			}
		}
		if found < 8*len(whole)*9/10 {
			t.Errorf("%s: of %d flipped bits only %d are found", name, 8*len(whole), found)
		}
		for n := range len(whole) {
			if n > 0 { // an empty one is told apart below
				check("a cut tail", whole[:n])
			}
			b := bytes.Clone(whole)
			clear(b[n:min(n+512, len(b))])
			check("zeroes", b)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := read(); err == nil {
			t.Errorf("%s: empty", name)
		}
		// As programs of before wrote it.
		first, _, _ := bytes.Cut(whole, []byte("\n"))
		check("without its sum", append(first, '\n'))
		if got, err := read(); err != nil || got != want {
			t.Errorf("%s: without its sum: %v", name, err)
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if other, err := os.ReadFile(filepath.Join(dir, "b-2.json")); err != nil || os.WriteFile(filepath.Join(dir, "a-1.json"), other, 0o600) != nil {
		t.Fatal(err)
	}
	if _, err := cursor(); err == nil || !strings.Contains(err.Error(), "delivered anew") {
		t.Errorf("another's cursor: %v", err)
	}
	if again, err := webhook(); err != nil || again != key.Public() {
		t.Errorf("the key: %v", err)
	}
}

// TestCursorAheadOfItsLog: of a log that is an older copy nothing is left out unseen.
func TestCursorAheadOfItsLog(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	f.subscribe(events.Subscription{Name: "out", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	f.record("ext.a", "ext-a", 0, 3)
	f.await("3 events", func() bool { return f.status("out").Delivered == 3 })
	f.stop()
	names, err := filepath.Glob(filepath.Join(f.dir, "out-*.json"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	c := NewCursors(f.dir)
	x, err := c.get(t.Context(), strings.TrimSuffix(filepath.Base(names[0]), ".json"), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := x.change(t.Context(), true, func(s *cursorState) { s.Position += 1000 }); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.record("ext.a", "ext-a", 3, 3)
	f.await("a failure shown", func() bool { return strings.Contains(f.status("out").Failing, "cursor cannot be used") })
	f.stop()
	// Whoever removes it, as the relay's log says, gets everything anew.
	if err := os.Remove(names[0]); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.await("all 6 events", func() bool { return f.status("out").Delivered == 6 })
	if got := r.taken(); len(got) != 3+6 {
		t.Errorf("%d were taken in all", len(got))
	}
}
