package sqlview

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"modernc.org/sqlite"

	"fleetledger/events"
)

//go:embed schema.sql
var schema string

// version is that of the schema and of what the fold makes of an event. Whoever
// changes either makes it greater: older files are made again.
const version = 9

// store is one database file. Any number read, one writes.
type store struct {
	path    string
	write   *sql.DB // of one connection
	read    *sql.DB
	ask     *sql.DB         // of analysts, who may do less
	tables  map[string]bool // that they may read
	fold    *fold
	readers sync.WaitGroup
	// prepared are the questions of tried, for read.
	prepared map[string]*sql.Stmt
}

func storeName(n int) string { return fmt.Sprintf("view-%d.db", n) }

// storeNumber is the number in a file's name, 0 if it is no store's. The files
// that SQLite keeps beside a store have its number too.
func storeNumber(name string) int {
	rest, ok := strings.CutPrefix(name, "view-")
	number, _, dot := strings.Cut(rest, ".db")
	n, err := strconv.Atoi(number)
	if !ok || !dot || err != nil || n < 1 {
		return 0
	}
	return n
}

func dataSource(path, more string) string {
	// A path is no part of a URL's: what it holds is escaped, on Windows too.
	u := url.URL{Scheme: "file", OmitHost: true, Path: filepath.ToSlash(path), RawQuery: more}
	if filepath.VolumeName(path) != "" {
		u.Path = "/" + u.Path
	}
	return u.String()
}

// createStore makes a new file, to be filled in one of two ways.
func createStore(ctx context.Context, path, how string, log events.Log) (*store, error) {
	s, err := openFile(path, how)
	if err != nil {
		return nil, err
	}
	if _, err := s.write.ExecContext(ctx, schema); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s: %w", path, err), s.close())
	}
	if _, err := s.write.ExecContext(ctx, `INSERT INTO view VALUES ('', ?, 0, '', '', '', 0, 0)`, version); err != nil {
		return nil, errors.Join(fmt.Errorf("make %s: %w", path, err), s.close())
	}
	if err = s.ready(ctx, log); err != nil {
		return nil, errors.Join(err, s.close())
	}
	s.fold.bulk, s.fold.met, s.fold.noWayBack = true, &sieve{}, how == filling
	return s, nil
}

// finish makes a store that was filled one that can follow.
func (s *store) finish(ctx context.Context) error {
	if err := s.fold.spillForms(1); err != nil {
		return err
	}
	if err := s.indexAll(ctx); err != nil {
		return err
	}
	s.fold.bulk, s.fold.noWayBack = false, false
	// All of it on the disk, before anything says that it is complete.
	f, err := os.OpenFile(s.path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	var mode string
	if _, err := s.fold.row(`PRAGMA journal_mode = WAL`, nil, &mode); err != nil {
		return err
	}
	_, err = s.fold.exec(`PRAGMA synchronous = NORMAL`)
	return err
}

// errStale says why a file is made again.
type errStale struct {
	why string
	// wrong is true if this log, and this program, never left such a file.
	wrong bool
}

func (e *errStale) Error() string { return e.why }

// openStore opens a file that was complete and belongs to log. It fails with an
// *errStale for every other.
func openStore(ctx context.Context, path string, log events.Log) (*store, error) {
	s, err := openFile(path, following)
	if err == nil {
		err = s.check(ctx, log)
	}
	if err == nil {
		err = s.ready(ctx, log)
	}
	if err != nil {
		if s != nil {
			err = errors.Join(err, s.close())
		}
		return nil, err
	}
	return s, nil
}

// ready prepares a store that has its tables for folding and for questions.
func (s *store) ready(ctx context.Context, log events.Log) (err error) {
	if s.fold, err = newFold(ctx, s.write, log); err != nil {
		return err
	}
	if _, err := s.fold.row(`SELECT traces FROM view`, nil, &s.fold.traces); err != nil {
		return err
	}
	s.prepared = map[string]*sql.Stmt{}
	for _, query := range triedQueries {
		if s.prepared[query], err = s.read.PrepareContext(ctx, query); err != nil {
			return err
		}
	}
	s.tables = map[string]bool{}
	for _, name := range builtinTables {
		s.tables[name] = true
	}
	return s.fold.each(func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		s.tables[name] = true
		return err
	}, `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view')`)
}

func (s *store) check(ctx context.Context, log events.Log) error {
	var v int
	var position events.Position
	var first, last string
	var complete bool
	row := s.write.QueryRowContext(ctx, `SELECT version, position, first, last, complete FROM view`)
	if err := row.Scan(&v, &position, &first, &last, &complete); err != nil {
		return &errStale{"it cannot be read: " + err.Error(), true}
	}
	switch {
	case v != version:
		return &errStale{fmt.Sprintf("it has version %d, not %d", v, version), false}
	case !complete:
		return &errStale{"it was never finished", false}
	case position > log.Durable():
		return &errStale{fmt.Sprintf("it knows of position %d, the log ends at %d", position, log.Durable()), true}
	}
	for _, at := range []struct {
		position events.Position
		hash     string
	}{{1, first}, {position, last}} {
		if position == 0 {
			break
		}
		hash, err := leafAt(ctx, log, at.position)
		if err != nil {
			return err
		}
		if hash != at.hash {
			return &errStale{fmt.Sprintf("it was folded from another log: position %d differs", at.position), true}
		}
	}
	return nil
}

func leafAt(ctx context.Context, log events.Log, p events.Position) (string, error) {
	for r, err := range log.ReadAll(ctx, p-1) {
		if err != nil {
			return "", err
		}
		return r.LeafHash.String(), nil
	}
	return "", fmt.Errorf("position %d is not in the log", p)
}

const (
	// following: a power loss may lose the newest transactions, cursor and all: the
	// log has them still. It never leaves half of one.
	following = "_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)"
	// filling: what a power loss leaves of a new file is thrown away, for it does not
	// say that it is complete; see finish. Nor can a transaction be undone: where that
	// is needed, because an event does not fit, the file is filled again, with care.
	filling         = "_pragma=journal_mode(OFF)&_pragma=synchronous(OFF)"
	fillingWithCare = "_pragma=journal_mode(MEMORY)&_pragma=synchronous(OFF)"
)

func openFile(path, pragmas string) (*store, error) {
	s := &store{path: path}
	var err error
	s.write, err = sql.Open("sqlite", dataSource(path, pragmas+"&_pragma=cache_size(-32768)&_pragma=secure_delete(ON)&_pragma=busy_timeout(5000)&_txlock=immediate"))
	if err != nil {
		return nil, err
	}
	s.write.SetMaxOpenConns(1)
	if err := s.write.Ping(); err != nil {
		return nil, errors.Join(&errStale{"it cannot be opened: " + err.Error(), true}, s.write.Close())
	}
	s.read, err = sql.Open("sqlite", dataSource(path, "mode=ro&_pragma=query_only(ON)&_pragma=cache_size(-8192)&_pragma=busy_timeout(5000)"))
	if err != nil {
		return nil, errors.Join(err, s.write.Close())
	}
	s.read.SetMaxOpenConns(maxReaders)
	s.read.SetMaxIdleConns(maxReaders)
	if s.ask, err = openAsk(path); err != nil {
		return nil, errors.Join(err, s.read.Close(), s.write.Close())
	}
	return s, nil
}

// maxReaders is how many questions are answered at a time.
const maxReaders = 4

func (s *store) close() error {
	s.readers.Wait()
	var err error
	if s.fold != nil {
		err = s.fold.close()
	}
	for _, st := range s.prepared {
		if st != nil {
			err = errors.Join(err, st.Close())
		}
	}
	return errors.Join(err, s.ask.Close(), s.read.Close(), s.write.Close())
}

// remove takes a closed file away.
func removeStore(path string) error {
	var all error
	for _, suffix := range []string{"-wal", "-shm", "-journal", ""} {
		if err := os.Remove(path + suffix); err != nil && !errors.Is(err, os.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// SQLite's primary result codes that say that a file is no good.
const (
	sqliteCorrupt   = 11
	sqliteNotADB    = 26
	sqliteIOError   = 10
	sqliteFull      = 13
	sqliteCantOpen  = 14
	sqliteBusy      = 5
	sqliteLocked    = 6
	sqliteReadOnly  = 8
	sqliteNoMemory  = 7
	sqliteInterrupt = 9
)

func primaryCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code() & 0xff
	}
	return 0
}

// damaged reports whether err says that the file itself is no good.
func damaged(err error) bool {
	switch primaryCode(err) {
	case sqliteCorrupt, sqliteNotADB:
		return true
	}
	return false
}

// storageTrouble reports whether err is the file's trouble, not an event's.
func storageTrouble(err error) bool {
	switch primaryCode(err) {
	case sqliteCorrupt, sqliteNotADB, sqliteIOError, sqliteFull, sqliteCantOpen, sqliteBusy, sqliteLocked, sqliteReadOnly, sqliteNoMemory, sqliteInterrupt:
		return true
	}
	return errors.Is(err, sql.ErrConnDone) || errors.Is(err, context.Canceled)
}
