package agent

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"fleetledger/agent/runner"
	"fleetledger/events"
	"fleetledger/events/secrets"
)

// Claim is a leg that its machine holds.
type Claim struct {
	TaskID  string
	Attempt int
	// Command has the machine's own argv, in mode split too.
	Command events.TaskCommand
	// Lease is how long the claim stands without a heartbeat.
	Lease time.Duration
}

// Claim asks for the machine's leg of a task. With the same key the answer is
// the same.
func (c *Client) Claim(ctx context.Context, task, machine, key string) (Claim, error) {
	resp, err := c.Do(ctx, Request{
		Method: http.MethodPost, Path: Path("v1", "tasks", task, "claim"), Key: key,
		Body: struct {
			Machine string `json:"machine"`
		}{machine},
	})
	if err != nil {
		return Claim{}, err
	}
	var a struct {
		Attempt        int                `json:"attempt"`
		LeaseExpiresAt time.Time          `json:"lease_expires_at"`
		Command        events.TaskCommand `json:"command"`
	}
	if err := resp.Decode(&a); err != nil {
		return Claim{}, err
	}
	return Claim{TaskID: task, Attempt: a.Attempt, Command: a.Command, Lease: a.LeaseExpiresAt.Sub(resp.now())}, nil
}

// Heartbeat holds the lease of an attempt. It is tried once: the next heartbeat
// comes soon enough.
func (c *Client) Heartbeat(ctx context.Context, task string, attempt int) (lease time.Duration, err error) {
	resp, err := c.Do(ctx, Request{
		Method: http.MethodPost, Path: Path("v1", "tasks", task, "attempts", strconv.Itoa(attempt), "heartbeat"), Once: true,
	})
	if err != nil {
		return 0, err
	}
	var a struct {
		LeaseExpiresAt time.Time `json:"lease_expires_at"`
	}
	if err := resp.Decode(&a); err != nil {
		return 0, err
	}
	return a.LeaseExpiresAt.Sub(resp.now()), nil
}

// Report ends an attempt. It is tried once: whoever must not lose it tries again,
// with the same key.
func (c *Client) Report(ctx context.Context, task string, attempt int, e events.Envelope, key string) error {
	_, err := c.Do(ctx, Request{
		Method: http.MethodPost, Path: Path("v1", "tasks", task, "attempts", strconv.Itoa(attempt), "report"), Key: key, Once: true,
		Body: struct {
			Envelope events.Envelope `json:"envelope"`
		}{e},
	})
	return err
}

// HashesOnly reports whether the fleet keeps hashes of outputs only: then their
// tails stay on this machine.
func (c *Client) HashesOnly(ctx context.Context) (bool, error) {
	resp, err := c.Do(ctx, Request{Method: http.MethodGet, Path: Path("v1", "settings"), Once: true})
	if err != nil {
		return false, err
	}
	var settings struct {
		Output string `json:"output"`
	}
	err = resp.Decode(&settings)
	return settings.Output == "hash_only", err
}

// claim claims o, for as long as it takes to get an answer. ok is false if there
// is nothing to run.
func (a *Agent) claim(ctx context.Context, o offer) (c Claim, ok bool) {
	log := a.log.With("task", o.TaskID)
	// A claim that was sent is waited for, even by an agent that is to stop: broken
	// off, it would be held by nobody until it lapses.
	sent, cancel := outlive(ctx, claimPatience)
	defer cancel()
	began := time.Now()
	for try := 1; ; try++ {
		c, err := a.client.Claim(sent, o.TaskID, a.cfg.Machine, o.key)
		if err == nil {
			// The answer may be that of an earlier try, for a lease long lapsed.
			return c, time.Since(began) < time.Second || a.stillHeld(sent, c)
		}
		if ctx.Err() != nil {
			return c, false
		}
		p, refused := errors.AsType[*Problem](err)
		if refused && final(p) {
			log.Info("not claimed", "code", p.Code, "reason", p.Detail)
			return c, false
		}
		log.Warn("not claimed yet", "error", err)
		if pause(ctx, streamBackoff(try)) != nil {
			return c, false
		}
	}
}

// claimPatience is how long a stopping agent waits for the answer to a claim.
const claimPatience = 2 * time.Second

// outlive returns a context that ends d after ctx.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(d, cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// stillHeld reports whether the relay confirms c's lease.
func (a *Agent) stillHeld(ctx context.Context, c Claim) bool {
	_, err := a.client.Heartbeat(ctx, c.TaskID, c.Attempt)
	if err != nil {
		a.log.Warn("a claim that took long is not confirmed: nothing is run", "task", c.TaskID, "attempt", c.Attempt, "error", err)
	}
	return err == nil
}

// transport says in envelopes how a command came to its machine.
const transport = "relay"

// attempt runs a claimed command to its end and leaves its envelope in the outbox.
func (a *Agent) attempt(ctx context.Context, c Claim) {
	log := a.log.With("task", c.TaskID, "attempt", c.Attempt)
	shown, _ := secrets.MaskArgv(c.Command.Argv)
	log.Info("running", "argv", shown)

	held, letGo := context.WithCancel(ctx)
	defer letGo()
	beats, stopBeats := context.WithCancel(held)
	var beating sync.WaitGroup
	beating.Go(func() { a.heartbeats(beats, c, letGo) })
	// While it runs: what the fleet keeps of outputs. Without an answer it is what was
	// known; the relay drops what it is not to keep, so that nothing rests on it.
	beating.Go(func() {
		ask, cancel := context.WithTimeout(held, 2*time.Second)
		defer cancel()
		if only, err := a.client.HashesOnly(ask); err == nil {
			a.hashesOnly.Store(only)
		}
	})
	mark := NewKey()
	// Before the command: what it starts is found by the mark, should the agent be
	// killed. Without a disk for it that is all that is lost.
	if err := a.started.put(running{TaskID: c.TaskID, Attempt: c.Attempt, Argv: shown, StartedAt: time.Now().UTC(), Mark: mark}); err != nil {
		log.Error("what is started could not be noted: should the agent be killed, it is left running", "error", err)
	}
	env := runner.Run(held, a.cfg.Policy, runner.Command{
		Argv: c.Command.Argv, Cwd: c.Command.Cwd, Env: c.Command.Env, EnvFrom: c.Command.EnvFrom, TimeoutSeconds: c.Command.TimeoutSeconds, Mark: mark,
	})
	a.started.remove(mark)
	stopBeats()
	beating.Wait()

	env.Machine, env.Transport, env.AgentVersion = a.cfg.Machine, transport, a.cfg.Version
	// A crash here leaves a lease that lapses, and no record.
	env.Memory = a.memory.Append(events.MemoryRecord{Envelope: env, Argv: c.Command.Argv, Tags: c.Command.Tags, TaskID: c.TaskID})
	if !env.Memory.Written {
		log.Error("the run could not be remembered on this machine", "reason", env.Memory.ReasonCode, "state", a.cfg.StateDir)
	}
	if a.hashesOnly.Load() {
		env = env.WithoutTails()
	}
	// A crash here leaves a record of a run that the relay will call lost.
	a.outbox.put(unreported{TaskID: c.TaskID, Attempt: c.Attempt, Envelope: env, Key: NewKey()})
	log.Info("ended", "outcome", env.Outcome, "reason", env.Reason, "elapsed_ms", env.ElapsedMS)
}

// The bounds of the time between two heartbeats.
const (
	minBeat = 100 * time.Millisecond
	maxBeat = 30 * time.Second
)

// beat is the time between heartbeats for a lease: three may be lost.
func beat(lease time.Duration) time.Duration { return min(max(lease/4, minBeat), maxBeat) }

// heartbeats holds c's lease until ctx ends. If the relay says that the attempt
// is over, it stops the command by calling letGo. A relay that cannot be reached
// ends nothing: it renews open leases when it is back.
func (a *Agent) heartbeats(ctx context.Context, c Claim, letGo func()) {
	interval := beat(c.Lease)
	log := a.log.With("task", c.TaskID, "attempt", c.Attempt)
	for pause(ctx, interval) == nil {
		try, cancel := context.WithTimeout(ctx, max(interval, time.Second))
		lease, err := a.client.Heartbeat(try, c.TaskID, c.Attempt)
		cancel()
		p, refused := errors.AsType[*Problem](err)
		switch {
		case err == nil:
			interval = beat(lease)
		case refused && !p.temporary() && p.Code != "":
			// ATTEMPT_ENDED; or the machine was suspended, which lapses its leases.
			log.Warn("the attempt is over for the relay: its command is stopped", "code", p.Code, "error", err)
			letGo()
			return
		case ctx.Err() == nil:
			log.Warn("a heartbeat was not answered", "error", err)
		}
	}
}
