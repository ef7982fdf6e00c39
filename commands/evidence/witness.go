package evidence

import (
	"errors"
	"fmt"
	"time"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
)

// cosigned is the newest cosigned checkpoint, and its proof in a tree.
func (s *selection) cosigned(r seal.Reader, size uint64) (*fileWitnessed, error) {
	if s.witnessed == nil {
		return nil, nil
	}
	e, err := events.DecodeAs[events.CheckpointWitnessed](*s.witnessed)
	if err != nil {
		return nil, err
	}
	proof, err := r.Consistency(uint64(e.Size), size)
	if err != nil {
		return nil, err
	}
	w := &fileWitnessed{Checkpoint: e.Checkpoint, Proof: []events.Hash{}}
	for _, h := range proof {
		w.Proof = append(w.Proof, events.Hash(h))
	}
	return w, nil
}

// witnessed checks that the cosigned checkpoint is of the log that the file is proved
// against, and whose cosignatures it has. Nothing else in the file rests on it.
func (v *verifier) witnessed() {
	w := &v.report.Witnessed
	w.Witnesses = []audit.Reach{}
	for _, k := range v.witnesses {
		w.Witnesses = append(w.Witnesses, audit.Reach{Witness: k.Name(), Key: k.String()})
	}
	if !v.signed {
		return
	}
	by, err := v.cosignatures()
	for _, c := range by {
		for i := range w.Witnesses {
			if r := &w.Witnesses[i]; r.Key == c.Key {
				r.Size, r.At = w.Size, c.At
			}
		}
	}
	switch {
	case err != nil:
		v.find(audit.Witness, 0, "", "the cosigned checkpoint: %v", err)
	case len(v.witnesses) > 0 && len(by) == 0:
		v.find(audit.Witness, 0, "", "no witness whose key was given has cosigned the log of this file: it was exported before, or is not the log that was witnessed")
	}
}

func (v *verifier) cosignatures() ([]seal.Cosignature, error) {
	if v.head.Witnessed == nil {
		return nil, nil
	}
	text := []byte(v.head.Witnessed.Checkpoint)
	c, err := seal.ParseCheckpoint(text)
	if err != nil {
		return nil, err
	}
	if c.Size == 0 {
		return nil, errors.New("it has no events")
	}
	if err := seal.CheckConsistency(c, v.against, v.head.Witnessed.Proof); err != nil {
		return nil, fmt.Errorf("it is not proved to be of the log of this file: %w", err)
	}
	v.report.Witnessed.Recorded, v.report.Witnessed.Size = 1, c.Size
	return seal.Cosignatures(text, v.witnesses)
}

// tellWitnessed says how far a witness vouches for there being one log.
func (v *verifier) tellWitnessed(yes, no func(format string, args ...any)) {
	var size uint64
	for _, r := range v.report.Witnessed.Witnesses {
		if r.Size > 0 && v.report.OK {
			size = r.Size // of one checkpoint
			yes("witness %s cosigned the first %d events of that log at %s, and %d of the file's events are among them", r.Witness, r.Size, r.At.Format(time.RFC3339), v.within(r.Size))
		}
	}
	switch {
	case size > 0:
		no("that nobody was shown another log under this name behind position %d, or without asking for a witness", size)
	case len(v.witnesses) == 0 && v.report.Witnessed.Size > 0:
		no("that nobody was shown another log under this name: %d events were cosigned, and no key of a witness was given", v.report.Witnessed.Size)
	default:
		no("that nobody was shown another log under this name: compare the checkpoint with one that somebody else has kept")
	}
}

// within is how many events of the file are among the first of the log.
func (v *verifier) within(size uint64) int {
	n := 0
	for _, p := range v.proofs {
		if uint64(p.position) <= size {
			n++
		}
	}
	return n
}
