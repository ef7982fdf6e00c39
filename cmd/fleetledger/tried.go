package main

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
)

// tried is what is known of one command.
type tried struct {
	Command   string    `json:"command"`
	Machine   string    `json:"machine"`
	Repo      string    `json:"repo"`
	Runs      int       `json:"runs"`
	Succeeded int       `json:"succeeded"`
	Failed    int       `json:"failed"`
	Masked    int       `json:"masked"`
	FirstAt   time.Time `json:"first_at"`
	LastAt    time.Time `json:"last_at"`
	Last      struct {
		TaskID     string         `json:"task_id"`
		RecordID   string         `json:"record_id"`
		Outcome    events.Outcome `json:"outcome"`
		ExitCode   *int           `json:"exit_code"`
		Masked     bool           `json:"masked"`
		ElapsedMS  int64          `json:"elapsed_ms"`
		Commit     string         `json:"commit"`
		StdoutTail string         `json:"stdout_tail"`
		StderrTail string         `json:"stderr_tail"`
	} `json:"last"`
	Failure        string          `json:"failure"`
	Conclusions    []conclusion    `json:"conclusions"`
	Consolidations []consolidation `json:"consolidations"`
	LeftOut        int             `json:"left_out"`
	WhyMatched     string          `json:"why_matched"`
}

type conclusion struct {
	By   string    `json:"by"`
	At   time.Time `json:"at"`
	Text string    `json:"text"`
	// SupersededBy is a later conclusion in its place.
	SupersededBy string `json:"superseded_by"`
}

func (a *app) triedCommand() *cobra.Command {
	var machine, repo string
	var limit int
	var forgotten bool
	var cursor string
	cmd := &cobra.Command{
		Use:   "tried QUERY",
		Short: "Ask what was already tried, and what happened",
		Long: `Ask what was already tried. Every command that the query matches is shown with all
its runs counted, its last run, and what was concluded: the same command first, then
the same phrase, then the same words, then parts of words in scripts without spaces,
and in each of these the newest. "exit 0, masked" is a run whose shell form can
hide a failure; it is not counted as succeeded.`,
		Example: `  fleetledger tried 'go test ./...' --machine m1`,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			q := url.Values{"q": {strings.Join(args, " ")}, "limit": {strconv.Itoa(limit)}}
			setQuery(q, "machine", machine)
			setQuery(q, "repo", repo)
			setForgotten(q, forgotten)
			setQuery(q, "cursor", cursor)
			return a.get(cmd, "/v1/tried", q, func(p printer, r *agent.Response) error {
				var answer struct {
					Answers []tried         `json:"answers"`
					InPlace []consolidation `json:"in_place_of_forgotten"`
					Scope   scope           `json:"scope"`

					InPlaceLeftOut int `json:"in_place_left_out"`

					NextCursor string `json:"next_cursor"`
					Incomplete bool   `json:"incomplete"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				if len(answer.Answers) == 0 {
					a.nothing("runs", answer.Scope)
				}
				for i, t := range answer.Answers {
					if i > 0 {
						p.f("\n")
					}
					t.show(p, time.Now())
				}
				for _, x := range answer.InPlace {
					p.f("\nin place of runs that were forgotten:\n")
					showConsolidation(p, "  ", x)
				}
				if answer.InPlaceLeftOut > 0 {
					p.f("\n%d more in place of runs that were forgotten are left out for room\n", answer.InPlaceLeftOut)
				}
				a.leftOut(answer.Scope)
				if answer.Incomplete {
					printer{a.err}.f("the search was ended before it was through: there may be more\n")
				}
				a.showMore(cmd, &answer.NextCursor)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&machine, "machine", "", "only runs on this machine")
	cmd.Flags().StringVar(&repo, "repo", "", "only runs in this repository")
	cmd.Flags().BoolVar(&forgotten, "include-forgotten", false, "also runs that you, or all, have forgotten")
	cmd.Flags().IntVar(&limit, "limit", 10, "how many commands at most")
	cmd.Flags().StringVar(&cursor, "cursor", "", "go on where the answer before ended")
	return cmd
}

// end is how the last run ended.
func (t tried) end() string {
	if t.Last.ExitCode != nil {
		return triedRun{ExitCode: t.Last.ExitCode, Masked: t.Last.Masked}.end()
	}
	return strings.ReplaceAll(string(t.Last.Outcome), "_", " ")
}

func (t tried) show(p printer, now time.Time) {
	p.f("%s\n", t.Command)
	where := "on " + t.Machine
	if t.Repo != "" {
		where += " in " + t.Repo
	}
	counts := fmt.Sprintf("%d succeeded, %d failed", t.Succeeded, t.Failed)
	if t.Masked > 0 {
		counts += fmt.Sprintf(", %d with exit 0, masked", t.Masked)
	}
	p.f("  %s %s: %s (%s)\n", count(t.Runs, "run"), where, counts, strings.ReplaceAll(t.WhyMatched, "_", " "))
	at := ""
	if t.Last.Commit != "" {
		at = " at " + t.Last.Commit[:min(12, len(t.Last.Commit))]
	}
	id := t.Last.TaskID
	if id == "" {
		id = t.Last.RecordID
	}
	p.f("  last %s ago: %s after %s%s (%s)\n", age(t.LastAt, now), t.end(), elapsed(t.Last.ElapsedMS), at, id)
	if t.Failure != "" {
		p.f("    went wrong: %s\n", t.Failure)
	}
	for _, o := range []struct{ name, tail string }{{"stdout", t.Last.StdoutTail}, {"stderr", t.Last.StderrTail}} {
		if o.tail != "" {
			p.f("    %s:\n", o.name)
			p.block("      ", o.tail)
		}
	}
	for _, x := range t.Consolidations {
		p.f("  %s consolidated %s, %s ago:\n", x.By, count(len(x.Records), "record"), age(x.At, now))
		p.block("      ", x.Text)
	}
	for _, c := range t.Conclusions {
		since := ""
		if c.SupersededBy != "" {
			since = " (superseded since)"
		}
		p.f("  %s concluded, %s ago%s:\n", c.By, age(c.At, now), since)
		p.block("      ", c.Text)
	}
	if t.LeftOut > 0 {
		p.f("  %d more of what was concluded or consolidated is left out for room\n", t.LeftOut)
	}
}
