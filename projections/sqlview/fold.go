package sqlview

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// fold writes what events tell into a store. One goroutine uses it.
type fold struct {
	log        events.Log // finds events by id
	conn       *sql.Conn
	statements map[string]*sql.Stmt
	writes     map[string]driver.StmtExecContext // see exec
	args       []driver.NamedValue               // of the write under way

	// Of the transaction under way: series that have new runs or words, by id.
	dirty map[int64]*series
	// known finds a series without asking the database; it is bounded.
	known map[int64]*series
	// bulk is true while a store is filled that nobody reads yet: the full text index is
	// written at its end, in one go.
	bulk bool
	// noWayBack is true if transactions cannot be rolled back.
	noWayBack bool
	// forms are those of series begun that are not written yet; while a store is filled,
	// for many are written faster in their order.
	forms []form
	// met are the series that a store filled from its beginning may have; nil for every
	// other, which may have any.
	met *sieve
	// traces is true while something erased may still lie in SQLite's own log.
	traces bool
	// parked is how many events could not be folded, as of the last transaction.
	parked int
}

// maxKnown bounds the series kept at hand.
const maxKnown = 50000

func newFold(ctx context.Context, db *sql.DB, log events.Log) (*fold, error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return &fold{log: log, conn: conn, statements: map[string]*sql.Stmt{}, writes: map[string]driver.StmtExecContext{}, dirty: map[int64]*series{}, known: map[int64]*series{}}, nil
}

func (f *fold) close() error {
	var all error
	for _, s := range f.statements {
		all = errors.Join(all, s.Close())
	}
	all = errors.Join(all, f.conn.Raw(func(any) (all error) {
		for _, s := range f.writes {
			all = errors.Join(all, s.(driver.Stmt).Close())
		}
		return all
	}))
	return errors.Join(all, f.conn.Close())
}

func (f *fold) statement(query string) (*sql.Stmt, error) {
	if s := f.statements[query]; s != nil {
		return s, nil
	}
	s, err := f.conn.PrepareContext(context.Background(), query)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", query, err)
	}
	f.statements[query] = s
	return s, nil
}

// exec writes. It asks the driver itself: what database/sql does for each of millions of
// rows, whose values are few kinds and whose connection is nobody else's, is a tenth of
// the time that a view takes to be filled.
func (f *fold) exec(query string, args ...any) (res driver.Result, err error) {
	f.args = f.args[:0]
	for i, a := range args {
		switch v := a.(type) {
		case nil, int64, string, bool:
		case int:
			a = int64(v)
		default:
			if a, err = driver.DefaultParameterConverter.ConvertValue(a); err != nil {
				return nil, err
			}
		}
		f.args = append(f.args, driver.NamedValue{Ordinal: i + 1, Value: a})
	}
	err = f.conn.Raw(func(c any) error {
		st := f.writes[query]
		if st == nil {
			prepared, err := c.(driver.ConnPrepareContext).PrepareContext(context.Background(), query)
			if err != nil {
				return fmt.Errorf("prepare %s: %w", query, err)
			}
			st = prepared.(driver.StmtExecContext)
			f.writes[query] = st
		}
		// Not with a context: a transaction ends whole, or by a crash.
		res, err = st.ExecContext(context.Background(), f.args)
		return err
	})
	return res, err
}

// row reads one row; ok is false if there is none.
func (f *fold) row(query string, args []any, into ...any) (ok bool, err error) {
	s, err := f.statement(query)
	if err != nil {
		return false, err
	}
	err = s.QueryRowContext(context.Background(), args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// errNoWayBack says that a store is half changed for good.
var errNoWayBack = errors.New("an event could not be folded where nothing can be undone")

// apply folds records and moves the cursor behind them, in one transaction. What cannot
// be decoded is parked. If an event does not fit, nothing is folded.
func (f *fold) apply(recs []decoded) (parked []parkedEvent, err error) {
	if _, err := f.exec("BEGIN IMMEDIATE"); err != nil {
		return nil, err
	}
	begun := len(f.forms)
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("the fold panicked: %v", v)
		}
		switch {
		case err == nil:
		case f.noWayBack:
			if !storageTrouble(err) {
				err = fmt.Errorf("%w: %w", errNoWayBack, err)
			}
		default:
			f.forget()
			f.forms = f.forms[:begun]
			_, undo := f.exec("ROLLBACK")
			if undo != nil && !strings.Contains(undo.Error(), "no transaction is active") {
				err = errors.Join(err, undo)
			}
		}
	}()
	for i := range recs {
		r := &recs[i]
		if r.err != nil {
			if err := f.insertParked(r, r.err); err != nil {
				return nil, err
			}
			parked = append(parked, parkedEvent{r.Header.Position, r.err})
		} else if err := f.event(r); err != nil {
			return nil, err
		}
	}
	return parked, f.commit(recs)
}

// forget drops what is at hand: it may tell of what was rolled back.
func (f *fold) forget() {
	clear(f.dirty)
	clear(f.known)
}

func (f *fold) commit(recs []decoded) error {
	if err := f.flush(); err != nil {
		return err
	}
	if f.traces {
		// The full text index forgets words only when it merges.
		if _, err := f.exec(`INSERT INTO tried (tried) VALUES ('optimize')`); err != nil {
			return err
		}
		if _, err := f.exec(`UPDATE view SET traces = 1`); err != nil {
			return err
		}
	}
	last := recs[len(recs)-1]
	if recs[0].Header.Position == 1 {
		if _, err := f.exec(`UPDATE view SET fleet = ?, first = ?`, recs[0].Header.Fleet, recs[0].LeafHash.String()); err != nil {
			return err
		}
	}
	if _, err := f.exec(`UPDATE view SET position = ?, time = ?, last = ?`,
		int64(last.Header.Position), timeText(last.Header.Time), last.LeafHash.String()); err != nil {
		return err
	}
	if _, err := f.row(`SELECT count(*) FROM parked`, nil, &f.parked); err != nil {
		return err
	}
	_, err := f.exec("COMMIT")
	return err
}

// park notes an event that cannot be folded, and goes past it.
func (f *fold) park(r decoded, why error) error {
	if _, err := f.exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err := f.insertParked(&r, why)
	if err == nil {
		err = f.commit([]decoded{r})
	}
	if err != nil {
		_, _ = f.exec("ROLLBACK") // the first error is the one that counts
	}
	return err
}

func (f *fold) insertParked(r *decoded, why error) error {
	return f.insert(`INSERT OR REPLACE INTO parked VALUES (?, ?, ?, ?)`,
		int64(r.Header.Position), string(r.Header.Type), string(r.Header.Stream), why.Error())
}

// decoded is a record with what it tells, which is nil if that is nothing to the
// view.
type decoded struct {
	events.Record
	event events.Event
	run   *preparedRun // of a memory.recorded
	err   error
}

func decode(r events.Record) decoded {
	d := decoded{Record: r}
	if !r.Header.Type.IsExt() && !r.Erased {
		d.event, d.err = events.Decode(r)
	}
	if e, ok := d.event.(events.MemoryRecorded); ok {
		run := newRun(&r.Header, e.Record.Envelope, e.Record.Argv)
		run.TaskID, run.Tags, run.ImportedFrom = e.Record.TaskID, e.Record.Tags, e.ImportedFrom
		run.Gate, run.GateID = e.Record.Gate, e.Record.GateID
		d.run = prepareRun(&r.Header, run, &e.Record.Envelope)
	}
	d.Payload = nil // it is not needed any more
	return d
}

// event folds one event.
func (f *fold) event(r *decoded) error {
	h := &r.Header
	if r.Erased {
		return f.withoutPayload(h)
	}
	switch e := r.event.(type) {
	case events.ActorRegistered, events.ActorLevelSet, events.ActorScopesChanged, events.ActorSuspended, events.ActorReinstated,
		events.RuleWritten, events.RuleRetired:
		return f.authority(h, e)
	case events.GateDecided, events.ApprovalRequested, events.ApprovalSettled, events.ApprovalSpent:
		return f.gate(h, e)
	case events.TaskSubmitted, events.TaskOpened, events.TaskClaimed, events.LeaseLapsed, events.TaskCancelled, events.TaskReported, events.TaskSettled:
		return f.task(h, e)
	case events.MemoryRecorded:
		return f.run(r.run)
	case events.ConclusionRecorded:
		return f.concluded(h, e)
	case events.SectionRevised:
		return f.insert(`INSERT INTO sections VALUES (?, ?, ?, ?, ?, 0, ?, ?, ?, ?, ?)`, int64(h.Position), e.Slug, int64(h.Revision), h.Actor, timeText(h.Time),
			e.Heading, e.Text, orNull(e.MeasuredAt), orNull(e.How), jsonText(e.Evidence))
	case events.SectionRetired:
		return f.insert(`INSERT INTO sections VALUES (?, ?, ?, ?, ?, 1, NULL, NULL, NULL, NULL, NULL)`, int64(h.Position), e.Slug, int64(h.Revision), h.Actor, timeText(h.Time))
	case events.MemoryConsolidated:
		return f.consolidated(h, e)
	case events.BlockPublished:
		return f.blockPublished(h, e)
	case events.BlockAccepted:
		return f.blockAccepted(h, e)
	case events.PayloadErased:
		return f.erased(e)
	}
	return nil
}

// insert is exec for a statement that gives nothing back.
func (f *fold) insert(query string, args ...any) error {
	_, err := f.exec(query, args...)
	return err
}

// each calls g with each row of an answer.
func (f *fold) each(g func(*sql.Rows) error, query string, args ...any) error {
	st, err := f.statement(query)
	if err != nil {
		return err
	}
	return each(g)(st.QueryContext(context.Background(), args...))
}

// timeText is a time as the database has it: as text it sorts as time.
func timeText(t time.Time) string { return t.UTC().Format(events.TimeLayout) }

func parseTime(s string) time.Time {
	t, _ := time.Parse(events.TimeLayout, s) // written by timeText
	return t
}

func jsonText(v any) string {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("bug: a row does not encode: " + err.Error())
	}
	return string(b)
}

func fromJSON(s string, v any) error { return json.Unmarshal([]byte(s), v) }

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}
