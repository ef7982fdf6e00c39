package histories

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"fleetledger/events"
)

// atuinColumns are read from the table history; those after the first six are
// missing in older databases.
var atuinColumns = []string{"id", "timestamp", "duration", "exit", "command", "cwd", "session", "hostname", "deleted_at"}

const atuinNeeded = 6

// readAtuin reads a history.db, or the one in a folder, without writing to it.
func readAtuin(r *reading, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.IsDir() {
		path = filepath.Join(path, "history.db")
		if _, err := os.Stat(path); err != nil {
			return err
		}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	abs = filepath.ToSlash(abs)
	if !strings.HasPrefix(abs, "/") { // a drive letter
		abs = "/" + abs
	}
	name := url.URL{Scheme: "file", Path: abs, RawQuery: "mode=ro&_pragma=query_only(1)&_pragma=busy_timeout(5000)"}
	db, err := sql.Open("sqlite", name.String())
	if err != nil {
		return err
	}
	defer db.Close()
	if err := r.atuin(db, path); err != nil {
		if errors.Is(err, errStop) || errors.Is(err, ErrNothing) || r.ctx.Err() != nil {
			return err
		}
		return fmt.Errorf("%s: %w; if atuin is using it, import a copy", path, err)
	}
	return nil
}

func (r *reading) atuin(db *sql.DB, path string) error {
	columns, err := atuinHas(r.ctx, db)
	if err != nil {
		return err
	}
	chosen := slices.Clone(atuinColumns)
	for i, c := range chosen {
		if slices.Contains(columns, c) {
			continue
		}
		if i < atuinNeeded {
			return fmt.Errorf("%s: %w: it has no table history with a column %s", path, ErrNothing, c)
		}
		chosen[i] = "NULL"
	}
	r.recognised = true
	r.progress = Progress{File: clean(filepath.Base(path)), Files: 1}
	if err := db.QueryRowContext(r.ctx, "SELECT count(*) FROM history").Scan(&r.progress.Total); err != nil {
		return err
	}
	rows, err := db.QueryContext(r.ctx, "SELECT "+strings.Join(chosen, ", ")+" FROM history ORDER BY rowid")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var row atuinRow
		if err := rows.Scan(&row.id, &row.timestamp, &row.duration, &row.exit, &row.command, &row.cwd, &row.session, &row.hostname, &row.deletedAt); err != nil {
			return err
		}
		r.progress.Bytes++
		if r.progress.Bytes%256 == 0 {
			r.tell()
		}
		if err := r.atuinRow(row); err != nil {
			return err
		}
	}
	r.progress.Done = 1
	r.tell()
	return rows.Err()
}

func atuinHas(ctx context.Context, db *sql.DB) ([]string, error) {
	rows, err := db.QueryContext(ctx, "SELECT name FROM pragma_table_info('history')")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var list []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, err
		}
		list = append(list, name)
	}
	return list, rows.Err()
}

// atuinRow is as SQLite has it: a column can hold any type.
type atuinRow struct {
	id, timestamp, duration, exit, command, cwd, session, hostname, deletedAt any
}

func (r *reading) atuinRow(row atuinRow) error {
	item := Item{Kind: NotARun, File: r.progress.File, Line: int(r.progress.Bytes), Session: atuinText(row.session), Origin: atuinText(row.id)}
	if !r.first("", item.Origin) {
		item.Kind = Repeated
		return r.emit(item)
	}
	ns, timed := row.timestamp.(int64)
	took, measured := row.duration.(int64)
	exit, known := row.exit.(int64)
	line := strings.TrimSpace(atuinText(row.command))
	switch {
	case row.deletedAt != nil:
		item.Reason = ReasonDeleted
	case line == "":
		item.Reason = ReasonNoCommand
	case !timed || ns <= 0:
		item.Reason = ReasonNoTime
	case !measured || took < 0:
		item.Reason = ReasonRunning
	case !known || exit < 0 || exit > 1<<32:
		item.Reason = ReasonNoExitCode
	default:
		record := events.MemoryRecord{}
		exited(&record, int(exit))
		began := time.Unix(0, ns)
		span(&record, began, began.Add(time.Duration(took)))
		// The database has no output.
		record.Stdout, record.Stderr = notRecorded, notRecorded
		host, _, _ := strings.Cut(atuinText(row.hostname), ":")
		record.Cwd, record.Machine, record.Transport, record.AgentVersion = atuinText(row.cwd), r.machine(host), string(Atuin), string(Atuin)
		item.Kind, item.NotOK, item.Run = Ran, exit != 0, &Run{Record: record, Line: line}
	}
	return r.emit(item)
}

func atuinText(v any) string {
	switch v := v.(type) {
	case string:
		return clean(v)
	case []byte:
		return clean(string(v))
	}
	return ""
}
