package commands_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/testing/smallfleet"
)

// world is a fleet of which the whole log is audited when its test ends: whatever a
// test did, every decision of it must come out the same again.
type world struct {
	*smallfleet.Fleet
	t   testing.TB
	ids uint64 // of what a test makes itself
}

func newWorld(t testing.TB) *world {
	w := &world{Fleet: smallfleet.New(t), t: t}
	log := w.Log()
	t.Cleanup(func() {
		report, err := audit.Run(context.Background(), events.ReadStored(context.Background(), log, 0), audit.Options{Live: w.Ledger})
		if err != nil {
			t.Errorf("audit: %v", err)
		}
		for _, f := range report.Findings {
			t.Errorf("audit: position %d: %s: %s: expected %v, actual %v", f.Position, f.Kind, f.Detail, f.Expected, f.Actual)
		}
		if report.ProjectionsCompared == 0 {
			t.Error("audit: no projection was compared")
		}
	})
	return w
}

func as(actor string) commands.Caller { return smallfleet.As(actor) }

func (c *world) ctx() context.Context { return context.Background() }

// ok fails the test unless the command was carried out.
func (w *world) ok(r commands.Result, err error) commands.Result {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("refused: %v", err)
	}
	return r
}

// refused fails the test unless the command was refused with this code. Unless it
// is a recorded denial, nothing may have been recorded.
func (w *world) refused(code string, do func() (commands.Result, error)) *commands.Refusal {
	w.t.Helper()
	before := w.Log().Durable()
	_, err := do()
	var r *commands.Refusal
	if !errors.As(err, &r) || r.Code != code {
		w.t.Fatalf("want refusal %s, got %v (%+v)", code, err, r)
	}
	if after := w.Log().Durable(); after != before && code != "DENIED" {
		w.t.Fatalf("refused with %s, yet %d events were recorded", code, after-before)
	}
	return r
}

func level(n events.Level) *events.Level { return smallfleet.Level(n) }

func (w *world) register(by, id string, kind events.ActorKind, l events.Level, scopes ...string) {
	w.t.Helper()
	w.ok(w.RegisterActor(w.ctx(), as(by), commands.RegisterActor{ID: id, Kind: kind, AuthorityLevel: &l, Scopes: scopes}))
}

func (w *world) derive(parent, id string, asked *events.Level) {
	w.t.Helper()
	w.ok(w.RegisterActor(w.ctx(), as(parent), commands.RegisterActor{ID: id, Kind: events.Agent, AuthorityLevel: asked, Parent: parent}))
}

func (w *world) rule(action string, min events.Level, more ...func(*events.Rule)) string {
	w.t.Helper()
	r := events.Rule{Action: action, MinLevel: &min}
	for _, f := range more {
		f(&r)
	}
	res := w.ok(w.WriteRule(w.ctx(), as("root"), commands.WriteRule{Rule: r}))
	return first[events.RuleWritten](w, res).RuleID
}

func scope(s string) func(*events.Rule) { return func(r *events.Rule) { r.Scope = &s } }

// first returns the first event of type E that a result recorded.
func first[E events.Event](w *world, r commands.Result) E {
	w.t.Helper()
	var zero E
	rec, ok := r.Has(zero.Kind())
	if !ok {
		w.t.Fatalf("no %s in %s", zero.Kind(), kindsOf(r))
	}
	e, err := events.DecodeAs[E](rec)
	if err != nil {
		w.t.Fatal(err)
	}
	return e
}

func kindsOf(r commands.Result) string {
	var list []string
	for _, rec := range r.Records {
		list = append(list, string(rec.Header.Type))
	}
	return strings.Join(list, " ")
}

// people registers the cast of most tests: ana ordinary, carl captain, olga
// org_admin, machine m1.
func (w *world) people() {
	w.t.Helper()
	w.register("root", "ana", events.Human, 20)
	w.register("root", "carl", events.Human, 60)
	w.register("root", "olga", events.Human, 80)
	w.register("root", "m1", events.Machine, 10)
}

func (w *world) submit(by string, argv ...string) commands.Result {
	w.t.Helper()
	return w.ok(w.SubmitTask(w.ctx(), as(by), task(argv, "m1")))
}

func task(argv []string, targets ...string) commands.SubmitTask {
	return commands.SubmitTask{TaskCommand: events.TaskCommand{Argv: argv, Targets: targets}}
}

func (w *world) taskOf(r commands.Result) *projections.Task {
	w.t.Helper()
	t, err := w.Task(w.ctx(), first[events.TaskSubmitted](w, r).TaskID, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return t
}

func (w *world) reload(t *projections.Task) *projections.Task {
	w.t.Helper()
	n, err := w.Task(w.ctx(), t.ID, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) claim(t *projections.Task, machine string) int {
	w.t.Helper()
	r := w.ok(w.ClaimTask(w.ctx(), as(machine), commands.ClaimTask{TaskID: t.ID, Machine: machine}))
	return first[events.TaskClaimed](w, r).Attempt
}

func (w *world) envelope(machine string, exit int, stdout string) events.Envelope {
	return events.Envelope{
		Outcome: events.Exited, ExitCode: &exit, StartedAt: w.Now, EndedAt: w.Now.Add(time.Second), ElapsedMS: 1000,
		Stdout: events.Output{Bytes: int64(len(stdout)), SHA256: events.SumHash(stdout), Tail: stdout}, Machine: machine,
	}
}

func (w *world) report(t *projections.Task, machine string, attempt int, e events.Envelope) (commands.Result, error) {
	return w.ReportAttempt(w.ctx(), as(machine), commands.ReportAttempt{TaskID: t.ID, Attempt: attempt, Envelope: e})
}

func (w *world) settle(by, approval string, outcome events.ApprovalOutcome) (commands.Result, error) {
	return w.SettleApproval(w.ctx(), as(by), commands.SettleApproval{ApprovalID: approval, Outcome: outcome, Reason: "because"})
}

func (w *world) recordKinds(s events.Stream) []events.Kind {
	w.t.Helper()
	var out []events.Kind
	for r, err := range w.Log().ReadStream(w.ctx(), s, 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, r.Header.Type)
	}
	return out
}

func sameKinds(t *testing.T, got []events.Kind, want ...events.Kind) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got events %v, want %v", got, want)
	}
}

// ended is how an approval ended, empty if it has not.
func (w *world) ended(approval string) events.ApprovalOutcome {
	w.t.Helper()
	s, err := w.Approval(w.ctx(), approval, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return s.Approval.Outcome
}
