package audit_test

import (
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/audit"
	"fleetledger/events"
)

// Each row forges one decision, in a log whose hashes are all right, and the
// audit names the very event.
func TestForgedDecisionsAreFound(t *testing.T) {
	f := newFleet(t)
	flip := func(d events.Decision) events.Decision { d.Verdict, d.Decisive = events.Allow, nil; return d }
	for _, c := range []struct {
		name string
		kind events.Kind
		// nth of that kind, from 0, is forged.
		nth   int
		forge func(r *events.Record, e events.Event) events.Event
	}{
		{"a level above the registrar's reach", "actor.registered", 6, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ActorRegistered)
			x.AuthorityLevel, x.EffectiveLevel, x.Capped = 90, 90, false
			return x
		}},
		{"a registration without a gate", "actor.registered", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ActorRegistered)
			x.Permit = nil
			return x
		}},
		{"a permit for another action", "actor.level_set", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ActorLevelSet)
			x.Permit.Decision.Action = "actor.derive"
			return x
		}},
		{"a permit at another revision", "actor.scopes_changed", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ActorScopesChanged)
			x.Permit.Decision.AuthorityRevision--
			return x
		}},
		{"a token without a gate", "token.issued", 7, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TokenIssued)
			x.Permit = nil
			return x
		}},
		{"a needed approval turned into leave", "gate.decided", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.GateDecided)
			x.Decision = flip(x.Decision)
			return x
		}},
		{"a denial turned into leave", "gate.decided", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.GateDecided)
			x.Decision = flip(x.Decision)
			return x
		}},
		{"another decisive rule", "gate.decided", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.GateDecided)
			id := "no-such-rule"
			d := *x.Decision.Decisive
			d.RuleID = &id
			x.Decision.Decisive = &d
			return x
		}},
		{"an easier required level", "approval.requested", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalRequested)
			x.RequiredLevel = 10
			return x
		}},
		{"another command under the approval", "approval.requested", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalRequested)
			x.Command = jsontext.Value(`{"v":2}`)
			return x
		}},
		{"granted by somebody not entitled", "approval.settled", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "ana"
			return e
		}},
		{"granted without the approver's evaluation", "approval.settled", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalSettled)
			x.Evaluations = nil
			return x
		}},
		{"expired by somebody else than the relay", "approval.settled", 2, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "olga"
			return e
		}},
		{"withdrawn by a stranger", "approval.settled", 3, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "m1"
			return e
		}},
		{"granted instead of withdrawn", "approval.settled", 3, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalSettled)
			x.Outcome = events.Granted
			return x
		}},
		{"spent for another command", "approval.spent", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalSpent)
			x.CommandHash = events.SumHash("another")
			return x
		}},
		{"spent under another approver", "approval.spent", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalSpent)
			x.Approver = "olga"
			return x
		}},
		{"a task let in at once", "task.submitted", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TaskSubmitted)
			x.Gates = []events.LegGate{{Machine: "m1", GateID: "g", Decision: events.Decision{Verdict: events.Allow, Action: "task.submit.m1", Actor: "ana"}}}
			return x
		}},
		{"a task without a gate", "task.submitted", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TaskSubmitted)
			x.Gates = nil
			return x
		}},
		{"claimed by somebody else", "task.claimed", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "m2"
			return e
		}},
		{"lapsed by somebody else", "lease.lapsed", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "ana"
			return e
		}},
		{"not offered again", "lease.lapsed", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.LeaseLapsed)
			x.Reoffered = false
			return x
		}},
		{"a report marked late", "task.reported", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TaskReported)
			x.Late = true
			return x
		}},
		{"another verdict", "task.settled", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TaskSettled)
			x.Verdict = events.VerdictSucceeded
			return x
		}},
		{"cancelled by a stranger", "task.cancelled", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "ana"
			return e
		}},
		{"concluded by a machine", "conclusion.recorded", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "m1"
			return e
		}},
		{"memory by leave of nobody", "memory.recorded", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryRecorded)
			x.Permit.Decision.Level = 99
			return x
		}},
		{"a consolidation by leave of nobody", "memory.consolidated", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryConsolidated)
			x.Permit.Decision.Level = 99
			return x
		}},
		{"forgotten for all by leave of nobody", "memory.consolidated", 2, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryConsolidated)
			x.ForAllPermit = nil
			return x
		}},
		{"forgotten for all instead of oneself", "memory.consolidated", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryConsolidated)
			x.Forgets = &events.Forgetting{Cited: true, ForAll: true}
			return x
		}},
		{"recalled in place of somebody else", "memory.consolidated", 3, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "olga"
			return e
		}},
		{"recalled for all by leave of nobody", "memory.consolidated", 4, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryConsolidated)
			x.ForAllPermit = nil
			return x
		}},
		{"recalled what nobody forgot", "memory.consolidated", 3, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryConsolidated)
			x.Recalls = "nothing"
			return x
		}},
		{"a tail where only hashes are kept", "memory.recorded", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryRecorded)
			x.Record.Stdout.Tail = "x"
			return x
		}},
		{"a section by leave of nobody", "section.revised", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.SectionRevised)
			x.Permit.Decision.Level = 99
			return x
		}},
		{"a section by somebody who may not", "section.revised", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "ana"
			return e
		}},
		{"a section without the approval it needs", "section.revised", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.SectionRevised)
			x.Permit.ApprovalID = ""
			return x
		}},
		{"a section retired by leave for another action", "section.retired", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.SectionRetired)
			x.Permit.Decision.Action = "collective.retire"
			return x
		}},
		{"a block of another text", "block.published", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockPublished)
			x.Fields = map[string]string{"focus": "lint", "mood": "calm"}
			return x
		}},
		{"a block by leave of nobody", "block.published", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockPublished)
			x.Permit.Decision.Level = 99
			return x
		}},
		{"a block under another root", "block.published", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockPublished)
			x.Ancestors = []events.Hash{events.SumHash("x")}
			return x
		}},
		{"a refused field that was taken", "block.accepted", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockAccepted)
			x.Fields = map[string]string{"focus": "vet", "mood": "calm"}
			x.Stored = events.BlockHash(x.Fields, nil)
			return x
		}},
		{"a field that says something else", "block.accepted", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockAccepted)
			x.Fields = map[string]string{"focus": "lint"}
			x.Stored = events.BlockHash(x.Fields, nil)
			return x
		}},
		{"what was taken under another hash", "block.accepted", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockAccepted)
			x.Stored = x.Hash
			return x
		}},
		{"a publisher of another level", "block.accepted", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockAccepted)
			x.Decisions = slices.Clone(x.Decisions)
			x.Decisions[0].Level = 60
			return x
		}},
		{"a field that nobody decided", "block.accepted", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockAccepted)
			x.Decisions = x.Decisions[:1]
			return x
		}},
		{"what the receiver did not want", "block.accepted", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockAccepted)
			x.Narrowed = nil
			return x
		}},
		{"an own thought that is not known again", "block.accepted", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.BlockAccepted)
			x.OwnThought, x.Own = false, []events.Hash{}
			return x
		}},
		{"accepted by somebody else", "block.accepted", 1, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "olga"
			return e
		}},
		{"a section retired that is not there", "section.retired", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.SectionRetired)
			x.Slug = "none"
			return x
		}},
		{"a run that no gate allowed", "memory.recorded", 2, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryRecorded)
			x.Record.GateID = "no-such-gate"
			return x
		}},
		{"a run allowed by a gate about another machine", "memory.recorded", 2, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.MemoryRecorded)
			x.Record.Machine = "m1"
			return x
		}},
		{"a device of another machine", "device.paired", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.DevicePaired)
			x.Actor = "m1"
			return x
		}},
		{"a device that another machine paired", "device.paired", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "m1"
			return e
		}},
		{"an agent's event by leave of another kind", "ext.note", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.Ext)
			x.Permit.Decision.Action = "ext.other"
			return x
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			seen := 0
			var at events.Position
			forged := rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
				if r.Header.Type != c.kind {
					return e
				}
				if seen++; seen-1 != c.nth {
					return e
				}
				at = r.Header.Position
				return c.forge(r, e)
			})
			if at == 0 {
				t.Fatalf("there is no %s number %d", c.kind, c.nth)
			}
			report := run(t, forged)
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
	for _, c := range []struct {
		kind  events.Kind
		forge func(r *events.Record, e events.Event) events.Event
	}{
		{"task.opened", func(r *events.Record, _ events.Event) events.Event {
			x := events.ApprovalSpent{}
			r.Header.Type = x.Kind()
			return x
		}},
		{"device.paired", func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.DevicePaired)
			x.TokenID = "no-such-code"
			return x
		}},
		{"approval.spent", func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalSpent)
			x.Requester = []events.Decision{{Verdict: events.NeedsApproval}}
			return x
		}},
		{"task.submitted", func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TaskSubmitted)
			x.Command.Targets = nil
			return x
		}},
		{"gate.decided", func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.GateDecided)
			x.Decision = events.Decision{}
			return x
		}},
	} {
		at := events.Position(0)
		report := run(t, rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
			if at != 0 || r.Header.Type != c.kind {
				return e
			}
			at = r.Header.Position
			return c.forge(r, e)
		}))
		if report.OK || report.Findings[0].Position < at || report.To != events.Position(len(f.records)) {
			t.Errorf("%s at %d: %+v", c.kind, at, report.Findings)
		}
	}
}
