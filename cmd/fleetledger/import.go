package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/migrations/histories"
)

func (a *app) importCommand() *cobra.Command {
	var machine string
	cmd := &cobra.Command{
		Use:   "import claude-code|codex|w2m|atuin PATH",
		Short: "Import the commands that another tool ran",
		Long: strings.TrimSpace(`
Import what other tools wrote down of the commands they ran, so that "tried" answers
from the first day on. PATH is a file, or a folder with all below it:

  claude-code  transcripts, as in ~/.claude/projects, those of sub-agents too
  codex        rollouts, as in ~/.codex/sessions
  w2m          memory.jsonl with its rotated generations, and its conclusions; the
               sections of fleet-memory.md, into the collective memory: one that is
               there and says something else, or was retired, stays as it is
  atuin        history.db

Importing again records nothing twice, whoever does it, so what was interrupted is
simply repeated, and the files may vanish afterwards. What is no run is counted with
the reason: a call that the user refused, that was cancelled with another, or of which
the history does not tell how it ended.

A record is of the machine that it names (W2M, atuin), else of this host; --machine
says it for all of them.`),
		Example: `  fleetledger import claude-code ~/.claude/projects --machine laptop
  fleetledger import atuin ~/.local/share/atuin/history.db`,
		Args:      cobra.ExactArgs(2),
		ValidArgs: []string{"claude-code", "codex", "w2m", "atuin"},
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if !histories.Recognised(args[0]) {
				return misused("%s is none of the tools whose histories can be imported: claude-code, codex, w2m, atuin", args[0])
			}
			if machine != "" && !events.ValidID(machine) {
				return misused("--machine %s: a machine's id is made of a-z, 0-9, and . _ - after the first, 64 at most", machine)
			}
			if _, err := os.Stat(args[1]); err != nil {
				return err
			}
			return a.importHistory(cmd, histories.Tool(args[0]), args[1], machine)
		}),
	}
	cmd.Flags().StringVar(&machine, "machine", "", "the machine that ran the commands")
	return cmd
}

func (a *app) importHistory(cmd *cobra.Command, tool histories.Tool, path, machine string) error {
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	im, err := newImporter(cmd.Context(), c, tool, path)
	if err != nil {
		return a.unanswered(err)
	}
	line := &progressLine{w: a.err, on: !a.json && isTerminal(a.err)}
	err = im.run(cmd.Context(), path, histories.Options{
		Machine: machine, Host: hostID(), TailBytes: im.tailBytes,
		Progress: func(p histories.Progress) { line.show(p, time.Now()) },
	})
	line.clear()
	if errors.Is(err, histories.ErrNothing) || errors.Is(err, os.ErrNotExist) {
		return tryNext(err, "fleetledger import --help")
	}
	report := im.finished(err == nil)
	if a.json {
		if err := a.printValue(report); err != nil {
			return err
		}
	} else {
		report.show(printer{a.out})
	}
	if cmd.Context().Err() != nil {
		err = errors.New("interrupted")
	}
	if _, unanswered := errors.AsType[*agent.UnreachableError](err); unanswered {
		return a.unanswered(err)
	}
	if err != nil {
		return tryNext(err, "the same again: it goes on where this ended")
	}
	return nil
}

// hostID is this host's name as a machine's id.
func hostID() string {
	name, err := os.Hostname()
	if id := histories.MachineID(name); err == nil && id != "" {
		return id
	}
	return "unknown-host"
}

// importReport says what was read, what became of it, and why.
type importReport struct {
	Tool string `json:"tool"`
	Path string `json:"path"`
	// Complete is false if the import ended before its end.
	Complete bool     `json:"complete"`
	Files    int      `json:"files"`
	Machines []string `json:"machines"`
	// Calls are the commands that were found, each once: Runs of them ran and ended,
	// NotOK did not go well by the tool's own word.
	Calls int `json:"calls"`
	NotOK int `json:"not_ok"`
	Runs  int `json:"runs"`
	// Ends counts the runs by how they ended, as "exit 0" or "timed out".
	Ends   map[string]int `json:"ends"`
	Masked int            `json:"masked"`
	// Repeated are calls and conclusions that were found again.
	Repeated     int `json:"repeated"`
	Imported     int `json:"imported"`
	AlreadyThere int `json:"already_there"`

	Conclusions             int `json:"conclusions"`
	ConclusionsImported     int `json:"conclusions_imported"`
	ConclusionsAlreadyThere int `json:"conclusions_already_there"`

	// Sections are those of the collective documents.
	Sections             int `json:"sections"`
	SectionsImported     int `json:"sections_imported"`
	SectionsAlreadyThere int `json:"sections_already_there"`

	Skipped   []importSkip `json:"skipped"`
	ElapsedMS int64        `json:"elapsed_ms"`
}

// importSkip is why something was not imported.
type importSkip struct {
	// What is "call", "line", "file", "conclusion", "document", "section" or "secret".
	What   string `json:"what"`
	Reason string `json:"reason"`
	Count  int    `json:"count"`
	// First is the first place it was met: a file's base name, and a line unless it is
	// the whole file.
	First string `json:"first"`
}

func (r *importReport) skip(what string, it histories.Item, reason string) {
	i := slices.IndexFunc(r.Skipped, func(s importSkip) bool { return s.What == what && s.Reason == reason })
	if i < 0 {
		i = len(r.Skipped)
		first := it.File
		if it.Line > 0 {
			first += fmt.Sprintf(":%d", it.Line)
		}
		r.Skipped = append(r.Skipped, importSkip{What: what, Reason: reason, First: first})
	}
	r.Skipped[i].Count++
}

func (r *importReport) show(p printer) {
	p.f("%s: %s in %s, %d of them not ok by the word of %s\n", r.Path, count(r.Calls, "call"), count(r.Files, "file"), r.NotOK, r.Tool)
	if r.Runs > 0 {
		ends := make([]string, 0, len(r.Ends))
		for end := range r.Ends {
			ends = append(ends, end)
		}
		slices.SortFunc(ends, func(a, b string) int {
			if d := r.Ends[b] - r.Ends[a]; d != 0 {
				return d
			}
			return strings.Compare(a, b)
		})
		for i, end := range ends {
			ends[i] = fmt.Sprintf("%d %s", r.Ends[end], end)
		}
		p.f("  %s: %s\n", count(r.Runs, "run"), strings.Join(ends, ", "))
		if r.Masked > 0 {
			p.f("  %d of them can hide another exit code\n", r.Masked)
		}
	}
	for _, s := range r.Skipped {
		p.f("  %s skipped: %s (first: %s)\n", count(s.Count, s.What), s.Reason, s.First)
	}
	if r.Repeated > 0 {
		p.f("  %d found again in a copy, or after a compaction\n", r.Repeated)
	}
	if r.Conclusions > 0 {
		p.f("  %s: %d imported, %d already there\n", count(r.Conclusions, "conclusion"), r.ConclusionsImported, r.ConclusionsAlreadyThere)
	}
	if r.Sections > 0 {
		p.f("  %s: %d imported, %d already there\n", count(r.Sections, "section"), r.SectionsImported, r.SectionsAlreadyThere)
	}
	on := ""
	switch n := len(r.Machines); {
	case n == 1:
		on = " on " + r.Machines[0]
	case n > 1:
		on = fmt.Sprintf(" on %d machines", n)
	}
	p.f("%d imported%s, %d already there\n", r.Imported, on, r.AlreadyThere)
	if !r.Complete {
		p.f("it ended before its end\n")
	}
}

// progressLine is one line on a terminal that is written over and over.
type progressLine struct {
	w    io.Writer
	on   bool
	last time.Time
}

func (l *progressLine) show(p histories.Progress, now time.Time) {
	if !l.on || now.Sub(l.last) < 100*time.Millisecond {
		return
	}
	l.last = now
	percent := int64(100)
	if p.Total > 0 {
		percent = min(100, p.Bytes*100/p.Total)
	}
	printer{l.w}.f("\r\x1b[K%d %%, %d of %s: %s", percent, p.Done, count(p.Files, "file"), p.File[:min(40, len(p.File))])
}

func (l *progressLine) clear() {
	if l.on && !l.last.IsZero() {
		printer{l.w}.f("\r\x1b[K")
	}
}

// stopOn reports whether err, of one record, ends the whole import: it would be
// the same for every other record.
func stopOn(err error) bool {
	p, ok := errors.AsType[*agent.Problem](err)
	if !ok {
		return true
	}
	switch p.Status {
	case 404, 409, 413, 422:
		return false
	case 400:
		return p.Code == "" // no relay
	case 403:
		return p.Code != "MACHINE_MAY_NOT_CONCLUDE"
	}
	return true
}

// cause is the error that a group of workers ended with, if ctx ended for one.
func cause(ctx context.Context, err error) error {
	if c := context.Cause(ctx); c != nil {
		return c
	}
	return err
}
