package commands

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"fleetledger/events"
	"fleetledger/projections"
)

// MaxCited bounds the records that one consolidation rests on.
const MaxCited = 256

// Consolidate says what several records amount to; or has views leave records out,
// or show them again. The log holds what it holds.
type Consolidate struct {
	Text    string             `json:"text"`
	Records []string           `json:"records"`
	Forgets *events.Forgetting `json:"forgets,omitzero"`
	Recalls string             `json:"recalls,omitzero"`
}

// Consolidate carries out c. What everybody is shown is changed by those who may
// revise the collective memory; what oneself is shown, by anybody who may
// consolidate. Refusals: INVALID, RECORD_NOT_FOUND, CONSOLIDATION_NOT_FOUND,
// NOT_YOUR_FORGETTING, SECRET_IN_TEXT, PAYLOAD_TOO_LARGE, and what gates answer.
func (l *Ledger) Consolidate(ctx context.Context, caller Caller, c Consolidate) (Result, error) {
	if bad := c.problems(); len(bad) > 0 {
		return Result{}, invalid(bad...)
	}
	texts := []text{{"/text", c.Text}}
	if c.Forgets != nil {
		texts = append(texts, text{"/forgets/machine", c.Forgets.Machine}, text{"/forgets/command", c.Forgets.Command})
	}
	if err := noSecretsInText("the consolidation", texts...); err != nil {
		return Result{}, err
	}
	if c.Records == nil {
		c.Records = []string{}
	}
	return l.execute(ctx, caller, func(v view) (decided, error) {
		stream, forAll, err := l.consolidatedIn(ctx, c, caller.Actor)
		if err != nil {
			return decided{}, err
		}
		actions := []string{"memory.consolidate"}
		if forAll {
			actions = append(actions, "collective.revise")
		}
		return v.gated(actions, named("memory.consolidate", c), func(permits []events.Permit, d *decided) {
			e := events.MemoryConsolidated{Text: c.Text, Records: c.Records, Forgets: c.Forgets, Recalls: c.Recalls, Permit: permits[0]}
			if forAll {
				e.ForAllPermit = &permits[1]
			}
			d.add(stream, v.newID(), e)
		})
	})
}

func (c Consolidate) problems() []events.Problem {
	var bad []events.Problem
	add := func(path, code, format string, args ...any) { bad = append(bad, problem(path, code, format, args...)) }
	if strings.TrimSpace(c.Text) == "" {
		add("/text", "REQUIRED", "a consolidation says what the records amount to, or why they are forgotten")
	}
	if len(c.Records) > MaxCited {
		add("/records", "OUT_OF_RANGE", "%d records, at most %d are cited at once", len(c.Records), MaxCited)
	}
	for i, id := range c.Records {
		if slices.Index(c.Records, id) < i {
			add(fmt.Sprintf("/records/%d", i), "DUPLICATE", "%q is named twice", id)
		}
	}
	f := c.Forgets
	switch {
	case c.Recalls != "" && (f != nil || len(c.Records) > 0):
		add("/recalls", "CONTRADICTION", "stands alone: it shows again what an earlier one forgot")
	case c.Recalls == "" && f == nil && len(c.Records) == 0:
		add("/records", "REQUIRED", "a consolidation cites the records that it rests on")
	}
	if f == nil {
		return bad
	}
	switch {
	case f.Cited && len(c.Records) == 0:
		add("/forgets/cited", "CONTRADICTION", "no record is cited")
	case !f.Cited && f.Machine == "":
		add("/forgets", "REQUIRED", "say what is forgotten: the cited records, or those of a machine")
	case f.Machine == "" && (f.Command != "" || f.Before != nil):
		add("/forgets/machine", "REQUIRED", "a command and a time narrow down the records of a machine: name it")
	case f.Machine != "" && !events.ValidID(f.Machine):
		bad = append(bad, badID("/forgets/machine", f.Machine))
	}
	return bad
}

// consolidatedIn finds the stream that c belongs to, that of the machine of the
// first record, and whether it changes what everybody is shown.
func (l *Ledger) consolidatedIn(ctx context.Context, c Consolidate, actor string) (stream events.Stream, forAll bool, err error) {
	if c.Recalls != "" {
		return l.recalled(ctx, c.Recalls, actor)
	}
	var missing []events.Problem
	for i, id := range c.Records {
		machine, found, err := l.machineOfRecord(ctx, id)
		switch {
		case err != nil:
			return "", false, err
		case !found:
			missing = append(missing, problem(fmt.Sprintf("/records/%d", i), "UNKNOWN_RECORD", "no record %q; see GET /v1/memory", id))
		case stream == "":
			stream = events.MachineStream(machine)
		}
	}
	if missing != nil {
		return "", false, refuse(NotFound, "RECORD_NOT_FOUND", "a consolidation rests on records that are here").With("problems", missing)
	}
	if stream == "" {
		stream = events.MachineStream(c.Forgets.Machine)
	}
	return stream, c.Forgets != nil && c.Forgets.ForAll, nil
}

// machineOfRecord is the machine whose memory a record is of. Its header tells, so
// that one that was erased is still a record.
func (l *Ledger) machineOfRecord(ctx context.Context, id string) (machine string, found bool, err error) {
	rec, err := l.recordByID(ctx, id)
	if err != nil || rec == nil {
		return "", false, err
	}
	switch rec.Header.Type {
	case events.MemoryRecorded{}.Kind():
		return strings.TrimPrefix(string(rec.Header.Stream), string(events.MachineStream(""))), true, nil
	case events.TaskReported{}.Kind():
		return rec.Header.Actor, true, nil // a machine reports for itself only
	}
	return "", false, nil
}

// recordByID reads the event with this id, nil if there is none.
func (l *Ledger) recordByID(ctx context.Context, id string) (*events.Record, error) {
	if events.CheckName("id", id) != nil {
		return nil, nil
	}
	position, err := l.log.FindID(ctx, id)
	if err != nil || position == 0 {
		return nil, err
	}
	recs, err := l.Records(ctx, position, position)
	if err != nil {
		return nil, err
	}
	return &recs[0], nil
}

// recalled finds an earlier forgetting that an actor wants to end.
func (l *Ledger) recalled(ctx context.Context, id, actor string) (stream events.Stream, forAll bool, err error) {
	missing := refuse(NotFound, "CONSOLIDATION_NOT_FOUND", "no consolidation %q forgets anything; see GET /v1/consolidations", id)
	rec, err := l.recordByID(ctx, id)
	if err != nil {
		return "", false, err
	}
	if rec == nil || rec.Erased || rec.Header.Type != (events.MemoryConsolidated{}).Kind() {
		return "", false, missing
	}
	e, err := events.DecodeAs[events.MemoryConsolidated](*rec)
	switch {
	case err != nil:
		return "", false, err
	case e.Forgets == nil:
		return "", false, missing
	case !e.Forgets.ForAll && rec.Header.Actor != actor:
		return "", false, refuse(Forbidden, "NOT_YOUR_FORGETTING", "%s forgot this for itself: nobody else is shown less by it", rec.Header.Actor)
	}
	return rec.Header.Stream, e.Forgets.ForAll, nil
}

// Consolidation reads a consolidation as of position at (0: now). Refusal:
// CONSOLIDATION_NOT_FOUND.
func (l *Ledger) Consolidation(ctx context.Context, id string, at events.Position) (projections.Consolidation, error) {
	missing := refuse(NotFound, "CONSOLIDATION_NOT_FOUND", "no consolidation %q; see GET /v1/consolidations", id)
	rec, err := l.recordByID(ctx, id)
	if err != nil {
		return projections.Consolidation{}, err
	}
	if rec == nil || rec.Erased || rec.Header.Type != (events.MemoryConsolidated{}).Kind() || at != 0 && rec.Header.Position > at {
		return projections.Consolidation{}, missing
	}
	e, err := events.DecodeAs[events.MemoryConsolidated](*rec)
	return projections.ConsolidationOf(*rec, e), err
}
