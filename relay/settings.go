package relay

import (
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// settingsReply are the settings in force, by the names they are changed by.
type settingsReply struct {
	Output                  string          `json:"output" enum:"tails,hash_only" doc:"What the relay keeps of a command's output."`
	SeparationOfDuties      bool            `json:"separation_of_duties" doc:"Whether an ancestor may not approve what its descendant asks."`
	HeartbeatSeconds        int             `json:"heartbeat_s"`
	HeartbeatsMissed        int             `json:"heartbeats_missed"`
	GraceSeconds            int             `json:"grace_s" doc:"A lease lapses heartbeat_s x heartbeats_missed + grace_s after it was last heard of."`
	ApprovalSeconds         int             `json:"approval_expires_s"`
	ApprovalsPerMinute      int             `json:"approvals_per_minute" doc:"For an actor, its ancestors and descendants together."`
	ApprovalsPending        int             `json:"approvals_pending"`
	FleetApprovalsPerMinute int             `json:"fleet_approvals_per_minute"`
	FleetApprovalsPending   int             `json:"fleet_approvals_pending"`
	DenialsPerMinute        int             `json:"denials_per_minute" doc:"Recorded for an actor; more are answered 429."`
	PayloadBytes            int             `json:"payload_bytes"`
	BatchEvents             int             `json:"batch_events"`
	BatchBytes              int             `json:"batch_bytes" doc:"Of any body."`
	ArgvItems               int             `json:"argv_items"`
	ArgvBytes               int             `json:"argv_bytes"`
	TailBytes               int             `json:"tail_bytes"`
	Revision                events.Revision `json:"revision" doc:"Of the settings' stream; 0 as founded."`
}

func settingsOf(s projections.Settings) settingsReply {
	return settingsReply{
		Output: s.Output, SeparationOfDuties: s.SeparationOfDuties,
		HeartbeatSeconds: int(s.Heartbeat / time.Second), HeartbeatsMissed: s.Missed, GraceSeconds: int(s.Grace / time.Second),
		ApprovalSeconds:    int(s.ApprovalExpires / time.Second),
		ApprovalsPerMinute: s.ApprovalsPerMinute, ApprovalsPending: s.ApprovalsPending,
		FleetApprovalsPerMinute: s.FleetApprovalsPerMinute, FleetApprovalsPending: s.FleetApprovalsPending,
		DenialsPerMinute: s.DenialsPerMinute,
		PayloadBytes:     s.PayloadBytes, BatchEvents: s.BatchEvents, BatchBytes: s.BatchBytes,
		ArgvItems: s.ArgvItems, ArgvBytes: s.ArgvBytes, TailBytes: s.TailBytes, Revision: s.Revision,
	}
}

func (c *call) getSettings() (settingsReply, error) {
	s, err := c.settings()
	return settingsOf(s), err
}

// settings are those that the answer is as of.
func (c *call) settings() (projections.Settings, error) {
	if c.at == 0 {
		return c.ledger.State().Settings(), nil
	}
	return projections.LoadSettings(c.ctx(), c.ledger.Log(), c.at)
}

// settingsBody is events.SettingsPatch as callers send it: null stands for nothing.
type settingsBody struct {
	events.SettingsPatch
}

func (b *settingsBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, &b.SettingsPatch); err != nil {
		return err
	}
	return refuseNull(raw, "output", "separation_of_duties", "heartbeat_s", "heartbeats_missed", "grace_s", "approval_expires_s",
		"approvals_per_minute", "approvals_pending", "fleet_approvals_per_minute", "fleet_approvals_pending", "denials_per_minute",
		"payload_bytes", "batch_events", "batch_bytes", "argv_items", "argv_bytes", "tail_bytes")
}

type changeSettingsReply struct {
	Changed events.SettingsPatch `json:"changed"`
	Receipt *receipt             `json:"receipt" doc:"Null if nothing changed."`
}

func (c *call) changeSettings(in settingsBody) (changeSettingsReply, error) {
	res, err := c.ledger.ChangeSettings(c.ctx(), c.caller, commands.ChangeSettings{Settings: in.SettingsPatch})
	if err == nil && len(res.Records) == 0 {
		return changeSettingsReply{}, nil
	}
	e, rec, err := recorded[events.SettingsChanged](res, err)
	r := receiptOf(rec)
	return changeSettingsReply{e.Settings, &r}, err
}
