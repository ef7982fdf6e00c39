package commands_test

import (
	"runtime"
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// The state that decisions rest on holds what is open. What is settled, answered or
// spent is in the log alone, however much of it there is.
func TestStateHoldsOnlyWhatIsOpen(t *testing.T) {
	w := newWorld(t)
	w.people()
	const rounds = 400
	var end [2]int // of the log, after a tenth of the rounds and after all
	for i := range rounds {
		tk := w.taskOf(w.submit("ana", "go", "test", "./..."))
		w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 0, "ok")))
		w.ok(w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "task.submit.m1"}))
		if i == rounds/10 {
			end[0] = int(w.Log().Durable())
		}
		w.Now = w.Now.Add(1e10)
	}
	end[1] = int(w.Log().Durable())
	var records []events.Record
	for r, err := range w.Log().ReadAll(w.ctx(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	live := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC() // what pools hold goes with the second
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	var held [2]int64
	for i, n := range end {
		before := live()
		s := projections.NewState()
		for _, r := range records[:n] {
			publish, err := s.Stage([]events.Record{r})
			if err != nil {
				t.Fatal(err)
			}
			publish()
		}
		held[i] = live() - before
		if len(s.OpenTasks()) > 0 {
			t.Fatalf("%d tasks are open", len(s.OpenTasks()))
		}
		runtime.KeepAlive(s)
	}
	runtime.KeepAlive(records)
	// A settled task would take more than a KiB.
	if more := held[1] - held[0]; more > 64<<10 {
		t.Errorf("after %d events the state holds %d KiB, after %d %d", end[0], held[0]>>10, end[1], held[1]>>10)
	}
}
