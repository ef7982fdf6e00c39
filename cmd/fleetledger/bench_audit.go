package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/projections"
)

// auditBench is a run of bench audit.
type auditBench struct {
	events int
	rounds int
	dir    string
}

func (a *app) benchAuditCommand() *cobra.Command {
	var b auditBench
	cmd := &cobra.Command{
		Use:   "audit [--events N] [--rounds N]",
		Short: "Measure an audit beside a bare scan of the same log",
		Long: strings.TrimSpace(`
Make a log of tasks, from submission to settlement, and of agents' own events, half of
each, and measure in turn how fast it is read and nothing is done (the reference), how
fast a start without a snapshot folds it into the state that decisions rest on, how
fast every hash, chain, payload and the tree are verified, and how fast every decision
is made again besides.

Rates are the medians over the rounds, and a ratio is the median of the rounds' own. The
temporary data is removed at the end; --dir says which disk it is put on.`),
		Example: `  fleetledger bench audit
  fleetledger bench audit --events 1000000 --rounds 5`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			switch {
			case b.events < 1000:
				return misused("--events %d: at least 1000", b.events)
			case b.rounds < 1:
				return misused("--rounds %d: at least 1", b.rounds)
			}
			return a.benchAudit(cmd.Context(), b)
		}),
	}
	cmd.Flags().IntVar(&b.events, "events", 200_000, "how many events the log has, or a few more")
	cmd.Flags().IntVar(&b.rounds, "rounds", 3, "how often each is measured")
	cmd.Flags().StringVar(&b.dir, "dir", os.TempDir(), "where the temporary data goes")
	return cmd
}

// auditRound has events per second.
type auditRound struct {
	Scan   float64 `json:"scan"`
	Fold   float64 `json:"fold"`
	Verify float64 `json:"verify"`
	Audit  float64 `json:"audit"`
}

type auditBenchReport struct {
	Machine     benchMachine `json:"machine"`
	Events      int          `json:"events"`
	Decisions   int          `json:"decisions"`
	Rounds      []auditRound `json:"rounds"`
	Median      auditRound   `json:"median"`
	FoldRatio   float64      `json:"fold_ratio"`
	VerifyRatio float64      `json:"verify_ratio"`
	AuditRatio  float64      `json:"audit_ratio"`
}

func (a *app) benchAudit(ctx context.Context, b auditBench) (err error) {
	roomyHeap(auditHeap)
	dir, err := os.MkdirTemp(b.dir, "fleetledger-bench-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var r auditBenchReport
	if r.Machine, err = benchedMachine(dir); err != nil {
		return err
	}
	var l *commands.Ledger
	open := func() (int, error) {
		state := projections.NewState()
		log, err := pebblelog.Open(filepath.Join(dir, "data"), pebblelog.Options{Fleet: defaultFleet, Fold: state, Logger: slog.New(slog.DiscardHandler), Now: a.now})
		if err != nil {
			return 0, err
		}
		l = commands.New(log, state, random())
		return int(log.Durable()), nil
	}
	if _, err := open(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Log().Close()) }()
	progress := printer{a.err}
	progress.f("making a log of %s\n", count(b.events, "event"))
	if err := fillForAudit(ctx, l, events.Position(b.events)); err != nil {
		return err
	}
	// The first start writes what is in the WAL to tables.
	if err := l.Log().Close(); err != nil {
		return err
	}
	if _, err := open(); err != nil {
		return err
	}
	for i := range b.rounds {
		var round auditRound
		if err := l.Log().Close(); err != nil {
			return err
		}
		if round.Fold, err = rate(open); err != nil {
			return err
		}
		if round.Scan, err = rate(func() (int, error) {
			n := 0
			for _, err := range l.Log().ReadAll(ctx, 0) {
				if err != nil {
					return 0, err
				}
				n++
			}
			return n, nil
		}); err != nil {
			return err
		}
		for _, m := range []struct {
			into *float64
			opts audit.Options
		}{{&round.Verify, audit.Options{HashesOnly: true}}, {&round.Audit, audit.Options{}}} {
			if *m.into, err = rate(func() (int, error) {
				report, err := audit.Run(ctx, events.ReadStored(ctx, l.Log(), 0), m.opts)
				if err == nil && !report.OK {
					err = fmt.Errorf("the audit of the log has findings: %+v", report.Findings[0])
				}
				r.Events, r.Decisions = report.Events, report.DecisionsRederived
				return report.Events, err
			}); err != nil {
				return err
			}
		}
		r.Rounds = append(r.Rounds, round)
		progress.f("round %d of %d: scan %.0f/s, fold %.0f/s, verify %.0f/s, audit %.0f/s\n", i+1, b.rounds, round.Scan, round.Fold, round.Verify, round.Audit)
	}
	middle := func(of func(auditRound) float64) float64 {
		var list []float64
		for _, round := range r.Rounds {
			list = append(list, of(round))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	r.Median = auditRound{middle(func(r auditRound) float64 { return r.Scan }), middle(func(r auditRound) float64 { return r.Fold }),
		middle(func(r auditRound) float64 { return r.Verify }), middle(func(r auditRound) float64 { return r.Audit })}
	r.FoldRatio = middle(func(r auditRound) float64 { return r.Fold / r.Scan })
	r.VerifyRatio = middle(func(r auditRound) float64 { return r.Verify / r.Scan })
	r.AuditRatio = middle(func(r auditRound) float64 { return r.Audit / r.Scan })
	if a.json {
		return a.printValue(r)
	}
	p := printer{a.out}
	p.f("%d cores, %s, %s; %s, %s; rounds: %d, in turn\n\n", r.Machine.Cores, r.Machine.System, r.Machine.Go,
		count(r.Events, "event"), count(r.Decisions, "decision"), b.rounds)
	per := func(f float64) string { return strconv.FormatFloat(f, 'f', 0, 64) }
	p.table([][]string{
		{"WHAT", "EVENTS/S", "OF A BARE SCAN"},
		{"bare scan", per(r.Median.Scan), "1.00"},
		{"state folded at a start", per(r.Median.Fold), strconv.FormatFloat(r.FoldRatio, 'f', 2, 64)},
		{"every hash verified", per(r.Median.Verify), strconv.FormatFloat(r.VerifyRatio, 'f', 2, 64)},
		{"every decision made again", per(r.Median.Audit), strconv.FormatFloat(r.AuditRatio, 'f', 2, 64)},
	})
	return nil
}

// rate is how many a second do does.
func rate(do func() (int, error)) (float64, error) {
	start := time.Now()
	n, err := do()
	return float64(n) / time.Since(start).Seconds(), err
}

// Who submits the tasks of a log that is made up, and who runs them.
const madePerson, madeMachine = "ana", "m1"

// fillForAudit records tasks and agents' own events until the log has so many. It
// founds one that has none.
func fillForAudit(ctx context.Context, l *commands.Ledger, upTo events.Position) error {
	if l.Log().Durable() == 0 {
		if _, err := l.Found(ctx, defaultFleet); err != nil {
			return err
		}
		low, root := events.Level(20), commands.Caller{Actor: "root"}
		for id, kind := range map[string]events.ActorKind{madeMachine: events.Machine, madePerson: events.Human} {
			if _, err := l.RegisterActor(ctx, root, commands.RegisterActor{ID: id, Kind: kind, AuthorityLevel: &low}); err != nil {
				return err
			}
		}
	}
	text := jsontext.Value(`{"text":"` + strings.Repeat("what an agent has noticed; ", 18) + `"}`)
	var work errgroup.Group
	for range 16 {
		work.Go(func() error {
			random := random()
			stream := events.Stream(commands.ExtStreamPrefix + random.ID())
			for l.Log().Durable() < upTo {
				taskEvents := 0
				for range 8 {
					n, err := settleOne(ctx, l)
					if err != nil {
						return err
					}
					taskEvents += n
				}
				var batch []commands.ExtEvent
				for range taskEvents {
					batch = append(batch, commands.ExtEvent{ID: random.ID(), Type: "ext.note.taken", Stream: stream, Body: events.Ext{Source: "bench", Data: text}})
				}
				if _, err := l.AppendExt(ctx, commands.Caller{Actor: madePerson}, batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return work.Wait()
}

// settleOne submits, claims and reports a task, and returns how many events that was.
func settleOne(ctx context.Context, l *commands.Ledger) (int, error) {
	submitted, err := l.SubmitTask(ctx, commands.Caller{Actor: madePerson}, commands.SubmitTask{
		TaskCommand: events.TaskCommand{Argv: []string{"go", "test", "./..."}, Targets: []string{madeMachine}}})
	if err != nil {
		return 0, err
	}
	rec, _ := submitted.Has(events.TaskSubmitted{}.Kind())
	id := strings.TrimPrefix(string(rec.Header.Stream), string(events.TaskStream("")))
	by := commands.Caller{Actor: madeMachine}
	claimed, err := l.ClaimTask(ctx, by, commands.ClaimTask{TaskID: id, Machine: madeMachine})
	if err != nil {
		return 0, err
	}
	code, now := 0, l.Log().Now()
	out := events.Output{Bytes: 3, SHA256: events.SumHash("ok\n"), Tail: "ok\n"}
	reported, err := l.ReportAttempt(ctx, by, commands.ReportAttempt{TaskID: id, Attempt: 1, Envelope: events.Envelope{
		Outcome: events.Exited, ExitCode: &code, StartedAt: now, EndedAt: now, Stdout: out, Stderr: events.Output{SHA256: events.SumHash("")},
		Transport: "direct", Machine: madeMachine, Cwd: "/srv",
	}})
	return len(submitted.Records) + len(claimed.Records) + len(reported.Records), err
}
