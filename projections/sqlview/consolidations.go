package sqlview

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"fleetledger/events"
	"fleetledger/projections"
)

func (f *fold) consolidated(h *events.Header, e events.MemoryConsolidated) error {
	var forgets any
	if e.Forgets != nil {
		forgets = jsonText(e.Forgets)
	}
	if _, err := f.exec(`INSERT INTO consolidations VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(h.Position), h.ID, string(h.Stream), h.Actor,
		timeText(h.Time), e.Text, jsonText(e.Records), forgets, orNull(e.Recalls)); err != nil {
		return err
	}
	for _, id := range e.Records {
		run, err := f.log.FindID(context.Background(), id)
		if err != nil {
			return err
		}
		if _, err := f.exec(`INSERT INTO cited VALUES (?1, ?2, ?3, (SELECT series FROM runs WHERE position = ?3))`, int64(h.Position), id, int64(run)); err != nil {
			return err
		}
	}
	if e.Recalls != "" {
		// The first that ended it did: whoever comes later ends nothing.
		_, err := f.exec(`UPDATE forgettings SET recalled = ? WHERE recalled IS NULL AND position = (SELECT position FROM consolidations WHERE consolidation_id = ? LIMIT 1)`,
			int64(h.Position), e.Recalls)
		return err
	}
	if e.Forgets == nil {
		return nil
	}
	reader, form, before := h.Actor, any(nil), any(nil)
	if e.Forgets.ForAll {
		reader = ""
	}
	if e.Forgets.Command != "" {
		form = hash64(commandForm(e.Forgets.Command))
	}
	if e.Forgets.Before != nil {
		before = timeText(*e.Forgets.Before)
	}
	_, err := f.exec(`INSERT INTO forgettings VALUES (?, ?, ?, ?, ?, ?, NULL)`, int64(h.Position), reader, e.Forgets.Cited, orNull(e.Forgets.Machine), form, before)
	return err
}

// remembered is a condition on runs, with what it asks for: that a reader has not
// forgotten them, as of position at. It is "1" if there is nothing to leave out.
func (r reader) remembered(actor string, at events.Position) (condition string, args []any, err error) {
	if actor == "" {
		return "1", nil, nil
	}
	const inForce = `position <= ? AND reader IN ('', ?) AND (recalled IS NULL OR recalled > ?)`
	args = []any{int64(at), actor, int64(at)}
	any := false
	if err := r.each(func(rows *sql.Rows) error { return rows.Scan(&any) }, `SELECT EXISTS (SELECT 1 FROM forgettings WHERE `+inForce+`)`, args...); err != nil || !any {
		return "1", nil, err
	}
	return `NOT EXISTS (SELECT 1 FROM (SELECT * FROM forgettings WHERE ` + inForce + `) AS f WHERE f.position > runs.position AND (
		f.cited = 1 AND EXISTS (SELECT 1 FROM cited WHERE cited.run = runs.position AND cited.consolidation = f.position)
		OR f.machine = runs.machine AND (f.before IS NULL OR runs.ended_at < f.before)
			AND (f.form IS NULL OR EXISTS (SELECT 1 FROM forms WHERE forms.hash = f.form AND forms.series = runs.series))))`, args, nil
}

// rememberedTables are tables for a query's WITH that stand for runs and series, without
// what a reader has forgotten; empty if that is nothing. A series with no run left is
// left out, and of others only the runs left are counted.
func (r reader) rememberedTables(actor string) (string, error) {
	condition, args, err := r.remembered(actor, math.MaxInt64)
	if err != nil || len(args) == 0 {
		return "", err
	}
	for _, a := range args {
		text, ok := a.(string)
		if ok {
			text = "'" + strings.ReplaceAll(text, "'", "''") + "'"
		} else {
			text = fmt.Sprint(a)
		}
		condition = strings.Replace(condition, "?", text, 1)
	}
	return `runs AS (SELECT * FROM main.runs AS runs WHERE ` + condition + `),
		series AS (SELECT * FROM main.series AS s WHERE NOT ` + mayBeForgotten + `
			UNION ALL SELECT id, key, command, machine, (SELECT repo FROM runs WHERE position = left_run), repo_key, runs, succeeded, failed, masked, first_at, last_at, left_run,
				(SELECT json_group_array(tag) FROM (SELECT value AS tag FROM runs, json_each(runs.tags) WHERE series = counted.id GROUP BY value ORDER BY min(position), min(json_each.key) LIMIT ` + strconv.Itoa(maxTags) + `)),
				ifnull((SELECT failure FROM runs WHERE series = counted.id AND failure IS NOT NULL ORDER BY position DESC LIMIT 1), ''), seen
			FROM (SELECT id, key, command, machine, repo_key, count(*) AS runs, sum(result = 'succeeded') AS succeeded, sum(result = 'failed') AS failed, sum(result = 'masked') AS masked,
				min(ended_at) AS first_at, max(ended_at) AS last_at, (SELECT position FROM runs WHERE series = s.id ORDER BY ended_at DESC, position DESC LIMIT 1) AS left_run, seen
				FROM main.series AS s JOIN (SELECT series, result, ended_at FROM runs) AS r ON r.series = s.id WHERE ` + mayBeForgotten + ` GROUP BY s.id) AS counted),
		`, nil
}

// mayBeForgotten is a condition on a series s: that somebody has forgotten runs like its.
const mayBeForgotten = `(s.machine IN (SELECT machine FROM forgettings WHERE machine IS NOT NULL) OR s.id IN (SELECT series FROM cited JOIN forgettings ON forgettings.position = cited.consolidation WHERE series IS NOT NULL))`

// Forgets reports whether a reader's views leave out anything as of position at.
func (v *View) Forgets(ctx context.Context, actor string, at events.Position) (forgets bool, err error) {
	err = v.look(ctx, func(r reader) error {
		condition, _, err := r.remembered(actor, at)
		forgets = condition != "1"
		return err
	})
	return forgets, err
}

const consolidationColumns = `position, consolidation_id, stream, by, at, text, records, forgets, recalls`

func (r reader) consolidations(where string, args ...any) (list []projections.Consolidation, err error) {
	err = r.each(func(rows *sql.Rows) error {
		var c projections.Consolidation
		var stream, at, records string
		var forgets, recalls sql.NullString
		if err := rows.Scan(&c.Position, &c.ID, &stream, &c.By, &at, &c.Text, &records, &forgets, &recalls); err != nil {
			return err
		}
		c.Stream, c.At, c.Recalls = events.Stream(stream), parseTime(at), recalls.String
		err := fromJSON(records, &c.Records)
		if forgets.Valid {
			c.Forgets = &events.Forgetting{}
			err = errors.Join(err, fromJSON(forgets.String, c.Forgets))
		}
		list = append(list, c)
		return err
	}, `SELECT `+consolidationColumns+` FROM consolidations WHERE `+where, args...)
	return list, err
}

// ConsolidationFilter narrows a list of consolidations; empty fields match
// everything.
type ConsolidationFilter struct {
	// Machine is one whose runs it rests on, or forgets.
	Machine string
	// Record is the id of a run that it rests on.
	Record string
}

// Consolidations lists consolidations, newest first.
func (v *View) Consolidations(ctx context.Context, p projections.Page, f ConsolidationFilter) (list []projections.Consolidation, more bool, err error) {
	where, args := `position <= ? AND position < ?`, []any{int64(p.At), before(p)}
	if f.Machine != "" {
		where += ` AND (stream = ? OR EXISTS (SELECT 1 FROM cited JOIN runs ON cited.run = runs.position WHERE cited.consolidation = consolidations.position AND runs.machine = ?))`
		args = append(args, string(events.MachineStream(f.Machine)), f.Machine)
	}
	if f.Record != "" {
		where += ` AND EXISTS (SELECT 1 FROM cited WHERE cited.consolidation = consolidations.position AND cited.record_id = ?)`
		args = append(args, f.Record)
	}
	err = v.look(ctx, func(r reader) error {
		list, err = r.consolidations(where+` ORDER BY position DESC LIMIT ?`, append(args, p.Limit+1)...)
		return err
	})
	if len(list) > p.Limit {
		return list[:p.Limit], true, err
	}
	return list, false, err
}

// ConsolidationsOn are the newest consolidations that rest on a run, as of position
// at.
func (v *View) ConsolidationsOn(ctx context.Context, run, at events.Position) (list []projections.Consolidation, err error) {
	err = v.look(ctx, func(r reader) error {
		list, err = r.consolidations(`position IN (SELECT consolidation FROM cited WHERE run = ?) AND position <= ? ORDER BY position DESC LIMIT ?`, int64(run), int64(at), consolidationsShown)
		return err
	})
	return list, err
}

const consolidationsShown = 20

// onSeries are the newest consolidations that rest on runs of a series.
func (r reader) onSeries(id int64) ([]projections.Consolidation, error) {
	return r.consolidations(`position IN (SELECT consolidation FROM cited WHERE series = ?) ORDER BY position DESC LIMIT ?`, id, consolidationsShown)
}
