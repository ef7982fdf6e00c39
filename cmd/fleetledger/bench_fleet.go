package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/testing/load"
)

// fleetBench is a run of bench fleet.
type fleetBench struct {
	agents   []int
	rounds   int
	real     int
	duration time.Duration
	dir, out string

	program string // this one's file
}

func (a *app) benchFleetCommand() *cobra.Command {
	var b fleetBench
	cmd := &cobra.Command{
		Use:   "fleet [--agents N,...] [--rounds N] [--duration D] [--out DIR]",
		Short: "Measure how a fleet of 50 to 10,000 agents fares beside a bare ceiling",
		Long: strings.TrimSpace(`
Measure what a fleet costs as it grows: memory for an idle agent, how long an offer
takes from the acknowledgement of its task to a waiting agent, tasks settled per
second, and the server's CPU time for each.

Simulated agents are machines with tokens and open streams of offers over real HTTP.
First they idle; then tasks are submitted, offered, claimed and reported as fast as
they are, 64 under way at a time; then each agent is made one offer a second. Some
real agents, processes of their own that run commands, take tasks meanwhile.

Beside it in every round, on new data, a bare ceiling: an HTTP handler that commits
each request to the same store in groups and passes offers to streams, with no
tokens, rules, conditions, leases, verdicts or proofs. Rates are medians over the
rounds, and a ratio is the median of the rounds' own ratios. All of it shares this
machine's processors. Memory and CPU time are known on Linux only.

--out writes fleet.json, fleet.md (the table) and fleet.svg (the curve) there.`),
		Example: `  fleetledger bench fleet --agents 50,1000 --rounds 1
  fleetledger bench fleet --out bench-fleet`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if err := b.check(); err != nil {
				return err
			}
			return a.benchFleet(cmd.Context(), b)
		}),
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&b.agents, "agents", []int{50, 200, 1000, 5000, 10000}, "simulated agents, a measurement for each number")
	flags.IntVar(&b.rounds, "rounds", 3, "how often each is measured")
	flags.IntVar(&b.real, "real", 2, "real agents beside them")
	flags.DurationVar(&b.duration, "duration", 5*time.Second, "how long one phase takes")
	flags.StringVar(&b.dir, "dir", os.TempDir(), "where the temporary data goes")
	flags.StringVar(&b.out, "out", "", "folder for the table and the plot; it is made if need be")
	return cmd
}

func (b fleetBench) check() error {
	for _, n := range b.agents {
		if n < 1 || n > 20000 {
			return misused("--agents %d: 1 to 20000", n)
		}
	}
	switch {
	case len(b.agents) == 0:
		return misused("--agents names no number")
	case b.rounds < 1:
		return misused("--rounds %d: at least 1", b.rounds)
	case b.real < 0 || b.real > 100:
		return misused("--real %d: 0 to 100", b.real)
	case b.duration <= 0:
		return misused("--duration %v: some time is needed", b.duration)
	}
	return nil
}

// fleetReport is what a run found; with --json it is printed as it is.
type fleetReport struct {
	Machine    benchMachine `json:"machine"`
	DurationMS int64        `json:"duration_ms"`
	Sizes      []fleetSize  `json:"sizes"`
}

// fleetSize is the product beside the reference at one number of agents.
type fleetSize struct {
	Agents int          `json:"agents"`
	Rounds []fleetRound `json:"rounds"`
}

type fleetRound struct {
	Product   fleetMeasure   `json:"product"`
	Reference fleetMeasure   `json:"reference"`
	Real      load.Latencies `json:"real"`
}

type fleetMeasure struct {
	// IdleKiB is the server's memory for an agent that waits, 0 if not known.
	IdleKiB float64        `json:"idle_kib_per_agent"`
	Settled load.Settled   `json:"settled"`
	Offers  load.Latencies `json:"offers"`
	// TaskCPUms is the server's CPU time for a task from submission to settlement,
	// OfferCPUms that for an offer; 0 if not known.
	TaskCPUms  float64 `json:"cpu_ms_per_task"`
	OfferCPUms float64 `json:"cpu_ms_per_offer"`
}

func (s fleetSize) median(of func(fleetRound) float64) float64 {
	list := make([]float64, len(s.Rounds))
	for i, r := range s.Rounds {
		list[i] = of(r)
	}
	slices.Sort(list)
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

// fleetInFlight is how many tasks are under way at a time while they are settled.
const fleetInFlight = 64

func (a *app) benchFleet(ctx context.Context, b fleetBench) (err error) {
	if b.program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, to start it as a server: %w", err)
	}
	if b.dir, err = filepath.Abs(b.dir); err == nil { // agents run elsewhere
		b.dir, err = os.MkdirTemp(b.dir, "fleetledger-bench-")
	}
	if err != nil {
		return tryNext(err, "fleetledger bench fleet --dir DIR")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.out != "" {
		if err := os.MkdirAll(b.out, 0o755); err != nil {
			return tryNext(err, "fleetledger bench fleet --out DIR")
		}
	}
	r := fleetReport{DurationMS: b.duration.Milliseconds()}
	if r.Machine, err = benchedMachine(b.dir); err != nil {
		return err
	}
	progress := printer{a.err}
	for _, n := range b.agents {
		size := fleetSize{Agents: n}
		for i := range b.rounds {
			round, err := b.round(ctx, n, i%2 == 1)
			if ctx.Err() != nil {
				return errors.New("broken off; the temporary data is removed")
			}
			if err != nil {
				return fmt.Errorf("%d agents: %w", n, err)
			}
			size.Rounds = append(size.Rounds, round)
			progress.f("%d agents, round %d of %d: %.0f tasks/s (reference %.0f), offers p99 %.2f ms (%.2f), %.3f ms CPU a task (%.3f), %.1f KiB an idle agent (%.1f)\n",
				n, i+1, b.rounds, round.Product.Settled.PerSecond, round.Reference.Settled.PerSecond, round.Product.Offers.P99ms, round.Reference.Offers.P99ms,
				round.Product.TaskCPUms, round.Reference.TaskCPUms, round.Product.IdleKiB, round.Reference.IdleKiB)
		}
		r.Sizes = append(r.Sizes, size)
	}
	if err := r.write(b.out); err != nil {
		return err
	}
	if a.json {
		return a.printValue(r)
	}
	p := printer{a.out}
	p.f("%s\n", r.heading())
	p.table(r.rows())
	return nil
}

func (b fleetBench) round(ctx context.Context, agents int, referenceFirst bool) (r fleetRound, err error) {
	reference := func() error {
		if r.Reference, _, err = b.measure(ctx, agents, 0, "bench", "reference"); err != nil {
			return fmt.Errorf("reference: %w", err)
		}
		return nil
	}
	if referenceFirst {
		if err := reference(); err != nil {
			return r, err
		}
	}
	if r.Product, r.Real, err = b.measure(ctx, agents, b.real, "serve"); err != nil {
		return r, fmt.Errorf("product: %w", err)
	}
	if !referenceFirst {
		return r, reference()
	}
	return r, nil
}

// measure starts this program as the server that command names, on new data, and
// takes a fleet through its phases.
func (b fleetBench) measure(ctx context.Context, agents, realAgents int, command ...string) (m fleetMeasure, real load.Latencies, err error) {
	data := filepath.Join(b.dir, command[len(command)-1])
	defer func() { err = errors.Join(err, os.RemoveAll(data)) }()
	args := append(command, "--data", data, "--listen", "127.0.0.1:0")
	server, err := load.Start(ctx, b.program, args...)
	if err != nil {
		return m, real, err
	}
	defer func() { server.Kill() }()
	target := load.Target{Addr: server.Addr}
	if token, err := os.ReadFile(rootTokenFile(data, defaultFleet)); err == nil { // the reference has none
		target.Token = strings.TrimSpace(string(token))
	}
	fleet, err := load.NewFleet(ctx, target, agents)
	if err != nil {
		return m, real, server.Explain(err)
	}
	defer func() { err = errors.Join(err, fleet.Close()) }()
	if target.Token != "" {
		// A new process, so that what registering left in memory is not counted as the
		// waiting agents'.
		server.Kill()
		if server, err = load.Start(ctx, b.program, args...); err != nil {
			return m, real, err
		}
		target.Addr = server.Addr
		if err := fleet.Dial(server.Addr); err != nil {
			return m, real, err
		}
	}
	before := b.usage(server)
	if err := fleet.Connect(); err != nil {
		return m, real, server.Explain(err)
	}
	if idle := b.usage(server); before.ResidentBytes > 0 {
		m.IdleKiB = float64(idle.ResidentBytes-before.ResidentBytes) / 1024 / float64(agents)
	}

	stopReal, err := b.realAgents(ctx, target, data, realAgents)
	if err != nil {
		return m, real, server.Explain(err)
	}
	before = b.usage(server)
	m.Settled, err = fleet.Settle(fleetInFlight, 0, b.duration)
	used := b.usage(server).CPU - before.CPU
	real, realErr := stopReal()
	if err = errors.Join(err, realErr); err != nil {
		return m, real, server.Explain(err)
	}
	m.TaskCPUms = milliseconds(used) / float64(m.Settled.Count+real.Count)

	before = b.usage(server)
	if m.Offers, err = fleet.Offers(b.duration); err != nil {
		return m, real, server.Explain(err)
	}
	m.OfferCPUms = milliseconds(b.usage(server).CPU-before.CPU) / float64(m.Offers.Count)
	return m, real, nil
}

// usage is what the server has used, zero where the system does not tell.
func (fleetBench) usage(p *load.Process) load.Usage {
	u, err := p.Usage()
	if err != nil {
		return load.Usage{}
	}
	return u
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func (r fleetReport) heading() string {
	m := r.Machine
	return fmt.Sprintf("%d cores, %s, %s; a 4 KiB write and its sync: %.3f ms (median); rounds: %d, each phase %v",
		m.Cores, m.System, m.Go, m.SyncMS, len(r.Sizes[0].Rounds), time.Duration(r.DurationMS)*time.Millisecond)
}

// rows is the table, its head first.
func (r fleetReport) rows() [][]string {
	rows := [][]string{{"AGENTS", "TASKS/S", "REFERENCE", "RATIO", "CPU MS/TASK", "OF THE FIRST'S", "OFFER P50", "P99", "REFERENCE P99", "CPU MS/OFFER", "KIB/IDLE AGENT", "REFERENCE", "REAL AGENTS' TASKS, P50"}}
	product := func(of func(fleetMeasure) float64) func(fleetRound) float64 {
		return func(r fleetRound) float64 { return of(r.Product) }
	}
	reference := func(of func(fleetMeasure) float64) func(fleetRound) float64 {
		return func(r fleetRound) float64 { return of(r.Reference) }
	}
	rate := func(m fleetMeasure) float64 { return m.Settled.PerSecond }
	cpu := func(m fleetMeasure) float64 { return m.TaskCPUms }
	p50 := func(m fleetMeasure) float64 { return m.Offers.P50ms }
	p99 := func(m fleetMeasure) float64 { return m.Offers.P99ms }
	idle := func(m fleetMeasure) float64 { return m.IdleKiB }
	for _, s := range r.Sizes {
		rows = append(rows, []string{
			fmt.Sprint(s.Agents),
			fmt.Sprintf("%.0f", s.median(product(rate))), fmt.Sprintf("%.0f", s.median(reference(rate))),
			fmt.Sprintf("%.2f", s.median(func(r fleetRound) float64 { return r.Product.Settled.PerSecond / r.Reference.Settled.PerSecond })),
			fmt.Sprintf("%.3f", s.median(product(cpu))), fmt.Sprintf("%.2f", s.median(product(cpu))/r.Sizes[0].median(product(cpu))),
			fmt.Sprintf("%.2f ms", s.median(product(p50))), fmt.Sprintf("%.2f ms", s.median(product(p99))), fmt.Sprintf("%.2f ms", s.median(reference(p99))),
			fmt.Sprintf("%.3f", s.median(product(func(m fleetMeasure) float64 { return m.OfferCPUms }))),
			fmt.Sprintf("%.1f", s.median(product(idle))), fmt.Sprintf("%.1f", s.median(reference(idle))),
			fmt.Sprintf("%.0f, %.0f ms", s.median(func(r fleetRound) float64 { return float64(r.Real.Count) }), s.median(func(r fleetRound) float64 { return r.Real.P50ms })),
		})
	}
	return rows
}

// write puts the report, its table and its plot into dir; empty writes nothing.
func (r fleetReport) write(dir string) error {
	if dir == "" {
		return nil
	}
	report, err := json.Marshal(r, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	var table strings.Builder
	table.WriteString(r.heading() + "\n")
	for i, row := range r.rows() {
		table.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			table.WriteString("|" + strings.Repeat("---|", len(row)) + "\n")
		}
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "fleet.json"), append(report, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "fleet.md"), []byte(table.String()), 0o644),
		os.WriteFile(filepath.Join(dir, "fleet.svg"), r.plot(), 0o644),
	)
}
