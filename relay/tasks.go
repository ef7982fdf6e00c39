package relay

import (
	"net/http"
	"slices"
	"strings"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// taskReply is a task as readers see it.
type taskReply struct {
	TaskID  string              `json:"task_id"`
	Status  string              `json:"status" enum:"awaiting_approval,open,settled"`
	Verdict *events.TaskVerdict `json:"verdict" doc:"Null until it is settled." enum:"refused,cancelled,lost,succeeded,quorum,diverged,partial,timed_out,failed"`
	Reason  string              `json:"reason,omitzero" doc:"Why the verdict."`
	events.TaskCommand
	CommandErased bool `json:"command_erased,omitzero" doc:"What was asked for was erased: argv, targets and the like are empty, and legs are those that were claimed."`

	SubmittedBy string     `json:"submitted_by"`
	SubmittedAt time.Time  `json:"submitted_at"`
	SettledAt   *time.Time `json:"settled_at,omitzero"`
	Gates       []taskGate `json:"gates"`
	ApprovalID  string     `json:"approval_id,omitzero"`
	Legs        []taskLeg  `json:"legs"`
}

type taskGate struct {
	Machine  string          `json:"machine"`
	GateID   string          `json:"gate_id"`
	Decision events.Decision `json:"decision"`
}

type taskLeg struct {
	Machine  string        `json:"machine"`
	Status   string        `json:"status" enum:"waiting,offered,claimed,reported,lost,closed"`
	Attempts []taskAttempt `json:"attempts"`
}

type taskAttempt struct {
	Attempt        int              `json:"attempt"`
	ClaimedAt      time.Time        `json:"claimed_at"`
	LeaseExpiresAt time.Time        `json:"lease_expires_at" doc:"As of the claim; heartbeats hold it longer."`
	Lapsed         bool             `json:"lapsed,omitzero"`
	ReportedAt     *time.Time       `json:"reported_at,omitzero"`
	Outcome        events.Outcome   `json:"outcome,omitzero"`
	ExitCode       *int             `json:"exit_code,omitzero"`
	Masked         *bool            `json:"masked,omitzero" doc:"The command's shell form can hide an exit code: exit 0 is not a pass."`
	Late           *bool            `json:"late,omitzero" doc:"Reported after its lease lapsed: kept, and without a say in the verdict."`
	Erased         bool             `json:"erased,omitzero" doc:"What was reported was erased."`
	Envelope       *events.Envelope `json:"envelope,omitzero" doc:"Left out in lists."`
}

func taskOut(t *projections.Task, envelopes bool) taskReply {
	out := taskReply{
		TaskID: t.ID, Status: t.Status, Reason: t.Reason, TaskCommand: t.Command, CommandErased: t.CommandErased,
		SubmittedBy: t.SubmittedBy, SubmittedAt: t.SubmittedAt, Gates: gatesOut(t), Legs: []taskLeg{},
	}
	if t.Status == projections.TaskSettled {
		out.Verdict, out.SettledAt = &t.Verdict, &t.SettledAt
	}
	if t.Approval != nil {
		out.ApprovalID = t.Approval.ApprovalID
	}
	for _, l := range t.Legs {
		leg := taskLeg{Machine: l.Machine, Status: l.Status, Attempts: []taskAttempt{}}
		for _, a := range l.Attempts {
			leg.Attempts = append(leg.Attempts, attemptOut(a, envelopes))
		}
		out.Legs = append(out.Legs, leg)
	}
	return out
}

func attemptOut(a projections.Attempt, envelope bool) taskAttempt {
	out := taskAttempt{Attempt: a.Number, ClaimedAt: a.ClaimedAt, LeaseExpiresAt: a.LeaseExpiresAt, Lapsed: a.Lapsed}
	if a.Reported() {
		out.ReportedAt, out.Late, out.Erased = &a.ReportedAt, &a.Late, a.Envelope == nil
	}
	if a.Envelope != nil {
		out.Outcome, out.ExitCode, out.Masked = a.Envelope.Outcome, a.Envelope.ExitCode, &a.Envelope.Masked
		if envelope {
			out.Envelope = a.Envelope
		}
	}
	return out
}

func gatesOut(t *projections.Task) []taskGate {
	out := []taskGate{}
	for _, g := range t.Gates {
		out = append(out, taskGate(g))
	}
	return out
}

// taskOf is the id of the task in whose stream an event lies, empty if it lies
// elsewhere.
func taskOf(r events.Record) string {
	id, ok := strings.CutPrefix(string(r.Header.Stream), string(events.TaskStream("")))
	if !ok {
		return ""
	}
	return id
}

type submitBody struct {
	Argv           []string          `json:"argv,omitzero" doc:"The command, word by word; in mode split left out."`
	Targets        []string          `json:"targets" doc:"Ids of machines."`
	Mode           events.TaskMode   `json:"mode,omitzero" enum:"single,replicate,split" doc:"single for one target and replicate for more if absent."`
	Parts          [][]string        `json:"parts,omitzero" doc:"One argv for each target, in mode split."`
	Quorum         *int              `json:"quorum,omitzero" minimum:"1" nullable:"false" doc:"So many replicas that exit 0 are enough."`
	Cwd            string            `json:"cwd,omitzero"`
	Env            map[string]string `json:"env,omitzero"`
	EnvFrom        []string          `json:"env_from,omitzero" doc:"Names of variables that live on the machine."`
	TimeoutSeconds int               `json:"timeout_s,omitzero" doc:"0 is no limit."`
	Attempts       *int              `json:"attempts,omitzero" minimum:"1" nullable:"false" doc:"How often a leg is offered at most; 1 if absent."`
	Tags           []string          `json:"tags,omitzero"`
}

func (b *submitBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	return refuseNull(raw, "quorum", "attempts")
}

// submitReply is the answer to a submission, built from its events.
type submitReply struct {
	TaskID        string        `json:"task_id"`
	Status        string        `json:"status" enum:"awaiting_approval,open"`
	Gates         []taskGate    `json:"gates"`
	ApprovalID    string        `json:"approval_id,omitzero" doc:"The approval that the task waits for; its grant opens it."`
	RequiredLevel *events.Level `json:"required_level,omitzero"`
	ExpiresAt     *time.Time    `json:"expires_at,omitzero"`
	CommandErased bool          `json:"command_erased,omitzero" doc:"What was asked for was erased since."`
	Receipt       receipt       `json:"receipt"`
}

func (r submitReply) httpStatus() int {
	if r.ApprovalID != "" {
		return http.StatusAccepted
	}
	return http.StatusCreated
}

func (c *call) submitTask(in submitBody) (submitReply, error) {
	command := events.TaskCommand{
		Argv: in.Argv, Mode: in.Mode, Targets: in.Targets, Parts: in.Parts, Cwd: in.Cwd, Env: in.Env,
		EnvFrom: in.EnvFrom, TimeoutSeconds: in.TimeoutSeconds, Tags: in.Tags,
	}
	// To the command 0 is what was left out, which is not what was asked.
	var bad []events.Problem
	for _, n := range []struct {
		name  string
		given *int
		to    *int
	}{{"quorum", in.Quorum, &command.Quorum}, {"attempts", in.Attempts, &command.Attempts}} {
		if n.given == nil {
			continue
		}
		if *n.to = *n.given; *n.given == 0 {
			bad = append(bad, events.Problem{Path: "/" + n.name, Code: events.CodeOutOfRange, Detail: "is from 1 on; leave it out for what is usual"})
		}
	}
	if bad != nil {
		return submitReply{}, impossible(bad...)
	}
	res, err := c.ledger.SubmitTask(c.ctx(), c.caller, commands.SubmitTask{TaskCommand: command})
	_, rec, err := recorded[events.TaskSubmitted](res, err)
	if err != nil {
		return submitReply{}, err
	}
	var t *projections.Task
	for _, r := range res.Records {
		if t, err = t.Apply(r); err != nil {
			return submitReply{}, err
		}
	}
	out := submitReply{TaskID: t.ID, Status: t.Status, Gates: gatesOut(t), CommandErased: t.CommandErased, Receipt: receiptOf(rec)}
	if a := t.Approval; a != nil {
		out.ApprovalID, out.RequiredLevel, out.ExpiresAt = a.ApprovalID, &a.RequiredLevel, &a.ExpiresAt
	}
	return out, nil
}

func (c *call) listTasks() (list[taskReply], error) {
	out := list[taskReply]{Items: []taskReply{}}
	page, err := c.page()
	if err != nil {
		return out, err
	}
	status, machine := c.q("status"), c.q("machine")
	var tasks []*projections.Task
	var last events.Position
	if c.at == 0 && (status == projections.TaskOpen || status == projections.TaskAwaitingApproval) {
		tasks, last, err = c.openTasks(page, status, machine)
	} else {
		tasks, last, err = c.allTasks(page, status, machine)
	}
	for _, t := range tasks {
		out.Items = append(out.Items, taskOut(t, false))
	}
	out.Scope = c.scope()
	out.Scope.Status, out.Scope.Machine = status, machine
	out.NextCursor = cursor(last != 0, last)
	return out, err
}

// openTasks is a page of tasks that are not settled, as of now; the next one is after
// last, unless that is 0.
func (c *call) openTasks(page projections.Page, status, machine string) (tasks []*projections.Task, last events.Position, err error) {
	open, at := c.ledger.State().OpenTasksAsOf()
	c.asOf = at
	for _, t := range slices.Backward(open) {
		if page.After != 0 && t.Position >= page.After || t.Status != status || machine != "" && t.Leg(machine) < 0 {
			continue
		}
		if len(tasks) == page.Limit {
			last = tasks[page.Limit-1].Position
			break
		}
		tasks = append(tasks, t)
	}
	// What is told is durable.
	return tasks, last, c.ledger.Log().Wait(c.ctx(), at)
}

// allTasks is a page of tasks as of the answer's position.
func (c *call) allTasks(page projections.Page, status, machine string) ([]*projections.Task, events.Position, error) {
	if err := c.awaitFolded(); err != nil {
		return nil, 0, err
	}
	found, last, err := c.view().Tasks(c.ctx(), page, status, machine)
	if err != nil {
		return nil, 0, c.viewError(err)
	}
	tasks := make([]*projections.Task, len(found))
	for i, e := range found {
		if tasks[i], err = c.ledger.Task(c.ctx(), e.ID, c.asOf); err != nil {
			return nil, 0, err
		}
	}
	return tasks, last, nil
}

func (c *call) getTask() (taskReply, error) {
	t, err := c.ledger.Task(c.ctx(), c.path("id"), c.asOf)
	if err != nil {
		return taskReply{}, err
	}
	return taskOut(t, true), nil
}

// historyReply is the settlement history of a task.
type historyReply struct {
	TaskID string       `json:"task_id"`
	Events []eventReply `json:"events" doc:"Every event of the task, decisions, approvals and conclusions included, in the order of the log."`
}

func (c *call) taskHistory() (historyReply, error) {
	t, err := c.ledger.Task(c.ctx(), c.path("id"), c.asOf)
	if err != nil {
		return historyReply{}, err
	}
	out := historyReply{TaskID: t.ID, Events: []eventReply{}}
	for r, err := range c.ledger.Log().ReadStream(c.ctx(), t.Stream, 0) {
		if err != nil {
			return out, err
		}
		if r.Header.Position > c.asOf {
			break
		}
		e, err := c.eventOut(r)
		if err != nil {
			return out, err
		}
		out.Events = append(out.Events, e)
	}
	return out, nil
}

type cancelReply struct {
	TaskID  string             `json:"task_id"`
	Status  string             `json:"status" enum:"settled"`
	Verdict events.TaskVerdict `json:"verdict" enum:"cancelled"`
	Receipt receipt            `json:"receipt"`
}

func (c *call) cancelTask(in reasonBody) (cancelReply, error) {
	id := c.path("id")
	res, err := c.ledger.CancelTask(c.ctx(), c.caller, commands.CancelTask{TaskID: id, Reason: in.Reason})
	_, rec, err := recorded[events.TaskCancelled](res, err)
	if err != nil {
		return cancelReply{}, err
	}
	e, _, err := recorded[events.TaskSettled](res, nil)
	return cancelReply{id, projections.TaskSettled, e.Verdict, receiptOf(rec)}, err
}

// machineKnown reports whether an actor of kind machine has this id.
func machineKnown(auth *projections.Authority, id string) bool {
	a := auth.Actor(id)
	return a != nil && a.Kind == events.Machine
}

// legArgv is what a leg of a task runs.
func legArgv(t *projections.Task, machine string) []string {
	if i := slices.Index(t.Command.Targets, machine); i >= 0 {
		return t.Argv(i)
	}
	return t.Command.Argv
}
