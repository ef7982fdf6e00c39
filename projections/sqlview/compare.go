package sqlview

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"fleetledger/events"
)

// Comparison is what Compare found.
type Comparison struct {
	// File is the name of the file that was compared, "" if there is none to compare;
	// Skipped says why, if there are files.
	File, Skipped string
	Tables, Rows  int
	Differences   []Difference
}

// Difference is the first row of a table, or what else of a file, that is not what the
// log gives.
type Difference struct {
	// Position is that of the event which the row is about, where the row has it, or
	// else the last one's.
	Position events.Position
	Detail   string
	File     any // as it is; nil if it is not there
	Log      any // as the log gives it
}

// Compare compares the view in a folder, which nobody has open and in which nothing is
// changed, row by row with one that it makes anew from the log. That takes as long as
// making it, and room for two of it in a temporary folder. at is called with how far it
// is. The error is for what could not be compared.
func Compare(ctx context.Context, log events.Log, dir string, at func(events.Position)) (c Comparison, err error) {
	numbers, err := storesIn(dir)
	if err != nil || len(numbers) == 0 {
		return c, err
	}
	tmp, err := os.MkdirTemp("", "fleetledger-view-")
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tmp)) }()
	was, err := c.newest(ctx, log, dir, numbers, tmp)
	if err != nil || was == nil {
		return c, err
	}
	defer func() { err = errors.Join(err, was.close()) }()
	if err := was.integrity(ctx); err != nil {
		c.differ(log.Durable(), nil, nil, "SQLite finds the file damaged: %v", err)
		return c, ctx.Err()
	}
	now, err := makeStore(ctx, filepath.Join(tmp, "now.db"), log, at)
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, now.close()) }()
	err = c.compare(ctx, log.Durable(), was, now)
	if damaged(err) {
		c.differ(log.Durable(), nil, nil, "SQLite finds the file damaged: %v", err)
		err = nil
	}
	return c, err
}

// storesIn are the numbers of the stores in a folder, in order.
func storesIn(dir string) ([]int, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("the view: %w", err)
	}
	var numbers []int
	for _, e := range entries {
		if n := storeNumber(e.Name()); n > 0 {
			numbers = append(numbers, n)
		}
	}
	slices.Sort(numbers)
	return slices.Compact(numbers), nil
}

func (c *Comparison) differ(p events.Position, file, log any, format string, args ...any) {
	c.Differences = append(c.Differences, Difference{p, c.File + ": " + fmt.Sprintf(format, args...), file, log})
}

// newest opens a copy of the store that a start would take, brought up to the log's
// end as a start would do. It is nil if there is none, or none that can be opened.
func (c *Comparison) newest(ctx context.Context, log events.Log, dir string, numbers []int, tmp string) (*store, error) {
	for _, n := range slices.Backward(numbers) {
		c.File = storeName(n)
		path := filepath.Join(tmp, c.File)
		for _, suffix := range []string{"", "-wal", "-journal"} {
			if err := copyFile(filepath.Join(dir, c.File+suffix), path+suffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		s, err := openStore(ctx, path, log)
		if err == nil {
			return s, c.catchUp(ctx, log, s)
		}
		stale, ok := errors.AsType[*errStale](err)
		switch {
		case ok && !stale.wrong:
			c.Skipped = c.File + ": " + stale.why
		case ok || damaged(err):
			c.differ(log.Durable(), nil, nil, "%v", err)
			return nil, nil
		default:
			return nil, err
		}
	}
	c.File = ""
	return nil, nil
}

func (c *Comparison) catchUp(ctx context.Context, log events.Log, s *store) error {
	for {
		position, _, _, err := s.standing(ctx)
		if err != nil || position >= log.Durable() {
			return err
		}
		batch, err := readBatch(ctx, log, position, batchEvents)
		if err == nil {
			_, err = s.fold.all(batch)
		}
		if err != nil {
			return err
		}
	}
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// integrity has SQLite check the file, its indexes too.
func (s *store) integrity(ctx context.Context) error {
	return s.lines(ctx, `PRAGMA integrity_check(1)`, func(row []any) error {
		if text := fmt.Sprint(row[0]); text != "ok" {
			return errors.New(text)
		}
		return nil
	})
}

// lines calls f with each row of an answer.
func (s *store) lines(ctx context.Context, query string, f func(row []any) error) error {
	rows, err := s.fold.conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	for {
		row, err := next(rows)
		if err != nil || row == nil {
			return err
		}
		if err := f(row); err != nil {
			return err
		}
	}
}

// next is the next row, nil behind the last.
func next(rows *sql.Rows) ([]any, error) {
	if !rows.Next() {
		return nil, rows.Err()
	}
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	row := make([]any, len(names))
	into := make([]any, len(names))
	for i := range row {
		into[i] = &row[i]
	}
	return row, rows.Scan(into...)
}

// compare compares two stores that have folded the same log.
func (c *Comparison) compare(ctx context.Context, end events.Position, was, now *store) error {
	schema := `SELECT type || ' ' || name AS object, sql FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%' AND tbl_name NOT LIKE 'tried_%' ORDER BY object`
	if same, err := c.rows(ctx, end, was, now, "sqlite_schema", schema, 1); err != nil || !same {
		return err
	}
	for _, s := range []*store{was, now} {
		if _, err := s.fold.exec(`CREATE TEMP TABLE first_runs AS SELECT series, min(position) AS first FROM runs WHERE series IS NOT NULL GROUP BY series`); err != nil {
			return err
		}
		if _, err := s.fold.exec(`CREATE UNIQUE INDEX temp.first_runs_by_series ON first_runs (series)`); err != nil {
			return err
		}
	}
	var tables []string
	if err := now.lines(ctx, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name NOT LIKE 'tried%' ORDER BY name`, func(row []any) error {
		tables = append(tables, row[0].(string))
		return nil
	}); err != nil {
		return err
	}
	for _, table := range tables {
		query, keys, err := now.wholeTable(ctx, table)
		if err == nil {
			_, err = c.rows(ctx, end, was, now, table, query, keys)
		}
		if err != nil {
			return err
		}
		c.Tables++
	}
	c.Tables++
	return c.words(ctx, end, was, now)
}

// uncompared are columns that are not what the log gives, but how it was folded, and what
// is compared in their place.
var uncompared = map[string]string{
	"view.complete": "1", // a new store has not taken the place of another
	"view.traces":   "0", // what SQLite keeps beside a store
	// Which of two series comes first that were seen in the same second.
	"series.seen": fmt.Sprintf("seen / %d", seenSlots),
	// A series has the position of the first run that was met as its id, which may have
	// been erased since.
	"series.id":                 firstRun + "series.id)",
	"runs.series":               firstRun + "runs.series)",
	"forms.series":              firstRun + "forms.series)",
	"series_conclusions.series": firstRun + "series_conclusions.series)",
	"cited.series":              firstRun + "cited.series)",
}

// firstRun asks for the position of a series' first run.
const firstRun = "(SELECT first FROM temp.first_runs WHERE first_runs.series = "

// wholeTable asks for all of a table in the order of its primary key, whose columns, so
// many, come first.
func (s *store) wholeTable(ctx context.Context, table string) (query string, keys int, err error) {
	var key, rest []string
	err = s.lines(ctx, `SELECT name, pk FROM pragma_table_info('`+table+`') ORDER BY pk`, func(row []any) error {
		name, pk := row[0].(string), row[1].(int64)
		column := name
		if as, ok := uncompared[table+"."+name]; ok {
			column = as + " AS " + name
		}
		if pk > 0 {
			key = append(key, column)
		} else {
			rest = append(rest, column)
		}
		return nil
	})
	query = `SELECT ` + strings.Join(append(slices.Clone(key), rest...), ", ") + ` FROM ` + table
	for i := range key {
		query += []string{` ORDER BY `, `, `}[min(i, 1)] + strconv.Itoa(i+1)
	}
	return query, len(key), err
}

// rows compares what two stores answer, in the order of the first columns, which are the
// keys. Of a table only the first difference is told.
func (c *Comparison) rows(ctx context.Context, end events.Position, was, now *store, table, query string, keys int) (same bool, err error) {
	old, err := was.fold.conn.QueryContext(ctx, query)
	if err != nil {
		return false, err
	}
	defer old.Close()
	anew, err := now.fold.conn.QueryContext(ctx, query)
	if err != nil {
		return false, err
	}
	defer anew.Close()
	names, err := anew.Columns()
	if err != nil {
		return false, err
	}
	for {
		x, err := next(old)
		if err != nil {
			return false, err
		}
		y, err := next(anew)
		if err != nil {
			return false, err
		}
		switch {
		case x == nil && y == nil:
			return true, nil
		case slices.EqualFunc(x, y, equalValue):
			c.Rows++
			continue
		}
		c.different(end, table, names, keys, x, y)
		return false, nil
	}
}

func equalValue(a, b any) bool {
	x, isBytes := a.([]byte)
	y, areBytes := b.([]byte)
	if isBytes && areBytes {
		return string(x) == string(y)
	}
	return !isBytes && !areBytes && a == b
}

// different tells of the first two rows that are not the same, of which one may not be
// there.
func (c *Comparison) different(end events.Position, table string, names []string, keys int, file, log []any) {
	row := log
	if log == nil {
		row = file
	}
	p := end
	if i := slices.Index(names, "position"); i >= 0 {
		if n, ok := row[i].(int64); ok && n > 0 {
			p = events.Position(n)
		}
	}
	key := ""
	for i := range keys {
		key += fmt.Sprintf(" %s %v", names[i], row[i])
	}
	object := func(row []any) any {
		if row == nil {
			return nil
		}
		m := map[string]any{}
		for i, name := range names {
			m[name] = row[i]
		}
		return m
	}
	switch {
	case log == nil, file == nil, !slices.EqualFunc(file[:keys], log[:keys], equalValue):
		c.differ(p, object(file), object(log), "in table %s, from the row%s on there are others than the log gives", table, key)
	default:
		i := 0
		for equalValue(file[i], log[i]) {
			i++
		}
		c.differ(p, file[i], log[i], "in table %s, the row%s has another %s than the log gives", table, key, names[i])
	}
}

// words compares what the full text index has of each series.
func (c *Comparison) words(ctx context.Context, end events.Position, was, now *store) error {
	seed := maphash.MakeSeed()
	old, err := was.wordsOf(ctx, seed)
	if err != nil {
		return err
	}
	anew, err := now.wordsOf(ctx, seed)
	if err != nil {
		return err
	}
	err = now.lines(ctx, `SELECT `+firstRun+`series.id) AS first, command FROM series ORDER BY first`, func(row []any) error {
		id, _ := row[0].(int64)
		if old[id] != anew[id] {
			c.differ(min(events.Position(id), end), nil, row[1], "series %d is not found by the words that the log gives", id)
			return errFirst
		}
		c.Rows++
		return nil
	})
	if errors.Is(err, errFirst) {
		return nil
	}
	return err
}

// errFirst ends a comparison at its first difference.
var errFirst = errors.New("one is told")

// wordsOf is a sum of the words that the full text index has of each series.
func (s *store) wordsOf(ctx context.Context, seed maphash.Seed) (map[int64]uint64, error) {
	for _, statement := range []string{
		`INSERT INTO tried (tried) VALUES ('optimize')`, // so that only what counts is left
		`CREATE VIRTUAL TABLE temp.words USING fts5vocab(main, tried, 'instance')`,
	} {
		if _, err := s.fold.exec(statement); err != nil {
			return nil, err
		}
	}
	series := map[int64]int64{}
	if err := s.lines(ctx, `SELECT seen, `+firstRun+`series.id) FROM series`, func(row []any) error {
		if first, ok := row[1].(int64); ok {
			series[row[0].(int64)] = first
		}
		return nil
	}); err != nil {
		return nil, err
	}
	sums := map[int64]uint64{}
	return sums, s.lines(ctx, `SELECT doc, term, col, "offset" FROM temp.words`, func(row []any) error {
		id, ok := series[max(row[0].(int64), -row[0].(int64))]
		if !ok {
			return nil // nobody comes by it
		}
		sums[id] += maphash.Comparable(seed, [3]any{row[1], row[2], row[3]})
		return nil
	})
}
