package commands_test

import (
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
)

func TestChangeSettings(t *testing.T) {
	w := newWorld(t)
	w.people()
	set := func(by string, p events.SettingsPatch) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.ChangeSettings(w.ctx(), as(by), commands.ChangeSettings{Settings: p})
		}
	}
	n := func(i int) *int { return &i }
	word := func(s string) *string { return &s }
	for name, p := range map[string]events.SettingsPatch{
		"nothing":           {},
		"unknown output":    {Output: word("all")},
		"no heartbeat":      {HeartbeatSeconds: n(0)},
		"endless approvals": {ApprovalSeconds: n(1 << 40)},
		"no denials":        {DenialsPerMinute: n(0)},
	} {
		t.Run(name, func(t *testing.T) { w.refused("INVALID", set("root", p)) })
	}
	if got := kindsOf(w.ok(set("olga", events.SettingsPatch{GraceSeconds: n(1)})())); got != "gate.decided approval.requested" {
		t.Errorf("below the floor: got %s", got)
	}
	w.ok(set("root", events.SettingsPatch{HeartbeatSeconds: n(2), HeartbeatsMissed: n(2), GraceSeconds: n(0), Output: word("hash_only")})())
	if got := w.State().Settings().Lease(); got != 4*time.Second {
		t.Errorf("a lease is %s", got)
	}
	// Hash only: tails stay on the machine, sizes and hashes come.
	tk := w.taskOf(w.submit("ana", "go"))
	w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 0, "secret")))
	out := w.reload(tk).Legs[0].Attempts[0].Envelope.Stdout
	if out.Tail != "" || !out.Truncated || out.Bytes != 6 || out.SHA256.IsZero() {
		t.Errorf("got %+v", out)
	}
}

func TestSeparationOfDuties(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	w.derive("carl", "carl.bot", level(20))
	r := w.ok(w.AskGate(w.ctx(), as("carl.bot"), commands.AskGate{Action: "deploy.prod", RequestApproval: true}))
	a := first[events.ApprovalRequested](w, r).ApprovalID
	yes := true
	w.ok(w.ChangeSettings(w.ctx(), as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{SeparationOfDuties: &yes}}))
	w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle("carl", a, events.Granted) })
	if ok, why := commands.NewStandpoint(w.State().Authority(), w.State().Settings()).MaySettle("carl", w.State().PendingApproval(a)); ok || why == "" {
		t.Error("the queue tells an ancestor that it may settle")
	}
	no := false
	w.ok(w.ChangeSettings(w.ctx(), as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{SeparationOfDuties: &no}}))
	w.ok(w.settle("carl", a, events.Granted))
}

func TestSimulate(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	for _, by := range []string{"ana", "carl", "olga"} {
		w.ok(w.AskGate(w.ctx(), as(by), commands.AskGate{Action: "deploy.prod"}))
	}
	before := w.Log().Durable()
	proposed := commands.Simulate{MaxDifferences: 1}
	for _, r := range w.State().Authority().Rules {
		rule := r.Rule
		if rule.Action == "deploy.prod" {
			rule.MinLevel = level(70)
		}
		proposed.Rules = append(proposed.Rules, rule)
	}
	got, err := w.SimulateHistory(w.ctx(), proposed, nil)
	if err != nil {
		t.Fatal(err)
	}
	// carl was allowed at 60; ana waits either way, olga passes either way.
	if got.Differ != 1 || len(got.Differences) != 1 || got.Differences[0].Was.Actor != "carl" || got.Differences[0].WouldBe.Verdict != events.NeedsApproval {
		t.Errorf("got %+v", got)
	}
	same, err := w.SimulateHistory(w.ctx(), commands.Simulate{}, nil)
	if err != nil || same.Differ != 0 || same.Decided != got.Decided || same.Decided < 7 {
		t.Errorf("under the rules in force: got %+v %v", same, err)
	}
	inForce, would, err := w.SimulateOne(proposed, "deploy.prod", "carl")
	if err != nil || inForce.Verdict != events.Allow || would.Verdict != events.NeedsApproval {
		t.Errorf("got %s, %s, %v", inForce.Verdict, would.Verdict, err)
	}
	// An empty list denies everything.
	_, would, err = w.SimulateOne(commands.Simulate{Rules: []events.Rule{}}, "deploy.prod", "root")
	if err != nil || would.Verdict != events.Deny {
		t.Errorf("got %s, %v", would.Verdict, err)
	}
	if w.Log().Durable() != before {
		t.Error("a simulation recorded something")
	}
}
