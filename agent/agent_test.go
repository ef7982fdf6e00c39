package agent_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"fleetledger/agent"
	"fleetledger/agent/runner"
	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
	"fleetledger/relay"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a relay with one machine, m1, and its agent. Requests pass front on
// their way, where tests break things.
type world struct {
	*testing.T
	ledger *commands.Ledger
	view   *sqlview.View
	server *httptest.Server
	token  string
	root   string // where m1 runs commands
	state  string // the agent's state directory
	front  atomic.Pointer[front]
	log    *safeBuffer
	drain  time.Duration
	ahead  atomic.Int64 // ns by which the relay's clock is ahead of the machine's
}

// front passes a request on to next, or does not.
type front func(w http.ResponseWriter, r *http.Request, next http.Handler)

type safeBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{T: t, root: t.TempDir(), state: t.TempDir(), log: &safeBuffer{}}
	state := projections.NewState()
	log, err := memlog.New(memlog.Options{Fleet: "default", Fold: state, Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) }})
	if err != nil {
		t.Fatal(err)
	}
	ledger := commands.New(log, state, commands.Random{
		ID: func() string { return uuid.Must(uuid.NewV7()).String() }, Bytes: func(b []byte) { _, _ = rand.Read(b) },
	})
	w.ledger = ledger
	if _, err := ledger.Found(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	level := events.Level(10)
	r, err := ledger.RegisterActor(t.Context(), commands.Caller{Actor: "root"},
		commands.RegisterActor{ID: "m1", Kind: events.Machine, AuthorityLevel: &level})
	if err != nil {
		t.Fatal(err)
	}
	w.token = r.Secret
	view, err := sqlview.Open(log, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	w.view = view
	rel := relay.New(map[string]*commands.Ledger{"default": ledger}, relay.Config{Views: map[string]*sqlview.View{"default": view}, Logger: slog.New(slog.NewTextHandler(w.log, nil))})
	w.server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		if f := w.front.Load(); f != nil {
			(*f)(rw, req, rel.Handler())
			return
		}
		rel.Handler().ServeHTTP(rw, req)
	}))
	ctx, stop := context.WithCancel(context.Background())
	var sweeping sync.WaitGroup
	sweeping.Go(func() { _ = rel.Run(ctx) }) // it ends when told to
	t.Cleanup(func() {
		rel.Drain()
		w.server.Close()
		stop()
		sweeping.Wait()
		if err := errors.Join(view.Close(), log.Close()); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(w.log.String())
		}
	})
	return w
}

func (w *world) lease(seconds int) {
	w.Helper()
	one, zero := 1, 0
	_, err := w.ledger.ChangeSettings(w.Context(), commands.Caller{Actor: "root"}, commands.ChangeSettings{
		Settings: events.SettingsPatch{HeartbeatSeconds: &seconds, HeartbeatsMissed: &one, GraceSeconds: &zero},
	})
	if err != nil {
		w.Fatal(err)
	}
}

// agent starts m1's agent and returns what stops it and waits for its end.
func (w *world) agent() (stop func()) {
	w.Helper()
	client, err := agent.NewClient(w.server.URL, w.token)
	if err != nil {
		w.Fatal(err)
	}
	return w.agentAs(client)
}

func (w *world) agentAs(client *agent.Client) (stop func()) {
	w.Helper()
	policy, err := runner.NewPolicy([]string{"sh"}, []string{w.root})
	if err != nil {
		w.Fatal(err)
	}
	a, err := agent.New(client, agent.Config{
		Machine: "m1", Policy: policy, StateDir: w.state, Version: "test", Drain: w.drain, Logger: slog.New(slog.NewTextHandler(w.log, nil)),
	})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.Errorf("the agent ended with %v", err)
		}
	})
	w.Cleanup(stop)
	return stop
}

// newAgent makes an agent that is not run.
func (w *world) newAgent() error {
	client, err := agent.NewClient(w.server.URL, w.token)
	if err != nil {
		w.Fatal(err)
	}
	_, err = agent.New(client, agent.Config{Machine: "m1", StateDir: w.state, Logger: slog.New(slog.DiscardHandler)})
	return err
}

func (w *world) submit(script string) (task string) {
	w.Helper()
	r, err := w.ledger.SubmitTask(w.Context(), commands.Caller{Actor: "root"}, commands.SubmitTask{TaskCommand: events.TaskCommand{
		Argv: []string{"sh", "-c", script}, Targets: []string{"m1"},
	}})
	if err != nil {
		w.Fatal(err)
	}
	rec, ok := r.Has(events.TaskSubmitted{}.Kind())
	if !ok {
		w.Fatal("not submitted")
	}
	return strings.TrimPrefix(string(rec.Header.Stream), "task-")
}

// await waits until the task fulfils is.
func (w *world) await(task string, is func(*projections.Task) bool) *projections.Task {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	for {
		head := w.ledger.Log().Durable()
		t, err := w.ledger.Task(ctx, task, 0)
		if err != nil {
			w.Fatal(err)
		}
		if is(t) {
			return t
		}
		if err := w.ledger.Log().Wait(ctx, head+1); err != nil {
			w.Fatalf("task %s stays %s %s: %v", task, t.Status, t.Verdict, err)
		}
	}
}

func settled(t *projections.Task) bool { return t.Status == projections.TaskSettled }

func reported(t *projections.Task) bool {
	return len(t.Legs[0].Attempts) > 0 && t.Legs[0].Attempts[0].Envelope != nil
}

func (w *world) verdict(task string, want events.TaskVerdict) *projections.Task {
	w.Helper()
	t := w.await(task, settled)
	if t.Verdict != want {
		w.Errorf("verdict %s (%s), want %s", t.Verdict, t.Reason, want)
	}
	return t
}

// lines is how many lines the file has in m1's root.
func (w *world) lines(name string) int {
	w.Helper()
	b, err := os.ReadFile(filepath.Join(w.root, name))
	if err != nil {
		w.Fatal(err)
	}
	return strings.Count(string(b), "\n")
}

func (w *world) outbox() []string {
	w.Helper()
	files, err := filepath.Glob(filepath.Join(w.state, "outbox", "*"))
	if err != nil {
		w.Fatal(err)
	}
	return files
}

func TestAgentRunsAndRemembers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.submit("echo out; echo err >&2; exit 3") // offered before the agent is there
	stop := w.agent()
	task := w.verdict(first, events.VerdictFailed)
	e := task.Legs[0].Attempts[0].Envelope
	if *e.ExitCode != 3 || e.Stdout.Tail != "out\n" || e.Stderr.Tail != "err\n" || e.Machine != "m1" || e.AgentVersion != "test" || e.Transport != "relay" {
		t.Errorf("envelope %+v", e)
	}
	memory := filepath.Join(w.state, "memory.jsonl")
	if !e.Memory.Written || e.Memory.File != memory {
		t.Errorf("memory status %+v", e.Memory)
	}
	w.verdict(w.submit("true"), events.VerdictSucceeded)
	stop()
	b, err := os.ReadFile(memory)
	if err != nil || strings.Count(string(b), "\n") != 2 {
		t.Errorf("memory.jsonl, %v:\n%s", err, b)
	}
	if left := w.outbox(); len(left) > 0 {
		t.Errorf("left in the outbox: %v", left)
	}
}

// What a command prints from its machine's own secrets leaves the process masked:
// it is in no file of the agent, in no line it logs and in no event.
func TestPrintedSecretsStayOnTheMachine(t *testing.T) {
	secret := "ghp_" + "q7ZtR2mXw9KbL4vNc8Yd" + "J3hFs6GpUa1TeQ5i"
	t.Setenv("MACHINE_TOKEN", secret)
	w := newWorld(t)
	var sent atomic.Pointer[[]byte]
	f := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if filepath.Base(r.URL.Path) == "report" {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			sent.Store(&body)
			r.Body = io.NopCloser(bytes.NewReader(body))
		}
		next.ServeHTTP(rw, r)
	})
	w.front.Store(&f)
	stop := w.agent()
	r, err := w.ledger.SubmitTask(w.Context(), commands.Caller{Actor: "root"}, commands.SubmitTask{TaskCommand: events.TaskCommand{
		Argv: []string{"sh", "-c", `echo "using $MACHINE_TOKEN"; echo "$MACHINE_TOKEN" >&2`}, EnvFrom: []string{"MACHINE_TOKEN"}, Targets: []string{"m1"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	rec, _ := r.Has(events.TaskSubmitted{}.Kind())
	task := w.verdict(strings.TrimPrefix(string(rec.Header.Stream), "task-"), events.VerdictSucceeded)
	stop()
	e := task.Legs[0].Attempts[0].Envelope
	printed := "using " + secret + "\n"
	if e.Stdout.Tail != "using [secret:github-pat]\n" || e.Stderr.Tail != "[secret:github-pat]\n" {
		t.Errorf("tails %q, %q", e.Stdout.Tail, e.Stderr.Tail)
	}
	if e.Stdout.Bytes != int64(len(printed)) || e.Stdout.SHA256 != sha256.Sum256([]byte(printed)) {
		t.Errorf("size and hash are not those of what was printed: %+v", e.Stdout)
	}
	if body := sent.Load(); body == nil || bytes.Contains(*body, []byte(secret)) {
		t.Errorf("the report that was sent: %s", *body)
	}
	if strings.Contains(w.log.String(), secret) {
		t.Error("it is in what was logged")
	}
	files := 0
	err = filepath.WalkDir(w.state, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files++
		b, err := os.ReadFile(path)
		if bytes.Contains(b, []byte(secret)) {
			t.Errorf("it is in %s", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files of the agent, %v", files, err)
	}
	for rec, err := range w.ledger.Log().ReadAll(w.Context(), 0) {
		if err != nil || bytes.Contains(rec.Payload, []byte(secret)) {
			t.Errorf("position %d, %v: %s", rec.Header.Position, err, rec.Payload)
		}
	}
}

// The relay claims and reports, but its answers are lost: nothing is run or
// recorded twice.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var lost sync.Map
	f := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		kind := filepath.Base(r.URL.Path)
		if _, seen := lost.LoadOrStore(kind, true); seen || kind != "claim" && kind != "report" {
			next.ServeHTTP(rw, r)
			return
		}
		next.ServeHTTP(httptest.NewRecorder(), r)
		panic(http.ErrAbortHandler)
	})
	w.front.Store(&f)
	w.agent()
	task := w.verdict(w.submit("echo ran >> runs"), events.VerdictSucceeded)
	if n := w.lines("runs"); n != 1 || len(task.Legs[0].Attempts) != 1 {
		t.Errorf("ran %d times in %d attempts", n, len(task.Legs[0].Attempts))
	}
	for _, kind := range []string{"claim", "report"} {
		if _, ok := lost.Load(kind); !ok {
			t.Errorf("no %s was lost", kind)
		}
	}
}

// A command may run for longer than its lease.
func TestHeartbeatsHoldTheLease(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lease(1)
	w.agent()
	w.verdict(w.submit("sleep 2.5"), events.VerdictSucceeded)
}

// While heartbeats do not arrive, the lease lapses. When one arrives again, the
// command is stopped, and its end is kept as late.
func TestLapsedAttemptIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lease(1)
	f := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if filepath.Base(r.URL.Path) == "heartbeat" {
			panic(http.ErrAbortHandler)
		}
		next.ServeHTTP(rw, r)
	})
	w.front.Store(&f)
	w.agent()
	id := w.submit("exec sleep 60")
	w.verdict(id, events.VerdictLost)
	w.front.Store(nil)
	a := w.await(id, reported).Legs[0].Attempts[0]
	if !a.Late || a.Envelope.Outcome != events.CancelledAttempt {
		t.Errorf("late %v, %+v", a.Late, a.Envelope)
	}
}

// Suspending a machine stops what it runs. Its report waits until it is let in
// again.
func TestSuspendedMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.lease(1)
	w.agent()
	id := w.submit("echo started >> runs; exec sleep 60")
	w.await(id, func(t *projections.Task) bool { return t.Legs[0].Status == projections.LegClaimed })
	suspend := func(suspended bool) {
		if _, err := w.ledger.ChangeActor(t.Context(), commands.Caller{Actor: "root"}, commands.ChangeActor{ID: "m1", Suspended: &suspended}); err != nil {
			t.Fatal(err)
		}
	}
	suspend(true)
	w.verdict(id, events.VerdictLost)
	// Let in again only once the agent was turned away with its report.
	for deadline := time.Now().Add(20 * time.Second); !strings.Contains(w.log.String(), "not reported yet"); {
		if time.Now().After(deadline) {
			t.Fatal("no report was turned away")
		}
		time.Sleep(10 * time.Millisecond)
	}
	suspend(false)
	a := w.await(id, reported).Legs[0].Attempts[0]
	if !a.Late || a.Envelope.Outcome != events.CancelledAttempt {
		t.Errorf("late %v, %+v", a.Late, a.Envelope)
	}
}

// A stopping agent stops its command and reports that; what it cannot report
// stays, and the next agent reports it once.
func TestStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	stop := w.agent()
	id := w.submit("echo started >> runs; exec sleep 60")
	claimed := func(t *projections.Task) bool { return t.Legs[0].Status == projections.LegClaimed }
	w.await(id, claimed)
	stop()
	if e := w.verdict(id, events.VerdictFailed).Legs[0].Attempts[0].Envelope; e.Outcome != events.CancelledAttempt {
		t.Errorf("reported as %s", e.Outcome)
	}

	var reports atomic.Int32
	f := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if filepath.Base(r.URL.Path) == "report" {
			reports.Add(1)
			rw.WriteHeader(http.StatusBadGateway)
			return
		}
		next.ServeHTTP(rw, r)
	})
	w.front.Store(&f)
	stop = w.agent()
	id = w.submit("exec sleep 60")
	w.await(id, claimed)
	stop()
	if reports.Load() == 0 || len(w.outbox()) != 1 {
		t.Fatalf("%d reports were tried, the outbox has %v", reports.Load(), w.outbox())
	}
	w.front.Store(nil)
	w.agent()
	w.verdict(id, events.VerdictFailed)
}
