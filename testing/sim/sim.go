// Package sim drives a fleet by chance from one seed: people, agents and
// machines that register, ask, settle, run, fail, sleep and contradict each
// other. Whatever they do, the log must audit clean and every projection must
// come out the same however it is folded. A failure prints its seed.
package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/projections"
)

// Fleet is a ledger under simulation.
type Fleet struct {
	Ledger *commands.Ledger
	State  *projections.State
	Log    *memlog.Log

	rng *rand.Rand
	now time.Time

	actors, machines []string
	gates            []events.GateDecided
	commandsOf       map[string]jsontext.Value
	blocks           []events.Hash
	acknowledged     map[string]events.Position // event id to position
	runs             []finished
	consolidations   []string // event ids
}

// finished is a run that was recorded.
type finished struct{ record, task string }

// New founds a fleet in memory. Its clock stands still unless the simulation moves it.
func New(seed uint64) (*Fleet, error) {
	f := &Fleet{
		State: projections.NewState(), rng: rand.New(rand.NewPCG(seed, 0)), now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC),
		actors: []string{"root"}, commandsOf: map[string]jsontext.Value{}, acknowledged: map[string]events.Position{},
	}
	var err error
	if f.Log, err = memlog.New(memlog.Options{Fleet: "default", Fold: f.State, Now: func() time.Time { return f.now }}); err != nil {
		return nil, err
	}
	n := uint64(0)
	f.Ledger = commands.New(f.Log, f.State, commands.Random{
		ID:    func() string { n++; return fmt.Sprintf("%08x-0000-7000-8000-%012x", uint32(seed), n) },
		Bytes: func(b []byte) { n++; clear(b); binary.BigEndian.PutUint64(b, n) },
	})
	_, err = f.Ledger.Found(context.Background(), "default")
	return f, err
}

func pick[T any](f *Fleet, list []T) T { return list[f.rng.IntN(len(list))] }

// levels crowd at the seams between bands.
var levels = []events.Level{0, 1, 20, 49, 50, 51, 69, 70, 71, 89, 90, 91, 99, 100}

var scopes = []string{"team-a", "team-b"}

// Step does one thing. Refusals are part of life; any other error is returned.
func (f *Fleet) Step(ctx context.Context) error {
	f.now = f.now.Add(time.Duration(f.rng.IntN(3000)) * time.Millisecond)
	caller := commands.Caller{Actor: pick(f, f.actors)}
	var r commands.Result
	var err error
	switch n := f.rng.IntN(100); {
	case n < 8:
		r, err = f.register(ctx, caller)
	case n < 13:
		r, err = f.Ledger.ChangeActor(ctx, caller, f.change())
	case n < 20:
		r, err = f.Ledger.WriteRule(ctx, caller, commands.WriteRule{Rule: f.rule()})
	case n < 23:
		rules := f.State.Authority().Rules
		r, err = f.Ledger.RetireRule(ctx, caller, commands.RetireRule{RuleID: pick(f, rules).ID})
	case n < 26:
		r, err = f.claim(ctx, caller)
	case n < 35:
		r, err = f.ask(ctx, caller)
	case n < 50:
		r, err = f.settle(ctx, caller)
	case n < 56 && len(f.gates) > 0:
		g := pick(f, f.gates)
		r, err = f.Ledger.SpendGate(ctx, commands.Caller{Actor: g.Decision.Actor}, commands.SpendGate{GateID: g.GateID, Command: f.commandsOf[g.GateID]})
	case n < 70 && len(f.machines) > 0:
		r, err = f.submit(ctx, caller)
	case n < 84:
		r, err = f.work(ctx)
	case n < 86:
		r, err = f.conclude(ctx, caller)
	case n < 88:
		r, err = f.consolidate(ctx, caller)
	case n < 91:
		r, err = f.erase(ctx, caller)
	case n < 92:
		id := fmt.Sprintf("ext-%d", f.rng.IntN(200)) // sometimes one that is taken
		r, err = f.Ledger.AppendExt(ctx, caller, []commands.ExtEvent{{ID: id, Type: "ext.note", Stream: "ext-sim",
			Body: events.Ext{Source: "/sim", Data: jsontext.Value(fmt.Sprint(f.rng.IntN(3)))}}})
	case n < 94:
		f.now = f.now.Add(-time.Duration(f.rng.IntN(3600)) * time.Second) // a clock that is set back
	case n < 95:
		f.now = f.now.Add(f.State.Settings().ApprovalExpires / 3)
	case n < 96:
		r, err = f.section(ctx, caller)
	case n < 98 && len(f.machines) > 0:
		r, err = f.remember(ctx)
	case n < 99:
		err = f.Ledger.RootHeads(ctx)
	default:
		err = f.Ledger.Sweep(ctx)
	}
	for _, rec := range r.Records {
		if _, again := f.acknowledged[rec.Header.ID]; !again && rec.Header.Type == (events.TaskReported{}).Kind() {
			f.runs = append(f.runs, finished{rec.Header.ID, strings.TrimPrefix(string(rec.Header.Stream), "task-")})
		}
		if rec.Header.Type == (events.MemoryConsolidated{}).Kind() {
			f.consolidations = append(f.consolidations, rec.Header.ID)
		}
		f.acknowledged[rec.Header.ID] = rec.Header.Position
	}
	var refusal *commands.Refusal
	if errors.As(err, &refusal) {
		return nil
	}
	return err
}

func (f *Fleet) register(ctx context.Context, by commands.Caller) (commands.Result, error) {
	level := pick(f, levels)
	c := commands.RegisterActor{ID: fmt.Sprintf("a%d", len(f.actors)+len(f.machines)), Kind: events.Human, AuthorityLevel: &level}
	switch f.rng.IntN(4) {
	case 0:
		c.Kind = events.Machine
	case 1:
		c.Kind, c.Parent = events.Agent, by.Actor
		if f.rng.IntN(2) == 0 {
			top := pick(f, levels)
			c.Cap = &top
		}
	}
	if f.rng.IntN(3) == 0 {
		c.Scopes = []string{pick(f, scopes)}
	}
	r, err := f.Ledger.RegisterActor(ctx, by, c)
	if _, ok := r.Has("actor.registered"); ok {
		if c.Kind == events.Machine {
			f.machines = append(f.machines, c.ID)
		} else {
			f.actors = append(f.actors, c.ID)
		}
	}
	return r, err
}

func (f *Fleet) change() commands.ChangeActor {
	c := commands.ChangeActor{ID: pick(f, append(f.machines, f.actors...))}
	level, suspended := pick(f, levels), f.rng.IntN(3) > 0
	switch f.rng.IntN(4) {
	case 0:
		c.AuthorityLevel = &level
	case 1:
		c.AddScopes = []string{pick(f, scopes)}
	case 2:
		c.RemoveScopes = []string{pick(f, scopes)}
	case 3:
		c.Suspended = &suspended
	}
	return c
}

func (f *Fleet) rule() events.Rule {
	floor := pick(f, levels)
	r := events.Rule{Action: pick(f, []string{"deploy.prod", "deploy.*", "task.submit.*", "ext.*", "actor.*"}), MinLevel: &floor}
	if f.rng.IntN(3) == 0 {
		s, e := pick(f, scopes), pick(f, levels)
		r.Scope, r.MatchingExemptLevel = &s, &e
	}
	return r
}

func (f *Fleet) ask(ctx context.Context, by commands.Caller) (commands.Result, error) {
	c := commands.AskGate{Action: pick(f, []string{"deploy.prod", "deploy.test", "no.rule"}), RequestApproval: true,
		Command: jsontext.Value(fmt.Sprintf(`{"n":%d}`, f.rng.IntN(5)))}
	r, err := f.Ledger.AskGate(ctx, by, c)
	if rec, ok := r.Has("gate.decided"); ok {
		if g, err := events.DecodeAs[events.GateDecided](rec); err == nil {
			f.gates = append(f.gates, g)
			f.commandsOf[g.GateID] = c.Command
		}
	}
	return r, err
}

func (f *Fleet) settle(ctx context.Context, by commands.Caller) (commands.Result, error) {
	pending := f.State.PendingApprovals()
	if len(pending) == 0 {
		return commands.Result{}, nil
	}
	id := pick(f, pending).ApprovalID
	if f.rng.IntN(8) == 0 {
		return f.Ledger.WithdrawApproval(ctx, by, commands.WithdrawApproval{ApprovalID: id})
	}
	return f.Ledger.SettleApproval(ctx, by, commands.SettleApproval{ApprovalID: id,
		Outcome: pick(f, []events.ApprovalOutcome{events.Granted, events.Granted, events.Refused})})
}

func (f *Fleet) submit(ctx context.Context, by commands.Caller) (commands.Result, error) {
	c := events.TaskCommand{Argv: []string{"go", pick(f, []string{"vet", "test", "build"})}, Targets: []string{pick(f, f.machines)}, Attempts: 1 + f.rng.IntN(2)}
	if second := pick(f, f.machines); second != c.Targets[0] && f.rng.IntN(3) == 0 {
		c.Targets = append(c.Targets, second)
		c.Quorum = f.rng.IntN(3)
	}
	return f.Ledger.SubmitTask(ctx, by, commands.SubmitTask{TaskCommand: c})
}

// work moves one open task on: a claim, a heartbeat, a report, a cancellation.
func (f *Fleet) work(ctx context.Context) (commands.Result, error) {
	open := f.State.OpenTasks()
	if len(open) == 0 {
		return commands.Result{}, nil
	}
	t := pick(f, open)
	leg := pick(f, t.Legs)
	machine := commands.Caller{Actor: leg.Machine}
	switch {
	case f.rng.IntN(12) == 0:
		return f.Ledger.CancelTask(ctx, commands.Caller{Actor: t.SubmittedBy}, commands.CancelTask{TaskID: t.ID})
	case leg.Status == projections.LegOffered:
		return f.Ledger.ClaimTask(ctx, machine, commands.ClaimTask{TaskID: t.ID, Machine: leg.Machine})
	case len(leg.Attempts) == 0:
		return commands.Result{}, nil
	}
	a := pick(f, leg.Attempts)
	if f.rng.IntN(3) == 0 {
		_, err := f.Ledger.Heartbeat(ctx, machine, t.ID, a.Number)
		return commands.Result{}, err
	}
	code := f.rng.IntN(2)
	e := events.Envelope{Outcome: events.Exited, ExitCode: &code, StartedAt: f.now, EndedAt: f.now, Machine: leg.Machine,
		Stdout: events.Output{SHA256: events.SumHash(fmt.Sprint(f.rng.IntN(2)))}}
	if f.rng.IntN(4) == 0 {
		e.Outcome, e.ExitCode = pick(f, []events.Outcome{events.TimedOut, events.RefusedByAgent, events.NotStarted}), nil
	}
	return f.Ledger.ReportAttempt(ctx, machine, commands.ReportAttempt{TaskID: t.ID, Attempt: a.Number, Envelope: e})
}

// claim publishes a block, or accepts one.
func (f *Fleet) claim(ctx context.Context, by commands.Caller) (commands.Result, error) {
	if len(f.blocks) > 0 && f.rng.IntN(2) == 0 {
		return f.Ledger.AcceptBlock(ctx, by, commands.AcceptBlock{Hash: pick(f, f.blocks)})
	}
	c := commands.PublishBlock{Fields: map[string]string{pick(f, events.BlockFields): fmt.Sprint("claim ", f.rng.IntN(30))}}
	if len(f.blocks) > 0 && f.rng.IntN(2) == 0 {
		c.Parents = []events.Hash{pick(f, f.blocks)}
	}
	r, err := f.Ledger.PublishBlock(ctx, by, c)
	if rec, ok := r.Has("block.published"); ok {
		if e, err := events.DecodeAs[events.BlockPublished](rec); err == nil {
			f.blocks = append(f.blocks, e.Hash)
		}
	}
	return r, err
}

// erase erases the payload of an event, mostly of a kind that can be, and mostly as
// somebody who may.
func (f *Fleet) erase(ctx context.Context, by commands.Caller) (commands.Result, error) {
	if auth := f.State.Authority(); f.rng.IntN(6) > 0 {
		highest := events.Level(0)
		for _, a := range auth.Actors() {
			if auth.Active(a.ID) && a.Level >= highest {
				by.Actor, highest = a.ID, a.Level
			}
		}
	}
	var id string
	for range 40 {
		p := 1 + events.Position(f.rng.Uint64N(uint64(f.State.Position())))
		recs, err := f.Ledger.Records(ctx, p, p)
		if err != nil {
			return commands.Result{}, err
		}
		id = recs[0].Header.ID
		if recs[0].Header.Type.Erasable() || f.rng.IntN(20) == 0 {
			break
		}
	}
	return f.Ledger.ErasePayload(ctx, by, commands.ErasePayload{EventID: id, Reason: "it was leaked"})
}

// remember records a run that no task asked for.
func (f *Fleet) remember(ctx context.Context) (commands.Result, error) {
	code, machine := f.rng.IntN(2), pick(f, f.machines)
	return f.Ledger.RecordMemory(ctx, commands.Caller{Actor: machine}, commands.RecordMemory{Record: events.MemoryRecord{
		Argv:     []string{"go", pick(f, []string{"vet", "run"})},
		Envelope: events.Envelope{Outcome: events.Exited, ExitCode: &code, StartedAt: f.now, EndedAt: f.now, Machine: machine},
	}})
}

func (f *Fleet) conclude(ctx context.Context, by commands.Caller) (commands.Result, error) {
	runs := f.runs[max(0, len(f.runs)-20):]
	c := commands.Conclude{Text: "seen"}
	if len(runs) > 0 {
		if r := pick(f, runs); f.rng.IntN(2) == 0 {
			c.About = &events.About{TaskID: r.task}
		} else {
			c.About = &events.About{RecordID: r.record}
		}
	}
	return f.Ledger.Conclude(ctx, by, c)
}

// consolidate says what runs amount to, forgets some, or recalls what was forgotten.
func (f *Fleet) consolidate(ctx context.Context, by commands.Caller) (commands.Result, error) {
	if len(f.consolidations) > 0 && f.rng.IntN(4) == 0 {
		return f.Ledger.Consolidate(ctx, by, commands.Consolidate{Text: "again", Recalls: pick(f, f.consolidations)})
	}
	c := commands.Consolidate{Text: "it works"}
	if len(f.runs) > 0 {
		c.Records = []string{pick(f, f.runs).record}
	}
	if f.rng.IntN(2) == 0 {
		c.Forgets = &events.Forgetting{Cited: len(c.Records) > 0, ForAll: f.rng.IntN(2) == 0}
		if len(f.machines) > 0 && f.rng.IntN(2) == 0 {
			c.Forgets.Machine = pick(f, f.machines)
		}
	}
	return f.Ledger.Consolidate(ctx, by, c)
}

// section revises or retires a section of the collective memory, sometimes from a
// revision that is past.
func (f *Fleet) section(ctx context.Context, by commands.Caller) (commands.Result, error) {
	slug := pick(f, []string{"build", "tests", "disks"})
	var seen *events.Revision
	if s := f.State.Collective().Section(slug); s != nil && f.rng.IntN(2) == 0 {
		at := s.Revision - events.Revision(f.rng.IntN(2))
		seen = &at
	}
	if f.rng.IntN(4) == 0 {
		return f.Ledger.RetireSection(ctx, by, commands.RetireSection{Slug: slug, Revision: seen})
	}
	c := commands.ReviseSection{Slug: slug, Heading: slug, Text: fmt.Sprint("as measured: ", f.rng.IntN(4)), Revision: seen}
	if len(f.runs) > 0 && f.rng.IntN(2) == 0 {
		c.Evidence, c.MeasuredAt = []string{pick(f, f.runs).record}, "2026-03-01"
	}
	return f.Ledger.ReviseSection(ctx, by, c)
}
