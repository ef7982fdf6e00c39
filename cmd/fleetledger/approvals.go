package main

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
)

// approval is an approval as the queue shows it.
type approval struct {
	ApprovalID    string         `json:"approval_id"`
	TaskID        string         `json:"task_id"`
	Status        string         `json:"status"`
	Action        string         `json:"action"`
	Actions       []string       `json:"actions"`
	RequestedBy   string         `json:"requested_by"`
	Level         int            `json:"level"`
	RequiredLevel int            `json:"required_level"`
	Scope         string         `json:"scope"`
	Why           string         `json:"why"`
	Command       jsontext.Value `json:"command"`
	CreatedAt     time.Time      `json:"created_at"`
	ExpiresAt     time.Time      `json:"expires_at"`
	TriedBefore   []triedRun     `json:"tried_before"`
	MaySettle     bool           `json:"may_settle"`
	MayNotBecause string         `json:"may_not_settle_because"`
	Spent         bool           `json:"spent"`
	SettledBy     string         `json:"settled_by"`
	Reason        string         `json:"reason"`
}

// triedRun is an earlier run of what is asked.
type triedRun struct {
	Machine  string    `json:"machine"`
	ExitCode *int      `json:"exit_code"`
	Outcome  string    `json:"outcome"`
	Masked   bool      `json:"masked"`
	EndedAt  time.Time `json:"ended_at"`
}

func (a *app) approvalsCommand() *cobra.Command {
	return a.group("approvals", "The queue of what waits for an approval", `  fleetledger approvals list
  fleetledger approvals grant 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 --reason 'release 12'`,
		a.approvalsListCommand(), a.approvalsShowCommand(), a.approvalsWatchCommand(),
		a.settleCommand("grant", "Let it happen, once", events.Granted),
		a.settleCommand("refuse", "Do not let it happen", events.Refused),
		a.withdrawCommand())
}

func (a *app) approvalsListCommand() *cobra.Command {
	var status string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List what waits for an approval, oldest first",
		Example: `  fleetledger approvals list`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			q := pageQuery(cmd)
			q.Set("status", status)
			return a.get(cmd, "/v1/approvals", q, func(p printer, r *agent.Response) error {
				var list page[approval]
				if err := r.Decode(&list); err != nil {
					return err
				}
				if len(list.Items) == 0 {
					a.nothing("approvals", list.Scope)
				}
				now := time.Now()
				for i, x := range list.Items {
					if i > 0 {
						p.f("\n")
					}
					x.show(p, now)
				}
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&status, "status", "pending", "pending, granted, refused, expired or withdrawn")
	return pages(cmd)
}

func (x approval) show(p printer, now time.Time) {
	action := x.Action
	if len(x.Actions) > 1 {
		action = strings.Join(x.Actions, ", ")
	}
	p.f("%s  %s asks for %s, %s ago\n", x.ApprovalID, x.RequestedBy, action, age(x.CreatedAt, now))
	if x.Why != "" {
		p.f("  why       %s\n", x.Why)
	}
	if c := commandText(x.Command); c != "" {
		p.f("  command   %s\n", c)
	}
	p.f("  level     %d, an approver needs %d\n", x.Level, x.RequiredLevel)
	for _, t := range x.TriedBefore {
		p.f("  tried     %s on %s, %s ago\n", t.end(), t.Machine, age(t.EndedAt, now))
	}
	if len(x.TriedBefore) == 0 {
		p.f("  tried     never\n")
	}
	switch {
	case x.Status != "" && x.Status != "pending":
		p.f("  %s by %s%s\n", x.Status, x.SettledBy, because(x.Reason))
	case x.MaySettle:
		p.f("  you       may settle it until %s\n", when(x.ExpiresAt))
	case x.MayNotBecause != "":
		p.f("  you       may not settle it: %s\n", x.MayNotBecause)
	default:
		p.f("  you       may not settle it\n")
	}
}

func (t triedRun) end() string {
	switch {
	case t.ExitCode != nil && t.Masked:
		return fmt.Sprintf("exit %d, masked", *t.ExitCode)
	case t.ExitCode != nil:
		return fmt.Sprintf("exit %d", *t.ExitCode)
	case t.Outcome != "":
		return strings.ReplaceAll(t.Outcome, "_", " ")
	}
	return "ended without an exit code"
}

// commandText is a command as a line: that of a task as a shell would read it,
// any other as JSON.
func commandText(raw jsontext.Value) string {
	if len(raw) == 0 || raw.Kind() == 'n' {
		return ""
	}
	var c events.TaskCommand
	if json.Unmarshal(raw, &c) == nil && len(c.Targets) > 0 {
		return commandLine(c) + " on " + strings.Join(c.Targets, ", ")
	}
	return string(raw)
}

func (a *app) approvalsShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show APPROVAL",
		Short:   "Show one approval",
		Example: `  fleetledger approvals show 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.get(cmd, agent.Path("v1", "approvals", args[0]), nil, func(p printer, r *agent.Response) error {
				var x approval
				if err := r.Decode(&x); err != nil {
					return err
				}
				x.show(p, time.Now())
				return nil
			})
		}),
	}
}

func (a *app) settleCommand(use, short string, outcome events.ApprovalOutcome) *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   use + " APPROVAL... [--reason TEXT]",
		Short: short,
		Long: short + `. Several are settled one by one: each has its own result, and the exit code is 1
if any was refused.`,
		Example: `  fleetledger approvals ` + use + ` 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 --reason 'release 12'`,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				body := settlement{Outcome: outcome, Reason: why}
				return a.post(cmd, agent.Path("v1", "approvals", args[0], "settle"), body, func(p printer, _ *agent.Response) error {
					p.f("approval %s is %s\n", args[0], outcome)
					return nil
				})
			}
			return a.settleAll(cmd, args, outcome, why)
		}),
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, for the record")
	return cmd
}

// settlement is the body of POST /v1/approvals/{id}/settle, and an item of that
// of POST /v1/approvals/settle.
type settlement struct {
	ApprovalID string                 `json:"approval_id,omitzero"`
	Outcome    events.ApprovalOutcome `json:"outcome"`
	Reason     string                 `json:"reason"`
}

func (a *app) settleAll(cmd *cobra.Command, ids []string, outcome events.ApprovalOutcome, why string) error {
	var body struct {
		Settlements []settlement `json:"settlements"`
	}
	for _, id := range ids {
		body.Settlements = append(body.Settlements, settlement{ApprovalID: id, Outcome: outcome, Reason: why})
	}
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	resp, err := c.Post(cmd.Context(), "/v1/approvals/settle", body)
	if err != nil {
		return a.unanswered(err)
	}
	var answer struct {
		Results []struct {
			ApprovalID string `json:"approval_id"`
			Problem    *struct {
				Code   string `json:"code"`
				Detail string `json:"detail"`
			} `json:"problem"`
		} `json:"results"`
	}
	if err := resp.Decode(&answer); err != nil {
		return err
	}
	failed := false
	err = a.show(resp, func(p printer, _ *agent.Response) error {
		for _, r := range answer.Results {
			if r.Problem == nil {
				p.f("approval %s is %s\n", r.ApprovalID, outcome)
			} else {
				printer{a.err}.f("%s: refused: %s\n", cmd.CommandPath(), r.Problem.Detail)
			}
		}
		return nil
	})
	for _, r := range answer.Results {
		failed = failed || r.Problem != nil
	}
	if failed {
		return errors.Join(err, errQuiet)
	}
	return err
}

func (a *app) withdrawCommand() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:   "withdraw APPROVAL... [--reason TEXT]",
		Short: "Take back what was asked for",
		Long: `Take back what was asked for. Several are withdrawn one by one, with --json a line
for each; the exit code is 1 if any was refused.`,
		Example: `  fleetledger approvals withdraw 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51`,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body := struct {
				Reason string `json:"reason,omitzero"`
			}{why}
			var failed error
			for _, id := range args {
				err := a.post(cmd, agent.Path("v1", "approvals", id, "withdraw"), body, func(p printer, _ *agent.Response) error {
					p.f("approval %s is withdrawn\n", id)
					return nil
				})
				if _, refused := errors.AsType[*agent.Problem](err); refused {
					a.fail(cmd, err)
					failed = errQuiet
				} else if err != nil {
					return err
				}
			}
			return failed
		}),
	}
	cmd.Flags().StringVar(&why, "reason", "", "why, for the record")
	return cmd
}
