package main

import (
	"testing"
	"time"
)

// The line before a run tells the newest conclusion that stands.
func TestTriedLineTellsWhatStands(t *testing.T) {
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		said []conclusion
		want string
	}{
		{nil, ""},
		{[]conclusion{{By: "ana", Text: "newest\nand more"}, {By: "bo", Text: "older"}}, "; ana concluded: newest"},
		// Another run's conclusion stands in place of the newest of this one.
		{[]conclusion{{By: "ana", Text: "newest", SupersededBy: "x"}, {By: "bo", Text: "older"}}, "; bo concluded: older"},
		{[]conclusion{{By: "ana", Text: "newest", SupersededBy: "x"}}, ""},
	} {
		code := 0
		run := tried{Machine: "m1", Runs: 1, Succeeded: 1, LastAt: now, Conclusions: c.said}
		run.Last.ExitCode = &code
		want := "tried before: 1 run, 1 succeeded, 0 failed; last 0s ago on m1: exit 0" + c.want
		if got := triedLine([]tried{run}, now); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
