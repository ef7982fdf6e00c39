package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
)

func (c *call) view() *sqlview.View { return c.cfg.Views[c.fleet] }

// awaitView waits until the view has folded all that was recorded when the request
// came: whoever has written something reads it back.
func (c *call) awaitView() error {
	target := c.ledger.Log().Durable()
	if err := c.awaitViewAt(target); err != nil {
		return err
	}
	c.folded = target
	return nil
}

// awaitFolded waits until the view has folded what the answer is as of.
func (c *call) awaitFolded() error { return c.awaitViewAt(c.asOf) }

func (c *call) awaitViewAt(target events.Position) error {
	if c.view() == nil {
		return viewBehind(&sqlview.BehindError{Wanted: target, Status: sqlview.Status{Head: target, Fault: "this fleet has no view"}})
	}
	ctx, cancel := context.WithTimeout(c.ctx(), c.cfg.PositionPatience)
	defer cancel()
	return c.viewError(c.view().Wait(ctx, target))
}

// viewError turns a view's lag into what is answered.
func (c *call) viewError(err error) error {
	if b, ok := errors.AsType[*sqlview.BehindError](err); ok && c.ctx().Err() == nil {
		return viewBehind(b)
	}
	return err
}

func viewBehind(b *sqlview.BehindError) *problem {
	s := b.Status
	detail := fmt.Sprintf("the view that answers this has folded %d of %d events; ask again", s.Position, s.Head)
	switch {
	case s.Rebuilding && s.Position == 0:
		detail = fmt.Sprintf("the view that answers this is being made, %d of %d events so far; ask again", s.Rebuilt, s.Head)
	case s.Fault != "":
		detail += "; it does not follow: the operator finds the cause in the relay's log"
	}
	return &problem{status: http.StatusServiceUnavailable, code: "VIEW_BEHIND", detail: detail, facts: facts{
		"position": s.Position, "head": s.Head, "behind_ms": s.Behind.Milliseconds(), "rebuilding": s.Rebuilding, "retry_after_s": 1,
	}}
}

// triedBefore lists the newest runs, as of a position, of what an approval asks to
// run, on the machines it asks for. Without an up-to-date view it is nil: the queue
// does not wait for it.
func (c *call) triedBefore(s commands.Subject) ([]triedRun, error) {
	out := []triedRun{}
	asked := s.Commands()
	if len(asked) == 0 {
		return out, nil
	}
	if c.view() == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(c.ctx(), c.viewPatience())
	defer cancel()
	err := c.view().Wait(ctx, c.asOf)
	var runs []projections.Run
	for _, a := range asked {
		if err != nil {
			break
		}
		var list []projections.Run
		list, _, err = c.view().Runs(ctx, projections.Page{At: c.asOf, Limit: triedBeforeLimit},
			sqlview.RunFilter{Machine: a.Machine, Command: projections.CommandLine(a.Argv)})
		runs = append(runs, list...)
	}
	if behind, ok := errors.AsType[*sqlview.BehindError](err); ok && behind != nil || errors.Is(err, context.DeadlineExceeded) {
		c.viewLate = true
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	newestFirst(runs)
	for _, r := range runs[:min(len(runs), triedBeforeLimit)] {
		out = append(out, triedRun{
			RecordID: r.RecordID, TaskID: r.TaskID, Machine: r.Machine, Command: r.Command, Outcome: r.Outcome,
			ExitCode: r.ExitCode, Masked: r.Masked, EndedAt: r.EndedAt, ElapsedMS: r.ElapsedMS,
		})
	}
	return out, nil
}

// viewPatience is how long what can do without the view waits for it, once a
// request.
func (c *call) viewPatience() time.Duration {
	if c.viewLate {
		return 0
	}
	return min(c.cfg.PositionPatience, time.Second)
}

func newestFirst(runs []projections.Run) {
	slices.SortFunc(runs, func(a, b projections.Run) int { return cmp.Compare(b.Position, a.Position) })
}
