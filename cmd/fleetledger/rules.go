package main

import (
	"net/http"
	"strconv"

	"github.com/spf13/cobra"

	"fleetledger/agent"
)

// rule is a rule as the server shows it.
type rule struct {
	RuleID string   `json:"rule_id"`
	Rule   ruleBody `json:"rule"`
}

// ruleBody is the body of POST /v1/rules.
type ruleBody struct {
	Action              string  `json:"action"`
	MinLevel            *int    `json:"min_level"`
	MatchingExemptLevel *int    `json:"matching_exempt_level,omitzero"`
	Scope               *string `json:"scope,omitzero"`
	Why                 string  `json:"why,omitzero"`
}

func (a *app) rulesCommand() *cobra.Command {
	list := pages(&cobra.Command{
		Use:   "list",
		Short: "List the rules in force, in the order they are evaluated",
		Long: `List the rules in force, in the order they are evaluated. The first matching rule
that does not allow decides; a later one never weakens an earlier one.`,
		Example: `  fleetledger rules list`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.get(cmd, "/v1/rules", pageQuery(cmd), func(p printer, r *agent.Response) error {
				var list page[rule]
				if err := r.Decode(&list); err != nil {
					return err
				}
				rows := [][]string{{"RULE", "ACTION", "LEVEL", "SCOPE", "EXEMPT", "WHY"}}
				for _, x := range list.Items {
					scope := ""
					if x.Rule.Scope != nil {
						scope = *x.Rule.Scope
					}
					rows = append(rows, []string{x.RuleID, x.Rule.Action, number(x.Rule.MinLevel), scope, number(x.Rule.MatchingExemptLevel), x.Rule.Why})
				}
				p.table(rows)
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	})

	var body ruleBody
	var level, exempt int
	var scope string
	write := &cobra.Command{
		Use:   "write ACTION --min-level N [--scope S] [--exempt N] [--why TEXT]",
		Short: "Add a rule at the end of the list",
		Long: `Add a rule at the end of the list. ACTION is an exact name or a prefix like
"deploy.*". An actor below --min-level needs an approval; with --scope one that is
no member of it too, unless its level is at or above --exempt.`,
		Example: `  fleetledger rules write deploy.prod --min-level 70 --why 'production is shared'
  fleetledger rules write 'task.submit.*' --min-level 50 --scope dba --exempt 90`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body.Action, body.MinLevel = args[0], &level
			if cmd.Flags().Changed("exempt") {
				body.MatchingExemptLevel = &exempt
			}
			if cmd.Flags().Changed("scope") {
				body.Scope = &scope
			}
			return a.post(cmd, "/v1/rules", body, func(p printer, r *agent.Response) error {
				var x rule
				if err := r.Decode(&x); err != nil {
					return err
				}
				p.f("rule %s is in force\n", x.RuleID)
				return nil
			})
		}),
	}
	flags := write.Flags()
	flags.IntVar(&level, "min-level", 0, "level below which an approval is needed")
	flags.IntVar(&exempt, "exempt", 0, "level from which on membership is not asked for")
	flags.StringVar(&scope, "scope", "", "scope whose members it is for")
	flags.StringVar(&body.Why, "why", "", "what the rule is for")
	_ = write.MarkFlagRequired("min-level") // it exists

	retire := &cobra.Command{
		Use:     "retire RULE",
		Short:   "Take a rule out of the list; it stays in the record",
		Example: `  fleetledger rules retire 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.request(cmd, agent.Request{
				Method: http.MethodDelete, Path: agent.Path("v1", "rules", args[0]), ApprovalID: approvalOf(cmd),
			}, func(p printer, _ *agent.Response) error {
				p.f("rule %s is retired\n", args[0])
				return nil
			})
		}),
	}
	return a.group("rules", "The rules that gates decide by", list.Example, list, spends(write), spends(retire))
}

func number(n *int) string {
	if n == nil {
		return ""
	}
	return strconv.Itoa(*n)
}
