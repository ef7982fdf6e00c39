package commands_test

import (
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
)

// What a shell line can hide is marked, though whoever reports or records says nothing
// of it. The same report again is the same, whether its agent marks or not.
func TestHiddenExitCodeIsMarked(t *testing.T) {
	for _, row := range []struct {
		argv []string
		said bool
		want bool
	}{
		{[]string{"sh", "-c", "pytest | tail"}, false, true},
		{[]string{"sh", "-c", "pytest | tail"}, true, true},
		{[]string{"env", "CI=1", "bash", "-lc", "make; echo done"}, false, true},
		{[]string{"bash", "-o", "pipefail", "-c", "pytest | tail"}, false, false},
		{[]string{"sh", "-c", "pytest"}, false, false},
		{[]string{"pytest", "|", "tail"}, false, false}, // no shell reads this
		{[]string{"./wrapper"}, true, true},             // the machine knows more
	} {
		w := newWorld(t)
		w.people()
		tk := w.taskOf(w.submit("ana", row.argv...))
		attempt := w.claim(tk, "m1")
		e := w.envelope("m1", 0, "")
		e.Masked = row.said
		w.ok(w.report(tk, "m1", attempt, e))
		if got := w.reload(tk).Legs[0].Attempts[0].Envelope.Masked; got != row.want {
			t.Errorf("%q, said %v: reported as %v", row.argv, row.said, got)
		}
		again := []bool{row.said}
		if row.want {
			again = []bool{row.said, true}
		}
		for _, said := range again {
			e.Masked = said
			if r := w.ok(w.report(tk, "m1", attempt, e)); !r.Duplicate {
				t.Errorf("%q, said %v again: %+v", row.argv, said, r)
			}
		}
		e.Masked = row.said
		rec := events.MemoryRecord{Envelope: e, Argv: row.argv}
		r := first[events.MemoryRecorded](w, w.ok(w.RecordMemory(w.ctx(), as("m1"), commands.RecordMemory{Record: rec}))).Record
		if r.Masked != row.want {
			t.Errorf("%q, said %v: recorded as %v", row.argv, row.said, r.Masked)
		}
	}
}
