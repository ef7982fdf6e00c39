package main

import (
	"time"

	"fleetledger/commands/audit"
	"fleetledger/events/seal"
)

// witnessKeys reads what --witness was given of a verifier.
func witnessKeys(texts []string) ([]seal.WitnessKey, error) {
	var keys []seal.WitnessKey
	for _, text := range texts {
		k, err := seal.ParseWitnessKey(text)
		if err != nil {
			return nil, misused("--witness: %v", err)
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// tellWitnessed says how far a log was witnessed.
func tellWitnessed(p printer, w audit.Witnessed) {
	for _, reach := range w.Witnesses {
		if reach.Size == 0 {
			p.f("  witness %s has cosigned nothing of it\n", reach.Witness)
		} else {
			p.f("  witness %s cosigned %s at %s\n", reach.Witness, count(int(reach.Size), "event"), reach.At.Format(time.RFC3339))
		}
	}
	if len(w.Witnesses) == 0 && w.Recorded > 0 {
		p.f("  %s recorded, the newest over %s: no --witness was given, and by whom is not established\n",
			count(w.Recorded, "cosigned checkpoint"), count(int(w.Size), "event"))
	}
}
