package sqlview

import (
	"database/sql"
	"errors"

	"fleetledger/events"
)

// erased takes away what an event told whose payload was erased since.
func (f *fold) erased(e events.PayloadErased) error {
	if err := f.flush(); err != nil {
		return err
	}
	var touched []int64
	one := func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		touched = append(touched, id)
		return err
	}
	position := int64(e.Position)
	// Why it could not be folded may repeat what it held.
	const unpark = `DELETE FROM parked WHERE position = ?`
	if e.Type == (events.TaskSubmitted{}).Kind() {
		// What ran is listed on, without what it was.
		id := taskOf(e.Stream)
		if err := f.each(one, `SELECT DISTINCT series FROM runs WHERE task_id = ? AND attempt IS NOT NULL AND series IS NOT NULL`, id); err != nil {
			return err
		}
		if _, err := f.exec(`UPDATE cited SET series = NULL WHERE run IN (SELECT position FROM runs WHERE task_id = ? AND attempt IS NOT NULL)`, id); err != nil {
			return err
		}
		if _, err := f.exec(`UPDATE runs SET command = '', argv = '[]', tags = '[]', series = NULL WHERE task_id = ? AND attempt IS NOT NULL`, id); err != nil {
			return err
		}
		f.traces = true
		if _, err := f.exec(unpark, position); err != nil {
			return err
		}
		if _, err := f.exec(`DELETE FROM gates WHERE task_id = ? AND position = ?`, id, position); err != nil {
			return err
		}
		if _, err := f.exec(`DELETE FROM task_targets WHERE position = ? AND machine IN (SELECT value FROM json_each((SELECT targets FROM tasks WHERE task_id = ?)))`,
			int64(e.Position), id); err != nil {
			return err
		}
		if _, err := f.exec(`UPDATE tasks SET mode = '', command = '', argv = '[]', parts = NULL, targets = '[]', cwd = NULL, tags = '[]' WHERE task_id = ?`, id); err != nil {
			return err
		}
	} else {
		if e.Type == (events.TaskReported{}).Kind() {
			if _, err := f.exec(`UPDATE attempts SET reported_at = NULL, late = NULL, outcome = NULL, exit_code = NULL, masked = NULL, elapsed_ms = NULL, run = NULL
				WHERE task_id = ? AND run = ?`, taskOf(e.Stream), position); err != nil {
				return err
			}
		}
		if e.Type == (events.TaskCancelled{}).Kind() {
			if _, err := f.exec(`UPDATE tasks SET reason = NULL WHERE task_id = ?`, taskOf(e.Stream)); err != nil {
				return err
			}
			f.traces = true
		}
		if err := errors.Join(
			f.each(one, `SELECT series FROM series_conclusions WHERE position = ?`, position),
			f.each(one, `SELECT series FROM runs WHERE position = ? AND series IS NOT NULL`, position),
		); err != nil {
			return err
		}
		for _, q := range []string{
			unpark,
			`DELETE FROM runs WHERE position = ?`,
			`UPDATE cited SET series = NULL WHERE run = ?`,
			`DELETE FROM series_conclusions WHERE position = ?`,
			`DELETE FROM conclusions WHERE position = ?`,
			`DELETE FROM sections WHERE position = ?`,
			`DELETE FROM consolidations WHERE position = ?`,
			`DELETE FROM cited WHERE consolidation = ?`,
			`DELETE FROM forgettings WHERE position = ?`,
			`UPDATE forgettings SET recalled = NULL WHERE recalled = ?`,
			`DELETE FROM block_parents WHERE position = ?`,
			`DELETE FROM blocks WHERE position = ?`,
			`DELETE FROM acceptances WHERE position = ?`,
		} {
			res, err := f.exec(q, position)
			if err != nil {
				return err
			}
			n, err := res.RowsAffected()
			if err != nil {
				return err
			}
			f.traces = f.traces || n > 0
		}
	}
	for _, id := range touched {
		if err := f.recount(id); err != nil {
			return err
		}
	}
	return nil
}

// recount makes a series anew from the runs that it still has.
func (f *fold) recount(id int64) error {
	old, err := f.loadSeries(`SELECT `+seriesColumns+` FROM series WHERE id = ?`, id, nil)
	if err != nil || old == nil {
		return err
	}
	delete(f.known, old.key)
	if _, err := f.exec(`DELETE FROM tried WHERE rowid = ?`, -old.seen); err != nil {
		return err
	}
	s := &series{id: old.id, key: old.key, command: old.command, machine: old.machine, repoKey: old.repoKey}
	err = f.each(func(rows *sql.Rows) error {
		var position int64
		var result, ended, repo, tags, failure string
		if err := rows.Scan(&position, &result, &ended, &repo, &tags, &failure); err != nil {
			return err
		}
		return s.countRun(position, result, ended, repo, tags, failure)
	}, `SELECT `+countedColumns+` FROM runs WHERE series = ? ORDER BY position`, id)
	if err != nil {
		return err
	}
	if s.runs == 0 {
		if err := f.dropForms(id); err != nil {
			return err
		}
		for _, q := range []string{`DELETE FROM series WHERE id = ?`, `DELETE FROM series_conclusions WHERE series = ?`} {
			if _, err := f.exec(q, id); err != nil {
				return err
			}
		}
		return nil
	}
	// What was concluded about a run that is gone is about none of the series any more.
	if _, err := f.exec(`DELETE FROM series_conclusions WHERE series = ?1 AND position NOT IN (SELECT c.position FROM runs r
		JOIN conclusions c ON c.about_run = r.position OR c.about_task = r.task_id WHERE r.series = ?1)`, id); err != nil {
		return err
	}
	s.seen = old.seen
	if s.lastRun != old.lastRun {
		recorded, err := f.recordedAt(s.lastRun)
		if err != nil {
			return err
		}
		s.seen = seenAt(parseTime(s.lastAt), recorded, s.lastRun)
	}
	f.dirty[id] = s
	return f.flush()
}
