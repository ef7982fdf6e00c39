package sqlview

import (
	"context"
	"database/sql"

	"fleetledger/events"
	"fleetledger/projections"
)

func newRun(h *events.Header, e events.Envelope, argv []string) *projections.Run {
	return &projections.Run{
		RecordID: h.ID, Position: h.Position, Machine: e.Machine, Argv: argv, Command: projections.CommandLine(argv),
		Cwd: e.Cwd, Repo: e.Repo, Commit: e.Commit, Outcome: e.Outcome, ExitCode: e.ExitCode, Masked: e.Masked,
		StartedAt: e.StartedAt, EndedAt: e.EndedAt, ElapsedMS: e.ElapsedMS,
	}
}

func (f *fold) run(h *events.Header, r *projections.Run, e *events.Envelope) error {
	key := projections.Place(r.Repo)
	s := &series{} // of nothing, for a command that was erased
	var id any
	if r.Command != "" {
		var err error
		if s, err = f.seriesOf(r, key); err != nil {
			return err
		}
		id = s.id
	}
	var attempt, exit any
	if r.Attempt > 0 {
		attempt = int64(r.Attempt)
	}
	if r.ExitCode != nil {
		exit = int64(*r.ExitCode)
	}
	result := resultOf(r)
	var failure string
	var failureVersion any
	if result != resultSucceeded {
		if failure = failureIn(e.Stderr.Tail, e.Stdout.Tail); failure != "" {
			failureVersion = failureIs
		}
	}
	ended := timeText(r.EndedAt)
	if _, err := f.exec(`INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(r.Position), r.RecordID, id, orNull(r.TaskID), attempt, r.Machine, r.Command, jsonText(r.Argv), r.Cwd, projections.Place(r.Cwd), r.Repo, key, r.Commit,
		string(r.Outcome), exit, r.Masked, result, timeText(r.StartedAt), ended, r.ElapsedMS, r.Late, jsonText(r.Tags), orNull(r.ImportedFrom),
		orNull(string(r.Gate)), orNull(r.GateID), orNull(failure), failureVersion); err != nil {
		return err
	}
	if id == nil {
		return nil
	}
	if r.TaskID != "" {
		if _, err := f.exec(`INSERT OR IGNORE INTO series_conclusions SELECT ?, position FROM conclusions WHERE about_task = ?`, s.id, r.TaskID); err != nil {
			return err
		}
	}
	s.count(result, ended)
	if s.runs == 1 || ended >= s.lastAt {
		s.lastAt, s.lastRun, s.repo = ended, r.Position, r.Repo
		s.seen = seenAt(r.EndedAt, h.Time, h.Position)
	}
	s.addTags(r.Tags)
	if failure != "" {
		s.failure = failure
	}
	f.dirty[s.id] = s
	return nil
}

func (f *fold) concluded(h *events.Header, e events.ConclusionRecorded) error {
	var task, record, run, subject any
	var series []int64
	one := func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		series = append(series, id)
		return err
	}
	if a := e.About; a != nil && a.TaskID != "" {
		task = a.TaskID
		if err := f.each(one, `SELECT DISTINCT series FROM runs WHERE task_id = ? AND series IS NOT NULL`, a.TaskID); err != nil {
			return err
		}
	} else if a != nil && a.RecordID != "" {
		record = a.RecordID
		position, err := f.log.FindID(context.Background(), a.RecordID)
		if err != nil {
			return err
		}
		if position != 0 && position < h.Position {
			run = int64(position)
			if err := f.each(one, `SELECT series FROM runs WHERE position = ? AND series IS NOT NULL`, run); err != nil {
				return err
			}
		}
	}
	if e.Subject != nil {
		subject = jsonText(e.Subject)
	}
	if _, err := f.exec(`INSERT INTO conclusions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(h.Position), h.ID, string(h.Stream), h.Actor,
		timeText(h.Time), task, record, run, subject, e.Text, orNull(e.Supersedes)); err != nil {
		return err
	}
	for _, id := range series {
		if _, err := f.exec(`INSERT OR IGNORE INTO series_conclusions VALUES (?, ?)`, id, int64(h.Position)); err != nil {
			return err
		}
	}
	return f.touch(series)
}
