package commands

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/events/shell"
	"fleetledger/projections"
)

// RecordMemory adds a finished run to the memory of its machine.
type RecordMemory struct {
	Record       events.MemoryRecord `json:"record"`
	ImportedFrom string              `json:"imported_from,omitzero"`
	// ImportedID, a UUID, becomes the record's id; empty for a new one. It is no part of
	// what an approval is bound to.
	ImportedID string `json:"-"`
}

// RecordMemory carries out c. The machine must be the caller or the caller's
// parent, unless the record is imported. Secrets in it are masked. Refusals: INVALID, NOT_YOUR_MEMORY,
// TAIL_TOO_LARGE, ARGV_TOO_LARGE, SECRET_IN_TEXT, ALREADY_IMPORTED, and what gates answer.
func (l *Ledger) RecordMemory(ctx context.Context, caller Caller, c RecordMemory) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		if c.ImportedID != "" && c.ImportedFrom == "" {
			return decided{}, invalid(problem("/imported_id", "CONTRADICTION", "names what imported_from tells of: give that too"))
		}
		var err error
		c := c
		if c.ImportedID, err = l.newImport(ctx, c.ImportedID, events.MemoryRecorded{}.Kind()); err != nil {
			return decided{}, err
		}
		if id := c.Record.TaskID; id != "" && c.ImportedFrom == "" {
			switch known, err := l.hasTask(ctx, id); {
			case err != nil:
				return decided{}, err
			case !known:
				return decided{}, invalid(problem("/record/task_id", "UNKNOWN_TASK", "no task %q", id))
			}
		}
		if err := l.checkRunGate(ctx, caller, c); err != nil {
			return decided{}, err
		}
		return c.decide(v)
	})
}

// newImport returns the id for what is imported, which it has wherever it comes from, and
// refuses what is here under it: whoever brought it, and also if it was erased since. An id
// that an event of another kind has is not taken, so that nobody keeps others from importing.
func (l *Ledger) newImport(ctx context.Context, id string, kind events.Kind) (string, error) {
	if id == "" {
		return "", nil
	}
	rec, err := l.recordByID(ctx, id)
	switch {
	case err != nil || rec == nil:
		return id, err
	case rec.Header.Type != kind:
		return "", nil
	}
	h := rec.Header
	return "", refuse(Conflict, "ALREADY_IMPORTED", "%s was imported by %s, at position %d", id, h.Actor, h.Position).
		With("event_id", id).With("position", h.Position).With("by", h.Actor)
}

// checkRunGate holds a record to the gate that it names: nobody says that a run
// was allowed which was not.
func (l *Ledger) checkRunGate(ctx context.Context, caller Caller, c RecordMemory) error {
	r := c.Record
	wrong := func(path, format string, args ...any) error {
		return invalid(problem("/record/"+path, "GATE_DIFFERS", format, args...))
	}
	switch {
	case r.Gate == "" && r.GateID == "", r.Gate == events.GateOffline && r.GateID == "":
		return nil
	case r.Gate != events.GateAllowed:
		return wrong("gate", "is %q: it is %s, with the gate_id, or %s, without one", r.Gate, events.GateAllowed, events.GateOffline)
	}
	g, err := l.Gate(ctx, r.GateID, 0)
	if refusal, ok := errors.AsType[*Refusal](err); ok {
		return wrong("gate_id", "%s", refusal.Detail)
	}
	if err != nil {
		return err
	}
	dec := g.Decided.Decision
	switch {
	case dec.Actor != caller.Actor || dec.Action != "task.submit."+r.Machine:
		return wrong("gate_id", "gate %s was asked by %s about %s, not by %s about running on %s", r.GateID, dec.Actor, dec.Action, caller.Actor, r.Machine)
	case dec.Verdict == events.Allow, g.Approval != nil && g.Approval.Spent:
		return nil
	}
	return wrong("gate", "gate %s said %s, and no approval of it was spent", r.GateID, dec.Verdict)
}

func (c RecordMemory) decide(v view) (decided, error) {
	r := c.Record
	if r.Conclusion != nil {
		return decided{}, invalid(problem("/record/conclusion", "CONTRADICTION", "is null, always: conclude with POST /v1/conclusions"))
	}
	if len(r.Argv) == 0 || r.Argv[0] == "" {
		return decided{}, invalid(problem("/record/argv", "REQUIRED", "the first word names the program that was run"))
	}
	bytes := 0
	for _, w := range r.Argv {
		bytes += len(w)
	}
	if len(r.Argv) > v.settings.ArgvItems {
		return decided{}, tooLarge("ARGV_TOO_LARGE", len(r.Argv), v.settings.ArgvItems, "words in argv")
	}
	if bytes > v.settings.ArgvBytes {
		return decided{}, tooLarge("ARGV_TOO_LARGE", bytes, v.settings.ArgvBytes, "bytes in argv")
	}
	if err := checkEnvelope(r.Envelope, "", v.settings); err != nil {
		return decided{}, err
	}
	me := v.auth.Actor(v.caller.Actor)
	if c.ImportedFrom == "" && r.Machine != v.caller.Actor && (me == nil || r.Machine != me.Parent) {
		return decided{}, refuse(Forbidden, "NOT_YOUR_MEMORY",
			"the record is of machine %s: only it or an actor derived from it records that, unless imported_from says where it came from", r.Machine)
	}
	if c.ImportedFrom != "" { // then nobody registered the machine; masked, it would be another
		if err := noSecretsInText("the record", text{"/record/machine", r.Machine}); err != nil {
			return decided{}, err
		}
	}
	keepOutput(&r.Envelope, v.settings)
	// Whoever records may not know what a pipe hides, or not say so.
	r.Masked = r.Masked || shell.Masked(r.Argv)
	// It happened, so it is recorded, without its secrets. The gate's approval is
	// bound to the masked form too, for it is stored with it.
	r = secrets.MaskRecord(r)
	c.Record = r
	c.ImportedFrom, _ = secrets.Mask(c.ImportedFrom)
	return v.gated([]string{"memory.record"}, named("memory.record", c), func(permits []events.Permit, d *decided) {
		d.add(events.MachineStream(r.Machine), cmp.Or(c.ImportedID, v.newID()), events.MemoryRecorded{Record: r, ImportedFrom: c.ImportedFrom, Permit: permits[0]})
		d.expect = append(d.expect, v.onSettings())
	})
}

// Conclude says what a result meant.
type Conclude struct {
	About      *events.About `json:"about"`
	Text       string        `json:"text"`
	Supersedes string        `json:"supersedes,omitzero"`
	// ImportedID is as RecordMemory's.
	ImportedID string `json:"-"`
}

// Conclude carries out c. Machines and their descendants may not. Refusals:
// INVALID, MACHINE_MAY_NOT_CONCLUDE, TASK_NOT_FOUND, RECORD_NOT_FOUND,
// SECRET_IN_TEXT, ALREADY_IMPORTED, and what gates answer.
func (l *Ledger) Conclude(ctx context.Context, caller Caller, c Conclude) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		erasures := l.state.LedgerRevision()
		stream, subject, err := l.concludedOn(ctx, c.About)
		if err != nil {
			return decided{}, err
		}
		if c.Supersedes != "" {
			e, _, err := l.eventByID(ctx, c.Supersedes)
			if err != nil {
				return decided{}, err
			}
			if _, ok := e.(events.ConclusionRecorded); !ok {
				return decided{}, invalid(problem("/supersedes", "UNKNOWN_CONCLUSION", "no conclusion %q", c.Supersedes))
			}
		}
		c := c
		if c.ImportedID, err = l.newImport(ctx, c.ImportedID, events.ConclusionRecorded{}.Kind()); err != nil {
			return decided{}, err
		}
		d, err := c.decide(v, stream, subject)
		if subject != nil {
			// Whose command is erased meanwhile is not repeated.
			d.expect = append(d.expect, events.Expectation{Stream: events.LedgerStream, Revision: erasures})
		}
		return d, err
	})
}

func (c Conclude) decide(v view, stream events.Stream, subject *events.Subject) (decided, error) {
	if strings.TrimSpace(c.Text) == "" {
		return decided{}, invalid(problem("/text", "REQUIRED", "a conclusion says something"))
	}
	for _, a := range v.auth.Lineage(v.caller.Actor) {
		if a.Kind == events.Machine {
			return decided{}, refuse(Forbidden, "MACHINE_MAY_NOT_CONCLUDE", "%s is a machine or derived from one: what a result meant is said by its readers", v.caller.Actor)
		}
	}
	if err := noSecretsInText("the conclusion", text{"/text", c.Text}); err != nil {
		return decided{}, err
	}
	return v.gated([]string{"conclusion.record"}, named("conclusion.record", c), func(permits []events.Permit, d *decided) {
		d.add(stream, cmp.Or(c.ImportedID, v.newID()), events.ConclusionRecorded{About: c.About, Subject: subject, Text: c.Text, Supersedes: c.Supersedes, Permit: permits[0]})
	})
}

// concludedOn finds what a conclusion is about: the stream it belongs to, and
// enough of its subject to read it alone.
func (l *Ledger) concludedOn(ctx context.Context, about *events.About) (events.Stream, *events.Subject, error) {
	switch {
	case about == nil:
		return events.CollectiveStream, nil, nil
	case (about.TaskID == "") == (about.RecordID == ""):
		return "", nil, invalid(problem("/about", "CONTRADICTION", "names exactly one of task_id and record_id, or is null"))
	case about.RecordID != "":
		return l.record(ctx, about.RecordID)
	}
	t, err := l.Task(ctx, about.TaskID, 0)
	if err != nil {
		return "", nil, err
	}
	return t.Stream, subjectOf(t), nil
}

// record finds a finished run in the log: the stream it lies in, and enough of it
// to be read alone.
func (l *Ledger) record(ctx context.Context, id string) (events.Stream, *events.Subject, error) {
	e, rec, err := l.eventByID(ctx, id)
	if err != nil {
		return "", nil, err
	}
	switch e := e.(type) {
	case events.MemoryRecorded:
		return rec.Header.Stream, &events.Subject{Argv: e.Record.Argv, ExitCode: e.Record.ExitCode, At: e.Record.EndedAt}, nil
	case events.TaskReported:
		task, _ := entityOf(rec.Header.Stream)
		t, err := l.Task(ctx, task, 0)
		if err != nil {
			return "", nil, err
		}
		return rec.Header.Stream, &events.Subject{Argv: t.Argv(t.Leg(e.Machine)), ExitCode: e.Envelope.ExitCode, At: e.Envelope.EndedAt}, nil
	}
	return "", nil, refuse(NotFound, "RECORD_NOT_FOUND", "no record %q; see GET /v1/memory", id)
}

// eventByID reads the event with this id; it is nil if there is none, or its
// payload was erased.
func (l *Ledger) eventByID(ctx context.Context, id string) (events.Event, events.Record, error) {
	position, err := l.log.FindID(ctx, id)
	if err != nil || position == 0 {
		return nil, events.Record{}, err
	}
	recs, err := l.Records(ctx, position, position)
	if err != nil || recs[0].Erased {
		return nil, events.Record{}, err
	}
	e, err := events.Decode(recs[0])
	return e, recs[0], err
}

// subjectOf names a task's command, and its exit code where its legs have one.
func subjectOf(t *projections.Task) *events.Subject {
	s := &events.Subject{Argv: t.Argv(0), At: t.SubmittedAt}
	for i, l := range t.Legs {
		for _, a := range l.Attempts {
			if a.Envelope == nil || a.Late {
				continue
			}
			s.At = a.Envelope.EndedAt
			if code := a.Envelope.ExitCode; i == 0 {
				s.ExitCode = code
			} else if code == nil || s.ExitCode == nil || *code != *s.ExitCode {
				return &events.Subject{Argv: s.Argv, At: s.At}
			}
		}
	}
	return s
}

// Output reads the tails of a run from the log.
func (l *Ledger) Output(ctx context.Context, run projections.Run) (stdout, stderr events.Output, err error) {
	if err := l.readable(ctx); err != nil {
		return stdout, stderr, err
	}
	recs, err := l.Records(ctx, run.Position, run.Position)
	if err != nil {
		return stdout, stderr, err
	}
	if recs[0].Erased {
		return stdout, stderr, nil
	}
	e, err := events.Decode(recs[0])
	if err != nil {
		return stdout, stderr, err
	}
	switch e := e.(type) {
	case events.TaskReported:
		return e.Envelope.Stdout, e.Envelope.Stderr, nil
	case events.MemoryRecorded:
		return e.Record.Stdout, e.Record.Stderr, nil
	}
	return stdout, stderr, fmt.Errorf("position %d: %s is no run", run.Position, recs[0].Header.Type)
}
