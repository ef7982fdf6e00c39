package relay

import (
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
)

type recordMemoryBody struct {
	Record       recordBody `json:"record"`
	ImportedFrom string     `json:"imported_from,omitzero" doc:"The record's, given beside it."`
	ImportedID   string     `json:"imported_id,omitzero" format:"uuid" doc:"Of an imported record: what names it in the tool that it came from, as a UUID. It becomes the record's id, so that it is recorded once, whoever imports it: 409 ALREADY_IMPORTED."`
}

// recordBody is an envelope with what was run.
type recordBody struct {
	EnvelopeBody
	Argv       []string `json:"argv"`
	Tags       []string `json:"tags,omitzero"`
	TaskID     string   `json:"task_id,omitzero"`
	Gate       string   `json:"gate,omitzero" enum:"allowed,offline" doc:"What let it begin: the gate gate_id, or, with no relay at hand, the machine's own allow-list."`
	GateID     string   `json:"gate_id,omitzero" doc:"The caller's gate about task.submit.<machine>, which said allow or whose approval was spent."`
	Conclusion *string  `json:"conclusion,omitzero" nullable:"true" doc:"Null, always: see POST /v1/conclusions."`
	// ImportedFrom may stand here or beside the record.
	ImportedFrom string `json:"imported_from,omitzero" doc:"Where a record of another tool came from; without it the machine is the caller or the caller's parent."`
}

// EnvelopeBody is envelopeBody under a name that can be embedded for all to see.
type EnvelopeBody = envelopeBody

type recordMemoryReply struct {
	RecordID string  `json:"record_id"`
	Receipt  receipt `json:"receipt"`
}

func (c *call) recordMemory(in recordMemoryBody) (recordMemoryReply, error) {
	envelope, err := in.Record.envelope("/record")
	if err != nil {
		return recordMemoryReply{}, err
	}
	if in.ImportedFrom == "" {
		in.ImportedFrom = in.Record.ImportedFrom
	} else if in.Record.ImportedFrom != "" && in.Record.ImportedFrom != in.ImportedFrom {
		return recordMemoryReply{}, impossible(events.Problem{Path: "/imported_from", Code: "CONTRADICTION", Detail: "differs from the record's: give it once"})
	}
	if err := checkImportedID(in.ImportedID); err != nil {
		return recordMemoryReply{}, err
	}
	_, rec, err := recorded[events.MemoryRecorded](c.ledger.RecordMemory(c.ctx(), c.caller, commands.RecordMemory{
		Record: events.MemoryRecord{
			Envelope: envelope, Argv: in.Record.Argv, Tags: in.Record.Tags, TaskID: in.Record.TaskID, Conclusion: in.Record.Conclusion,
			Gate: events.RunGate(in.Record.Gate), GateID: in.Record.GateID,
		},
		ImportedFrom: in.ImportedFrom, ImportedID: in.ImportedID,
	}))
	return recordMemoryReply{rec.Header.ID, receiptOf(rec)}, err
}

// checkImportedID refuses what is no UUID: other ids are for others' events.
func checkImportedID(id string) error {
	if id != "" && !isUUID(id) {
		return impossible(events.Problem{Path: "/imported_id", Code: "INVALID", Detail: "is no UUID such as 01939f5e-7a1b-7c3d-8e4f-0123456789ab"})
	}
	return nil
}

// memoryItem is one finished run.
type memoryItem struct {
	RecordID     string            `json:"record_id"`
	TaskID       string            `json:"task_id,omitzero"`
	Attempt      int               `json:"attempt,omitzero"`
	Position     events.Position   `json:"position"`
	Machine      string            `json:"machine"`
	Argv         []string          `json:"argv"`
	Command      string            `json:"command" doc:"argv as one line; empty if it was erased."`
	Cwd          string            `json:"cwd"`
	Repo         string            `json:"repo,omitzero"`
	Commit       string            `json:"commit,omitzero"`
	Outcome      events.Outcome    `json:"outcome"`
	ExitCode     *int              `json:"exit_code"`
	Masked       bool              `json:"masked"`
	StartedAt    time.Time         `json:"started_at"`
	EndedAt      time.Time         `json:"ended_at"`
	ElapsedMS    int64             `json:"elapsed_ms"`
	Stdout       events.Output     `json:"stdout"`
	Stderr       events.Output     `json:"stderr"`
	Tags         []string          `json:"tags"`
	ImportedFrom string            `json:"imported_from,omitzero"`
	Gate         events.RunGate    `json:"gate,omitzero" doc:"Of a run that no task asked for: allowed by the gate gate_id, or offline."`
	GateID       string            `json:"gate_id,omitzero"`
	Late         bool              `json:"late"`
	Conclusion   *string           `json:"conclusion" doc:"Null, always: what it meant is in conclusions."`
	Conclusions  []conclusionReply `json:"conclusions" doc:"What readers said about it since, newest first; at most 20 about the record and 20 about its task."`
	// Consolidations rest on it.
	Consolidations []consolidationReply `json:"consolidations" doc:"What it and others were said to amount to, newest first; at most 20."`
}

const conclusionsShown = 20

func (c *call) listMemory() (list[memoryItem], error) {
	out := list[memoryItem]{Items: []memoryItem{}, Scope: c.scope()}
	page, err := c.page()
	if err != nil {
		return out, err
	}
	machine := c.q("machine")
	out.Scope.Machine, out.Scope.Repo, out.Scope.Command = machine, c.q("repo"), c.commandLine()
	out.Scope.Cwd = c.q("cwd")
	out.Scope.Output = c.ledger.State().Settings().Output
	if err := c.memoryIsHere(machine); err != nil {
		return out, err
	}
	reader, err := c.forgetful(&out.Scope)
	if err != nil {
		return out, err
	}
	runs, more, err := c.view().Runs(c.ctx(), page, sqlview.RunFilter{Machine: machine, Repo: out.Scope.Repo, Cwd: out.Scope.Cwd, Command: out.Scope.Command, Forgetful: reader})
	if err != nil {
		return out, c.viewError(err)
	}
	for _, r := range runs {
		item, err := c.memory(r)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, item)
	}
	if more {
		out.NextCursor = cursor(more, runs[len(runs)-1].Position)
	}
	return out, nil
}

func (c *call) memory(r projections.Run) (memoryItem, error) {
	stdout, stderr, err := c.ledger.Output(c.ctx(), r)
	if err != nil {
		return memoryItem{}, err
	}
	conclusions, err := c.conclusionsOn(r)
	if err != nil {
		return memoryItem{}, err
	}
	consolidations, err := c.view().ConsolidationsOn(c.ctx(), r.Position, c.asOf)
	if err != nil {
		return memoryItem{}, c.viewError(err)
	}
	return memoryItem{
		RecordID: r.RecordID, TaskID: r.TaskID, Attempt: r.Attempt, Position: r.Position, Machine: r.Machine, Argv: r.Argv, Command: r.Command,
		Cwd: r.Cwd, Repo: r.Repo, Commit: r.Commit, Outcome: r.Outcome, ExitCode: r.ExitCode, Masked: r.Masked,
		StartedAt: r.StartedAt, EndedAt: r.EndedAt, ElapsedMS: r.ElapsedMS, Stdout: stdout, Stderr: stderr, Tags: r.Tags,
		ImportedFrom: r.ImportedFrom, Gate: r.Gate, GateID: r.GateID, Late: r.Late, Conclusions: conclusions,
		Consolidations: consolidationsOut(consolidations),
	}, nil
}

// conclusionsOn are the newest conclusions about a run or its task.
func (c *call) conclusionsOn(r projections.Run) ([]conclusionReply, error) {
	out := []conclusionReply{}
	for _, id := range []string{r.RecordID, r.TaskID} {
		if id == "" {
			continue
		}
		about, _, err := c.view().Conclusions(c.ctx(), projections.Page{At: c.asOf, Limit: conclusionsShown}, id)
		if err != nil {
			return nil, c.viewError(err)
		}
		for _, x := range about {
			out = append(out, conclusionOut(x))
		}
	}
	return out, nil
}

// commandLine is the parameter argv as one line: given once it is a line as the
// answers show it, given several times each is a word.
func (c *call) commandLine() string {
	words := c.query["argv"]
	if len(words) > 1 {
		return projections.CommandLine(words)
	}
	return c.q("argv")
}

// memoryIsHere refuses a question about a machine of which nothing is here: an
// empty answer would read as "it ran nothing".
func (c *call) memoryIsHere(machine string) error {
	if machine == "" {
		return nil
	}
	runs, _, err := c.view().Runs(c.ctx(), projections.Page{At: c.asOf, Limit: 1}, sqlview.RunFilter{Machine: machine})
	if err != nil || len(runs) > 0 {
		return c.viewError(err)
	}
	auth, err := c.authority()
	if err != nil {
		return err
	}
	if !machineKnown(auth, machine) {
		return notFound("ACTOR_NOT_FOUND", "no actor of kind machine is named %+q; see GET /v1/actors", machine)
	}
	return notFound("MEMORY_NOT_HERE", "nothing that %s ran is recorded here: its memory lives on the machine, in the state directory of its agent", machine).
		with("machine", machine).with("where", "on the machine, in the state directory of its agent")
}
