package sim

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"fleetledger/events"
	"fleetledger/projections/sqlview"
)

// A view that has followed a log, whatever came and was erased meanwhile, is row by row
// the one that is made of the log at once.
func TestViewIsWhatTheLogGives(t *testing.T) {
	ctx := context.Background()
	list := seeds(t)
	for _, s := range list[:max(1, len(list)/3)] {
		f, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		log := f.Log
		dir := t.TempDir()
		view, err := sqlview.Open(log, dir, slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 600 {
			if err := f.Step(ctx); err != nil {
				t.Fatalf("seed %d, step %d: %v", s, i, err)
			}
			if i%7 == 0 {
				if err := view.Wait(ctx, log.Durable()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if parked, err := view.Parked(ctx, 10); err != nil || len(parked) > 0 {
			t.Errorf("seed %d: parked are %+v, %v", s, parked, err)
		}
		if err := view.Close(); err != nil {
			t.Fatal(err)
		}
		c, err := sqlview.Compare(ctx, log, dir, func(events.Position) {})
		if err != nil || c.File == "" || c.Rows < 100 {
			t.Fatalf("seed %d: %+v, %v", s, c, err)
		}
		for _, d := range c.Differences {
			t.Errorf("seed %d: position %d: %s\n the file %v\n the log  %v\nagain: go test ./testing/sim -run %s -seed %d", s, d.Position, d.Detail, d.File, d.Log, t.Name(), s)
		}
	}
}
