package commands_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
)

// asked has ana ask for something that only captains may, and returns gate and
// approval.
func (w *world) asked(command string) (gate, approval string) {
	w.t.Helper()
	r := w.ok(w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "deploy.prod", Command: jsontext.Value(command), RequestApproval: true}))
	return first[events.GateDecided](w, r).GateID, first[events.ApprovalRequested](w, r).ApprovalID
}

func (w *world) spend(by, gate, command string) func() (commands.Result, error) {
	return func() (commands.Result, error) {
		return w.SpendGate(w.ctx(), as(by), commands.SpendGate{GateID: gate, Command: jsontext.Value(command)})
	}
}

func TestAskGate(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	for _, c := range []struct {
		by, action string
		verdict    events.Verdict
		reason     events.ReasonCode
	}{
		{"carl", "deploy.prod", events.Allow, ""},
		{"ana", "deploy.prod", events.NeedsApproval, events.ReasonBelowMinimum},
		{"root", "deploy.test", events.Deny, events.ReasonNoRule},
	} {
		r := w.ok(w.AskGate(w.ctx(), as(c.by), commands.AskGate{Action: c.action}))
		d := first[events.GateDecided](w, r).Decision
		if d.Verdict != c.verdict || (d.Decisive == nil) != (c.reason == "") || d.Decisive != nil && d.Decisive.ReasonCode != c.reason {
			t.Errorf("%s %s: got %+v", c.by, c.action, d)
		}
		if got := kindsOf(r); got != "gate.decided" {
			t.Errorf("%s %s: an approval nobody asked for: %s", c.by, c.action, got)
		}
	}
	w.refused("INVALID", func() (commands.Result, error) { return w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "*"}) })
}

func TestApprovalIsSpentOnceByItsRequesterForItsCommand(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	gate, approval := w.asked(`{"version":"1.2","n":1}`)
	w.refused("APPROVAL_NOT_GRANTED", w.spend("ana", gate, `{"version":"1.2","n":1}`))
	w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle("ana", approval, events.Granted) })
	w.ok(w.settle("carl", approval, events.Granted))
	w.refused("APPROVAL_ENDED", func() (commands.Result, error) { return w.settle("olga", approval, events.Refused) })
	w.refused("NOT_REQUESTER", w.spend("carl", gate, `{"version":"1.2","n":1}`))
	w.refused("COMMAND_CHANGED", w.spend("ana", gate, `{"version":"1.3","n":1}`))
	w.refused("COMMAND_CHANGED", w.spend("ana", gate, ``))
	// Member order and white space are no change.
	w.ok(w.spend("ana", gate, ` {"n": 1, "version": "1.2"}`)())
	w.refused("APPROVAL_SPENT", w.spend("ana", gate, `{"version":"1.2","n":1}`))
	sameKinds(t, w.recordKinds(events.GateStream(gate)), "gate.decided", "approval.requested", "approval.settled", "approval.spent")
	w.refused("GATE_NOT_FOUND", w.spend("ana", "no-such-gate", `{}`))
}

func TestApproversStandOutside(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	w.derive("carl", "carl.bot", level(49)) // asks
	w.derive("carl", "carl.two", level(60)) // a sibling
	w.derive("carl.bot", "carl.bot.sub", nil)
	ask := func() string {
		r := w.ok(w.AskGate(w.ctx(), as("carl.bot"), commands.AskGate{Action: "deploy.prod", RequestApproval: true}))
		return first[events.ApprovalRequested](w, r).ApprovalID
	}
	a := ask()
	for by, want := range map[string]string{
		"carl.bot": "APPROVER_NOT_ENTITLED", "carl.two": "APPROVER_NOT_ENTITLED", "carl.bot.sub": "APPROVER_NOT_ENTITLED", "ana": "APPROVER_NOT_ENTITLED",
	} {
		w.refused(want, func() (commands.Result, error) { return w.settle(by, a, events.Granted) })
	}
	w.ok(w.settle("carl", a, events.Granted)) // its ancestor may
}

// Nobody grants what it may not do itself: a second, stricter rule on the same
// action binds the approver too.
func TestGrantCannotBypassAStricterRule(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	w.rule("deploy.*", 75)
	gate, approval := w.asked(`{}`)
	r := w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle("carl", approval, events.Granted) })
	if r.Facts["required_level"] != events.Level(75) {
		t.Errorf("got %v", r.Facts)
	}
	w.ok(w.settle("olga", approval, events.Granted))
	w.ok(w.spend("ana", gate, `{}`)())
}

func TestSpendingEvaluatesAgain(t *testing.T) {
	for name, change := range map[string]func(w *world, rule string){
		"the requester is denied now": func(w *world, rule string) {
			w.ok(w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: rule}))
		},
		"another rule decides now": func(w *world, rule string) {
			w.rule("deploy.prod", 55)
			w.ok(w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: rule}))
		},
		"the approver is no longer entitled": func(w *world, _ string) {
			w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "carl", AuthorityLevel: level(40)}))
		},
		"a stricter rule binds the approver": func(w *world, _ string) { w.rule("deploy.prod", 70) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			rule := w.rule("deploy.prod", 50)
			gate, approval := w.asked(`{}`)
			w.ok(w.settle("carl", approval, events.Granted))
			change(w, rule)
			w.refused("RULES_CHANGED", w.spend("ana", gate, `{}`))
		})
	}
}

func TestApprovalsEnd(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)

	_, expiring := w.asked(`{"n":1}`)
	granted, late := w.asked(`{"n":2}`)
	w.ok(w.settle("carl", late, events.Granted))
	w.Now = w.Now.Add(w.State().Settings().ApprovalExpires)
	// The moment itself is too late. Whoever meets it first has the relay record it.
	_, err := w.settle("carl", expiring, events.Granted)
	if got := outcome(err); got != "APPROVAL_ENDED" {
		t.Fatalf("got %s", got)
	}
	if got := w.ended(expiring); got != events.Expired {
		t.Errorf("the approval is recorded as %q", got)
	}
	w.refused("APPROVAL_EXPIRED", w.spend("ana", granted, `{"n":2}`))
	if err := w.Sweep(w.ctx()); err != nil {
		t.Fatal(err)
	}
	r := w.refused("APPROVAL_ENDED", func() (commands.Result, error) { return w.settle("carl", expiring, events.Granted) })
	if r.Facts["outcome"] != events.Expired {
		t.Errorf("got %v", r.Facts)
	}

	_, mine := w.asked(`{"n":3}`)
	withdraw := func(by string) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.WithdrawApproval(w.ctx(), as(by), commands.WithdrawApproval{ApprovalID: mine})
		}
	}
	w.register("root", "bo", events.Human, 20)
	w.refused("NOT_REQUESTER", withdraw("bo"))
	w.ok(withdraw("ana")())
	w.refused("APPROVAL_ENDED", withdraw("ana"))

	_, orphan := w.asked(`{"n":4}`)
	yes := true
	w.ok(w.ChangeActor(w.ctx(), as("olga"), commands.ChangeActor{ID: "ana", Suspended: &yes}))
	if got := w.ended(orphan); got != events.Withdrawn {
		t.Errorf("the approval of a suspended actor is %q", got)
	}
}

// A command that needs an approval changes nothing, and is carried out when it is
// repeated with the approval, once.
func TestCommandRepeatedWithItsApproval(t *testing.T) {
	w := newWorld(t)
	w.people()
	cmd := commands.RegisterActor{ID: "bo", Kind: events.Human, AuthorityLevel: level(10)}
	r := w.ok(w.RegisterActor(w.ctx(), as("ana"), cmd))
	approval := first[events.ApprovalRequested](w, r).ApprovalID
	repeat := func(by string, c commands.RegisterActor) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.RegisterActor(w.ctx(), commands.Caller{Actor: by, ApprovalID: approval}, c)
		}
	}
	w.refused("APPROVAL_NOT_GRANTED", repeat("ana", cmd))
	w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle("carl", approval, events.Granted) })
	w.ok(w.settle("olga", approval, events.Granted))
	w.refused("NOT_REQUESTER", repeat("carl", cmd))
	other := cmd
	other.AuthorityLevel = level(11)
	w.refused("COMMAND_CHANGED", repeat("ana", other))
	if got := kindsOf(w.ok(repeat("ana", cmd)())); got != "actor.registered token.issued approval.spent" {
		t.Errorf("got %s", got)
	}
	w.refused("ACTOR_EXISTS", repeat("ana", cmd))
	other.ID = "bo2"
	w.refused("APPROVAL_SPENT", repeat("ana", other))
	w.refused("APPROVAL_NOT_FOUND", func() (commands.Result, error) {
		return w.RegisterActor(w.ctx(), commands.Caller{Actor: "ana", ApprovalID: "nope"}, other)
	})
}

func TestDenialsAreRecordedUpToARate(t *testing.T) {
	w := newWorld(t)
	w.people()
	limit := w.State().Settings().DenialsPerMinute
	deny := func() (commands.Result, error) {
		return w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "no.rule"})
	}
	for range limit {
		w.ok(deny())
	}
	r := w.refused("DENIALS_LIMITED", deny)
	if r.Class != commands.TooMany || r.Facts["retry_after_s"] != 60 {
		t.Errorf("got %+v", r)
	}
	// A restart does not lift it.
	w.Ledger = commands.New(w.Log(), w.State(), commands.Random{
		ID:    func() string { w.ids++; return fmt.Sprintf("00000000-0000-7000-b000-%012d", w.ids) },
		Bytes: func(b []byte) { clear(b) },
	})
	w.refused("DENIALS_LIMITED", deny)
	// Others are not touched by it.
	w.ok(w.AskGate(w.ctx(), as("carl"), commands.AskGate{Action: "no.rule"}))
	w.Now = w.Now.Add(time.Minute)
	w.ok(deny())
}

func TestApprovalsAreOpenedUpToARate(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	w.derive("ana", "ana.bot", nil)
	w.register("root", "bo", events.Human, 20)
	ask := func(by string) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.AskGate(w.ctx(), as(by), commands.AskGate{Action: "deploy.prod", RequestApproval: true})
		}
	}
	for range w.State().Settings().ApprovalsPerMinute {
		w.ok(ask("ana")())
	}
	w.refused("APPROVALS_LIMITED", ask("ana"))
	w.refused("APPROVALS_LIMITED", ask("ana.bot")) // the same root
	w.ok(ask("bo")())
	w.Now = w.Now.Add(time.Minute)
	w.ok(ask("ana.bot")())
}

// The fleet's limit stops whoever is over its fair share, and nobody else. It is
// kept by what the log says, so that a restart does not lift it.
func TestFleetLimitSparesTheFair(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "bo", events.Human, 20)
	w.rule("deploy.prod", 50)
	ten := 10
	w.ok(w.ChangeSettings(w.ctx(), as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{FleetApprovalsPerMinute: &ten}}))
	ask := func(by string) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.AskGate(w.ctx(), as(by), commands.AskGate{Action: "deploy.prod", RequestApproval: true})
		}
	}
	for range 10 {
		w.ok(ask("ana")())
	}
	w.refused("APPROVALS_LIMITED", ask("ana"))
	for range 5 {
		w.ok(ask("bo")())
	}
	w.refused("APPROVALS_LIMITED", ask("bo"))
	w.Ledger = commands.New(w.Log(), w.State(), commands.Random{ID: func() string { return "x" }, Bytes: func(b []byte) { clear(b) }})
	w.refused("APPROVALS_LIMITED", ask("ana"))
	// Reading the queue is never limited, and settling it neither.
	for _, a := range w.State().PendingApprovals()[:3] {
		if _, err := w.Approval(w.ctx(), a.ApprovalID, 0); err != nil {
			t.Error(err)
		}
	}
	w.Now = w.Now.Add(time.Minute)
}

// A puppet of a puppet is a puppet: whoever goes back to the requester, however
// many registrations lie between, does not approve what it asks.
func TestPuppetsDoNotApprove(t *testing.T) {
	w := newWorld(t)
	w.register("root", "ob", events.Human, 95)
	w.register("ob", "p1", events.Human, 95)
	w.register("p1", "p2", events.Human, 95)
	w.derive("p2", "p2.bot", nil)
	w.register("root", "other", events.Human, 95)
	w.rule("deploy.prod", 0, scope("s"))
	for _, id := range []string{"p2", "other"} {
		w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: id, AddScopes: []string{"s"}}))
	}
	r := w.ok(w.AskGate(w.ctx(), as("ob"), commands.AskGate{Action: "deploy.prod", RequestApproval: true}))
	a := first[events.ApprovalRequested](w, r).ApprovalID
	for _, by := range []string{"p1", "p2", "p2.bot"} {
		w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle(by, a, events.Granted) })
	}
	w.ok(w.settle("other", a, events.Granted))
}
