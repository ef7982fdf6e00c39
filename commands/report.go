package commands

import (
	"bytes"
	"context"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/events/shell"
	"fleetledger/projections"
)

// ReportAttempt ends an attempt with what its machine saw.
type ReportAttempt struct {
	TaskID   string
	Attempt  int
	Envelope events.Envelope
}

// ReportAttempt carries out c. The same envelope again is answered with what was
// recorded for it. A report after its lease lapsed, or after its task settled, is
// kept and marked late. Refusals: INVALID, TASK_NOT_FOUND, ACTOR_NOT_ACTIVE, NOT_YOUR_LEG,
// ATTEMPT_NOT_FOUND, ALREADY_REPORTED, TAIL_TOO_LARGE.
func (l *Ledger) ReportAttempt(ctx context.Context, caller Caller, c ReportAttempt) (Result, error) {
	var earlier events.Position
	r, err := l.execute(ctx, caller, func(v view) (decided, error) {
		t, err := l.Task(ctx, c.TaskID, 0)
		if err != nil {
			return decided{}, err
		}
		var d decided
		d, earlier, err = c.decide(v, t)
		return d, err
	})
	if err != nil {
		return r, err
	}
	l.leases.end(c.TaskID, c.Attempt)
	if earlier != 0 && len(r.Records) == 0 {
		recs, err := l.appendAt(ctx, earlier)
		return Result{Records: recs, Duplicate: true}, err
	}
	return r, nil
}

// decide returns the position of the report if the same one was made before.
func (c ReportAttempt) decide(v view, t *projections.Task) (decided, events.Position, error) {
	if err := v.active(); err != nil {
		return decided{}, 0, err
	}
	_, a, err := ownAttempt(t, c.Attempt, v.caller.Actor)
	if err != nil {
		return decided{}, 0, err
	}
	e := c.Envelope
	if err := checkEnvelope(e, v.caller.Actor, v.settings); err != nil {
		return decided{}, 0, err
	}
	if t.Command.Mode == events.Replicate && e.Outcome == events.Exited && e.Stdout.SHA256.IsZero() {
		return decided{}, 0, invalid(problem("/stdout/sha256", "REQUIRED", "replicas are compared by the SHA-256 of their whole output"))
	}
	keepOutput(&e, v.settings)
	// Its agent did this; one of another make may not have.
	hides := shell.Masked(t.Argv(t.Leg(v.caller.Actor)))
	e.Masked = e.Masked || hides
	e = secrets.MaskEnvelope(e)
	if a.Reported() {
		// One that was erased cannot be compared: to say that it was the same would
		// acknowledge what may never have been recorded.
		if a.Envelope != nil {
			kept := *a.Envelope
			kept.Masked = kept.Masked || hides
			if sameReport(e, kept) {
				return decided{}, a.Report, nil
			}
		}
		return decided{}, 0, refuse(Conflict, "ALREADY_REPORTED", "attempt %d of task %s was reported at position %d with another envelope, or with one that was erased", c.Attempt, t.ID, a.Report).
			With("position", a.Report)
	}
	rep := events.TaskReported{Machine: v.caller.Actor, Attempt: c.Attempt, Envelope: e}
	rep.Late = a.Lapsed || t.Status == projections.TaskSettled
	// Which parts of the output are kept is a setting: it must be the one in force.
	d := decided{expect: []events.Expectation{{Stream: t.Stream, Revision: t.Revision}, v.onSettings()}}
	d.add(t.Stream, v.newID(), rep)
	if !rep.Late {
		legs := legsAfter(t, func(l *projections.Leg) {
			if l.Machine == v.caller.Actor {
				l.Status = projections.LegReported
				l.Attempts[len(l.Attempts)-1].Envelope = &e
			}
		})
		d.settleIfDone(v, t, legs)
	}
	return d, 0, nil
}

// legsAfter is a copy of a task's legs after a change of one of them.
func legsAfter(t *projections.Task, change func(*projections.Leg)) []projections.Leg {
	legs := make([]projections.Leg, len(t.Legs))
	for i, l := range t.Legs {
		l.Attempts = append([]projections.Attempt{}, l.Attempts...)
		change(&l)
		legs[i] = l
	}
	return legs
}

func (d *decided) settleIfDone(v view, t *projections.Task, legs []projections.Leg) {
	for _, l := range legs {
		if l.Status != projections.LegReported && l.Status != projections.LegLost {
			return
		}
	}
	verdict, reason := Verdict(t.Command, legs)
	d.add(t.Stream, v.newID(), events.TaskSettled{Verdict: verdict, Reason: reason})
}

// Verdict is the outcome of a task whose legs have all ended, by the first row
// of the domain's table that fits, and one sentence why. Tasks that were refused
// or cancelled before a report are settled where that happens.
func Verdict(c events.TaskCommand, legs []projections.Leg) (events.TaskVerdict, string) {
	var reports []events.Envelope
	refused, passed, timedOut := 0, 0, 0
	for _, l := range legs {
		if l.Status != projections.LegReported {
			continue
		}
		e := *l.Attempts[len(l.Attempts)-1].Envelope
		reports = append(reports, e)
		switch {
		case e.Outcome == events.RefusedByAgent:
			refused++
		case e.Outcome == events.TimedOut:
			timedOut++
		case exitedZero(e):
			passed++
		}
	}
	n := len(legs)
	count := func(what string, k int) string { return fmt.Sprintf("%d of %d legs %s", k, n, what) }
	diverged := ""
	if c.Mode == events.Replicate {
		diverged = divergence(reports)
	}
	switch {
	case refused == n:
		return events.VerdictRefused, "every agent refused it: " + inShort(reports[0].Reason)
	case len(reports) == 0:
		return events.VerdictLost, "no report came in time from any leg"
	case passed == n && diverged == "":
		return events.VerdictSucceeded, count("exited 0", passed)
	case c.Mode == events.Replicate && c.Quorum > 0 && passed >= c.Quorum:
		return events.VerdictQuorum, fmt.Sprintf("%d replicas agree on exit 0, %d were asked for", passed, c.Quorum)
	case diverged != "":
		return events.VerdictDiverged, diverged
	case passed > 0:
		return events.VerdictPartial, count("exited 0", passed)
	case timedOut > 0:
		return events.VerdictTimedOut, count("were stopped at the time limit", timedOut)
	}
	return events.VerdictFailed, ending(reports)
}

func exitedZero(e events.Envelope) bool {
	return e.Outcome == events.Exited && e.ExitCode != nil && *e.ExitCode == 0
}

// divergence says how replicas that exited in time differ, empty if they do not.
func divergence(reports []events.Envelope) string {
	var first *events.Envelope
	for i, e := range reports {
		if e.Outcome != events.Exited {
			continue
		}
		if first == nil {
			first = &reports[i]
			continue
		}
		if *e.ExitCode != *first.ExitCode {
			return fmt.Sprintf("%s exited %d, %s exited %d", first.Machine, *first.ExitCode, e.Machine, *e.ExitCode)
		}
		if e.Stdout.SHA256 != first.Stdout.SHA256 {
			return fmt.Sprintf("%s and %s wrote different outputs", first.Machine, e.Machine)
		}
	}
	return ""
}

func ending(reports []events.Envelope) string {
	var list []string
	for _, e := range reports {
		s := e.Machine + " " + strings.ReplaceAll(string(e.Outcome), "_", " ")
		if e.ExitCode != nil {
			s = fmt.Sprintf("%s exited %d", e.Machine, *e.ExitCode)
		}
		if e.Reason != "" {
			s += ": " + inShort(e.Reason)
		}
		list = append(list, s)
	}
	if len(list) > 3 {
		list = append(list[:3], fmt.Sprintf("and %d more", len(list)-3))
	}
	return strings.Join(list, "; ")
}

// inShort is the beginning of a machine's reason: several have to fit in one event, and
// the report has all of it.
func inShort(reason string) string {
	const most = 1000 // bytes
	if len(reason) <= most {
		return reason
	}
	return strings.ToValidUTF8(reason[:most], "") + "..."
}

func checkEnvelope(e events.Envelope, machine string, limits projections.Settings) error {
	var bad []events.Problem
	switch e.Outcome {
	case events.Exited:
		if e.ExitCode == nil {
			bad = append(bad, problem("/exit_code", "REQUIRED", "a command that exited has an exit code"))
		}
	case events.TimedOut, events.RefusedByAgent, events.NotStarted, events.CancelledAttempt:
		if e.ExitCode != nil {
			bad = append(bad, problem("/exit_code", "CONTRADICTION", "is null unless the command exited"))
		}
	default:
		bad = append(bad, problem("/outcome", "UNKNOWN_OUTCOME", "%q is none of exited, timed_out, refused, not_started, cancelled", e.Outcome))
	}
	if machine != "" && e.Machine != machine {
		bad = append(bad, problem("/machine", "NOT_YOURS", "is %q, but %s reports", e.Machine, machine))
	}
	if !events.ValidID(e.Machine) {
		bad = append(bad, badID("/machine", e.Machine))
	}
	if e.ElapsedMS < 0 || e.EndedAt.Before(e.StartedAt) {
		bad = append(bad, problem("/ended_at", "OUT_OF_RANGE", "lies before started_at, or the elapsed time is negative"))
	}
	for _, o := range []struct {
		path string
		out  events.Output
	}{{"/stdout", e.Stdout}, {"/stderr", e.Stderr}} {
		if len(o.out.Tail) > limits.TailBytes {
			return tooLarge("TAIL_TOO_LARGE", len(o.out.Tail), limits.TailBytes, "bytes of tail in "+o.path)
		}
		if o.out.Bytes < 0 {
			bad = append(bad, problem(o.path+"/bytes", "OUT_OF_RANGE", "cannot be negative"))
		}
	}
	if len(bad) > 0 {
		return invalid(bad...)
	}
	return nil
}

// keepOutput drops the tails where the fleet keeps hashes only.
func keepOutput(e *events.Envelope, s projections.Settings) {
	if s.Output == projections.HashOnly {
		*e = e.WithoutTails()
	}
}

// sameReport reports whether an envelope, as it would be kept now, is the one that
// was kept. What the fleet keeps of outputs may have been set otherwise then: an
// envelope without tails is the same as one with them.
func sameReport(now, kept events.Envelope) bool {
	if sameJSON(now, kept) {
		return true
	}
	bare := sameJSON(now, now.WithoutTails()) || sameJSON(kept, kept.WithoutTails())
	return bare && sameJSON(now.WithoutTails(), kept.WithoutTails())
}

// sameJSON reports whether two values are the same JSON. Data that has no
// canonical form is compared as it is written.
func sameJSON(a, b any) bool {
	x, errX := json.Marshal(a, json.Deterministic(true))
	y, errY := json.Marshal(b, json.Deterministic(true))
	if errX != nil || errY != nil {
		return false
	}
	if bytes.Equal(x, y) {
		return true
	}
	x, errX = events.Canonical(x)
	y, errY = events.Canonical(y)
	return errX == nil && errY == nil && bytes.Equal(x, y)
}
