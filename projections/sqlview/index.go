package sqlview

import (
	"database/sql"
	"errors"
	"slices"
)

// candidate is a series with what was concluded about it: all by which it is found.
type candidate struct {
	*series
	concluded []string
}

func (c *candidate) haystack() string {
	texts := append([]string{c.command}, c.tags...)
	return haystack(append(append(texts, c.failure), c.concluded...), machineToken(c.machine), repoToken(c.repoKey))
}

// maxNotes bounds the conclusions whose words find a series.
const maxNotes = 100

// concludedOn are the newest conclusions about a series.
func concludedOn(each func(func(*sql.Rows) error, string, ...any) error, series int64) (texts []string, err error) {
	err = each(func(rows *sql.Rows) error {
		var t string
		err := rows.Scan(&t)
		texts = append(texts, t)
		return err
	}, `SELECT text FROM series_conclusions JOIN conclusions USING (position) WHERE series = ? ORDER BY position DESC LIMIT ?`, series, maxNotes)
	return texts, err
}

// index writes the terms of a series.
func (f *fold) index(seen int64, terms string) error {
	_, err := f.exec(`INSERT INTO tried (rowid, terms) VALUES (?, ?)`, -seen, terms)
	return err
}

// indexPart is how many series are prepared at a time for an empty index.
const indexPart = 2000

// indexAll writes the terms of every series into an empty index, the last seen first.
func (f *fold) indexAll() error {
	if err := f.flush(); err != nil {
		return err
	}
	if _, err := f.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	f.forget()
	type entry struct {
		seen  int64
		terms string
	}
	// The terms of one part are prepared while those before are written.
	var part []candidate
	prepared := make(chan []entry, 1)
	under := false // something is being prepared
	prepare := func() {
		list := part
		part = nil
		under = true
		go func() {
			out := make([]entry, len(list))
			for i, c := range list {
				out[i] = entry{c.seen, indexText(c.haystack())}
			}
			prepared <- out
		}()
	}
	write := func() error {
		under = false
		for _, e := range <-prepared {
			if err := f.index(e.seen, e.terms); err != nil {
				return err
			}
		}
		return nil
	}
	err := f.each(func(rows *sql.Rows) error {
		var noted bool
		s, err := scanSeries(rows, &noted)
		c := candidate{series: s}
		if err == nil && noted {
			c.concluded, err = concludedOn(f.each, s.id)
		}
		if part = append(part, c); err != nil || len(part) < indexPart {
			return err
		}
		if under {
			err = write()
		}
		prepare()
		return err
	}, `SELECT `+seriesColumns+`, EXISTS (SELECT 1 FROM series_conclusions WHERE series = series.id) FROM series ORDER BY seen DESC`)
	if under {
		err = errors.Join(err, write())
	}
	if err == nil {
		prepare()
		err = write()
	}
	if err != nil {
		_, _ = f.exec("ROLLBACK") // the store is thrown away
		return err
	}
	_, err = f.exec("COMMIT")
	return err
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
