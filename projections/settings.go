package projections

import (
	"time"

	"fleetledger/events"
)

// What the relay keeps of outputs, besides their sizes and hashes.
const (
	Tails    = "tails"
	HashOnly = "hash_only" // tails stay on the machines
)

// Settings are the fleet's settings in force.
type Settings struct {
	// Output says what the relay keeps of a command's output: Tails or HashOnly.
	Output             string
	SeparationOfDuties bool
	// A lease lapses Heartbeat x Missed + Grace after it was last heard of.
	Heartbeat       time.Duration
	Missed          int
	Grace           time.Duration
	ApprovalExpires time.Duration

	ApprovalsPerMinute      int
	ApprovalsPending        int
	FleetApprovalsPerMinute int
	FleetApprovalsPending   int
	DenialsPerMinute        int

	// What is taken at most; see GET /v1/limits.
	PayloadBytes int
	BatchEvents  int
	BatchBytes   int
	ArgvItems    int
	ArgvBytes    int
	TailBytes    int

	Revision events.Revision
}

// DefaultSettings hold until a settings.changed says otherwise.
func DefaultSettings() Settings {
	return Settings{
		Output:    Tails,
		Heartbeat: 10 * time.Second, Missed: 3, Grace: 5 * time.Second,
		ApprovalExpires:    24 * time.Hour,
		ApprovalsPerMinute: 60, ApprovalsPending: 1000,
		FleetApprovalsPerMinute: 600, FleetApprovalsPending: 10_000,
		DenialsPerMinute: 60,
		PayloadBytes:     64 << 10, BatchEvents: 1000, BatchBytes: 1 << 20,
		ArgvItems: 256, ArgvBytes: 32 << 10, TailBytes: 4 << 10,
	}
}

// Lease is how long a claim stands without being heard of.
func (s Settings) Lease() time.Duration { return s.Heartbeat*time.Duration(s.Missed) + s.Grace }

// Apply folds one event of the settings stream.
func (s Settings) Apply(r events.Record) (Settings, error) {
	e, err := events.DecodeAs[events.SettingsChanged](r)
	if err != nil {
		return s, err
	}
	s = s.With(e.Settings)
	s.Revision = r.Header.Revision
	return s, nil
}

// With returns the settings with those that p names changed.
func (s Settings) With(p events.SettingsPatch) Settings {
	set(&s.Output, p.Output)
	set(&s.SeparationOfDuties, p.SeparationOfDuties)
	seconds(&s.Heartbeat, p.HeartbeatSeconds)
	set(&s.Missed, p.HeartbeatsMissed)
	seconds(&s.Grace, p.GraceSeconds)
	seconds(&s.ApprovalExpires, p.ApprovalSeconds)
	set(&s.ApprovalsPerMinute, p.ApprovalsPerMinute)
	set(&s.ApprovalsPending, p.ApprovalsPending)
	set(&s.FleetApprovalsPerMinute, p.FleetApprovalsPerMinute)
	set(&s.FleetApprovalsPending, p.FleetApprovalsPending)
	set(&s.DenialsPerMinute, p.DenialsPerMinute)
	set(&s.PayloadBytes, p.PayloadBytes)
	set(&s.BatchEvents, p.BatchEvents)
	set(&s.BatchBytes, p.BatchBytes)
	set(&s.ArgvItems, p.ArgvItems)
	set(&s.ArgvBytes, p.ArgvBytes)
	set(&s.TailBytes, p.TailBytes)
	return s
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func seconds(to *time.Duration, from *int) {
	if from != nil {
		*to = time.Duration(*from) * time.Second
	}
}
