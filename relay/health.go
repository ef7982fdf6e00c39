package relay

import (
	"maps"
	"slices"

	"fleetledger/commands"
	"fleetledger/commands/evidence"
	"fleetledger/events"
)

type healthReply struct {
	Status string `json:"status" enum:"ok"`
}

func (c *call) health() (healthReply, error) { return healthReply{"ok"}, nil }

type readyReply struct {
	Status string       `json:"status" enum:"ready"`
	Fleets []fleetReady `json:"fleets"`
}

type fleetReady struct {
	Fleet    string          `json:"fleet"`
	Position events.Position `json:"position"`
}

func (c *call) ready() (readyReply, error) {
	if c.streams.isDraining() {
		return readyReply{}, errDraining
	}
	out := readyReply{Status: "ready", Fleets: []fleetReady{}}
	for _, name := range slices.Sorted(maps.Keys(c.fleets)) {
		out.Fleets = append(out.Fleets, fleetReady{name, c.fleets[name].Log().Durable()})
	}
	return out, nil
}

// limitsReply names every limit. Sizes are in bytes.
type limitsReply struct {
	Body         int `json:"body_bytes"`
	Payload      int `json:"payload_bytes"`
	BatchEvents  int `json:"batch_events"`
	Batch        int `json:"batch_bytes"`
	ArgvItems    int `json:"argv_items"`
	Argv         int `json:"argv_bytes"`
	Tail         int `json:"tail_bytes"`
	Targets      int `json:"targets"`
	Attempts     int `json:"attempts"`
	Settlements  int `json:"settlements"`
	JSONDepth    int `json:"json_depth"`
	ListItems    int `json:"list_items"`
	ListStandard int `json:"list_items_default"`

	EvidenceEvents int `json:"evidence_events" doc:"In one file."`
	Evidence       int `json:"evidence_bytes"`

	BlockField     int `json:"block_field_bytes"`
	BlockParents   int `json:"block_parents"`
	BlockAncestors int `json:"block_ancestors"`

	ApprovalsPerMinute      int `json:"approvals_per_minute" doc:"Opened, per derivation root."`
	ApprovalsPending        int `json:"approvals_pending" doc:"Per derivation root."`
	FleetApprovalsPerMinute int `json:"fleet_approvals_per_minute"`
	FleetApprovalsPending   int `json:"fleet_approvals_pending"`
	DenialsPerMinute        int `json:"denials_per_minute" doc:"Recorded, per actor."`
}

func (c *call) limits() (limitsReply, error) {
	s := c.ledger.State().Settings()
	return limitsReply{
		Body: s.BatchBytes, Payload: s.PayloadBytes, BatchEvents: s.BatchEvents, Batch: s.BatchBytes,
		ArgvItems: s.ArgvItems, Argv: s.ArgvBytes, Tail: s.TailBytes, Targets: commands.MaxTargets,
		Attempts: commands.MaxAttempts, Settlements: maxSettlements, JSONDepth: events.MaxJSONDepth, ListItems: maxLimit, ListStandard: defaultLimit,
		EvidenceEvents: evidence.MaxEvents, Evidence: evidence.MaxBytes,
		BlockField: commands.MaxBlockField, BlockParents: commands.MaxBlockParents, BlockAncestors: commands.MaxBlockAncestors,
		ApprovalsPerMinute: s.ApprovalsPerMinute, ApprovalsPending: s.ApprovalsPending, FleetApprovalsPerMinute: s.FleetApprovalsPerMinute,
		FleetApprovalsPending: s.FleetApprovalsPending, DenialsPerMinute: s.DenialsPerMinute,
	}, nil
}
