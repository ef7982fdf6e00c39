package sqlview

import (
	"context"
	"database/sql"
	"time"

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

// preparedRun is a run with all that its rows say, so that who writes them only
// writes.
type preparedRun struct {
	*projections.Run
	recorded time.Time
	// forms are the ways to ask for its command, the first as one line, and hashes
	// theirs; key is that of its series.
	forms  []string
	hashes []int64
	key    int64

	repoKey, cwdKey    string
	argvText, tagsText string
	started, ended     string
	result, failure    string
}

func prepareRun(h *events.Header, r *projections.Run, e *events.Envelope) *preparedRun {
	p := &preparedRun{
		Run: r, recorded: h.Time, repoKey: projections.Place(r.Repo), cwdKey: projections.Place(r.Cwd),
		argvText: jsonText(r.Argv), tagsText: jsonText(r.Tags), started: timeText(r.StartedAt), ended: timeText(r.EndedAt), result: resultOf(r),
	}
	if p.result != resultSucceeded {
		p.failure = failureIn(wholeLines(&e.Stderr), wholeLines(&e.Stdout), p.result == resultFailed)
	}
	if r.Command == "" {
		return p // it was erased
	}
	p.forms = commandForms(r.Argv)
	for _, form := range p.forms {
		p.hashes = append(p.hashes, hash64(form))
	}
	p.key = hash64(p.forms[0], r.Machine, p.repoKey)
	return p
}

func (f *fold) run(r *preparedRun) error {
	s := &series{} // of nothing, for a command that was erased
	var id, attempt, exit, failureVersion any
	if r.forms != nil {
		var err error
		if s, err = f.seriesOf(r); err != nil {
			return err
		}
		id = s.id
	}
	if r.Attempt > 0 {
		attempt = int64(r.Attempt)
	}
	if r.ExitCode != nil {
		exit = int64(*r.ExitCode)
	}
	if r.failure != "" {
		failureVersion = failureIs
	}
	if _, err := f.exec(`INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(r.Position), r.RecordID, id, orNull(r.TaskID), attempt, r.Machine, r.Command, r.argvText, r.Cwd, r.cwdKey, r.Repo, r.repoKey, r.Commit,
		string(r.Outcome), exit, r.Masked, r.result, r.started, r.ended, r.ElapsedMS, r.Late, r.tagsText, orNull(r.ImportedFrom),
		orNull(string(r.Gate)), orNull(r.GateID), orNull(r.failure), failureVersion); err != nil {
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
	s.count(r.result, r.ended)
	if s.runs == 1 || r.ended >= s.lastAt {
		s.lastAt, s.lastRun, s.repo = r.ended, r.Position, r.Repo
		s.seen = seenAt(r.EndedAt, r.recorded, r.Position)
	}
	s.addTags(r.Tags)
	if r.failure != "" {
		s.failure = r.failure
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
