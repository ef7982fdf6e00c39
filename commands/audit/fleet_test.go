package audit_test

import (
	"context"
	"iter"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/testing/smallfleet"
)

// fleet is a log in which each kind of decision was made once.
type fleet struct {
	*smallfleet.Fleet
	records []events.Record // as they were read last
}

func (f *fleet) read() { f.records = f.All() }

func newFleet(t *testing.T) fleet {
	t.Helper()
	ctx := t.Context()
	f := smallfleet.New(t)
	l, do, as, level, approval := f.Ledger, f.Do, smallfleet.As, smallfleet.Level, f.Asked
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
	gate, _ := f.Last.Has("gate.decided")
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
	f.Now = f.Now.Add(l.State().Settings().ApprovalExpires)
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
	f.Now = f.Now.Add(l.State().Settings().Lease())
	if err := l.Sweep(ctx); err != nil {
		t.Fatal(err)
	}
	do(l.ClaimTask(ctx, as("m1"), commands.ClaimTask{TaskID: task, Machine: "m1"}))
	code := 1
	envelope := events.Envelope{Outcome: events.Exited, ExitCode: &code, StartedAt: f.Now, EndedAt: f.Now, Machine: "m1"}
	do(l.ReportAttempt(ctx, as("m1"), commands.ReportAttempt{TaskID: task, Attempt: 2, Envelope: envelope}))
	do(l.Conclude(ctx, as("ana"), commands.Conclude{About: &events.About{TaskID: task}, Text: "a real fault"}))
	do(l.SubmitTask(ctx, as("carl"), submit))
	do(l.CancelTask(ctx, as("carl"), commands.CancelTask{TaskID: l.State().OpenTasks()[0].ID}))
	do(l.RecordMemory(ctx, as("m1"), commands.RecordMemory{Record: events.MemoryRecord{Envelope: envelope, Argv: []string{"ls"}}}))
	recorded := f.Last.Records[0].Header.ID
	hashOnly, tails := projections.HashOnly, projections.Tails
	do(l.ChangeSettings(ctx, as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{Output: &hashOnly}}))
	do(l.RecordMemory(ctx, as("m1"), commands.RecordMemory{Record: events.MemoryRecord{Envelope: envelope, Argv: []string{"ls"}}}))
	do(l.ChangeSettings(ctx, as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{Output: &tails}}))
	consolidate := func(by string, c commands.Consolidate) string {
		do(l.Consolidate(ctx, as(by), c))
		return f.Last.Records[0].Header.ID
	}
	consolidate("ana", commands.Consolidate{Text: "it lists", Records: []string{recorded}})
	mine := consolidate("ana", commands.Consolidate{Text: "enough of it", Records: []string{recorded}, Forgets: &events.Forgetting{Cited: true}})
	all := consolidate("carl", commands.Consolidate{Text: "an old machine", Forgets: &events.Forgetting{Machine: "m1", ForAll: true}})
	consolidate("ana", commands.Consolidate{Text: "again", Recalls: mine})
	consolidate("olga", commands.Consolidate{Text: "again", Recalls: all})
	do(l.AskGate(ctx, as("carl"), commands.AskGate{Action: "task.submit.carl", Command: jsontext.Value(`{"argv":["ls"]}`)}))
	asked, _ := f.Last.Has("gate.decided")
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
		hash, _ := events.BlockOfStream(f.Last.Records[0].Header.Stream)
		return hash
	}
	do(l.WriteRule(ctx, as("root"), commands.WriteRule{Rule: events.Rule{Action: "memory.accept.mood", MinLevel: level(50)}}))
	block := publish("ana", nil, map[string]string{"focus": "vet", "mood": "calm"})
	answer := publish("carl", []events.Hash{block}, map[string]string{"issue": "it fails", "mood": "grim"})
	do(l.AcceptBlock(ctx, as("olga"), commands.AcceptBlock{Hash: block}))
	do(l.AcceptBlock(ctx, as("ana"), commands.AcceptBlock{Hash: answer, Narrow: events.Narrowing{Refuse: []string{"mood"}}}))
	do(l.PairMachine(ctx, as("olga"), commands.PairMachine{ID: "m3", AuthorityLevel: level(5)}))
	do(l.RedeemPairing(ctx, as("m3"), commands.RedeemPairing{Code: f.Last.Secret, PublicKey: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}))
	do(l.AppendExt(ctx, as("ana"), []commands.ExtEvent{{ID: "x1", Type: "ext.note", Stream: "ext-a", Body: events.Ext{Source: "/t", Data: jsontext.Value(`{"a":1}`)}}}))

	// Changes of authority by somebody who may not make all of them.
	do(l.ChangeActor(ctx, as("olga"), commands.ChangeActor{ID: "ana", AuthorityLevel: level(25), AddScopes: []string{"team-a"}}))
	do(l.WriteRule(ctx, as("olga"), commands.WriteRule{Rule: events.Rule{Action: "ext.loud", MinLevel: level(10)}}))
	rule := f.Last.Records[0]
	do(l.RetireRule(ctx, as("olga"), commands.RetireRule{RuleID: decoded[events.RuleWritten](t, rule).RuleID}))
	do(l.IssueToken(ctx, as("olga"), commands.IssueToken{Actor: "ana"}))
	do(l.RevokeToken(ctx, as("ana"), commands.RevokeToken{Actor: "ana", TokenID: decoded[events.TokenIssued](t, f.Last.Records[0]).TokenID}))
	yes, no := true, false
	do(l.ChangeActor(ctx, as("olga"), commands.ChangeActor{ID: "carl.bot", Suspended: &yes}))
	do(l.ChangeActor(ctx, as("olga"), commands.ChangeActor{ID: "carl.bot", Suspended: &no}))
	do(l.PairMachine(ctx, as("olga"), commands.PairMachine{ID: "m1"}))

	return fleet{f, f.All()}
}

func decoded[E events.Event](t *testing.T, r events.Record) E {
	t.Helper()
	e, err := events.DecodeAs[E](r)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func seq(records []events.Record) iter.Seq2[events.Stored, error] {
	return func(yield func(events.Stored, error) bool) {
		for _, r := range records {
			if !yield(r.Stored(), nil) {
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
