package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/testing/load"
)

// machineBench measures what a machine pays: for a command that is run here, and for
// an agent that waits.
type machineBench struct {
	rounds int
	dir    string
	idle   time.Duration

	program string // this one's file
	server  *load.Process
}

// spread is what was measured, in milliseconds.
type spread struct {
	P50 float64 `json:"p50_ms"`
	P99 float64 `json:"p99_ms"`
}

func spreadOf(list []time.Duration) spread {
	sorted := slices.Sorted(slices.Values(list))
	at := func(q float64) float64 {
		return float64(sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]) / float64(time.Millisecond)
	}
	return spread{at(0.5), at(0.99)}
}

func (s spread) String() string { return fmt.Sprintf("%.2f ms (p99 %.2f)", s.P50, s.P99) }

// open starts a server on new data; close is to be called whatever comes.
func (b *machineBench) open(ctx context.Context) (close func() error, err error) {
	if b.rounds < 1 {
		return nil, misused("--rounds %d: at least 1", b.rounds)
	}
	if b.program, err = os.Executable(); err != nil {
		return nil, fmt.Errorf("find this program, to start it: %w", err)
	}
	if b.dir, err = os.MkdirTemp(b.dir, "fleetledger-bench-"); err != nil {
		return nil, tryNext(err, "the same with --dir DIR")
	}
	if b.dir, err = filepath.Abs(b.dir); err != nil { // the commands run in it
		return nil, err
	}
	if b.server, err = load.Start(ctx, b.program, "serve", "--data", filepath.Join(b.dir, "data"), "--listen", "127.0.0.1:0"); err != nil {
		return nil, errors.Join(err, os.RemoveAll(b.dir))
	}
	return func() error {
		b.server.Kill()
		return os.RemoveAll(b.dir)
	}, nil
}

// command is this program's, at the server that is measured.
func (b *machineBench) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, b.program, args...)
	cmd.Dir = b.dir
	cmd.Env = append(os.Environ(), envServer+"=http://"+b.server.Addr, envToken+"=", "XDG_STATE_HOME="+filepath.Join(b.dir, "state"))
	return cmd
}

func (a *app) benchRunCommand() *cobra.Command {
	b := machineBench{}
	cmd := &cobra.Command{
		Use:   "run [--rounds N] [-- COMMAND]",
		Short: "Measure what fleetledger run adds to a command",
		Long: `Measure a command (true, if none is named) by itself and under fleetledger run, in
turn, with a server of its own: the gate asked, what was tried before told, the record
durable on both sides. What is added is the median of the rounds' own differences.`,
		Example: `  fleetledger bench run
  fleetledger bench run --rounds 200 -- git status`,
		RunE: a.does(func(cmd *cobra.Command, args []string) (err error) {
			if len(args) == 0 {
				args = []string{"true"}
			}
			ctx := cmd.Context()
			end, err := b.open(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, end()) }()
			var bare, under, added []time.Duration
			const warm = 3
			for i := range b.rounds + warm {
				alone, err := timed(exec.CommandContext(ctx, args[0], args[1:]...))
				if err != nil {
					return fmt.Errorf("%s: %w", args[0], err)
				}
				c := b.command(ctx, append([]string{"run", "--token-file", filepath.Join("data", rootTokenName), "--"}, args...)...)
				run, err := timed(c)
				if err != nil {
					return fmt.Errorf("fleetledger run: %w", err)
				}
				if i >= warm {
					bare, under, added = append(bare, alone), append(under, run), append(added, run-alone)
				}
			}
			r := struct {
				Machine benchMachine `json:"machine"`
				Command []string     `json:"command"`
				Rounds  int          `json:"rounds"`
				Bare    spread       `json:"bare"`
				Under   spread       `json:"under_run"`
				Added   spread       `json:"added"`
			}{Command: args, Rounds: b.rounds, Bare: spreadOf(bare), Under: spreadOf(under), Added: spreadOf(added)}
			if r.Machine, err = benchedMachine(b.dir); err != nil {
				return err
			}
			if a.json {
				return a.printValue(r)
			}
			p := printer{a.out}
			r.Machine.print(p)
			p.f("%s, %d times each, in turn\n", visible(strings.Join(args, " ")), b.rounds)
			p.f("  by itself              %s\n  under fleetledger run  %s\n  added                  %s\n", r.Bare, r.Under, r.Added)
			return nil
		}),
	}
	cmd.Flags().IntVar(&b.rounds, "rounds", 100, "how often each is measured")
	cmd.Flags().StringVar(&b.dir, "dir", os.TempDir(), "where the temporary data goes")
	return cmd
}

// timed runs a command to its end and tells how long that took.
func timed(cmd *exec.Cmd) (time.Duration, error) {
	began := time.Now()
	err := cmd.Run()
	return time.Since(began), err
}

func (a *app) benchAgentCommand() *cobra.Command {
	b := machineBench{}
	cmd := &cobra.Command{
		Use:   "agent [--rounds N] [--idle D]",
		Short: "Measure how fast an agent starts, and what it takes while it waits",
		Long: `Measure how long an agent takes from its start until the server sends it offers, beside
fleetledger version, which only starts and ends; and how much memory it has in use
after it has waited.`,
		Example: `  fleetledger bench agent`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			end, err := b.open(ctx)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, end()) }()
			token, err := b.register(ctx)
			if err != nil {
				return err
			}
			var starts, versions []time.Duration
			resident := int64(0)
			for i := range b.rounds {
				version, err := timed(b.command(ctx, "version"))
				if err != nil {
					return err
				}
				idle := time.Duration(0)
				if i == b.rounds-1 {
					idle = b.idle
				}
				start, bytes, err := b.waiting(ctx, token, idle)
				if err != nil {
					return err
				}
				starts, versions, resident = append(starts, start), append(versions, version), bytes
			}
			r := struct {
				Machine       benchMachine `json:"machine"`
				Rounds        int          `json:"rounds"`
				Start         spread       `json:"start"`
				Version       spread       `json:"version"`
				IdleMS        int64        `json:"idle_ms"`
				ResidentBytes int64        `json:"resident_bytes"` // 0 where the system does not tell
			}{Rounds: b.rounds, Start: spreadOf(starts), Version: spreadOf(versions), IdleMS: b.idle.Milliseconds(), ResidentBytes: resident}
			if r.Machine, err = benchedMachine(b.dir); err != nil {
				return err
			}
			if a.json {
				return a.printValue(r)
			}
			p := printer{a.out}
			r.Machine.print(p)
			p.f("an agent, %d times\n  from start to offers   %s\n  fleetledger version    %s\n", r.Rounds, r.Start, r.Version)
			if resident > 0 {
				p.f("  memory after %v idle   %.1f MiB\n", b.idle, float64(resident)/(1<<20))
			}
			return nil
		}),
	}
	cmd.Flags().IntVar(&b.rounds, "rounds", 20, "how often it is started")
	cmd.Flags().DurationVar(&b.idle, "idle", 3*time.Second, "how long the last one waits")
	cmd.Flags().StringVar(&b.dir, "dir", os.TempDir(), "where the temporary data goes")
	return cmd
}

// register makes the machine and returns the file of its token.
func (b *machineBench) register(ctx context.Context) (file string, err error) {
	token, err := os.ReadFile(rootTokenFile(filepath.Join(b.dir, "data"), defaultFleet))
	if err != nil {
		return "", err
	}
	client, err := agent.NewClient("http://"+b.server.Addr, strings.TrimSpace(string(token)))
	if err != nil {
		return "", err
	}
	level := 10
	resp, err := client.Post(ctx, "/v1/actors", registerActor{ID: "m1", Kind: "machine", AuthorityLevel: &level, Scopes: []string{}})
	if err != nil {
		return "", err
	}
	var answer struct {
		Token string `json:"token"`
	}
	if err := resp.Decode(&answer); err != nil {
		return "", err
	}
	file = filepath.Join(b.dir, "m1.token")
	return file, os.WriteFile(file, []byte(answer.Token), 0o600)
}

// waiting starts an agent, lets it wait, and ends it.
func (b *machineBench) waiting(ctx context.Context, token string, idle time.Duration) (start time.Duration, resident int64, err error) {
	ctx, kill := context.WithCancel(ctx)
	defer kill()
	cmd := b.command(ctx, "agent", "--machine", "m1", "--token-file", token, "--allow", "true")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	defer func() {
		kill()
		_ = cmd.Wait() // it was killed
	}()
	lines := bufio.NewScanner(stderr)
	said := ""
	for lines.Scan() {
		if strings.Contains(lines.Text(), `msg="taking offers"`) {
			start = time.Since(began)
			break
		}
		said = lines.Text()
	}
	if start == 0 {
		return 0, 0, fmt.Errorf("the agent did not come to take offers: %s", said)
	}
	select {
	case <-time.After(idle):
	case <-ctx.Done():
		return 0, 0, ctx.Err()
	}
	u, err := load.UsageOf(cmd.Process.Pid)
	if errors.Is(err, errors.ErrUnsupported) {
		err = nil
	}
	return start, u.ResidentBytes, err
}
