package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/projections"
)

// storedEvent is an event as the server shows it.
type storedEvent struct {
	Position events.Position `json:"position"`
	ID       string          `json:"id"`
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Type     events.Kind     `json:"type"`
	Schema   int             `json:"schema"`
	Time     time.Time       `json:"time"`
	Actor    string          `json:"actor"`
	Data     jsontext.Value  `json:"data"`
	Erased   bool            `json:"erased"`
	Erasure  *struct {
		By     string `json:"by"`
		Reason string `json:"reason"`
	} `json:"erasure"`
	LeafHash string `json:"leaf_hash"`
}

// erased says that the payload is gone, and by whom and why if that is known.
func (s storedEvent) erased() string {
	if s.Erasure == nil {
		return "its payload was erased"
	}
	return "its payload was erased by " + s.Erasure.By + ": " + s.Erasure.Reason
}

// event decodes the payload; nil for one that was erased.
func (s storedEvent) event() (events.Event, error) {
	if len(s.Data) == 0 || s.Data.Kind() == 'n' {
		return nil, nil
	}
	return events.Decode(events.Record{
		Header:  events.Header{Intent: events.Intent{Type: s.Type, Schema: events.Schema}, Place: events.Place{Position: s.Position}},
		Payload: s.Data,
	})
}

func (a *app) replayCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "replay TASK",
		Short: "Tell how a task was settled, event by event",
		Long: `Tell the settlement history of a task: who asked for what, which rule stopped it and
who let it pass, which machine ran it and how that ended, the verdict, and what was
concluded afterwards. Each paragraph is one event, with its position in the record.`,
		Example: `  fleetledger replay 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.get(cmd, agent.Path("v1", "tasks", args[0], "history"), nil, func(p printer, r *agent.Response) error {
				var history struct {
					TaskID string        `json:"task_id"`
					Events []storedEvent `json:"events"`
				}
				if err := r.Decode(&history); err != nil {
					return err
				}
				p.f("task %s\n", history.TaskID)
				for _, e := range history.Events {
					p.f("\n")
					if err := tell(p, e); err != nil {
						return err
					}
				}
				return nil
			})
		}),
	}
}

const storyIndent = "        "

// tell writes one event as a paragraph: a line of who did what, and indented
// below it what one needs to know about it.
func tell(p printer, s storedEvent) error {
	e, err := s.event()
	if err != nil {
		return err
	}
	line := func(format string, args ...any) {
		p.f("%6d  %s  %s ", int64(s.Position), s.Time.UTC().Format("2006-01-02 15:04:05.000Z"), s.Actor)
		p.f(format+"\n", args...)
	}
	more := func(format string, args ...any) { p.f(storyIndent+format+"\n", args...) }
	switch e := e.(type) {
	case nil:
		line("%s; %s", s.Type, s.erased())
	case events.TaskSubmitted:
		line("submitted a command for %s", strings.Join(e.Command.Targets, ", "))
		tellCommand(more, e.Command)
		for _, g := range e.Gates {
			more("gate for %s: %s, level %d%s", g.Machine, g.Decision.Verdict, int(g.Decision.Level), permitted(g.Decision))
		}
	case events.GateDecided:
		what := e.Decision.Action
		if e.Machine != "" {
			what = e.Machine
		}
		if e.Decision.Verdict == events.Allow {
			line("was let in by the gate for %s%s", what, permitted(e.Decision))
		} else {
			line("was stopped by the gate for %s: %s", what, strings.ReplaceAll(string(e.Decision.Verdict), "_", " "))
		}
		if e.Decision.Decisive != nil {
			more("%s", reason(*e.Decision.Decisive))
		}
		more("%s asked at level %d%s", e.Decision.Actor, int(e.Decision.Level), scopesOf(e.Decision))
	case events.ApprovalRequested:
		line("asked for approval %s", e.ApprovalID)
		if e.Why != "" {
			more("why: %s", e.Why)
		}
		more("for %s; an approver needs level %d; until %s", strings.Join(e.Actions, ", "), int(e.RequiredLevel), when(e.ExpiresAt))
	case events.ApprovalSettled:
		tellSettled(line, more, e)
	case events.ApprovalSpent:
		line("used approval %s, granted by %s", e.ApprovalID, e.Approver)
	case events.TaskOpened:
		if e.ApprovalID != "" {
			line("thereby opened the task: it is offered")
		} else {
			line("passed every gate: the task is offered")
		}
	case events.TaskClaimed:
		line("claimed it as attempt %d, held until %s unless heard of", e.Attempt, when(e.LeaseExpiresAt))
	case events.TaskReported:
		late := ""
		if e.Late {
			late = ", too late to count"
		}
		line("reported attempt %d: %s%s", e.Attempt, envelopeEnd(e.Envelope), late)
		tellEnvelope(more, e.Envelope)
		p.tails(storyIndent, e.Envelope)
	case events.LeaseLapsed:
		next := "no attempt is left"
		if e.Reoffered {
			next = "the task is offered again"
		}
		line("recorded that %s was not heard of in time: attempt %d lapsed, %s", e.Machine, e.Attempt, next)
	case events.TaskCancelled:
		line("cancelled the task%s", because(e.Reason))
	case events.TaskSettled:
		line("settled: %s%s", e.Verdict, because(e.Reason))
	case events.ConclusionRecorded:
		line("concluded:")
		p.block(storyIndent, e.Text)
		if e.Supersedes != "" {
			more("in place of conclusion %s", e.Supersedes)
		}
	default:
		line("%s", s.Type)
	}
	return nil
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ": " + why
}

func tellCommand(more func(string, ...any), c events.TaskCommand) {
	if c.Mode == events.Split {
		for i, part := range c.Parts {
			more("%s runs %s", c.Targets[min(i, len(c.Targets)-1)], projections.CommandLine(part))
		}
	} else {
		more("%s", projections.CommandLine(c.Argv))
	}
	how := []string{string(c.Mode)}
	if c.Quorum > 0 {
		how = append(how, fmt.Sprintf("quorum %d", c.Quorum))
	}
	if c.Cwd != "" {
		how = append(how, "in "+c.Cwd)
	}
	if c.TimeoutSeconds > 0 {
		how = append(how, fmt.Sprintf("at most %d s", c.TimeoutSeconds))
	}
	if c.Attempts > 1 {
		how = append(how, fmt.Sprintf("up to %d attempts", c.Attempts))
	}
	if len(c.Tags) > 0 {
		how = append(how, "tagged "+strings.Join(c.Tags, " "))
	}
	more("%s", strings.Join(how, ", "))
}

// permitted names the rules that let a decision pass.
func permitted(d events.Decision) string {
	var ids []string
	for _, e := range d.Evaluated {
		if e.RuleID != nil {
			ids = append(ids, *e.RuleID)
		}
	}
	switch len(ids) {
	case 0:
		return ""
	case 1:
		return ", by rule " + ids[0]
	}
	return ", by rules " + strings.Join(ids, " ")
}

func scopesOf(d events.Decision) string {
	if len(d.Scopes) == 0 {
		return ", in no scope"
	}
	return ", in scope " + strings.Join(d.Scopes, " ")
}

func tellSettled(line, more func(string, ...any), e events.ApprovalSettled) {
	switch e.Outcome {
	case events.Expired:
		line("recorded that approval %s expired", e.ApprovalID)
		return
	case events.Withdrawn:
		line("withdrew approval %s%s", e.ApprovalID, because(e.Reason))
		return
	}
	line("%s approval %s%s", e.Outcome, e.ApprovalID, because(e.Reason))
	for _, d := range e.Evaluations {
		more("may %s %s itself? %s, at level %d; an approver needs %d", d.Actor, d.Action, d.Verdict, int(d.Level), int(e.RequiredLevel))
	}
}

func tellEnvelope(more func(string, ...any), e events.Envelope) {
	where := "on " + e.Machine
	if e.Cwd != "" {
		where += " in " + e.Cwd
	}
	if e.Repo != "" {
		where += ", repository " + e.Repo
	}
	if e.Commit != "" {
		where += " at " + e.Commit[:min(12, len(e.Commit))]
		if e.Dirty != nil && *e.Dirty {
			where += " with changes"
		}
	}
	more("%s", where)
	if !e.Memory.Written && e.Memory.ReasonCode != "" {
		more("the machine could not remember it: %s", e.Memory.ReasonCode)
	}
	more("stdout %s, stderr %s", outputSum(e.Stdout), outputSum(e.Stderr))
}

func outputSum(o events.Output) string {
	s := strconv.FormatInt(o.Bytes, 10) + " bytes"
	if o.Bytes > 0 {
		s += " (sha256 " + o.SHA256.String()[:12] + ")"
	}
	return s
}
