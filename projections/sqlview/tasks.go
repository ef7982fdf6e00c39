package sqlview

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"fleetledger/events"
	"fleetledger/projections"
)

// task folds what happens to a task.
func (f *fold) task(h *events.Header, e events.Event) error {
	id, now := taskOf(h.Stream), timeText(h.Time)
	switch e := e.(type) {
	case events.TaskSubmitted:
		return f.taskSubmitted(h, e)
	case events.TaskOpened:
		return f.insert(`UPDATE tasks SET status = 'open', opened = ?, opened_at = ? WHERE task_id = ?`, int64(h.Position), now, id)
	case events.TaskClaimed:
		return f.insert(`INSERT INTO attempts (task_id, attempt, machine, claimed_at, lease_expires_at) VALUES (?, ?, ?, ?, ?)`,
			id, int64(e.Attempt), e.Machine, now, timeText(e.LeaseExpiresAt))
	case events.LeaseLapsed:
		return f.insert(`UPDATE attempts SET lapsed_at = ? WHERE task_id = ? AND attempt = ?`, now, id, int64(e.Attempt))
	case events.TaskCancelled:
		return f.insert(`UPDATE tasks SET reason = ? WHERE task_id = ?`, orNull(e.Reason), id)
	case events.TaskReported:
		return f.taskReported(h, e)
	case events.TaskSettled:
		return f.insert(`UPDATE tasks SET status = 'settled', verdict = ?, reason = ifnull(?, reason), settled = ?, settled_at = ? WHERE task_id = ?`,
			string(e.Verdict), orNull(e.Reason), int64(h.Position), now, id)
	}
	return nil
}

// withoutPayload folds what is left of an erased event: of a task, that it was.
func (f *fold) withoutPayload(h *events.Header) error {
	if h.Type != (events.TaskSubmitted{}).Kind() {
		return nil
	}
	return f.taskSubmitted(h, events.TaskSubmitted{TaskID: taskOf(h.Stream)})
}

func taskOf(s events.Stream) string { return strings.TrimPrefix(string(s), "task-") }

func (f *fold) taskSubmitted(h *events.Header, e events.TaskSubmitted) error {
	c := e.Command
	var parts any
	if c.Parts != nil {
		parts = jsonText(c.Parts)
	}
	if err := f.insert(`INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'awaiting_approval', NULL, NULL, NULL, NULL, NULL, NULL)`,
		e.TaskID, int64(h.Position), h.Actor, timeText(h.Time), string(c.Mode), projections.CommandLine(c.Argv), jsonText(c.Argv), parts,
		jsonText(c.Targets), orNull(c.Cwd), jsonText(c.Tags)); err != nil {
		return err
	}
	for _, m := range c.Targets {
		if err := f.insert(`INSERT INTO task_targets VALUES (?, ?)`, m, int64(h.Position)); err != nil {
			return err
		}
	}
	for _, g := range e.Gates {
		if err := f.decided(h, events.GateDecided{GateID: g.GateID, Decision: g.Decision, Machine: g.Machine}, e.TaskID); err != nil {
			return err
		}
	}
	return nil
}

func (f *fold) taskReported(h *events.Header, e events.TaskReported) error {
	id := taskOf(h.Stream)
	var argvText, targetsText, tagsText string
	var partsText sql.NullString
	ok, err := f.row(`SELECT argv, parts, targets, tags FROM tasks WHERE task_id = ?`, []any{id}, &argvText, &partsText, &targetsText, &tagsText)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("position %d: a report of task %s, which was never submitted", h.Position, id)
	}
	var argv, targets, tags []string
	if err := errors.Join(fromJSON(argvText, &argv), fromJSON(targetsText, &targets), fromJSON(tagsText, &tags)); err != nil {
		return err
	}
	if partsText.Valid {
		var parts [][]string
		if err := fromJSON(partsText.String, &parts); err != nil {
			return err
		}
		if i := slices.Index(targets, e.Machine); i >= 0 && i < len(parts) {
			argv = parts[i]
		}
	}
	run := newRun(h, e.Envelope, argv)
	run.Machine, run.TaskID, run.Attempt, run.Tags, run.Late = e.Machine, id, e.Attempt, tags, e.Late
	a := e.Envelope
	if err := f.run(prepareRun(h, run, &a)); err != nil {
		return err
	}
	var exit any
	if a.ExitCode != nil {
		exit = int64(*a.ExitCode)
	}
	return f.insert(`UPDATE attempts SET reported_at = ?, late = ?, outcome = ?, exit_code = ?, masked = ?, elapsed_ms = ?, run = ? WHERE task_id = ? AND attempt = ?`,
		timeText(h.Time), e.Late, string(a.Outcome), exit, a.Masked, a.ElapsedMS, int64(h.Position), id, int64(e.Attempt))
}
