package audit_test

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/testing/smallfleet"
)

// Each row forges one decision, in a log whose hashes are all right, and the
// audit names the very event.
func TestForgedDecisionsAreFound(t *testing.T) {
	f := newFleet(t)
	flip := func(d events.Decision) events.Decision { d.Verdict, d.Decisive = events.Allow, nil; return d }
	for _, c := range []smallfleet.Forgery{
		smallfleet.Forge("a level above the registrar's reach", "actor.registered", 6, func(x *events.ActorRegistered) { x.AuthorityLevel, x.EffectiveLevel, x.Capped = 90, 90, false }),
		smallfleet.Forge("a registration without a gate", "actor.registered", 1, func(x *events.ActorRegistered) { x.Permit = nil }),
		smallfleet.Forge("a permit for another action", "actor.level_set", 0, func(x *events.ActorLevelSet) { x.Permit.Decision.Action = "actor.derive" }),
		smallfleet.Forge("a permit at another revision", "actor.scopes_changed", 0, func(x *events.ActorScopesChanged) { x.Permit.Decision.AuthorityRevision-- }),
		smallfleet.Forge("a token without a gate", "token.issued", 7, func(x *events.TokenIssued) { x.Permit = nil }),
		smallfleet.Forge("a needed approval turned into leave", "gate.decided", 0, func(x *events.GateDecided) { x.Decision = flip(x.Decision) }),
		smallfleet.Forge("a denial turned into leave", "gate.decided", 1, func(x *events.GateDecided) { x.Decision = flip(x.Decision) }),
		smallfleet.Forge("another decisive rule", "gate.decided", 0, func(x *events.GateDecided) {
			id := "no-such-rule"
			d := *x.Decision.Decisive
			d.RuleID = &id
			x.Decision.Decisive = &d
		}),
		smallfleet.Forge("an easier required level", "approval.requested", 0, func(x *events.ApprovalRequested) { x.RequiredLevel = 10 }),
		smallfleet.Forge("another command under the approval", "approval.requested", 0, func(x *events.ApprovalRequested) { x.Command = jsontext.Value(`{"v":2}`) }),
		smallfleet.ForgeActor("granted by somebody not entitled", "approval.settled", 0, "ana"),
		smallfleet.Forge("granted without the approver's evaluation", "approval.settled", 0, func(x *events.ApprovalSettled) { x.Evaluations = nil }),
		smallfleet.ForgeActor("expired by somebody else than the relay", "approval.settled", 2, "olga"),
		smallfleet.ForgeActor("withdrawn by a stranger", "approval.settled", 3, "m1"),
		smallfleet.Forge("granted instead of withdrawn", "approval.settled", 3, func(x *events.ApprovalSettled) { x.Outcome = events.Granted }),
		smallfleet.Forge("spent for another command", "approval.spent", 0, func(x *events.ApprovalSpent) { x.CommandHash = events.SumHash("another") }),
		smallfleet.Forge("spent under another approver", "approval.spent", 0, func(x *events.ApprovalSpent) { x.Approver = "olga" }),
		smallfleet.Forge("a task let in at once", "task.submitted", 0, func(x *events.TaskSubmitted) {
			x.Gates = []events.LegGate{{Machine: "m1", GateID: "g", Decision: events.Decision{Verdict: events.Allow, Action: "task.submit.m1", Actor: "ana"}}}
		}),
		smallfleet.Forge("a task without a gate", "task.submitted", 1, func(x *events.TaskSubmitted) { x.Gates = nil }),
		smallfleet.ForgeActor("claimed by somebody else", "task.claimed", 0, "m2"),
		smallfleet.ForgeActor("lapsed by somebody else", "lease.lapsed", 0, "ana"),
		smallfleet.Forge("not offered again", "lease.lapsed", 0, func(x *events.LeaseLapsed) { x.Reoffered = false }),
		smallfleet.Forge("a report marked late", "task.reported", 0, func(x *events.TaskReported) { x.Late = true }),
		smallfleet.Forge("another verdict", "task.settled", 0, func(x *events.TaskSettled) { x.Verdict = events.VerdictSucceeded }),
		smallfleet.ForgeActor("cancelled by a stranger", "task.cancelled", 0, "ana"),
		smallfleet.ForgeActor("concluded by a machine", "conclusion.recorded", 0, "m1"),
		smallfleet.Forge("memory by leave of nobody", "memory.recorded", 0, func(x *events.MemoryRecorded) { x.Permit.Decision.Level = 99 }),
		smallfleet.Forge("a consolidation by leave of nobody", "memory.consolidated", 0, func(x *events.MemoryConsolidated) { x.Permit.Decision.Level = 99 }),
		smallfleet.Forge("forgotten for all by leave of nobody", "memory.consolidated", 2, func(x *events.MemoryConsolidated) { x.ForAllPermit = nil }),
		smallfleet.Forge("forgotten for all instead of oneself", "memory.consolidated", 1, func(x *events.MemoryConsolidated) { x.Forgets = &events.Forgetting{Cited: true, ForAll: true} }),
		smallfleet.ForgeActor("recalled in place of somebody else", "memory.consolidated", 3, "olga"),
		smallfleet.Forge("recalled for all by leave of nobody", "memory.consolidated", 4, func(x *events.MemoryConsolidated) { x.ForAllPermit = nil }),
		smallfleet.Forge("recalled what nobody forgot", "memory.consolidated", 3, func(x *events.MemoryConsolidated) { x.Recalls = "nothing" }),
		smallfleet.Forge("a tail where only hashes are kept", "memory.recorded", 1, func(x *events.MemoryRecorded) { x.Record.Stdout.Tail = "x" }),
		smallfleet.Forge("a section by leave of nobody", "section.revised", 0, func(x *events.SectionRevised) { x.Permit.Decision.Level = 99 }),
		smallfleet.ForgeActor("a section by somebody who may not", "section.revised", 0, "ana"),
		smallfleet.Forge("a section without the approval it needs", "section.revised", 1, func(x *events.SectionRevised) { x.Permit.ApprovalID = "" }),
		smallfleet.Forge("a section retired by leave for another action", "section.retired", 0, func(x *events.SectionRetired) { x.Permit.Decision.Action = "collective.retire" }),
		smallfleet.Forge("a block of another text", "block.published", 0, func(x *events.BlockPublished) { x.Fields = map[string]string{"focus": "lint", "mood": "calm"} }),
		smallfleet.Forge("a block by leave of nobody", "block.published", 0, func(x *events.BlockPublished) { x.Permit.Decision.Level = 99 }),
		smallfleet.Forge("a block under another root", "block.published", 1, func(x *events.BlockPublished) { x.Ancestors = []events.Hash{events.SumHash("x")} }),
		smallfleet.Forge("a refused field that was taken", "block.accepted", 0, func(x *events.BlockAccepted) {
			x.Fields = map[string]string{"focus": "vet", "mood": "calm"}
			x.Stored = events.BlockHash(x.Fields, nil)
		}),
		smallfleet.Forge("a field that says something else", "block.accepted", 0, func(x *events.BlockAccepted) {
			x.Fields = map[string]string{"focus": "lint"}
			x.Stored = events.BlockHash(x.Fields, nil)
		}),
		smallfleet.Forge("what was taken under another hash", "block.accepted", 0, func(x *events.BlockAccepted) { x.Stored = x.Hash }),
		smallfleet.Forge("a publisher of another level", "block.accepted", 0, func(x *events.BlockAccepted) {
			x.Decisions = slices.Clone(x.Decisions)
			x.Decisions[0].Level = 60
		}),
		smallfleet.Forge("a field that nobody decided", "block.accepted", 0, func(x *events.BlockAccepted) { x.Decisions = x.Decisions[:1] }),
		smallfleet.Forge("what the receiver did not want", "block.accepted", 1, func(x *events.BlockAccepted) { x.Narrowed = nil }),
		smallfleet.Forge("an own thought that is not known again", "block.accepted", 1, func(x *events.BlockAccepted) { x.OwnThought, x.Own = false, []events.Hash{} }),
		smallfleet.ForgeActor("accepted by somebody else", "block.accepted", 1, "olga"),
		smallfleet.Forge("a section retired that is not there", "section.retired", 0, func(x *events.SectionRetired) { x.Slug = "none" }),
		smallfleet.Forge("a run that no gate allowed", "memory.recorded", 2, func(x *events.MemoryRecorded) { x.Record.GateID = "no-such-gate" }),
		smallfleet.Forge("a run allowed by a gate about another machine", "memory.recorded", 2, func(x *events.MemoryRecorded) { x.Record.Machine = "m1" }),
		smallfleet.Forge("a device of another machine", "device.paired", 0, func(x *events.DevicePaired) { x.Actor = "m1" }),
		smallfleet.ForgeActor("a device that another machine paired", "device.paired", 0, "m1"),
		smallfleet.Forge("a level above the giver's own", "actor.level_set", 1, func(x *events.ActorLevelSet) { x.AuthorityLevel = 90 }),
		smallfleet.Forge("a level of somebody above", "actor.level_set", 1, func(x *events.ActorLevelSet) { x.ID = "root" }),
		smallfleet.Forge("one's own level", "actor.level_set", 1, func(x *events.ActorLevelSet) { x.ID = "olga" }),
		smallfleet.Forge("a scope that the giver lacks", "actor.scopes_changed", 1, func(x *events.ActorScopesChanged) { x.Added = []string{"team-b"} }),
		smallfleet.Forge("a scope that the parent lacks", "actor.scopes_changed", 1, func(x *events.ActorScopesChanged) { x.ID = "carl.bot" }),
		smallfleet.Forge("somebody above suspended", "actor.suspended", 0, func(x *events.ActorSuspended) { x.ID = "root" }),
		smallfleet.Forge("somebody above reinstated", "actor.reinstated", 0, func(x *events.ActorReinstated) { x.ID = "root" }),
		smallfleet.Forge("a rule above the writer's level", "rule.written", 24, func(x *events.RuleWritten) { x.Rule.MinLevel = smallfleet.Level(86) }),
		smallfleet.Forge("an exemption above the writer's level", "rule.written", 24, func(x *events.RuleWritten) { x.Rule.MatchingExemptLevel = smallfleet.Level(86) }),
		smallfleet.Forge("a rule retired from below its level", "rule.retired", 0, func(x *events.RuleRetired) {
			x.RuleID = decoded[events.RuleWritten](t, f.records[smallfleet.Find(t, f.records, "rule.written", 19)]).RuleID // payload.erase, 90
		}),
		smallfleet.Forge("another rule in the place of a machine's", "rule.written", 20, func(x *events.RuleWritten) { x.Rule.Action = "task.submit.m1" }),
		smallfleet.Forge("an easier rule in the place of a machine's", "rule.written", 20, func(x *events.RuleWritten) { x.Rule.Scope = nil }),
		smallfleet.Forge("a rule that locks everybody out", "rule.written", 21, func(x *events.RuleWritten) {
			x.Rule.Action, x.Rule.Scope = "rule.*", new("nobody")
		}),
		smallfleet.Forge("the rule retired that lets rules be retired", "rule.retired", 0, func(x *events.RuleRetired) {
			x.RuleID = decoded[events.RuleWritten](t, f.records[smallfleet.Find(t, f.records, "rule.written", 6)]).RuleID // rule.retire
		}),
		smallfleet.Forge("under a parent that is somebody else's", "actor.registered", 6, func(x *events.ActorRegistered) { x.Parent = "ana" }),
		smallfleet.Forge("registered with a scope that the registrar lacks", "actor.registered", 6, func(x *events.ActorRegistered) { x.Scopes = []string{"team-a"} }),
		smallfleet.Forge("an id that stands for another", "actor.registered", 7, func(x *events.ActorRegistered) { x.ID = "Bo" }),
		smallfleet.Forge("a token of somebody above", "token.issued", 10, func(x *events.TokenIssued) { x.Actor = "root" }),
		smallfleet.Forge("a token by leave for a pairing", "token.issued", 11, func(x *events.TokenIssued) { x.Use = "" }),
		smallfleet.Forge("a token for somebody else by leave for a registration", "token.issued", 6, func(x *events.TokenIssued) { x.Actor = "ana" }),
		smallfleet.Forge("somebody else's token revoked as one's own", "token.revoked", 0, func(x *events.TokenRevoked) {
			x.TokenID = decoded[events.TokenIssued](t, f.records[smallfleet.Find(t, f.records, "token.issued", 2)]).TokenID // carl's
		}),
		smallfleet.Forge("an agent's event by leave of another kind", "ext.note", 0, func(x *events.Ext) { x.Permit.Decision.Action = "ext.other" }),
	} {
		t.Run(c.Name, func(t *testing.T) {
			at, change := c.In(t, f.records)
			report := run(t, rewrite(t, f.records, change))
			if report.OK || !slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
				return f.Position == at && (f.Kind == audit.Decision || f.Kind == audit.Order)
			}) {
				t.Errorf("position %d is not named: %+v", at, report.Findings)
			}
		})
	}
}

// A log can hold what no command records. The audit names it and goes on.
func TestWhatNoCommandRecordsIsFound(t *testing.T) {
	f := newFleet(t)
	for _, c := range []smallfleet.Forgery{
		smallfleet.ForgeKind("an event that has no place there", "task.opened", 0, events.ApprovalSpent{}),
		smallfleet.Forge("a device by a code that is none", "device.paired", 0, func(x *events.DevicePaired) { x.TokenID = "no-such-code" }),
		smallfleet.Forge("spent with a decision too many", "approval.spent", 0, func(x *events.ApprovalSpent) {
			x.Requester = []events.Decision{{Verdict: events.NeedsApproval}}
		}),
		smallfleet.Forge("a task for no machine", "task.submitted", 0, func(x *events.TaskSubmitted) { x.Command.Targets = nil }),
		smallfleet.Forge("no decision", "gate.decided", 0, func(x *events.GateDecided) { x.Decision = events.Decision{} }),
	} {
		at, change := c.In(t, f.records)
		report := run(t, rewrite(t, f.records, change))
		if report.OK || report.Findings[0].Position < at || report.To != events.Position(len(f.records)) {
			t.Errorf("%s at %d: %+v", c.Name, at, report.Findings)
		}
	}
}
