package sqlview

import (
	"context"
	"database/sql"

	"fleetledger/events"
	"fleetledger/projections"
)

// Listed is an entry of a list: the rest is read from the log.
type Listed struct {
	ID string
	// Position is that of the event that began it.
	Position events.Position
}

// MaxLooked bounds the rows that one page looks at. A page of few matches may be
// short, or empty, and yet not the last.
const MaxLooked = 10_000

// Tasks lists tasks, newest first, of one status and with one target if given. The
// next page is after last, unless that is 0.
func (v *View) Tasks(ctx context.Context, p projections.Page, status, machine string) (list []Listed, last events.Position, err error) {
	from, args := `tasks WHERE`, []any(nil)
	if machine != "" {
		from, args = `task_targets JOIN tasks USING (position) WHERE machine = ? AND`, append(args, machine)
	}
	query := `SELECT task_id, position, opened, settled FROM ` + from + ` position <= ? AND position < ? ORDER BY position DESC LIMIT ?`
	args = append(args, int64(p.At), before(p), MaxLooked)
	err = v.page(ctx, p, &list, &last, func(began, ended sql.NullInt64) bool {
		return status == "" || status == taskStatus(began, ended, int64(p.At))
	}, query, args...)
	return list, last, err
}

func taskStatus(opened, settled sql.NullInt64, at int64) string {
	switch {
	case settled.Valid && settled.Int64 <= at:
		return projections.TaskSettled
	case opened.Valid && opened.Int64 <= at:
		return projections.TaskOpen
	}
	return projections.TaskAwaitingApproval
}

// Approvals lists approvals, oldest first, of one status if given. The next page is
// after last, unless that is 0.
func (v *View) Approvals(ctx context.Context, p projections.Page, status string) (list []Listed, last events.Position, err error) {
	// How it ended may be told by an event past the page's position.
	query := `SELECT approval_id, position, CASE WHEN status = ? THEN 1 END, settled FROM approvals
		WHERE position <= ? AND position > ? ORDER BY position LIMIT ?`
	err = v.page(ctx, p, &list, &last, func(wanted, settled sql.NullInt64) bool {
		ended := settled.Valid && settled.Int64 <= int64(p.At)
		switch status {
		case "":
			return true
		case projections.ApprovalPending:
			return !ended
		}
		return ended && wanted.Valid
	}, query, status, int64(p.At), int64(p.After), MaxLooked)
	return list, last, err
}

// page fills a page with the rows of a query that match: each has an id, a position
// and two numbers to match by.
func (v *View) page(ctx context.Context, p projections.Page, list *[]Listed, last *events.Position, match func(a, b sql.NullInt64) bool, query string, args ...any) error {
	return v.look(ctx, func(r reader) error {
		rows, err := r.tx.QueryContext(r.ctx, query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		looked := 0
		var at events.Position // of the last row that the page has dealt with
		for rows.Next() {
			var e Listed
			var a, b sql.NullInt64
			if err := rows.Scan(&e.ID, &e.Position, &a, &b); err != nil {
				return err
			}
			if match(a, b) {
				if len(*list) == p.Limit {
					*last = at
					return nil
				}
				*list = append(*list, e)
			}
			at = e.Position
			if looked++; looked == MaxLooked {
				*last = at
			}
		}
		return rows.Err()
	})
}
