package sqlview

import (
	"context"
	"database/sql"
	"errors"

	"fleetledger/events"
	"fleetledger/projections"
)

func (f *fold) blockPublished(h *events.Header, e events.BlockPublished) error {
	var origin any
	if e.Origin != nil {
		origin = jsonText(e.Origin)
	}
	if _, err := f.exec(`INSERT INTO blocks VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`, int64(h.Position), e.Hash.String(), h.Actor, timeText(h.Time), h.ID,
		jsonText(e.Fields), jsonText(e.Parents), jsonText(e.Ancestors), origin); err != nil {
		return err
	}
	for _, p := range e.Parents {
		if _, err := f.exec(`INSERT INTO block_parents VALUES (?, ?)`, p.String(), int64(h.Position)); err != nil {
			return err
		}
	}
	return nil
}

func (f *fold) blockAccepted(h *events.Header, e events.BlockAccepted) error {
	_, err := f.exec(`INSERT INTO acceptances VALUES (?, ?, ?, ?, ?, ?, ?, ?)`, int64(h.Position), h.ID, e.Hash.String(), h.Actor, timeText(h.Time),
		orNull(e.Stored.String()), jsonText(e.Fields), e.OwnThought)
	return err
}

// BlockFilter narrows a list of blocks; empty fields match everything.
type BlockFilter struct {
	PublishedBy string
	// AcceptedBy is a receiver who took something of it.
	AcceptedBy string
	// Parent is a block that it stems from directly.
	Parent events.Hash
}

// Blocks lists blocks, newest first.
func (v *View) Blocks(ctx context.Context, p projections.Page, f BlockFilter) (list []projections.Block, more bool, err error) {
	where, args := `position <= ?1 AND position < ?2`, []any{int64(p.At), before(p), p.Limit + 1}
	if f.PublishedBy != "" {
		where, args = where+` AND published_by = ?4`, append(args, f.PublishedBy)
	} else {
		args = append(args, nil)
	}
	if f.AcceptedBy != "" {
		where, args = where+` AND EXISTS (SELECT 1 FROM acceptances WHERE acceptances.hash = blocks.hash AND by = ?5 AND stored IS NOT NULL AND acceptances.position <= ?1)`, append(args, f.AcceptedBy)
	} else {
		args = append(args, nil)
	}
	if !f.Parent.IsZero() {
		where, args = where+` AND position IN (SELECT position FROM block_parents WHERE parent = ?6)`, append(args, f.Parent.String())
	}
	err = v.look(ctx, func(r reader) error {
		return r.each(func(rows *sql.Rows) error {
			b, err := scanBlock(rows)
			list = append(list, b)
			return err
		}, `SELECT position, hash, published_by, published_at, event_id, fields, parents, ancestors, origin FROM blocks WHERE `+where+` ORDER BY position DESC LIMIT ?3`, args...)
	})
	if len(list) > p.Limit {
		return list[:p.Limit], true, err
	}
	return list, false, err
}

func scanBlock(rows *sql.Rows) (projections.Block, error) {
	var b projections.Block
	var hash, at, fields, parents, ancestors string
	var origin sql.NullString
	if err := rows.Scan(&b.Position, &hash, &b.By, &at, &b.EventID, &fields, &parents, &ancestors, &origin); err != nil {
		return b, err
	}
	b.At = parseTime(at)
	err := errors.Join(b.Hash.UnmarshalText([]byte(hash)), fromJSON(fields, &b.Fields), fromJSON(parents, &b.Parents), fromJSON(ancestors, &b.Ancestors))
	if origin.Valid {
		b.Origin = &events.BlockOrigin{}
		err = errors.Join(err, fromJSON(origin.String, b.Origin))
	}
	return b, err
}
