package main

import (
	"fmt"
	"math"
	"net/url"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/projections"
)

// memoryItem is a finished run as the server lists it.
type memoryItem struct {
	events.MemoryRecord
	RecordID string `json:"record_id"`
}

func (a *app) memoryCommand() *cobra.Command {
	return a.group("memory", "What the fleet's machines ran", `  fleetledger memory list --machine m1`,
		a.memoryListCommand(), a.memoryRecordCommand(), a.memoryConsolidateCommand(), a.memoryForgetCommand(), a.memoryRecallCommand(), a.memoryConsolidationsCommand())
}

func (a *app) memoryListCommand() *cobra.Command {
	var machine, repo, cwd string
	var argv []string
	var forgotten bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List finished runs, newest first",
		Example: `  fleetledger memory list --machine m1 --limit 20`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			q := pageQuery(cmd)
			setQuery(q, "machine", machine)
			setQuery(q, "repo", repo)
			setQuery(q, "cwd", cwd)
			setForgotten(q, forgotten)
			for _, word := range argv {
				q.Add("argv", word)
			}
			return a.get(cmd, "/v1/memory", q, func(p printer, r *agent.Response) error {
				var list page[memoryItem]
				if err := r.Decode(&list); err != nil {
					return err
				}
				if len(list.Items) == 0 {
					a.nothing("runs", list.Scope)
					a.leftOut(list.Scope)
					return nil
				}
				rows := [][]string{{"RECORD", "ENDED", "MACHINE", "HOW", "COMMAND"}}
				for _, x := range list.Items {
					command := projections.CommandLine(x.Argv)
					if command == "" {
						command = "(erased)"
					}
					rows = append(rows, []string{x.RecordID, when(x.EndedAt), x.Machine, envelopeEnd(x.Envelope), command})
				}
				p.table(rows)
				a.leftOut(list.Scope)
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&machine, "machine", "", "only runs on this machine")
	cmd.Flags().StringVar(&repo, "repo", "", "only runs in this repository")
	cmd.Flags().StringVar(&cwd, "cwd", "", "only runs in this directory of a machine")
	cmd.Flags().BoolVar(&forgotten, "include-forgotten", false, "also runs that you, or all, have forgotten")
	cmd.Flags().StringArrayVar(&argv, "argv", nil, "only runs of this command, word by word (repeat)")
	return pages(cmd)
}

func (a *app) memoryRecordCommand() *cobra.Command {
	var from string
	cmd := &cobra.Command{
		Use:   "record FILE|-",
		Short: "Add a finished run to the memory of its machine",
		Long: `Add a finished run, one JSON object as in memory.jsonl, to the memory of its machine.
Only the machine itself or an actor under it may, unless --imported-from says where
the record comes from.`,
		Example: `  tail -n 1 memory.jsonl | fleetledger memory record - --token-file m1.token`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			raw, err := a.readInput(args[0])
			if err != nil {
				return err
			}
			body := struct {
				Record       jsontext.Value `json:"record"`
				ImportedFrom string         `json:"imported_from,omitzero"`
			}{raw, from}
			return a.post(cmd, "/v1/memory", body, func(p printer, r *agent.Response) error {
				var answer struct {
					RecordID string `json:"record_id"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				p.f("recorded as %s\n", answer.RecordID)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&from, "imported-from", "", "where a record of another tool comes from")
	return spends(cmd)
}

func setForgotten(q url.Values, included bool) {
	if included {
		q.Set("include_forgotten", "true")
	}
}

// leftOut tells that what was forgotten is not shown.
func (a *app) leftOut(s scope) {
	if s.Forgotten == "left_out" {
		printer{a.err}.f("runs that were forgotten are left out: --include-forgotten shows them\n")
	}
}

// readInput is the JSON value in a file, or on stdin for "-".
func (a *app) readInput(name string) (jsontext.Value, error) {
	raw, err := a.readFile(name, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	if v := jsontext.Value(raw); v.IsValid() {
		return v, nil
	}
	return nil, fmt.Errorf("%s holds no JSON value", name)
}
