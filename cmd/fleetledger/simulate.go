package main

import (
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
)

// simulation is what the server says to a proposed list of rules.
type simulation struct {
	One *struct {
		InForce  events.Decision `json:"in_force"`
		Proposed events.Decision `json:"proposed"`
	} `json:"one"`
	History *struct {
		From        uint64  `json:"from"`
		To          uint64  `json:"to"`
		NextAfter   *uint64 `json:"next_after"`
		Decided     int     `json:"decided"`
		Differ      int     `json:"differ"`
		Differences []struct {
			Position uint64         `json:"position"`
			Action   string         `json:"action"`
			Actor    string         `json:"actor"`
			Was      events.Verdict `json:"was"`
			WouldBe  events.Verdict `json:"would_be"`
			Why      string         `json:"why"`
		} `json:"differences"`
	} `json:"history"`
}

func (a *app) gateSimulateCommand() *cobra.Command {
	var rules, action, actor string
	var limit int
	var after uint64
	cmd := &cobra.Command{
		Use:   "simulate [--rules FILE] [--action ACTION --actor ACTOR]",
		Short: "What other rules would have decided",
		Long: `Decide again under a proposed list of rules, and record nothing. FILE holds the whole
list as a JSON array of rules, in order ("-" reads it from standard input); without it
the rules in force are used. With --action and --actor one question is decided, as things
stand; without them every decision in the log is, and those that would differ are listed.
Exit code 1 means that something would differ.`,
		Example: `  fleetledger rules list --json | jq '[.items[].rule]' > proposed.json
  fleetledger gate simulate --rules proposed.json
  fleetledger gate simulate --rules proposed.json --action deploy.prod --actor ana`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if (action == "") != (actor == "") {
				return misused("--action and --actor go together")
			}
			body := map[string]any{"history": action == ""}
			if action != "" {
				body["action"], body["actor"] = action, actor
			} else {
				body["limit"], body["after"] = limit, after
			}
			if rules != "" {
				list, err := a.readRules(rules)
				if err != nil {
					return err
				}
				body["rules"] = list
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			r := agent.Request{Method: http.MethodPost, Path: "/v1/gates/simulate", Body: body}
			resp, err := c.Do(cmd.Context(), r)
			if err != nil {
				return a.unanswered(err)
			}
			var s simulation
			if err := resp.Decode(&s); err != nil {
				return err
			}
			err = a.show(resp, func(p printer, _ *agent.Response) error {
				s.show(p)
				return nil
			})
			if s.differs() {
				return errors.Join(err, errQuiet)
			}
			return err
		}),
	}
	cmd.Flags().StringVar(&rules, "rules", "", "the proposed list, a JSON array; - is standard input")
	cmd.Flags().StringVar(&action, "action", "", "decide this action")
	cmd.Flags().StringVar(&actor, "actor", "", "of this actor")
	cmd.Flags().Uint64Var(&after, "after", 0, "go on after this position, where an earlier list ended")
	cmd.Flags().IntVar(&limit, "limit", 50, "how many differences to list at most; all are counted")
	return cmd
}

func (a *app) readRules(file string) (jsontext.Value, error) {
	b, err := a.readFile(file, math.MaxInt64)
	if err != nil {
		return nil, err
	}
	var list []jsontext.Value
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, fmt.Errorf("%s is not a JSON array of rules: %w", file, err)
	}
	return b, nil
}

func (s simulation) differs() bool {
	return s.One != nil && s.One.InForce.Verdict != s.One.Proposed.Verdict || s.History != nil && s.History.Differ > 0
}

func (s simulation) show(p printer) {
	if s.One != nil {
		for _, d := range []struct {
			name string
			dec  events.Decision
		}{{"in force", s.One.InForce}, {"proposed", s.One.Proposed}} {
			why := ""
			if d.dec.Decisive != nil {
				why = ": " + d.dec.Decisive.Reason
			}
			p.f("%-9s %s%s\n", d.name, d.dec.Verdict, why)
		}
	}
	if s.History == nil {
		return
	}
	h := s.History
	for _, d := range h.Differences {
		p.f("%d  %s  %s: was %s, would be %s: %s\n", d.Position, d.Action, d.Actor, d.Was, d.WouldBe, d.Why)
	}
	p.f("%d of %s would differ, positions %d to %d", h.Differ, count(h.Decided, "decision"), h.From, h.To)
	if h.NextAfter != nil {
		p.f("; more with --after %d", *h.NextAfter)
	}
	p.f("\n")
}
