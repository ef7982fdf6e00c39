package events

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// RelayActor is the actor of what the relay itself records: expiries and
// lapses. No registered actor can have this name, see ValidID.
const RelayActor = "@relay"

// GateDecided records a gate that stands for itself: every explicit "may I?",
// every command that was not allowed at once, and each target of a task that has more
// of them than its submission can tell of.
type GateDecided struct {
	GateID   string   `json:"gate_id"`
	Decision Decision `json:"decision"`
	// Machine is the target, for the gate of a task.
	Machine string `json:"machine,omitzero"`
	// Command is what the actor asked to do, in RFC 8785 form.
	Command jsontext.Value `json:"command,omitzero"`
	// Asked is true for an explicit "may I?".
	Asked bool `json:"asked,omitzero"`
}

// ApprovalRequested opens an approval for one command of one actor. It covers
// all the gates that stopped the command.
type ApprovalRequested struct {
	ApprovalID  string   `json:"approval_id"`
	GateIDs     []string `json:"gate_ids"`
	RequestedBy string   `json:"requested_by"`
	Actions     []string `json:"actions"`
	// Level is the requester's effective level, RequiredLevel what an approver
	// needs at least, as the queue shows it.
	Level         Level  `json:"level"`
	RequiredLevel Level  `json:"required_level"`
	Scope         string `json:"scope,omitzero"`
	Why           string `json:"why,omitzero"`
	// Command is what was asked, in RFC 8785 form; CommandHash binds the approval
	// to it, to the requester and to the actions. See CommandHash.
	Command     jsontext.Value `json:"command,omitzero"`
	CommandHash Hash           `json:"command_hash"`
	// ExpiresAt bounds settling and spending.
	ExpiresAt time.Time `json:"expires_at"`
}

// ApprovalOutcome is the one way an approval ended.
type ApprovalOutcome string

const (
	Granted   ApprovalOutcome = "granted"
	Refused   ApprovalOutcome = "refused"
	Expired   ApprovalOutcome = "expired"
	Withdrawn ApprovalOutcome = "withdrawn"
)

// ApprovalSettled ends an approval. The first recorded wins.
type ApprovalSettled struct {
	ApprovalID string          `json:"approval_id"`
	Outcome    ApprovalOutcome `json:"outcome"`
	Reason     string          `json:"reason,omitzero"`
	// RequiredLevel and Evaluations say why a granting or refusing approver was
	// entitled: the approver passed past every matching rule of every action.
	RequiredLevel Level      `json:"required_level"`
	Evaluations   []Decision `json:"evaluations,omitzero"`
}

// ApprovalSpent uses a granted approval, once. It lies in the same append as
// what the command did.
type ApprovalSpent struct {
	ApprovalID  string `json:"approval_id"`
	CommandHash Hash   `json:"command_hash"`
	Approver    string `json:"approver"`
	// Requester and ApproverEvaluations are both decided again at the spend, one
	// for each action.
	Requester           []Decision `json:"requester"`
	ApproverEvaluations []Decision `json:"approver_evaluations"`
}

func (GateDecided) Kind() Kind       { return "gate.decided" }
func (ApprovalRequested) Kind() Kind { return "approval.requested" }
func (ApprovalSettled) Kind() Kind   { return "approval.settled" }
func (ApprovalSpent) Kind() Kind     { return "approval.spent" }
