package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
)

func (a *app) approvalsWatchCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show what waits for an approval, then what comes",
		Long: `Show what waits for an approval, then each approval as it is asked for and as it ends.
It goes on through restarts of the server; end it with Ctrl-C. With --json one line
each: {"event", "approval"}.`,
		Example: `  fleetledger approvals watch`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			p := printer{a.out}
			s := agent.Subscription{
				Path: "/v1/approvals/stream",
				Lost: func(err error, wait time.Duration) {
					printer{a.err}.f("%v; trying again in %s\n", err, wait.Round(time.Millisecond))
				},
			}
			err = c.Subscribe(cmd.Context(), s, func(e agent.ServerEvent) error {
				var x approval
				if err := json.Unmarshal(e.Data, &x); err != nil {
					return err
				}
				if a.json {
					line, err := json.Marshal(map[string]any{"event": e.Name, "approval": jsontext.Value(e.Data)}, json.Deterministic(true))
					if err != nil {
						return err
					}
					return a.printJSON(line)
				}
				if e.Name == "requested" {
					x.show(p, time.Now())
				} else {
					p.f("%s  %s by %s%s\n", x.ApprovalID, e.Name, x.SettledBy, because(x.Reason))
				}
				return nil
			})
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return a.unanswered(err)
		}),
	}
}
