package sqlview

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math"
	"slices"
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
		if err := r.known(func(rows *sql.Rows) error { return rows.Scan(&out.Position) }, queryPosition); err != nil {
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
		if out.Answers, err = t.answers(t.found[:min(len(t.found), q.Limit)]); err != nil {
			return err
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
	asked [4]question    // at each rank

	// remembered is the condition on the runs that are counted, with what it asks for.
	remembered string
	hidden     []any
	inPlace    []projections.Consolidation
}

// forgetful reports whether anything is left out.
func (t *search) forgetful() bool { return t.remembered != "1" }

// add adds an answer of a rank, by what the reader remembers of it: that is counted,
// and has to match too. It reports whether c is one.
func (t *search) add(c *candidate, rank int) (bool, error) {
	if !t.forgetful() {
		t.found = append(t.found, match{c.series, rank})
		return true, nil
	}
	s := c.series
	left := &series{id: s.id, key: s.key, command: s.command, machine: s.machine, repo: s.repo, repoKey: s.repoKey, seen: s.seen}
	err := t.each(func(rows *sql.Rows) error {
		var position int64
		var result, ended, repo, tags, failure string
		if err := rows.Scan(&position, &result, &ended, &repo, &tags, &failure); err != nil {
			return err
		}
		return left.countRun(position, result, ended, repo, tags, failure)
	}, `SELECT `+countedColumns+` FROM runs WHERE `+t.remembered+` AND series = ? ORDER BY position`, append(slices.Clone(t.hidden), s.id)...)
	switch {
	case err != nil:
		return false, err
	case left.runs > 0:
		found := rank == 0 || t.rankOf((&candidate{left, c.concluded}).haystack()) == rank
		if found {
			t.found = append(t.found, match{left, rank})
		}
		return found, nil
	case len(t.inPlace) >= consolidationsShown:
		return false, nil
	}
	list, err := t.onSeries(s.id)
	for _, c := range list {
		if !slices.ContainsFunc(t.inPlace, func(x projections.Consolidation) bool { return x.ID == c.ID }) {
			t.inPlace = append(t.inPlace, c)
		}
	}
	return false, err
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
	var places []string
	if t.q.Machine != "" {
		places = append(places, machineToken(t.q.Machine))
	}
	if t.repo != "" {
		places = append(places, repoToken(t.repo))
	}
	t.asked = questions(t.q.Text, places)
	for rank := max(from, 1); rank < len(matchOrder); rank++ {
		if len(t.found) >= t.want || !t.asked[rank].asked {
			continue
		}
		before := int64(everyPlace)
		if rank == from {
			before = seen
		}
		if err := t.matching(ctx, rank, before); err != nil {
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

func (t *search) sameCommand(from int, seen int64) error {
	var hashes []int64
	for _, form := range queryForms(t.q.Text) {
		hashes = append(hashes, hash64(form))
	}
	t.exact = map[int64]bool{}
	var same []*series
	err := t.known(func(rows *sql.Rows) error {
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
	}, querySame, jsonText(hashes))
	for _, s := range same {
		if err != nil || len(t.found) >= t.want {
			break
		}
		_, err = t.add(&candidate{series: s}, 0)
	}
	return err
}

// answers tells of each match its counts, its last run, and the newest that was said
// about it.
func (t *search) answers(list []match) ([]Tried, error) {
	if len(list) == 0 {
		return nil, nil
	}
	ids := make([]int64, len(list))
	for i, m := range list {
		ids[i] = m.id
	}
	// Few have conclusions or consolidations: which do is one question.
	counted, concluded, cited := map[int64]*series{}, map[int64]bool{}, map[int64]bool{}
	if err := t.known(func(rows *sql.Rows) error {
		var hasConclusions, isCited bool
		s, err := scanSeries(rows, &hasConclusions, &isCited)
		if err == nil {
			counted[s.id], concluded[s.id], cited[s.id] = s, hasConclusions, isCited
		}
		return err
	}, queryCounts, jsonText(ids)); err != nil {
		return nil, err
	}
	last := make([]int64, len(list))
	for i := range list {
		if !t.forgetful() { // else it is what is remembered that counts
			list[i].series = counted[list[i].id]
		}
		last[i] = int64(list[i].lastRun)
	}
	runs := map[events.Position]projections.Run{}
	if err := t.known(func(rows *sql.Rows) error {
		run, err := scanRun(rows)
		runs[run.Position] = run
		return err
	}, queryRuns, jsonText(last)); err != nil {
		return nil, err
	}
	out := make([]Tried, len(list))
	for i, m := range list {
		out[i] = Tried{
			Command: m.command, Machine: m.machine, Repo: m.repo, Runs: m.runs, Succeeded: m.succeeded, Failed: m.failed, Masked: m.masked,
			FirstAt: parseTime(m.firstAt), LastAt: parseTime(m.lastAt), Last: runs[m.lastRun], Failure: m.failure,
			WhyMatched: matchOrder[m.rank], Cursor: cursorOf(m),
		}
		var err error
		if concluded[m.id] {
			out[i].Conclusions, err = t.conclusions(`SELECT `+conclusionColumns(math.MaxInt64)+` FROM conclusions JOIN series_conclusions USING (position)
				WHERE series = ? ORDER BY position DESC LIMIT ?`, m.id, conclusionsShown)
		}
		if err == nil && cited[m.id] {
			out[i].Consolidations, err = t.onSeries(m.id)
		}
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func cursorOf(m match) string {
	return base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64([]byte{byte(m.rank)}, uint64(m.seen)))
}

func parseCursor(cursor string) (rank int, seen int64, err error) {
	if cursor == "" {
		return 0, everyPlace, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err != nil || len(raw) != 9 || int(raw[0]) >= len(matchOrder) || raw[1]&0x80 != 0 {
		return 0, 0, ErrCursor
	}
	return int(raw[0]), int64(binary.BigEndian.Uint64(raw[1:])), nil
}
