package sqlview

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// Limits of an analyst's query.
const (
	// AskRows is how many rows are given at most, AskDefaultRows if nothing is said.
	AskRows        = 10000
	AskDefaultRows = 1000
	// AskBytes bounds the values given, AskValueBytes each value on the way, and
	// AskSearchedBytes each of a query that searches: see searches.
	AskBytes         = 4 << 20
	AskValueBytes    = 1 << 20
	AskSearchedBytes = 256 << 10
	// AskTime bounds the query.
	AskTime = 5 * time.Second
	// AskQueryBytes and AskParams bound what is asked.
	AskQueryBytes = 64 << 10
	AskParams     = 100
	// askers is how many are answered at a time.
	askers = 2
	// askColumns is how many columns an answer has at most.
	askColumns = 100
	// askCalls bounds the functions that a query names, askSearches what it searches. The
	// deadline ends a query between its rows only: this bounds what it does for one row.
	askCalls    = 500
	askSearches = 100
)

// Refusals of queries, stable.
const (
	SQLInvalid      = "SQL_INVALID"
	SQLOneStatement = "SQL_ONE_STATEMENT"
	SQLNotReadOnly  = "SQL_NOT_READ_ONLY"
	SQLForbidden    = "SQL_FORBIDDEN"
	SQLTooSlow      = "SQL_TOO_SLOW"
	SQLTooBig       = "SQL_TOO_BIG"
	SQLBusy         = "SQL_BUSY"
)

// QueryError says why a query was not answered.
type QueryError struct{ Code, Detail string }

func (e *QueryError) Error() string { return e.Detail }

func refuseQuery(code, format string, args ...any) *QueryError {
	return &QueryError{code, fmt.Sprintf(format, args...)}
}

// Table is the answer to a query. A value is nil, an int64, a float64, a string or
// a []byte.
type Table struct {
	Columns []string
	Rows    [][]any
	// Cut says why there are not all rows, empty if there are: "rows" or "bytes".
	Cut string
	// LeftOut is true if runs may be missing that the reader has forgotten.
	LeftOut bool
}

// Ask answers a query in SQL over the view: one statement that reads, bounded in
// rows, bytes and time. Its errors are *QueryError, *BehindError and the context's.
//
// The tables runs and series lack what forgetful, an actor, has forgotten; main.runs and
// main.series have it, and so have they for an empty forgetful.
func (v *View) Ask(ctx context.Context, query string, params []any, limit int, forgetful string) (Table, error) {
	if err := checkQuery(query); err != nil {
		return Table{}, err
	}
	remembered := ""
	if err := v.look(ctx, func(r reader) (err error) {
		remembered, err = r.rememberedTables(forgetful)
		return err
	}); err != nil {
		return Table{}, err
	}
	s, release, err := v.acquire()
	if err != nil {
		return Table{}, err
	}
	defer release()
	bounded, cancel := context.WithTimeout(ctx, AskTime)
	defer cancel()
	conn, err := s.ask.Conn(bounded)
	if bounded.Err() != nil && ctx.Err() == nil {
		return Table{}, refuseQuery(SQLBusy, "%d queries are being answered already; ask again", askers)
	}
	if err != nil {
		return Table{}, v.reading(s, err)
	}
	defer conn.Close()
	a := asking{ctx: bounded, conn: conn, tables: s.tables, remembered: remembered}
	t, err := a.answer(query, params, limit)
	t.LeftOut = remembered != ""
	if err == nil {
		return t, nil
	}
	if ctx.Err() != nil {
		return t, ctx.Err()
	}
	return t, v.reading(s, a.explain(err))
}

// asking is one query on its way.
type asking struct {
	ctx    context.Context
	conn   *sql.Conn
	tables map[string]bool
	// remembered are tables that stand for others, see rememberedTables.
	remembered string
	// denied is why the authorizer said no, the first time.
	denied *QueryError
	// calls are the functions that the query names, searched is what it searches.
	calls, searched int
	sink            *sink
}

func (a *asking) answer(query string, params []any, limit int) (Table, error) {
	if err := a.conn.Raw(func(c any) error {
		return c.(sqlite.AuthorizerRegisterer).RegisterAuthorizer(a.authorize)
	}); err != nil {
		return Table{}, err
	}
	for id, most := range map[int]int{
		sqlite3.SQLITE_LIMIT_LENGTH: a.valueBytes(), sqlite3.SQLITE_LIMIT_SQL_LENGTH: 2 * AskQueryBytes, sqlite3.SQLITE_LIMIT_ATTACHED: 0,
		sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0, sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 1000, sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
		sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
	} {
		if _, err := sqlite.Limit(a.conn, id, most); err != nil {
			return Table{}, err
		}
	}
	// By itself first: it must be a statement before it is made part of another, and
	// what is wrong with it is told in its own words.
	st, err := a.conn.PrepareContext(a.ctx, query)
	if err != nil {
		return Table{}, err
	}
	if err := st.Close(); err != nil {
		return Table{}, err
	}
	if a.calls > askCalls || a.searched > askSearches {
		return Table{}, refuseQuery(SQLTooBig, "the query names %d functions, and searches %d times (LIKE, GLOB, MATCH once, instr and replace twice): at most %d and %d are done for one row",
			a.calls, a.searched, askCalls, askSearches)
	}
	if _, err := sqlite.Limit(a.conn, sqlite3.SQLITE_LIMIT_LENGTH, a.valueBytes()); err != nil {
		return Table{}, err
	}
	// The driver takes more than there are, and leaves them out.
	if n := placeholders(query); n != len(params) {
		return Table{}, refuseQuery(SQLInvalid, "%d params came, and the query takes %d: one for each ?, or as many as the highest ?N says", len(params), n)
	}
	// A line's end, for the query may end in a comment.
	rows, err := a.conn.QueryContext(a.ctx, "WITH "+a.remembered+"q AS (\n"+query+"\n) SELECT * FROM q LIMIT 0", params...)
	if err != nil {
		return Table{}, err
	}
	columns, err := rows.Columns()
	if err = errors.Join(err, rows.Err(), rows.Close()); err != nil {
		return Table{}, err
	}
	if len(columns) > askColumns {
		return Table{}, refuseQuery(SQLTooBig, "the answer has %d columns, at most %d are given", len(columns), askColumns)
	}
	a.sink = &sink{limit: limit}
	token := sinks.put(a.sink)
	defer sinks.remove(token)
	names := make([]string, len(columns))
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	list := strings.Join(names, ", ")
	// All rows are gathered in one step of the statement: the driver heeds the
	// context only until the first row is there.
	whole := fmt.Sprintf("WITH %sq(%s) AS (\n%s\n) SELECT %s(%d, %s) FROM q", a.remembered, list, query, gatherName, token, list)
	var ignored any
	err = a.conn.QueryRowContext(a.ctx, whole, params...).Scan(&ignored)
	if err != nil && a.sink.cut == "" {
		return Table{}, err
	}
	return Table{Columns: columns, Rows: a.sink.rows, Cut: a.sink.cut}, nil
}

// valueBytes bounds each value on the way.
func (a *asking) valueBytes() int {
	if a.searched > 0 {
		return AskSearchedBytes
	}
	return AskValueBytes
}

// explain turns what went wrong into what the asker is told.
func (a *asking) explain(err error) error {
	var q *QueryError
	switch {
	case errors.As(err, &q):
		return q
	case a.ctx.Err() != nil:
		return refuseQuery(SQLTooSlow, "the query took longer than %v: ask for less, for example by position or machine, or with LIMIT", AskTime)
	case a.denied != nil:
		return a.denied
	}
	switch primaryCode(err) {
	case sqlite3.SQLITE_TOOBIG:
		return refuseQuery(SQLTooBig, "a value of the query has more than %d bytes", a.valueBytes())
	case sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_FULL:
		return refuseQuery(SQLTooBig, "the query needs more room than there is")
	case sqlite3.SQLITE_READONLY:
		return refuseQuery(SQLNotReadOnly, "the view is only read")
	case sqlite3.SQLITE_INTERRUPT:
		return refuseQuery(SQLTooSlow, "the query took longer than %v", AskTime)
	case sqlite3.SQLITE_ERROR, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_RANGE, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISUSE:
		return refuseQuery(SQLInvalid, "%s", trimSQLite(err.Error()))
	}
	if primaryCode(err) == 0 { // the driver's own, about parameters
		return refuseQuery(SQLInvalid, "%s", err)
	}
	return err
}

// trimSQLite takes the number off the end of SQLite's message.
func trimSQLite(s string) string {
	s = strings.TrimPrefix(s, "SQL logic error: ")
	if i := strings.LastIndex(s, " ("); i > 0 {
		s = s[:i]
	}
	return s
}

// authorize lets reading pass, and nothing else.
func (a *asking) authorize(action sqlite.AuthorizerActionCode, arg1, arg2, database, _ string) sqlite.AuthorizerReturnCode {
	deny := func(code, format string, args ...any) sqlite.AuthorizerReturnCode {
		if a.denied == nil {
			a.denied = refuseQuery(code, format, args...)
		}
		return sqlite.AuthorizerDeny
	}
	switch action {
	case sqlite.AuthSelect, sqlite.AuthRecursive:
		return sqlite.AuthorizerOK
	case sqlite.AuthRead:
		// Without a column and a database it is a name in FROM, maybe of what the query
		// itself makes: what is read of it is asked about again.
		if arg1 == "tried" {
			a.searched += searches["match"]
		}
		if arg1 == "" || arg2 == "" && database == "" || a.tables[arg1] {
			return sqlite.AuthorizerOK
		}
		return deny(SQLForbidden, "the table %q is not one of the view's", arg1)
	case sqlite.AuthFunction:
		name := strings.ToLower(arg2)
		if forbiddenFunctions[name] || strings.HasPrefix(name, "geopoly_") || strings.HasPrefix(name, "rtree") {
			return deny(SQLForbidden, "the function %s is not to be had here", arg2)
		}
		a.calls++
		a.searched += searches[name]
		return sqlite.AuthorizerOK
	case sqlite.AuthPragma:
		if readingPragmas[strings.ToLower(arg1)] {
			return sqlite.AuthorizerOK
		}
		return deny(SQLForbidden, "PRAGMA %s is not to be had here", arg1)
	case sqlite.AuthAttach, sqlite.AuthDetach:
		return deny(SQLForbidden, "no other database is to be had here")
	}
	return deny(SQLNotReadOnly, "the view is only read: SELECT, VALUES or WITH")
}

// forbiddenFunctions reach out of the database, are not for queries, or take too long
// for one row, and nobody needs them.
var forbiddenFunctions = map[string]bool{
	"load_extension": true, "readfile": true, "writefile": true, "edit": true, "fts3_tokenizer": true, "fts5": true, "sqlite_log": true,
	"unhex": true, "json_patch": true, "jsonb_patch": true, "json_pretty": true,
}

// searches are functions that take as long as the product of what they are given is
// large, which nothing ends before they are through: minutes, for values of
// AskValueBytes. The number is how often each counts.
var searches = map[string]int{"like": 1, "glob": 1, "match": 1, "instr": 2, "replace": 2}

// readingPragmas tell about tables; data_version is asked by the full text index.
var readingPragmas = map[string]bool{
	"table_info": true, "table_xinfo": true, "table_list": true, "index_list": true, "index_info": true, "index_xinfo": true, "data_version": true,
}

// builtinTables are readable beside the view's own.
var builtinTables = []string{"sqlite_schema", "sqlite_master", "json_each", "json_tree", "pragma_table_info", "pragma_table_xinfo", "pragma_table_list",
	"pragma_index_list", "pragma_index_info", "pragma_index_xinfo"}

// checkQuery refuses what is not one statement that reads, by its looks: the
// authorizer decides, but cannot say as well what is wrong.
func checkQuery(query string) error {
	if len(query) > AskQueryBytes {
		return refuseQuery(SQLTooBig, "the query has %d bytes, at most %d are taken", len(query), AskQueryBytes)
	}
	if strings.ContainsRune(query, 0) {
		return refuseQuery(SQLInvalid, "the query holds a NUL")
	}
	first, ended, more := "", false, false
	for rest := query; ; {
		var token string
		if token, rest = nextToken(rest); token == "" {
			break
		}
		switch {
		case token == ";":
			ended = true
		case ended:
			more = true
		case first == "":
			first = strings.ToUpper(token)
		}
	}
	switch {
	case first == "":
		return refuseQuery(SQLInvalid, "there is no query: ask for example SELECT * FROM runs ORDER BY position DESC LIMIT 10")
	case more:
		return refuseQuery(SQLOneStatement, "there is more than one statement; ask for one at a time")
	case ended:
		return refuseQuery(SQLInvalid, "leave out the ; at the end")
	}
	switch first {
	case "SELECT", "VALUES", "WITH":
		return nil
	case "PRAGMA":
		return refuseQuery(SQLForbidden, "PRAGMA is not to be had here; SELECT * FROM pragma_table_info('runs') tells the columns of a table")
	case "ATTACH", "DETACH":
		return refuseQuery(SQLForbidden, "no other database is to be had here")
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "CREATE", "DROP", "ALTER", "VACUUM", "REINDEX", "ANALYZE", "BEGIN", "COMMIT", "ROLLBACK", "END", "SAVEPOINT", "RELEASE":
		return refuseQuery(SQLNotReadOnly, "the view is only read: SELECT, VALUES or WITH")
	}
	return refuseQuery(SQLInvalid, "a query begins with SELECT, VALUES or WITH")
}

// placeholders is how many values a query takes: a ? takes the one behind the highest so
// far, ?N the N-th.
func placeholders(query string) (most int) {
	for token, rest := nextToken(query); token != ""; token, rest = nextToken(rest) {
		if token != "?" {
			continue
		}
		n := most + 1
		if rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			token, rest = nextToken(rest)
			n, _ = strconv.Atoi(token) // what is no such number was not prepared
		}
		most = max(most, n)
	}
	return most
}

// nextToken cuts the next token off a query: a word, a quoted text, or one sign.
// Space and comments are passed over. It is empty at the end.
func nextToken(s string) (token, rest string) {
	for {
		s = strings.TrimLeftFunc(s, unicode.IsSpace)
		switch {
		case strings.HasPrefix(s, "--"):
			_, s, _ = strings.Cut(s, "\n")
		case strings.HasPrefix(s, "/*"):
			_, s, _ = strings.Cut(s[2:], "*/")
		case s == "":
			return "", ""
		default:
			n := 1
			switch c := s[0]; {
			case strings.IndexByte("'\"`[", c) >= 0:
				if c == '[' {
					c = ']'
				}
				end := strings.IndexByte(s[1:], c)
				if end < 0 {
					return s, ""
				}
				n = end + 2
			case isWord(c):
				for n < len(s) && isWord(s[n]) {
					n++
				}
			}
			return s[:n], s[n:]
		}
	}
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c >= 0x80
}

// sink takes the rows of one query.
type sink struct {
	limit int
	bytes int
	rows  [][]any
	cut   string
}

var errEnough = errors.New("enough")

// Step takes a row; WindowInverse, WindowValue and Final complete what the driver
// calls an aggregate function.
type gatherer struct{}

func (gatherer) Step(_ *sqlite.FunctionContext, args []driver.Value) error {
	token, _ := args[0].(int64)
	s := sinks.get(token)
	if s == nil {
		return errors.New("this function is not to be had here")
	}
	if len(s.rows) == s.limit {
		s.cut = "rows"
		return errEnough
	}
	row := make([]any, len(args)-1)
	for i, v := range args[1:] {
		s.bytes += 8
		switch v := v.(type) {
		case []byte:
			row[i] = append([]byte{}, v...)
			s.bytes += len(v)
		case string:
			row[i] = strings.Clone(strings.ToValidUTF8(v, "\ufffd"))
			s.bytes += len(v)
		default:
			row[i] = v
		}
	}
	if s.bytes > AskBytes {
		s.cut = "bytes"
		return errEnough
	}
	s.rows = append(s.rows, row)
	return nil
}

func (gatherer) WindowInverse(*sqlite.FunctionContext, []driver.Value) error {
	return errors.New("this function is not to be had here")
}

func (gatherer) WindowValue(*sqlite.FunctionContext) (driver.Value, error) { return nil, nil }

func (gatherer) Final(*sqlite.FunctionContext) {}

const gatherName = "fleetledger_rows"

// sinks finds the sink of a query under way: an aggregate function is told nothing
// but its arguments.
var sinks sinkTable

type sinkTable struct{ byToken sync.Map }

func (t *sinkTable) put(s *sink) int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says crypto/rand; nobody guesses another's
	token := int64(binary.BigEndian.Uint64(b[:]) >> 1)
	t.byToken.Store(token, s)
	return token
}

func (t *sinkTable) get(token int64) *sink {
	s, _ := t.byToken.Load(token)
	found, _ := s.(*sink)
	return found
}

func (t *sinkTable) remove(token int64) { t.byToken.Delete(token) }

// askDriver opens connections that know the gatherer; no other connection does.
var askDriver = sync.OnceValues(func() (*sqlite.Driver, error) {
	d := &sqlite.Driver{}
	if err := registerTrims(d); err != nil {
		return nil, err
	}
	return d, d.RegisterFunction(gatherName, &sqlite.FunctionImpl{
		NArgs: -1,
		// Else a text ends at its first NUL. Step keeps nothing but copies.
		VolatileArgs:  true,
		MakeAggregate: func(sqlite.FunctionContext) (sqlite.AggregateFunction, error) { return gatherer{}, nil },
	})
})

// askConnector opens connections for queries.
type askConnector struct {
	driver *sqlite.Driver
	source string
}

func (c askConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.source) }

func (c askConnector) Driver() driver.Driver { return c.driver }

func openAsk(path string) (*sql.DB, error) {
	d, err := askDriver()
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(askConnector{d, dataSource(path, "mode=ro&_defensive=1&_dqs=0&_pragma=query_only(ON)&_pragma=trusted_schema(OFF)&_pragma=cache_size(-8192)&_pragma=temp_store(FILE)&_pragma=busy_timeout(5000)")})
	db.SetMaxOpenConns(askers)
	db.SetMaxIdleConns(askers)
	return db, nil
}
