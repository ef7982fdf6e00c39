package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/projections"
)

// task is a task as the server shows it.
type task struct {
	TaskID  string              `json:"task_id"`
	Status  string              `json:"status"`
	Verdict *events.TaskVerdict `json:"verdict"`
	Reason  string              `json:"reason"`
	events.TaskCommand
	CommandErased bool `json:"command_erased"`

	SubmittedBy string     `json:"submitted_by"`
	SubmittedAt time.Time  `json:"submitted_at"`
	Gates       []taskGate `json:"gates"`
	ApprovalID  string     `json:"approval_id"`
	Legs        []struct {
		Machine  string `json:"machine"`
		Status   string `json:"status"`
		Attempts []struct {
			Attempt  int              `json:"attempt"`
			Late     bool             `json:"late"`
			Erased   bool             `json:"erased"`
			Envelope *events.Envelope `json:"envelope"`
		} `json:"attempts"`
	} `json:"legs"`
}

type taskGate struct {
	Machine  string          `json:"machine"`
	GateID   string          `json:"gate_id"`
	Decision events.Decision `json:"decision"`
}

// commandLine is what a task runs, as a shell would read it; in mode split the
// parts one after the other.
func commandLine(c events.TaskCommand) string {
	if c.Mode != events.Split {
		return projections.CommandLine(c.Argv)
	}
	var parts []string
	for _, argv := range c.Parts {
		parts = append(parts, projections.CommandLine(argv))
	}
	return strings.Join(parts, "; ")
}

// outcome is the verdict, or the status of a task without one.
func (t task) outcome() string {
	if t.Verdict != nil {
		return string(*t.Verdict)
	}
	return strings.ReplaceAll(t.Status, "_", " ")
}

func (t task) succeeded() bool { return t.Verdict != nil && *t.Verdict == events.VerdictSucceeded }

func (a *app) taskCommand() *cobra.Command {
	return a.group("task", "Submit commands to machines and see what became of them",
		`  fleetledger task submit --target m1 --wait -- go test ./...`,
		a.taskSubmitCommand(), a.taskShowCommand(), a.taskListCommand(), a.taskCancelCommand())
}

// submitTask is the body of POST /v1/tasks.
type submitTask struct {
	Argv           []string          `json:"argv,omitzero"`
	Targets        []string          `json:"targets"`
	Mode           string            `json:"mode,omitzero"`
	Parts          [][]string        `json:"parts,omitzero"`
	Quorum         int               `json:"quorum,omitzero"`
	Cwd            string            `json:"cwd,omitzero"`
	Env            map[string]string `json:"env,omitzero"`
	EnvFrom        []string          `json:"env_from,omitzero"`
	TimeoutSeconds int               `json:"timeout_s,omitzero"`
	Attempts       int               `json:"attempts,omitzero"`
	Tags           []string          `json:"tags,omitzero"`
}

func (a *app) taskSubmitCommand() *cobra.Command {
	var body submitTask
	var env, parts []string
	var wait bool
	cmd := &cobra.Command{
		Use:   "submit --target M [--target M]... [flags] -- CMD...",
		Short: "Ask for a command to be run on machines",
		Long: strings.TrimSpace(`
Ask for a command to be run. It is run as it stands, without a shell. Each target is
gated: a denied task runs nothing; one that needs an approval waits for it.

With several targets the same command runs on each and the results are compared
(--mode replicate). With --mode split every target runs a command of its own: give
one --part for each, a JSON array of words, instead of CMD.

--wait waits for the verdict, shows how each machine ended, and ends with exit code
0 only if the task succeeded.`),
		Example: `  fleetledger task submit --target m1 --wait -- go test ./...
  fleetledger task submit --target m1 --target m2 --quorum 1 --timeout 600 -- make check
  fleetledger task submit --target m1 --target m2 --mode split --part '["make","a"]' --part '["make","b"]'`,
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body.Argv = args
			for _, p := range parts {
				var argv []string
				if err := json.Unmarshal([]byte(p), &argv); err != nil {
					return misused(`--part %s is no JSON array of words like ["make","a"]`, p)
				}
				body.Parts = append(body.Parts, argv)
			}
			for _, e := range env {
				name, value, ok := strings.Cut(e, "=")
				if !ok || name == "" {
					return misused("--env %s: it looks like NAME=VALUE", e)
				}
				if body.Env == nil {
					body.Env = map[string]string{}
				}
				body.Env[name] = value
			}
			switch {
			case len(args) == 0 && len(parts) == 0:
				return misused("no command: it comes last, behind --")
			case len(args) > 0 && len(parts) > 0:
				return misused("give a command or --part for each target, not both")
			}
			return a.submit(cmd, body, wait)
		}),
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&body.Targets, "target", nil, "machine to run on (repeat)")
	flags.StringVar(&body.Mode, "mode", "", "single, replicate or split (default: single for one target, else replicate)")
	flags.StringArrayVar(&parts, "part", nil, "in mode split: the command of the next target, as a JSON array (repeat)")
	flags.IntVar(&body.Quorum, "quorum", 0, "replicas that must agree on exit 0")
	flags.StringVar(&body.Cwd, "cwd", "", "working directory on the machine")
	flags.StringArrayVar(&env, "env", nil, "NAME=VALUE for the command (repeat)")
	flags.StringArrayVar(&body.EnvFrom, "env-from", nil, "variable whose value is on the machine (repeat)")
	flags.IntVar(&body.TimeoutSeconds, "timeout", 0, "seconds after which the command is stopped (0: none)")
	flags.IntVar(&body.Attempts, "attempts", 0, "how often a leg is offered at most (default 1)")
	flags.StringArrayVar(&body.Tags, "tag", nil, "word to find the run by (repeat)")
	flags.BoolVar(&wait, "wait", false, "wait for the verdict")
	_ = cmd.MarkFlagRequired("target") // it exists
	return cmd
}

func (a *app) submit(cmd *cobra.Command, body submitTask, wait bool) error {
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	resp, err := c.Post(cmd.Context(), "/v1/tasks", body)
	if err != nil {
		return a.unanswered(err)
	}
	var t task
	if err := resp.Decode(&t); err != nil {
		return err
	}
	if !wait {
		return a.show(resp, func(p printer, _ *agent.Response) error {
			t.showSubmitted(p)
			return nil
		})
	}
	note := printer{a.err}
	t.showSubmitted(note)
	return a.waitFor(cmd.Context(), c, t.TaskID)
}

func (t task) showSubmitted(p printer) {
	p.f("task %s: %s\n", t.TaskID, t.outcome())
	for _, g := range t.Gates {
		if g.Decision.Decisive != nil {
			p.f("  %s  %s\n", g.Machine, reason(*g.Decision.Decisive))
		}
	}
	if t.ApprovalID != "" {
		p.f("  it waits for approval %s\n", t.ApprovalID)
	}
}

// waitFor follows a task's stream until it settles, and shows it.
func (a *app) waitFor(ctx context.Context, c *agent.Client, id string) error {
	settled := errors.New("settled")
	// From the start: the task may have settled by now.
	err := c.Subscribe(ctx, agent.Subscription{
		Path:  "/v1/events/stream",
		Query: url.Values{"after": {"0"}, "stream": {string(events.TaskStream(id))}, "type": {string(events.TaskSettled{}.Kind())}},
		Lost: func(err error, _ time.Duration) {
			printer{a.err}.f("%s; the task goes on, and so does the waiting\n", err)
		},
	}, func(agent.ServerEvent) error { return settled })
	if ctx.Err() != nil {
		return tryNext(errors.New("waiting was broken off; the task goes on"), "fleetledger task show "+id)
	}
	if !errors.Is(err, settled) {
		return a.unanswered(err)
	}
	resp, err := c.Get(ctx, agent.Path("v1", "tasks", id), nil)
	if err != nil {
		return a.unanswered(err)
	}
	var t task
	if err := resp.Decode(&t); err != nil {
		return err
	}
	if err := a.show(resp, func(p printer, _ *agent.Response) error {
		t.show(p)
		return nil
	}); err != nil {
		return err
	}
	if !t.succeeded() {
		return errQuiet
	}
	return nil
}

// show tells of a task and of how each of its attempts ended.
func (t task) show(p printer) {
	p.f("task %s: %s", t.TaskID, t.outcome())
	if t.Reason != "" {
		p.f(": %s", t.Reason)
	}
	if t.CommandErased {
		p.f("\n  what was to be run was erased\n  submitted by %s at %s\n", t.SubmittedBy, when(t.SubmittedAt))
	} else {
		p.f("\n  %s\n", commandLine(t.TaskCommand))
		p.f("  submitted by %s at %s, %s\n", t.SubmittedBy, when(t.SubmittedAt), t.Mode)
	}
	for _, g := range t.Gates {
		if g.Decision.Decisive != nil {
			p.f("  gate for %s said %s: %s\n", g.Machine, g.Decision.Verdict, reason(*g.Decision.Decisive))
		}
	}
	if t.ApprovalID != "" {
		p.f("  approval %s\n", t.ApprovalID)
	}
	for _, l := range t.Legs {
		if len(l.Attempts) == 0 {
			p.f("  %s: %s\n", l.Machine, l.Status)
		}
		for _, at := range l.Attempts {
			if at.Erased {
				p.f("  %s: attempt %d: reported; what it reported was erased\n", l.Machine, at.Attempt)
				continue
			}
			if at.Envelope == nil {
				p.f("  %s: attempt %d: %s\n", l.Machine, at.Attempt, l.Status)
				continue
			}
			late := ""
			if at.Late {
				late = ", late"
			}
			p.f("  %s: attempt %d: %s%s\n", l.Machine, at.Attempt, envelopeEnd(*at.Envelope), late)
			p.tails("    ", *at.Envelope)
		}
	}
}

// envelopeEnd says how an attempt ended. An exit code that may lie is never
// called a success.
func envelopeEnd(e events.Envelope) string {
	s := strings.ReplaceAll(string(e.Outcome), "_", " ")
	if e.ExitCode != nil {
		s = fmt.Sprintf("exit %d", *e.ExitCode)
		if e.Masked {
			s += ", masked"
		}
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	return s + " after " + elapsed(e.ElapsedMS)
}

// tails shows the ends of both outputs.
func (p printer) tails(indent string, e events.Envelope) {
	for _, o := range []struct {
		name string
		out  events.Output
	}{{"stdout", e.Stdout}, {"stderr", e.Stderr}} {
		switch {
		case o.out.Bytes == 0:
			continue
		case o.out.Tail == "":
			p.f("%s%s, %d bytes, not kept here\n", indent, o.name, o.out.Bytes)
			continue
		case o.out.Truncated:
			p.f("%s%s, the end of %d bytes:\n", indent, o.name, o.out.Bytes)
		default:
			p.f("%s%s:\n", indent, o.name)
		}
		p.block(indent+"  ", o.out.Tail)
	}
}

func (a *app) taskShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show TASK",
		Short:   "Show a task and how each attempt ended",
		Example: `  fleetledger task show 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.get(cmd, agent.Path("v1", "tasks", args[0]), nil, func(p printer, r *agent.Response) error {
				var t task
				if err := r.Decode(&t); err != nil {
					return err
				}
				t.show(p)
				return nil
			})
		}),
	}
}

func (a *app) taskListCommand() *cobra.Command {
	var status, machine string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List tasks, newest first",
		Example: `  fleetledger task list --status open --machine m1`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			q := pageQuery(cmd)
			setQuery(q, "status", status)
			setQuery(q, "machine", machine)
			return a.get(cmd, "/v1/tasks", q, func(p printer, r *agent.Response) error {
				var list page[task]
				if err := r.Decode(&list); err != nil {
					return err
				}
				if len(list.Items) == 0 {
					a.nothing("tasks", list.Scope)
					return nil
				}
				rows := [][]string{{"TASK", "", "SUBMITTED", "BY", "ON", "COMMAND"}}
				for _, t := range list.Items {
					command := commandLine(t.TaskCommand)
					if t.CommandErased {
						command = "(erased)"
					}
					rows = append(rows, []string{t.TaskID, t.outcome(), when(t.SubmittedAt), t.SubmittedBy, strings.Join(t.Targets, " "), command})
				}
				p.table(rows)
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&status, "status", "", "only those: awaiting_approval, open or settled")
	cmd.Flags().StringVar(&machine, "machine", "", "only those for this machine")
	return pages(cmd)
}

// setQuery adds a parameter that is not empty.
func setQuery(q url.Values, name, value string) {
	if value != "" {
		q.Set(name, value)
	}
}

func (a *app) taskCancelCommand() *cobra.Command {
	var why string
	cmd := &cobra.Command{
		Use:     "cancel TASK",
		Short:   "End a task before any report",
		Example: `  fleetledger task cancel 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 --reason 'wrong branch'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body := struct {
				Reason string `json:"reason,omitzero"`
			}{why}
			return a.request(cmd, agent.Request{
				Method: http.MethodPost, Path: agent.Path("v1", "tasks", args[0], "cancel"), Body: body, ApprovalID: approvalOf(cmd),
			}, func(p printer, _ *agent.Response) error {
				p.f("task %s is cancelled\n", args[0])
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&why, "reason", "", "why")
	return spends(cmd)
}
