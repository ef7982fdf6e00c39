package histories

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// folder writes files, by their paths within it.
func folder(t testing.TB, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// read is everything that Read yields.
func read(t testing.TB, tool Tool, path string) ([]Item, error) {
	t.Helper()
	var items []Item
	for it, err := range Read(context.Background(), tool, path, Options{Host: "host"}) {
		if err != nil {
			return items, err
		}
		items = append(items, it)
	}
	return items, nil
}

// brief writes an item on one line: what a row of a table compares.
func brief(it Item) string {
	place := fmt.Sprintf("%s:%d", it.File, it.Line)
	notOK := ""
	if it.NotOK {
		notOK = ", not ok"
	}
	switch it.Kind {
	case NotARun:
		return place + " not a run: " + it.Reason + notOK
	case Unreadable:
		return place + " unreadable: " + it.Reason
	case Repeated:
		return place + " repeated"
	case Document:
		return fmt.Sprintf("%s document %q", place, it.Text)
	case Concluded:
		s := place + " concluded " + it.Conclusion.Text
		if it.Conclusion.TaskID != "" {
			s += " on " + it.Conclusion.TaskID
		}
		if sub := it.Conclusion.Subject; sub != nil {
			s += fmt.Sprintf(" about %q", sub.Argv)
		}
		return s
	}
	r := it.Run.Record
	end := string(r.Outcome)
	if r.ExitCode != nil {
		end = fmt.Sprint("exit ", *r.ExitCode)
	}
	what := it.Run.Line
	if what == "" {
		what = fmt.Sprintf("%q", r.Argv)
	}
	s := fmt.Sprintf("%s ran %s: %s in %s on %s, %d ms%s", place, what, end, r.Cwd, r.Machine, r.ElapsedMS, notOK)
	for _, o := range []struct {
		name string
		out  events.Output
	}{{"out", r.Stdout}, {"err", r.Stderr}} {
		if o.out.Bytes > 0 {
			s += fmt.Sprintf(", %s %q", o.name, o.out.Tail)
		}
		if o.out.Truncated && o.out.Bytes > 0 {
			s += fmt.Sprintf(" of %d", o.out.Bytes)
		}
	}
	return s
}

// check compares what is read with rows of brief.
func check(t *testing.T, tool Tool, path string, want ...string) []Item {
	t.Helper()
	items, err := read(t, tool, path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, it := range items {
		got = append(got, brief(it))
		valid(t, it)
	}
	if !slices.Equal(got, want) {
		t.Errorf("read\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	return items
}

// valid holds an item to what the ledger takes.
func valid(t testing.TB, it Item) {
	t.Helper()
	if len(it.Key()) != 36 {
		t.Errorf("key %s", it.Key())
	}
	if !utf8.ValidString(it.ImportedFrom()) {
		t.Errorf("imported from %q", it.ImportedFrom())
	}
	if it.Kind == Concluded && (strings.TrimSpace(it.Conclusion.Text) == "" || !utf8.ValidString(it.Conclusion.Text)) {
		t.Errorf("conclusion %q", it.Conclusion.Text)
	}
	if it.Kind != Ran {
		return
	}
	r := it.Run.Record
	if (r.Outcome == events.Exited) != (r.ExitCode != nil) {
		t.Errorf("%s: outcome %s with the exit code %v", brief(it), r.Outcome, r.ExitCode)
	}
	if r.EndedAt.Before(r.StartedAt) || r.ElapsedMS < 0 || r.EndedAt.Year() < 1970 || r.EndedAt.Year() > 9999 || r.StartedAt.Year() < 0 {
		t.Errorf("%s: from %s to %s", brief(it), r.StartedAt, r.EndedAt)
	}
	if (it.Run.Line == "") == (len(r.Argv) == 0) || len(r.Argv) > 0 && r.Argv[0] == "" {
		t.Errorf("%s: line %q and argv %q", brief(it), it.Run.Line, r.Argv)
	}
	if len(r.Stdout.Tail) > 4<<10 || len(r.Stderr.Tail) > 4<<10 || r.Stdout.Bytes < 0 {
		t.Errorf("%s: tails of %d and %d bytes", brief(it), len(r.Stdout.Tail), len(r.Stderr.Tail))
	}
	if !events.ValidID(r.Machine) {
		t.Errorf("%s: machine %q", brief(it), r.Machine)
	}
	if _, err := json.Marshal(it.Run); err != nil {
		t.Errorf("%s: %v", brief(it), err)
	}
}

func TestNothingOfTheTool(t *testing.T) {
	dir := folder(t, map[string]string{"a.jsonl": `{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s"}}` + "\n", "empty/x.txt": "x"})
	for _, c := range []struct {
		tool Tool
		path string
		want error
	}{
		{ClaudeCode, "a.jsonl", ErrNothing},
		{W2M, "a.jsonl", ErrNothing},
		{Codex, "empty", ErrNothing},
		{Codex, "none.jsonl", os.ErrNotExist},
		{Atuin, "empty", os.ErrNotExist},
	} {
		if _, err := read(t, c.tool, filepath.Join(dir, c.path)); !errors.Is(err, c.want) {
			t.Errorf("%s %s: %v, want %v", c.tool, c.path, err, c.want)
		}
	}
	if _, err := read(t, Atuin, filepath.Join(dir, "a.jsonl")); err == nil {
		t.Error("a file that is no database was read as one")
	}
}

// Whoever stops ranging, or whose context ends, is called no more.
func TestStops(t *testing.T) {
	dir := folder(t, map[string]string{"memory.jsonl": strings.Repeat("{\n", 1000)})
	n := 0
	for range Read(context.Background(), W2M, dir, Options{Host: "host"}) {
		if n++; n == 3 {
			break
		}
	}
	if n != 3 {
		t.Errorf("called %d times", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var last error
	n = 0
	for _, err := range Read(ctx, W2M, dir, Options{Host: "host"}) {
		cancel()
		last = err
		n++
	}
	if !errors.Is(last, context.Canceled) || n > 300 {
		t.Errorf("went on for %d items and ended with %v", n, last)
	}
}

func TestMachineID(t *testing.T) {
	for host, want := range map[string]string{
		"Anas-MacBook-Pro.local":       "anas-macbook-pro",
		"web01.example.org":            "web01.example.org",
		"Büro PC":                      "b-ro-pc",
		"--x--":                        "x",
		"":                             "",
		"日本":                           "",
		strings.Repeat("a", 63) + "-b": strings.Repeat("a", 63),
	} {
		if got := MachineID(host); got != want || got != "" && !events.ValidID(got) {
			t.Errorf("%q: %q, want %q", host, got, want)
		}
	}
}

func TestInstant(t *testing.T) {
	want := time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)
	for _, raw := range []string{`"2026-02-03T04:05:06Z"`, `"2026-02-03T05:05:06+01:00"`, `"2026-02-03T04:05:06"`, `"2026-02-03 04:05:06"`,
		"1770091506", "1770091506000", "1770091506000000", "1770091506000000000", "1770091506.0"} {
		if got := instant([]byte(raw)); !got.Round(time.Millisecond).Equal(want) {
			t.Errorf("%s: %s", raw, got)
		}
	}
	for _, raw := range []string{"", "null", `"soon"`, "-1", "0", "1e400", "{}", `"0001-01-01T00:00:00Z"`} {
		if got := instant([]byte(raw)); !got.IsZero() {
			t.Errorf("%s: %s", raw, got)
		}
	}
}

// A key is a promise: the same record must have it in every version of this
// program.
func TestKeysNeverChange(t *testing.T) {
	it := Item{Kind: Ran, Tool: ClaudeCode, Session: "s1", Origin: "toolu_1"}
	if got := it.Key(); got != "163359eb-7798-8152-8051-23aa58be91eb" {
		t.Errorf("%s", got)
	}
	it.Kind = Concluded
	if got := it.Key(); got != "0e2412a3-ae2c-85f5-88b6-34bd2bcb0c6e" {
		t.Errorf("%s", got)
	}
}

// A secret that the tail would cut in two is known by what is before the cut.
func TestSecretAcrossTheCut(t *testing.T) {
	secret := "ghp_" + "R7xK2mQ9vT4wZ8bN3cL6pY1sD5fG0hJaE2uX" // apart, so that this file is no leak
	r := &reading{Options: Options{TailBytes: 100}}
	for after := 60; after < 110; after++ {
		o := r.output("token "+secret+" "+strings.Repeat("x", after), true, 0)
		if strings.Contains(o.Tail, secret[20:]) || len(o.Tail) > 100 || !o.Truncated || o.Bytes != int64(len(secret)+7+after) {
			t.Errorf("%d after it: %+v", after, o)
		}
	}
}

// A history may lie behind links, as dotfiles do. What goes by the name of a history and is
// not read is said.
func TestLinks(t *testing.T) {
	dir := folder(t, map[string]string{
		"real/memory.jsonl": w2mTask, "elsewhere/now": strings.Replace(w2mTask, "t1", "t2", 1), "elsewhere/deeper/memory.jsonl": strings.Replace(w2mTask, "t1", "t3", 1),
		"packed/memory.jsonl.1.gz": "x", "packed/memory.txt.gz": "x",
	})
	for from, to := range map[string]string{
		"all": "real", "real/memory.jsonl.1": "../elsewhere/now", "real/memory.jsonl.2": "nowhere", "real/back": "..", "elsewhere/memory.jsonl": "now", "real/notes.txt": "nowhere",
	} {
		if err := os.Symlink(filepath.FromSlash(to), filepath.Join(dir, filepath.FromSlash(from))); err != nil {
			t.Skip(err)
		}
	}
	ran := func(file string) string {
		return file + `:1 ran ["go" "test" "./..."]: exit 1 in sub on m1, 1500 ms, not ok, out "out" of 3, err "err" of 3`
	}
	linked := []string{"back:0 unreadable: " + ReasonLinked, "memory.jsonl.2:0 unreadable: " + ReasonFile, ran("memory.jsonl.1"), ran("memory.jsonl")}
	check(t, W2M, filepath.Join(dir, "all"), linked...)
	check(t, W2M, filepath.Join(dir, "real"), linked...)
	check(t, W2M, filepath.Join(dir, "real", "memory.jsonl"), ran("memory.jsonl.1"), ran("memory.jsonl"))
	check(t, W2M, filepath.Join(dir, "elsewhere", "memory.jsonl"), ran("memory.jsonl"))
	check(t, W2M, filepath.Join(dir, "elsewhere"), ran("memory.jsonl"), ran("memory.jsonl"))
	if _, err := read(t, W2M, filepath.Join(dir, "packed")); !errors.Is(err, ErrNothing) || !strings.HasSuffix(err.Error(), "memory.jsonl.1.gz: "+ReasonCompressed) {
		t.Errorf("got %v", err)
	}
}
