package agent_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
)

func offlineRecord(argv ...string) events.MemoryRecord {
	code := 0
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	return events.MemoryRecord{Argv: argv, Gate: events.GateOffline, Envelope: events.Envelope{
		Outcome: events.Exited, ExitCode: &code, StartedAt: now, EndedAt: now, Machine: "m1", Transport: "run",
	}}
}

func (w *world) runs() []projections.Run {
	w.Helper()
	at := w.ledger.Log().Durable()
	if err := w.view.Wait(w.Context(), at); err != nil {
		w.Fatal(err)
	}
	runs, _, err := w.view.Runs(w.Context(), projections.Page{At: at, Limit: 100}, sqlview.RunFilter{})
	if err != nil {
		w.Fatal(err)
	}
	return runs
}

// What could not be sent is sent by the machine's agent, each record once, however
// often an answer is lost and whoever sends.
func TestRecordsAreSentOnce(t *testing.T) {
	w := newWorld(t)
	records := agent.NewRecords(w.state, slog.New(slog.NewTextHandler(w.log, nil)))
	put := func(actor string, rec events.MemoryRecord) {
		t.Helper()
		if _, err := records.Put(actor, rec, true); err != nil {
			t.Fatal(err)
		}
	}
	const secret = "ghp_R4nd0mT0k3nV4lu3F0rT3st1ngM4sk1ng0nL"
	put("m1", offlineRecord("echo", secret))
	put("m1", offlineRecord("printf", "bad \xff"))
	orphan := offlineRecord("ls")
	orphan.Machine = ""
	put("", orphan)
	put("ana", offlineRecord("whoami")) // another's: it stays
	files, err := filepath.Glob(filepath.Join(w.state, "runs", "*"))
	if err != nil || len(files) != 4 {
		t.Fatalf("%v %v", files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if info, e := os.Stat(f); err != nil || e != nil || info.Mode().Perm() != 0o600 || strings.Contains(string(b), secret) {
			t.Errorf("%s: %v %v %v", f, info.Mode(), err, e)
		}
	}
	client, err := agent.NewClient(w.server.URL, w.token)
	if err != nil {
		t.Fatal(err)
	}
	var lost atomic.Int64
	lose := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.URL.Path == "/v1/memory" && lost.Add(1) <= 2 {
			next.ServeHTTP(discard{http.Header{}}, r)
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(rw, r)
	})
	w.front.Store(&lose)
	for range 2 {
		if left, err := records.Send(t.Context(), client, "m1", 10); err == nil || left != 4 {
			t.Fatalf("%d left, %v", left, err)
		}
	}
	stop := w.agent() // sends what is left
	defer stop()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if files, _ = filepath.Glob(filepath.Join(w.state, "runs", "*")); len(files) == 1 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("left: %v", files)
		}
	}
	runs := w.runs()
	var commands []string
	for _, r := range runs {
		commands = append(commands, r.Command)
		if r.Gate != events.GateOffline || r.Machine != "m1" {
			t.Errorf("%+v", r)
		}
	}
	if got := strings.Join(commands, ","); got != "ls,printf 'bad \uFFFD',echo '[secret:github-pat]'" {
		t.Errorf("recorded %s", got)
	}
}

// A record that the relay will never take is in nobody's way; one that cannot be
// read is left alone.
func TestRecordsThatCannotBeSent(t *testing.T) {
	w := newWorld(t)
	records := agent.NewRecords(w.state, slog.New(slog.NewTextHandler(w.log, nil)))
	bad := offlineRecord("ls")
	bad.Machine = "m2"
	for _, rec := range []events.MemoryRecord{bad, offlineRecord("pwd")} {
		if _, err := records.Put("m1", rec, false); err != nil {
			t.Fatal(err)
		}
	}
	broken := filepath.Join(w.state, "runs", "0.json")
	if err := os.WriteFile(broken, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	client, err := agent.NewClient(w.server.URL, w.token)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := records.Send(t.Context(), client, "m1", 10); err != nil || left != 1 {
		t.Errorf("%d left, %v", left, err)
	}
	if runs := w.runs(); len(runs) != 1 || runs[0].Command != "pwd" {
		t.Errorf("recorded %+v", runs)
	}
	if _, err := os.Stat(broken); err != nil {
		t.Error(err)
	}
	if !strings.Contains(w.log.String(), "NOT_YOUR_MEMORY") {
		t.Error("it was not told")
	}
	none := agent.NewRecords(filepath.Join(w.state, "none"), slog.New(slog.DiscardHandler))
	if left, err := none.Send(t.Context(), client, "m1", 10); err != nil || left != 0 {
		t.Errorf("%d left, %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(w.state, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("looking made a directory")
	}
}

// What waits to be sent has a bound. It is reached with an error, and what was kept
// before is sent, for that was promised.
func TestRecordsAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("makes ten thousand files")
	}
	w := newWorld(t)
	records := agent.NewRecords(w.state, slog.New(slog.NewTextHandler(w.log, nil)))
	client, err := agent.NewClient(w.server.URL, w.token)
	if err != nil {
		t.Fatal(err)
	}
	first, err := records.Put("m1", offlineRecord("first"), true)
	if err != nil {
		t.Fatal(err)
	}
	for i := range agent.MaxRecords - 2 {
		key := fmt.Sprintf("f-%05d", i) // another's
		if err := os.WriteFile(filepath.Join(w.state, "runs", key+".json"), []byte(`{"actor":"x","key":"`+key+`"}`), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := records.Full(); err != nil {
		t.Fatalf("with room for one: %v", err)
	}
	if _, err := records.Put("m1", offlineRecord("last"), true); err != nil {
		t.Fatal(err)
	}
	_, err = records.Put("m1", offlineRecord("too many"), true)
	if full, ok := errors.AsType[*agent.FullError](err); !ok || full.Waiting != agent.MaxRecords {
		t.Fatalf("one more than the bound: %v", err)
	}
	if left, err := records.Send(t.Context(), client, "m1", 2, first); err != nil || left != agent.MaxRecords-2 {
		t.Fatalf("%d left, %v", left, err)
	}
	if _, err := records.Put("m1", offlineRecord("there is room again"), true); err != nil {
		t.Fatal(err)
	}
	if runs := w.runs(); len(runs) != 2 {
		t.Errorf("recorded are %v", runs)
	}
}

// What a write left that was cut off is removed where it lies; what another program
// may be writing just now stays, and so does what nobody here has written.
func TestCutOffWritesAreRemoved(t *testing.T) {
	w := newWorld(t)
	old, now := time.Now().Add(-2*time.Hour), time.Now()
	files := map[string]struct {
		written time.Time
		stays   bool
	}{
		"device.json.123.new":          {old, false},
		"device.json.124.new":          {now, true},
		"runs/0-1.json.123.new":        {old, false},
		"runs/0-2.json.124.new":        {now, true},
		"runs/notes.new":               {old, true},
		"started/abc-def.json.123.new": {old, false},
	}
	for name, f := range files {
		path := filepath.Join(w.state, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(`{"actor":"m1`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, f.written, f.written); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.newAgent(); err != nil {
		t.Fatal(err)
	}
	if err := agent.NewRecords(w.state, slog.New(slog.DiscardHandler)).Full(); err != nil {
		t.Fatal(err)
	}
	for name, f := range files {
		if _, err := os.Stat(filepath.Join(w.state, filepath.FromSlash(name))); f.stays != (err == nil) {
			t.Errorf("%s: %v, stays %t", name, err, f.stays)
		}
	}
}
