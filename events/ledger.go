package events

// KeyAdded makes a checkpoint key of the ledger known.
type KeyAdded struct {
	// VerifierKey is the key as golang.org/x/mod/sumdb/note writes it.
	VerifierKey string `json:"verifier_key"`
}

// KeyRetired ends the signing use of a key.
type KeyRetired struct {
	VerifierKey string `json:"verifier_key"`
	Reason      string `json:"reason,omitzero"`
}

// HeadsRooted is a root over the heads of all streams at a position.
type HeadsRooted struct {
	At      Position `json:"at"`
	Streams int      `json:"streams"`
	Root    Hash     `json:"root"`
}

// CheckpointWitnessed keeps a checkpoint that witnesses have cosigned.
type CheckpointWitnessed struct {
	Size       int64  `json:"size"`
	Checkpoint string `json:"checkpoint"`
}

// DutyTaken gives the duty of signing, expiring and lapsing to one relay.
type DutyTaken struct {
	Epoch int64  `json:"epoch"`
	Relay string `json:"relay"`
}

// PayloadErased says who erased which payload, and why.
type PayloadErased struct {
	EventID  string   `json:"event_id"`
	Position Position `json:"position"`
	Reason   string   `json:"reason"`
	Permit   Permit   `json:"permit"`
}

func (KeyAdded) Kind() Kind            { return "key.added" }
func (KeyRetired) Kind() Kind          { return "key.retired" }
func (HeadsRooted) Kind() Kind         { return "heads.rooted" }
func (CheckpointWitnessed) Kind() Kind { return "checkpoint.witnessed" }
func (DutyTaken) Kind() Kind           { return "duty.taken" }
func (PayloadErased) Kind() Kind       { return "payload.erased" }
