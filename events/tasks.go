package events

import "time"

// TaskCommand is what a task asks to be run: the part of it that a gate
// decides on and an approval is bound to.
type TaskCommand struct {
	Argv    []string   `json:"argv"`
	Mode    TaskMode   `json:"mode"`
	Targets []string   `json:"targets"`
	Parts   [][]string `json:"parts,omitzero"`
	Quorum  int        `json:"quorum,omitzero"`
	Cwd     string     `json:"cwd,omitzero"`
	// Env are the variables set for the command; EnvFrom names variables whose
	// values live on the machine.
	Env     map[string]string `json:"env,omitzero"`
	EnvFrom []string          `json:"env_from,omitzero"`
	// TimeoutSeconds ends the command; 0 is no limit.
	TimeoutSeconds int `json:"timeout_s,omitzero"`
	// Attempts is how often a leg is offered at most.
	Attempts int      `json:"attempts"`
	Tags     []string `json:"tags,omitzero"`
}

// TaskMode says what the targets of a task have to do with each other.
type TaskMode string

const (
	Single    TaskMode = "single"
	Replicate TaskMode = "replicate"
	Split     TaskMode = "split"
)

// LegGate is the gate of one target that was allowed at once.
type LegGate struct {
	Machine  string   `json:"machine"`
	GateID   string   `json:"gate_id"`
	Decision Decision `json:"decision"`
}

// TaskSubmitted starts a task. Targets that are not in Gates have a gate.decided of
// their own behind it in the same append: those that were not allowed at once, and all
// where Gates would be too large.
type TaskSubmitted struct {
	TaskID  string      `json:"task_id"`
	Command TaskCommand `json:"command"`
	Gates   []LegGate   `json:"gates"`
}

// TaskOpened offers every leg to its machine.
type TaskOpened struct {
	// ApprovalID names the approval that opened it, if it needed one.
	ApprovalID string `json:"approval_id,omitzero"`
}

// TaskClaimed gives a leg to its machine under a lease.
type TaskClaimed struct {
	Machine        string    `json:"machine"`
	Attempt        int       `json:"attempt"`
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

// TaskReported ends an attempt.
type TaskReported struct {
	Machine  string   `json:"machine"`
	Attempt  int      `json:"attempt"`
	Envelope Envelope `json:"envelope"`
	// Late is true when the lease had lapsed: the report is kept and changes
	// no verdict.
	Late bool `json:"late,omitzero"`
}

// LeaseLapsed ends an attempt that was not heard of in time.
type LeaseLapsed struct {
	Machine string `json:"machine"`
	Attempt int    `json:"attempt"`
	// Reoffered is true when the leg is offered again.
	Reoffered bool `json:"reoffered"`
}

// TaskCancelled ends a task before any report.
type TaskCancelled struct {
	Reason string `json:"reason,omitzero"`
	// Permit is nil when the submitter cancels its own task.
	Permit *Permit `json:"permit,omitzero"`
}

// TaskVerdict is the aggregate outcome of a task.
type TaskVerdict string

const (
	VerdictRefused   TaskVerdict = "refused"
	VerdictCancelled TaskVerdict = "cancelled"
	VerdictLost      TaskVerdict = "lost"
	VerdictSucceeded TaskVerdict = "succeeded"
	VerdictQuorum    TaskVerdict = "quorum"
	VerdictDiverged  TaskVerdict = "diverged"
	VerdictPartial   TaskVerdict = "partial"
	VerdictTimedOut  TaskVerdict = "timed_out"
	VerdictFailed    TaskVerdict = "failed"
)

// TaskSettled fixes a task's verdict. It is recorded once.
type TaskSettled struct {
	Verdict TaskVerdict `json:"verdict"`
	Reason  string      `json:"reason,omitzero"`
}

// Outcome is how an attempt ended.
type Outcome string

const (
	Exited           Outcome = "exited"
	TimedOut         Outcome = "timed_out"
	RefusedByAgent   Outcome = "refused"
	NotStarted       Outcome = "not_started"
	CancelledAttempt Outcome = "cancelled"
)

// Envelope is what a machine reports when an attempt ends.
type Envelope struct {
	Outcome Outcome `json:"outcome"`
	// ExitCode is nil unless the command exited.
	ExitCode  *int      `json:"exit_code"`
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	ElapsedMS int64     `json:"elapsed_ms"`
	Cwd       string    `json:"cwd"`
	Repo      string    `json:"repo,omitzero"`
	Commit    string    `json:"commit,omitzero"`
	Dirty     *bool     `json:"dirty,omitzero"`
	Stdout    Output    `json:"stdout"`
	Stderr    Output    `json:"stderr"`
	// Masked is true when the command's shell form can hide an exit code.
	Masked       bool         `json:"masked"`
	Transport    string       `json:"transport"`
	Machine      string       `json:"machine"`
	AgentVersion string       `json:"agent_version"`
	Memory       MemoryStatus `json:"memory"`
	// Reason says why nothing was run, for the outcomes refused and not_started.
	Reason string `json:"reason,omitzero"`
}

// WithoutTails is the envelope of a fleet that keeps hashes only: the tails stay on
// the machine.
func (e Envelope) WithoutTails() Envelope {
	for _, o := range []*Output{&e.Stdout, &e.Stderr} {
		o.Tail, o.Truncated = "", o.Bytes > 0
	}
	return e
}

// Output is one output stream of a command: all of it by size and hash, its end
// as text.
type Output struct {
	Bytes     int64  `json:"bytes"`
	SHA256    Hash   `json:"sha256"`
	Tail      string `json:"tail"`
	Truncated bool   `json:"truncated"`
}

// MemoryStatus says what became of an attempt's record on its machine. It is
// never compared between machines.
type MemoryStatus struct {
	Written    bool   `json:"written"`
	File       string `json:"file,omitzero"`
	Rotated    bool   `json:"rotated"`
	ReasonCode string `json:"reason_code,omitzero"`
}

func (TaskSubmitted) Kind() Kind { return "task.submitted" }
func (TaskOpened) Kind() Kind    { return "task.opened" }
func (TaskClaimed) Kind() Kind   { return "task.claimed" }
func (TaskReported) Kind() Kind  { return "task.reported" }
func (LeaseLapsed) Kind() Kind   { return "lease.lapsed" }
func (TaskCancelled) Kind() Kind { return "task.cancelled" }
func (TaskSettled) Kind() Kind   { return "task.settled" }
