package commands

import (
	"context"

	"fleetledger/events"
	"fleetledger/projections"
)

// ChangeSettings sets some of the fleet's settings.
type ChangeSettings struct {
	Settings events.SettingsPatch `json:"settings"`
}

// ChangeSettings carries out c. What changes nothing records nothing. Refusals: INVALID, and what gates answer.
func (l *Ledger) ChangeSettings(ctx context.Context, caller Caller, c ChangeSettings) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) { return c.decide(v) })
}

func (c ChangeSettings) decide(v view) (decided, error) {
	p := c.Settings
	if p == (events.SettingsPatch{}) {
		return decided{}, invalid(problem("", "NOTHING_ASKED", "name a setting to change; see GET /v1/settings"))
	}
	var bad []events.Problem
	if p.Output != nil && *p.Output != projections.Tails && *p.Output != projections.HashOnly {
		bad = append(bad, problem("/output", "UNKNOWN_VALUE", "%q is neither tails nor hash_only", *p.Output))
	}
	for _, f := range []struct {
		path     string
		value    *int
		min, max int
	}{
		{"/heartbeat_s", p.HeartbeatSeconds, 1, 3600},
		{"/heartbeats_missed", p.HeartbeatsMissed, 1, 100},
		{"/grace_s", p.GraceSeconds, 0, 3600},
		{"/approval_expires_s", p.ApprovalSeconds, 1, 366 * 24 * 3600},
		{"/approvals_per_minute", p.ApprovalsPerMinute, 1, 1_000_000},
		{"/approvals_pending", p.ApprovalsPending, 1, 1_000_000},
		{"/fleet_approvals_per_minute", p.FleetApprovalsPerMinute, 1, 1_000_000},
		{"/fleet_approvals_pending", p.FleetApprovalsPending, 1, 1_000_000},
		{"/denials_per_minute", p.DenialsPerMinute, 1, 1_000_000},
		{"/payload_bytes", p.PayloadBytes, 4 << 10, 1 << 20},
		{"/batch_events", p.BatchEvents, 1, events.MaxAppendEvents},
		{"/batch_bytes", p.BatchBytes, 128 << 10, events.MaxAppendBytes},
		{"/argv_items", p.ArgvItems, 1, 4096},
		{"/argv_bytes", p.ArgvBytes, 1, 512 << 10},
		{"/tail_bytes", p.TailBytes, 0, 64 << 10},
	} {
		if f.value != nil && (*f.value < f.min || *f.value > f.max) {
			bad = append(bad, problem(f.path, "OUT_OF_RANGE", "is from %d to %d", f.min, f.max))
		}
	}
	if len(bad) > 0 {
		return decided{}, invalid(bad...)
	}
	if v.settings.With(p) == v.settings {
		return decided{}, nil
	}
	return v.gated([]string{"fleet.configure"}, named("fleet.configure", c), func(permits []events.Permit, d *decided) {
		// It changes something still: of two who set the same one does.
		d.expect = append(d.expect, v.onSettings())
		d.add(events.SettingsStream, v.newID(), events.SettingsChanged{Settings: p, Permit: &permits[0]})
	})
}

// onSettings makes a decision rest on the settings in force: whether an ancestor
// may approve is one of them, and what is kept of outputs.
func (v view) onSettings() events.Expectation {
	return events.Expectation{Stream: events.SettingsStream, Revision: v.settings.Revision}
}
