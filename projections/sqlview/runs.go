package sqlview

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"

	"fleetledger/events"
	"fleetledger/projections"
)

// RunFilter narrows a list of runs; empty fields match everything.
type RunFilter struct {
	Machine, Repo, Cwd string
	// Command is a command line, see projections.CommandLine.
	Command string
	// Forgetful leaves out what this reader, an actor, has forgotten; empty leaves
	// out nothing.
	Forgetful string
}

// reader is one reader's look at one moment of a store.
type reader struct {
	ctx   context.Context
	tx    *sql.Tx
	store *store
}

// look calls f with a reader.
func (v *View) look(ctx context.Context, f func(r reader) error) error {
	s, release, err := v.acquire()
	if err != nil {
		return err
	}
	defer release()
	tx, err := s.read.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return v.reading(s, err)
	}
	err = f(reader{ctx, tx, s})
	if undo := tx.Rollback(); err == nil && undo != nil && !errors.Is(undo, sql.ErrTxDone) {
		err = undo
	}
	return v.reading(s, err)
}

// known is each for one of the prepared queries.
func (r reader) known(f func(*sql.Rows) error, query string, args ...any) error {
	return each(f)(r.statement(query).QueryContext(r.ctx, args...))
}

func (r reader) statement(query string) *sql.Stmt {
	return r.tx.StmtContext(r.ctx, r.store.prepared[query])
}

// each calls f with each row of an answer.
func (r reader) each(f func(*sql.Rows) error, query string, args ...any) error {
	return each(f)(r.tx.QueryContext(r.ctx, query, args...))
}

// each returns a function that calls f with each of the rows it is given.
func each(f func(*sql.Rows) error) func(*sql.Rows, error) error {
	return func(rows *sql.Rows, err error) error {
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			if err := f(rows); err != nil {
				return err
			}
		}
		return rows.Err()
	}
}

const runColumns = `position, record_id, task_id, attempt, machine, command, argv, cwd, repo, commit_id, outcome, exit_code, masked,
	started_at, ended_at, elapsed_ms, late, tags, imported_from, gate, gate_id`

func scanRun(rows *sql.Rows) (projections.Run, error) {
	var r projections.Run
	var task, imported, gate, gateID sql.NullString
	var attempt, exit sql.NullInt64
	var argv, tags, started, ended, outcome string
	err := rows.Scan(&r.Position, &r.RecordID, &task, &attempt, &r.Machine, &r.Command, &argv, &r.Cwd, &r.Repo, &r.Commit, &outcome, &exit, &r.Masked,
		&started, &ended, &r.ElapsedMS, &r.Late, &tags, &imported, &gate, &gateID)
	if err != nil {
		return r, err
	}
	r.TaskID, r.ImportedFrom, r.Attempt = task.String, imported.String, int(attempt.Int64)
	r.Gate, r.GateID = events.RunGate(gate.String), gateID.String
	r.Outcome, r.StartedAt, r.EndedAt = events.Outcome(outcome), parseTime(started), parseTime(ended)
	if exit.Valid {
		code := int(exit.Int64)
		r.ExitCode = &code
	}
	return r, errors.Join(fromJSON(argv, &r.Argv), fromJSON(tags, &r.Tags))
}

// newest reads up to limit+1 runs, the newest first.
func (r reader) newest(p projections.Page, where string, args ...any) (list []projections.Run, err error) {
	err = r.each(func(rows *sql.Rows) error {
		run, err := scanRun(rows)
		list = append(list, run)
		return err
	}, `SELECT `+runColumns+` FROM runs WHERE `+where+` AND position <= ? AND position < ? ORDER BY position DESC LIMIT ?`,
		append(args, int64(p.At), before(p), p.Limit+1)...)
	return list, err
}

// before is the position that a page's entries lie before.
func before(p projections.Page) int64 {
	if p.After == 0 {
		return 1<<63 - 1
	}
	return int64(p.After)
}

// Runs lists finished attempts, newest first.
func (v *View) Runs(ctx context.Context, p projections.Page, f RunFilter) (list []projections.Run, more bool, err error) {
	err = v.look(ctx, func(r reader) error {
		list, err = r.runs(p, f)
		return err
	})
	if len(list) > p.Limit {
		return list[:p.Limit], true, err
	}
	return list, false, err
}

func (r reader) runs(p projections.Page, f RunFilter) ([]projections.Run, error) {
	repo := projections.Place(f.Repo)
	remembered, hidden, err := r.remembered(f.Forgetful, p.At)
	if err != nil {
		return nil, err
	}
	where, args := remembered, hidden
	if f.Cwd != "" {
		where, args = where+" AND cwd_key = ? AND cwd_key <> ''", append(args, projections.Place(f.Cwd))
	}
	if f.Command == "" {
		if f.Machine != "" {
			where, args = where+" AND machine = ?", append(args, f.Machine)
		}
		if repo != "" {
			where, args = where+" AND repo_key = ? AND repo_key <> ''", append(args, repo)
		}
		return r.newest(p, where, args...)
	}
	form := commandForm(f.Command)
	var ids []int64
	err = r.each(func(rows *sql.Rows) error {
		s, err := scanSeries(rows)
		if err == nil && commandForm(s.command) == form && (f.Machine == "" || s.machine == f.Machine) && (repo == "" || s.repoKey == repo) {
			ids = append(ids, s.id)
		}
		return err
	}, `SELECT `+seriesColumns+` FROM series JOIN forms ON forms.series = series.id WHERE hash = ?`, hash64(form))
	if err != nil {
		return nil, err
	}
	var all []projections.Run
	for _, id := range ids {
		list, err := r.newest(p, where+" AND series = ? AND series IS NOT NULL", append(slices.Clone(args), id)...)
		if err != nil {
			return nil, err
		}
		all = append(all, list...)
	}
	slices.SortFunc(all, func(a, b projections.Run) int { return cmp.Compare(b.Position, a.Position) })
	return all[:min(len(all), p.Limit+1)], nil
}

// conclusionColumns are those of scanConclusion, as of position at.
func conclusionColumns(at events.Position) string {
	return `position, conclusion_id, stream, by, at, about_task, about_record, subject, text, supersedes,
		(SELECT later.conclusion_id FROM conclusions AS later WHERE later.supersedes = conclusions.conclusion_id AND later.position <= ` +
		strconv.FormatUint(uint64(min(at, 1<<62)), 10) + ` ORDER BY later.position DESC LIMIT 1)`
}

func scanConclusion(rows *sql.Rows) (projections.Conclusion, error) {
	var c projections.Conclusion
	var stream, at string
	var task, record, subject, supersedes, superseded sql.NullString
	err := rows.Scan(&c.Position, &c.ID, &stream, &c.By, &at, &task, &record, &subject, &c.Text, &supersedes, &superseded)
	if err != nil {
		return c, err
	}
	c.Stream, c.At, c.Supersedes, c.SupersededBy = events.Stream(stream), parseTime(at), supersedes.String, superseded.String
	if task.Valid || record.Valid {
		c.About = &events.About{TaskID: task.String, RecordID: record.String}
	}
	if subject.Valid {
		c.Subject = &events.Subject{}
		err = fromJSON(subject.String, c.Subject)
	}
	return c, err
}

func (r reader) conclusions(query string, args ...any) (list []projections.Conclusion, err error) {
	err = r.each(func(rows *sql.Rows) error {
		c, err := scanConclusion(rows)
		list = append(list, c)
		return err
	}, query, args...)
	return list, err
}

// Conclusions lists conclusions, newest first, about one task or record if about
// is given.
func (v *View) Conclusions(ctx context.Context, p projections.Page, about string) (list []projections.Conclusion, more bool, err error) {
	query, args := `SELECT `+conclusionColumns(p.At)+` FROM conclusions WHERE position <= ?1 AND position < ?2 ORDER BY position DESC LIMIT ?3`,
		[]any{int64(p.At), before(p), p.Limit + 1}
	if about != "" {
		run, err := v.log.FindID(ctx, about)
		if err != nil {
			return nil, false, err
		}
		query = `SELECT ` + conclusionColumns(p.At) + ` FROM conclusions WHERE position IN (
			SELECT position FROM conclusions WHERE about_task = ?4 AND about_task IS NOT NULL
			UNION ALL SELECT position FROM conclusions WHERE about_run = ?5 AND about_run IS NOT NULL)
			AND position <= ?1 AND position < ?2 ORDER BY position DESC LIMIT ?3`
		args = append(args, about, int64(run))
	}
	err = v.look(ctx, func(r reader) error {
		list, err = r.conclusions(query, args...)
		return err
	})
	if len(list) > p.Limit {
		return list[:p.Limit], true, err
	}
	return list, false, err
}

// Parked is an event that could not be folded.
type Parked struct {
	Position events.Position
	Type     events.Kind
	Stream   events.Stream
	Error    string
}

// Parked lists events that could not be folded, newest first.
func (v *View) Parked(ctx context.Context, limit int) (list []Parked, err error) {
	err = v.look(ctx, func(r reader) error {
		return r.each(func(rows *sql.Rows) error {
			var p Parked
			var kind, stream string
			err := rows.Scan(&p.Position, &kind, &stream, &p.Error)
			p.Type, p.Stream = events.Kind(kind), events.Stream(stream)
			list = append(list, p)
			return err
		}, `SELECT position, type, stream, error FROM parked ORDER BY position DESC LIMIT ?`, limit)
	})
	return list, err
}
