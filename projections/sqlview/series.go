package sqlview

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"time"

	"fleetledger/events"
	"fleetledger/projections"
)

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
	failure                   string
	seen                      int64
	// isNew is true until it is in the database.
	isNew bool
	// indexed is the seen that tried has it under, 0 for none.
	indexed int64
}

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
	series.failed, series.masked, series.first_at, series.last_at, series.last_run, series.tags, series.failure, series.seen`

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
		&s.firstAt, &s.lastAt, &s.lastRun, &tags, &s.failure, &s.seen)
	if err != nil {
		return nil, err
	}
	s.indexed = s.seen
	return s, fromJSON(tags, &s.tags)
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
		_, err := f.exec(`INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, s.id, s.key, s.command, s.machine, s.repo, s.repoKey,
			s.runs, s.succeeded, s.failed, s.masked, s.firstAt, s.lastAt, int64(s.lastRun), tags, s.failure, s.seen)
		s.isNew = false
		return err
	}
	_, err := f.exec(`UPDATE series SET repo = ?, runs = ?, succeeded = ?, failed = ?, masked = ?, first_at = ?, last_at = ?, last_run = ?, tags = ?, failure = ?, seen = ? WHERE id = ?`,
		s.repo, s.runs, s.succeeded, s.failed, s.masked, s.firstAt, s.lastAt, int64(s.lastRun), tags, s.failure, s.seen, s.id)
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
	texts := append(slices.Clone(s.tags), s.failure)
	err := f.each(func(rows *sql.Rows) error {
		var t string
		err := rows.Scan(&t)
		texts = append(texts, t)
		return err
	}, `SELECT text FROM series_conclusions JOIN conclusions USING (position) WHERE series = ? ORDER BY position DESC LIMIT ?`, s.id, maxNotes)
	return tokenText(texts...), err
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

func (s *series) addTags(tags []string) {
	for _, t := range tags {
		if !slices.Contains(s.tags, t) && len(s.tags) < maxTags {
			s.tags = append(s.tags, t)
		}
	}
}

// maxTags bounds the tags kept for a series; runs keep all of theirs.
const maxTags = 64
