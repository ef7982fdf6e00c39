package runner

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/events/shell"
)

// Place is where a command runs in this program's place: the working directory,
// with the repository that it lies in as it was before the command.
type Place struct {
	dir  string
	tree worktree
}

// Here reads the working directory of this program.
func Here(ctx context.Context) (Place, error) {
	dir, err := os.Getwd()
	if err != nil {
		return Place{}, err
	}
	return Place{dir: dir, tree: readWorktree(ctx, dir, usualPace(0).git)}, nil
}

// Attached is a command that runs in this program's place: it has its environment,
// its input, its terminal and its signals.
type Attached struct {
	Argv                  []string
	Stdin, Stdout, Stderr *os.File
}

// The exit codes of a command that cannot be started, as shells count.
const (
	exitNotFound      = 127
	exitNotExecutable = 126
)

// Run runs c to its end and returns the envelope, as Run does, and the exit code
// that this program should end with.
//
// Both outputs pass through as they come and are counted, hashed and kept as those
// of an attempt are. Where this program's output is a terminal the command has one
// too; where its input is one as well the command has a terminal of its own (a
// pty), on which its two outputs are one, as a person sees them. Windows has no such
// terminals: there a command writes to pipes.
//
// A signal to this program is passed on; one that the terminal sent to everybody
// (Ctrl-C) is left to the command. A reader of the output that goes away ends the
// command's writing as it would without this program between. What the command
// leaves running goes on; if it holds an output open it is waited for, 2 s at most.
func (c Attached) Run(p Place) (events.Envelope, int) {
	env, status := c.run(p)
	return secrets.MaskEnvelope(env), status
}

func (c Attached) run(p Place) (events.Envelope, int) {
	env := events.Envelope{
		Cwd: p.dir, Repo: p.tree.repo, Commit: p.tree.commit, Dirty: p.tree.dirty,
		Stdout: newCapture().output(), Stderr: newCapture().output(), Masked: shell.Masked(c.Argv),
	}
	began := time.Now()
	env.StartedAt = began.UTC().Truncate(time.Microsecond)
	env.EndedAt = env.StartedAt
	path, err := exec.LookPath(c.Argv[0])
	var w *wires
	cmd := &exec.Cmd{Path: path, Args: c.Argv, Env: os.Environ()}
	if err == nil {
		w, err = c.start(cmd)
	}
	if err != nil {
		env.Outcome = events.NotStarted
		env.Reason = shown(c.Argv[0]) + " cannot be started: " + startError(err).Error()
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
			return env, exitNotFound
		}
		return env, exitNotExecutable
	}
	_ = cmd.Wait() // cmd.ProcessState tells
	elapsed := time.Since(began)
	w.end()
	code := exitCode(cmd.ProcessState)
	env.Outcome, env.ExitCode = events.Exited, &code
	env.EndedAt = env.StartedAt.Add(elapsed.Truncate(time.Microsecond))
	env.ElapsedMS = elapsed.Milliseconds()
	env.Stdout, env.Stderr = w.stdout.output(), w.stderr.output()
	return env, code
}

// startError takes off what only repeats which program it was.
func startError(err error) error {
	if ee, ok := errors.AsType[*exec.Error](err); ok {
		err = ee.Err
	}
	return reason(err)
}

// wires are the connections of a running command.
type wires struct {
	stdout, stderr *capture
	passing        []*passing
	closing        []func() // at the end, newest first
}

// passing is an output on its way.
type passing struct {
	from *os.File // the end that is read
	done chan struct{}
}

// pass copies what comes from an output to its place and to the capture. When
// nobody takes it any more the output is shut, so that the command is told.
func (w *wires) pass(from, to *os.File, kept *capture) {
	p := &passing{from: from, done: make(chan struct{})}
	w.passing = append(w.passing, p)
	go func() {
		defer close(p.done)
		defer from.Close()
		// Whatever ends it ends it: a pty without a command reads as an error, too.
		_, _ = io.Copy(tee{to, kept}, from)
	}()
}

// tee writes to a file and, what that has taken, to a capture.
type tee struct {
	to   *os.File
	kept *capture
}

func (t tee) Write(b []byte) (int, error) {
	n, err := t.to.Write(b)
	_, _ = t.kept.Write(b[:n]) // never fails
	return n, err
}

// end waits for the outputs of a command that has ended, and takes the wires down.
func (w *wires) end() {
	limit := time.NewTimer(usualPace(0).drain)
	defer limit.Stop()
	for _, p := range w.passing {
		select {
		case <-p.done:
			continue
		case <-limit.C:
			limit.Reset(0) // for the next one, too
		}
		p.from.Close()
		<-p.done
	}
	w.close()
}

func (w *wires) close() {
	for i := len(w.closing) - 1; i >= 0; i-- {
		w.closing[i]()
	}
	w.closing = nil
}

// atEnd has f called when the wires are taken down.
func (w *wires) atEnd(f func()) { w.closing = append(w.closing, f) }

// pipe makes an output that is a pipe, and returns the command's end.
func (w *wires) pipe(to *os.File, kept *capture, later *[]func()) (*os.File, error) {
	r, wr, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	w.atEnd(func() { r.Close(); wr.Close() })
	*later = append(*later, func() {
		wr.Close() // the command has its own
		w.pass(r, to, kept)
	})
	return wr, nil
}
