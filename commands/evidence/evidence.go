// Package evidence puts everything that a task's settlement rests on in one file,
// and verifies such a file with nothing but the public key of its log.
//
// A file is JSON Lines: a head, then one line for each event in the order of
// positions. The events are all of the task's stream, the authority and the settings
// up to the first event behind the task's last, and the gates whose approvals any of
// these were recorded under. Each comes as the exact bytes of its header, which are
// the leaf in the log's Merkle tree, its salt and payload, and a proof (RFC 6962) that
// it is in the tree of the head's checkpoint.
//
// Of the ledger's own stream a file has single events: the payload.erased of each
// payload that is not there any more, and the newest heads.rooted, a root over the
// heads of all streams at a position. The head then proves (package seal has the tree)
// what the head of each stream in the file was at that position: so an event that was
// left out at a stream's end shows.
//
// It also has every key.added and key.retired of the ledger's stream, and the head
// proves that the last checkpoint of each retired key is of the same log. So whoever
// trusts a key that signs no more follows from it to the one that signed the file.
//
// The newest checkpoint that witnesses have cosigned is in the head, with a proof that
// it is of the same log: whoever trusts a witness learns from it how far no other log
// was shown to it.
package evidence

import (
	"fmt"
	"strings"

	"fleetledger/events"
)

// Format names the form of the file. Files of the one before, which have nothing of
// the keys, are verified too.
const (
	Format        = "fleetledger-evidence/3"
	keylessFormat = "fleetledger-evidence/2"
)

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
	// Heads is nil if the log has no root over the heads of its streams yet.
	Heads *fileHeads `json:"heads,omitzero"`
	// Keys are one for each key.retired in the file, in the order of positions.
	Keys []fileKey `json:"keys,omitzero"`
	// Witnessed is nil if the log has no cosigned checkpoint yet.
	Witnessed *fileWitnessed `json:"witnessed,omitzero"`
}

// fileWitnessed is the newest cosigned checkpoint of the log.
type fileWitnessed struct {
	// Checkpoint is its text, with the cosignatures of C2SP tlog-cosignature.
	Checkpoint string `json:"checkpoint"`
	// Proof (RFC 6962) is that its tree is the beginning of the head's.
	Proof []events.Hash `json:"proof"`
}

// fileKey shows of what log the last checkpoint of a retired key is.
type fileKey struct {
	// Position is that of the key.retired.
	Position events.Position `json:"position"`
	// Proof (RFC 6962) is that the tree of that checkpoint is the beginning of the
	// head's.
	Proof []events.Hash `json:"proof"`
}

// fileHeads proves the heads of streams.
type fileHeads struct {
	// Position is that of the heads.rooted, which is in the file.
	Position events.Position `json:"position"`
	// Proofs are one for each stream of the file but the ledger's, and for the
	// authority and the settings in any case, in the order of the streams' names.
	Proofs []fileProof `json:"proofs"`
}

// fileProof is a seal.HeadProof of a stream.
type fileProof struct {
	Stream events.Stream `json:"stream"`
	Found  fileFound     `json:"found"`
	Path   []fileStep    `json:"path"`
}

type fileFound struct {
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	LeafHash events.Hash     `json:"leaf_hash"`
}

type fileStep struct {
	Bit  int         `json:"bit"`
	Hash events.Hash `json:"hash"`
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

// holds reports whether an event belongs in a file.
func (f *fileHead) holds(h events.Header) bool {
	s := h.Stream
	if s == events.LedgerStream {
		return h.Type == events.HeadsRooted{}.Kind() || h.Type == events.PayloadErased{}.Kind() || ofKeys(h) && f.Format != keylessFormat
	}
	return s == events.AuthorityStream || s == events.SettingsStream || s == events.TaskStream(f.TaskID) || strings.HasPrefix(string(s), "gate-")
}

// ofKeys reports whether an event of the ledger's stream changes its keys.
func ofKeys(h events.Header) bool {
	return h.Type == events.KeyAdded{}.Kind() || h.Type == events.KeyRetired{}.Kind()
}
