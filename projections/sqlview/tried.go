package sqlview

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"fleetledger/events"
	"fleetledger/projections"
)

// Why an answer matched, best first: the answers of Tried come in this order.
const (
	MatchedCommand   = "same_command"
	MatchedPhrase    = "same_phrase"
	MatchedWords     = "same_words"
	MatchedSubstring = "same_substring"
)

var matchOrder = []string{MatchedCommand, MatchedPhrase, MatchedWords, MatchedSubstring}

// Tried is what is known of one command in one repository on one machine.
type Tried struct {
	Command, Machine, Repo    string
	Runs                      int
	Succeeded, Failed, Masked int
	FirstAt, LastAt           time.Time
	Last                      projections.Run
	// Conclusions are the newest about any of its runs.
	Conclusions []projections.Conclusion
	// Consolidations are the newest that rest on any of its runs.
	Consolidations []projections.Consolidation
	// Failure names what went wrong in the last run that failed and told, see runs.failure.
	Failure    string
	WhyMatched string
	// Cursor goes on behind this answer.
	Cursor string
}

// Query asks what was already tried. Empty fields match everything.
type Query struct {
	Text, Machine, Repo string
	// Forgetful leaves out the runs that this reader, an actor, has forgotten; empty
	// leaves out nothing.
	Forgetful string
	// Cursor is that of the last answer had, empty for the first.
	Cursor string
	Limit  int
}

// ErrCursor says that a cursor is none of Tried's.
var ErrCursor = errors.New("this is no cursor of tried")

const (
	conclusionsShown = 20
	// searchTime bounds the search; what it has found by then is the answer.
	searchTime = 2 * time.Second
)

// Found are the answers to a Query.
type Found struct {
	Answers []Tried
	// InPlace are consolidations that rest on runs which would be answers, had the
	// reader not forgotten them.
	InPlace []projections.Consolidation
	// Position is that of the last event looked at.
	Position events.Position
	// More is true if there are more answers behind the last.
	More bool
	// Cut is true if the search was ended before it was through.
	Cut bool
}

// Tried answers "what did we already try?": runs grouped by command, repository
// and machine, the same command first, then the same phrase, the same words, and
// parts of words in scripts that have no spaces, each found in the command, its
// tags or its conclusions. A shell's line (sh -c LINE) is the same command as
// LINE. Within a rank those that ran last come first.
func (v *View) Tried(ctx context.Context, q Query) (Found, error) {
	from, seen, err := parseCursor(q.Cursor)
	if err != nil {
		return Found{}, err
	}
	var out Found
	err = v.look(ctx, func(r reader) error {
		if err := r.each(func(rows *sql.Rows) error { return rows.Scan(&out.Position) }, `SELECT position FROM view`); err != nil {
			return err
		}
		t := search{reader: r, q: q, repo: projections.Place(q.Repo), want: q.Limit + 1}
		if t.remembered, t.hidden, err = r.remembered(q.Forgetful, math.MaxInt64); err != nil {
			return err
		}
		err := t.run(from, seen)
		if err != nil && !errors.Is(err, errCut) {
			return err
		}
		out.Cut = err != nil
		out.More = len(t.found) > q.Limit
		for _, m := range t.found[:min(len(t.found), q.Limit)] {
			a, err := r.answer(m)
			if err != nil {
				return err
			}
			out.Answers = append(out.Answers, a)
		}
		out.InPlace = t.inPlace
		return nil
	})
	return out, err
}

var errCut = errors.New("the search took too long")

// match is a series that answers, and how well.
type match struct {
	*series
	rank int
}

type search struct {
	reader
	q     Query
	repo  string
	want  int
	found []match
	exact map[int64]bool // series.id

	// remembered is the condition on the runs that are counted, with what it asks for.
	remembered string
	hidden     []any
	inPlace    []projections.Consolidation
}

// forgetful reports whether anything is left out.
func (t *search) forgetful() bool { return t.remembered != "1" }

// add adds an answer, counting only what the reader remembers of it.
func (t *search) add(s *series, rank int) error {
	if !t.forgetful() {
		t.found = append(t.found, match{s, rank})
		return nil
	}
	left := &series{id: s.id, key: s.key, command: s.command, machine: s.machine, repo: s.repo, repoKey: s.repoKey, failure: s.failure, seen: s.seen}
	err := t.each(func(rows *sql.Rows) error {
		var position int64
		var result, ended, repo string
		if err := rows.Scan(&position, &result, &ended, &repo); err != nil {
			return err
		}
		left.count(result, ended)
		if left.runs == 1 || ended >= left.lastAt {
			left.lastAt, left.lastRun, left.repo = ended, events.Position(position), repo
		}
		return nil
	}, `SELECT position, result, ended_at, repo FROM runs WHERE `+t.remembered+` AND series = ? ORDER BY position`, append(slices.Clone(t.hidden), s.id)...)
	switch {
	case err != nil:
		return err
	case left.runs > 0:
		t.found = append(t.found, match{left, rank})
		return nil
	case len(t.inPlace) >= consolidationsShown:
		return nil
	}
	list, err := t.onSeries(s.id)
	for _, c := range list {
		if !slices.ContainsFunc(t.inPlace, func(x projections.Consolidation) bool { return x.ID == c.ID }) {
			t.inPlace = append(t.inPlace, c)
		}
	}
	return err
}

// run looks through the ranks from one on; of that one only for what was seen
// before the given place.
func (t *search) run(from int, seen int64) error {
	everything := commandForm(t.q.Text) == ""
	if !everything {
		// Always: what is the same command is not shown again in another rank.
		if err := t.sameCommand(from, seen); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(t.ctx, searchTime)
	defer cancel()
	exprs, everyWord := t.expressions()
	first := max(from, 1)
	if from <= 1 && everyWord != "" {
		done, err := t.rare(ctx, exprs[1], everyWord, from, seen)
		if err != nil {
			return t.cut(ctx, err)
		}
		if done {
			first = 3
		}
	}
	for rank := first; rank < len(matchOrder); rank++ {
		if len(t.found) >= t.want || exprs[rank] == "" {
			continue
		}
		before := int64(1<<63 - 1)
		if rank == from {
			before = seen
		}
		if err := t.matching(ctx, rank, exprs[rank], before); err != nil {
			return t.cut(ctx, err)
		}
	}
	return nil
}

// cut tells a search that took too long from one that failed.
func (t *search) cut(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && t.ctx.Err() == nil {
		return errCut
	}
	return err
}

// rare answers the ranks of the phrase and of the words at once, if so few have the
// words that all of them are at hand: most pasted commands are like no other, and to
// find that out once is enough. It is not done if there are more.
func (t *search) rare(ctx context.Context, samePhrase, everyWord string, from int, before int64) (done bool, err error) {
	limit := t.want + len(t.exact)
	all, err := t.page(ctx, everyWord, math.MaxInt64, limit)
	if err != nil || len(all) >= limit || t.forgetful() {
		return false, err
	}
	all = slices.DeleteFunc(all, func(s *series) bool { return t.exact[s.id] })
	phrased := map[int64]bool{}
	if len(all) > 0 {
		list, err := t.page(ctx, samePhrase, math.MaxInt64, limit)
		if err != nil {
			return false, err
		}
		for _, s := range list {
			phrased[s.id] = true
		}
	}
	for _, rank := range []int{1, 2} {
		for _, s := range all {
			if len(t.found) >= t.want {
				return true, nil
			}
			if phrased[s.id] == (rank == 1) && (rank > from || s.seen < before) {
				t.found = append(t.found, match{s, rank})
			}
		}
	}
	return true, nil
}

func (t *search) sameCommand(from int, seen int64) error {
	forms := queryForms(t.q.Text)
	hashes := []any{hash64(forms[0]), hash64(forms[len(forms)-1])}
	t.exact = map[int64]bool{}
	var same []*series
	err := t.each(func(rows *sql.Rows) error {
		s, err := scanSeries(rows)
		if err != nil {
			return err
		}
		if t.exact[s.id] || t.q.Machine != "" && s.machine != t.q.Machine || t.repo != "" && s.repoKey != t.repo {
			return nil
		}
		t.exact[s.id] = true
		if from == 0 && s.seen < seen {
			same = append(same, s)
		}
		return nil
	}, `SELECT `+seriesColumns+` FROM series WHERE id IN (SELECT series FROM forms WHERE hash IN (?, ?)) ORDER BY seen DESC`, hashes...)
	for _, s := range same {
		if err != nil || len(t.found) >= t.want {
			break
		}
		err = t.add(s, 0)
	}
	return err
}

// matching adds what a full text expression finds.
func (t *search) matching(ctx context.Context, rank int, expr string, before int64) error {
	// One page is enough unless the reader has forgotten what is on it.
	limit := t.want + len(t.exact)
	for looked := 0; looked < maxForgotten; looked += limit {
		list, err := t.page(ctx, expr, before, limit)
		if err != nil {
			return err
		}
		for _, s := range list {
			switch {
			case len(t.found) >= t.want:
				return nil
			case t.exact[s.id]:
				continue
			}
			if err := t.add(s, rank); err != nil {
				return err
			}
		}
		if len(list) < limit || ctx.Err() != nil {
			return ctx.Err()
		}
		before = list[len(list)-1].seen
	}
	return nil
}

// page reads the series that an expression finds before a place, the last seen first.
func (t *search) page(ctx context.Context, expr string, before int64, limit int) (list []*series, err error) {
	one := func(rows *sql.Rows) error {
		s, err := scanSeries(rows)
		list = append(list, s)
		return err
	}
	if expr == everyRow {
		err = t.each(one, `SELECT `+seriesColumns+` FROM series WHERE seen < ? ORDER BY seen DESC LIMIT ?`, before, limit)
		return list, err
	}
	// The order by rowid is that of the index: it is read from its end only as far
	// as it takes. Gathered in one row, for the driver heeds the context only until
	// the first is there.
	var seen string
	err = t.tx.QueryRowContext(ctx, `SELECT json_group_array(rowid) FROM (SELECT rowid FROM tried WHERE tried MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?)`,
		expr, before, limit).Scan(&seen)
	if err == nil {
		err = t.each(one, `SELECT `+seriesColumns+` FROM series WHERE seen IN (SELECT value FROM json_each(?)) ORDER BY seen DESC`, seen)
	}
	return list, err
}

// maxForgotten bounds how many series are looked at for those of which the reader
// remembers something.
const maxForgotten = 100_000

// everyRow stands for the query that every series answers.
const everyRow = "*"

// maxWords bounds the words of a query that are looked for one by one.
const maxWords = 128

// expressions are what FTS5 is asked at each rank, empty for nothing, and what finds
// the same words whether or not they are a phrase, empty for a single word. They hold
// only tokens that words gives out, in quotes: no query can be a syntax error.
func (t *search) expressions() (out [4]string, everyWord string) {
	var place []string
	if t.q.Machine != "" {
		place = append(place, `at : "`+machineToken(t.q.Machine)+`"`)
	}
	if t.repo != "" {
		place = append(place, `at : "`+repoToken(t.repo)+`"`)
	}
	where := strings.Join(place, " AND ")
	if commandForm(t.q.Text) == "" {
		if out[1] = where; where == "" {
			out[1] = everyRow
		}
		return out, ""
	}
	list := words(t.q.Text)
	if len(list) == 0 {
		return out, "" // signs only: the same command, or nothing
	}
	if where != "" {
		where = " AND " + where
	}
	const in = `{command notes} : `
	var all, parts []string
	whole, spaceless := []string(nil), false
	for _, w := range list {
		whole = w.append(whole, true)
		spaceless = spaceless || w.spaceless
		if one := phrase(w.append(nil, true)); !slices.Contains(all, one) && len(all) < maxWords {
			all = append(all, one)
			parts = append(parts, phrase(w.append(nil, false)))
		}
	}
	same := in + phrase(whole)
	each := in + "(" + strings.Join(all, " AND ") + ")"
	out[1] = same + where
	if len(all) > 1 {
		everyWord = each + where
		out[2] = "(" + each + where + ") NOT " + same
	}
	if spaceless {
		out[3] = "(" + in + "(" + strings.Join(parts, " AND ") + ")" + where + ") NOT " + each
	}
	return out, everyWord
}

func phrase(tokens []string) string { return `"` + strings.Join(tokens, " ") + `"` }

func (r reader) answer(m match) (Tried, error) {
	out := Tried{
		Command: m.command, Machine: m.machine, Repo: m.repo, Runs: m.runs, Succeeded: m.succeeded, Failed: m.failed, Masked: m.masked,
		FirstAt: parseTime(m.firstAt), LastAt: parseTime(m.lastAt), Failure: m.failure, WhyMatched: matchOrder[m.rank], Cursor: cursorOf(m),
	}
	if err := r.each(func(rows *sql.Rows) (err error) {
		out.Last, err = scanRun(rows)
		return err
	}, `SELECT `+runColumns+` FROM runs WHERE position = ?`, int64(m.lastRun)); err != nil {
		return out, err
	}
	var err error
	out.Conclusions, err = r.conclusions(`SELECT `+conclusionColumns(math.MaxInt64)+` FROM conclusions JOIN series_conclusions USING (position)
		WHERE series = ? ORDER BY position DESC LIMIT ?`, m.id, conclusionsShown)
	if err != nil {
		return out, err
	}
	out.Consolidations, err = r.onSeries(m.id)
	return out, err
}

func cursorOf(m match) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{byte(m.rank)}, uint64(m.seen)))
}

func parseCursor(cursor string) (rank int, seen int64, err error) {
	if cursor == "" {
		return 0, 1<<63 - 1, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) != 9 || int(raw[0]) >= len(matchOrder) || raw[1]&0x80 != 0 {
		return 0, 0, ErrCursor
	}
	return int(raw[0]), int64(binary.BigEndian.Uint64(raw[1:])), nil
}
