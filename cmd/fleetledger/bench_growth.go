package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/testing/load"
)

// growthBench is a run of bench growth.
type growthBench struct {
	sizes    []int
	clients  int
	duration time.Duration
	dir      string

	program string // this one's file
}

func (a *app) benchGrowthCommand() *cobra.Command {
	var b growthBench
	cmd := &cobra.Command{
		Use:   "growth [--sizes N,...]",
		Short: "Measure appends, memory and the start after a crash as the log grows",
		Long: strings.TrimSpace(fmt.Sprintf(`
Let one log grow, and at each size measure single-event appends of %d bytes, the
server's memory (known on Linux only), and how long it takes from the start of the
program after a kill -9 under appends until it listens, its log's end verified.

The sizes are measured one after the other in one run, on the same data.`, load.EventBytes)),
		Example: `  fleetledger bench growth --sizes 100000,1000000,10000000 --dir /var/tmp`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			for i, n := range b.sizes {
				if n < 1000 || i > 0 && n <= b.sizes[i-1] {
					return misused("--sizes: each is at least 1000 and more than the one before")
				}
			}
			if len(b.sizes) == 0 || b.clients < 1 || b.duration <= 0 {
				return misused("--sizes, --clients and --duration: some of each are needed")
			}
			return a.benchGrowth(cmd.Context(), b)
		}),
	}
	flags := cmd.Flags()
	flags.IntSliceVar(&b.sizes, "sizes", []int{100_000, 1_000_000, 10_000_000}, "sizes to measure at, ascending")
	flags.IntVar(&b.clients, "clients", 64, "clients that append one event a request")
	flags.DurationVar(&b.duration, "duration", 5*time.Second, "how long appends are measured")
	flags.StringVar(&b.dir, "dir", os.TempDir(), "where the temporary data goes")
	return cmd
}

// growthReport is what a run found; with --json it is printed as it is.
type growthReport struct {
	Machine benchMachine `json:"machine"`
	Clients int          `json:"clients"`
	Sizes   []growthSize `json:"sizes"`
}

type growthSize struct {
	Events      int         `json:"events"`
	Append      load.Result `json:"append"`
	ResidentMiB float64     `json:"resident_mib"`
	// StartMS is until the server listens; FreshMiB its memory then.
	StartMS  float64 `json:"start_ms"`
	FreshMiB float64 `json:"fresh_mib"`
}

func (a *app) benchGrowth(ctx context.Context, b growthBench) (err error) {
	if b.program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, to start it as a server: %w", err)
	}
	if b.dir, err = os.MkdirTemp(b.dir, "fleetledger-bench-"); err != nil {
		return tryNext(err, "fleetledger bench growth --dir DIR")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	r := growthReport{Clients: b.clients}
	if r.Machine, err = benchedMachine(b.dir); err != nil {
		return err
	}
	data := filepath.Join(b.dir, "data")
	args := []string{"serve", "--data", data, "--listen", "127.0.0.1:0"}
	server, err := load.Start(ctx, b.program, args...)
	if err != nil {
		return err
	}
	defer func() { server.Kill() }()
	token, err := os.ReadFile(rootTokenFile(data, defaultFleet))
	if err != nil {
		return err
	}
	progress := printer{a.err}
	for _, size := range b.sizes {
		target := load.Target{Addr: server.Addr, Token: strings.TrimSpace(string(token))}
		s := growthSize{Events: size}
		if err := load.Grow(ctx, target, size); err != nil {
			return server.Explain(err)
		}
		if s.Append, err = load.Append(ctx, target, load.Options{Clients: b.clients, Batch: 1, Warmup: b.duration / 5, Duration: b.duration}); err != nil {
			return server.Explain(err)
		}
		s.ResidentMiB = residentMiB(server)

		// Killed while it is busy.
		busy, idle := context.WithCancel(ctx)
		appended := make(chan struct{})
		go func() {
			defer close(appended)
			_, _ = load.Append(busy, target, load.Options{Clients: b.clients, Batch: 1, Duration: time.Minute}) // it is broken off
		}()
		time.Sleep(b.duration / 5)
		server.Kill()
		idle()
		<-appended
		begun := time.Now()
		if server, err = load.Start(ctx, b.program, args...); err != nil {
			return err
		}
		s.StartMS = milliseconds(time.Since(begun))
		s.FreshMiB = residentMiB(server)
		r.Sizes = append(r.Sizes, s)
		progress.f("%d events: %.0f appends/s, p50 %.2f ms, p99 %.2f ms; %.0f MiB; started after kill -9 in %.0f ms with %.0f MiB\n",
			size, s.Append.PerSecond, s.Append.P50ms, s.Append.P99ms, s.ResidentMiB, s.StartMS, s.FreshMiB)
	}
	if a.json {
		return a.printValue(r)
	}
	r.print(printer{a.out})
	return nil
}

func residentMiB(p *load.Process) float64 {
	u, err := p.Usage()
	if err != nil {
		return 0
	}
	return float64(u.ResidentBytes) / (1 << 20)
}

func (r growthReport) print(p printer) {
	m := r.Machine
	p.f("%d cores, %s, %s; a 4 KiB write and its sync: %.3f ms (median); %d clients, one event a request\n\n", m.Cores, m.System, m.Go, m.SyncMS, r.Clients)
	rows := [][]string{{"EVENTS", "APPENDS/S", "P50", "P99", "OF THE FIRST'S", "MEMORY", "START AFTER KILL -9", "MEMORY THEN"}}
	for _, s := range r.Sizes {
		rows = append(rows, []string{
			fmt.Sprint(s.Events), fmt.Sprintf("%.0f", s.Append.PerSecond), fmt.Sprintf("%.2f ms", s.Append.P50ms), fmt.Sprintf("%.2f ms", s.Append.P99ms),
			fmt.Sprintf("%.2f", s.Append.P99ms/r.Sizes[0].Append.P99ms), fmt.Sprintf("%.0f MiB", s.ResidentMiB),
			fmt.Sprintf("%.0f ms", s.StartMS), fmt.Sprintf("%.0f MiB", s.FreshMiB),
		})
	}
	p.table(rows)
}
