package sqlview

import (
	"bytes"
	"database/sql"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fleetledger/events"
)

func compared(t *testing.T, log events.Log, dir string) Comparison {
	t.Helper()
	c, err := Compare(t.Context(), log, dir, func(events.Position) {})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// tamper changes a file that no view has open.
func tamper(t *testing.T, path, statement string) {
	t.Helper()
	db, err := sql.Open("sqlite", dataSource(path, ""))
	if err != nil {
		t.Fatal(err)
	}
	res, err := db.Exec(statement)
	if err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
	if n, err := res.RowsAffected(); err != nil || n == 0 && !strings.HasPrefix(statement, "DROP") && !strings.HasPrefix(statement, "CREATE") {
		t.Fatalf("%s: %d rows, %v", statement, n, err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// kept is a folder with the view of a log, of which every event was a batch of its own,
// and some were erased.
func kept(t *testing.T) (*ledger, string) {
	l, dir := founding(t), t.TempDir()
	v := l.open(dir)
	for r, err := range history(t).ReadAll(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		l.now = r.Header.Time
		l.raw(string(r.Header.Stream), r.Header.Type, r.Payload)
		l.upToDate(v)
	}
	secret := l.ran(1, []string{"curl", "-u", "hunter2zebra"})
	l.concluded(secret, "walrus77 said so")
	l.upToDate(v)
	l.erase(l.Durable() - 1)
	l.upToDate(v)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	return l, dir
}

// TestCompareErased: whichever event is erased, a view that had folded it is what a fold
// of the log without it gives.
func TestCompareErased(t *testing.T) {
	dir := t.TempDir()
	l := history(t)
	v := l.open(dir)
	for r, err := range founding(t).ReadAll(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		l.raw(strings.Replace(string(r.Header.Stream), "task-t1", "task-t8", 1), r.Header.Type, bytes.ReplaceAll(r.Payload, []byte(`"t1"`), []byte(`"t8"`)))
	}
	// What was said of an event that could not be folded may repeat what it holds.
	l.raw("machine-m1", "memory.recorded", []byte(`{"record":{"what this is":1}}`))
	l.append("task-nobody", events.TaskReported{Machine: "m1", Attempt: 1})
	l.upToDate(v)
	n := l.Durable()
	for p := events.Position(1); p <= n; p++ {
		for r, err := range l.ReadAll(t.Context(), p-1) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Type.Erasable() {
				l.erase(p)
				l.upToDate(v)
			}
			break
		}
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if c := compared(t, l.Log, dir); len(c.Differences) != 0 || c.File == "" {
		t.Errorf("got %+v", c)
	}
}

// TestCompare: a view as its fold left it is what the log gives, however the log was
// cut into batches; whatever else is in the file is told.
func TestCompare(t *testing.T) {
	l, dir := kept(t)
	before := files(t, dir)
	c := compared(t, l.Log, dir)
	if len(c.Differences) != 0 || c.Tables < 15 || c.Rows < 100 || c.Skipped != "" || c.File != "view-1.db" {
		t.Fatalf("as it was left: %+v", c)
	}
	if !before.equal(files(t, dir)) {
		t.Error("comparing changed the folder")
	}
	// A view that lags behind is brought up to date, as a start would.
	l.ran(0, []string{"later"})
	if c := compared(t, l.Log, dir); len(c.Differences) != 0 {
		t.Errorf("a view behind: %+v", c)
	}
	if c := compared(t, l.Log, t.TempDir()); c.File != "" || len(c.Differences) != 0 {
		t.Errorf("no view: %+v", c)
	}

	path := filepath.Join(dir, "view-1.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct{ statement, says string }{
		{`UPDATE runs SET exit_code = 0, result = 'succeeded' WHERE position = (SELECT max(position) FROM runs WHERE exit_code = 1)`, "in table runs, the row position"},
		{`DELETE FROM runs WHERE position = (SELECT max(position) FROM runs)`, "in table runs, from the row position"},
		{`INSERT INTO conclusions SELECT position + 1, 'x', stream, by, at, about_task, about_record, about_run, subject, 'it passed', supersedes FROM conclusions LIMIT 1`, "in table conclusions, from the row position"},
		{`UPDATE conclusions SET text = text || '!' WHERE position = (SELECT min(position) FROM conclusions)`, "has another text"},
		{`UPDATE series SET failed = failed + 1 WHERE id = (SELECT min(id) FROM series)`, "has another failed"},
		{`UPDATE series SET seen = seen + 4096000000 WHERE id = (SELECT min(id) FROM series)`, "has another seen"},
		{`UPDATE actors SET authority_level = 100 WHERE actor_id = (SELECT min(actor_id) FROM actors WHERE authority_level < 100)`, "has another authority_level"},
		{`UPDATE rules SET min_level = min_level - 1 WHERE rule_id = (SELECT min(rule_id) FROM rules WHERE min_level > 0)`, "has another min_level"},
		{`UPDATE tasks SET verdict = 'succeeded' WHERE verdict = 'failed'`, "has another verdict"},
		{`UPDATE view SET fleet = 'other'`, "has another fleet"},
		{`UPDATE view SET position = 1`, "differs"},
		{`UPDATE view SET position = 100000`, "it knows of position 100000"},
		{`UPDATE view SET first = 'x'`, "folded from another log"},
		{`DELETE FROM forms WHERE series = (SELECT min(series) FROM forms)`, "in table forms"},
		{`DELETE FROM tried WHERE rowid = (SELECT min(rowid) FROM tried)`, "is not found by the words"},
		{`DROP INDEX runs_by_machine`, "in table sqlite_schema"},
		{`CREATE VIEW more AS SELECT 1`, "in table sqlite_schema"},
		{`CREATE TRIGGER lies AFTER INSERT ON runs BEGIN DELETE FROM runs; END`, "in table sqlite_schema"},
	}
	for _, c := range rows {
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		tamper(t, path, c.statement)
		got := compared(t, l.Log, dir)
		if !slices.ContainsFunc(got.Differences, func(d Difference) bool { return strings.Contains(d.Detail, c.says) }) {
			t.Errorf("%s: %+v", c.statement, got.Differences)
		}
		if len(got.Differences) > 0 && (got.Differences[0].Position == 0 || got.Differences[0].Position > l.Durable()) {
			t.Errorf("%s: at position %d", c.statement, got.Differences[0].Position)
		}
	}
	// What a start makes again anyway is not compared, and that is said.
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	tamper(t, path, `UPDATE view SET version = version - 1`)
	if got := compared(t, l.Log, dir); !strings.Contains(got.Skipped, "version") || len(got.Differences) != 0 || got.File != "" {
		t.Errorf("an older version: %+v", got)
	}
	for what, b := range map[string][]byte{"no database": bytes.Repeat([]byte("x"), 5000), "cut": whole[:len(whole)/2], "empty": nil} {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if got := compared(t, l.Log, dir); len(got.Differences) == 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

type contents map[string]string

func files(t *testing.T, dir string) contents {
	t.Helper()
	all := contents{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		b, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			t.Fatal(err)
		}
		all[e.Name()] = string(b)
	}
	return all
}

func (c contents) equal(other contents) bool {
	for name, b := range c {
		if other[name] != b {
			return false
		}
	}
	return len(c) == len(other)
}
