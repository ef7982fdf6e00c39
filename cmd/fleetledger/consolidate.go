package main

import (
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
)

// consolidateBody is the body of POST /v1/consolidations.
type consolidateBody struct {
	Text    string             `json:"text"`
	Records []string           `json:"records,omitzero"`
	Forgets *events.Forgetting `json:"forgets,omitzero"`
	Recalls string             `json:"recalls,omitzero"`
}

// consolidation is one as the server shows it.
type consolidation struct {
	ID      string             `json:"consolidation_id"`
	Text    string             `json:"text"`
	Records []string           `json:"records"`
	Forgets *events.Forgetting `json:"forgets"`
	Recalls string             `json:"recalls"`
	By      string             `json:"by"`
	At      time.Time          `json:"at"`
}

// what says what a forgetting leaves out.
func forgetting(f *events.Forgetting) string {
	var parts []string
	if f.Cited {
		parts = append(parts, "the records cited")
	}
	if f.Machine != "" {
		part := "records of " + f.Machine
		if f.Command != "" {
			part += " of the command " + f.Command
		}
		if f.Before != nil {
			part += " that ended before " + when(*f.Before)
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", and ")
}

func (a *app) memoryConsolidateCommand() *cobra.Command {
	var body consolidateBody
	var forget, forAll bool
	cmd := &cobra.Command{
		Use:   "consolidate --record ID... TEXT",
		Short: "Say what several records amount to",
		Long: `Say what several records amount to, citing them. It is shown beside them. With --forget
your views show it in their place, with --for-all everybody's; the log holds them, and
whoever asks with --include-forgotten sees them.`,
		Example: `  fleetledger memory consolidate --record 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 --record 0193b2c6-0d3e-7c11-9f2a-3b6c0e8d4a51 'fails on full disks only'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body.Text = args[0]
			if len(body.Records) == 0 {
				return misused("which records does it rest on? give --record ID, once for each")
			}
			if forAll && !forget {
				return misused("--for-all is about --forget")
			}
			if forget {
				body.Forgets = &events.Forgetting{Cited: true, ForAll: forAll}
			}
			return a.consolidate(cmd, body)
		}),
	}
	cmd.Flags().StringArrayVar(&body.Records, "record", nil, "a record that it rests on (repeat)")
	cmd.Flags().BoolVar(&forget, "forget", false, "show it in place of the records")
	cmd.Flags().BoolVar(&forAll, "for-all", false, "to everybody, not only to you")
	return spends(cmd)
}

func (a *app) memoryForgetCommand() *cobra.Command {
	var body consolidateBody
	var f events.Forgetting
	var before string
	cmd := &cobra.Command{
		Use:   "forget --machine M|--record ID... WHY",
		Short: "Have your views leave records out; the log holds them",
		Long: `Have your views leave records out: single ones, or those of a machine that are here by
now, all or only of one command, or that ended before a time. Nothing is deleted: with
--include-forgotten they are shown, and "memory recall" shows them again for good.`,
		Example: `  fleetledger memory forget --machine old-laptop 'it is gone'
  fleetledger memory forget --machine m1 --command 'make test' --before 2026-01-01 'before the new compiler'`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body.Text, body.Forgets = args[0], &f
			f.Cited = len(body.Records) > 0
			if before != "" {
				t, err := readTime(before)
				if err != nil {
					return err
				}
				f.Before = &t
			}
			if !f.Cited && f.Machine == "" {
				return misused("what is to be forgotten? give --record ID, or --machine M")
			}
			return a.consolidate(cmd, body)
		}),
	}
	cmd.Flags().StringArrayVar(&body.Records, "record", nil, "this record (repeat)")
	cmd.Flags().StringVar(&f.Machine, "machine", "", "records of this machine")
	cmd.Flags().StringVar(&f.Command, "command", "", "of these, those of this command, one line")
	cmd.Flags().StringVar(&before, "before", "", "of these, those of runs that ended before this date or time")
	cmd.Flags().BoolVar(&f.ForAll, "for-all", false, "for everybody, not only for you")
	return spends(cmd)
}

// readTime reads a date, or a time as in RFC 3339.
func readTime(s string) (time.Time, error) {
	for _, layout := range []string{time.DateOnly, time.RFC3339Nano} {
		if t, err := time.Parse(layout, s); err == nil {
			return t, nil
		}
	}
	return time.Time{}, misused("%q is no date such as 2026-03-01 and no time such as 2026-03-01T09:00:00Z", s)
}

func (a *app) memoryRecallCommand() *cobra.Command {
	return spends(&cobra.Command{
		Use:     "recall CONSOLIDATION WHY",
		Short:   "Show again what was forgotten",
		Example: `  fleetledger memory recall 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 'needed for the audit'`,
		Args:    cobra.ExactArgs(2),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.consolidate(cmd, consolidateBody{Recalls: args[0], Text: args[1]})
		}),
	})
}

func (a *app) consolidate(cmd *cobra.Command, body consolidateBody) error {
	return a.request(cmd, agent.Request{Method: http.MethodPost, Path: "/v1/consolidations", Body: body, ApprovalID: approvalOf(cmd)},
		func(p printer, r *agent.Response) error {
			var answer struct {
				ID string `json:"consolidation_id"`
			}
			if err := r.Decode(&answer); err != nil {
				return err
			}
			p.f("recorded as consolidation %s\n", answer.ID)
			return nil
		})
}

func (a *app) memoryConsolidationsCommand() *cobra.Command {
	var machine, record string
	cmd := &cobra.Command{
		Use:     "consolidations",
		Short:   "List what records were said to amount to, and what was forgotten",
		Example: `  fleetledger memory consolidations --machine m1`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			q := pageQuery(cmd)
			setQuery(q, "machine", machine)
			setQuery(q, "record", record)
			return a.get(cmd, "/v1/consolidations", q, func(p printer, r *agent.Response) error {
				var list page[consolidation]
				if err := r.Decode(&list); err != nil {
					return err
				}
				if len(list.Items) == 0 {
					a.nothing("consolidations", list.Scope)
				}
				for _, x := range list.Items {
					showConsolidation(p, "", x)
				}
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&machine, "machine", "", "only those that rest on records of this machine, or forget some")
	cmd.Flags().StringVar(&record, "record", "", "only those that rest on this record")
	return pages(cmd)
}

func showConsolidation(p printer, indent string, x consolidation) {
	p.f("%s%s by %s at %s\n", indent, x.ID, x.By, when(x.At))
	p.block(indent+"  ", x.Text)
	for _, id := range x.Records {
		p.f("%s  rests on %s\n", indent, id)
	}
	if f := x.Forgets; f != nil {
		for_ := x.By
		if f.ForAll {
			for_ = "all"
		}
		p.f("%s  forgotten for %s: %s\n", indent, for_, forgetting(f))
	}
	if x.Recalls != "" {
		p.f("%s  shown again: what %s forgot\n", indent, x.Recalls)
	}
}
