package sqlview

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"fleetledger/events"
)

func TestAsk(t *testing.T) {
	v := founding(t).view()
	for _, c := range []struct {
		query  string
		params []any
		limit  int
		want   Table
	}{
		{`SELECT command, exit_code AS code FROM runs WHERE machine = ? -- by machine`, []any{"m1"}, 10,
			Table{Columns: []string{"command", "code"}, Rows: [][]any{{"make all", int64(2)}}}},
		{`VALUES (1, 'a', NULL, 1.5), (2, 'b;c', x'00', 2)`, nil, 10,
			Table{Columns: []string{"column1", "column2", "column3", "column4"}, Rows: [][]any{{int64(1), "a", nil, 1.5}, {int64(2), "b;c", []byte{0}, int64(2)}}}},
		{`SELECT 'a' || char(0) || 'b', ?, length(?1), x'610062', ''`, []any{"\x00c\x00"}, 10,
			Table{Columns: []string{"'a' || char(0) || 'b'", "?", "length(?1)", "x'610062'", "''"}, Rows: [][]any{{"a\x00b", "\x00c\x00", int64(0), []byte("a\x00b"), ""}}}},
		{`WITH n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n`, nil, 3,
			Table{Columns: []string{"x"}, Rows: [][]any{{int64(1)}, {int64(2)}, {int64(3)}}, Cut: "rows"}},
		{`SELECT actor_id FROM actors ORDER BY actor_id DESC`, nil, 2,
			Table{Columns: []string{"actor_id"}, Rows: [][]any{{"root"}, {"m1"}}, Cut: "rows"}},
		{`SELECT series.command FROM tried JOIN series ON series.seen = -tried.rowid WHERE tried MATCH 'make'`, nil, 10,
			Table{Columns: []string{"command"}, Rows: [][]any{{"make all"}}}},
		{`SELECT value FROM tasks, json_each(argv) WHERE task_id = 't1'`, nil, 10, Table{Columns: []string{"value"}, Rows: [][]any{{"make"}, {"all"}}}},
		{`SELECT name FROM pragma_table_info('parked') WHERE pk`, nil, 10, Table{Columns: []string{"name"}, Rows: [][]any{{"position"}}}},
		{`SELECT 1 AS a, 2 AS a WHERE 0`, nil, 10, Table{Columns: []string{"a", "a:1"}}},
		{`SELECT length(printf('%.*c', 1000000, 'x')) AS n`, nil, 10, Table{Columns: []string{"n"}, Rows: [][]any{{int64(1000000)}}}},
		{`SELECT length(trim(printf('%.*c', 1000000, 'x'), printf('%.*c', 500000, 'y') || 'x')) AS n`, nil, 10, Table{Columns: []string{"n"}, Rows: [][]any{{int64(0)}}}},
		{`SELECT count(*) AS n FROM runs WHERE command LIKE 'MAKE%' AND command GLOB 'm*' AND instr(command, 'all') = 6 AND replace(command, 'all', '') = 'make '`, nil, 10,
			Table{Columns: []string{"n"}, Rows: [][]any{{int64(1)}}}},
	} {
		got, err := v.Ask(t.Context(), c.query, c.params, c.limit, "ana")
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v %v, want %+v", c.query, got, err, c.want)
		}
	}
	// The tables that analysts are promised are there, and told about.
	for _, name := range []string{"tasks", "attempts", "runs", "conclusions", "gates", "approvals", "rules", "actors", "sections", "blocks"} {
		got, err := v.Ask(t.Context(), `SELECT sql FROM sqlite_schema WHERE name = ?`, []any{name}, 1, "")
		if err != nil || len(got.Rows) != 1 {
			t.Errorf("%s: %+v %v", name, got, err)
		}
	}
}

// refusedQueries are what nobody may do, and what each is answered with.
var refusedQueries = []struct{ query, code string }{
	{``, SQLInvalid},
	{`-- nothing`, SQLInvalid},
	{`SELEC 1`, SQLInvalid},
	{`SELECT`, SQLInvalid},
	{`SELECT nothing FROM runs`, SQLInvalid},
	{`SELECT * FROM nowhere`, SQLInvalid},
	{`SELECT "quoted" FROM runs`, SQLInvalid},
	{`SELECT 1) SELECT * FROM (SELECT 2`, SQLInvalid},
	{`SELECT 'open`, SQLInvalid},
	{`SELECT ?`, SQLInvalid},
	{`EXPLAIN SELECT 1`, SQLInvalid},
	{"SELECT 1\x00", SQLInvalid},
	{`SELECT 1; SELECT 2`, SQLOneStatement},
	{`SELECT 1; DROP TABLE runs`, SQLOneStatement},
	{`SELECT 1 /* ; */; -- ;` + "\nDELETE FROM runs", SQLOneStatement},
	{`INSERT INTO runs DEFAULT VALUES`, SQLNotReadOnly},
	{`UPDATE runs SET command = ''`, SQLNotReadOnly},
	{`DELETE FROM runs`, SQLNotReadOnly},
	{`WITH a AS (SELECT 1) DELETE FROM runs`, SQLNotReadOnly},
	{`WITH a AS (SELECT 1) INSERT INTO parked SELECT 1,2,3,4 RETURNING *`, SQLNotReadOnly},
	{`CREATE TABLE x (y)`, SQLNotReadOnly},
	{`CREATE TEMP TABLE x AS SELECT 1`, SQLNotReadOnly},
	{`DROP TABLE runs`, SQLNotReadOnly},
	{`VACUUM INTO 'stolen.db'`, SQLNotReadOnly},
	{`BEGIN`, SQLNotReadOnly},
	{`REINDEX`, SQLNotReadOnly},
	{`ATTACH 'stolen.db' AS s`, SQLForbidden},
	{`PRAGMA query_only = OFF`, SQLForbidden},
	{`PRAGMA table_info(runs)`, SQLForbidden},
	{`SELECT * FROM pragma_query_only`, SQLForbidden},
	{`SELECT * FROM pragma_database_list`, SQLForbidden},
	{`SELECT load_extension('x')`, SQLForbidden},
	{`SELECT readfile('/etc/passwd')`, SQLInvalid},
	{`SELECT writefile('x', 'y')`, SQLInvalid},
	{`SELECT fleetledger_rows(1, 2)`, SQLInvalid},
	{`SELECT * FROM sqlite_dbpage`, SQLForbidden},
	{`SELECT data FROM sqlite_dbpage`, SQLForbidden},
	{`SELECT * FROM dbstat`, SQLForbidden},
	{`SELECT zeroblob(1000000000)`, SQLTooBig},
	{`SELECT printf('%.*c', 1000000000, 'x')`, SQLTooBig},
	{`WITH RECURSIVE n(x) AS (SELECT 'x' UNION ALL SELECT x || x FROM n) SELECT max(length(x)) FROM n`, SQLTooBig},
	{`SELECT ` + strings.Repeat("(", 5000) + "1" + strings.Repeat(")", 5000), SQLInvalid},
	{`SELECT ` + strings.Repeat("1,", 200) + "1", SQLTooBig},
	{`SELECT '` + strings.Repeat("x", AskQueryBytes) + `'`, SQLTooBig},
	// What nothing ends before it is through is small.
	{`SELECT printf('%.*c', 300000, 'x') LIKE 'y'`, SQLTooBig},
	{`SELECT command GLOB printf('%.*c', 300000, 'x') FROM runs`, SQLTooBig},
	{`SELECT instr(printf('%.*c', 300000, 'x'), 'y')`, SQLTooBig},
	{`SELECT replace(printf('%.*c', 300000, 'x'), 'y', 'z')`, SQLTooBig},
	{`SELECT count(*) FROM tried WHERE tried MATCH printf('%.*c', 300000, 'x')`, SQLTooBig},
	{`SELECT count(*) FROM tried(printf('%.*c', 300000, 'x'))`, SQLTooBig},
	{`SELECT ` + strings.Repeat("command LIKE 'x' + ", 100) + `command LIKE 'x' FROM runs`, SQLTooBig},
	{`SELECT (` + strings.Repeat("SELECT instr(command, 'x') UNION ", 50) + `SELECT instr(command, 'x')) FROM runs`, SQLTooBig},
	{`SELECT (` + strings.Repeat(`SELECT `+strings.Repeat("hex(1) || ", 50)+`1 UNION `, 10) + `SELECT hex(1)) FROM runs`, SQLTooBig},
	{`SELECT unhex('00')`, SQLForbidden},
	{`SELECT JSON_Patch('{}', '{}')`, SQLForbidden},
	{`SELECT jsonb_patch('{}', '{}')`, SQLForbidden},
	{`SELECT json_pretty('{}')`, SQLForbidden},
	{`SELECT geopoly_area('[]')`, SQLForbidden},
	{`SELECT rtreecheck('runs')`, SQLForbidden},
}

// As many params as a query takes, no more and no fewer: one that is left out silently
// answers another question.
func TestAskCountsParams(t *testing.T) {
	v := founding(t).view()
	for _, c := range []struct {
		query string
		takes int
	}{
		{`SELECT 1`, 0},
		{`SELECT ?`, 1},
		{`SELECT ?, ?`, 2},
		{`SELECT ?2, ?`, 3},
		{`SELECT ?2, ?1, ?2`, 2},
		{`SELECT ?3`, 3},
		{`SELECT '?', "?", ` + "`?`" + `, [?] /* ? */ FROM (SELECT 1 AS "?") WHERE 'it''s ?' <> ? -- ?`, 1},
		{"SELECT ?\n-- ?\n, ? /* ? */", 2},
	} {
		for n := range 5 {
			_, err := v.Ask(t.Context(), c.query, make([]any, n), 10, "ana")
			q, _ := errors.AsType[*QueryError](err)
			switch {
			case n == c.takes && err != nil, n != c.takes && q == nil:
				t.Errorf("%s with %d: %v", c.query, n, err)
			case q != nil && (q.Code != SQLInvalid || !strings.Contains(q.Detail, fmt.Sprintf("%d params came, and the query takes %d:", n, c.takes))):
				t.Errorf("%s with %d: %+v", c.query, n, q)
			}
		}
	}
	for _, query := range []string{`SELECT :a`, `SELECT @a`, `SELECT $a`, `SELECT ?0`, `SELECT ?99999999999999999999`} {
		for n := range 2 {
			_, err := v.Ask(t.Context(), query, make([]any, n), 10, "ana")
			if q, _ := errors.AsType[*QueryError](err); q == nil || q.Code != SQLInvalid {
				t.Errorf("%s with %d: %v", query, n, err)
			}
		}
	}
}

func TestAskRefuses(t *testing.T) {
	l := founding(t)
	dir := t.TempDir()
	v := l.open(dir)
	defer v.Close()
	l.upToDate(v)
	before := everything(t, v)
	for _, c := range refusedQueries {
		_, err := v.Ask(t.Context(), c.query, nil, 10, "")
		var q *QueryError
		if !errors.As(err, &q) || q.Code != c.code || q.Detail == "" {
			t.Errorf("%.100q: got %v (%+v), want %s", c.query, err, q, c.code)
		}
	}
	if got := everything(t, v); !reflect.DeepEqual(got, before) {
		t.Error("something was changed")
	}
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(names) != 3 {
		t.Errorf("files: %v %v", names, err)
	}
	for _, name := range []string{"stolen.db", "x"} {
		if _, err := os.Stat(name); err == nil {
			t.Errorf("%s was written", name)
		}
	}
}

// A query without end is ended, whether before its first row or after it, and is in
// nobody's way.
func TestAskIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	l := founding(t)
	v := l.view()
	bomb := `WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)`
	for _, query := range []string{
		bomb + ` SELECT count(*) FROM n`,
		bomb + ` SELECT 0 UNION ALL SELECT count(*) FROM n`,
	} {
		done := make(chan error, 1)
		go func() {
			_, err := v.Ask(context.Background(), query, nil, 10, "")
			done <- err
		}()
		l.ran(0, []string{"meanwhile"})
		l.upToDate(v)
		if len(tried(t, v, Query{Text: "meanwhile"})) != 1 {
			t.Error("nobody else is answered")
		}
		var q *QueryError
		if err := <-done; !errors.As(err, &q) || q.Code != SQLTooSlow {
			t.Errorf("%s: got %v", query, err)
		}
	}
	got, err := v.Ask(t.Context(), fmt.Sprintf(`%s SELECT printf('%%.*c', 100000, 'x') FROM n LIMIT 1000`, bomb), nil, 1000, "")
	if err != nil || got.Cut != "bytes" || len(got.Rows) > AskBytes/100000 {
		t.Errorf("got %d rows, cut %q, %v", len(got.Rows), got.Cut, err)
	}
}

// What a query is answered does not hold the view back for ever.
func TestAskWhileRebuilding(t *testing.T) {
	l := founding(t)
	v := l.view()
	for range 5 {
		v.Rebuild("for the test")
		for range 20 {
			got, err := v.Ask(t.Context(), `SELECT count(*) FROM tasks`, nil, 1, "")
			if err != nil || got.Rows[0][0] != int64(2) {
				t.Fatalf("got %+v %v", got, err)
			}
		}
	}
}

// What a reader has forgotten is in no row of runs or series, and counted nowhere; it is
// there for others, and for whoever asks for everything.
func TestAskLeavesOutWhatIsForgotten(t *testing.T) {
	l := newLedger(t)
	first := l.ran(1, []string{"make"})
	l.ran(0, []string{"make"})
	l.ran(0, []string{"make"}, on("m2"))
	gone := l.ran(0, []string{"true"})
	l.append("machine-m1", events.MemoryConsolidated{Text: "both are old", Records: []string{first, gone}, Forgets: &events.Forgetting{Cited: true}})
	v := l.view()
	for _, c := range []struct{ reader, query, want string }{
		{"ana", `SELECT command, machine, result FROM runs ORDER BY position`, "[[make m1 succeeded] [make m2 succeeded]]"},
		{"ana", `SELECT command, machine, runs, succeeded, failed, last_run FROM series ORDER BY id`, "[[make m1 1 1 0 3] [make m2 1 1 0 4]]"},
		{"ana", `SELECT a.machine FROM series a JOIN runs r ON r.series = a.id JOIN (SELECT max(position) AS p FROM runs) m ON r.position = m.p`, "[[m2]]"},
		{"ana", `WITH runs AS (SELECT 7 AS x) SELECT x, (SELECT count(*) FROM main.runs) FROM runs`, "[[7 4]]"},
		{"ana", `SELECT (SELECT sum(runs) FROM main.series), (SELECT count(*) FROM series)`, "[[4 2]]"},
		{"bo", `SELECT count(*), sum(result = 'failed') FROM runs`, "[[4 1]]"},
		{"", `SELECT count(*), (SELECT count(*) FROM series) FROM runs`, "[[4 3]]"},
	} {
		got, err := v.Ask(t.Context(), c.query, nil, 10, c.reader)
		if err != nil || fmt.Sprint(got.Rows) != c.want || got.LeftOut != (c.reader == "ana") {
			t.Errorf("%s asks %s: got %+v %v, want %s", c.reader, c.query, got, err, c.want)
		}
	}
	// What is refused without it is refused with it.
	for _, c := range refusedQueries {
		_, err := v.Ask(t.Context(), c.query, nil, 10, "ana")
		q, ok := err.(*QueryError)
		if !ok || q.Code != c.code {
			t.Errorf("%q: got %v, want %s", c.query, err, c.code)
		}
	}
}
