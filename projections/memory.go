package projections

import (
	"strings"
	"time"

	"fleetledger/events"
)

// Run is one finished attempt as the memory of its machine lists it. Tails of
// output stay in the log, at Position.
type Run struct {
	// RecordID is the id of the event that told of it.
	RecordID string
	Position events.Position
	// TaskID and Attempt are empty for a record that no task asked for.
	TaskID  string
	Attempt int

	Machine      string
	Argv         []string // empty if the task's submission was erased
	Command      string   // Argv as one line, see CommandLine
	Cwd          string
	Repo         string
	Commit       string
	Tags         []string
	Outcome      events.Outcome
	ExitCode     *int
	Masked       bool
	StartedAt    time.Time
	EndedAt      time.Time
	ElapsedMS    int64
	Late         bool
	ImportedFrom string
	// Gate and GateID say what let a run begin that no task asked for.
	Gate   events.RunGate
	GateID string
}

// Succeeded reports whether the run passed: exit 0, and nothing in the command
// that can hide another exit code.
func (r *Run) Succeeded() bool { return r.ExitedZero() && !r.Masked }

// ExitedZero reports whether the run ended with exit code 0, whatever that hides.
func (r *Run) ExitedZero() bool {
	return r.Outcome == events.Exited && r.ExitCode != nil && *r.ExitCode == 0
}

// Conclusion is what a reader said a result meant.
type Conclusion struct {
	ID         string
	Position   events.Position
	Stream     events.Stream
	By         string
	At         time.Time
	About      *events.About
	Subject    *events.Subject
	Text       string
	Supersedes string
	// SupersededBy is the newest conclusion that stands in its place, empty if none
	// does. Both stay.
	SupersededBy string
}

// CommandLine writes argv as one line that a POSIX shell reads back as the
// same words.
func CommandLine(argv []string) string {
	words := make([]string, len(argv))
	for i, w := range argv {
		words[i] = w
		if w == "" || strings.ContainsFunc(w, needsQuote) {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
	}
	return strings.Join(words, " ")
}

func needsQuote(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_./:=@%+,^", r), r > 0x7f:
		return false
	}
	return true
}
