package commands

import (
	"context"
	"fmt"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// ContradictedError says that a witness knows the log otherwise than it is here: what
// would be recorded now would continue another log than the one that was witnessed.
// Nothing is, as long as the witness says so.
type ContradictedError struct {
	// Witness is the name of the witness.
	Witness string `json:"witness"`
	// Known is how many events the witness has cosigned, Size how many are here.
	Known uint64 `json:"known"`
	Size  uint64 `json:"size"`
}

func (e *ContradictedError) Error() string {
	if e.Known > e.Size {
		return fmt.Sprintf("witness %s has cosigned %d events of this log, and %d are here: this is an older copy of it", e.Witness, e.Known, e.Size)
	}
	return fmt.Sprintf("witness %s has cosigned other events as the first %d of this log than are here (it has %d): this is another copy that went its own way", e.Witness, e.Known, e.Size)
}

// Contradict has nothing more recorded, for the reason of e; nil ends that.
func (l *Ledger) Contradict(e *ContradictedError) { l.contradicted.Store(e) }

// ToWitness reports whether something was recorded since the newest cosigned
// checkpoint besides such checkpoints: recording one must not call for the next.
func (l *Ledger) ToWitness() bool {
	return l.state.Newest().ToWitness > events.Position(l.state.Witnessed().Size)
}

// RecordWitnessed records, as the relay, a checkpoint of this log with the
// cosignatures of its witnesses, which the caller has verified. Nothing is recorded
// when a newer one is already, when it shows nothing new, or when it lies so far back
// that an audit would not have it in mind any more.
func (l *Ledger) RecordWitnessed(ctx context.Context, signed []byte) error {
	c, err := seal.ParseCheckpoint(signed)
	if err != nil {
		return err
	}
	return l.asRelay(ctx, l.onDuty(func(v view) (decided, error) {
		revision, head := l.state.LedgerRevision(), l.state.Position()
		newest := l.state.Witnessed().Size
		switch {
		case int64(c.Size) <= newest || l.state.Newest().ToWitness <= events.Position(newest):
			return decided{}, nil
		case c.Size > uint64(head) || uint64(head)-c.Size > events.MaxCheckpointLag/2:
			return decided{}, nil
		}
		d := decided{expect: []events.Expectation{{Stream: events.LedgerStream, Revision: revision}}}
		d.add(events.LedgerStream, v.newID(), events.CheckpointWitnessed{Size: int64(c.Size), Checkpoint: string(signed)})
		return d, nil
	}))
}
