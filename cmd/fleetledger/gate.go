package main

import (
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
)

func (a *app) gateCommand() *cobra.Command {
	return a.group("gate", `Ask "may I?" and use the answer`, `  fleetledger gate ask deploy.prod --command '{"version":"1.4"}' --request-approval`,
		a.gateAskCommand(), a.gateShowCommand(), a.gateSpendCommand(), a.gateSimulateCommand())
}

// gateAnswer is what the server says to "may I?".
type gateAnswer struct {
	GateID     string            `json:"gate_id"`
	Verdict    events.Verdict    `json:"verdict"`
	Decisive   *events.Evaluated `json:"decisive"`
	Level      int               `json:"level"`
	ApprovalID string            `json:"approval_id"`
}

func (a *app) gateAskCommand() *cobra.Command {
	var command string
	var request bool
	cmd := &cobra.Command{
		Use:   "ask ACTION [--command JSON] [--request-approval]",
		Short: `Ask "may I do this?"`,
		Long: `Ask the gate about an action. The answer is allow, needs_approval or deny, with the
one rule that decided. --request-approval puts the question in the queue if it needs
an approval; the grant holds for exactly this --command and is used with gate spend.
Exit code 0 means allow; 1 means anything else.`,
		Example: `  fleetledger gate ask deploy.prod --command '{"version":"1.4"}' --request-approval`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body := struct {
				Action          string         `json:"action"`
				Command         jsontext.Value `json:"command,omitzero"`
				RequestApproval bool           `json:"request_approval,omitzero"`
			}{Action: args[0], RequestApproval: request}
			var err error
			if body.Command, err = jsonFlag("--command", command); err != nil {
				return err
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			resp, err := c.Post(cmd.Context(), "/v1/gates", body)
			if err != nil {
				return a.unanswered(err)
			}
			var g gateAnswer
			if err := resp.Decode(&g); err != nil {
				return err
			}
			if err := a.show(resp, func(p printer, _ *agent.Response) error {
				p.f("%s\n", g.Verdict)
				if g.Decisive != nil {
					p.f("  %s\n", reason(*g.Decisive))
				}
				p.f("  gate      %s\n", g.GateID)
				if g.ApprovalID != "" {
					p.f("  approval  %s\n", g.ApprovalID)
				}
				return nil
			}); err != nil {
				return err
			}
			if g.Verdict != events.Allow {
				return errQuiet
			}
			return nil
		}),
	}
	cmd.Flags().StringVar(&command, "command", "", "what exactly would be done, as JSON")
	cmd.Flags().BoolVar(&request, "request-approval", false, "ask for an approval if one is needed")
	return cmd
}

// jsonFlag is the value of a flag that holds JSON, empty if it is not given.
func jsonFlag(name, text string) (jsontext.Value, error) {
	if text == "" {
		return nil, nil
	}
	v := jsontext.Value(text)
	if !v.IsValid() {
		return nil, misused("%s is not JSON: %s", name, text)
	}
	return v, nil
}

// reason says why a rule decided as it did.
func reason(e events.Evaluated) string {
	s := string(e.ReasonCode)
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.RuleID != nil && !strings.Contains(e.Reason, *e.RuleID) {
		s += " (rule " + *e.RuleID + ")"
	}
	return s
}

func (a *app) gateShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show GATE",
		Short:   "Show what became of a gate",
		Example: `  fleetledger gate show 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.get(cmd, agent.Path("v1", "gates", args[0]), nil, showGate)
		}),
	}
}

func (a *app) gateSpendCommand() *cobra.Command {
	var command string
	cmd := &cobra.Command{
		Use:     "spend GATE [--command JSON]",
		Short:   `Use a granted "may I?", once, for exactly the command it was asked for`,
		Example: `  fleetledger gate spend 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 --command '{"version":"1.4"}' && deploy 1.4`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			var body struct {
				Command jsontext.Value `json:"command,omitzero"`
			}
			var err error
			if body.Command, err = jsonFlag("--command", command); err != nil {
				return err
			}
			return a.post(cmd, agent.Path("v1", "gates", args[0], "spend"), body, func(p printer, _ *agent.Response) error {
				p.f("spent: go ahead, once\n")
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&command, "command", "", "the command that was asked for, as JSON")
	return cmd
}

// showGate shows a gate's disposition.
func showGate(p printer, r *agent.Response) error {
	var g struct {
		GateID    string            `json:"gate_id"`
		Verdict   events.Verdict    `json:"verdict"`
		Action    string            `json:"action"`
		Actor     string            `json:"actor"`
		Decisive  *events.Evaluated `json:"decisive"`
		Level     int               `json:"level"`
		DecidedAt time.Time         `json:"decided_at"`
		TaskID    string            `json:"task_id"`
		Command   jsontext.Value    `json:"command"`
		Approval  *struct {
			ApprovalID    string    `json:"approval_id"`
			Status        string    `json:"status"`
			RequiredLevel int       `json:"required_level"`
			ExpiresAt     time.Time `json:"expires_at"`
			SettledBy     string    `json:"settled_by"`
			Reason        string    `json:"reason"`
		} `json:"approval"`
		Spent bool `json:"spent"`
	}
	if err := r.Decode(&g); err != nil {
		return err
	}
	p.f("%s  %s asked for %s at %s, level %d: %s\n", g.GateID, g.Actor, g.Action, when(g.DecidedAt), g.Level, g.Verdict)
	if g.Decisive != nil {
		p.f("  why       %s\n", reason(*g.Decisive))
	}
	if g.TaskID != "" {
		p.f("  task      %s\n", g.TaskID)
	}
	if c := commandText(g.Command); c != "" {
		p.f("  command   %s\n", c)
	}
	switch a := g.Approval; {
	case a == nil:
		p.f("  approval  none was asked for\n")
	case a.Status == "pending":
		p.f("  approval  %s is pending until %s; an approver needs level %d\n", a.ApprovalID, when(a.ExpiresAt), a.RequiredLevel)
	case a.SettledBy == "":
		p.f("  approval  %s %s\n", a.ApprovalID, a.Status)
	default:
		p.f("  approval  %s was %s by %s%s\n", a.ApprovalID, a.Status, a.SettledBy, because(a.Reason))
	}
	if g.Spent {
		p.f("  spent     yes\n")
	}
	return nil
}
