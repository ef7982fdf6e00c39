package audit_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/projections"
)

// fleet is a log in which each kind of decision was made once.
type fleet struct {
	ledger  *commands.Ledger
	records []events.Record
}

func newFleet(t *testing.T) fleet {
	t.Helper()
	ctx := context.Background()
	now := time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC)
	state := projections.NewState()
	log, err := memlog.New(memlog.Options{Fleet: "default", Fold: state, Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	n := uint64(0)
	l := commands.New(log, state, commands.Random{
		ID:    func() string { n++; return fmt.Sprintf("00000000-0000-7000-8000-%012d", n) },
		Bytes: func(b []byte) { n++; clear(b); binary.BigEndian.PutUint64(b, n) },
	})
	var last commands.Result
	do := func(r commands.Result, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		last = r
	}
	as := func(id string) commands.Caller { return commands.Caller{Actor: id} }
	level := func(n events.Level) *events.Level { return &n }
	approval := func() string {
		rec, ok := last.Has("approval.requested")
		if !ok {
			t.Fatal("no approval was asked for")
		}
		return rec.Header.ID
	}
	do(l.Found(ctx, "default"))
	for _, a := range []commands.RegisterActor{
		{ID: "ana", Kind: events.Human, AuthorityLevel: level(20)},
		{ID: "carl", Kind: events.Human, AuthorityLevel: level(60)},
		{ID: "olga", Kind: events.Human, AuthorityLevel: level(80)},
		{ID: "m1", Kind: events.Machine, AuthorityLevel: level(5)},
		{ID: "m2", Kind: events.Machine, AuthorityLevel: level(5), Scopes: []string{"team-a"}},
	} {
		do(l.RegisterActor(ctx, as("root"), a))
	}
	do(l.WriteRule(ctx, as("root"), commands.WriteRule{Rule: events.Rule{Action: "deploy.prod", MinLevel: level(50)}}))
	do(l.WriteRule(ctx, as("root"), commands.WriteRule{Rule: events.Rule{Action: "task.submit.m1", MinLevel: level(50)}}))
	do(l.RegisterActor(ctx, as("carl"), commands.RegisterActor{ID: "carl.bot", Kind: events.Agent, Parent: "carl", AuthorityLevel: level(90)}))
	do(l.ChangeActor(ctx, as("root"), commands.ChangeActor{ID: "olga", AuthorityLevel: level(85), AddScopes: []string{"team-a"}}))
	do(l.IssueToken(ctx, as("root"), commands.IssueToken{Actor: "ana"}))

	// A question, granted and spent; a denial; a command that its approval lets in.
	do(l.AskGate(ctx, as("ana"), commands.AskGate{Action: "deploy.prod", Command: jsontext.Value(`{"v":1}`), RequestApproval: true}))
	gate, _ := last.Has("gate.decided")
	id := approval()
	do(l.SettleApproval(ctx, as("carl"), commands.SettleApproval{ApprovalID: id, Outcome: events.Granted}))
	do(l.SpendGate(ctx, as("ana"), commands.SpendGate{GateID: gate.Header.ID, Command: jsontext.Value(`{"v":1}`)}))
	do(l.AskGate(ctx, as("ana"), commands.AskGate{Action: "no.rule"}))
	register := commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(10)}
	do(l.RegisterActor(ctx, as("ana"), register))
	id = approval()
	do(l.SettleApproval(ctx, as("olga"), commands.SettleApproval{ApprovalID: id, Outcome: events.Granted}))
	do(l.RegisterActor(ctx, commands.Caller{Actor: "ana", ApprovalID: id}, register))

	// An approval that expires, one that is withdrawn.
	do(l.AskGate(ctx, as("ana"), commands.AskGate{Action: "deploy.prod", RequestApproval: true}))
	now = now.Add(state.Settings().ApprovalExpires)
	if err := l.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	do(l.AskGate(ctx, as("ana"), commands.AskGate{Action: "deploy.prod", RequestApproval: true}))
	do(l.WithdrawApproval(ctx, as("ana"), commands.WithdrawApproval{ApprovalID: approval()}))

	// A task that waits, is granted, claimed, lapses, is claimed again, reported.
	submit := commands.SubmitTask{TaskCommand: events.TaskCommand{Argv: []string{"go", "vet"}, Targets: []string{"m1"}, Attempts: 2}}
	do(l.SubmitTask(ctx, as("ana"), submit))
	tasks := l.State().OpenTasks()
	task := tasks[0].ID
	do(l.SettleApproval(ctx, as("carl"), commands.SettleApproval{ApprovalID: approval(), Outcome: events.Granted}))
	do(l.ClaimTask(ctx, as("m1"), commands.ClaimTask{TaskID: task, Machine: "m1"}))
	now = now.Add(state.Settings().Lease())
	if err := l.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	do(l.ClaimTask(ctx, as("m1"), commands.ClaimTask{TaskID: task, Machine: "m1"}))
	code := 1
	envelope := events.Envelope{Outcome: events.Exited, ExitCode: &code, StartedAt: now, EndedAt: now, Machine: "m1"}
	do(l.ReportAttempt(ctx, as("m1"), commands.ReportAttempt{TaskID: task, Attempt: 2, Envelope: envelope}))
	do(l.Conclude(ctx, as("ana"), commands.Conclude{About: &events.About{TaskID: task}, Text: "a real fault"}))
	do(l.SubmitTask(ctx, as("carl"), submit))
	do(l.CancelTask(ctx, as("carl"), commands.CancelTask{TaskID: l.State().OpenTasks()[0].ID}))
	do(l.RecordMemory(ctx, as("m1"), commands.RecordMemory{Record: events.MemoryRecord{Envelope: envelope, Argv: []string{"ls"}}}))
	recorded := last.Records[0].Header.ID
	hashOnly, tails := projections.HashOnly, projections.Tails
	do(l.ChangeSettings(ctx, as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{Output: &hashOnly}}))
	do(l.RecordMemory(ctx, as("m1"), commands.RecordMemory{Record: events.MemoryRecord{Envelope: envelope, Argv: []string{"ls"}}}))
	do(l.ChangeSettings(ctx, as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{Output: &tails}}))
	consolidate := func(by string, c commands.Consolidate) string {
		do(l.Consolidate(ctx, as(by), c))
		return last.Records[0].Header.ID
	}
	consolidate("ana", commands.Consolidate{Text: "it lists", Records: []string{recorded}})
	mine := consolidate("ana", commands.Consolidate{Text: "enough of it", Records: []string{recorded}, Forgets: &events.Forgetting{Cited: true}})
	all := consolidate("carl", commands.Consolidate{Text: "an old machine", Forgets: &events.Forgetting{Machine: "m1", ForAll: true}})
	consolidate("ana", commands.Consolidate{Text: "again", Recalls: mine})
	consolidate("olga", commands.Consolidate{Text: "again", Recalls: all})
	do(l.AskGate(ctx, as("carl"), commands.AskGate{Action: "task.submit.carl", Command: jsontext.Value(`{"argv":["ls"]}`)}))
	asked, _ := last.Has("gate.decided")
	here := envelope
	here.Machine = "carl"
	do(l.RecordMemory(ctx, as("carl"), commands.RecordMemory{Record: events.MemoryRecord{Envelope: here, Argv: []string{"ls"}, Gate: events.GateAllowed, GateID: asked.Header.ID}}))
	section := commands.ReviseSection{Slug: "vet", Heading: "Vet", Text: "fails on m1", Evidence: []string{task}}
	do(l.ReviseSection(ctx, as("carl"), section))
	section.Slug = "lint"
	do(l.ReviseSection(ctx, as("ana"), section))
	id = approval()
	do(l.SettleApproval(ctx, as("carl"), commands.SettleApproval{ApprovalID: id, Outcome: events.Granted}))
	do(l.ReviseSection(ctx, commands.Caller{Actor: "ana", ApprovalID: id}, section))
	do(l.RetireSection(ctx, as("carl"), commands.RetireSection{Slug: "vet"}))
	publish := func(by string, parents []events.Hash, fields map[string]string) events.Hash {
		do(l.PublishBlock(ctx, as(by), commands.PublishBlock{Fields: fields, Parents: parents}))
		hash, _ := events.BlockOfStream(last.Records[0].Header.Stream)
		return hash
	}
	do(l.WriteRule(ctx, as("root"), commands.WriteRule{Rule: events.Rule{Action: "memory.accept.mood", MinLevel: level(50)}}))
	block := publish("ana", nil, map[string]string{"focus": "vet", "mood": "calm"})
	answer := publish("carl", []events.Hash{block}, map[string]string{"issue": "it fails", "mood": "grim"})
	do(l.AcceptBlock(ctx, as("olga"), commands.AcceptBlock{Hash: block}))
	do(l.AcceptBlock(ctx, as("ana"), commands.AcceptBlock{Hash: answer, Narrow: events.Narrowing{Refuse: []string{"mood"}}}))
	do(l.PairMachine(ctx, as("olga"), commands.PairMachine{ID: "m3", AuthorityLevel: level(5)}))
	do(l.RedeemPairing(ctx, as("m3"), commands.RedeemPairing{Code: last.Secret, PublicKey: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}))
	do(l.AppendExt(ctx, as("ana"), []commands.ExtEvent{{ID: "x1", Type: "ext.note", Stream: "ext-a", Body: events.Ext{Source: "/t", Data: jsontext.Value(`{"a":1}`)}}}))

	f := fleet{ledger: l}
	for r, err := range log.ReadAll(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		f.records = append(f.records, r)
	}
	return f
}

func seq(records []events.Record) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for _, r := range records {
			if !yield(r, nil) {
				return
			}
		}
	}
}

func run(t *testing.T, records []events.Record) audit.Report {
	t.Helper()
	report, err := audit.Run(context.Background(), seq(records), audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// rewrite makes a log that is sound in every hash, as somebody who holds the disk
// could, in which the payloads are what change makes of them.
func rewrite(t *testing.T, records []events.Record, change func(r *events.Record, e events.Event) events.Event) []events.Record {
	t.Helper()
	prev := map[events.Stream]events.Hash{}
	var out []events.Record
	for _, r := range records {
		e, err := events.Decode(r)
		if err != nil {
			t.Fatal(err)
		}
		payload, err := events.Encode(change(&r, e))
		if err != nil {
			t.Fatal(err)
		}
		place := r.Header.Place
		place.Prev = prev[r.Header.Stream]
		n := events.NewDraft(r.Header.Intent, r.Salt, payload).Place(place)
		prev[n.Header.Stream] = n.LeafHash
		out = append(out, n)
	}
	return out
}

func TestSoundLogPasses(t *testing.T) {
	f := newFleet(t)
	report, err := audit.Run(context.Background(), seq(f.records), audit.Options{Live: f.ledger})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK || report.Events != len(f.records) || report.ProjectionsCompared == 0 || report.DecisionsRederived < 30 {
		t.Errorf("got %+v", report)
	}
}

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

func reversed(part []events.Record) []events.Record {
	slices.Reverse(part)
	return part
}

// A part of a log is audited as all of it is, and what is not in it is missed.
func TestPart(t *testing.T) {
	f := newFleet(t)
	of := func(streams ...string) (part []events.Record) {
		for _, r := range f.records {
			for _, s := range streams {
				if strings.HasPrefix(string(r.Header.Stream), s) {
					part = append(part, r)
				}
			}
		}
		return part
	}
	for _, c := range []struct {
		name string
		part []events.Record
		ok   bool
	}{
		{"all of it", f.records, true},
		{"tasks, and what they rest on", of("authority", "settings", "task-", "gate-"), true},
		{"without the gates", of("authority", "settings", "task-"), false},
		{"without the authority", of("task-"), false},
		{"without its beginning", of("authority", "settings", "task-", "gate-")[1:], false},
		{"backwards", reversed(of("task-")), false},
	} {
		r := audit.RunPart(c.part, true)
		if r.OK != c.ok || c.ok && (r.DecisionsRederived < 20 || r.Events != len(c.part)) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if r := audit.RunPart(c.part, false); r.DecisionsRederived != 0 || c.ok && !r.OK {
			t.Errorf("%s, without decisions: %+v", c.name, r)
		}
	}
}

// Each row damages the stored bytes of one event and nothing else.
func TestDamageIsFound(t *testing.T) {
	f := newFleet(t)
	for _, c := range []struct {
		name, kind string
		damage     func(r []events.Record) []events.Record
		at         events.Position
	}{
		{"a byte of a payload", audit.Payload, func(r []events.Record) []events.Record {
			p := slices.Clone(r[9].Payload)
			p[10] ^= 1
			r[9].Payload = p
			return r
		}, 10},
		{"a shorter payload", audit.Payload, func(r []events.Record) []events.Record {
			r[9].Payload = r[9].Payload[:20]
			return r
		}, 10},
		{"the salt", audit.Payload, func(r []events.Record) []events.Record { r[9].Salt[3] ^= 1; return r }, 10},
		{"a byte of a header", audit.Header, func(r []events.Record) []events.Record {
			leaf := slices.Clone(r[9].Leaf)
			leaf[40] ^= 1
			r[9].Leaf = leaf
			return r
		}, 10},
		{"a dropped event", audit.Position, func(r []events.Record) []events.Record { return slices.Delete(r, 9, 10) }, 11},
		{"two swapped events", audit.Position, func(r []events.Record) []events.Record { r[9], r[10] = r[10], r[9]; return r }, 11},
		{"an event back-dated", audit.Time, func(r []events.Record) []events.Record {
			h := r[9].Header
			h.Time = h.Time.Add(-time.Hour)
			r[9] = events.NewDraft(h.Intent, r[9].Salt, r[9].Payload).Place(h.Place)
			return r
		}, 10},
		{"an event put in another's place", audit.Chain, func(r []events.Record) []events.Record {
			h := r[9].Header
			h.Prev = events.SumHash("another past")
			r[9] = events.NewDraft(h.Intent, r[9].Salt, r[9].Payload).Place(h.Place)
			return r
		}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := run(t, c.damage(slices.Clone(f.records)))
			if report.OK || !slices.ContainsFunc(report.Findings, func(f audit.Finding) bool { return f.Kind == c.kind && f.Position == c.at }) {
				t.Errorf("no %s at position %d: %+v", c.kind, c.at, report.Findings)
			}
		})
	}
}

func TestUnreadableEventIsNamedAndTheRestIsRead(t *testing.T) {
	f := newFleet(t)
	report, err := audit.Run(context.Background(), func(yield func(events.Record, error) bool) {
		for i, r := range f.records {
			if i == 4 && !yield(events.Record{}, &events.CorruptError{Position: 5, Detail: "checksum mismatch"}) || i != 4 && !yield(r, nil) {
				return
			}
		}
	}, audit.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if report.OK || report.Findings[0].Position != 5 || report.Findings[0].Kind != audit.Unreadable || report.To != events.Position(len(f.records)) {
		t.Errorf("got %+v", report)
	}
}

func TestLiveProjectionThatDiffersIsFound(t *testing.T) {
	f := newFleet(t)
	other := newFleet(t)
	if _, err := other.ledger.ChangeActor(context.Background(), commands.Caller{Actor: "root"}, commands.ChangeActor{ID: "ana", AddScopes: []string{"zz"}}); err != nil {
		t.Fatal(err)
	}
	// The log of one fleet beside the state of the other, at the same position.
	records := f.records
	if _, err := f.ledger.ChangeActor(context.Background(), commands.Caller{Actor: "root"}, commands.ChangeActor{ID: "ana", AddScopes: []string{"yy"}}); err != nil {
		t.Fatal(err)
	}
	for r, err := range f.ledger.Log().ReadAll(context.Background(), events.Position(len(records))) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	report, err := audit.Run(context.Background(), seq(records), audit.Options{Live: other.ledger})
	if err != nil {
		t.Fatal(err)
	}
	if report.OK || !slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
		return f.Kind == audit.Projection && f.Detail == "authority: actor ana differs"
	}) {
		t.Errorf("got %+v", report)
	}
}
