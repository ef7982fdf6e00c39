package sqlview

import (
	"cmp"
	"context"
	"database/sql"
	"math"
	"slices"
	"strings"
)

// question is what a rank asks for: every needle must be in what a series says.
type question struct {
	asked   bool // false if this rank has no answers
	needles []string
	// terms find the series that may have them.
	terms []term
}

const (
	// maxWords bounds the words of a query that are looked for one by one, and the terms
	// by which series are found.
	maxWords = 128
	// maxWeighed bounds the terms of which the rarest is looked for.
	maxWeighed = 24
	// firstLook is how many series are looked at first, lookFurther by how much more at
	// each further look, up to lookMost.
	firstLook, lookFurther, lookMost = 32, 4, 1000
	// pageCost is what it costs to look through a page of the index, in series looked at.
	pageCost = 1
)

// questions are what is asked for at each rank.
func questions(text string, places []string) (out [4]question) {
	var all, parts question
	var whole []string
	spaceless := false
	seen := map[string]bool{}
	list := words(text)
	for _, w := range list {
		tokens := w.append(nil, true)
		whole = append(whole, tokens...)
		if n := needle(tokens...); !seen[n] && len(seen) < maxWords {
			seen[n] = true
			all.add(tokens)
			parts.add(w.tokens)
			spaceless = spaceless || w.spaceless
		}
	}
	switch {
	case len(whole) > 0:
		out[1].add(whole)
	case commandForm(text) == "":
		out[1].asked = true // for everything
	default:
		return out // for signs only: the same command, or nothing
	}
	if len(list) > 1 {
		out[2] = all
	}
	if spaceless {
		out[3] = parts
	}
	for rank := range out {
		for _, p := range places {
			if out[rank].asked {
				out[rank].add([]string{p})
			}
		}
	}
	return out
}

func (q *question) add(tokens []string) {
	q.asked = true
	q.needles = append(q.needles, needle(tokens...))
	for _, t := range termsOf(tokens) {
		if len(q.terms) < maxWords && !slices.ContainsFunc(q.terms, func(x term) bool { return slices.Equal(x, t) }) {
			q.terms = append(q.terms, t)
		}
	}
}

// holds reports whether a haystack has all that is asked for.
func (q *question) holds(haystack string) bool {
	for _, n := range q.needles {
		if !strings.Contains(haystack, n) {
			return false
		}
	}
	return q.asked
}

// rankOf is the best rank of a series that says what a haystack holds, 0 for none.
func (t *search) rankOf(haystack string) int {
	for rank := 1; rank < len(t.asked); rank++ {
		if t.asked[rank].holds(haystack) {
			return rank
		}
	}
	return 0
}

// matching adds the series of a rank that were seen before a place, the last first.
//
// The index is asked for those that have the rarest of the terms, and what they say tells
// which of them have the rest. If many do not, further terms without which they would not
// have been found are asked for too: each costs a look through all that have it, and most
// say nothing that others do not.
func (t *search) matching(ctx context.Context, rank int, before int64) error {
	terms, err := t.rarestFirst(ctx, t.asked[rank].terms)
	if err != nil {
		return err
	}
	n := min(1, len(terms))
	if rank == 1 {
		// Both are pairs, mostly: what has the two rarest is mostly an answer.
		n = min(2, len(terms))
	}
	oldest, err := t.oldest()
	if err != nil {
		return err
	}
	limit := max(firstLook, t.want)
	for looked := 0; looked < maxForgotten; looked += limit {
		list, err := t.page(ctx, terms[:n], before, limit)
		if err != nil {
			return err
		}
		newest, had := before, len(t.found)
		if len(list) > 0 {
			newest = list[0].seen
		}
		var others []string // haystacks of those that are no answers
		for _, c := range list {
			if len(t.found) >= t.want {
				return nil
			}
			before = c.seen
			if t.exact[c.id] {
				continue
			}
			text := c.haystack()
			found := false
			// What matches better only by runs that are forgotten matches worse.
			if r := t.rankOf(text); r == rank || r > 0 && r < rank && t.forgetful() {
				if found, err = t.add(&c, rank); err != nil {
					return err
				}
			}
			if !found {
				others = append(others, text)
			}
		}
		if len(list) < limit || ctx.Err() != nil {
			return ctx.Err()
		}
		// If it goes on like this, so many times as many are still to be looked at.
		further := float64(before-oldest) / float64(max(newest-before, 1))
		if n := len(t.found) - had; n > 0 {
			further = min(further, float64(t.want-len(t.found))/float64(n))
		}
		n += tellApart(terms[n:], others, further)
		limit = min(lookFurther*limit, lookMost)
	}
	return nil
}

// oldest is the place of the series that was seen first.
func (t *search) oldest() (seen int64, err error) {
	return seen, t.known(func(rows *sql.Rows) error { return rows.Scan(&seen) }, queryOldest)
}

// tellApart puts those terms first that are worth asking for too, and returns how many
// these are. The haystacks are those of a look that were no answers; so many times as
// many are expected further on. A term is worth it if it costs less to look through its
// pages than to look at all that lack it.
func tellApart(terms []weighed, haystacks []string, further float64) (n int) {
	for ; n < len(terms); n++ {
		best, most := 0, 0.0
		for i, x := range terms[n:] {
			lack := 0
			for _, h := range haystacks {
				if !strings.Contains(h, x.needle()) {
					lack++
				}
			}
			if gain := float64(lack)*further - float64(x.pages)*pageCost; lack > 0 && gain > most {
				best, most = n+i, gain
			}
		}
		if most == 0 {
			return n
		}
		terms[n], terms[best] = terms[best], terms[n]
		haystacks = slices.DeleteFunc(haystacks, func(h string) bool { return !strings.Contains(h, terms[n].needle()) })
	}
	return n
}

// weighed is a term and how many pages of the index its rows reach over; of the terms past
// maxWeighed the most that any of the others has.
type weighed struct {
	term
	pages int64
}

// maxForgotten bounds how many series are looked at for those that are answers and of
// which the reader remembers something.
const maxForgotten = 100_000

// rarestFirst puts those terms first of which the index has least.
//
// It goes by how far a term's rows reach in the index: tried_idx says on which page of
// a part each term begins (https://sqlite.org/fts5.html#the_fts_index_idx_and_data_tables_).
// A rare term that shares its page with the beginning of a common one looks like that.
// It is only an order to look in; the answers are the same in any.
func (t *search) rarestFirst(ctx context.Context, terms []term) ([]weighed, error) {
	out := make([]weighed, len(terms))
	for i, x := range terms {
		out[i].term = x
	}
	if len(terms) < 2 {
		return out, nil
	}
	// The longest are most likely to be rare.
	slices.SortStableFunc(out, func(a, b weighed) int { return cmp.Compare(len(b.indexed()), len(a.indexed())) })
	list := out[:min(len(out), maxWeighed)]
	texts := make([]string, len(list))
	for i, x := range list {
		texts[i] = x.indexed()
	}
	pages := map[string]int64{}
	rows, err := t.statement(queryPages).QueryContext(ctx, jsonText(texts))
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var word string
		var n int64
		if err := rows.Scan(&word, &n); err != nil {
			return nil, err
		}
		pages[word] = n
	}
	for i := range list {
		list[i].pages = pages[texts[i]]
	}
	slices.SortStableFunc(list, func(a, b weighed) int { return cmp.Compare(a.pages, b.pages) })
	for i := len(list); i < len(out); i++ {
		out[i].pages = list[len(list)-1].pages
	}
	return out, rows.Err()
}

// page reads the series that have terms and were seen before a place, the last first.
func (t *search) page(ctx context.Context, terms []weighed, before int64, limit int) (list []candidate, err error) {
	var noted []int
	one := func(rows *sql.Rows) error {
		c, isNoted, err := scanCandidate(rows)
		if isNoted {
			noted = append(noted, len(list))
		}
		list = append(list, c)
		return err
	}
	if len(terms) == 0 {
		err = t.known(one, queryNewest, before, limit)
	} else {
		texts := make([]string, len(terms))
		for i, x := range terms {
			texts[i] = `"` + x.indexed() + `"`
		}
		var places string
		err = t.statement(queryTerms).QueryRowContext(ctx, strings.Join(texts, " AND "), -before, limit).Scan(&places)
		if err == nil {
			err = t.known(one, queryPlaces, places)
		}
	}
	for _, i := range noted {
		if err == nil {
			list[i].concluded, err = concludedOn(t.each, list[i].id)
		}
	}
	return list, err
}

// everyPlace is before every place in the order of last runs.
const everyPlace = math.MaxInt64

// Only that by which a series is found: most are looked at to no purpose.
const foundColumns = `id, seen, command, machine, repo_key, failure, tags, EXISTS (SELECT 1 FROM series_conclusions WHERE series = series.id)`

// The questions of tried; they are prepared once.
const (
	queryPosition = `SELECT position FROM view`
	querySame     = `SELECT ` + seriesColumns + ` FROM series WHERE id IN (SELECT series FROM forms WHERE hash IN (SELECT value FROM json_each(?))) ORDER BY seen DESC`
	queryNewest   = `SELECT ` + foundColumns + ` FROM series WHERE seen < ? ORDER BY seen DESC LIMIT ?`
	queryPlaces   = `SELECT ` + foundColumns + ` FROM series WHERE seen IN (SELECT value FROM json_each(?)) ORDER BY seen DESC`
	// The order by rowid is that of the index: it is read only as far as it takes.
	// Gathered in one row, for the driver heeds the context only until the first is there.
	queryTerms = `SELECT json_group_array(-rowid) FROM (SELECT rowid FROM tried WHERE tried MATCH ? AND rowid > ? ORDER BY rowid LIMIT ?)`
	// How many pages the rows of each term reach over, in all parts of the index.
	queryPages = `WITH RECURSIVE
		part (id) AS (SELECT min(segid) FROM tried_idx UNION ALL
			SELECT (SELECT min(segid) FROM tried_idx WHERE segid > part.id) FROM part WHERE part.id IS NOT NULL),
		term (word, key) AS (SELECT value, CAST('0' || value AS BLOB) FROM json_each(?))
		SELECT word, sum(
			ifnull((SELECT pgno >> 1 FROM tried_idx WHERE segid = part.id AND term > key ORDER BY term LIMIT 1) -
			(SELECT pgno >> 1 FROM tried_idx WHERE segid = part.id AND term <= key ORDER BY term DESC LIMIT 1), 0))
		FROM term, part WHERE part.id IS NOT NULL GROUP BY word`
	queryOldest = `SELECT ifnull(min(seen), 0) FROM series`
	queryCounts = `SELECT ` + seriesColumns + `, EXISTS (SELECT 1 FROM series_conclusions WHERE series = series.id), EXISTS (SELECT 1 FROM cited WHERE cited.series = series.id)
		FROM series WHERE id IN (SELECT value FROM json_each(?))`
	queryRuns = `SELECT ` + runColumns + ` FROM runs WHERE position IN (SELECT value FROM json_each(?))`
)

var triedQueries = []string{queryPosition, querySame, queryNewest, queryPlaces, queryTerms, queryPages, queryOldest, queryCounts, queryRuns}
