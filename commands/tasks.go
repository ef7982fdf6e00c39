package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/projections"
)

// SubmitTask asks for a command to be run on machines.
type SubmitTask struct{ events.TaskCommand }

// SubmitTask carries out c: any denial refuses the task; otherwise whatever
// needs approval makes it wait; otherwise it is open. Refusals: INVALID,
// ARGV_TOO_LARGE, SECRET_IN_COMMAND, DENIED with the task's id.
func (l *Ledger) SubmitTask(ctx context.Context, caller Caller, c SubmitTask) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) { return c.decide(v) })
}

func (c SubmitTask) decide(v view) (decided, error) {
	if c.Mode == "" {
		c.Mode = events.Single
		if len(c.Targets) > 1 {
			c.Mode = events.Replicate
		}
	}
	if c.Attempts == 0 {
		c.Attempts = 1
	}
	if err := c.check(v); err != nil {
		return decided{}, err
	}
	if err := noSecrets(c.TaskCommand); err != nil {
		return decided{}, err
	}
	id := taskID(v.newID())
	stream := events.TaskStream(id)
	submitted := events.TaskSubmitted{TaskID: id, Command: c.TaskCommand, Gates: []events.LegGate{}}
	var stopped []events.Decision
	var gates []events.GateDecided
	var gateIDs []string
	denied := ""
	for i, m := range c.Targets {
		dec := v.decide("task.submit."+m, v.caller.Actor)
		if dec.Verdict == events.Allow {
			submitted.Gates = append(submitted.Gates, events.LegGate{Machine: m, GateID: legGateID(id, i), Decision: dec})
			continue
		}
		gateID := v.newID()
		switch dec.Verdict {
		case events.Deny:
			if denied == "" {
				denied = "denied on " + m + ": " + dec.Decisive.Reason
			}
		default:
			stopped = append(stopped, dec)
			gateIDs = append(gateIDs, gateID)
		}
		gates = append(gates, events.GateDecided{GateID: gateID, Decision: dec, Machine: m})
	}
	// Of many targets there is more to tell than one event holds.
	if len(submitted.Gates) > 1 {
		payload, err := events.Encode(submitted)
		if err != nil {
			return decided{}, err
		}
		if len(payload) > v.settings.PayloadBytes {
			for _, g := range submitted.Gates {
				gates = append(gates, events.GateDecided{GateID: v.newID(), Decision: g.Decision, Machine: g.Machine})
			}
			submitted.Gates = []events.LegGate{}
		}
	}
	var d decided
	d.expect = append(d.expect, events.Expectation{Stream: stream})
	d.add(stream, v.newID(), submitted)
	for _, g := range gates {
		d.add(stream, g.GateID, g)
	}
	switch {
	case denied != "":
		d.add(stream, v.newID(), events.TaskSettled{Verdict: events.VerdictRefused, Reason: denied})
		d.denial = true
	case len(stopped) > 0:
		command, err := canonicalCommand(c.TaskCommand)
		if err != nil {
			return d, err
		}
		req, err := v.approvalFor(stopped, gateIDs, command)
		if err != nil {
			return d, err
		}
		d.add(stream, req.ApprovalID, req)
		d.asks = true
	default:
		d.add(stream, v.newID(), events.TaskOpened{})
	}
	return d, nil
}

func (c SubmitTask) check(v view) error {
	var bad []events.Problem
	argvs := map[string][]string{"/argv": c.Argv}
	switch c.Mode {
	case events.Single:
		if len(c.Targets) != 1 {
			bad = append(bad, problem("/targets", "WRONG_COUNT", "mode single has exactly one target, not %d; see the modes replicate and split", len(c.Targets)))
		}
	case events.Replicate:
		if len(c.Targets) == 0 {
			bad = append(bad, problem("/targets", "WRONG_COUNT", "a task needs a target"))
		}
	case events.Split:
		delete(argvs, "/argv")
		if len(c.Argv) > 0 {
			bad = append(bad, problem("/argv", "CONTRADICTION", "in mode split each target runs its own of parts"))
		}
		if len(c.Parts) != len(c.Targets) || len(c.Parts) == 0 {
			bad = append(bad, problem("/parts", "WRONG_COUNT", "mode split has one part for each target: %d parts, %d targets", len(c.Parts), len(c.Targets)))
		}
		for i, p := range c.Parts {
			argvs[fmt.Sprintf("/parts/%d", i)] = p
		}
	default:
		bad = append(bad, problem("/mode", "UNKNOWN_MODE", "%q is none of single, replicate, split", c.Mode))
	}
	if c.Mode != events.Split && len(c.Parts) > 0 {
		bad = append(bad, problem("/parts", "CONTRADICTION", "parts belong to mode split"))
	}
	if c.Quorum < 0 || c.Quorum > len(c.Targets) || c.Quorum > 0 && c.Mode != events.Replicate {
		bad = append(bad, problem("/quorum", "OUT_OF_RANGE", "a quorum is a number of replicas, from 1 to %d, in mode replicate", len(c.Targets)))
	}
	if len(c.Targets) > MaxTargets {
		return tooLarge("TARGETS_TOO_MANY", len(c.Targets), MaxTargets, "targets")
	}
	for path, argv := range argvs {
		bytes := 0
		for i, w := range argv {
			bytes += len(w)
			if strings.ContainsRune(w, 0) {
				bad = append(bad, problem(fmt.Sprintf("%s/%d", path, i), "NUL", "a word of a command cannot hold the byte 0"))
			}
		}
		switch {
		case len(argv) == 0 || argv[0] == "":
			bad = append(bad, problem(path, "REQUIRED", "the first word names the program to run"))
		case len(argv) > v.settings.ArgvItems:
			return tooLarge("ARGV_TOO_LARGE", len(argv), v.settings.ArgvItems, "words in argv")
		case bytes > v.settings.ArgvBytes:
			return tooLarge("ARGV_TOO_LARGE", bytes, v.settings.ArgvBytes, "bytes in argv")
		}
	}
	for i, m := range c.Targets {
		path := fmt.Sprintf("/targets/%d", i)
		a := v.auth.Actor(m)
		switch {
		case slices.Contains(c.Targets[:i], m):
			bad = append(bad, problem(path, "DUPLICATE", "machine %s is named twice", m))
		case a == nil || a.Kind != events.Machine:
			bad = append(bad, problem(path, "UNKNOWN_MACHINE", "no actor of kind machine is named %q; see GET /v1/actors", m))
		case !v.auth.Active(m):
			bad = append(bad, problem(path, "MACHINE_SUSPENDED", "machine %s is suspended", m))
		}
	}
	for name, value := range c.Env {
		if !validVariable(name) {
			bad = append(bad, badVariable("/env", name))
		} else if strings.ContainsRune(value, 0) {
			bad = append(bad, problem("/env", "NUL", "the value of a variable cannot hold the byte 0"))
		}
	}
	if strings.ContainsRune(c.Cwd, 0) {
		bad = append(bad, problem("/cwd", "NUL", "the name of a directory cannot hold the byte 0"))
	}
	for _, name := range c.EnvFrom {
		if !validVariable(name) {
			bad = append(bad, badVariable("/env_from", name))
		}
	}
	if c.TimeoutSeconds < 0 {
		bad = append(bad, problem("/timeout_s", "OUT_OF_RANGE", "cannot be negative; 0 is no limit"))
	}
	if c.Attempts < 1 || c.Attempts > MaxAttempts {
		bad = append(bad, problem("/attempts", "OUT_OF_RANGE", "is from 1 to %d", MaxAttempts))
	}
	if len(bad) > 0 {
		slices.SortFunc(bad, func(a, b events.Problem) int { return strings.Compare(a.Path, b.Path) })
		return invalid(bad...)
	}
	return nil
}

func validVariable(name string) bool {
	return name != "" && !strings.ContainsAny(name, "=\x00")
}

// badVariable does not repeat a value that was given with its name.
func badVariable(path, name string) events.Problem {
	shown, _ := secrets.Mask(name)
	return problem(path, "INVALID_NAME", "%q cannot be the name of a variable", shown)
}

func tooLarge(code string, actual, limit int, what string) *Refusal {
	return refuse(TooLarge, code, "%d %s, at most %d are taken", actual, what, limit).With("limit", limit).With("actual", actual)
}

// TaskAfter returns the task that an event of its stream is about, as it was after
// that event.
func (l *Ledger) TaskAfter(ctx context.Context, r events.Record) (*projections.Task, error) {
	id, _ := entityOf(r.Header.Stream)
	if t := l.state.OpenTask(id); t != nil && t.Revision == r.Header.Revision {
		return t, nil // nothing came after it, which is how it mostly is
	}
	return l.Task(ctx, id, r.Header.Position)
}

// Task returns a task as of position at (0: now). Refusal: TASK_NOT_FOUND.
func (l *Ledger) Task(ctx context.Context, id string, at events.Position) (*projections.Task, error) {
	if at == 0 {
		if t := l.state.OpenTask(id); t != nil {
			return t, l.readable(ctx)
		}
	}
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	t, err := projections.LoadTask(ctx, l.log, id, at)
	if err == nil && t == nil {
		err = refuse(NotFound, "TASK_NOT_FOUND", "no task %q", id)
	}
	return t, err
}

// hasTask reports whether a task of this id was ever submitted.
func (l *Ledger) hasTask(ctx context.Context, id string) (bool, error) {
	if l.state.OpenTask(id) != nil {
		return true, nil
	}
	if events.CheckName("task id", id) != nil {
		return false, nil
	}
	if err := l.readable(ctx); err != nil {
		return false, err
	}
	for _, err := range l.log.ReadStream(ctx, events.TaskStream(id), 0) {
		return err == nil, err
	}
	return false, nil
}

// ClaimTask gives the caller's leg of a task to it.
type ClaimTask struct {
	TaskID  string
	Machine string
}

// ClaimTask carries out c. Refusals: TASK_NOT_FOUND, ACTOR_NOT_ACTIVE, NOT_YOUR_LEG,
// ALREADY_CLAIMED, TASK_NOT_OPEN, TASK_SETTLED.
func (l *Ledger) ClaimTask(ctx context.Context, caller Caller, c ClaimTask) (Result, error) {
	r, err := l.execute(ctx, caller, func(v view) (decided, error) {
		t, err := l.Task(ctx, c.TaskID, 0)
		if err != nil {
			return decided{}, err
		}
		return c.decide(v, t)
	})
	if rec, ok := r.Has(events.TaskClaimed{}.Kind()); ok && err == nil && !r.Duplicate {
		claimed, err := events.DecodeAs[events.TaskClaimed](rec)
		if err != nil {
			return r, err
		}
		l.heardOf(c.TaskID, claimed.Attempt, claimed.LeaseExpiresAt)
	}
	return r, err
}

func (c ClaimTask) decide(v view, t *projections.Task) (decided, error) {
	if err := v.active(); err != nil {
		return decided{}, err
	}
	i := t.Leg(c.Machine)
	if c.Machine != v.caller.Actor || i < 0 {
		return decided{}, refuse(Forbidden, "NOT_YOUR_LEG", "task %s has no leg that %s may claim: only the machine that a leg names does", t.ID, v.caller.Actor)
	}
	switch leg := t.Legs[i]; {
	case t.Status == projections.TaskAwaitingApproval:
		return decided{}, refuse(Conflict, "TASK_NOT_OPEN", "task %s waits for its approval", t.ID).With("task_status", t.Status)
	case leg.Status == projections.LegOffered:
	case t.Status == projections.TaskSettled && leg.Status != projections.LegReported:
		return decided{}, refuse(Conflict, "TASK_SETTLED", "task %s is settled: %s", t.ID, t.Verdict).With("verdict", t.Verdict)
	default:
		return decided{}, refuse(Conflict, "ALREADY_CLAIMED", "the leg of task %s on %s is %s", t.ID, c.Machine, leg.Status).With("leg_status", leg.Status)
	}
	d := decided{expect: []events.Expectation{{Stream: t.Stream, Revision: t.Revision}}}
	d.add(t.Stream, v.newID(), events.TaskClaimed{
		Machine: c.Machine, Attempt: t.NextAttempt(), LeaseExpiresAt: v.now.Add(v.settings.Lease()),
	})
	return d, nil
}

// Heartbeat holds the lease of an attempt and returns until when. It records
// nothing. Refusals: TASK_NOT_FOUND, NOT_YOUR_LEG, ATTEMPT_ENDED.
func (l *Ledger) Heartbeat(ctx context.Context, caller Caller, task string, attempt int) (until time.Time, err error) {
	t := l.state.OpenTask(task)
	if t == nil {
		if t, err = l.Task(ctx, task, 0); err != nil {
			return until, err
		}
	}
	leg, a, err := ownAttempt(t, attempt, caller.Actor)
	if err != nil {
		return until, err
	}
	if t.Status == projections.TaskSettled || leg.Status != projections.LegClaimed || a.Lapsed || a.Reported() {
		return until, refuse(Conflict, "ATTEMPT_ENDED", "attempt %d of task %s has ended: the task is %s, the leg %s", attempt, task, t.Status, leg.Status).
			With("task_status", t.Status).With("verdict", t.Verdict)
	}
	until = l.log.Now().Add(l.state.Settings().Lease())
	l.heardOf(task, attempt, until)
	return until, nil
}

func ownAttempt(t *projections.Task, attempt int, machine string) (*projections.Leg, *projections.Attempt, error) {
	leg, a := t.Attempt(attempt)
	if a == nil {
		return nil, nil, refuse(NotFound, "ATTEMPT_NOT_FOUND", "task %s has no attempt %d", t.ID, attempt)
	}
	if leg.Machine != machine {
		return nil, nil, refuse(Forbidden, "NOT_YOUR_LEG", "attempt %d of task %s is held by %s", attempt, t.ID, leg.Machine)
	}
	return leg, a, nil
}

// CancelTask ends a task before any report.
type CancelTask struct {
	TaskID string `json:"task_id"`
	Reason string `json:"reason,omitzero"`
}

// CancelTask carries out c. The submitter needs no rule. Refusals: TASK_NOT_FOUND,
// TASK_SETTLED, ALREADY_REPORTED, SECRET_IN_TEXT, ACTOR_NOT_ACTIVE, and what gates answer.
func (l *Ledger) CancelTask(ctx context.Context, caller Caller, c CancelTask) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		t, err := l.Task(ctx, c.TaskID, 0)
		if err != nil {
			return decided{}, err
		}
		if t.Status == projections.TaskSettled {
			return decided{}, refuse(Conflict, "TASK_SETTLED", "task %s is settled: %s", t.ID, t.Verdict).With("verdict", t.Verdict)
		}
		if t.Reported() {
			return decided{}, refuse(Conflict, "ALREADY_REPORTED", "task %s has a report already: it can no longer be cancelled", t.ID)
		}
		if err := noSecretsInText("the reason", text{"/reason", c.Reason}); err != nil {
			return decided{}, err
		}
		cancel := func(permit *events.Permit, d *decided) {
			d.expect = append(d.expect, events.Expectation{Stream: t.Stream, Revision: t.Revision})
			d.add(t.Stream, v.newID(), events.TaskCancelled{Reason: c.Reason, Permit: permit})
			if t.Approval != nil && t.Approval.Pending() {
				d.add(t.Stream, v.newID(), events.ApprovalSettled{
					ApprovalID: t.Approval.ApprovalID, Outcome: events.Withdrawn, Reason: "the task was cancelled", RequiredLevel: t.Approval.RequiredLevel,
				})
			}
			// Why is said once, so that it can be erased.
			d.add(t.Stream, v.newID(), events.TaskSettled{Verdict: events.VerdictCancelled})
		}
		if t.SubmittedBy == caller.Actor {
			var d decided
			cancel(nil, &d)
			return d, v.active()
		}
		return v.gated([]string{"task.cancel"}, named("task.cancel", c), func(permits []events.Permit, d *decided) { cancel(&permits[0], d) })
	})
}
