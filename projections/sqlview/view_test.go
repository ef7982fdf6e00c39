package sqlview

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/projections"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledger is a log in memory that takes whatever a test says happened.
type ledger struct {
	*memlog.Log
	t   *testing.T
	now time.Time
	mu  sync.Mutex
	n   uint64
}

func newLedger(t *testing.T) *ledger {
	l := &ledger{t: t, now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)}
	var err error
	if l.Log, err = memlog.New(memlog.Options{Fleet: "default", Now: func() time.Time { return l.now }}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	l.append("authority", events.FleetFounded{Fleet: "default", LogID: "one"})
	return l
}

// append records an event; its id is returned.
func (l *ledger) append(stream string, e events.Event) string {
	l.t.Helper()
	payload, err := events.Encode(e)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.raw(stream, e.Kind(), payload)
}

func (l *ledger) raw(stream string, kind events.Kind, payload []byte) string {
	l.t.Helper()
	l.mu.Lock()
	l.n++
	n := l.n
	l.mu.Unlock()
	id := fmt.Sprintf("00000000-0000-7000-8000-%012d", n)
	var salt [events.SaltBytes]byte
	binary.BigEndian.PutUint64(salt[:], n)
	draft := events.NewDraft(events.Intent{ID: id, Stream: events.Stream(stream), Type: kind, Schema: events.Schema, Actor: "ana", Correlation: id}, salt, payload)
	if _, err := l.Append(context.Background(), events.Append{Drafts: []events.Draft{draft}}); err != nil {
		l.t.Fatal(err)
	}
	return id
}

// ran records a finished run; its id is returned.
func (l *ledger) ran(exit int, argv []string, more ...func(*events.MemoryRecord)) string {
	l.t.Helper()
	r := events.MemoryRecord{Argv: argv, Envelope: events.Envelope{Outcome: events.Exited, ExitCode: &exit, Machine: "m1", StartedAt: l.now, EndedAt: l.now}}
	for _, f := range more {
		f(&r)
	}
	return l.append("machine-"+r.Machine, events.MemoryRecorded{Record: r})
}

func on(machine string) func(*events.MemoryRecord) {
	return func(r *events.MemoryRecord) { r.Machine = machine }
}

func in(repo string) func(*events.MemoryRecord) {
	return func(r *events.MemoryRecord) { r.Repo = repo }
}

func at(t time.Time) func(*events.MemoryRecord) {
	return func(r *events.MemoryRecord) { r.StartedAt, r.EndedAt = t, t }
}

func (l *ledger) concluded(record, text string) {
	l.t.Helper()
	l.append("machine-m1", events.ConclusionRecorded{About: &events.About{RecordID: record}, Text: text})
}

// erase erases the payload at a position.
func (l *ledger) erase(p events.Position) {
	l.t.Helper()
	var e events.PayloadErased
	for r, err := range l.ReadAll(context.Background(), p-1) {
		if err != nil {
			l.t.Fatal(err)
		}
		e = events.PayloadErased{EventID: r.Header.ID, Position: p, Stream: r.Header.Stream, Type: r.Header.Type, Reason: "told"}
		break
	}
	payload, err := events.Encode(e)
	if err != nil {
		l.t.Fatal(err)
	}
	l.n++
	draft := events.NewDraft(events.Intent{ID: fmt.Sprintf("00000000-0000-7000-8000-%012d", l.n), Stream: "ledger", Type: e.Kind(), Schema: events.Schema, Actor: "ana", Correlation: "e"}, [events.SaltBytes]byte{}, payload)
	if _, err := l.Append(context.Background(), events.Append{Drafts: []events.Draft{draft}, Erase: []events.Position{p}}); err != nil {
		l.t.Fatal(err)
	}
}

func (l *ledger) open(dir string) *View {
	l.t.Helper()
	v, err := Open(l, dir, slog.New(slog.DiscardHandler))
	if err != nil {
		l.t.Fatal(err)
	}
	return v
}

// view is a view of the ledger, up to date.
func (l *ledger) view() *View {
	l.t.Helper()
	v := l.open("")
	l.t.Cleanup(func() {
		if err := v.Close(); err != nil {
			l.t.Error(err)
		}
	})
	l.upToDate(v)
	return v
}

func (l *ledger) upToDate(v *View) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.t.Context(), 20*time.Second)
	defer cancel()
	if err := v.Wait(ctx, l.Durable()); err != nil {
		l.t.Fatalf("%v: %+v", err, v.Status())
	}
}

func tried(t *testing.T, v *View, q Query) []Tried {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	found, err := v.Tried(t.Context(), q)
	if err != nil {
		t.Fatalf("tried %q: %v", q.Text, err)
	}
	return found.Answers
}

// everything is all that a view answers.
func everything(t *testing.T, v *View) any {
	t.Helper()
	page := projections.Page{At: 1 << 40, Limit: 100000}
	runs, _, err := v.Runs(t.Context(), page, RunFilter{})
	if err != nil {
		t.Fatal(err)
	}
	conclusions, _, err := v.Conclusions(t.Context(), page, "")
	if err != nil {
		t.Fatal(err)
	}
	return []any{runs, conclusions, tried(t, v, Query{Limit: 100000})}
}

// history is one of everything that a view folds.
func history(t *testing.T) *ledger {
	l := newLedger(t)
	for i := range 40 {
		l.now = l.now.Add(time.Minute)
		l.ran(i%3, []string{"go", "test", fmt.Sprintf("./pkg%d", i%7)}, on(fmt.Sprintf("m%d", i%2)), in("/src/a"))
	}
	l.append("task-t1", events.TaskSubmitted{TaskID: "t1", Command: events.TaskCommand{Argv: []string{"make"}, Mode: events.Split,
		Targets: []string{"m1", "m2"}, Parts: [][]string{{"make", "one"}, {"make", "two"}}, Tags: []string{"nightly"}}})
	l.append("task-t1", events.TaskOpened{})
	l.append("task-t1", events.ConclusionRecorded{About: &events.About{TaskID: "t1"}, Text: "said before any report"})
	code := 2
	report := events.TaskReported{Machine: "m2", Attempt: 1, Envelope: events.Envelope{Outcome: events.Exited, ExitCode: &code, Machine: "m2", EndedAt: l.now}}
	l.append("task-t1", report)
	l.append("task-t1", events.TaskSettled{Verdict: events.VerdictFailed})
	record := l.ran(0, []string{"sh", "-c", "pytest | tail"}, func(r *events.MemoryRecord) { r.Masked = true })
	l.concluded(record, "the flaky fixture hides it")
	l.append("collective", events.ConclusionRecorded{Text: "nobody has tried windows"})
	return l
}

func TestRunsOfTasksAndOfMemory(t *testing.T) {
	v := history(t).view()
	got := tried(t, v, Query{Text: "make two"})
	if len(got) != 1 || got[0].Machine != "m2" || got[0].Failed != 1 || got[0].Last.TaskID != "t1" || got[0].Last.Tags[0] != "nightly" ||
		len(got[0].Conclusions) != 1 || got[0].WhyMatched != MatchedCommand {
		t.Errorf("got %+v", got)
	}
	got = tried(t, v, Query{Text: "pytest | tail"})
	if len(got) != 1 || got[0].Masked != 1 || got[0].Succeeded != 0 || got[0].WhyMatched != MatchedCommand {
		t.Errorf("exit 0 behind a pipe: got %+v", got)
	}
	// By a word of the command and one of a conclusion, which nowhere stand together.
	got = tried(t, v, Query{Text: "fixture pytest"})
	if len(got) != 1 || got[0].WhyMatched != MatchedWords {
		t.Errorf("got %+v", got)
	}
	list, more, err := v.Runs(t.Context(), projections.Page{At: 20, Limit: 3}, RunFilter{Machine: "m0", Command: "go test ./pkg3"})
	if err != nil || more || len(list) != 1 || list[0].Position > 20 || list[0].Command != "go test ./pkg3" {
		t.Errorf("got %+v %v %v", list, more, err)
	}
}

// However the log is cut into batches, whether folded as it grew or all at once,
// the answers are the same.
func TestRebuiltGivesTheSameAnswers(t *testing.T) {
	l := newLedger(t)
	dir := t.TempDir()
	live := l.open(dir)
	other := history(t)
	for r, err := range other.ReadAll(t.Context(), 1) {
		if err != nil {
			t.Fatal(err)
		}
		l.now = r.Header.Time
		l.raw(string(r.Header.Stream), r.Header.Type, r.Payload)
		l.upToDate(live) // each event is a batch of its own
	}
	want := everything(t, live)
	if got := everything(t, l.view()); !reflect.DeepEqual(got, want) {
		t.Errorf("all at once:\n%+v\nwant\n%+v", got, want)
	}
	live.Rebuild("for the test")
	await(t, func() bool { return live.Status().Position == l.Durable() && storeIn(t, dir) == "view-2.db" })
	if got := everything(t, live); !reflect.DeepEqual(got, want) {
		t.Errorf("rebuilt:\n%+v\nwant\n%+v", got, want)
	}
	if err := live.Close(); err != nil {
		t.Fatal(err)
	}
	again := l.open(dir)
	defer again.Close()
	if again.Status().Position != l.Durable() {
		t.Errorf("opened again: %+v", again.Status())
	}
	if got := everything(t, again); !reflect.DeepEqual(got, want) {
		t.Errorf("opened again:\n%+v\nwant\n%+v", got, want)
	}
}

// A view that cannot be made again answers on, says why as long as that is so, and is
// made when it can be.
func TestRebuildThatFailsIsTold(t *testing.T) {
	l := newLedger(t)
	dir := t.TempDir()
	v := l.open(dir)
	defer v.Close()
	l.ran(0, []string{"echo", "before"})
	l.upToDate(v)
	var inTheWay []string
	for n := 2; n < 50; n++ { // more than are tried until the test is through
		name := filepath.Join(dir, storeName(n))
		inTheWay = append(inTheWay, name)
		if err := os.MkdirAll(filepath.Join(name, "kept"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	made := v.Status().Rebuilds
	v.Rebuild("for the test")
	await(t, func() bool { return v.Status().Fault != "" })
	l.ran(0, []string{"echo", "after"})
	l.upToDate(v)
	if s := v.Status(); s.Fault == "" || s.Rebuilds != made || s.Position != l.Durable() {
		t.Errorf("it followed on: %+v", s)
	}
	if n := len(tried(t, v, Query{Text: "echo", Limit: 10})); n != 2 {
		t.Errorf("%d answers of 2", n)
	}
	for _, name := range inTheWay {
		if err := os.RemoveAll(name); err != nil {
			t.Fatal(err)
		}
	}
	await(t, func() bool { s := v.Status(); return s.Rebuilds == made+1 && s.Fault == "" })
}

// await returns once a condition holds.
func await(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come to be")
		}
	}
}

// storeIn names the only store in a folder, "" while there are none or several.
func storeIn(t *testing.T, dir string) string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "view-*.db"))
	if err != nil || len(names) != 1 {
		return ""
	}
	return filepath.Base(names[0])
}

// While the view is made again and the log grows, no answer lacks what an earlier
// one had.
func TestRebuildUnderWritesServesNoHalfView(t *testing.T) {
	l := history(t)
	v := l.view()
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() {
		for i := range 300 {
			l.ran(0, []string{"echo", fmt.Sprint(i)})
		}
		close(stop)
	})
	before, rebuilds := 0, 0
	for {
		select {
		case <-stop:
			work.Wait()
			l.upToDate(v)
			if n := len(tried(t, v, Query{Text: "echo", Limit: 1000})); n != 300 || rebuilds == 0 {
				t.Errorf("%d commands of 300 after %d rebuilds", n, rebuilds)
			}
			return
		default:
		}
		if !v.Status().Rebuilding {
			v.Rebuild("for the test")
			rebuilds++
		}
		n := len(tried(t, v, Query{Limit: 1000}))
		if n < before {
			t.Fatalf("%d commands, %d before", n, before)
		}
		before = n
	}
}

func TestWhatCannotBeTrustedIsMadeAgain(t *testing.T) {
	l := history(t)
	for name, spoil := range map[string]func(path string) error{
		"no database": func(path string) error {
			return os.WriteFile(path, []byte(strings.Repeat("no database ", 1000)), 0o644)
		},
		"empty": func(path string) error { return os.Truncate(path, 0) },
		"cut":   func(path string) error { return os.Truncate(path, 8192) },
		"zeroed in the middle": func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			info, err := f.Stat()
			if err != nil {
				return err
			}
			_, err = f.WriteAt(make([]byte, info.Size()-4096), 4096)
			return err
		},
		"removed": os.Remove,
		"of an older version": func(path string) error {
			db, err := sql.Open("sqlite", dataSource(path, ""))
			if err != nil {
				return err
			}
			_, err = db.Exec(`UPDATE view SET version = version - 1`)
			return errors.Join(err, db.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			v := l.open(dir)
			l.upToDate(v)
			want := everything(t, v)
			if err := v.Close(); err != nil {
				t.Fatal(err)
			}
			if err := spoil(filepath.Join(dir, storeIn(t, dir))); err != nil {
				t.Fatal(err)
			}
			v = l.open(dir)
			defer v.Close()
			// It may be found out only when it is read.
			await(t, func() bool {
				l.upToDate(v)
				found, err := v.Tried(t.Context(), Query{Limit: 1})
				return err == nil && len(found.Answers) == 1 && (name == "removed" || storeIn(t, dir) != "view-1.db")
			})
			if got := everything(t, v); !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

// A view of another log, or of more than this log has, is not believed.
func TestViewOfAnotherLog(t *testing.T) {
	longer, other := history(t), newLedger(t)
	dir := t.TempDir()
	v := longer.open(dir)
	longer.upToDate(v)
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	other.ran(0, []string{"true"})
	v = other.open(dir)
	defer v.Close()
	other.upToDate(v)
	if got := tried(t, v, Query{}); len(got) != 1 || got[0].Command != "true" {
		t.Errorf("got %+v", got)
	}
}

func TestPoisonedEventIsParked(t *testing.T) {
	l := history(t)
	l.raw("machine-m1", "memory.recorded", []byte(`{"record":17}`))
	l.append("task-nobody", events.TaskReported{Machine: "m1", Attempt: 1})
	poisoned := l.Durable()
	l.ran(0, []string{"after", "it"})
	v := l.view()
	if got := tried(t, v, Query{Text: "after it"}); len(got) != 1 {
		t.Errorf("got %+v", got)
	}
	if s := v.Status(); s.Parked != 2 || s.Fault != "" {
		t.Errorf("got %+v", s)
	}
	var positions []events.Position
	err := v.look(t.Context(), func(r reader) error {
		rows, err := r.tx.Query(`SELECT position FROM parked WHERE error <> '' ORDER BY position`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var p events.Position
			if err := rows.Scan(&p); err != nil {
				return err
			}
			positions = append(positions, p)
		}
		return rows.Err()
	})
	if err != nil || !slices.Equal(positions, []events.Position{poisoned - 1, poisoned}) {
		t.Errorf("parked %v: %v", positions, err)
	}
	l.erase(poisoned)
	l.upToDate(v)
	if s := v.Status(); s.Parked != 1 {
		t.Errorf("after one was erased: %+v", s)
	}
}

func TestWaitSaysHowFarItIs(t *testing.T) {
	l := history(t)
	v := l.view()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	err := v.Wait(ctx, l.Durable()+1)
	behind, ok := err.(*BehindError)
	if !ok || behind.Wanted != l.Durable()+1 || behind.Status.Position != l.Durable() {
		t.Errorf("got %v", err)
	}
}

// What is erased is in no answer and in no file from then on: not in the
// tables, not in the index, not in what SQLite keeps beside them.
func TestErasedIsGone(t *testing.T) {
	l := history(t)
	dir := t.TempDir()
	v := l.open(dir)
	defer v.Close()
	secret := l.ran(1, []string{"curl", "-u", "hunter2zebra"})
	l.concluded(secret, "walrus77 said so")
	said := l.Durable()
	kept := l.ran(0, []string{"curl", "-I", "somewhere"})
	l.concluded(kept, "ostrich88 too")
	l.append("task-t9", events.TaskSubmitted{TaskID: "t9", Command: events.TaskCommand{Argv: []string{"deploy", "narwhal99"}, Targets: []string{"m1"}}})
	task := l.Durable()
	code := 0
	l.append("task-t9", events.TaskReported{Machine: "m1", Attempt: 1, Envelope: events.Envelope{Outcome: events.Exited, ExitCode: &code, Machine: "m1", EndedAt: l.now}})
	l.upToDate(v)
	for _, q := range []string{"hunter2zebra", "walrus77", "ostrich88", "narwhal99"} {
		if len(tried(t, v, Query{Text: q})) != 1 {
			t.Fatalf("%s is not there to be erased", q)
		}
	}
	for _, p := range []events.Position{said - 1, said, said + 2, task} {
		l.erase(p)
	}
	l.upToDate(v)
	for _, q := range []string{"hunter2zebra", "walrus77", "ostrich88", "narwhal99"} {
		if got := tried(t, v, Query{Text: q}); len(got) != 0 {
			t.Errorf("%s: got %+v", q, got)
		}
	}
	if got := tried(t, v, Query{Text: "curl"}); len(got) != 1 || len(got[0].Conclusions) != 0 {
		t.Errorf("got %+v", got)
	}
	runs, _, err := v.Runs(t.Context(), projections.Page{At: l.Durable(), Limit: 1}, RunFilter{})
	if err != nil || runs[0].TaskID != "t9" || runs[0].Command != "" {
		t.Errorf("got %+v %v", runs, err)
	}
	if got, want := everything(t, v), everything(t, l.view()); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []string{"hunter2zebra", "walrus77", "ostrich88", "narwhal99"} {
			if strings.Contains(string(b), q) {
				t.Errorf("%s is in %s", q, filepath.Base(name))
			}
		}
	}
}
