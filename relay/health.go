package relay

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"time"

	"fleetledger/commands"
	"fleetledger/commands/evidence"
	"fleetledger/events"
	"fleetledger/projections/sqlview"
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
	Fleet     string          `json:"fleet"`
	Position  events.Position `json:"position"`
	Degraded  string          `json:"degraded,omitzero" doc:"The code with which appends are refused, if they are."`
	Verified  *verifiedSoFar  `json:"verified,omitzero" doc:"Of a start from a snapshot: how far the events before it were read and checked since."`
	Drift     string          `json:"drift,omitzero" doc:"How the live state was found not to be what the log folds to."`
	Witnessed *witnessedSoFar `json:"witnessed,omitzero" doc:"The newest checkpoint in the log that witnesses have cosigned."`
	Witnesses []witnessReady  `json:"witnesses,omitzero"`
	Lost      events.Position `json:"first_lost_position,omitzero" doc:"Of a damaged log that is served for reading: from here on nothing vouches for it."`
}

type verifiedSoFar struct {
	Position events.Position `json:"position"`
	Of       events.Position `json:"of"`
}

type witnessedSoFar struct {
	Size     int64           `json:"size" doc:"How many events it covers."`
	At       time.Time       `json:"at" doc:"When it was recorded."`
	Position events.Position `json:"position" doc:"Of the event that holds it."`
}

type witnessReady struct {
	Witness string    `json:"witness"`
	State   string    `json:"state" enum:"silent,agrees,contradicts" doc:"Silent: it has neither cosigned nor contradicted since the relay started. Contradicts: it has cosigned more events of the log than are here, or others; nothing is recorded meanwhile."`
	Size    uint64    `json:"size,omitzero" doc:"How many events it has cosigned, as far as is known."`
	At      time.Time `json:"at,omitzero" doc:"When, by its clock."`
	Fault   string    `json:"fault,omitzero" doc:"Why it did not cosign when it was asked last."`
}

func (c *call) witnesses(f *fleetReady) {
	if w := c.fleets[f.Fleet].State().Witnessed(); w.Told > 0 {
		f.Witnessed = &witnessedSoFar{w.Size, w.Time, w.Told}
	}
	if asked := c.cfg.Witnesses[f.Fleet]; asked != nil {
		for _, s := range asked.Status() {
			f.Witnesses = append(f.Witnesses, witnessReady(s))
		}
	}
}

func (c *call) ready() (readyReply, error) {
	if c.streams.isDraining() {
		return readyReply{}, errDraining
	}
	out := readyReply{Status: "ready", Fleets: []fleetReady{}}
	var degraded *problem // the first
	for _, name := range slices.Sorted(maps.Keys(c.fleets)) {
		f := fleetReady{Fleet: name, Position: c.fleets[name].Log().Durable()}
		if v, ok := c.fleets[name].Log().(events.Verifying); ok {
			if done, of := v.Verified(); of > 0 {
				f.Verified = &verifiedSoFar{done, of}
			}
		}
		c.witnesses(&f)
		if err := c.fleets[name].Drift(); err != nil {
			f.Drift = err.Error()
			degraded = &problem{status: http.StatusServiceUnavailable, code: "STATE_DRIFTED", detail: err.Error(), facts: facts{"retry_after_s": 60}}
		}
		if err := c.fleets[name].Degraded(); err != nil {
			p := problemOf(err)
			f.Degraded = p.code
			if r, ok := errors.AsType[*events.ReadOnlyError](err); ok {
				f.Lost = r.Lost
			}
			if degraded == nil {
				degraded = &problem{status: p.status, code: p.code, detail: "reads are served, appends are not: " + p.detail, facts: facts{"retry_after_s": p.facts["retry_after_s"]}}
			}
		}
		out.Fleets = append(out.Fleets, f)
	}
	if degraded != nil {
		return out, degraded.with("fleets", out.Fleets)
	}
	return out, nil
}

// limitsReply names every limit. Sizes are in bytes.
type limitsReply struct {
	Body         int `json:"body_bytes"`
	Payload      int `json:"payload_bytes"`
	BatchEvents  int `json:"batch_events"`
	Batch        int `json:"batch_bytes" doc:"Of what is appended at once; on a cluster with its headers, and what was decided about it."`
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
	BlockFile      int `json:"block_file_blocks" doc:"Imported at once."`
	Cited          int `json:"cited_records" doc:"By one consolidation."`

	SQLRows    int `json:"sql_rows"`
	SQL        int `json:"sql_bytes" doc:"Of all values of an answer."`
	SQLSeconds int `json:"sql_s"`

	PairingExpires         int `json:"pairing_expires_s" doc:"The longest that a pairing code can be redeemed."`
	PairingExpiresStandard int `json:"pairing_expires_s_default"`
	Signatures             int `json:"signatures" doc:"Requests signed by one device within signature_life_s; past that 429."`
	SignatureLife          int `json:"signature_life_s"`

	ApprovalsPerMinute      int `json:"approvals_per_minute" doc:"Opened, per derivation root."`
	ApprovalsPending        int `json:"approvals_pending" doc:"Per derivation root."`
	FleetApprovalsPerMinute int `json:"fleet_approvals_per_minute"`
	FleetApprovalsPending   int `json:"fleet_approvals_pending"`
	DenialsPerMinute        int `json:"denials_per_minute" doc:"Recorded, per actor."`
}

func (c *call) limits() (limitsReply, error) {
	s := c.ledger.State().Settings()
	batch := s.BatchBytes
	if b, ok := c.ledger.Log().(events.Bounded); ok {
		batch = min(batch, b.AppendBytes())
	}
	return limitsReply{
		Body: s.BatchBytes, Payload: s.PayloadBytes, BatchEvents: s.BatchEvents, Batch: batch,
		ArgvItems: s.ArgvItems, Argv: s.ArgvBytes, Tail: s.TailBytes, Targets: commands.MaxTargets,
		Attempts: commands.MaxAttempts, Settlements: maxSettlements, JSONDepth: events.MaxJSONDepth, ListItems: maxLimit, ListStandard: defaultLimit,
		EvidenceEvents: evidence.MaxEvents, Evidence: evidence.MaxBytes,
		BlockField: commands.MaxBlockField, BlockParents: commands.MaxBlockParents, BlockAncestors: commands.MaxBlockAncestors,
		SQLRows: sqlview.AskRows, SQL: sqlview.AskBytes, SQLSeconds: int(sqlview.AskTime / time.Second),
		BlockFile: commands.MaxBlockFile, Cited: commands.MaxCited,
		PairingExpires: commands.MaxPairingSeconds, PairingExpiresStandard: commands.StandardPairingSeconds,
		Signatures: maxSignatures, SignatureLife: int(signatureLife / time.Second),
		ApprovalsPerMinute: s.ApprovalsPerMinute, ApprovalsPending: s.ApprovalsPending, FleetApprovalsPerMinute: s.FleetApprovalsPerMinute,
		FleetApprovalsPending: s.FleetApprovalsPending, DenialsPerMinute: s.DenialsPerMinute,
	}, nil
}
