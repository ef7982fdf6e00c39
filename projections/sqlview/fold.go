package sqlview

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
	"fleetledger/projections"
)

// fold writes what events tell into a store. One goroutine uses it.
type fold struct {
	log        events.Log // finds events by id
	conn       *sql.Conn
	statements map[string]*sql.Stmt

	// Of the transaction under way: series that have new runs or words, by id.
	dirty map[int64]*series
	// known finds a series without asking the database; it is bounded.
	known map[int64]*series
	// traces is true while something erased may still lie in SQLite's own log.
	traces bool
}

// series are the runs of one command on one machine in one repository, counted.
type series struct {
	id                        int64
	key                       int64
	command, machine          string
	repo, repoKey             string
	argv                      []string
	runs                      int
	succeeded, failed, masked int
	firstAt, lastAt           string
	lastRun                   events.Position
	tags                      []string
	seen                      int64
	// isNew is true until it is in the database.
	isNew bool
	// indexed is the seen that tried has it under, 0 for none.
	indexed int64
}

// maxKnown bounds the series kept at hand.
const maxKnown = 20000

func newFold(ctx context.Context, db *sql.DB, log events.Log) (*fold, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &fold{log: log, conn: conn, statements: map[string]*sql.Stmt{}, dirty: map[int64]*series{}, known: map[int64]*series{}}, nil
}

func (f *fold) close() error {
	var all error
	for _, s := range f.statements {
		all = errors.Join(all, s.Close())
	}
	return errors.Join(all, f.conn.Close())
}

func (f *fold) statement(query string) (*sql.Stmt, error) {
	if s := f.statements[query]; s != nil {
		return s, nil
	}
	s, err := f.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", query, err)
	}
	f.statements[query] = s
	return s, nil
}

func (f *fold) exec(query string, args ...any) (sql.Result, error) {
	s, err := f.statement(query)
	if err != nil {
		return nil, err
	}
	// Not with a context: a transaction ends whole, or by a crash.
	return s.ExecContext(context.Background(), args...)
}

// row reads one row; ok is false if there is none.
func (f *fold) row(query string, args []any, into ...any) (ok bool, err error) {
	s, err := f.statement(query)
	if err != nil {
		return false, err
	}
	err = s.QueryRowContext(context.Background(), args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// apply folds records and moves the cursor behind them, in one transaction. If one
// does not fit, nothing is folded.
func (f *fold) apply(recs []events.Record) (err error) {
	if _, err := f.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the fold panicked: %v", v)
		}
		if err != nil {
			f.forget()
			_, undo := f.exec("ROLLBACK")
			if undo != nil && !strings.Contains(undo.Error(), "no transaction is active") {
				err = errors.Join(err, undo)
			}
		}
	}()
	for i := range recs {
		if err := f.event(&recs[i]); err != nil {
			return err
		}
	}
	return f.commit(recs)
}

// forget drops what is at hand: it may tell of what was rolled back.
func (f *fold) forget() {
	clear(f.dirty)
	clear(f.known)
}

func (f *fold) commit(recs []events.Record) error {
	if err := f.flush(); err != nil {
		return err
	}
	if f.traces {
		// The full text index forgets words only when it merges.
		if _, err := f.exec(`INSERT INTO tried (tried) VALUES ('optimize')`); err != nil {
			return err
		}
		if _, err := f.exec(`UPDATE view SET traces = 1`); err != nil {
			return err
		}
	}
	last := recs[len(recs)-1]
	if recs[0].Header.Position == 1 {
		if _, err := f.exec(`UPDATE view SET fleet = ?, first = ?`, recs[0].Header.Fleet, recs[0].LeafHash.String()); err != nil {
			return err
		}
	}
	if _, err := f.exec(`UPDATE view SET position = ?, time = ?, last = ?`,
		int64(last.Header.Position), timeText(last.Header.Time), last.LeafHash.String()); err != nil {
		return err
	}
	_, err := f.exec("COMMIT")
	return err
}

// park notes an event that cannot be folded, and goes past it.
func (f *fold) park(r events.Record, why error) error {
	if _, err := f.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	_, err := f.exec(`INSERT OR REPLACE INTO parked VALUES (?, ?, ?, ?)`,
		int64(r.Header.Position), string(r.Header.Type), string(r.Header.Stream), why.Error())
	if err == nil {
		err = f.commit([]events.Record{r})
	}
	if err != nil {
		_, _ = f.exec("ROLLBACK") // the first error is the one that counts
	}
	return err
}

// event folds one event.
func (f *fold) event(r *events.Record) error {
	h := &r.Header
	if h.Type.IsExt() {
		return nil
	}
	if r.Erased {
		return f.withoutPayload(h)
	}
	switch h.Type {
	case events.TaskSubmitted{}.Kind(), events.TaskOpened{}.Kind(), events.TaskReported{}.Kind(), events.TaskSettled{}.Kind(),
		events.MemoryRecorded{}.Kind(), events.ConclusionRecorded{}.Kind(), events.MemoryConsolidated{}.Kind(),
		events.BlockPublished{}.Kind(), events.BlockAccepted{}.Kind(), events.PayloadErased{}.Kind():
	default:
		return nil
	}
	e, err := events.Decode(*r)
	if err != nil {
		return err
	}
	switch e := e.(type) {
	case events.TaskSubmitted:
		return f.taskSubmitted(h, e)
	case events.TaskOpened:
		_, err = f.exec(`UPDATE tasks SET status = 'open', opened_at = ? WHERE task_id = ?`, timeText(h.Time), taskOf(h.Stream))
	case events.TaskSettled:
		_, err = f.exec(`UPDATE tasks SET status = 'settled', verdict = ?, reason = ?, settled_at = ? WHERE task_id = ?`,
			string(e.Verdict), orNull(e.Reason), timeText(h.Time), taskOf(h.Stream))
	case events.TaskReported:
		return f.taskReported(h, e)
	case events.MemoryRecorded:
		run := newRun(h, e.Record.Envelope, e.Record.Argv)
		run.TaskID, run.Tags, run.ImportedFrom = e.Record.TaskID, e.Record.Tags, e.ImportedFrom
		run.Gate, run.GateID = e.Record.Gate, e.Record.GateID
		return f.run(h, run)
	case events.ConclusionRecorded:
		return f.concluded(h, e)
	case events.MemoryConsolidated:
		return f.consolidated(h, e)
	case events.BlockPublished:
		return f.blockPublished(h, e)
	case events.BlockAccepted:
		return f.blockAccepted(h, e)
	case events.PayloadErased:
		return f.erased(e)
	}
	return err
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
	_, err := f.exec(`INSERT INTO tasks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, 'awaiting_approval', NULL, NULL, NULL, NULL)`,
		e.TaskID, int64(h.Position), h.Actor, timeText(h.Time), string(c.Mode), projections.CommandLine(c.Argv), jsonText(c.Argv), parts,
		jsonText(c.Targets), orNull(c.Cwd), jsonText(c.Tags))
	return err
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
	return f.run(h, run)
}

func newRun(h *events.Header, e events.Envelope, argv []string) *projections.Run {
	return &projections.Run{
		RecordID: h.ID, Position: h.Position, Machine: e.Machine, Argv: argv, Command: projections.CommandLine(argv),
		Cwd: e.Cwd, Repo: e.Repo, Commit: e.Commit, Outcome: e.Outcome, ExitCode: e.ExitCode, Masked: e.Masked,
		StartedAt: e.StartedAt, EndedAt: e.EndedAt, ElapsedMS: e.ElapsedMS,
	}
}

func (f *fold) run(h *events.Header, r *projections.Run) error {
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
	ended := timeText(r.EndedAt)
	if _, err := f.exec(`INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		int64(r.Position), r.RecordID, id, orNull(r.TaskID), attempt, r.Machine, r.Command, jsonText(r.Argv), r.Cwd, projections.Place(r.Cwd), r.Repo, key, r.Commit,
		string(r.Outcome), exit, r.Masked, result, timeText(r.StartedAt), ended, r.ElapsedMS, r.Late, jsonText(r.Tags), orNull(r.ImportedFrom),
		orNull(string(r.Gate)), orNull(r.GateID)); err != nil {
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
	f.dirty[s.id] = s
	return nil
}

func (s *series) addTags(tags []string) {
	for _, t := range tags {
		if !slices.Contains(s.tags, t) && len(s.tags) < maxTags {
			s.tags = append(s.tags, t)
		}
	}
}

// maxTags bounds the tags kept for a series; runs keep all of theirs.
const maxTags = 64

func (s *series) count(result, ended string) {
	s.runs++
	switch result {
	case resultSucceeded:
		s.succeeded++
	case resultMasked:
		s.masked++
	default:
		s.failed++
	}
	if s.runs == 1 || ended < s.firstAt {
		s.firstAt = ended
	}
}

// seenSlots is how many series can have been seen last in the same microsecond.
const seenSlots = 1 << 12

// seenAt is where a run lies in the order of last runs: by time, then mostly by
// position. What claims to have ended after it was recorded ended then.
func seenAt(ended, recorded time.Time, position events.Position) int64 {
	if ended.After(recorded) {
		ended = recorded
	}
	return max(ended.UnixMicro(), 1)*seenSlots + int64(position)%seenSlots
}

// recordedAt is when an event was recorded.
func (f *fold) recordedAt(p events.Position) (time.Time, error) {
	for r, err := range f.log.ReadAll(context.Background(), p-1) {
		return r.Header.Time, err
	}
	return time.Time{}, fmt.Errorf("position %d is not in the log", p)
}

// seriesOf finds the series of a run, or begins it.
func (f *fold) seriesOf(r *projections.Run, repoKey string) (*series, error) {
	form := commandForm(r.Command)
	key := hash64(form, r.Machine, repoKey)
	if s := f.known[key]; s != nil {
		if commandForm(s.command) == form && s.machine == r.Machine && s.repoKey == repoKey {
			return s, nil
		}
	}
	s, err := f.loadSeries(`SELECT `+seriesColumns+` FROM series WHERE key = ?`, key, func(s *series) bool {
		return commandForm(s.command) == form && s.machine == r.Machine && s.repoKey == repoKey
	})
	if err != nil {
		return nil, err
	}
	if s == nil {
		s = &series{id: int64(r.Position), key: key, command: r.Command, machine: r.Machine, repo: r.Repo, repoKey: repoKey, argv: r.Argv, isNew: true}
		for _, form := range commandForms(r.Argv) {
			if _, err := f.exec(`INSERT OR IGNORE INTO forms VALUES (?, ?)`, hash64(form), s.id); err != nil {
				return nil, err
			}
		}
	}
	if len(f.known) >= maxKnown {
		clear(f.known)
		for _, d := range f.dirty {
			f.known[d.key] = d
		}
	}
	f.known[key] = s
	return s, nil
}

const seriesColumns = `series.id, series.key, series.command, series.machine, series.repo, series.repo_key, series.runs, series.succeeded,
	series.failed, series.masked, series.first_at, series.last_at, series.last_run, series.tags, series.seen`

// loadSeries reads the first series that a query gives and want accepts, nil if
// there is none.
func (f *fold) loadSeries(query string, arg int64, want func(*series) bool) (found *series, err error) {
	err = f.each(func(rows *sql.Rows) error {
		s, err := scanSeries(rows)
		if err == nil && found == nil && (want == nil || want(s)) {
			found = s
		}
		return err
	}, query, arg)
	return found, err
}

func scanSeries(rows *sql.Rows) (*series, error) {
	s := &series{}
	var tags string
	err := rows.Scan(&s.id, &s.key, &s.command, &s.machine, &s.repo, &s.repoKey, &s.runs, &s.succeeded, &s.failed, &s.masked,
		&s.firstAt, &s.lastAt, &s.lastRun, &tags, &s.seen)
	if err != nil {
		return nil, err
	}
	s.indexed = s.seen
	return s, fromJSON(tags, &s.tags)
}

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
	if e.Type == (events.TaskSubmitted{}).Kind() {
		// What ran is listed on, without what it was.
		id := taskOf(e.Stream)
		if err := f.each(one, `SELECT DISTINCT series FROM runs WHERE task_id = ? AND attempt IS NOT NULL AND series IS NOT NULL`, id); err != nil {
			return err
		}
		if _, err := f.exec(`UPDATE runs SET command = '', argv = '[]', tags = '[]', series = NULL WHERE task_id = ? AND attempt IS NOT NULL`, id); err != nil {
			return err
		}
		f.traces = true
		if _, err := f.exec(`UPDATE tasks SET mode = '', command = '', argv = '[]', parts = NULL, targets = '[]', cwd = NULL, tags = '[]' WHERE task_id = ?`, id); err != nil {
			return err
		}
	} else {
		if err := errors.Join(
			f.each(one, `SELECT series FROM series_conclusions WHERE position = ?`, position),
			f.each(one, `SELECT series FROM runs WHERE position = ? AND series IS NOT NULL`, position),
		); err != nil {
			return err
		}
		for _, q := range []string{
			`DELETE FROM runs WHERE position = ?`,
			`DELETE FROM series_conclusions WHERE position = ?`,
			`DELETE FROM conclusions WHERE position = ?`,
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
	if _, err := f.exec(`DELETE FROM tried WHERE rowid = ?`, old.seen); err != nil {
		return err
	}
	s := &series{id: old.id, key: old.key, command: old.command, machine: old.machine, repoKey: old.repoKey}
	err = f.each(func(rows *sql.Rows) error {
		var position int64
		var result, ended, repo, tags, command, argv string
		if err := rows.Scan(&position, &result, &ended, &repo, &tags, &command, &argv); err != nil {
			return err
		}
		var list []string
		if err := errors.Join(fromJSON(tags, &list), fromJSON(argv, &s.argv)); err != nil {
			return err
		}
		s.count(result, ended)
		if s.runs == 1 || ended >= s.lastAt {
			s.lastAt, s.lastRun, s.repo = ended, events.Position(position), repo
		}
		s.addTags(list)
		return nil
	}, `SELECT position, result, ended_at, repo, tags, command, argv FROM runs WHERE series = ? ORDER BY position`, id)
	if err != nil {
		return err
	}
	if s.runs == 0 {
		for _, q := range []string{`DELETE FROM series WHERE id = ?`, `DELETE FROM series_conclusions WHERE series = ?`, `DELETE FROM forms WHERE series = ?`} {
			if _, err := f.exec(q, id); err != nil {
				return err
			}
		}
		return nil
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

// flush writes the series that have changed, and their words, oldest first: a full
// text index takes rows in ascending order.
func (f *fold) flush() error {
	list := make([]*series, 0, len(f.dirty))
	for _, s := range f.dirty {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *series) int { return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.id, b.id)) })
	// First all old places are given up: a new one may be another's old one.
	for _, s := range list {
		if s.indexed == 0 {
			continue
		}
		if _, err := f.exec(`DELETE FROM tried WHERE rowid = ?`, s.indexed); err != nil {
			return err
		}
	}
	for _, s := range list {
		if err := f.place(s); err != nil {
			return err
		}
		notes, err := f.notes(s)
		if err != nil {
			return err
		}
		argv, err := f.argvOf(s)
		if err != nil {
			return err
		}
		if _, err := f.exec(`INSERT INTO tried (rowid, command, notes, at) VALUES (?, ?, ?, ?)`, s.seen,
			tokenText(commandForms(argv)...), notes, machineToken(s.machine)+" "+repoToken(s.repoKey)); err != nil {
			return err
		}
		s.indexed = s.seen
	}
	clear(f.dirty)
	return nil
}

// place writes a series under the first free seen from its own on.
func (f *fold) place(s *series) error {
	for {
		var taken int64
		ok, err := f.row(`SELECT id FROM series WHERE seen = ? AND id <> ?`, []any{s.seen, s.id}, &taken)
		if err != nil {
			return err
		}
		if !ok {
			break
		}
		s.seen++
	}
	tags := jsonText(s.tags)
	if s.isNew {
		_, err := f.exec(`INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, s.id, s.key, s.command, s.machine, s.repo, s.repoKey,
			s.runs, s.succeeded, s.failed, s.masked, s.firstAt, s.lastAt, int64(s.lastRun), tags, s.seen)
		s.isNew = false
		return err
	}
	_, err := f.exec(`UPDATE series SET repo = ?, runs = ?, succeeded = ?, failed = ?, masked = ?, first_at = ?, last_at = ?, last_run = ?, tags = ?, seen = ? WHERE id = ?`,
		s.repo, s.runs, s.succeeded, s.failed, s.masked, s.firstAt, s.lastAt, int64(s.lastRun), tags, s.seen, s.id)
	return err
}

func (f *fold) argvOf(s *series) ([]string, error) {
	if s.argv != nil {
		return s.argv, nil
	}
	var text string
	var argv []string
	if ok, err := f.row(`SELECT argv FROM runs WHERE position = ?`, []any{int64(s.lastRun)}, &text); err != nil || !ok {
		return nil, err
	}
	err := fromJSON(text, &argv)
	s.argv = argv
	return argv, err
}

// maxNotes bounds the conclusions whose words find a series.
const maxNotes = 100

// notes are the tags of a series and what was concluded about it, the newest first.
func (f *fold) notes(s *series) (string, error) {
	texts := slices.Clone(s.tags)
	err := f.each(func(rows *sql.Rows) error {
		var t string
		err := rows.Scan(&t)
		texts = append(texts, t)
		return err
	}, `SELECT text FROM series_conclusions JOIN conclusions USING (position) WHERE series = ? ORDER BY position DESC LIMIT ?`, s.id, maxNotes)
	return tokenText(texts...), err
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

// touch has the words of series written anew.
func (f *fold) touch(ids []int64) error {
	for _, id := range ids {
		if f.dirty[id] != nil {
			continue
		}
		s, err := f.loadSeries(`SELECT `+seriesColumns+` FROM series WHERE id = ?`, id, nil)
		if err != nil {
			return err
		}
		if s != nil {
			f.known[s.key] = s
			f.dirty[id] = s
		}
	}
	return nil
}

// each calls g with each row of an answer.
func (f *fold) each(g func(*sql.Rows) error, query string, args ...any) error {
	st, err := f.statement(query)
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(context.Background(), args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := g(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

// timeText is a time as the database has it: as text it sorts as time.
func timeText(t time.Time) string { return t.UTC().Format(events.TimeLayout) }

func parseTime(s string) time.Time {
	t, _ := time.Parse(events.TimeLayout, s) // written by timeText
	return t
}

func jsonText(v any) string {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("bug: a row does not encode: " + err.Error())
	}
	return string(b)
}

func fromJSON(s string, v any) error { return json.Unmarshal([]byte(s), v) }

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
