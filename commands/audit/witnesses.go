package audit

import (
	"fmt"
	"slices"
	"time"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Witnessed is what the cosigned checkpoints in a log, and those that the auditor
// brought, show.
type Witnessed struct {
	// Recorded are the cosigned checkpoints in the log that agree with it, and Size is
	// how many events the newest of them covers. Whose cosignatures they are is in
	// Witnesses alone.
	Recorded int    `json:"recorded"`
	Size     uint64 `json:"size"`
	// Witnesses has one entry for each key that the auditor gave, in that order.
	Witnesses []Reach `json:"witnesses"`
}

// Reach is how far a witness has cosigned the log that was audited.
type Reach struct {
	Witness string `json:"witness"`
	Key     string `json:"key"`
	// Size is the most events that a checkpoint cosigned by it covers, 0 if there is
	// none, and At when it was cosigned, by the witness's clock.
	Size uint64    `json:"size"`
	At   time.Time `json:"at,omitzero"`
}

// witnessed takes the event of a cosigned checkpoint.
func (c *checkpoints) witnessed(r events.Record) error {
	e, err := events.DecodeAs[events.CheckpointWitnessed](r)
	if err != nil {
		return err
	}
	if r.Header.Actor != events.RelayActor {
		return fmt.Errorf("only the relay records cosigned checkpoints, not %s", r.Header.Actor)
	}
	p := c.take([]byte(e.Checkpoint), r.Header.Position)
	p.witnessed = true
	switch {
	case p.found != nil: // told at the end
	case e.Size < 0 || p.claims.Size != uint64(e.Size) || p.claims.Size >= uint64(r.Header.Position):
		return fmt.Errorf("the cosigned checkpoint has %d events, its event at position %d says %d", p.claims.Size, r.Header.Position, e.Size)
	}
	return nil
}

// endWitnesses looks for the cosignatures on every checkpoint that agrees with the log.
func (c *checkpoints) endWitnesses(r *Report) {
	w := Witnessed{Witnesses: []Reach{}}
	for _, k := range c.witnesses {
		w.Witnesses = append(w.Witnesses, Reach{Witness: k.Name(), Key: k.String()})
	}
	for _, p := range c.all {
		if p.found != nil {
			continue
		}
		if p.witnessed {
			w.Recorded++
			w.Size = max(w.Size, p.claims.Size)
		}
		list, err := seal.Cosignatures(p.signed, c.witnesses)
		if err != nil {
			r.Add(Finding{Kind: Witness, Position: max(p.at, 1), Detail: fmt.Sprintf("the checkpoint over %d events: %v", p.claims.Size, err)})
			continue
		}
		for _, s := range list {
			// A key that was given twice is shown twice.
			for i := range w.Witnesses {
				if reach := &w.Witnesses[i]; reach.Key == s.Key && p.claims.Size > reach.Size {
					reach.Size, reach.At = p.claims.Size, s.At
				}
			}
		}
	}
	r.Witnessed = w
	none := !slices.ContainsFunc(w.Witnesses, func(reach Reach) bool { return reach.Size > 0 })
	if len(c.witnesses) > 0 && none && !c.lost {
		r.Add(Finding{Kind: Witness, Position: max(r.To, 1), Detail: "no checkpoint of this log is cosigned by a witness whose key was given: it was never witnessed by them, or is not the log that was"})
	}
}
