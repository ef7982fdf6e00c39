package load

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"
	"unicode"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// BareView is the reference of a view: the same rows in the same tables with the same
// indexes, inserted by prepared statements and nothing else, and a plain full text index
// of their texts, asked in the plainest way.
type BareView struct {
	db *sql.DB
	// Rows is how many there are, Took the time of inserting them.
	Rows int
	Took time.Duration
}

// chunk is how many rows are read at a time, and then inserted in one transaction.
const chunk = 20000

// CopyView inserts the rows of the view in a folder into a new database. Reading them
// is not counted.
func CopyView(ctx context.Context, viewDir, path string) (_ *BareView, err error) {
	names, err := filepath.Glob(filepath.Join(viewDir, "view-*.db"))
	if err != nil || len(names) != 1 {
		return nil, fmt.Errorf("%s holds %d views, not one", viewDir, len(names))
	}
	from, err := sql.Open("sqlite", "file:"+filepath.ToSlash(names[0])+"?mode=ro")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	b := &BareView{}
	// As the product fills a file: without a log of SQLite's own, and no syncs.
	if b.db, err = sql.Open("sqlite", "file:"+filepath.ToSlash(path)+"?_pragma=journal_mode(MEMORY)&_pragma=synchronous(OFF)&_pragma=cache_size(-32768)"); err != nil {
		return nil, err
	}
	b.db.SetMaxOpenConns(1)
	tables, err := b.makeTables(ctx, from)
	for _, table := range tables {
		if err == nil {
			err = b.copy(ctx, from, `SELECT * FROM `+table, table)
		}
	}
	if err == nil {
		_, err = b.db.ExecContext(ctx, `CREATE VIRTUAL TABLE tried USING fts5(command, notes, at, content='', tokenize="ascii")`)
	}
	if err == nil {
		err = b.copy(ctx, from, `SELECT seen, lower(command), tags || ' ' || failure, machine || ' ' || repo FROM series ORDER BY seen`, "tried (rowid, command, notes, at)")
	}
	if err != nil {
		return nil, errors.Join(err, b.db.Close())
	}
	return b, nil
}

// Close closes the database.
func (b *BareView) Close() error { return b.db.Close() }

// makeTables makes the tables and indexes of another database but for the full text
// index, and lists the tables.
func (b *BareView) makeTables(ctx context.Context, from *sql.DB) (tables []string, err error) {
	rows, err := from.QueryContext(ctx, `SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL AND name <> 'tried' AND name NOT LIKE 'tried/_%' ESCAPE '/' ORDER BY type = 'index'`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var kind, name, text string
		if err := rows.Scan(&kind, &name, &text); err != nil {
			return nil, err
		}
		if _, err := b.db.ExecContext(ctx, text); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if kind == "table" {
			tables = append(tables, name)
		}
	}
	return tables, rows.Err()
}

func (b *BareView) copy(ctx context.Context, from *sql.DB, query, into string) error {
	rows, err := from.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	insert := `INSERT INTO ` + into + ` VALUES (?` + strings.Repeat(", ?", len(columns)-1) + `)`
	for more := true; more; {
		var values [][]any
		for len(values) < chunk {
			if more = rows.Next(); !more {
				break
			}
			row, into := make([]any, len(columns)), make([]any, len(columns))
			for i := range row {
				into[i] = &row[i]
			}
			if err := rows.Scan(into...); err != nil {
				return err
			}
			values = append(values, row)
		}
		start := time.Now()
		if err := b.insert(insert, values); err != nil {
			return fmt.Errorf("%s: %w", into, err)
		}
		b.Took += time.Since(start)
		b.Rows += len(values)
	}
	return rows.Err()
}

func (b *BareView) insert(query string, values [][]any) error {
	tx, err := b.db.Begin()
	if err != nil {
		return err
	}
	st, err := tx.Prepare(query)
	if err != nil {
		return errors.Join(err, tx.Rollback())
	}
	for _, row := range values {
		if _, err := st.Exec(row...); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return errors.Join(st.Close(), tx.Commit())
}

// Ask is the plainest full text query: the words as a phrase, the newest ten rows.
func (b *BareView) Ask(ctx context.Context, query string) (found int, err error) {
	words := strings.FieldsFunc(strings.ToLower(query), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) })
	rows, err := b.db.QueryContext(ctx, `SELECT rowid FROM tried WHERE tried MATCH ? ORDER BY rowid DESC LIMIT 10`, `"`+strings.Join(words, " ")+`"`)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		found++
	}
	return found, rows.Err()
}
