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

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"fleetledger/events"
)

// series are the runs of one command on one machine in one repository, counted.
type series struct {
	id                        int64
	key                       int64
	command, machine          string
	repo, repoKey             string
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

// countedColumns are the columns of runs that countRun takes.
const countedColumns = `position, result, ended_at, repo, tags, ifnull(failure, '')`

// countRun counts a run that is read in the order of positions.
func (s *series) countRun(position int64, result, ended, repo, tags, failure string) error {
	var list []string
	if err := fromJSON(tags, &list); err != nil {
		return err
	}
	s.count(result, ended)
	if s.runs == 1 || ended >= s.lastAt {
		s.lastAt, s.lastRun, s.repo = ended, events.Position(position), repo
	}
	s.addTags(list)
	if failure != "" {
		s.failure = failure
	}
	return nil
}

// seenSlots is how many series can have been seen last in the same second.
const seenSlots = 1 << 16

// seenAt is where a run lies in the order of last runs: by time in seconds, then by
// position, if those of a second are not too far apart. What claims to have ended after
// it was recorded ended then.
//
// The full text index keeps the differences, in fewer bytes the smaller they are: with
// microseconds it was twice as large.
func seenAt(ended, recorded time.Time, position events.Position) int64 {
	if ended.After(recorded) {
		ended = recorded
	}
	return max(ended.Unix(), 1)*seenSlots + int64(position)%seenSlots
}

// recordedAt is when an event was recorded.
func (f *fold) recordedAt(p events.Position) (time.Time, error) {
	for r, err := range f.log.ReadAll(context.Background(), p-1) {
		return r.Header.Time, err
	}
	return time.Time{}, fmt.Errorf("position %d is not in the log", p)
}

// seriesOf finds the series of a run, or begins it.
func (f *fold) seriesOf(r *preparedRun) (*series, error) {
	same := func(s *series) bool {
		return commandForm(s.command) == r.forms[0] && s.machine == r.Machine && s.repoKey == r.repoKey
	}
	var s *series
	if f.met == nil || f.met.has(r.key) {
		if s = f.known[r.key]; s != nil && same(s) {
			return s, nil
		}
		var err error
		if s, err = f.loadSeries(`SELECT `+seriesColumns+` FROM series WHERE key = ?`, r.key, same); err != nil {
			return nil, err
		}
	}
	if s == nil {
		s = &series{id: int64(r.Position), key: r.key, command: r.Command, machine: r.Machine, repo: r.Repo, repoKey: r.repoKey, isNew: true}
		for _, h := range r.hashes {
			f.forms = append(f.forms, form{h, s.id})
		}
	}
	if len(f.known) >= maxKnown {
		clear(f.known)
		for _, d := range f.dirty {
			f.known[d.key] = d
		}
	}
	f.known[r.key] = s
	if f.met != nil {
		f.met.add(r.key)
	}
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

// scanSeries reads a row of seriesColumns, and whatever columns follow.
func scanSeries(rows *sql.Rows, more ...any) (*series, error) {
	s := &series{}
	var tags string
	err := rows.Scan(append([]any{&s.id, &s.key, &s.command, &s.machine, &s.repo, &s.repoKey, &s.runs, &s.succeeded, &s.failed, &s.masked,
		&s.firstAt, &s.lastAt, &s.lastRun, &tags, &s.failure, &s.seen}, more...)...)
	if err != nil {
		return nil, err
	}
	s.indexed = s.seen
	return s, fromJSON(tags, &s.tags)
}

// form is a way in which the command of a series may be asked for, by its hash.
type form struct{ hash, series int64 }

// formsAtATime is how many forms are gathered before they are written, of a store that
// is filled.
const formsAtATime = 1 << 19

// spillForms writes the forms gathered while a store is filled, if they are at least so
// many.
func (f *fold) spillForms(least int) error {
	if len(f.forms) < least {
		return nil
	}
	if _, err := f.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := f.writeForms(); err != nil {
		return err
	}
	return f.insert("COMMIT")
}

// writeForms writes the forms gathered, in their order.
func (f *fold) writeForms() error {
	slices.SortFunc(f.forms, func(a, b form) int { return cmp.Or(cmp.Compare(a.hash, b.hash), cmp.Compare(a.series, b.series)) })
	const together = 16
	args := make([]any, 0, 2*together)
	for part := range slices.Chunk(f.forms, together) {
		args = args[:0]
		for _, x := range part {
			if x.series != 0 {
				args = append(args, x.hash, x.series)
			}
		}
		if len(args) == 0 {
			continue
		}
		if _, err := f.exec(`INSERT OR IGNORE INTO forms VALUES (?, ?)`+strings.Repeat(", (?, ?)", len(args)/2-1), args...); err != nil {
			return err
		}
	}
	f.forms = f.forms[:0]
	return nil
}

// dropForms takes away the forms of a series that is no more.
func (f *fold) dropForms(series int64) error {
	for i := range f.forms {
		if f.forms[i].series == series {
			f.forms[i].series = 0
		}
	}
	return f.insert(`DELETE FROM forms WHERE series = ?`, series)
}

// flush writes the series that have changed, and their words, newest first in
// the index, which takes rows in ascending order.
func (f *fold) flush() error {
	list := make([]*series, 0, len(f.dirty))
	for _, s := range f.dirty {
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b *series) int { return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.id, b.id)) })
	// First all old places are given up: a new one may be another's old one.
	for _, s := range list {
		if s.indexed == 0 || f.bulk {
			continue
		}
		if _, err := f.exec(`DELETE FROM tried WHERE rowid = ?`, -s.indexed); err != nil {
			return err
		}
	}
	for _, s := range list {
		if err := f.place(s); err != nil {
			return err
		}
	}
	if !f.bulk {
		if err := f.writeForms(); err != nil {
			return err
		}
		for _, s := range slices.Backward(list) {
			x := &candidate{series: s}
			var err error
			if x.concluded, err = concludedOn(f.each, s.id); err != nil {
				return err
			}
			if err := f.index(x.seen, indexText(x.haystack())); err != nil {
				return err
			}
			s.indexed = s.seen
		}
	}
	clear(f.dirty)
	return nil
}

// place writes a series under the first free seen from its own on.
func (f *fold) place(s *series) error {
	tags := jsonText(s.tags)
	for {
		var err error
		if s.isNew {
			_, err = f.exec(`INSERT INTO series VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`, s.id, s.key, s.command, s.machine, s.repo, s.repoKey,
				s.runs, s.succeeded, s.failed, s.masked, s.firstAt, s.lastAt, int64(s.lastRun), tags, s.failure, s.seen)
		} else {
			_, err = f.exec(`UPDATE series SET repo = ?, runs = ?, succeeded = ?, failed = ?, masked = ?, first_at = ?, last_at = ?, last_run = ?, tags = ?, failure = ?, seen = ? WHERE id = ?`,
				s.repo, s.runs, s.succeeded, s.failed, s.masked, s.firstAt, s.lastAt, int64(s.lastRun), tags, s.failure, s.seen, s.id)
		}
		if e, ok := errors.AsType[*sqlite.Error](err); ok && e.Code() == sqlite3.SQLITE_CONSTRAINT_UNIQUE {
			s.seen++ // another was seen last in that slot
			continue
		}
		s.isNew = s.isNew && err != nil
		return err
	}
}
