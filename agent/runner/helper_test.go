package runner

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/shell"
)

// The commands that these tests run are the test binary itself, so that they
// are real processes on every system.
const (
	helperEnv   = "RUNNER_TEST_HELPER"
	lifelineEnv = "RUNNER_TEST_LIFELINE"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(helperEnv); mode != "" {
		os.Exit(helper(mode, os.Args[1:]))
	}
	// The agent's own git gets no variable of ours: it is known by its name.
	if shell.ProgramName(os.Args[0]) == "git" {
		os.Exit(helper("hang", nil))
	}
	goleak.VerifyTestMain(m)
}

func helper(mode string, args []string) int {
	switch mode {
	case "exit":
		code, _ := strconv.Atoi(args[0])
		return code
	case "print": // so many bytes of a pattern on stdout, as many on stderr
		for i, w := range []io.Writer{os.Stdout, os.Stderr} {
			n, _ := strconv.Atoi(args[i])
			_, _ = io.CopyN(w, &pattern{}, int64(n))
		}
	case "raw":
		raw, _ := hex.DecodeString(args[0])
		_, _ = os.Stdout.Write(raw)
	case "env":
		fmt.Println(strings.Join(os.Environ(), "\n"))
	case "pwd":
		wd, _ := os.Getwd()
		fmt.Print(wd)
	case "argv0":
		fmt.Print(os.Args[0])
	case "stdin":
		n, err := io.Copy(io.Discard, os.Stdin)
		fmt.Print(n, err)
	case "hang":
		time.Sleep(time.Minute)
	case "live": // until killed
		live(args[0])
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		live(args[0])
	case "polite": // ends with 0 when asked to
		asked := make(chan os.Signal, 1)
		signal.Notify(asked, syscall.SIGTERM)
		go func() {
			<-asked
			fmt.Print("goodbye")
			os.Exit(0)
		}()
		live(args[0])
	case "leave", "leavequiet": // starts a process, with its outputs or none, and exits when told to
		child := exec.Command(os.Args[0], args[1:]...)
		child.Env = append(os.Environ(), helperEnv+"="+args[0])
		if mode == "leave" {
			child.Stdout, child.Stderr = os.Stdout, os.Stderr
		}
		if err := child.Start(); err != nil {
			fmt.Print(err)
			return 1
		}
		fmt.Print("left")
		awaitTest()
		return 7
	default:
		return platformHelper(mode, args)
	}
	return 0
}

// live tells the test that this process is there, for as long as it is.
func live(name string) {
	conn, err := net.Dial("tcp", os.Getenv(lifelineEnv))
	if err != nil {
		fmt.Print(err)
		os.Exit(1)
	}
	fmt.Fprintln(conn, name)
	_, _ = io.Copy(io.Discard, conn)
}

// awaitTest returns when the test has seen the process that was started.
func awaitTest() {
	conn, err := net.Dial("tcp", os.Getenv(lifelineEnv))
	if err != nil {
		os.Exit(1)
	}
	fmt.Fprintln(conn, "waits")
	_, _ = bufio.NewReader(conn).ReadByte()
}

// pattern is an endless text without a period that divides a buffer.
type pattern struct{ at int }

func (p *pattern) Read(b []byte) (int, error) {
	const text = "0123456789abcdefghijklmnopqrstuvwxyz\n"
	for i := range b {
		b[i] = text[p.at%len(text)]
		p.at++
	}
	return len(b), nil
}

// lifelines sees processes live and die, without asking the process table.
type lifelines struct {
	t    *testing.T
	ln   net.Listener
	seen chan lifeline
}

type lifeline struct {
	name string
	conn net.Conn
	r    *bufio.Reader
}

func newLifelines(t *testing.T) *lifelines {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &lifelines{t: t, ln: ln, seen: make(chan lifeline, 16)}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			r := bufio.NewReader(conn)
			name, _ := r.ReadString('\n')
			l.seen <- lifeline{strings.TrimSpace(name), conn, r}
		}
	}()
	return l
}

func (l *lifelines) await() lifeline {
	l.t.Helper()
	select {
	case line := <-l.seen:
		return line
	case <-time.After(20 * time.Second):
		l.t.Fatal("the process did not come up")
		return lifeline{}
	}
}

func (l *lifelines) gone(lines ...lifeline) {
	l.t.Helper()
	for _, line := range lines {
		_ = line.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := line.r.ReadByte(); os.IsTimeout(err) {
			l.t.Errorf("process %q is still alive", line.name)
		}
	}
}

// self is a policy that permits the test binary, and a command that runs it.
func self(t *testing.T, mode string, args ...string) (Policy, Command) {
	t.Helper()
	exe := executable(t)
	p, err := NewPolicy([]string{exe}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p, Command{Argv: append([]string{exe}, args...), Env: as(mode)}
}

// as are the variables that make the test binary a helper. The race detector
// would let it sleep for a second at its end.
func as(mode string) map[string]string {
	return map[string]string{helperEnv: mode, "GORACE": "atexit_sleep_ms=0"}
}

func executable(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// install puts the test binary in dir under another name.
func install(t *testing.T, dir, name string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		name += ".exe"
	}
	to := filepath.Join(dir, name)
	if err := os.Link(executable(t), to); err == nil {
		return to
	}
	from, err := os.ReadFile(executable(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, from, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// quick is a pace for commands that have to be ended.
func quick(timeout time.Duration) pace {
	return pace{timeout: timeout, grace: 300 * time.Millisecond, drain: 300 * time.Millisecond, reap: 10 * time.Second, git: 10 * time.Second}
}

func wantExit(t *testing.T, e events.Envelope, code int) {
	t.Helper()
	if e.Outcome != events.Exited || e.ExitCode == nil || *e.ExitCode != code {
		t.Fatalf("outcome %s, exit code %v, reason %q, stdout %q, stderr %q; want exited with %d",
			e.Outcome, e.ExitCode, e.Reason, e.Stdout.Tail, e.Stderr.Tail, code)
	}
}

func wantOutcome(t *testing.T, e events.Envelope, want events.Outcome) {
	t.Helper()
	if e.Outcome != want || e.ExitCode != nil {
		t.Fatalf("outcome %s, exit code %v, reason %q; want %s without an exit code", e.Outcome, e.ExitCode, e.Reason, want)
	}
}

func background() context.Context { return context.Background() }
