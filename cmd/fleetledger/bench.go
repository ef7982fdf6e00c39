package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/testing/load"
)

func (a *app) benchCommand() *cobra.Command {
	return a.group("bench", "Measure this program on this machine", `  fleetledger bench append
  fleetledger bench append --clients 64 --batch 100 --rounds 5
  fleetledger bench audit
  fleetledger bench tried
  fleetledger bench fleet --out bench-fleet
  fleetledger bench soak --duration 10m`,
		a.benchAppendCommand(), a.benchAuditCommand(), a.benchTriedCommand(), a.benchFleetCommand(), a.benchGrowthCommand(), a.benchSoakCommand(), a.benchRunCommand(), a.benchAgentCommand(),
		a.benchReferenceCommand(), a.benchOffsetServeCommand())
}

// appendBench is a run of bench append.
type appendBench struct {
	clients  []int
	batch    int
	rounds   int
	duration time.Duration
	dir      string

	program string // this one's file
}

func (a *app) benchAppendCommand() *cobra.Command {
	var b appendBench
	cmd := &cobra.Command{
		Use:   "append [--clients N,...] [--batch N] [--rounds N] [--duration D]",
		Short: "Measure durable appends over HTTP beside a bare ceiling",
		Long: strings.TrimSpace(fmt.Sprintf(`
Measure how many events of %d bytes the server records per second, each durable
before its acknowledgement, and print that beside a bare ceiling: an HTTP handler
that decodes the event and commits it to the same store in groups, with no tokens,
rules, conditions, retries or proofs.

The two are measured in turn, as processes of their own on new data, so that the
figures of a round belong together; rates are the medians over the rounds, and a
ratio is the median of the rounds' own ratios. Identical runs differ by more than
half: compare only what ran in one run. The processor time for an event, of the
server's process alone, is swayed least by what else the machine does. The clients run on the same machine and
share its processors with what they measure.

Everything acknowledged is checked against the log's length. The temporary data is
removed at the end; --dir says which disk it is put on.`, load.EventBytes)),
		Example: `  fleetledger bench append
  fleetledger bench append --clients 64 --batch 100 --rounds 5 --dir /var/tmp`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			return a.benchAppend(cmd.Context(), b)
		}),
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&b.clients, "clients", []int{1, 64, 256}, "clients at the same time, a measurement for each number")
	flags.IntVar(&b.batch, "batch", 1, "events in a request, at most 1000")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each is measured")
	flags.DurationVar(&b.duration, "duration", 3*time.Second, "how long one measurement takes")
	flags.StringVar(&b.dir, "dir", os.TempDir(), "where the temporary data goes")
	return cmd
}

func (b appendBench) check() error {
	for _, n := range b.clients {
		if n < 1 || n > 10000 {
			return misused("--clients %d: 1 to 10000", n)
		}
	}
	switch {
	case len(b.clients) == 0:
		return misused("--clients names no number")
	case b.batch < 1 || b.batch > 1000:
		return misused("--batch %d: 1 to 1000", b.batch)
	case b.rounds < 1:
		return misused("--rounds %d: at least 1", b.rounds)
	case b.duration <= 0:
		return misused("--duration %v: some time is needed", b.duration)
	}
	return nil
}

// benchReport is what a run found; with --json it is printed as it is.
type benchReport struct {
	Machine     benchMachine       `json:"machine"`
	EventBytes  int                `json:"event_bytes"`
	Batch       int                `json:"events_per_request"`
	DurationMS  int64              `json:"duration_ms"`
	Comparisons []appendComparison `json:"comparisons"`
}

type benchMachine struct {
	Cores  int    `json:"cores"`
	System string `json:"system"`
	Go     string `json:"go"`
	// SyncMS is the median time of a 4 KiB write and its sync where the data lay.
	SyncMS float64 `json:"sync_4k_ms"`
}

// appendComparison is the product beside the reference, as medians, and the
// rounds that they come from.
type appendComparison struct {
	load.Comparison
	Product   benchRate `json:"product"`
	Reference benchRate `json:"reference"`
	Ratio     float64   `json:"ratio"`
	P99Ratio  float64   `json:"p99_ratio"`
	CPURatio  float64   `json:"cpu_ratio,omitzero"`
}

type benchRate struct {
	PerSecond float64 `json:"events_per_s"`
	P50ms     float64 `json:"p50_ms"`
	P99ms     float64 `json:"p99_ms"`
	CPUMicros float64 `json:"cpu_us_per_event,omitzero"`
}

func (a *app) benchAppend(ctx context.Context, b appendBench) (err error) {
	if b.program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, to start it as a server: %w", err)
	}
	if b.dir, err = os.MkdirTemp(b.dir, "fleetledger-bench-"); err != nil {
		return tryNext(err, "fleetledger bench append --dir DIR")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()

	r := benchReport{EventBytes: load.EventBytes, Batch: b.batch, DurationMS: b.duration.Milliseconds()}
	if r.Machine, err = benchedMachine(b.dir); err != nil {
		return err
	}
	progress := printer{a.err}
	for _, clients := range b.clients {
		c := load.Comparison{Clients: clients}
		for i := range b.rounds {
			round, err := b.round(ctx, clients, i%2 == 1)
			if ctx.Err() != nil {
				return errors.New("broken off; the temporary data is removed")
			}
			if err != nil {
				return err
			}
			c.Rounds = append(c.Rounds, round)
			progress.f("%d clients, round %d of %d: product %.0f/s, p99 %.2f ms; reference %.0f/s, p99 %.2f ms; ratio %.2f\n",
				clients, i+1, b.rounds, round.Product.PerSecond, round.Product.P99ms, round.Reference.PerSecond, round.Reference.P99ms, round.Ratio())
		}
		r.Comparisons = append(r.Comparisons, compared(c))
	}
	if a.json {
		return a.printValue(r)
	}
	r.print(printer{a.out})
	return nil
}

// round measures both, the reference first if so asked: whoever comes second
// meets what the first left behind, so they take turns at that too.
func (b appendBench) round(ctx context.Context, clients int, referenceFirst bool) (r load.Round, err error) {
	if referenceFirst {
		if r.Reference, err = b.measure(ctx, clients, "bench", "reference"); err != nil {
			return r, fmt.Errorf("reference: %w", err)
		}
	}
	if r.Product, err = b.measure(ctx, clients, "serve"); err != nil {
		return r, fmt.Errorf("product: %w", err)
	}
	if !referenceFirst {
		if r.Reference, err = b.measure(ctx, clients, "bench", "reference"); err != nil {
			return r, fmt.Errorf("reference: %w", err)
		}
	}
	return r, nil
}

// measure starts this program as the server that command names, on new data, and
// appends to it. Product and reference are processes alike, each with a scheduler
// and a collector of its own, so that they differ in what they do only.
func (b appendBench) measure(ctx context.Context, clients int, command ...string) (r load.Result, err error) {
	data := filepath.Join(b.dir, command[len(command)-1])
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	server, err := load.Start(ctx, b.program, append(command, "--data", data, "--listen", "127.0.0.1:0")...)
	if err != nil {
		return r, err
	}
	defer server.Kill()
	target := load.Target{Addr: server.Addr}
	if token, err := os.ReadFile(rootTokenFile(data, defaultFleet)); err == nil { // the reference has none
		target.Token = strings.TrimSpace(string(token))
	}
	before, unknown := server.Usage() // where the system does not tell, the figure is missing
	r, err = load.Append(ctx, target, load.Options{
		Clients: clients, Batch: b.batch, Warmup: b.duration / 6, Duration: b.duration,
	})
	if err != nil && ctx.Err() == nil {
		err = server.Explain(err)
	}
	if after, unknownToo := server.Usage(); err == nil && unknown == nil && unknownToo == nil {
		r.CPUMicros = float64((after.CPU - before.CPU).Microseconds()) / float64(r.Acknowledged)
	}
	return r, err
}

func benchedMachine(dir string) (benchMachine, error) {
	sync, err := load.SyncLatency(dir)
	return benchMachine{
		Cores: runtime.NumCPU(), System: runtime.GOOS + "/" + runtime.GOARCH, Go: runtime.Version(),
		SyncMS: float64(sync) / float64(time.Millisecond),
	}, err
}

func compared(c load.Comparison) appendComparison {
	rate := func(of func(load.Round) load.Result) benchRate {
		return benchRate{
			PerSecond: c.Median(func(r load.Round) float64 { return of(r).PerSecond }),
			P50ms:     c.Median(func(r load.Round) float64 { return of(r).P50ms }),
			P99ms:     c.Median(func(r load.Round) float64 { return of(r).P99ms }),
			CPUMicros: c.Median(func(r load.Round) float64 { return of(r).CPUMicros }),
		}
	}
	return appendComparison{
		Comparison: c,
		Product:    rate(func(r load.Round) load.Result { return r.Product }),
		Reference:  rate(func(r load.Round) load.Result { return r.Reference }),
		Ratio:      c.Median(load.Round.Ratio),
		P99Ratio:   c.Median(load.Round.P99Ratio),
		CPURatio:   c.Median(load.Round.CPURatio),
	}
}

func (m benchMachine) print(p printer) {
	p.f("%d cores, %s, %s; a 4 KiB write and its sync: %.3f ms (median)\n", m.Cores, m.System, m.Go, m.SyncMS)
}

func (r benchReport) print(p printer) {
	r.Machine.print(p)
	requests := "one event a request"
	if r.Batch > 1 {
		requests = fmt.Sprintf("%d events a request", r.Batch)
	}
	p.f("events of %d bytes, %s; rounds: %d, of %v each, in turn\n\n",
		r.EventBytes, requests, len(r.Comparisons[0].Rounds), time.Duration(r.DurationMS)*time.Millisecond)
	rows := [][]string{{"CLIENTS", "PRODUCT/S", "REFERENCE/S", "RATIO", "(OF ROUNDS)", "PRODUCT P50", "P99", "REFERENCE P50", "P99", "P99 RATIO", "CPU/EVENT", "REFERENCE", "RATIO"}}
	ms := func(f float64) string { return fmt.Sprintf("%.2f ms", f) }
	cpu := func(of string, f float64) string {
		if f == 0 {
			return "-"
		}
		return fmt.Sprintf(of, f)
	}
	for _, c := range r.Comparisons {
		least, most := c.Ratio, c.Ratio
		for _, round := range c.Rounds {
			least, most = min(least, round.Ratio()), max(most, round.Ratio())
		}
		rows = append(rows, []string{
			fmt.Sprint(c.Clients), fmt.Sprintf("%.0f", c.Product.PerSecond), fmt.Sprintf("%.0f", c.Reference.PerSecond),
			fmt.Sprintf("%.2f", c.Ratio), fmt.Sprintf("%.2f-%.2f", least, most),
			ms(c.Product.P50ms), ms(c.Product.P99ms), ms(c.Reference.P50ms), ms(c.Reference.P99ms), fmt.Sprintf("%.2f", c.P99Ratio),
			cpu("%.1f µs", c.Product.CPUMicros), cpu("%.1f µs", c.Reference.CPUMicros), cpu("%.2f", c.CPURatio),
		})
	}
	p.table(rows)
}

// benchReferenceCommand serves the bare ceiling; bench append starts it.
func (a *app) benchReferenceCommand() *cobra.Command {
	var listen string
	cmd := &cobra.Command{
		Use:     "reference",
		Short:   "Serve the bare ceiling that appends are measured beside",
		Example: `  fleetledger bench reference --data ceiling --listen 127.0.0.1:0`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return load.ServeReference(cmd.Context(), a.data, listen, a.out)
		}),
	}
	cmd.Flags().StringVar(&listen, "listen", defaultListen, "address to listen on; port 0 takes a free one")
	return cmd
}
