package commands_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// racing gives the world a source of ids that many may draw from at once.
func (w *world) racing() { w.racingOn(w.Log()) }

func (w *world) racingOn(log events.Log) {
	var n atomic.Uint64
	w.Ledger = commands.New(log, w.State(), commands.Random{
		ID:    func() string { return fmt.Sprintf("00000000-0000-7000-a000-%012d", n.Add(1)) },
		Bytes: func(b []byte) { clear(b) },
	})
}

// outcome is what one of many got: the refusal's code, or "" if it was carried out.
func outcome(err error) string {
	var r *commands.Refusal
	switch {
	case err == nil:
		return ""
	case errors.As(err, &r):
		return r.Code
	}
	return err.Error()
}

// all runs n things at once and counts their outcomes.
func all(n int, do func(i int) error) map[string]int {
	var mu sync.Mutex
	got := map[string]int{}
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			o := outcome(do(i))
			mu.Lock()
			got[o]++
			mu.Unlock()
		})
	}
	close(start)
	wg.Wait()
	return got
}

// Fifty settle one approval at once: one event, and forty-nine are told how it
// ended.
func TestFiftySettleOneApproval(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	_, approval := w.asked(`{}`)
	w.racing()
	before := w.Log().Durable()
	got := all(50, func(i int) error {
		o := events.Granted
		if i%2 == 0 {
			o = events.Refused
		}
		_, err := w.settle([]string{"carl", "olga"}[i%2], approval, o)
		return err
	})
	if got[""] != 1 || got["APPROVAL_ENDED"] != 49 {
		t.Errorf("got %v", got)
	}
	if n := w.Log().Durable() - before; n != 1 {
		t.Errorf("%d events were recorded", n)
	}
}

// Grants race each other and the sweeps of the relay; a grant in time stands,
// and no later sweep ends it again.
func TestGrantsRaceSweeps(t *testing.T) {
	for range 20 {
		w := newWorld(t)
		w.people()
		w.rule("deploy.prod", 50)
		_, approval := w.asked(`{}`)
		w.racing()
		got := all(16, func(i int) error {
			if i%4 == 3 {
				return w.Sweep(context.Background())
			}
			_, err := w.settle("carl", approval, events.Granted)
			return err
		})
		if got["APPROVAL_ENDED"] != 11 {
			t.Fatalf("got %v", got)
		}
		w.Now = w.Now.Add(w.State().Settings().ApprovalExpires)
		if err := w.Sweep(w.ctx()); err != nil {
			t.Fatal(err)
		}
		if got := w.ended(approval); got != events.Granted {
			t.Fatalf("an approval that was granted ended as %q", got)
		}
	}
}

// However many spend one approval, one does.
func TestFiftySpendOneApproval(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	gate, approval := w.asked(`{"n":1}`)
	w.ok(w.settle("carl", approval, events.Granted))
	w.racing()
	got := all(50, func(int) error {
		_, err := w.SpendGate(w.ctx(), as("ana"), commands.SpendGate{GateID: gate, Command: jsontext.Value(`{"n":1}`)})
		return err
	})
	if got[""] != 1 || got["APPROVAL_SPENT"] != 49 {
		t.Errorf("got %v", got)
	}
}

// What ends once ends once, and what changes nothing records nothing, however many
// ask for it at the same time.
func TestFiftyOfTheSame(t *testing.T) {
	w := newWorld(t)
	w.people()
	token := first[events.TokenIssued](w, w.ok(w.IssueToken(w.ctx(), as("ana"), commands.IssueToken{Actor: "ana"})))
	w.racingOn(diskLog{w.Log()})
	seconds := 7
	for _, row := range []struct {
		name string
		do   func() (commands.Result, error)
		code string // of all but the first; "" if they find nothing to change
	}{
		{"revoke a token", func() (commands.Result, error) {
			return w.RevokeToken(w.ctx(), as("ana"), commands.RevokeToken{Actor: "ana", TokenID: token.TokenID})
		}, "TOKEN_NOT_FOUND"},
		{"change settings", func() (commands.Result, error) {
			return w.ChangeSettings(w.ctx(), as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{HeartbeatSeconds: &seconds}})
		}, ""},
	} {
		before := w.Log().Durable()
		got := all(50, func(int) error { _, err := row.do(); return err })
		if row.code != "" && (got[""] != 1 || got[row.code] != 49) || row.code == "" && got[""] != 50 {
			t.Errorf("%s: got %v", row.name, got)
		}
		if n := w.Log().Durable() - before; n != 1 {
			t.Errorf("%s: %d events were recorded", row.name, n)
		}
	}
}

// Who is suspended while what asks no gate is on its way is refused: nothing of it is
// recorded behind the suspension.
func TestSuspendedOnTheWay(t *testing.T) {
	yes := true
	for _, row := range []struct {
		name, who string
		do        func(w *world, tk *projections.Task, approval string) (commands.Result, error)
	}{
		{"claim", "m1", func(w *world, tk *projections.Task, _ string) (commands.Result, error) {
			return w.ClaimTask(w.ctx(), as("m1"), commands.ClaimTask{TaskID: tk.ID, Machine: "m1"})
		}},
		{"report", "m2", func(w *world, tk *projections.Task, _ string) (commands.Result, error) {
			return w.report(tk, "m2", 1, w.envelope("m2", 0, ""))
		}},
		{"cancel one's own task", "ana", func(w *world, tk *projections.Task, _ string) (commands.Result, error) {
			return w.CancelTask(w.ctx(), as("ana"), commands.CancelTask{TaskID: tk.ID})
		}},
		{"a token of one's own", "ana", func(w *world, _ *projections.Task, _ string) (commands.Result, error) {
			return w.IssueToken(w.ctx(), as("ana"), commands.IssueToken{Actor: "ana"})
		}},
		{"a device of one's own", "m1", func(w *world, _ *projections.Task, _ string) (commands.Result, error) {
			return w.PairMachine(w.ctx(), as("m1"), commands.PairMachine{ID: "m1"})
		}},
		{"withdraw", "carl", func(w *world, _ *projections.Task, approval string) (commands.Result, error) {
			return w.WithdrawApproval(w.ctx(), as("carl"), commands.WithdrawApproval{ApprovalID: approval})
		}},
	} {
		t.Run(row.name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			w.register("root", "m2", events.Machine, 10)
			w.rule("deploy.prod", 50)
			tk := w.taskOf(w.ok(w.SubmitTask(w.ctx(), as("ana"), task([]string{"go"}, "m1", "m2"))))
			w.claim(tk, "m2")
			_, approval := w.asked(`{}`)
			log := &pausedLog{Log: w.Log()}
			w.racingOn(log)
			suspended := events.Position(0)
			log.before = func(events.Append) {
				log.before = nil
				// By itself: whatever else a suspension brings comes after.
				if _, err := w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: row.who, Suspended: &yes}); err != nil {
					t.Error(err)
				}
				suspended = w.Log().Durable()
			}
			if _, err := row.do(w, tk, approval); outcome(err) != "ACTOR_NOT_ACTIVE" {
				t.Errorf("got %v", err)
			}
			if now := w.Log().Durable(); now != suspended {
				t.Errorf("%d events were recorded behind the suspension", now-suspended)
			}
		})
	}
}

// Rules change while spends are under way: whatever the order, what was recorded
// audits clean, which newWorld sees to, and a spend under changed rules is refused.
func TestRuleChangeRacesASpend(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy.prod", 50)
	type granted struct{ gate, command string }
	var list []granted
	for i := range 30 {
		command := fmt.Sprintf(`{"n":%d}`, i)
		gate, approval := w.asked(command)
		w.ok(w.settle("carl", approval, events.Granted))
		list = append(list, granted{gate, command})
	}
	w.racing()
	got := all(31, func(i int) error {
		if i == 30 {
			_, err := w.WriteRule(w.ctx(), as("root"), commands.WriteRule{Rule: events.Rule{Action: "deploy.*", MinLevel: level(75)}})
			return err
		}
		_, err := w.SpendGate(w.ctx(), as("ana"), commands.SpendGate{GateID: list[i].gate, Command: jsontext.Value(list[i].command)})
		return err
	})
	if got[""]+got["RULES_CHANGED"] != 31 {
		t.Errorf("got %v", got)
	}
	_, approval := w.asked(`{"late":true}`)
	w.refused("APPROVER_NOT_ENTITLED", func() (commands.Result, error) { return w.settle("carl", approval, events.Granted) })
}

// Decisions are made under load while rules come and go: each is recorded at
// the authority it was decided at, which the audit of newWorld checks.
func TestDecisionsUnderChangingRules(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.racing()
	stop := make(chan struct{})
	var changes sync.WaitGroup
	changes.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			r, err := w.WriteRule(w.ctx(), as("root"), commands.WriteRule{Rule: events.Rule{Action: "ext.load", MinLevel: level(events.Level(i % 40))}})
			if err != nil {
				t.Error(err)
				return
			}
			rec, _ := r.Has("rule.written")
			e, err := events.DecodeAs[events.RuleWritten](rec)
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: e.RuleID}); err != nil {
				t.Error(err)
				return
			}
			time.Sleep(100 * time.Microsecond) // a rule lives a moment, as rules do
		}
	})
	got := all(16, func(i int) error {
		for n := range 20 {
			_, err := w.AppendExt(w.ctx(), as("carl"), []commands.ExtEvent{ext(fmt.Sprintf("l%d-%d", i, n), "ext.load", "ext-load", `{}`)})
			if err != nil {
				return err
			}
		}
		return nil
	})
	close(stop)
	changes.Wait()
	if got[""] != 16 {
		t.Errorf("got %v", got)
	}
}

// diskLog takes as long for an append as a disk does, so that all who decide
// meanwhile do so at the same revision.
type diskLog struct{ events.Log }

func (l diskLog) Append(ctx context.Context, a events.Append) (events.Appended, error) {
	time.Sleep(time.Millisecond)
	return l.Log.Append(ctx, a)
}

// A crowd that writes one stream is served whole, though only one of all that
// decided at a revision is recorded: many more at once than anybody tries.
func TestCrowdsOnOneStream(t *testing.T) {
	w := newWorld(t)
	w.racingOn(diskLog{w.Log()})
	const crowd = 200
	level := events.Level(1)
	name := func(i int) string { return fmt.Sprintf("m%d", i) }
	if got := all(crowd, func(i int) error {
		_, err := w.RegisterActor(w.ctx(), as("root"), commands.RegisterActor{ID: name(i), Kind: events.Machine, AuthorityLevel: &level})
		return err
	}); got[""] != crowd {
		t.Fatalf("%d registrations at once: %v", crowd, got)
	}
	task := commands.SubmitTask{TaskCommand: events.TaskCommand{Argv: []string{"true"}, Mode: events.Replicate, Attempts: 1}}
	const legs = 120
	for i := range legs {
		task.Targets = append(task.Targets, name(i))
	}
	id := w.ok(w.SubmitTask(w.ctx(), as("root"), task)).Records[0].Header.Stream[len("task-"):]
	if got := all(legs, func(i int) error {
		_, err := w.ClaimTask(w.ctx(), as(name(i)), commands.ClaimTask{TaskID: string(id), Machine: name(i)})
		return err
	}); got[""] != legs {
		t.Errorf("%d claims of one task at once: %v", legs, got)
	}
}

// Of many who conclude at once, on the same thing and in place of the same
// conclusion, every one is kept.
func TestConcurrentConclusions(t *testing.T) {
	w := newWorld(t)
	w.people()
	tk := w.taskOf(w.submit("ana", "make"))
	w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 1, "no")))
	about := &events.About{TaskID: tk.ID}
	first := w.ok(w.Conclude(w.ctx(), as("ana"), commands.Conclude{About: about, Text: "flaky"})).Records[0].Header.ID
	w.racing()
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			c := commands.Conclude{About: about, Text: fmt.Sprint("it is ", i), Supersedes: first}
			if i%2 == 0 {
				c.About = nil
			}
			if _, err := w.Conclude(w.ctx(), as([]string{"ana", "carl", "olga"}[i%3]), c); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	texts := map[string]bool{}
	for _, s := range []events.Stream{tk.Stream, events.CollectiveStream} {
		for r, err := range w.Log().ReadStream(w.ctx(), s, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Type != (events.ConclusionRecorded{}).Kind() {
				continue
			}
			e, err := events.DecodeAs[events.ConclusionRecorded](r)
			if err != nil {
				t.Fatal(err)
			}
			if e.About != nil && (e.Subject == nil || *e.Subject.ExitCode != 1 || e.Subject.Argv[0] != "make") {
				t.Errorf("%q cannot be read alone: %+v", e.Text, e.Subject)
			}
			texts[e.Text] = true
		}
	}
	if len(texts) != 41 {
		t.Errorf("%d of 41 conclusions are kept", len(texts))
	}
}

// Whoever reports while the fleet is told to keep hashes only: no tail is recorded
// after that.
func TestNoTailBehindHashOnly(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.racing()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				r := events.MemoryRecord{Envelope: w.envelope("m1", 0, fmt.Sprint("tail ", i)), Argv: []string{"ls"}}
				if _, err := w.RecordMemory(w.ctx(), as("m1"), commands.RecordMemory{Record: r}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range 10 {
		output := []string{projections.HashOnly, projections.Tails}[i%2]
		if _, err := w.ChangeSettings(w.ctx(), as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{Output: &output}}); err != nil {
			t.Error(err)
		}
	}
	wg.Wait() // the audit looks at every record
}
