package runner

import (
	"context"
	"math"
	"os/exec"
	"time"

	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/events/shell"
)

// Command is what one attempt runs: the part of an events.TaskCommand that its
// machine needs, with the argv of this machine's leg.
type Command struct {
	Argv []string
	// Cwd is the working directory; empty is the policy's first root, and a
	// relative one is taken from there.
	Cwd string
	// Env are the variables set for the command; EnvFrom names variables whose
	// values are in the agent's environment.
	Env     map[string]string
	EnvFrom []string
	// TimeoutSeconds ends the command; 0 is no limit.
	TimeoutSeconds int
	// Mark is put into the command's environment (FLEETLEDGER_ATTEMPT), by which
	// EndMarked finds what it started. Empty is none.
	Mark string
}

// markName is the variable that holds the mark.
const markName = ownPrefix + "ATTEMPT"

// pace are the times that a run waits for something.
type pace struct {
	timeout time.Duration // for the command; 0 is no limit
	grace   time.Duration // between asking the command to end and killing it
	drain   time.Duration // for outputs that are still held open when the command has ended
	reap    time.Duration // for the system to take back what was killed
	git     time.Duration // for reading the state of the repository
}

func usualPace(timeoutSeconds int) pace {
	p := pace{grace: 5 * time.Second, drain: 2 * time.Second, reap: 10 * time.Second, git: time.Second}
	if timeoutSeconds > 0 && timeoutSeconds < math.MaxInt64/int(time.Second) {
		p.timeout = time.Duration(timeoutSeconds) * time.Second
	}
	return p
}

// Run runs c to its end, if p permits it, and returns the envelope of the
// attempt. It leaves Transport, Machine, AgentVersion and Memory to its caller.
//
// The outcome is
//   - exited, with the exit code; a command that a signal ended by itself has
//     128 + the signal's number, as shells count (Windows has no such signals);
//   - timed_out after c.TimeoutSeconds, or cancelled when ctx ends. The
//     command's process group is sent SIGTERM and, 5 s later or as soon as the
//     command itself and its outputs have ended, the whole tree of processes
//     SIGKILL. On Windows the tree is ended at once;
//   - refused by the policy, or not_started, with the reason and what to change.
//
// When the command has ended, processes of its group that are left are killed;
// if they hold an output open they are given 2 s first. A daemon that moved to a
// session of its own is left alone (Windows: nothing is), and what it prints
// after those 2 s is not in the envelope.
//
// Secrets in the texts of the envelope are masked; sizes and hashes are those of
// what was written.
//
// The command gets an empty standard input, and of the agent's environment the
// variables listed at passed (env.go), PWD, c.EnvFrom and c.Env.
func Run(ctx context.Context, p Policy, c Command) events.Envelope {
	return secrets.MaskEnvelope(run(ctx, p, c, usualPace(c.TimeoutSeconds)))
}

func run(ctx context.Context, p Policy, c Command, pc pace) events.Envelope {
	env := events.Envelope{
		Cwd:    c.Cwd,
		Stdout: newCapture().output(),
		Stderr: newCapture().output(),
		Masked: shell.Masked(c.Argv),
	}
	env.StartedAt = time.Now().UTC().Truncate(time.Microsecond)
	env.EndedAt = env.StartedAt
	plan, s := p.plan(c)
	if s != nil {
		env.Outcome, env.Reason = s.outcome, s.reason
		return env
	}
	env.Cwd = plan.dir
	// Before the command, which may change it.
	wt := readWorktree(ctx, plan.dir, pc.git)
	env.Repo, env.Commit, env.Dirty = wt.repo, wt.commit, wt.dirty
	if ctx.Err() != nil {
		env.Outcome = events.CancelledAttempt
		return env
	}

	began := time.Now()
	env.StartedAt = began.UTC().Truncate(time.Microsecond)
	env.EndedAt = env.StartedAt
	a, err := begin(plan)
	if err != nil {
		env.Outcome = events.NotStarted
		env.Reason = notStarted("%s is allowed and cannot be started: %v", shown(c.Argv[0]), err).reason
		return env
	}
	outcome, code := a.finish(ctx, pc)
	env.Outcome, env.ExitCode = outcome, code
	// Measured by the monotonic clock: a wall clock that was set meanwhile
	// cannot put the end before the start.
	elapsed := a.ended.Sub(began)
	env.EndedAt = env.StartedAt.Add(elapsed.Truncate(time.Microsecond))
	env.ElapsedMS = elapsed.Milliseconds()
	env.Stdout, env.Stderr = a.stdout.output(), a.stderr.output()
	return env
}

// attempt is a command that is running.
type attempt struct {
	cmd            *exec.Cmd
	tree           *tree
	stdout, stderr *stream
	exited         chan struct{} // closed once cmd has been waited for
	ended          time.Time     // when the command itself ended; set before finish returns
}

func begin(p plan) (*attempt, error) {
	stdout, err := newStream()
	if err != nil {
		return nil, err
	}
	stderr, err := newStream()
	if err != nil {
		stdout.drop()
		return nil, err
	}
	cmd := &exec.Cmd{Path: p.path, Args: p.argv, Dir: p.dir, Env: p.env, Stdout: stdout.w, Stderr: stderr.w}
	t, err := startTree(cmd)
	if err != nil {
		stdout.drop()
		stderr.drop()
		return nil, err
	}
	a := &attempt{cmd: cmd, tree: t, stdout: stdout, stderr: stderr, exited: make(chan struct{})}
	stdout.read()
	stderr.read()
	go func() {
		// What the error would say is in cmd.ProcessState.
		_ = cmd.Wait()
		close(a.exited)
	}()
	return a, nil
}

// finish waits for the command, ends it if it must, and leaves nothing running.
func (a *attempt) finish(ctx context.Context, pc pace) (events.Outcome, *int) {
	outcome := a.wait(ctx, pc.timeout)
	if outcome == events.Exited {
		a.ended = time.Now()
		until(time.After(pc.drain), a.stdout.done, a.stderr.done)
	} else {
		a.tree.terminate()
		until(time.After(pc.grace), a.exited, a.stdout.done, a.stderr.done)
	}
	a.tree.kill()
	// A process that hangs in the kernel cannot be killed yet; it is not waited
	// for, and its end is noticed by nobody but the goroutine that waits for it.
	gone := until(time.After(pc.reap), a.exited)
	if outcome != events.Exited {
		a.ended = time.Now()
	}
	until(time.After(pc.drain), a.stdout.done, a.stderr.done)
	a.stdout.close()
	a.stderr.close()
	a.tree.close()
	if outcome != events.Exited || !gone {
		return outcome, nil
	}
	code := exitCode(a.cmd.ProcessState)
	return outcome, &code
}

// wait returns Exited, or why the command is to be ended now.
func (a *attempt) wait(ctx context.Context, timeout time.Duration) events.Outcome {
	var limit <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		limit = timer.C
	}
	outcome := events.Exited
	select {
	case <-a.exited:
	case <-limit:
		outcome = events.TimedOut
	case <-ctx.Done():
		outcome = events.CancelledAttempt
	}
	// What ended by itself at that moment did not have to be ended.
	select {
	case <-a.exited:
		return events.Exited
	default:
		return outcome
	}
}

// until waits for all of done, at most until limit, and reports whether all came.
func until(limit <-chan time.Time, done ...<-chan struct{}) bool {
	for _, d := range done {
		select {
		case <-d:
		case <-limit:
			return false
		}
	}
	return true
}
