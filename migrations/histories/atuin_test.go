package histories

import (
	"database/sql"
	"path/filepath"
	"testing"
)

// atuinDB makes a database with the columns of some version of atuin.
func atuinDB(t testing.TB, columns string, rows ...[]any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.db")
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE TABLE history (" + columns + ")"); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		marks := ""
		for i := range row {
			if i > 0 {
				marks += ","
			}
			marks += "?"
		}
		if _, err := db.Exec("INSERT INTO history VALUES ("+marks+")", row...); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

const atuinTable = "id text primary key, timestamp integer not null, duration integer not null, exit integer not null, command text not null, cwd text not null, session text not null, hostname text not null, deleted_at integer, author text, intent text"

func TestAtuin(t *testing.T) {
	const at = int64(1770091506_000000000)
	const ms = int64(1_000_000)
	path := atuinDB(t, atuinTable,
		[]any{"1", at, 1500 * ms, 0, "go test ./...", "/work", "s1", "Laptop:ana", nil, nil, nil},
		[]any{"2", at, 5 * ms, 101, "cargo test | tail", "/work", "s1", "laptop.local:ana", nil, "agent", "try it"},
		[]any{"3", at, -1, -1, "sleep 99", "/work", "s1", "laptop:ana", nil, nil, nil},
		[]any{"4", at, 5 * ms, -1, "exit", "/work", "s1", "laptop:ana", nil, nil, nil},
		[]any{"5", at, 5 * ms, 0, "secret", "/work", "s1", "laptop:ana", at, nil, nil},
		[]any{"6", at, 5 * ms, 0, "  ", "/work", "s1", "laptop:ana", nil, nil, nil},
		[]any{"7", "when", 5 * ms, 0, "ls", "/work", "s1", "laptop:ana", nil, nil, nil},
		[]any{"8", at, 5 * ms, 0, []byte("ls \xff"), `D:\Docu2`, "s1", "", nil, nil, nil},
	)
	items := check(t, Atuin, path,
		"history.db:1 ran go test ./...: exit 0 in /work on laptop, 1500 ms",
		"history.db:2 ran cargo test | tail: exit 101 in /work on laptop, 5 ms, not ok",
		"history.db:3 not a run: "+ReasonRunning,
		"history.db:4 not a run: "+ReasonNoExitCode,
		"history.db:5 not a run: "+ReasonDeleted,
		"history.db:6 not a run: "+ReasonNoCommand,
		"history.db:7 not a run: "+ReasonNoTime,
		"history.db:8 ran ls \uFFFD: exit 0 in D:\\Docu2 on host, 5 ms",
	)
	if o := items[0].Run.Record.Stdout; !o.SHA256.IsZero() || !o.Truncated {
		t.Errorf("an output that was not recorded looks like an empty one: %+v", o)
	}
	again, err := read(t, Atuin, filepath.Dir(path)) // the folder
	if err != nil || len(again) != len(items) || again[0].Key() != items[0].Key() {
		t.Errorf("the folder: %v, %v", again, err)
	}
}

// Older databases lack columns; a database of another tool lacks the needed ones.
func TestAtuinVersions(t *testing.T) {
	check(t, Atuin, atuinDB(t, "id text primary key, timestamp integer, duration integer, exit integer, command text, cwd text, session text, hostname text",
		[]any{"1", int64(1770091506_000000000), int64(5_000_000), 1, "ls", "/", "s", "h:u"}),
		"history.db:1 ran ls: exit 1 in / on h, 5 ms, not ok")
	if _, err := read(t, Atuin, atuinDB(t, "id text, url text")); err == nil {
		t.Error("a history of something else was read")
	}
}

func FuzzAtuin(f *testing.F) {
	f.Add("1", int64(1770091506_000000000), int64(5_000_000), int64(0), "ls", "/work", "host:user")
	f.Add("", int64(1), int64(1<<62), int64(1<<40), "\xff", "", ":")
	f.Fuzz(func(t *testing.T, id string, timestamp, duration, exit int64, command, cwd, hostname string) {
		r := &reading{tool: Atuin, Options: Options{Host: "host", TailBytes: 4 << 10}, seen: map[[16]byte]struct{}{},
			yield: func(it Item, _ error) bool { valid(t, it); return true }}
		if err := r.atuinRow(atuinRow{id: id, timestamp: timestamp, duration: duration, exit: exit, command: command, cwd: cwd, session: "s", hostname: []byte(hostname)}); err != nil {
			t.Fatal(err)
		}
	})
}
