//go:build unix

package runner

import (
	"bytes"
	"crypto/sha256"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"fleetledger/events"
)

// attached runs a helper in this program's place, its files those given; nil is
// /dev/null.
func attached(t *testing.T, in, out, errs *os.File, argv ...string) (events.Envelope, int) {
	t.Helper()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, f := range []**os.File{&in, &out, &errs} {
		if *f == nil {
			*f = null
		}
	}
	place, err := Here(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return Attached{Argv: argv, Stdin: in, Stdout: out, Stderr: errs}.Run(place)
}

func temp(t *testing.T, name, content string) *os.File {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), name))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(content); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	return f
}

func content(t *testing.T, f *os.File) string {
	t.Helper()
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestAttachedPassesThrough(t *testing.T) {
	in, out, errs := temp(t, "in", "one\ntwo\n"), temp(t, "out", ""), temp(t, "err", "")
	env, code := attached(t, in, out, errs, "sh", "-c", `tr a-z A-Z; printf 'bad \377 \033[31m' >&2; exit 7`)
	if code != 7 || env.Outcome != events.Exited || *env.ExitCode != 7 {
		t.Errorf("%d %+v", code, env)
	}
	if got := content(t, out); got != "ONE\nTWO\n" {
		t.Errorf("stdout is %q", got)
	}
	// What passes through is the bytes; what is kept is text.
	if got := content(t, errs); got != "bad \xff \x1b[31m" {
		t.Errorf("stderr is %q", got)
	}
	if env.Stdout.Tail != "ONE\nTWO\n" || env.Stdout.Bytes != 8 || env.Stderr.Tail != "bad \uFFFD \x1b[31m" || env.Stderr.Bytes != 11 ||
		env.Stderr.SHA256 != events.Hash(sha256.Sum256([]byte("bad \xff \x1b[31m"))) {
		t.Errorf("%+v %+v", env.Stdout, env.Stderr)
	}
	if env.Cwd == "" || env.Repo == "" || env.Commit == "" {
		t.Errorf("where: %q %q %q", env.Cwd, env.Repo, env.Commit)
	}
}

func TestAttachedExitCodes(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("no program"), 0o644); err != nil {
		t.Fatal(err)
	}
	for want, argv := range map[int][]string{
		0: {"true"}, 1: {"false"}, 143: {"sh", "-c", "kill -TERM $$"}, exitNotFound: {"no-such-program"}, exitNotExecutable: {plain},
	} {
		env, code := attached(t, nil, nil, nil, argv...)
		if code != want {
			t.Errorf("%v: exit code %d, not %d", argv, code, want)
		}
		if started := want < exitNotExecutable || want > exitNotFound; started != (env.Outcome == events.Exited) || started != (env.Reason == "") {
			t.Errorf("%v: %s %q", argv, env.Outcome, env.Reason)
		}
	}
}

// A reader that goes away ends the command, as it would without us between.
func TestAttachedReaderGoesAway(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	go func() {
		_, _ = io.ReadFull(r, make([]byte, 10))
		r.Close()
	}()
	if _, code := attached(t, nil, w, nil, "yes"); code != 128+int(syscall.SIGPIPE) {
		t.Errorf("exit code %d", code)
	}
}

// A signal to this program is the command's.
func TestAttachedForwardsSignals(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	var reading sync.WaitGroup
	reading.Go(func() {
		defer r.Close()
		b := make([]byte, 64)
		for {
			n, err := r.Read(b)
			got.Write(b[:n])
			if strings.Contains(string(b[:n]), "ready") {
				if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
					t.Error(err)
				}
			}
			if err != nil {
				return
			}
		}
	})
	_, code := attached(t, nil, w, nil, "sh", "-c", `trap 'echo asked; exit 9' TERM; echo ready; while :; do sleep 0.05; done`)
	w.Close()
	reading.Wait()
	if code != 9 || got.String() != "ready\nasked\n" {
		t.Errorf("exit code %d, output %q", code, got.String())
	}
}

// A daemon that keeps an output holds the run for a moment, not longer.
func TestAttachedDoesNotWaitForDaemons(t *testing.T) {
	began := time.Now()
	env, code := attached(t, nil, temp(t, "out", ""), nil, "sh", "-c", `sleep 30 & echo $!`)
	if code != 0 || time.Since(began) > 15*time.Second {
		t.Errorf("%d after %v", code, time.Since(began))
	}
	var daemon int
	for _, c := range strings.TrimSpace(env.Stdout.Tail) {
		daemon = daemon*10 + int(c-'0')
	}
	if err := syscall.Kill(daemon, syscall.SIGKILL); err != nil {
		t.Errorf("the daemon %d did not go on: %v", daemon, err)
	}
}

// terminal is the two ends of one, and what was printed on it.
func terminal(t *testing.T) (master, slave *os.File, printed func() string) {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	var mu sync.Mutex
	var b bytes.Buffer
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, 1024)
		for {
			n, err := master.Read(buf)
			mu.Lock()
			b.Write(buf[:n])
			mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		slave.Close()
		<-done
		master.Close()
	})
	return master, slave, func() string {
		mu.Lock()
		defer mu.Unlock()
		return b.String()
	}
}

// At a terminal the command has one: it is asked for its size, its keys are read
// there, and Ctrl-C is the command's.
func TestAttachedAtATerminal(t *testing.T) {
	master, slave, printed := terminal(t)
	if err := pty.Setsize(slave, &pty.Winsize{Rows: 33, Cols: 77}); err != nil {
		t.Fatal(err)
	}
	type ended struct {
		env  events.Envelope
		code int
	}
	result := make(chan ended, 1)
	go func() {
		env, code := attached(t, slave, slave, slave, "sh", "-c", `test -t 0 && test -t 1 && test -t 2 && stty size; read x; echo "got $x"; trap 'exit 6' INT; echo waiting; while :; do sleep 0.05; done`)
		result <- ended{env, code}
	}()
	typed := map[string]string{"33 77": "hello\r", "waiting": "\x03"}
	for deadline := time.Now().Add(20 * time.Second); len(typed) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("still to type %q; printed %q", typed, printed())
		}
		for seen, keys := range typed {
			if strings.Contains(printed(), seen) {
				delete(typed, seen)
				if _, err := master.WriteString(keys); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	r := <-result
	if r.code != 6 || !strings.Contains(r.env.Stdout.Tail, "got hello") || r.env.Stderr.Bytes != 0 {
		t.Errorf("%d %+v", r.code, r.env.Stdout)
	}
	// The key that ends the reading of ours, which waits for one.
	_, _ = master.WriteString("\r")
}

// With only an output at a terminal that output is one for the command, and no
// byte of it is changed.
func TestAttachedOutputAtATerminal(t *testing.T) {
	_, slave, printed := terminal(t)
	errs := temp(t, "err", "")
	env, code := attached(t, nil, slave, errs, "sh", "-c", `test -t 1 && ! test -t 2 && printf 'a\nb\n'; echo e >&2`)
	if code != 0 || env.Stdout.SHA256 != events.Hash(sha256.Sum256([]byte("a\nb\n"))) || content(t, errs) != "e\n" {
		t.Errorf("%d %+v", code, env.Stdout)
	}
	for deadline := time.Now().Add(10 * time.Second); printed() != "a\r\nb\r\n"; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("printed %q", printed())
		}
	}
}
