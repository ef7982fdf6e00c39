package events

import "time"

// MemoryRecord is one finished attempt as its machine remembers it.
type MemoryRecord struct {
	Envelope
	Argv   []string `json:"argv"`
	Tags   []string `json:"tags,omitzero"`
	TaskID string   `json:"task_id,omitzero"`
	// Gate says what let a run begin that no task asked for, and GateID which gate
	// if one was asked.
	Gate   RunGate `json:"gate,omitzero"`
	GateID string  `json:"gate_id,omitzero"`
	// Conclusion is null, always: what a result meant is said later, by a reader.
	Conclusion *string `json:"conclusion"`
}

// RunGate is what let a run begin.
type RunGate string

const (
	// GateAllowed: the fleet's gate, which is named, allowed it, or its approval was
	// spent.
	GateAllowed RunGate = "allowed"
	// GateOffline: no relay answered, and the machine's own allow-list decided.
	GateOffline RunGate = "offline"
)

// MemoryRecorded adds a record to the memory of a machine.
type MemoryRecorded struct {
	Record MemoryRecord `json:"record"`
	// ImportedFrom says where a record of another tool came from.
	ImportedFrom string `json:"imported_from,omitzero"`
	Permit       Permit `json:"permit"`
}

// MemoryConsolidated states what several records amount to, and what views need not
// show any more. Nothing is taken from the log by it.
type MemoryConsolidated struct {
	// Text says what they amount to, or why they are forgotten.
	Text string `json:"text"`
	// Records are the ids of those that it rests on.
	Records []string `json:"records"`
	// Forgets is nil if everything is shown as before.
	Forgets *Forgetting `json:"forgets,omitzero"`
	// Recalls is the event id of an earlier one whose forgetting ends.
	Recalls string `json:"recalls,omitzero"`
	Permit  Permit `json:"permit"`
	// ForAllPermit is that of collective.revise, which changing what everybody is
	// shown takes too.
	ForAllPermit *Permit `json:"for_all_permit,omitzero"`
}

// Forgetting is what views leave out, unless they are asked for it: of the records
// before this event, those cited, and those of the machine that match the rest.
type Forgetting struct {
	// ForAll is true if every reader's views leave it out; else those of its actor.
	ForAll bool `json:"for_all"`
	// Cited is true if the records that it rests on are meant.
	Cited bool `json:"cited"`
	// Machine is empty if only cited records are meant. Command, one line, and
	// Before, when a run had ended, narrow it down if they are there.
	Machine string     `json:"machine,omitzero"`
	Command string     `json:"command,omitzero"`
	Before  *time.Time `json:"before,omitzero"`
}

// About names the subject of a conclusion: a task or a record.
type About struct {
	TaskID   string `json:"task_id,omitzero"`
	RecordID string `json:"record_id,omitzero"`
}

// Subject repeats enough of what a conclusion is about to read it alone.
type Subject struct {
	Argv     []string  `json:"argv"`
	ExitCode *int      `json:"exit_code"`
	At       time.Time `json:"at"`
}

// ConclusionRecorded says what a result meant, in a reader's words.
type ConclusionRecorded struct {
	// About is nil for a conclusion about no record.
	About   *About   `json:"about"`
	Subject *Subject `json:"subject"`
	Text    string   `json:"text"`
	// Supersedes is the event id of an earlier conclusion. Both stay.
	Supersedes string `json:"supersedes,omitzero"`
	Permit     Permit `json:"permit"`
}

// SectionRevised is one revision of a section of the collective memory.
type SectionRevised struct {
	Slug       string   `json:"slug"`
	Heading    string   `json:"heading"`
	Text       string   `json:"text"`
	MeasuredAt string   `json:"measured_at,omitzero"`
	How        string   `json:"how,omitzero"`
	Evidence   []string `json:"evidence,omitzero"`
	Permit     Permit   `json:"permit"`
}

// SectionRetired takes a section out of the collective memory's view.
type SectionRetired struct {
	Slug   string `json:"slug"`
	Permit Permit `json:"permit"`
}

func (MemoryRecorded) Kind() Kind     { return "memory.recorded" }
func (MemoryConsolidated) Kind() Kind { return "memory.consolidated" }
func (ConclusionRecorded) Kind() Kind { return "conclusion.recorded" }
func (SectionRevised) Kind() Kind     { return "section.revised" }
func (SectionRetired) Kind() Kind     { return "section.retired" }
