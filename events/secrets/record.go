package secrets

import (
	"slices"

	"fleetledger/events"
)

// MaskEnvelope returns e with the secrets in its texts masked. Sizes and hashes
// of outputs stay those of what the command wrote.
func MaskEnvelope(e events.Envelope) events.Envelope {
	for _, text := range []*string{
		&e.Stdout.Tail, &e.Stderr.Tail, &e.Cwd, &e.Repo, &e.Commit, &e.Reason, &e.Transport, &e.AgentVersion, &e.Memory.File, &e.Memory.ReasonCode,
	} {
		*text, _ = Mask(*text)
	}
	return e
}

// MaskRecord returns r with the secrets in its texts masked.
func MaskRecord(r events.MemoryRecord) events.MemoryRecord {
	r.Envelope = MaskEnvelope(r.Envelope)
	r.Argv, _ = MaskArgv(r.Argv)
	r.TaskID, _ = Mask(r.TaskID)
	r.Tags = slices.Clone(r.Tags)
	for i := range r.Tags {
		r.Tags[i], _ = Mask(r.Tags[i])
	}
	return r
}
