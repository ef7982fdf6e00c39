package commands

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"fleetledger/events"
	"fleetledger/projections"
)

// DriftError says that the live state is not what the log folds to.
type DriftError struct {
	Position    events.Position
	Differences []projections.Difference
}

func (e *DriftError) Error() string {
	where := "in how it is written down"
	if len(e.Differences) > 0 {
		where = fmt.Sprintf("first in %s: %s", e.Differences[0].View, e.Differences[0].Item)
	}
	return fmt.Sprintf("at position %d the live state is not what the log folds to, %s; stop the server and start it again, and run: fleetledger audit", e.Position, where)
}

// trailing is how far the second fold trails the log.
const trailing = 1000

// Drift returns the *DriftError that KeepSnapshots met, nil if it met none.
func (l *Ledger) Drift() error {
	if e := l.drift.Load(); e != nil {
		return e
	}
	return nil
}

// KeepSnapshots has write keep the state each time that the log has grown by every
// events; since is the position of the newest snapshot there is, 0 for none. A second
// fold trails the log and is compared with the live state byte by byte: what they do
// not agree on is not kept, and Drift tells of it. It returns when ctx ends, with the
// log's or write's error, or with the *DriftError.
func (l *Ledger) KeepSnapshots(ctx context.Context, every, since events.Position, write func(version string, p events.Position, state []byte) error) error {
	second := projections.NewState()
	p, state, err := l.state.EncodeSnapshot()
	if err == nil && p > 0 {
		err = second.RestoreSnapshot(p, state)
	}
	if err != nil {
		return err
	}
	if p >= since+every {
		if err := l.keepSnapshot(ctx, write, p, state); err != nil {
			return err
		}
		since = p
	}
	for {
		// Folded while it is new the log is still in memory, and nobody else has to make
		// way for much at once.
		step := min(since+every, max(second.Position()+trailing, l.log.Durable()))
		if err := l.log.Wait(ctx, step); err != nil {
			if ctx.Err() != nil || errors.Is(err, events.ErrClosed) {
				return nil
			}
			return err
		}
		if step < since+every {
			if err := l.foldUpTo(ctx, second, step); err != nil {
				return err
			}
			continue
		}
		erased := l.state.Erased()
		p, state, err := l.state.EncodeSnapshot()
		if err != nil {
			return err
		}
		if err := l.foldUpTo(ctx, second, p); err != nil {
			return err
		}
		_, folded, err := second.EncodeSnapshot()
		switch {
		case err != nil:
			return err
		case bytes.Equal(state, folded):
			if err := l.keepSnapshot(ctx, write, p, state); err != nil {
				return err
			}
		case l.state.Erased() == erased:
			drift := &DriftError{Position: p, Differences: l.differences(p, state, second)}
			l.drift.Store(drift)
			return drift
		}
		// Between an erased event and the one that erased it the two may differ: the
		// second fold did not meet the payload any more.
		since = p
	}
}

// keepSnapshot writes a snapshot once the log shows what it is of.
func (l *Ledger) keepSnapshot(ctx context.Context, write func(string, events.Position, []byte) error, p events.Position, state []byte) error {
	if err := l.log.Wait(ctx, p); err != nil {
		return err
	}
	return write(l.state.SnapshotVersion(), p, state)
}

func (l *Ledger) foldUpTo(ctx context.Context, s *projections.State, p events.Position) error {
	if err := l.log.Wait(ctx, p); err != nil {
		return err
	}
	// To stage an event costs little more than to stage nothing.
	staged := make([]events.Record, 0, 100)
	for r, err := range l.log.ReadAll(ctx, s.Position()) {
		if err != nil {
			return err
		}
		if r.Header.Position > p {
			break
		}
		if staged = append(staged, r); len(staged) < cap(staged) && r.Header.Position < p {
			continue
		}
		publish, err := s.Stage(staged)
		if err != nil {
			return fmt.Errorf("positions %d to %d: the fold refuses what is in the log: %w", staged[0].Header.Position, r.Header.Position, err)
		}
		publish()
		staged = staged[:0]
	}
	return nil
}

func (l *Ledger) differences(p events.Position, state []byte, second *projections.State) []projections.Difference {
	live := projections.NewState()
	if live.RestoreSnapshot(p, state) != nil {
		return nil
	}
	return projections.Compare(live.Snapshot(), second.Snapshot())
}
