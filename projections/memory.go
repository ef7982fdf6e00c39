package projections

import (
	"slices"
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
func (r *Run) Succeeded() bool {
	return r.Outcome == events.Exited && r.ExitCode != nil && *r.ExitCode == 0 && !r.Masked
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

func (tx *tx) applyMemory(r events.Record) error {
	if r.Erased {
		return nil
	}
	e, err := events.Decode(r)
	if err != nil {
		return err
	}
	switch e := e.(type) {
	case events.MemoryRecorded:
		run := newRun(r, e.Record.Envelope, e.Record.Argv)
		run.TaskID, run.Tags, run.ImportedFrom = e.Record.TaskID, e.Record.Tags, e.ImportedFrom
		run.Gate, run.GateID = e.Record.Gate, e.Record.GateID
		tx.effect(func(s *State) { s.index.addRun(run) })
	case events.ConclusionRecorded:
		c := &Conclusion{ID: r.Header.ID, Position: r.Header.Position, Stream: r.Header.Stream, By: r.Header.Actor,
			At: r.Header.Time, About: e.About, Subject: e.Subject, Text: e.Text, Supersedes: e.Supersedes}
		tx.effect(func(s *State) {
			s.index.conclusions = append(s.index.conclusions, c)
			if c.About != nil {
				for _, id := range []string{c.About.TaskID, c.About.RecordID} {
					if id != "" {
						s.index.concluded[id] = append(s.index.concluded[id], c)
					}
				}
			}
		})
	}
	return nil
}

func newRun(r events.Record, e events.Envelope, argv []string) *Run {
	return &Run{
		RecordID: r.Header.ID, Position: r.Header.Position, Machine: e.Machine, Argv: argv, Command: CommandLine(argv),
		Cwd: e.Cwd, Repo: e.Repo, Commit: e.Commit, Outcome: e.Outcome, ExitCode: e.ExitCode, Masked: e.Masked,
		StartedAt: e.StartedAt, EndedAt: e.EndedAt, ElapsedMS: e.ElapsedMS,
	}
}

// indexReport lists a report as a run. The command is the task's.
func (tx *tx) indexReport(id string, r events.Record, e events.TaskReported) {
	tx.effect(func(s *State) {
		entry := s.index.taskByID[id]
		if entry == nil {
			return
		}
		argv := entry.Command.Argv
		if i := slices.Index(entry.Command.Targets, e.Machine); entry.Command.Mode == events.Split && i >= 0 {
			argv = entry.Command.Parts[i]
		}
		run := newRun(r, e.Envelope, argv)
		run.TaskID, run.Attempt, run.Tags, run.Late = id, e.Attempt, entry.Command.Tags, e.Late
		s.index.addRun(run)
	})
}

func (x *index) addRun(r *Run) {
	x.runs = append(x.runs, r)
	x.runByID[r.RecordID] = r
	if r.Command != "" { // what it was may have been erased
		x.runsOf[r.Command] = append(x.runsOf[r.Command], r)
	}
}

// typedLine is the line that a shell was given, as in sh -c LINE, empty for every
// other command: whoever asks for it pastes it without the sh and its quotes.
func typedLine(argv []string) string {
	if len(argv) != 3 || argv[1] != "-c" && argv[1] != "-lc" {
		return ""
	}
	switch argv[0] {
	case "sh", "bash", "dash", "zsh":
		return argv[2]
	}
	return ""
}

// RunFilter narrows a list of runs; empty fields match everything.
type RunFilter struct {
	Machine, Repo string
	// Command is a command line, see CommandLine.
	Command string
	TaskID  string
}

func (f RunFilter) match(r *Run) bool {
	return (f.Machine == "" || r.Machine == f.Machine) && (f.Repo == "" || r.Repo == f.Repo) &&
		(f.Command == "" || r.Command == f.Command) && (f.TaskID == "" || r.TaskID == f.TaskID)
}

// Runs lists finished attempts, newest first.
func (s *State) Runs(p Page, f RunFilter) (list []Run, more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	from := s.index.runs
	if f.Command != "" {
		from = s.index.runsOf[f.Command]
	}
	found, more := page(from, func(r *Run) events.Position { return r.Position },
		func(r *Run) bool { return r.Position <= p.At && f.match(r) }, p.After, p.Limit, true)
	return deref(found), more
}

// RunByID returns the run with this record id.
func (s *State) RunByID(record string) (Run, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if r := s.index.runByID[record]; r != nil {
		return *r, true
	}
	return Run{}, false
}

// Conclusions lists conclusions, newest first, about one task or record if
// about is given.
func (s *State) Conclusions(p Page, about string) (list []Conclusion, more bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	from := s.index.conclusions
	if about != "" {
		from = s.index.concluded[about]
	}
	found, more := page(from, func(c *Conclusion) events.Position { return c.Position },
		func(c *Conclusion) bool { return c.Position <= p.At }, p.After, p.Limit, true)
	return deref(found), more
}

// ConclusionByID returns the conclusion with this event id.
func (s *State) ConclusionByID(id string) (Conclusion, bool) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, c := range slices.Backward(s.index.conclusions) {
		if c.ID == id {
			return *c, true
		}
	}
	return Conclusion{}, false
}

// Why an answer matched, best first: the answers of Tried come in this order.
const (
	MatchedCommand = "same_command"
	MatchedPhrase  = "same_phrase"
	MatchedWords   = "same_words"
)

var matchOrder = []string{MatchedCommand, MatchedPhrase, MatchedWords}

// Tried is what is known of one command in one repository on one machine.
type Tried struct {
	Command, Machine, Repo    string
	Runs                      int
	Succeeded, Failed, Masked int
	FirstAt, LastAt           time.Time
	Last                      Run
	Conclusions               []Conclusion
	WhyMatched                string
}

// Tried answers "what did we already try?": runs grouped by command, repository
// and machine, the same command first, then the same phrase, then the same words,
// each found in the command, its tags or its conclusions. A shell's line (sh -c
// LINE) is the same command as LINE. Within a rank the newest comes first.
func (s *State) Tried(query string, f RunFilter, limit int) []Tried {
	query = strings.Join(strings.Fields(query), " ")
	folded := strings.ToLower(query)
	words := strings.Fields(folded)
	s.mu.RLock()
	defer s.mu.RUnlock()
	type key struct{ command, repo, machine string }
	groups := map[key]*Tried{}
	rank := map[key]int{}
	var order []key
	for _, r := range s.index.runs {
		if !f.match(r) || r.Command == "" {
			continue
		}
		k := key{r.Command, r.Repo, r.Machine}
		m := s.index.matches(r, query, folded, words)
		g := groups[k]
		if g == nil {
			g = &Tried{Command: r.Command, Machine: r.Machine, Repo: r.Repo, FirstAt: r.EndedAt}
			groups[k], rank[k] = g, len(matchOrder)
			order = append(order, k)
		}
		rank[k] = min(rank[k], m)
		g.add(r, s.index.concluded)
	}
	order = slices.DeleteFunc(order, func(k key) bool { return rank[k] == len(matchOrder) })
	slices.SortStableFunc(order, func(a, b key) int {
		if d := rank[a] - rank[b]; d != 0 {
			return d
		}
		return groups[b].LastAt.Compare(groups[a].LastAt)
	})
	out := make([]Tried, 0, min(limit, len(order)))
	for _, k := range order {
		if len(out) == limit {
			break
		}
		g := groups[k]
		g.WhyMatched = matchOrder[rank[k]]
		slices.SortFunc(g.Conclusions, func(a, b Conclusion) int { return int(int64(b.Position) - int64(a.Position)) })
		g.Conclusions = slices.CompactFunc(g.Conclusions, func(a, b Conclusion) bool { return a.ID == b.ID })
		out = append(out, *g)
	}
	return out
}

func (g *Tried) add(r *Run, concluded map[string][]*Conclusion) {
	g.Runs++
	switch {
	case r.Succeeded():
		g.Succeeded++
	case r.Outcome == events.Exited && r.ExitCode != nil && *r.ExitCode == 0:
		g.Masked++
	default:
		g.Failed++
	}
	if r.EndedAt.Before(g.FirstAt) {
		g.FirstAt = r.EndedAt
	}
	if g.Runs == 1 || !r.EndedAt.Before(g.LastAt) {
		g.LastAt, g.Last = r.EndedAt, *r
	}
	for _, id := range []string{r.TaskID, r.RecordID} {
		for _, c := range concluded[id] {
			g.Conclusions = append(g.Conclusions, *c)
		}
	}
}

// matches returns the rank at which a run answers a query, len(matchOrder) for
// not at all. An empty query is answered by every run.
func (x *index) matches(r *Run, query, folded string, words []string) int {
	line := typedLine(r.Argv)
	if r.Command == query || strings.Join(r.Argv, " ") == query || line != "" && strings.Join(strings.Fields(line), " ") == query {
		return 0
	}
	text := strings.ToLower(r.Command + "\n" + line + "\n" + strings.Join(r.Tags, "\n"))
	for _, id := range []string{r.TaskID, r.RecordID} {
		for _, c := range x.concluded[id] {
			text += "\n" + strings.ToLower(c.Text)
		}
	}
	if strings.Contains(text, folded) {
		return 1
	}
	for _, w := range words {
		if !strings.Contains(text, w) {
			return len(matchOrder)
		}
	}
	return 2
}
