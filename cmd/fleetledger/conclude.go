package main

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/projections"
)

// concludeBody is the body of POST /v1/conclusions.
type concludeBody struct {
	About      *events.About `json:"about"`
	Text       string        `json:"text"`
	Supersedes string        `json:"supersedes,omitzero"`
	ImportedID string        `json:"imported_id,omitzero"`
}

func (a *app) concludeCommand() *cobra.Command {
	var last, nothing bool
	var supersedes string
	cmd := &cobra.Command{
		Use:   "conclude TASK|RECORD|--last|--about-nothing TEXT",
		Short: "Say what a result meant",
		Long: strings.TrimSpace(`
Say what the result of a task or of a recorded run meant. Nothing is rewritten: the
conclusion stands beside the result, and whoever asks what was tried sees it.

--last stands for the newest finished run that the fleet knows, of whichever machine
and task; which one it was is told. If there is none yet, the conclusion is kept about
nothing, which is what --about-nothing asks for.`),
		Example: `  fleetledger conclude 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 'flaky: passes alone, fails beside the load test'
  fleetledger conclude --last 'the fix works'`,
		Args: func(cmd *cobra.Command, args []string) error {
			if last && nothing {
				return errors.New("--last and --about-nothing are two different things: give one")
			}
			if last || nothing {
				return cobra.ExactArgs(1)(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			body := concludeBody{Text: args[len(args)-1], Supersedes: supersedes}
			resp, err := a.conclude(cmd, c, body, args, last, nothing)
			if err != nil {
				return a.unanswered(err)
			}
			if resp.Status == http.StatusAccepted {
				return a.waiting(cmd, resp)
			}
			return a.show(resp, func(p printer, r *agent.Response) error {
				var answer struct {
					ConclusionID string `json:"conclusion_id"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				p.f("recorded as conclusion %s\n", answer.ConclusionID)
				return nil
			})
		}),
	}
	cmd.Flags().BoolVar(&last, "last", false, "about the newest finished run")
	cmd.Flags().BoolVar(&nothing, "about-nothing", false, "about no task and no record")
	cmd.Flags().StringVar(&supersedes, "supersedes", "", "conclusion that this one stands in place of")
	return spends(cmd)
}

func (a *app) conclude(cmd *cobra.Command, c *agent.Client, body concludeBody, args []string, last, nothing bool) (*agent.Response, error) {
	send := func(about *events.About) (*agent.Response, error) {
		body.About = about
		return c.Do(cmd.Context(), agent.Request{Method: http.MethodPost, Path: "/v1/conclusions", Body: body, ApprovalID: approvalOf(cmd)})
	}
	switch {
	case nothing:
		return send(nil)
	case last:
		run, found, err := newestRun(cmd.Context(), c)
		switch {
		case err != nil:
			return nil, err
		case !found:
			printer{a.err}.f("no finished run is recorded yet: it is kept, about nothing\n")
			return send(nil)
		}
		printer{a.err}.f("about %s: %s, %s\n", run.RecordID, projections.CommandLine(run.Argv), envelopeEnd(run.Envelope))
		return send(&events.About{RecordID: run.RecordID})
	}
	// The two kinds of id look alike: whichever is there is meant.
	resp, err := send(&events.About{TaskID: args[0]})
	if p, ok := errors.AsType[*agent.Problem](err); ok && p.Code == "TASK_NOT_FOUND" {
		return send(&events.About{RecordID: args[0]})
	}
	return resp, err
}

// newestRun is the newest finished run; found is false if there is none.
func newestRun(ctx context.Context, c *agent.Client) (run memoryItem, found bool, err error) {
	resp, err := c.Get(ctx, "/v1/memory", url.Values{"limit": {"1"}})
	if err != nil {
		return run, false, err
	}
	var list struct {
		Items []memoryItem `json:"items"`
	}
	if err := resp.Decode(&list); err != nil || len(list.Items) == 0 {
		return run, false, err
	}
	return list.Items[0], true, nil
}
