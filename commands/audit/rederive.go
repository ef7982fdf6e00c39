package audit

import (
	"fmt"
	"slices"
	"strings"

	"fleetledger/commands"
	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/projections"
)

// gateState is a stand-alone gate as far as it has been read.
type gateState struct {
	Decided  []events.GateDecided // without the rules that were looked at
	Approval *projections.Approval
}

// rederive decides again whatever e records as decided.
func (a *auditor) rederive(r events.Record, e events.Event) {
	switch e := e.(type) {
	case events.FleetFounded:
	case events.ActorRegistered:
		a.registered(r, e)
	case events.ActorLevelSet:
		a.permit(r, e.Permit, "actor.change")
	case events.ActorScopesChanged:
		a.permit(r, e.Permit, "actor.scope")
	case events.ActorSuspended:
		a.permit(r, e.Permit, "actor.change")
	case events.ActorReinstated:
		a.permit(r, e.Permit, "actor.change")
	case events.RuleWritten:
		// A machine's own rule is written by the registration.
		a.optional(r, e.Permit, a.foundingAppend(), "rule.write", "actor.register", "actor.derive")
	case events.RuleRetired:
		a.permit(r, e.Permit, "rule.retire")
	case events.TokenIssued:
		a.optional(r, e.Permit, e.Actor == r.Header.Actor, "actor.token", "actor.register", "actor.derive")
	case events.TokenRevoked:
		a.optional(r, e.Permit, e.Actor == r.Header.Actor, "actor.token")
	case events.DevicePaired:
		a.paired(r, e)
	case events.SettingsChanged:
		a.optional(r, e.Permit, a.foundingAppend(), "fleet.configure")
	case events.SubscriptionCreated:
		a.permit(r, e.Permit, "fleet.configure")
	case events.SubscriptionPaused:
		a.permit(r, e.Permit, "fleet.configure")
	case events.SubscriptionResumed:
		a.permit(r, e.Permit, "fleet.configure")
	case events.SubscriptionRemoved:
		a.permit(r, e.Permit, "fleet.configure")
	case events.SubscriptionReplayed:
		a.permit(r, e.Permit, "fleet.configure")
	case events.SubscriptionParked:
		a.permit(r, e.Permit, "fleet.configure")
	case events.GateDecided:
		a.gateDecided(r, e)
	case events.ApprovalRequested:
		a.requested(r, e)
	case events.ApprovalSettled:
		a.settled(r, e)
	case events.ApprovalSpent:
		a.spent(r, e)
	case events.MemoryRecorded:
		a.permit(r, e.Permit, "memory.record")
		a.kept(r, e.Record.Envelope)
		a.runGate(r, e.Record)
	case events.ConclusionRecorded:
		a.permit(r, e.Permit, "conclusion.record")
		a.concluded(r)
	case events.MemoryConsolidated:
		a.permit(r, e.Permit, "memory.consolidate")
		a.consolidated(r, e)
	case events.SectionRevised:
		a.permit(r, e.Permit, "collective.revise")
	case events.SectionRetired:
		a.permit(r, e.Permit, "collective.revise")
		// Its revision may be among those that were erased.
		if doc := a.rebuilt.Collective(); doc.Unsure() {
			break
		} else if s := doc.Section(e.Slug); s == nil || s.Retired {
			a.find(r, Order, nil, e.Slug, "there was no section %s to retire", e.Slug)
		}
	case events.BlockPublished:
		a.published(r, e)
		a.blocks.add(r, e)
	case events.BlockAccepted:
		a.accepted(r, e)
	case events.KeyAdded:
		a.optional(r, e.Permit, r.Header.Actor == events.RelayActor, "fleet.configure")
	case events.KeyRetired:
		a.permit(r, e.Permit, "fleet.configure")
	case events.Ext:
		a.permit(r, e.Permit, string(r.Header.Type))
	case events.PayloadErased:
		a.permit(r, e.Permit, "payload.erase")
		a.payloadErased(r, e)
	}
	a.authorityChange(r, e)
	if strings.HasPrefix(string(r.Header.Stream), string(events.TaskStream(""))) {
		a.task(r, e)
	}
}

// foundingAppend reports whether the append being read founds the fleet, which
// no gate lets in.
func (a *auditor) foundingAppend() bool {
	return a.lead.Type == events.FleetFounded{}.Kind() && a.lead.Position == 1
}

func (a *auditor) rulesBefore() []gate.Rule {
	if a.rulesAt != a.before {
		a.rules, a.rulesAt = commands.Rules(a.before), a.before
		a.decided = map[question]events.Decision{}
	}
	return a.rules
}

// question is what a gate was asked. At one authority it has one answer.
type question struct{ action, actor string }

// decide decides again, at the authority before the append.
func (a *auditor) decide(action, actor string) events.Decision {
	rules := a.rulesBefore()
	q := question{action, actor}
	dec, ok := a.decided[q]
	if !ok {
		dec = gate.Decide(rules, action, commands.Standing(a.before, actor), a.before.Revision)
		a.decided[q] = dec
	}
	return dec
}

// decision decides dec again, for the actor and at the authority that it was
// recorded under.
func (a *auditor) decision(r events.Record, dec events.Decision, actor, action string) {
	a.report.DecisionsRederived++
	a.same(r, a.decide(action, actor), dec)
}

// same compares two decisions in everything but the wording of the reasons,
// which is for people and may be put better one day.
func (a *auditor) same(r events.Record, again, recorded events.Decision) {
	if !same(again, recorded) {
		a.find(r, Decision, again, recorded, "%s by %s was decided %q, decided again at authority revision %d it is %q",
			recorded.Action, recorded.Actor, recorded.Verdict, again.AuthorityRevision, again.Verdict)
	}
}

func same(a, b events.Decision) bool {
	if (a.Decisive == nil) != (b.Decisive == nil) || a.Decisive != nil && !sameEvaluated(*a.Decisive, *b.Decisive) {
		return false
	}
	return a.Verdict == b.Verdict && a.Action == b.Action && a.Actor == b.Actor && a.Level == b.Level &&
		a.AuthorityRevision == b.AuthorityRevision && slices.Equal(a.Scopes, b.Scopes) &&
		slices.EqualFunc(a.Evaluated, b.Evaluated, sameEvaluated)
}

func sameEvaluated(a, b events.Evaluated) bool {
	return (a.RuleID == nil) == (b.RuleID == nil) && (a.RuleID == nil || *a.RuleID == *b.RuleID) &&
		a.Verdict == b.Verdict && a.ReasonCode == b.ReasonCode && a.Exempt == b.Exempt
}

// sameRule reports whether one rule was decisive in both.
func sameRule(a, b *events.Evaluated) bool {
	return a != nil && b != nil && a.RuleID != nil && b.RuleID != nil && *a.RuleID == *b.RuleID
}

// permit decides a command's gate again. It must allow, or name an approval
// that is spent in the same append.
func (a *auditor) permit(r events.Record, p events.Permit, actions ...string) {
	action := p.Decision.Action
	if !slices.Contains(actions, action) {
		a.find(r, Decision, actions, action, "the gate of %s was asked about %s", r.Header.Type, action)
	}
	a.decision(r, p.Decision, r.Header.Actor, action)
	switch {
	case p.Decision.Verdict == events.Allow:
	case p.Decision.Verdict == events.NeedsApproval && p.ApprovalID != "":
		a.unspent[p.ApprovalID] = r.Header.Position
	default:
		a.find(r, Decision, events.Allow, p.Decision.Verdict, "%s was recorded although its gate said %s", r.Header.Type, p.Decision.Verdict)
	}
}

// optional is permit for events that need none when free.
func (a *auditor) optional(r events.Record, p *events.Permit, free bool, actions ...string) {
	switch {
	case p != nil:
		a.permit(r, *p, actions...)
	case !free:
		a.find(r, Decision, actions, nil, "%s was recorded without a gate", r.Header.Type)
	}
}

// endAppend checks what must hold once an append is complete.
func (a *auditor) endAppend() {
	for id, pos := range a.unspent {
		a.report.Add(Finding{Kind: Decision, Position: pos, Detail: fmt.Sprintf("rests on approval %s, which is not spent with it", id)})
	}
	clear(a.unspent)
	if s := a.submitted; s != nil && s.gates != s.targets {
		a.report.Add(Finding{Kind: Decision, Position: s.header.Position, Stream: s.header.Stream,
			Detail: fmt.Sprintf("%d of %d targets were gated", s.gates, s.targets)})
	}
	a.submitted, a.registering = nil, nil
	if a.changed.Position != 0 && a.rebuilt != nil && !a.foundingAppend() && commands.LockedOut(a.authority) {
		a.report.Add(Finding{Kind: Decision, Position: a.changed.Position, Stream: a.changed.Stream,
			Detail: "after this no active actor could retire a rule"})
	}
	a.changed = events.Header{}
}

func (a *auditor) registered(r events.Record, e events.ActorRegistered) {
	a.optional(r, e.Permit, a.foundingAppend(), "actor.register", "actor.derive")
	if e.Permit == nil {
		return
	}
	parent := events.Level(100)
	var above *events.Level
	if e.Parent != "" {
		parent = commands.Standing(a.before, e.Parent).Level
		above = &parent
	}
	level, capped, _ := gate.Derive(e.AskedLevel, parent, e.Cap)
	effective := gate.Effective(level, e.Cap, above)
	if level != e.AuthorityLevel || capped != e.Capped || effective != e.EffectiveLevel {
		a.find(r, Decision, []any{level, effective, capped}, []any{e.AuthorityLevel, e.EffectiveLevel, e.Capped},
			"the level of %s, its effective level and whether it was reduced come out otherwise", e.ID)
	}
	a.registration(r, e)
}

// paired holds a device key to the code that it was redeemed for. That the code
// waited for it is checked by the fold.
func (a *auditor) paired(r events.Record, e events.DevicePaired) {
	t, _, ok := a.rebuilt.TokenByID(e.TokenID)
	if !ok || t.Actor != e.Actor || e.Actor != r.Header.Actor || !r.Header.Time.Before(t.ExpiresAt) {
		a.find(r, Decision, nil, e.TokenID, "%s paired a device for %s with a code that is not its own or had expired", r.Header.Actor, e.Actor)
	}
}

// runGate holds a run to the gate that it says has allowed it.
func (a *auditor) runGate(r events.Record, run events.MemoryRecord) {
	if run.Gate != events.GateAllowed {
		return
	}
	a.report.DecisionsRederived++
	g := a.gates[events.GateStream(run.GateID)]
	if g != nil && len(g.Decided) == 1 {
		dec := g.Decided[0].Decision
		allowed := dec.Verdict == events.Allow || g.Approval != nil && g.Approval.Spent
		if allowed && dec.Actor == r.Header.Actor && dec.Action == "task.submit."+run.Machine {
			return
		}
	}
	a.find(r, Decision, events.GateAllowed, run.GateID, "no gate %s allowed %s to run on %s", run.GateID, r.Header.Actor, run.Machine)
}

func (a *auditor) gateDecided(r events.Record, e events.GateDecided) {
	a.decision(r, e.Decision, r.Header.Actor, e.Decision.Action)
	if e.Decision.Verdict == events.Allow && !e.Asked && e.Machine == "" {
		a.find(r, Decision, nil, nil, "a gate that allows a command is told by the command's own event")
	}
	if e.Machine != "" {
		return
	}
	g := a.gates[r.Header.Stream]
	if g == nil {
		g = &gateState{}
		a.gates[r.Header.Stream] = g
	}
	e.Command, e.Decision.Evaluated = nil, nil
	g.Decided = append(g.Decided, e)
}

// stopped are the decisions that an approval in r's stream is for, and the
// approval.
func (a *auditor) stopped(s events.Stream) ([]events.Decision, []string, *projections.Approval) {
	var decisions []events.Decision
	var ids []string
	if g := a.gates[s]; g != nil {
		for _, d := range g.Decided {
			decisions, ids = append(decisions, d.Decision), append(ids, d.GateID)
		}
		return decisions, ids, g.Approval
	}
	if t := a.openTask(s); t != nil {
		for _, g := range t.Gates {
			if g.Decision.Verdict == events.NeedsApproval {
				decisions, ids = append(decisions, g.Decision), append(ids, g.GateID)
			}
		}
		return decisions, ids, t.Approval
	}
	return nil, nil, nil
}

func (a *auditor) requested(r events.Record, e events.ApprovalRequested) {
	a.report.DecisionsRederived++
	decisions, ids, _ := a.stopped(r.Header.Stream)
	required := events.Level(0)
	var actions []string
	for _, d := range decisions {
		actions = append(actions, d.Action)
		required = max(required, gate.RequiredLevel(a.rulesBefore(), d.Action, d.Level))
	}
	if !slices.Equal(actions, e.Actions) || !slices.Equal(ids, e.GateIDs) || e.RequestedBy != r.Header.Actor || e.RequiredLevel != required {
		a.find(r, Decision, []any{r.Header.Actor, actions, required}, []any{e.RequestedBy, e.Actions, e.RequiredLevel},
			"the approval is not for what its gates stopped")
	}
	if !strings.HasPrefix(string(e.Command), `{"bytes":`) {
		hash, err := commands.CommandHash(e.RequestedBy, e.Actions, e.Command)
		if err != nil || hash != e.CommandHash {
			a.find(r, Decision, hash, e.CommandHash, "the approval is bound to another command than it shows")
		}
	}
	if g := a.gates[r.Header.Stream]; g != nil {
		e.Command = nil
		g.Approval = &projections.Approval{ApprovalRequested: e, Stream: r.Header.Stream}
	}
}

func (a *auditor) settled(r events.Record, e events.ApprovalSettled) {
	a.report.DecisionsRederived++
	_, _, ap := a.stopped(r.Header.Stream)
	if ap == nil || ap.ApprovalID != e.ApprovalID {
		a.find(r, Order, nil, e.ApprovalID, "no such approval was asked for in this stream")
		return
	}
	if ap.Outcome != "" {
		a.find(r, Decision, ap.Outcome, e.Outcome, "approval %s had ended before", e.ApprovalID)
	}
	by := r.Header.Actor
	early := r.Header.Time.Before(ap.ExpiresAt)
	switch e.Outcome {
	case events.Granted, events.Refused:
		if !early {
			a.find(r, Decision, ap.ExpiresAt, r.Header.Time, "approval %s was settled after it expired", e.ApprovalID)
		}
		if want := commands.NewStandpoint(a.before, a.settings).RequiredLevel(ap); want != e.RequiredLevel {
			a.find(r, Decision, want, e.RequiredLevel, "the level that settling approval %s took comes out otherwise", e.ApprovalID)
		}
		a.approver(r, by, ap, e.Evaluations)
	case events.Expired:
		if early || by != events.RelayActor {
			a.find(r, Decision, ap.ExpiresAt, r.Header.Time, "approval %s was declared expired by %s before its time", e.ApprovalID, by)
		}
	case events.Withdrawn:
		requester := commands.Standing(a.before, ap.RequestedBy)
		switch {
		case by == events.RelayActor && !requester.Active:
		case by == ap.RequestedBy, slices.Contains(a.before.Ancestors(ap.RequestedBy), by):
		case by != events.RelayActor && commands.Standing(a.before, by).Level > requester.Level:
		case a.lead.Type == events.TaskCancelled{}.Kind():
		default:
			a.find(r, Decision, ap.RequestedBy, by, "approval %s was withdrawn by somebody who may not", e.ApprovalID)
		}
	default:
		a.find(r, Decision, nil, e.Outcome, "an approval does not end like this")
	}
	if g := a.gates[r.Header.Stream]; g != nil {
		ended := *ap
		ended.Outcome, ended.SettledBy, ended.SettledIn = e.Outcome, by, r.Header.Position
		g.Approval = &ended
	}
}

// approver decides again whether by may settle ap, and compares with what was
// recorded.
func (a *auditor) approver(r events.Record, by string, ap *projections.Approval, recorded []events.Decision) {
	evaluations, code, why := commands.MayApprove(a.before, a.rulesBefore(), a.settings.SeparationOfDuties, by, ap.RequestedBy, ap.Actions)
	if code != "" {
		a.find(r, Decision, code, nil, "%s was not entitled to settle approval %s: %s", by, ap.ApprovalID, why)
	}
	if len(evaluations) != len(recorded) {
		a.find(r, Decision, len(evaluations), len(recorded), "the approver was not evaluated for every action")
		return
	}
	for i := range evaluations {
		a.report.DecisionsRederived++
		a.same(r, evaluations[i], recorded[i])
	}
}

func (a *auditor) spent(r events.Record, e events.ApprovalSpent) {
	a.report.DecisionsRederived++
	decisions, _, ap := a.stopped(r.Header.Stream)
	if ap == nil || ap.ApprovalID != e.ApprovalID {
		a.find(r, Order, nil, e.ApprovalID, "no such approval was asked for in this stream")
		return
	}
	delete(a.unspent, e.ApprovalID)
	if ap.Outcome != events.Granted || ap.Spent || ap.RequestedBy != r.Header.Actor || ap.SettledBy != e.Approver ||
		ap.CommandHash != e.CommandHash || !r.Header.Time.Before(ap.ExpiresAt) {
		a.find(r, Decision, nil, e, "approval %s could not be spent: it is %s, spent before: %t, of %s, expires at %s",
			e.ApprovalID, ap.Status(), ap.Spent, ap.RequestedBy, ap.ExpiresAt.Format(events.TimeLayout))
	}
	if len(e.Requester) != len(decisions) || len(ap.Actions) != len(decisions) {
		a.find(r, Decision, len(decisions), len(e.Requester), "the requester was not evaluated for every action")
	} else {
		for i, d := range e.Requester {
			a.decision(r, d, ap.RequestedBy, ap.Actions[i])
			was := decisions[i].Decisive
			if d.Verdict == events.Deny || d.Verdict == events.NeedsApproval && !sameRule(d.Decisive, was) {
				a.find(r, Decision, was, d.Decisive, "the rules had changed since approval %s was asked for", e.ApprovalID)
			}
		}
	}
	a.approver(r, e.Approver, ap, e.ApproverEvaluations)
	if g := a.gates[r.Header.Stream]; g != nil {
		used := *ap
		used.Spent = true
		g.Approval = &used
	}
}

func (a *auditor) concluded(r events.Record) {
	for _, x := range a.before.Lineage(r.Header.Actor) {
		if x.Kind == events.Machine {
			a.find(r, Decision, nil, r.Header.Actor, "%s is a machine or derived from one, and concluded", r.Header.Actor)
		}
	}
}

// kept checks that no tail was kept while the fleet kept hashes only.
func (a *auditor) kept(r events.Record, e events.Envelope) {
	if a.settings.Output == projections.HashOnly && (e.Stdout.Tail != "" || e.Stderr.Tail != "") {
		a.find(r, Decision, projections.HashOnly, projections.Tails, "the tail of an output was kept although the fleet keeps hashes only")
	}
}

// consolidated checks that what everybody is shown was changed by leave.
func (a *auditor) consolidated(r events.Record, e events.MemoryConsolidated) {
	if e.Recalls != "" {
		by, known := a.forgotten[e.Recalls]
		switch {
		case !known && !a.part:
			a.find(r, Order, nil, e.Recalls, "nothing was forgotten by %s", e.Recalls)
		case by == forgottenUnknown:
		case known && by != "" && by != r.Header.Actor:
			a.find(r, Decision, by, r.Header.Actor, "%s recalls what somebody else forgot for itself", r.Header.Actor)
		case known:
			a.optional(r, e.ForAllPermit, by != "", "collective.revise")
		}
		return
	}
	forAll := e.Forgets != nil && e.Forgets.ForAll
	a.optional(r, e.ForAllPermit, !forAll, "collective.revise")
	if e.Forgets != nil {
		a.forgotten[r.Header.ID] = r.Header.Actor
		if forAll {
			a.forgotten[r.Header.ID] = ""
		}
	}
}
