package load

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a server that runs in a process of its own.
type Process struct {
	Addr string // host:port

	name   string
	pid    int
	signal func(os.Signal) error
	kill   context.CancelFunc
	exited chan struct{}
	status string // how it ended by itself; set before exited is closed
	stderr *tail
}

// startTimeout is how long a server may take until it listens.
const startTimeout = 30 * time.Second

// Start runs a program that prints "listening on http://HOST:PORT" once it
// serves, and returns then. The program is killed when ctx ends, at the latest.
func Start(ctx context.Context, program string, args ...string) (*Process, error) {
	run, kill := context.WithCancel(ctx)
	p := &Process{name: commandOf(args), kill: kill, exited: make(chan struct{}), stderr: &tail{}}
	ready := &firstLine{line: make(chan string, 1)}
	cmd := exec.CommandContext(run, program, args...)
	cmd.Stdout, cmd.Stderr = ready, p.stderr
	// Its pipes are not waited for longer than this if it left children behind.
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		kill()
		return nil, err
	}
	p.pid, p.signal = cmd.Process.Pid, cmd.Process.Signal
	go func() {
		_ = cmd.Wait() // ProcessState tells
		if run.Err() == nil {
			p.status = cmd.ProcessState.String()
		}
		close(p.exited)
	}()
	timeout := time.NewTimer(startTimeout)
	defer timeout.Stop()
	var err error
	select {
	case line := <-ready.line:
		var found bool
		if p.Addr, found = strings.CutPrefix(line, "listening on http://"); found {
			p.stderr.forget() // greetings
			return p, nil
		}
		err = fmt.Errorf("%s printed %q, not where it listens", p.name, line)
	case <-p.exited:
		err = fmt.Errorf("%s ended before it listened", p.name)
	case <-timeout.C:
		err = fmt.Errorf("%s did not listen within %v", p.name, startTimeout)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return nil, p.Explain(err)
}

// commandOf is the part of args before the flags.
func commandOf(args []string) string {
	if i := slices.IndexFunc(args, func(a string) bool { return strings.HasPrefix(a, "-") }); i >= 0 {
		args = args[:i]
	}
	return strings.Join(args, " ")
}

// Kill ends the process and returns when it is gone. What it kept is of no use
// afterwards, so it is not asked to end in good order.
func (p *Process) Kill() {
	p.kill()
	<-p.exited
}

// Stop asks the process to end in good order and returns when it is gone.
func (p *Process) Stop(ctx context.Context) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", p.name, err)
	}
	select {
	case <-p.exited:
		return nil
	case <-time.After(startTimeout):
		return p.Explain(fmt.Errorf("%s did not end within %v", p.name, startTimeout))
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Usage is what a process has used.
type Usage struct {
	CPU           time.Duration
	ResidentBytes int64
}

// Usage returns what the process has used until now; errors.ErrUnsupported where
// the system does not tell.
func (p *Process) Usage() (Usage, error) { return usage(p.pid) }

// UsageOf is Usage for a process that was started otherwise.
func UsageOf(pid int) (Usage, error) { return usage(pid) }

// endTime is how long a server that fails may take to be gone.
const endTime = time.Second

// Explain ends a process that a client failed with, and adds to the client's
// error what is known of the server: how it ended, what it said last.
func (p *Process) Explain(err error) error {
	// If it is about to end by itself, that says more than that it was killed.
	select {
	case <-p.exited:
	case <-time.After(endTime):
	}
	p.Kill()
	if p.status != "" {
		err = fmt.Errorf("%w; %s ended by itself: %s", err, p.name, p.status)
	}
	if said := p.stderr.String(); said != "" {
		err = fmt.Errorf("%w; %s said: %s", err, p.name, strings.Join(strings.Fields(said), " "))
	}
	return err
}

// firstLine passes on the first line written to it and drops the rest.
type firstLine struct {
	line chan string // has one slot
	got  []byte
	done bool
}

func (w *firstLine) Write(b []byte) (int, error) {
	if w.done {
		return len(b), nil
	}
	w.got = append(w.got, b...)
	if line, _, found := bytes.Cut(w.got, []byte("\n")); found {
		w.done = true
		w.line <- strings.TrimRight(string(line), "\r")
	}
	return len(b), nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte // guarded by mu
}

const tailBytes = 4 << 10

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, b[max(0, len(b)-tailBytes):]...)
	t.kept = t.kept[max(0, len(t.kept)-tailBytes):]
	return len(b), nil
}

func (t *tail) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.kept))
}
