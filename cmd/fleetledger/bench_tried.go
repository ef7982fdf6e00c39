package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/events/pebblelog"
	"fleetledger/projections/sqlview"
	"fleetledger/testing/load"
)

// triedBench is a run of bench tried.
type triedBench struct {
	runs, queries int
	seed          uint64
	dir           string
}

func (a *app) benchTriedCommand() *cobra.Command {
	var b triedBench
	cmd := &cobra.Command{
		Use:   "tried [--runs N] [--queries N]",
		Short: "Measure the view of many runs, and what tried costs, beside bare SQLite",
		Long: strings.TrimSpace(`
Make up a history of runs, record it in a log, and measure how long the view takes to
be made from it, what tried answers to pasted commands and how fast, and how fast it
answers while the view is made again.

Beside the making stand bare inserts: the same rows into the same tables and indexes,
by prepared statements, in large transactions, as the product's own file is filled.
Beside each query stands a bare one, asked right after it: the words as one phrase,
the ten newest rows of the full text index, with no ranks, counts, runs or conclusions.

The queries are commands of the history, old and new, as somebody would paste them.
The temporary data is removed at the end; --dir says which disk it is put on.`),
		Example: `  fleetledger bench tried
  fleetledger bench tried --runs 1000000 --dir /var/tmp`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if b.runs < 1 || b.queries < 1 || b.queries > b.runs {
				return misused("--runs %d --queries %d: at least one of each, and no more queries than runs", b.runs, b.queries)
			}
			r, err := a.benchTried(cmd.Context(), b)
			if cmd.Context().Err() != nil {
				return errors.New("broken off; the temporary data is removed")
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printValue(r)
			}
			r.show(printer{a.out})
			return nil
		}),
	}
	flags := cmd.Flags()
	flags.IntVar(&b.runs, "runs", 100000, "runs in the history")
	flags.IntVar(&b.queries, "queries", 1000, "how many commands are asked for")
	flags.Uint64Var(&b.seed, "seed", 1, "what the history is made up from")
	flags.StringVar(&b.dir, "dir", os.TempDir(), "where the temporary data goes")
	return cmd
}

// triedReport is what a run found; with --json it is printed as it is.
type triedReport struct {
	Machine benchMachine `json:"machine"`
	Runs    int          `json:"runs"`
	Queries int          `json:"queries"`
	Rows    int          `json:"rows"`

	BuildSeconds float64 `json:"build_s"`
	BareSeconds  float64 `json:"bare_inserts_s"`
	BuildRatio   float64 `json:"build_ratio"`

	First float64   `json:"exact_first"`
	Tried queryRate `json:"tried"`
	Bare  queryRate `json:"bare_query"`

	RebuildSeconds float64   `json:"rebuild_s"`
	Meanwhile      queryRate `json:"tried_while_rebuilding"`
}

type queryRate struct {
	N     int     `json:"n"`
	P50ms float64 `json:"p50_ms"`
	P99ms float64 `json:"p99_ms"`
}

func queryRateOf(took []time.Duration) queryRate {
	if len(took) == 0 {
		return queryRate{}
	}
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return queryRate{len(took), ms(took[len(took)/2]), ms(took[min(len(took)*99/100, len(took)-1)])}
}

func (a *app) benchTried(ctx context.Context, b triedBench) (r triedReport, err error) {
	if b.dir, err = os.MkdirTemp(b.dir, "fleetledger-bench-"); err != nil {
		return r, tryNext(err, "fleetledger bench tried --dir DIR")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	r.Runs, r.Queries = b.runs, b.queries
	if r.Machine, err = benchedMachine(b.dir); err != nil {
		return r, err
	}
	logger := a.newLogger(slog.LevelWarn)
	log, err := pebblelog.Open(filepath.Join(b.dir, "log"), pebblelog.Options{Fleet: defaultFleet, Logger: logger})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	note := a.newProgress("recorded")
	made := load.NewCommands(b.seed)
	start := time.Now().Add(-time.Duration(b.runs) * 30 * time.Second)
	sample, err := load.RecordRuns(ctx, log, made, b.runs, max(1, b.runs/b.queries), start, func(done int) { note.at(uint64(done), uint64(b.runs)) })
	note.end()
	if err != nil {
		return r, err
	}
	queries := make([]string, 0, b.queries)
	for _, argv := range sample[:min(len(sample), b.queries)] {
		queries = append(queries, made.Pasted(argv))
	}

	viewDir := filepath.Join(b.dir, viewName)
	began := time.Now()
	v, err := sqlview.Open(log, viewDir, logger)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := v.Wait(ctx, log.Durable()); err != nil {
		return r, err
	}
	r.BuildSeconds = time.Since(began).Seconds()
	bare, err := load.CopyView(ctx, viewDir, filepath.Join(b.dir, "bare.db"))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, bare.Close()) }()
	r.Rows, r.BareSeconds = bare.Rows, bare.Took.Seconds()
	r.BuildRatio = r.BareSeconds / r.BuildSeconds

	var took, bareTook []time.Duration
	first := 0
	for _, q := range queries {
		d, exact, err := askTried(ctx, v, q)
		if err != nil {
			return r, err
		}
		took = append(took, d)
		if exact {
			first++
		}
		began := time.Now()
		if _, err := bare.Ask(ctx, q); err != nil {
			return r, err
		}
		bareTook = append(bareTook, time.Since(began))
	}
	r.Tried, r.Bare, r.First = queryRateOf(took), queryRateOf(bareTook), float64(first)/float64(len(queries))

	rebuilds := v.Status().Rebuilds
	began = time.Now()
	v.Rebuild("to measure it")
	took = nil
	for i := 0; v.Status().Rebuilds == rebuilds; i++ {
		d, exact, err := askTried(ctx, v, queries[i%len(queries)])
		if err != nil {
			return r, err
		}
		if !exact {
			return r, fmt.Errorf("while the view was made again it did not know of %q", queries[i%len(queries)])
		}
		took = append(took, d)
	}
	r.RebuildSeconds = time.Since(began).Seconds()
	r.Meanwhile = queryRateOf(took)
	return r, nil
}

// askTried asks for a command, and reports whether it came first.
func askTried(ctx context.Context, v *sqlview.View, q string) (time.Duration, bool, error) {
	began := time.Now()
	found, err := v.Tried(ctx, sqlview.Query{Text: q, Limit: 10})
	return time.Since(began), len(found.Answers) > 0 && found.Answers[0].WhyMatched == sqlview.MatchedCommand, err
}

func (r triedReport) show(p printer) {
	p.f("%d cores, %s, %s\n", r.Machine.Cores, r.Machine.System, r.Machine.Go)
	p.f("a history of %d runs: %d rows; %d pasted commands asked for\n\n", r.Runs, r.Rows, r.Queries)
	f := func(v float64, unit string) string { return fmt.Sprintf("%.2f%s", v, unit) }
	p.table([][]string{
		{"", "PRODUCT", "REFERENCE", "RATIO"},
		{"view made", f(r.BuildSeconds, " s"), f(r.BareSeconds, " s (bare inserts)"), f(r.BuildRatio, "")},
		{"tried p50", f(r.Tried.P50ms, " ms"), f(r.Bare.P50ms, " ms (bare query)"), f(r.Tried.P50ms/r.Bare.P50ms, "")},
		{"tried p99", f(r.Tried.P99ms, " ms"), f(r.Bare.P99ms, " ms (bare query)"), f(r.Tried.P99ms/r.Bare.P99ms, "")},
		{"exact first", f(r.First*100, " %"), "", ""},
		{"while rebuilding", f(r.Meanwhile.P50ms, " ms p50"), f(r.Meanwhile.P99ms, " ms p99"), fmt.Sprintf("%d answers in %.1f s", r.Meanwhile.N, r.RebuildSeconds)},
	})
}
