// Package evidence puts everything that a task's settlement rests on in one file,
// and verifies such a file with nothing but the public key of its log.
//
// A file is JSON Lines: a head, then one line for each event in the order of
// positions. The events are all of the task's stream, the authority and the settings
// up to the task's last event, and the gates whose approvals any of these were
// recorded under. Each comes as the exact bytes of its header, which are the leaf in
// the log's Merkle tree, its salt and payload, and a proof (RFC 6962) that it is in
// the tree of the head's checkpoint.
package evidence

import (
	"fmt"
	"strings"

	"fleetledger/events"
)

// Format names the form of the file.
const Format = "fleetledger-evidence/1"

// Bounds of a file. Nothing larger is written or read.
const (
	MaxEvents = 20_000
	MaxBytes  = 48 << 20
)

// TooLargeError says that a task rests on more than one file may hold.
type TooLargeError struct {
	Events, Bytes int // so many, and it is not all
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the evidence has %d events and %d bytes or more, at most %d events and %d bytes go in a file", e.Events, e.Bytes, MaxEvents, MaxBytes)
}

// fileHead is the first line of a file.
type fileHead struct {
	Format string `json:"format"`
	Origin string `json:"origin"`
	Fleet  string `json:"fleet"`
	TaskID string `json:"task_id"`
	Events int    `json:"events"`
	// Checkpoint is the signed text, as C2SP tlog-checkpoint has it.
	Checkpoint string `json:"checkpoint"`
}

// fileEvent is every other line.
type fileEvent struct {
	// Leaf is the header's exact bytes.
	Leaf string `json:"leaf"`
	// Salt, in hexadecimal, and Payload are missing where the payload was erased.
	Salt    string        `json:"salt,omitzero"`
	Payload string        `json:"payload,omitzero"`
	Erased  bool          `json:"erased,omitzero"`
	Proof   []events.Hash `json:"proof"`
}

// holds reports whether events of stream s belong in the evidence of a task.
func holds(s events.Stream, task string) bool {
	return s == events.AuthorityStream || s == events.SettingsStream || s == events.TaskStream(task) || strings.HasPrefix(string(s), "gate-")
}
