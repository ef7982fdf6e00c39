package events

// KeyAdded makes a checkpoint key of the ledger known. From here on, until one of
// them is retired, every key in force signs every checkpoint.
type KeyAdded struct {
	// VerifierKey is the key as golang.org/x/mod/sumdb/note writes it.
	VerifierKey string `json:"verifier_key"`
	Reason      string `json:"reason,omitzero"`
	// Permit is nil for a key that the relay found in the data directory, or made
	// because there was none.
	Permit *Permit `json:"permit,omitzero"`
}

// KeyRetired ends the signing use of a key: it counts for checkpoints of at most
// Size events. Checkpoint is the one of that size, the last that it signed, together
// with every other key in force: whoever trusts this key alone learns from it which
// keys come after.
type KeyRetired struct {
	VerifierKey string `json:"verifier_key"`
	Reason      string `json:"reason,omitzero"`
	Size        int64  `json:"size"`
	Checkpoint  string `json:"checkpoint"`
	Permit      Permit `json:"permit"`
}

// MaxCheckpointLag bounds how many events a checkpoint in the log lies behind the
// event that holds it, so that an audit knows how much to keep in mind.
const MaxCheckpointLag = 65_536

// HeadsRooted is a root over the heads of all streams at a position, recorded by the
// relay (package seal has the tree). It lies at most MaxHeadsLag events behind that
// position, and positions rise from one root to the next.
type HeadsRooted struct {
	At      Position `json:"at"`
	Streams int      `json:"streams"`
	Root    Hash     `json:"root"`
}

// MaxHeadsLag bounds how far the events that come while a root is made let it fall
// behind, so that an audit knows how much to keep in mind.
const MaxHeadsLag = 500_000

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

// PayloadErased says who erased which payload, and why. It lies in the append that
// erased it. Stream and Type repeat the erased event's header, and Slug names the
// section that it was about: folds need not look it up to take back what it told.
type PayloadErased struct {
	EventID  string   `json:"event_id"`
	Position Position `json:"position"`
	Stream   Stream   `json:"stream"`
	Type     Kind     `json:"type"`
	Slug     string   `json:"slug,omitzero"`
	Reason   string   `json:"reason"`
	Permit   Permit   `json:"permit"`
}

// erasable are the kinds whose payloads hold somebody's words and can be done
// without: nothing that is decided later rests on them, and every fold comes out
// the same whether it met the payload and its erasure or only the latter. To add
// one, teach the folds that (see projections.State) and testing/sim to erase it.
var erasable = map[Kind]bool{
	TaskSubmitted{}.Kind():      true,
	TaskReported{}.Kind():       true,
	TaskCancelled{}.Kind():      true,
	MemoryRecorded{}.Kind():     true,
	MemoryConsolidated{}.Kind(): true,
	ConclusionRecorded{}.Kind(): true,
	SectionRevised{}.Kind():     true,
	BlockPublished{}.Kind():     true,
	BlockAccepted{}.Kind():      true,
}

// Erasable reports whether payloads of this kind may be erased. Those of authority,
// gates and approvals may not: decisions rest on them.
func (k Kind) Erasable() bool { return k.IsExt() || erasable[k] }

func (KeyAdded) Kind() Kind            { return "key.added" }
func (KeyRetired) Kind() Kind          { return "key.retired" }
func (HeadsRooted) Kind() Kind         { return "heads.rooted" }
func (CheckpointWitnessed) Kind() Kind { return "checkpoint.witnessed" }
func (DutyTaken) Kind() Kind           { return "duty.taken" }
func (PayloadErased) Kind() Kind       { return "payload.erased" }
