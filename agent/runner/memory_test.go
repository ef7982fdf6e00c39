package runner

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// written reads a memory file, which has whole records only.
func written(t *testing.T, name string) (records []events.MemoryRecord) {
	t.Helper()
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(raw) {
		var rec events.MemoryRecord
		if err := json.Unmarshal(line, &rec, json.RejectUnknownMembers(true)); err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		records = append(records, rec)
	}
	return records
}

func record(task string) events.MemoryRecord {
	said := "it worked"
	code := 0
	return events.MemoryRecord{
		Envelope: events.Envelope{
			Outcome: events.Exited, ExitCode: &code, StartedAt: time.Unix(1, 0).UTC(), EndedAt: time.Unix(2, 0).UTC(),
			ElapsedMS: 1000, Cwd: "/srv", Stdout: newCapture().output(), Stderr: newCapture().output(), Machine: "m1",
		},
		Argv: []string{"go", "test"}, TaskID: task, Conclusion: &said,
	}
}

func TestMemoryKeepsRecords(t *testing.T) {
	dir := t.TempDir()
	m := NewMemory(dir)
	file := filepath.Join(dir, "memory.jsonl")
	want := events.MemoryStatus{Written: true, File: file}
	for i := range 3 {
		if got := m.Append(record(fmt.Sprint(i))); got != want {
			t.Fatalf("append %d: %+v", i, got)
		}
	}
	odd := record("odd")
	odd.Argv = []string{"printf", "\xff\n"}
	if got := NewMemory(dir).Append(odd); got != want {
		t.Fatalf("append of broken UTF-8: %+v", got)
	}
	records := written(t, file)
	if len(records) != 4 {
		t.Fatalf("%d records", len(records))
	}
	for i, rec := range records[:3] {
		if rec.TaskID != fmt.Sprint(i) || rec.Conclusion != nil || rec.Memory != want || rec.ExitCode == nil || rec.Cwd != "/srv" {
			t.Errorf("record %d: %+v", i, rec)
		}
	}
	if got := records[3].Argv[1]; got != "\uFFFD\n" {
		t.Errorf("broken UTF-8 is stored as %q", got)
	}
	info, err := os.Stat(file)
	if err != nil {
		t.Fatal(err)
	}
	if runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("mode %s", info.Mode())
	}
	raw, _ := os.ReadFile(file)
	if !bytes.Contains(raw, []byte(`"conclusion":null`)) {
		t.Errorf("no conclusion is not said: %s", raw)
	}
}

func TestMemoryRotates(t *testing.T) {
	dir := t.TempDir()
	m := NewMemory(dir)
	if m.limit != 16<<20 {
		t.Errorf("limit %d", m.limit)
	}
	var rotated []string
	for i := range 5 {
		got := m.Append(record(fmt.Sprint(i)))
		if !got.Written {
			t.Fatalf("append %d: %+v", i, got)
		}
		if got.Rotated {
			rotated = append(rotated, fmt.Sprint(i))
		}
		if i == 0 { // two records are over the limit
			info, err := os.Stat(got.File)
			if err != nil {
				t.Fatal(err)
			}
			m.limit = info.Size() + 100
		}
	}
	names := func(file string) (ids []string) {
		for _, rec := range written(t, filepath.Join(dir, file)) {
			ids = append(ids, rec.TaskID)
			if rec.Memory.Rotated != (rec.TaskID == "2" || rec.TaskID == "4") {
				t.Errorf("record %s says %+v", rec.TaskID, rec.Memory)
			}
		}
		return ids
	}
	if got := strings.Join(rotated, " "); got != "2 4" {
		t.Errorf("rotated by %s", got)
	}
	if older, newer := strings.Join(names("memory.1.jsonl"), " "), strings.Join(names("memory.jsonl"), " "); older != "2 3" || newer != "4" {
		t.Errorf("older %q, newer %q", older, newer)
	}
}

func TestTornRecordStaysAlone(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "memory.jsonl")
	if err := os.WriteFile(file, []byte(`{"outcome":"exi`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := NewMemory(dir).Append(record("next")); !got.Written {
		t.Fatalf("%+v", got)
	}
	raw, _ := os.ReadFile(file)
	torn, rest, _ := bytes.Cut(raw, []byte("\n"))
	if string(torn) != `{"outcome":"exi` {
		t.Errorf("torn line %q", torn)
	}
	if err := os.WriteFile(file, rest, 0o600); err != nil {
		t.Fatal(err)
	}
	if records := written(t, file); len(records) != 1 || records[0].TaskID != "next" {
		t.Errorf("%d records", len(records))
	}
}

// Two memories on one directory stand for two processes: the lock is not the
// mutex.
func TestMemoryIsShared(t *testing.T) {
	dir := t.TempDir()
	memories := []*Memory{NewMemory(dir), NewMemory(dir)}
	for _, m := range memories {
		m.limit = 20_000 // 40 records are over it once
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	rotations := 0
	for w := range 4 {
		wg.Go(func() {
			for i := range 10 {
				got := memories[w%2].Append(record(fmt.Sprintf("%d-%d", w, i)))
				mu.Lock()
				if got.Rotated {
					rotations++
				}
				mu.Unlock()
				if !got.Written {
					t.Errorf("%d-%d: %+v", w, i, got)
				}
			}
		})
	}
	wg.Wait()
	seen := map[string]bool{}
	for _, name := range []string{"memory.jsonl", "memory.1.jsonl"} {
		for _, rec := range written(t, filepath.Join(dir, name)) {
			if seen[rec.TaskID] {
				t.Errorf("%s is there twice", rec.TaskID)
			}
			seen[rec.TaskID] = true
		}
	}
	if rotations != 1 || len(seen) != 40 {
		t.Errorf("%d records after %d rotations, want 40 after 1", len(seen), rotations)
	}
}

func TestMemoryFailuresHaveReasons(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	occupied := filepath.Join(dir, "occupied")
	if err := os.MkdirAll(filepath.Join(occupied, "memory.jsonl"), 0o700); err != nil {
		t.Fatal(err)
	}
	check := func(name string, m *Memory, rec events.MemoryRecord, want string) {
		t.Helper()
		if got := m.Append(rec); got != (events.MemoryStatus{ReasonCode: want}) {
			t.Errorf("%s: %+v, want %s", name, got, want)
		}
	}
	check("no directory", NewMemory(filepath.Join(dir, "nowhere")), record("a"), NoDirectory)
	check("directory is a file", NewMemory(file), record("a"), NoDirectory)
	check("file is a directory", NewMemory(occupied), record("a"), IOError)
	late := record("a")
	late.StartedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	check("a time without a JSON form", NewMemory(dir), late, RecordInvalid)

	busy := NewMemory(dir)
	busy.wait = 20 * time.Millisecond
	lock, err := Lock(filepath.Join(dir, "memory.lock"), busy.wait)
	if err != nil {
		t.Fatal(err)
	}
	check("held by another process", busy, record("a"), MemoryBusy)
	lock.Close()
	if got := busy.Append(record("a")); !got.Written {
		t.Errorf("after the lock is given back: %+v", got)
	}

	if runtime.GOOS == "linux" {
		full := t.TempDir()
		if err := os.Symlink("/dev/full", filepath.Join(full, "memory.jsonl")); err != nil {
			t.Fatal(err)
		}
		check("full disk", NewMemory(full), record("a"), DiskFull)
	}
	if runtime.GOOS != "windows" && os.Getuid() != 0 {
		closed := filepath.Join(dir, "closed")
		if err := os.Mkdir(closed, 0o500); err != nil {
			t.Fatal(err)
		}
		check("read-only directory", NewMemory(closed), record("a"), ReadOnly)
	}
	for _, row := range []struct {
		err  error
		want string
	}{
		{&os.PathError{Op: "write", Err: syscall.ENOSPC}, DiskFull},
		{&os.PathError{Op: "open", Err: syscall.EROFS}, ReadOnly},
		{&os.PathError{Op: "open", Err: os.ErrPermission}, ReadOnly},
		{&os.PathError{Op: "sync", Err: syscall.EIO}, IOError},
	} {
		if got := reasonCode(row.err); got != row.want && runtime.GOOS != "windows" {
			t.Errorf("%v: %s, want %s", row.err, got, row.want)
		}
	}
}
