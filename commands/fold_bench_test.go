package commands_test

import (
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// Folding a log anew: tasks that ran, and commands that were asked about.
func BenchmarkFold(b *testing.B) {
	var records []events.Record
	w := newWorld(b)
	w.people()
	for range 2000 {
		tk := w.taskOf(w.submit("ana", "go", "test", "./..."))
		w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 0, "ok")))
		w.ok(w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "task.submit.m1"}))
		w.Now = w.Now.Add(1e10)
	}
	for r, err := range w.Log().ReadAll(w.ctx(), 0) {
		if err != nil {
			b.Fatal(err)
		}
		records = append(records, r)
	}
	b.ResetTimer()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		s := projections.NewState()
		for i := 0; i < len(records); i += 100 {
			publish, err := s.Stage(records[i:min(i+100, len(records))])
			if err != nil {
				b.Fatal(err)
			}
			publish()
		}
		n += len(records)
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
	b.ReportMetric(0, "ns/op")
}
