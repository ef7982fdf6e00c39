package sqlview

import (
	"context"
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

// scanCandidate reads a row of foundColumns; noted is true if there are conclusions.
func scanCandidate(rows *sql.Rows) (c candidate, noted bool, err error) {
	c.series = &series{}
	var tags string
	err = rows.Scan(&c.id, &c.seen, &c.command, &c.machine, &c.repoKey, &c.failure, &tags, &noted)
	return c, noted, errors.Join(err, fromJSON(tags, &c.tags))
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
const indexPart = 1000

// indexAll writes the terms of every series into an empty index, the last seen first.
// They are read and prepared beside that, by a connection that takes no locks: the
// transaction that writes the index changes nothing that is read.
func (s *store) indexAll(ctx context.Context) (err error) {
	f := s.fold
	f.forget()
	from, err := sql.Open("sqlite", dataSource(s.path, "mode=ro&immutable=1"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	prepared := make(chan []indexEntry, 2)
	var failed error // of the reading; read once prepared is closed
	go func() {
		defer close(prepared)
		failed = prepareIndex(ctx, from, prepared)
	}()
	if _, err = f.exec("BEGIN IMMEDIATE"); err == nil {
		for part := range prepared {
			for _, e := range part {
				if err == nil {
					err = f.index(e.seen, e.terms)
				}
			}
			if err != nil {
				stop() // the reading ends soon
			}
		}
	}
	stop()
	for range prepared {
	}
	if err == nil {
		err = failed
	}
	if err == nil {
		// One part instead of several: each costs every question a search of its own.
		err = f.insert(`INSERT INTO tried (tried) VALUES ('optimize')`)
	}
	if err == nil {
		err = f.insert("COMMIT") // else the store is thrown away
	}
	return err
}

type indexEntry struct {
	seen  int64
	terms string
}

// prepareIndex reads every series, the last seen first, and sends what the index has of
// each.
func prepareIndex(ctx context.Context, from *sql.DB, prepared chan<- []indexEntry) error {
	ask := func(f func(*sql.Rows) error, query string, args ...any) error {
		return each(f)(from.QueryContext(ctx, query, args...))
	}
	var part []indexEntry
	send := func() error {
		select {
		case prepared <- part:
			part = nil
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := ask(func(rows *sql.Rows) error {
		c, noted, err := scanCandidate(rows)
		if err == nil && noted {
			c.concluded, err = concludedOn(ask, c.id)
		}
		part = append(part, indexEntry{c.seen, indexText(c.haystack())})
		if err != nil || len(part) < indexPart {
			return err
		}
		return send()
	}, `SELECT `+foundColumns+` FROM series ORDER BY seen DESC`)
	if err != nil {
		return err
	}
	return send()
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
