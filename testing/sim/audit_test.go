package sim

import (
	"bytes"
	"context"
	"testing"

	"fleetledger/commands/audit"
	"fleetledger/events"
)

// An auditor who comes now and then, and goes on each time from what the last audit has
// left, finds as little as one who reads it all, whatever was erased meanwhile.
func TestAuditNowAndThen(t *testing.T) {
	ctx := context.Background()
	again := 0
	for _, s := range seeds(t) {
		f, err := New(s)
		if err != nil {
			t.Fatal(err)
		}
		log := f.Log
		var from *audit.Point
		decided, roots := 0, 0
		for i := range 600 {
			if err := f.Step(ctx); err != nil {
				t.Fatalf("seed %d, step %d: %v", s, i, err)
			}
			if i%60 != 59 {
				continue
			}
			opts := audit.Options{From: from, Keep: func(*audit.Point) error { return nil }, Again: func(positions []events.Position) (list []events.Stored, err error) {
				again += len(positions)
				for _, p := range positions {
					for r, err := range log.ReadAll(ctx, p-1) {
						if err != nil {
							return nil, err
						}
						list = append(list, r.Stored())
						break
					}
				}
				return list, nil
			}}
			after := events.Position(0)
			if from != nil {
				after = from.Position
			}
			report, err := audit.Run(ctx, events.ReadStored(ctx, log, after), opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range report.Findings {
				t.Errorf("seed %d, step %d, from %d on: position %d: %s: %s: expected %v, actual %v", s, i, after+1, x.Position, x.Kind, x.Detail, x.Expected, x.Actual)
			}
			if t.Failed() {
				t.Fatalf("again: go test ./testing/sim -run %s -seed %d", t.Name(), s)
			}
			decided, roots = decided+report.DecisionsRederived, roots+report.HeadsVerified
			var file bytes.Buffer
			if _, err := report.Established.WriteTo(&file); err != nil {
				t.Fatal(err)
			}
			if from, err = audit.ReadPoint(file.Bytes()); err != nil {
				t.Fatal(err)
			}
		}
		whole, err := audit.Run(ctx, events.ReadStored(ctx, log, 0), audit.Options{})
		if err != nil {
			t.Fatal(err)
		}
		// What was erased meanwhile had been decided again before.
		if !whole.OK || whole.To != from.Position || decided < whole.DecisionsRederived || roots != whole.HeadsVerified {
			t.Errorf("seed %d: %d decisions and %d roots in parts, at once %+v", s, decided, roots, whole)
		}
	}
	if again == 0 && *seed == 0 {
		t.Error("nothing was erased that had been audited before")
	}
}
