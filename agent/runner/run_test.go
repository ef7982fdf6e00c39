package runner

import (
	"bytes"
	"context"
	"crypto/sha256"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

func TestExitCodePassesThrough(t *testing.T) {
	t.Parallel()
	for _, code := range []string{"0", "1", "3", "255"} {
		p, c := self(t, "exit", code)
		e := Run(background(), p, c)
		if e.Outcome != events.Exited || e.ExitCode == nil {
			t.Fatalf("exit %s: %+v", code, e)
		}
		want := map[string]int{"0": 0, "1": 1, "3": 3, "255": 255}[code]
		wantExit(t, e, want)
		if e.StartedAt.Location() != time.UTC || e.EndedAt.Before(e.StartedAt) || e.EndedAt.Sub(e.StartedAt).Milliseconds() != e.ElapsedMS {
			t.Errorf("times: %s to %s, %d ms", e.StartedAt, e.EndedAt, e.ElapsedMS)
		}
		if e.StartedAt.Nanosecond()%1000 != 0 || e.EndedAt.Nanosecond()%1000 != 0 {
			t.Errorf("times are finer than microseconds: %s, %s", e.StartedAt, e.EndedAt)
		}
	}
}

// Not parallel: it measures what the whole process allocates.
func TestMuchOutputNeedsLittleMemory(t *testing.T) {
	size := int64(64 << 20)
	if testing.Short() {
		size = 8 << 20
	}
	p, c := self(t, "print", strconv.FormatInt(size, 10), "5000")
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	e := Run(background(), p, c)
	runtime.ReadMemStats(&after)
	wantExit(t, e, 0)
	if got := after.TotalAlloc - before.TotalAlloc; got > 2<<20 {
		t.Errorf("allocated %d bytes for %d bytes of output", got, size)
	}
	for _, out := range []struct {
		name string
		size int64
		got  events.Output
	}{{"stdout", size, e.Stdout}, {"stderr", 5000, e.Stderr}} {
		sum := sha256.New()
		_, _ = io.CopyN(sum, &pattern{}, out.size)
		if out.got.Bytes != out.size || !bytes.Equal(out.got.SHA256[:], sum.Sum(nil)) || !out.got.Truncated {
			t.Errorf("%s: %d bytes, %s, truncated %t", out.name, out.got.Bytes, out.got.SHA256, out.got.Truncated)
		}
		end := make([]byte, TailBytes)
		_, _ = io.ReadFull(&pattern{at: int(out.size) - TailBytes}, end)
		if out.got.Tail != string(end) {
			t.Errorf("%s: the tail is not the end of the output", out.name)
		}
	}
}

func TestBrokenBytesAreCountedAsTheyWere(t *testing.T) {
	t.Parallel()
	p, c := self(t, "raw", "61ff00fe62")
	e := Run(background(), p, c)
	wantExit(t, e, 0)
	if want := sha256.Sum256([]byte("a\xff\x00\xfeb")); e.Stdout.Bytes != 5 || e.Stdout.SHA256 != want || e.Stdout.Tail != "a\uFFFD\x00\uFFFDb" || e.Stdout.Truncated {
		t.Errorf("stdout %+v", e.Stdout)
	}
	if e.Stderr.Bytes != 0 || e.Stderr.SHA256 != sha256.Sum256(nil) {
		t.Errorf("stderr %+v", e.Stderr)
	}
}

func TestStandardInputIsEmpty(t *testing.T) {
	t.Parallel()
	p, c := self(t, "stdin")
	if e := Run(background(), p, c); e.Stdout.Tail != "0 <nil>" {
		t.Errorf("read %q", e.Stdout.Tail)
	}
}

func TestTimeLimitEndsAStubbornCommand(t *testing.T) {
	t.Parallel()
	l := newLifelines(t)
	p, c := self(t, "stubborn", "it")
	c.Env[lifelineEnv] = l.ln.Addr().String()
	e := run(background(), p, c, quick(1500*time.Millisecond))
	wantOutcome(t, e, events.TimedOut)
	if e.ElapsedMS < 1500 {
		t.Errorf("ended after %d ms", e.ElapsedMS)
	}
	if runtime.GOOS != "windows" && e.ElapsedMS < 1800 {
		t.Errorf("ended after %d ms: a stubborn command has its time of grace", e.ElapsedMS)
	}
	l.gone(l.await())
}

func TestSecondsAreALimit(t *testing.T) {
	t.Parallel()
	p, c := self(t, "hang")
	c.TimeoutSeconds = 1
	e := Run(background(), p, c)
	wantOutcome(t, e, events.TimedOut)
	if e.ElapsedMS < 1000 || e.ElapsedMS > 5000 {
		t.Errorf("ended after %d ms: it does not resist", e.ElapsedMS)
	}
	if p := usualPace(math.MaxInt); p.timeout != 0 {
		t.Errorf("a limit of centuries is %s", p.timeout)
	}
}

func TestCommandMayEndWhenAsked(t *testing.T) {
	t.Parallel()
	l := newLifelines(t)
	p, c := self(t, "polite", "it")
	c.Env[lifelineEnv] = l.ln.Addr().String()
	ctx, cancel := context.WithCancel(background())
	done := make(chan events.Envelope)
	go func() { done <- run(ctx, p, c, pace{grace: time.Minute, drain: time.Minute, reap: time.Minute}) }()
	line := l.await()
	cancel()
	e := <-done
	wantOutcome(t, e, events.CancelledAttempt)
	if runtime.GOOS != "windows" && e.Stdout.Tail != "goodbye" {
		t.Errorf("it was not given the time to end: %q", e.Stdout.Tail)
	}
	l.gone(line)
}

func TestCancelledBeforeTheStartRunsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(background())
	cancel()
	p, c := self(t, "raw", "61")
	e := Run(ctx, p, c)
	wantOutcome(t, e, events.CancelledAttempt)
	if e.Stdout.Bytes != 0 {
		t.Error("it ran")
	}
}

// left runs a command that leaves a stubborn process in its group, which is
// alive when the command ends.
func left(t *testing.T, mode string, pc pace) events.Envelope {
	t.Helper()
	l := newLifelines(t)
	p, c := self(t, mode, "stubborn", "it")
	c.Env[lifelineEnv] = l.ln.Addr().String()
	done := make(chan events.Envelope)
	go func() { done <- run(background(), p, c, pc) }()
	first, second := l.await(), l.await()
	parent, child := first, second
	if parent.name != "waits" {
		parent, child = second, first
	}
	if _, err := parent.conn.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	e := <-done
	wantExit(t, e, 7)
	if e.Stdout.Tail != "left" {
		t.Errorf("stdout %q", e.Stdout.Tail)
	}
	l.gone(child)
	return e
}

func TestHeldOutputDoesNotHoldTheRun(t *testing.T) {
	t.Parallel()
	pc := quick(0)
	pc.drain = 2 * time.Second
	began := time.Now()
	e := left(t, "leave", pc)
	took := time.Since(began)
	if took < pc.drain {
		t.Errorf("the output had %s, not %s", took, pc.drain)
	}
	if waited := took - time.Duration(e.ElapsedMS)*time.Millisecond; waited < pc.drain-100*time.Millisecond {
		t.Errorf("the wait for the output counts as the command's time: %d ms of %s", e.ElapsedMS, took)
	}
}

func TestWhatStaysInTheGroupEndsWithTheCommand(t *testing.T) {
	t.Parallel()
	pc := quick(0)
	pc.drain = time.Minute
	left(t, "leavequiet", pc)
}

func TestCancellationEndsGrandchildren(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" && runtime.GOOS != "darwin" {
		t.Skip("no process table is read here")
	}
	l := newLifelines(t)
	p, c := self(t, "stray")
	c.Env[lifelineEnv] = l.ln.Addr().String()
	ctx, cancel := context.WithCancel(background())
	done := make(chan events.Envelope)
	go func() { done <- run(ctx, p, c, quick(0)) }()
	first, second := l.await(), l.await()
	if first.name == second.name {
		t.Fatal("the stray did not come up")
	}
	cancel()
	wantOutcome(t, <-done, events.CancelledAttempt)
	l.gone(first, second)
}

func TestSignalIsAnExitCode(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("Windows has no signals")
	}
	p, c := self(t, "killself")
	wantExit(t, Run(background(), p, c), 128+9)
}

func TestMaskedIsReported(t *testing.T) {
	t.Parallel()
	e := Run(background(), Policy{}, Command{Argv: []string{"sh", "-c", "go test | tail"}})
	wantOutcome(t, e, events.RefusedByAgent)
	if !e.Masked {
		t.Error("a pipeline is not reported as masked")
	}
	p, c := self(t, "exit", "0")
	if Run(background(), p, c).Masked {
		t.Error("a command without a shell is reported as masked")
	}
}

func TestCannotStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("not a program"), 0o644); err != nil {
		t.Fatal(err)
	}
	broken := filepath.Join(dir, "broken.exe")
	if err := os.WriteFile(broken, []byte("\x7fnot a program"), 0o755); err != nil {
		t.Fatal(err)
	}
	exe := executable(t)
	p, err := NewPolicy([]string{"no-such-program", text, broken, exe}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]Command{
		"no command":           {},
		"missing program":      {Argv: []string{"no-such-program"}},
		"not executable":       {Argv: []string{text}},
		"not a program":        {Argv: []string{broken}},
		"missing directory":    {Argv: []string{exe}, Cwd: "nowhere"},
		"directory is a file":  {Argv: []string{exe}, Cwd: "text"},
		"missing variable":     {Argv: []string{exe}, EnvFrom: []string{"RUNNER_TEST_NOT_SET"}},
		"name of no variable":  {Argv: []string{exe}, Env: map[string]string{"A=B": "1"}},
		"zero byte in argv":    {Argv: []string{exe, "a\x00b"}},
		"zero byte in a value": {Argv: []string{exe}, Env: map[string]string{"A": "\x00"}},
	} {
		if name == "not executable" && runtime.GOOS == "windows" {
			continue // every file may be one there
		}
		e := Run(background(), p, c)
		if e.Outcome != events.NotStarted || e.Reason == "" || e.ExitCode != nil || e.StartedAt.IsZero() || e.ElapsedMS != 0 {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestNothingIsLeftOpen(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("counts the entries of /proc/self/fd")
	}
	count := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	p, c := self(t, "exit", "0")
	broken := c
	broken.Argv = []string{c.Argv[0], "\x00"}
	Run(background(), p, c)
	before := count()
	for range 5 {
		wantExit(t, Run(background(), p, c), 0)
		wantOutcome(t, Run(background(), p, broken), events.NotStarted)
	}
	if after := count(); after != before {
		t.Errorf("%d files are open, %d were", after, before)
	}
}

func TestEnvironment(t *testing.T) {
	t.Setenv("RUNNER_TEST_SECRET", "hush")
	t.Setenv("RUNNER_TEST_ASKED", "told")
	t.Setenv("FLEETLEDGER_TOKEN", "mine")
	t.Setenv("HTTPS_PROXY", "http://user:pass@proxy")
	t.Setenv("LC_TIME", "C")
	dir := t.TempDir()
	exe := executable(t)
	p, err := NewPolicy([]string{exe}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	c := Command{
		Argv:    []string{exe},
		Env:     as("env"),
		EnvFrom: []string{"RUNNER_TEST_ASKED"},
	}
	c.Env["HOME"], c.Env["EMPTY"] = "/elsewhere", ""
	e := Run(background(), p, c)
	wantExit(t, e, 0)
	got := map[string]string{}
	for line := range strings.Lines(e.Stdout.Tail) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), "=")
		got[name] = value
	}
	real, _ := filepath.EvalSymlinks(dir)
	for name, want := range map[string]string{
		"RUNNER_TEST_ASKED": "told", "HOME": "/elsewhere", "EMPTY": "", "LC_TIME": "C", "PWD": real,
	} {
		if value, ok := got[name]; !ok || value != want {
			t.Errorf("%s is %q, %t; want %q", name, value, ok, want)
		}
	}
	if runtime.GOOS != "windows" && got["PATH"] != os.Getenv("PATH") {
		t.Errorf("PATH is %q", got["PATH"])
	}
	for _, name := range []string{"RUNNER_TEST_SECRET", "FLEETLEDGER_TOKEN", "HTTPS_PROXY"} {
		if _, ok := got[name]; ok {
			t.Errorf("%s was passed on", name)
		}
	}

	for name, bad := range map[string]Command{
		"the agent's own token": {Argv: c.Argv, EnvFrom: []string{"FLEETLEDGER_TOKEN"}},
		"code for the loader":   {Argv: c.Argv, Env: map[string]string{"LD_PRELOAD": "x.so"}},
	} {
		if e := Run(background(), p, bad); e.Outcome != events.RefusedByAgent || e.Reason == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}
