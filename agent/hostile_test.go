package agent_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fleetledger/agent/runner"
	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

func (w *world) envelope(task string) events.Envelope {
	w.Helper()
	t := w.await(task, reported)
	return *t.Legs[0].Attempts[0].Envelope
}

func (w *world) remembered() string {
	w.Helper()
	b, err := os.ReadFile(filepath.Join(w.state, "memory.jsonl"))
	if err != nil {
		w.Fatal(err)
	}
	return string(b)
}

// What commands print is anything. It is counted and hashed as it is, kept as text,
// and reported whatever it holds.
func TestAnyOutputIsReported(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands are a shell's")
	}
	t.Parallel()
	w := newWorld(t)
	w.agent()
	for _, c := range []struct{ script, printed, tail string }{
		{`printf 'a\377\000\376b'`, "a\xff\x00\xfeb", "a\uFFFD\x00\uFFFDb"},
		{`printf '\033]0;title\007\033[2J\302\233'`, "\x1b]0;title\a\x1b[2J\u009b", "\x1b]0;title\a\x1b[2J\u009b"},
		{`printf '{"outcome":"exited","exit_code":0}\n\n\nid: 7\nevent: offer\n'`, "{\"outcome\":\"exited\",\"exit_code\":0}\n\n\nid: 7\nevent: offer\n", "{\"outcome\":\"exited\",\"exit_code\":0}\n\n\nid: 7\nevent: offer\n"},
		{`cat; printf '%s' "$?"`, "0", "0"}, // whoever reads the input gets its end
	} {
		task := w.submit(c.script)
		w.verdict(task, events.VerdictSucceeded)
		if out := w.envelope(task).Stdout; out.Tail != c.tail || out.Bytes != int64(len(c.printed)) || out.SHA256 != sha256.Sum256([]byte(c.printed)) {
			t.Errorf("%s: %+v", c.script, out)
		}
	}

	task := w.submit("head -c 5000000 /dev/urandom | tee printed")
	w.verdict(task, events.VerdictSucceeded)
	printed, err := os.ReadFile(filepath.Join(w.root, "printed"))
	if err != nil {
		t.Fatal(err)
	}
	out := w.envelope(task).Stdout
	if out.Bytes != 5000000 || out.SHA256 != sha256.Sum256(printed) || !out.Truncated || len(out.Tail) == 0 || len(out.Tail) > runner.TailBytes {
		t.Errorf("%d bytes, %s, a tail of %d", out.Bytes, out.SHA256, len(out.Tail))
	}
}

// A fleet that keeps hashes only is not even sent the tails: they are here.
func TestTailsStayOnTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	only := projections.HashOnly
	if _, err := w.ledger.ChangeSettings(t.Context(), commands.Caller{Actor: "root"}, commands.ChangeSettings{Settings: events.SettingsPatch{Output: &only}}); err != nil {
		t.Fatal(err)
	}
	var sent atomic.Bool
	watch := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		body, err := io.ReadAll(r.Body)
		if err == nil && bytes.Contains(body, []byte("printed here")) {
			sent.Store(filepath.Base(r.URL.Path) == "report")
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(rw, r)
	})
	w.front.Store(&watch)
	w.agent()
	task := w.submit("x=here; echo printed $x")
	w.verdict(task, events.VerdictSucceeded)
	if out := w.envelope(task).Stdout; sent.Load() || out.Tail != "" || out.Bytes != 13 {
		t.Errorf("sent: %t; %+v", sent.Load(), out)
	}
	if !strings.Contains(w.remembered(), `"tail":"printed here\n"`) {
		t.Errorf("the machine's memory has %s", w.remembered())
	}
}

// Whatever keeps the machine from remembering a run, the run is as good as it was.
func TestMemoryFailsAlone(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it takes /dev/full")
	}
	t.Parallel()
	for reason, spoil := range map[string]func(w *world) error{
		runner.DiskFull: func(w *world) error { return os.Symlink("/dev/full", filepath.Join(w.state, "memory.jsonl")) },
		runner.IOError:  func(w *world) error { return os.MkdirAll(filepath.Join(w.state, "memory.jsonl", "x"), 0o700) },
		runner.NoDirectory: func(w *world) error {
			return os.Symlink(filepath.Join(w.root, "nowhere", "memory.jsonl"), filepath.Join(w.state, "memory.jsonl"))
		},
	} {
		w := newWorld(t)
		if err := spoil(w); err != nil {
			t.Fatal(err)
		}
		stop := w.agent()
		for script, verdict := range map[string]events.TaskVerdict{"echo fine": events.VerdictSucceeded, "exit 4": events.VerdictFailed} {
			task := w.submit(script)
			w.verdict(task, verdict)
			if got := w.envelope(task).Memory; got != (events.MemoryStatus{ReasonCode: reason}) {
				t.Errorf("%s, %s: %+v", reason, script, got)
			}
		}
		stop()
		if !strings.Contains(w.log.String(), "could not be remembered") {
			t.Errorf("%s: nobody was told", reason)
		}
	}
}

// The agent is cut off in the middle of a task, for longer than its lease. The task
// settles as lost; what the agent saw is told when it is back, as late, and nothing
// is run again.
func TestCutOffInTheMiddle(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lease(1)
	w.agent()
	task := w.submit("echo ran >> ran; until test -e go; do sleep 0.02; done; echo end")
	w.await(task, func(t *projections.Task) bool { return len(t.Legs[0].Attempts) == 1 })
	cut := front(func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) })
	w.front.Store(&cut)
	w.verdict(task, events.VerdictLost)
	if err := os.WriteFile(filepath.Join(w.root, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); len(w.outbox()) == 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command did not end while the relay was away")
		}
	}
	w.front.Store(nil)
	late := w.verdict(w.awaitID(task, reported), events.VerdictLost)
	a := late.Legs[0].Attempts[0]
	if !a.Late || a.Envelope.ExitCode == nil || *a.Envelope.ExitCode != 0 || a.Envelope.Stdout.Tail != "end\n" {
		t.Errorf("%+v", a)
	}
	if n := w.lines("ran"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	var kinds []string
	for r, err := range w.ledger.Log().ReadStream(t.Context(), events.TaskStream(task), 0) {
		if err != nil {
			t.Fatal(err)
		}
		kinds = append(kinds, string(r.Header.Type))
	}
	if got := strings.Join(kinds, " "); got != "task.submitted task.opened task.claimed lease.lapsed task.settled task.reported" {
		t.Errorf("the history is %s", got)
	}
	w.verdict(w.submit("echo again"), events.VerdictSucceeded) // it goes on
}

func (w *world) awaitID(task string, is func(*projections.Task) bool) string {
	w.await(task, is)
	return task
}

// A state directory is one agent's.
func TestOneAgentAStateDirectory(t *testing.T) {
	w := newWorld(t)
	stop := w.agent()
	if err := w.newAgent(); err == nil || !strings.Contains(err.Error(), w.state) {
		t.Errorf("a second agent: %v", err)
	}
	stop()
	if err := w.newAgent(); err != nil {
		t.Errorf("after the first has ended: %v", err)
	}
}

// A stopping agent lets commands come to their end for as long as it was told to.
func TestDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.drain = 30 * time.Second
	stop := w.agent()
	task := w.submit("echo ran >> ran; until test -e go; do sleep 0.02; done; echo end")
	other := w.submit("echo other >> ran")
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(filepath.Join(w.root, "ran")); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("it does not run")
		}
	}
	var stopping sync.WaitGroup
	stopping.Go(stop)
	time.AfterFunc(200*time.Millisecond, func() { _ = os.WriteFile(filepath.Join(w.root, "go"), nil, 0o600) })
	stopping.Wait()
	w.verdict(task, events.VerdictSucceeded)
	if t2, err := w.ledger.Task(t.Context(), other, 0); err != nil || len(t2.Legs[0].Attempts) != 0 || w.lines("ran") != 1 {
		t.Errorf("the next one was taken: %+v %v", t2, err)
	}
}
