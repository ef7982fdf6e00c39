package commands_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

func TestSubmitTask(t *testing.T) {
	long := make([]string, projections.DefaultSettings().ArgvItems+1)
	for i := range long {
		long[i] = "x"
	}
	cmd := func(c events.TaskCommand) commands.SubmitTask { return commands.SubmitTask{TaskCommand: c} }
	for _, c := range []struct {
		name string
		cmd  commands.SubmitTask
		code string
		mode events.TaskMode
	}{
		{"one target", task([]string{"go"}, "m1"), "", events.Single},
		{"two targets replicate", task([]string{"go"}, "m1", "m2"), "", events.Replicate},
		{"split", cmd(events.TaskCommand{Mode: events.Split, Targets: []string{"m1", "m2"}, Parts: [][]string{{"a"}, {"b"}}}), "", events.Split},
		{"no argv", task(nil, "m1"), "INVALID", ""},
		{"empty program", task([]string{""}, "m1"), "INVALID", ""},
		{"NUL in argv", task([]string{"a\x00b"}, "m1"), "INVALID", ""},
		{"no target", task([]string{"go"}), "INVALID", ""},
		{"a target twice", task([]string{"go"}, "m1", "m1"), "INVALID", ""},
		{"unknown machine", task([]string{"go"}, "m9"), "INVALID", ""},
		{"not a machine", task([]string{"go"}, "carl"), "INVALID", ""},
		{"single with two", cmd(events.TaskCommand{Mode: events.Single, Argv: []string{"go"}, Targets: []string{"m1", "m2"}}), "INVALID", ""},
		{"split without parts", cmd(events.TaskCommand{Mode: events.Split, Argv: []string{"go"}, Targets: []string{"m1"}}), "INVALID", ""},
		{"quorum of a single", cmd(events.TaskCommand{Argv: []string{"go"}, Targets: []string{"m1"}, Quorum: 1}), "INVALID", ""},
		{"quorum above the replicas", cmd(events.TaskCommand{Argv: []string{"go"}, Targets: []string{"m1", "m2"}, Quorum: 3}), "INVALID", ""},
		{"negative timeout", cmd(events.TaskCommand{Argv: []string{"go"}, Targets: []string{"m1"}, TimeoutSeconds: -1}), "INVALID", ""},
		{"unknown mode", cmd(events.TaskCommand{Mode: "race", Argv: []string{"go"}, Targets: []string{"m1"}}), "INVALID", ""},
		{"too many words", task(long, "m1"), "ARGV_TOO_LARGE", ""},
		{"too many bytes", task([]string{"go", strings.Repeat("x", projections.DefaultSettings().ArgvBytes)}, "m1"), "ARGV_TOO_LARGE", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			w.register("root", "m2", events.Machine, 10)
			do := func() (commands.Result, error) { return w.SubmitTask(w.ctx(), as("ana"), c.cmd) }
			if c.code != "" {
				w.refused(c.code, do)
				return
			}
			r := w.ok(do())
			if got := kindsOf(r); got != "task.submitted task.opened" {
				t.Fatalf("got %s", got)
			}
			if got := w.taskOf(r).Command.Mode; got != c.mode {
				t.Errorf("got mode %s", got)
			}
		})
	}
}

// Any denial refuses the task in one append; nothing is offered.
func TestDeniedTask(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10)
	for _, r := range w.State().Authority().Rules {
		if r.Rule.Action == "task.submit.*" {
			w.ok(w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: r.ID}))
		}
	}
	w.rule("task.submit.m2", 0)
	r := w.refused("DENIED", func() (commands.Result, error) {
		return w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m1", "m2"))
	})
	id := r.Facts["task_id"].(string)
	sameKinds(t, w.recordKinds(events.TaskStream(id)), "task.submitted", "gate.decided", "task.settled")
	got, err := w.Task(w.ctx(), id, 0)
	if err != nil || got.Verdict != events.VerdictRefused {
		t.Errorf("got %+v %v", got, err)
	}
	if n := len(w.State().Offers("m2", 0)); n != 0 {
		t.Errorf("%d legs are offered", n)
	}
}

func TestTaskWaitsForItsApproval(t *testing.T) {
	for _, c := range []struct {
		outcome events.ApprovalOutcome
		status  string
		kinds   []events.Kind
	}{
		{events.Granted, projections.TaskOpen, []events.Kind{"approval.settled", "task.opened"}},
		{events.Refused, projections.TaskSettled, []events.Kind{"approval.settled", "task.settled"}},
	} {
		t.Run(string(c.outcome), func(t *testing.T) {
			w := newWorld(t)
			w.people()
			w.rule("task.submit.m1", 50, func(r *events.Rule) { r.Why = "m1 is production" })
			r := w.submit("ana", "rm", "-rf", "build")
			tk := w.taskOf(r)
			if tk.Status != projections.TaskAwaitingApproval || len(w.State().Offers("m1", 0)) != 0 {
				t.Fatalf("the task is %s", tk.Status)
			}
			w.refused("TASK_NOT_OPEN", func() (commands.Result, error) {
				return w.ClaimTask(w.ctx(), as("m1"), commands.ClaimTask{TaskID: tk.ID, Machine: "m1"})
			})
			a := w.State().PendingApprovals()[0]
			if want := "m1 is production: "; !strings.HasPrefix(a.Why, want) {
				t.Errorf("why is %q", a.Why)
			}
			w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle("ana", a.ApprovalID, c.outcome) })
			w.ok(w.settle("carl", a.ApprovalID, c.outcome))
			if got := w.reload(tk).Status; got != c.status {
				t.Errorf("the task is %s", got)
			}
			kinds := w.recordKinds(tk.Stream)
			sameKinds(t, kinds[len(kinds)-2:], c.kinds...)
		})
	}
}

// An approver must be entitled for every target that was stopped.
func TestOneApprovalForSeveralTargets(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10)
	w.rule("task.submit.m1", 50)
	w.rule("task.submit.m2", 75)
	r := w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m1", "m2")))
	if got := kindsOf(r); got != "task.submitted gate.decided gate.decided approval.requested" {
		t.Fatalf("got %s", got)
	}
	a := first[events.ApprovalRequested](w, r)
	if a.RequiredLevel != 75 {
		t.Errorf("required level is %d", a.RequiredLevel)
	}
	w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle("carl", a.ApprovalID, events.Granted) })
	w.ok(w.settle("olga", a.ApprovalID, events.Granted))
	if len(w.State().Offers("m1", 0)) != 1 || len(w.State().Offers("m2", 0)) != 1 {
		t.Error("not every leg is offered")
	}
}

func TestGrantOfATaskEvaluatesAgain(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("task.submit.m1", 50)
	r := w.submit("ana", "go")
	a := first[events.ApprovalRequested](w, r).ApprovalID
	w.rule("task.submit.m1", 0, scope("team-a")) // comes later: the first still decides
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "ana", AuthorityLevel: level(55)}))
	// Now the first rule allows, and the second decides.
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "olga", AddScopes: []string{"team-a"}}))
	w.refused("RULES_CHANGED", func() (commands.Result, error) { return w.settle("olga", a, events.Granted) })
	w.ok(w.settle("olga", a, events.Refused))
}

func TestClaimAndReport(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10)
	tk := w.taskOf(w.submit("ana", "go", "version"))
	claim := func(by, machine string) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.ClaimTask(w.ctx(), as(by), commands.ClaimTask{TaskID: tk.ID, Machine: machine})
		}
	}
	w.refused("NOT_YOUR_LEG", claim("m2", "m2"))
	w.refused("NOT_YOUR_LEG", claim("m2", "m1"))
	w.refused("NOT_YOUR_LEG", claim("root", "m1"))
	n := w.claim(tk, "m1")
	w.refused("ALREADY_CLAIMED", claim("m1", "m1"))
	e := w.envelope("m1", 0, "go1.26\n")
	reporting := func(by string, attempt int, e events.Envelope) func() (commands.Result, error) {
		return func() (commands.Result, error) { return w.report(tk, by, attempt, e) }
	}
	w.refused("NOT_YOUR_LEG", reporting("m2", n, e))
	w.refused("ATTEMPT_NOT_FOUND", reporting("m1", n+1, e))
	bad := e
	bad.ExitCode = nil
	w.refused("INVALID", reporting("m1", n, bad))
	bad = e
	bad.Machine = "m2"
	w.refused("INVALID", reporting("m1", n, bad))
	bad = e
	bad.Stdout.Tail = strings.Repeat("x", projections.DefaultSettings().TailBytes+1)
	w.refused("TAIL_TOO_LARGE", reporting("m1", n, bad))
	r := w.ok(w.report(tk, "m1", n, e))
	if got := kindsOf(r); got != "task.reported task.settled" {
		t.Fatalf("got %s", got)
	}
	again := w.ok(w.report(tk, "m1", n, e))
	if !again.Duplicate || again.Records[0].Header.Position != r.Records[0].Header.Position {
		t.Errorf("the same report again: %+v", again)
	}
	bad = e
	bad.ElapsedMS++
	w.refused("ALREADY_REPORTED", reporting("m1", n, bad))
	if got := w.reload(tk); got.Verdict != events.VerdictSucceeded {
		t.Errorf("got %s", got.Verdict)
	}
}

func TestLeases(t *testing.T) {
	w := newWorld(t)
	w.people()
	lease := w.State().Settings().Lease()
	c := task([]string{"sleep", "600"}, "m1")
	c.Attempts = 2
	tk := w.taskOf(w.ok(w.SubmitTask(w.ctx(), as("ana"), c)))
	first := w.claim(tk, "m1")
	// A task runs for hours as long as it is heard of.
	for range 10 {
		w.Now = w.Now.Add(lease / 2)
		if _, err := w.Heartbeat(w.ctx(), as("m1"), tk.ID, first); err != nil {
			t.Fatal(err)
		}
		if err := w.Sweep(w.ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if got := w.reload(tk).Legs[0].Status; got != projections.LegClaimed {
		t.Fatalf("the leg is %s", got)
	}
	w.Now = w.Now.Add(lease)
	if err := w.Sweep(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := w.reload(tk).Legs[0].Status; got != projections.LegOffered {
		t.Fatalf("the leg is %s after its first lease lapsed", got)
	}
	if _, err := w.Heartbeat(w.ctx(), as("m1"), tk.ID, first); err == nil {
		t.Error("a lapsed attempt can be kept alive")
	}
	second := w.claim(tk, "m1")
	if second == first {
		t.Error("attempt numbers are not unique")
	}
	late := w.ok(w.report(tk, "m1", first, w.envelope("m1", 0, "")))
	if got := kindsOf(late); got != "task.reported" {
		t.Errorf("a late report gave %s", got)
	}
	w.Now = w.Now.Add(lease)
	if err := w.Sweep(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := w.reload(tk); got.Verdict != events.VerdictLost {
		t.Errorf("the verdict is %q", got.Verdict)
	}
	late = w.ok(w.report(tk, "m1", second, w.envelope("m1", 0, "")))
	if got := w.reload(tk); got.Verdict != events.VerdictLost || kindsOf(late) != "task.reported" {
		t.Errorf("a late report changed the verdict to %q", got.Verdict)
	}
}

// A restart renews every open lease.
func TestRestartRenewsLeases(t *testing.T) {
	w := newWorld(t)
	w.people()
	tk := w.taskOf(w.submit("ana", "go"))
	w.claim(tk, "m1")
	lease := w.State().Settings().Lease()
	w.Now = w.Now.Add(lease)
	restarted := commands.New(w.Log(), w.State(), commands.Random{
		ID: func() string { w.ids++; return strings.Repeat("r", int(w.ids%100)) }, Bytes: func(b []byte) { clear(b) },
	})
	if err := restarted.Sweep(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := w.reload(tk).Legs[0].Status; got != projections.LegClaimed {
		t.Errorf("the leg is %s right after a restart", got)
	}
}

func TestCancelTask(t *testing.T) {
	for _, c := range []struct {
		name, by string
		before   func(w *world, tk *projections.Task)
		code     string
		kinds    string
	}{
		{"its submitter", "ana", nil, "", "task.cancelled task.settled"},
		{"a captain", "carl", nil, "", "task.cancelled task.settled"},
		{"another ordinary actor", "bo", nil, "", "gate.decided approval.requested"},
		{"while claimed", "ana", func(w *world, tk *projections.Task) { w.claim(tk, "m1") }, "", "task.cancelled task.settled"},
		{"after a report", "ana", func(w *world, tk *projections.Task) {
			w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 1, "")))
		}, "TASK_SETTLED", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			w.register("root", "bo", events.Human, 20)
			tk := w.taskOf(w.submit("ana", "go"))
			if c.before != nil {
				c.before(w, tk)
			}
			do := func() (commands.Result, error) {
				return w.CancelTask(w.ctx(), as(c.by), commands.CancelTask{TaskID: tk.ID, Reason: "no need"})
			}
			if c.code != "" {
				w.refused(c.code, do)
				return
			}
			if got := kindsOf(w.ok(do())); got != c.kinds {
				t.Errorf("got %s", got)
			}
		})
	}
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10)
	tk := w.taskOf(w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m1", "m2"))))
	w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 0, "")))
	w.refused("ALREADY_REPORTED", func() (commands.Result, error) {
		return w.CancelTask(w.ctx(), as("ana"), commands.CancelTask{TaskID: tk.ID})
	})
	w.rule("task.submit.m1", 50)
	waiting := w.taskOf(w.submit("ana", "go"))
	if got := kindsOf(w.ok(w.CancelTask(w.ctx(), as("ana"), commands.CancelTask{TaskID: waiting.ID}))); got != "task.cancelled approval.settled task.settled" {
		t.Errorf("got %s", got)
	}
}

func TestSuspensionEndsTasksAndLeases(t *testing.T) {
	w := newWorld(t)
	w.people()
	unclaimed := w.taskOf(w.submit("ana", "go"))
	yes := true
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "ana", Suspended: &yes}))
	if got := w.reload(unclaimed); got.Verdict != events.VerdictCancelled {
		t.Errorf("an unclaimed task of a suspended actor is %s %s", got.Status, got.Verdict)
	}
	claimed := w.taskOf(w.submit("carl", "go"))
	w.claim(claimed, "m1")
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "m1", Suspended: &yes}))
	if got := w.reload(claimed); got.Verdict != events.VerdictLost {
		t.Errorf("the task of a suspended machine is %s %s", got.Status, got.Verdict)
	}
	w.refused("INVALID", func() (commands.Result, error) { return w.SubmitTask(w.ctx(), as("carl"), task([]string{"go"}, "m1")) })
}

// A task has as many targets as the limit says, however long their names and however
// many rules are looked at: what does not fit in its submission is told beside it.
func TestAsManyTargetsAsTheLimit(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("task.submit.*", 5)
	c := commands.SubmitTask{TaskCommand: events.TaskCommand{Argv: []string{"true"}}}
	for i := range commands.MaxTargets {
		m := fmt.Sprintf("%s-%03d", strings.Repeat("m", 60), i)
		w.register("root", m, events.Machine, 1)
		c.Targets = append(c.Targets, m)
	}
	w.rule("task.submit."+c.Targets[1], 50)
	for _, row := range []struct {
		name    string
		targets []string
		decided int // gates that have an event of their own
	}{
		{"two", []string{c.Targets[0], c.Targets[2]}, 0},
		{"two, one of them stopped", c.Targets[:2], 1},
		{"all", append([]string{c.Targets[0]}, c.Targets[2:]...), commands.MaxTargets - 1},
		{"all, one of them stopped", c.Targets, commands.MaxTargets},
	} {
		c := c
		c.Targets = row.targets
		r := w.ok(w.SubmitTask(w.ctx(), as("ana"), c))
		decided := 0
		for _, rec := range r.Records {
			if rec.Header.Type == "gate.decided" {
				decided++
			}
		}
		if decided != row.decided {
			t.Errorf("%s: %d gates have an event of their own, want %d", row.name, decided, row.decided)
		}
		tk := w.taskOf(r)
		for i, m := range row.targets {
			if len(tk.Gates) <= i || tk.Gates[i].Machine != m || tk.Legs[i].Machine != m {
				t.Fatalf("%s: the gates are not those of the targets, in their order", row.name)
			}
			if i > 2 && i < len(row.targets)-1 {
				continue
			}
			g, err := w.Gate(w.ctx(), tk.Gates[i].GateID, 0)
			if err != nil || g.Task != tk.ID || g.Decided.Machine != m || g.Decided.Decision.Verdict != tk.Gates[i].Decision.Verdict {
				t.Fatalf("%s: the gate for %s is not found: %+v, %v", row.name, m, g.Decided, err)
			}
		}
		if tk.Approval != nil {
			if got := tk.Approval.Actions; len(got) != 1 || got[0] != "task.submit."+row.targets[1] {
				t.Errorf("%s: the approval is for %v", row.name, got)
			}
			w.ok(w.settle("carl", tk.Approval.ApprovalID, events.Granted))
			tk = w.reload(tk)
		}
		if tk.Status != projections.TaskOpen {
			t.Errorf("%s: the task is %s", row.name, tk.Status)
		}
	}
}

// Three machines say at length why they did not start: the verdict repeats of each what
// fits, and the last report is taken.
func TestLongReasonsOfMachines(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10)
	w.register("root", "m3", events.Machine, 10)
	tk := w.taskOf(w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m1", "m2", "m3"))))
	for _, m := range []string{"m1", "m2", "m3"} {
		e := events.Envelope{Outcome: events.NotStarted, StartedAt: w.Now, EndedAt: w.Now, Machine: m, Reason: "x" + strings.Repeat("\u00e9", 15000)}
		w.ok(w.report(tk, m, w.claim(tk, m), e))
	}
	got := w.reload(tk)
	// 1 byte and 499 letters of two bytes fit; the next one is not cut.
	one := ": x" + strings.Repeat("\u00e9", 499) + "..."
	if want := "m1 not started" + one + "; m2 not started" + one + "; m3 not started" + one; got.Verdict != events.VerdictFailed || got.Reason != want {
		t.Errorf("%s: %.40s... of %d bytes, want %d", got.Verdict, got.Reason, len(got.Reason), len(want))
	}
}

// What a suspended actor asked for is not begun again: neither when the lease had
// lapsed before, nor when it lapses after.
func TestSuspensionEndsTasksThatLapse(t *testing.T) {
	yes := true
	for _, row := range []struct {
		name    string
		targets []string
		before  bool // the suspension, before the lapse
		status  string
		kinds   []events.Kind
	}{
		{"suspended, then lapsed", []string{"m1"}, true, "", []events.Kind{"lease.lapsed", "task.cancelled", "task.settled"}},
		{"lapsed, then suspended", []string{"m1"}, false, "", []events.Kind{"lease.lapsed", "task.cancelled", "task.settled"}},
		{"another leg was never claimed", []string{"m1", "m2"}, true, "", []events.Kind{"lease.lapsed", "task.cancelled", "task.settled"}},
		{"another leg is held", []string{"m1", "m3"}, true, projections.TaskOpen, []events.Kind{"lease.lapsed"}},
		{"another leg was reported", []string{"m1", "m4"}, true, projections.TaskOpen, []events.Kind{"lease.lapsed"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			for _, m := range []string{"m2", "m3", "m4"} {
				w.register("root", m, events.Machine, 10)
			}
			c := task([]string{"go"}, row.targets...)
			c.Attempts = 2
			tk := w.taskOf(w.ok(w.SubmitTask(w.ctx(), as("ana"), c)))
			w.claim(tk, "m1")
			suspend := func() {
				w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "ana", Suspended: &yes}))
			}
			wait := w.State().Settings().Lease()
			switch row.targets[len(row.targets)-1] {
			case "m3":
				wait /= 2
				w.Now = w.Now.Add(wait)
				w.claim(tk, "m3")
			case "m4":
				w.ok(w.report(tk, "m4", w.claim(tk, "m4"), w.envelope("m4", 0, "")))
			}
			had := len(w.recordKinds(tk.Stream))
			if row.before {
				suspend()
				if got := w.reload(tk); got.Status != projections.TaskOpen {
					t.Fatalf("a task that a machine holds is %s", got.Status)
				}
			}
			w.Now = w.Now.Add(wait)
			if err := w.Sweep(w.ctx()); err != nil {
				t.Fatal(err)
			}
			if !row.before {
				suspend()
			}
			sameKinds(t, w.recordKinds(tk.Stream)[had:], row.kinds...)
			got := w.reload(tk)
			if row.status == "" && got.Verdict != events.VerdictCancelled || row.status != "" && got.Status != row.status {
				t.Errorf("the task is %s %s", got.Status, got.Verdict)
			}
		})
	}
}

// A heartbeat that is answered while the relay records other lapses holds its lease.
func TestHeartbeatDuringASweep(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10)
	log := &pausedLog{Log: w.Log()}
	w.racingOn(log)
	one := w.taskOf(w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m1"))))
	two := w.taskOf(w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m2"))))
	attempts := map[string]int{"m1": w.claim(one, "m1"), "m2": w.claim(two, "m2")}
	of := map[string]*projections.Task{"m1": one, "m2": two}
	w.Now = w.Now.Add(w.State().Settings().Lease())
	heard := ""
	log.before = func(a events.Append) {
		for m, tk := range of {
			if heard == "" && a.Drafts[0].Intent.Stream == tk.Stream {
				heard = map[string]string{"m1": "m2", "m2": "m1"}[m]
				if _, err := w.Heartbeat(w.ctx(), as(heard), of[heard].ID, attempts[heard]); err != nil {
					t.Error(err)
				}
			}
		}
	}
	if err := w.Sweep(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := w.reload(of[heard]).Legs[0].Status; got != projections.LegClaimed {
		t.Errorf("the leg of %s, which was told that its lease holds, is %s", heard, got)
	}
	w.Now = w.Now.Add(w.State().Settings().Lease())
	if err := w.Sweep(w.ctx()); err != nil {
		t.Fatal(err)
	}
	if got := w.reload(of[heard]).Verdict; got != events.VerdictLost {
		t.Errorf("not heard of any more, the task is %q", got)
	}
}

// pausedLog calls before ahead of each append.
type pausedLog struct {
	events.Log
	before func(events.Append)
}

func (l *pausedLog) Append(ctx context.Context, a events.Append) (events.Appended, error) {
	if l.before != nil {
		l.before(a)
	}
	return l.Log.Append(ctx, a)
}

// Each row is one of the domain's table, the first that fits.
func TestVerdict(t *testing.T) {
	exit := func(code int, stdout string) *events.Envelope {
		return &events.Envelope{Outcome: events.Exited, ExitCode: &code, Machine: "m", Stdout: events.Output{SHA256: events.SumHash(stdout)}}
	}
	ended := func(o events.Outcome) *events.Envelope { return &events.Envelope{Outcome: o, Machine: "m"} }
	var lost *events.Envelope
	list := func(e ...*events.Envelope) []*events.Envelope { return e }
	for _, c := range []struct {
		name   string
		mode   events.TaskMode
		quorum int
		legs   []*events.Envelope
		want   events.TaskVerdict
	}{
		{"refused by the agent", events.Single, 0, list(ended(events.RefusedByAgent)), events.VerdictRefused},
		{"refused by every agent", events.Replicate, 0, list(ended(events.RefusedByAgent), ended(events.RefusedByAgent)), events.VerdictRefused},
		{"refused by one", events.Replicate, 0, list(ended(events.RefusedByAgent), exit(0, "")), events.VerdictPartial},
		{"no report", events.Single, 0, list(lost), events.VerdictLost},
		{"no report from any", events.Split, 0, list(lost, lost), events.VerdictLost},
		{"exit 0", events.Single, 0, list(exit(0, "a")), events.VerdictSucceeded},
		{"replicas agree", events.Replicate, 0, list(exit(0, "a"), exit(0, "a")), events.VerdictSucceeded},
		{"parts need not agree", events.Split, 0, list(exit(0, "a"), exit(0, "b")), events.VerdictSucceeded},
		{"quorum reached", events.Replicate, 2, list(exit(0, "a"), exit(0, "a"), exit(1, "")), events.VerdictQuorum},
		{"quorum reached with a lost one", events.Replicate, 2, list(exit(0, "a"), exit(0, "a"), lost), events.VerdictQuorum},
		{"quorum missed", events.Replicate, 3, list(exit(0, "a"), exit(0, "a"), exit(1, "")), events.VerdictDiverged},
		{"different exit codes", events.Replicate, 0, list(exit(0, "a"), exit(1, "a")), events.VerdictDiverged},
		{"different outputs", events.Replicate, 0, list(exit(0, "a"), exit(0, "b")), events.VerdictDiverged},
		{"one lost", events.Replicate, 0, list(exit(0, "a"), lost), events.VerdictPartial},
		{"parts differ", events.Split, 0, list(exit(0, "a"), exit(1, "b")), events.VerdictPartial},
		{"timed out", events.Single, 0, list(ended(events.TimedOut)), events.VerdictTimedOut},
		{"one timed out, one failed", events.Split, 0, list(ended(events.TimedOut), exit(1, "")), events.VerdictTimedOut},
		{"one timed out, one passed", events.Split, 0, list(ended(events.TimedOut), exit(0, "")), events.VerdictPartial},
		{"exit 1", events.Single, 0, list(exit(1, "")), events.VerdictFailed},
		{"replicas fail alike", events.Replicate, 0, list(exit(1, ""), exit(1, "")), events.VerdictFailed},
		{"not started", events.Single, 0, list(ended(events.NotStarted)), events.VerdictFailed},
		{"stopped by its agent", events.Single, 0, list(ended(events.CancelledAttempt)), events.VerdictFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			var legs []projections.Leg
			for _, e := range c.legs {
				l := projections.Leg{Status: projections.LegLost, Attempts: []projections.Attempt{{Number: 1}}}
				if e != nil {
					l.Status, l.Attempts[0].Envelope = projections.LegReported, e
				}
				legs = append(legs, l)
			}
			got, why := commands.Verdict(events.TaskCommand{Mode: c.mode, Quorum: c.quorum}, legs)
			if got != c.want || why == "" {
				t.Errorf("got %s (%s), want %s", got, why, c.want)
			}
		})
	}
}

// Whoever knows a gate finds the task that it belongs to, also long after the task
// was settled, and what became of it.
func TestGatesOfSettledTasks(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.register("root", "m2", events.Machine, 10)
	w.register("root", "m3", events.Machine, 10)
	w.rule("task.submit.m2", 50)
	r := w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m1", "m2", "m3")))
	tk := w.taskOf(r)
	w.ok(w.CancelTask(w.ctx(), as("ana"), commands.CancelTask{TaskID: tk.ID}))
	for i, m := range []string{"m1", "m2", "m3"} {
		g, err := w.Gate(w.ctx(), tk.Gates[i].GateID, 0)
		if err != nil || g.Task != tk.ID || g.Decided.Machine != m || g.Decided.GateID != tk.Gates[i].GateID {
			t.Errorf("the gate of %s is %+v: %v", m, g, err)
		}
		if _, err := w.Gate(w.ctx(), tk.Gates[i].GateID, tk.Position-1); outcome(err) != "GATE_NOT_FOUND" {
			t.Errorf("before it was asked, the gate of %s is answered with %v", m, err)
		}
		if _, err := w.SpendGate(w.ctx(), as("ana"), commands.SpendGate{GateID: tk.Gates[i].GateID}); outcome(err) != "APPROVAL_NOT_GRANTED" {
			t.Errorf("the gate of %s is spent with %v", m, err)
		}
	}
	// What an agent names like the gate does not stand before it.
	w.ok(w.AppendExt(w.ctx(), as("ana"), []commands.ExtEvent{{ID: tk.Gates[0].GateID, Type: "ext.note", Stream: "ext-a", Body: events.Ext{Source: "/t"}}}))
	if g, err := w.Gate(w.ctx(), tk.Gates[0].GateID, 0); err != nil || g.Task != tk.ID {
		t.Errorf("beside an event of its id, the gate is %+v: %v", g, err)
	}
	none := "00000000-0000-7000-8007" + tk.Gates[0].GateID[23:]
	if _, err := w.Gate(w.ctx(), none, 0); outcome(err) != "GATE_NOT_FOUND" {
		t.Errorf("gate %s is answered with %v", none, err)
	}
}

// What is settled is not held in memory: the state is as large as what is open.
func TestStateIsBoundedByOpenWork(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("task.submit.m2", 50)
	w.register("root", "m2", events.Machine, 10)
	size := func() (items, bytes int) {
		for _, v := range w.State().Snapshot().Views {
			items += len(v.Items)
			for _, text := range v.Items {
				bytes += len(text)
			}
		}
		return items, bytes
	}
	round := func() {
		tk := w.taskOf(w.submit("ana", "ls"))
		w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 0, "done")))
		r := w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"ls"}, "m2")))
		w.ok(w.settle("carl", first[events.ApprovalRequested](w, r).ApprovalID, events.Refused))
		w.Now = w.Now.Add(2 * time.Minute)
	}
	round()
	items, bytes := size()
	for range 20 {
		round()
	}
	if n, b := size(); n != items || b > bytes+100 { // numbers grow
		t.Errorf("after 21 rounds of settled work the state has %d items of %d bytes; after one it had %d of %d", n, b, items, bytes)
	}
}
