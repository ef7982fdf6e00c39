package sqlview

import (
	"database/sql"
	"fmt"
	"math"
	"testing"

	"modernc.org/sqlite"
)

// They answer as SQLite's own.
func TestAskTrims(t *testing.T) {
	connect := func(d *sqlite.Driver) *sql.DB {
		db := sql.OpenDB(askConnector{d, ":memory:"})
		t.Cleanup(func() { _ = db.Close() })
		return db
	}
	d := &sqlite.Driver{}
	if err := registerTrims(d); err != nil {
		t.Fatal(err)
	}
	ours, theirs := connect(d), connect(&sqlite.Driver{})
	ask := func(db *sql.DB, query string, a, b any) string {
		var value any
		var kind string
		if err := db.QueryRow("SELECT v, typeof(v) FROM (SELECT "+query+" AS v)", a, b).Scan(&value, &kind); err != nil {
			t.Fatalf("%s of %q and %q: %v", query, a, b, err)
		}
		return fmt.Sprintf("%q %s", value, kind)
	}
	values := []any{nil, "", "a", "aa", "abcba", "cb", "äöüä", "äü", "日本語 日本", "日本", "\x00a", "a\x00b", " a ", " ", "xxaxx", "ax/", int64(0), int64(-120), int64(math.MinInt64),
		0.0, 1.0, 1.5, -0.25, 1250.0, 1e20, 1.25e100, 1e-5, math.Inf(1), math.Inf(-1), "0", "0.", "e", []byte("abc"), []byte("a"), []byte{}}
	for _, query := range []string{"trim(?, ?)", "ltrim(?, ?)", "rtrim(?, ?)"} {
		for _, a := range values {
			for _, b := range values {
				if got, want := ask(ours, query, a, b), ask(theirs, query, a, b); got != want {
					t.Errorf("%s of %q and %q: got %s, want %s", query, a, b, got, want)
				}
			}
		}
	}
}
