package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/testing/load"
)

// soak is a run of bench soak.
type soak struct {
	duration, every time.Duration
	callers, agents int
	seed            uint64
	dir             string

	program, data, listen string
	server                *load.Process
	counts                soakReport
}

// soakReport is what a run did and found; with --json it is printed as it is.
type soakReport struct {
	Machine      benchMachine    `json:"machine"`
	Seed         uint64          `json:"seed"`
	DurationMS   int64           `json:"duration_ms"`
	Kills        int             `json:"relay_kills"`
	Restarts     int             `json:"relay_restarts"`
	AgentCrashes int             `json:"agent_crashes"`
	ClockSteps   int             `json:"clock_steps"`
	Done         load.SoakCounts `json:"done"`
	Check        load.SoakCheck  `json:"check"`
	Audit        soakAudit       `json:"audit"`
}

type soakAudit struct {
	OK        bool  `json:"ok"`
	Events    int   `json:"events"`
	Decisions int   `json:"decisions_rederived"`
	Findings  []any `json:"findings"`
}

func (a *app) benchSoakCommand() *cobra.Command {
	var s soak
	cmd := &cobra.Command{
		Use:   "soak [--duration D] [--seed N]",
		Short: "Keep a fleet busy while its relay, agents and clock misbehave, then audit it",
		Long: strings.TrimSpace(`
Have callers append, ask, settle, spend, run tasks and read for a while, while every
few seconds the relay is killed (kill -9) or restarted, an agent is killed, or the
relay's clock is stepped, forwards while it runs and either way between two of its
lives. Callers repeat what was not answered under the same key.

It ends with a count and an audit, of the view too: every acknowledged event must be in
the log, once and where it was acknowledged, every task settled once, and every recorded
decision come out the same again. Exit code 1 if anything was found.`),
		Example: `  fleetledger bench soak --duration 10m`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			switch {
			case s.duration <= 0 || s.every <= 0:
				return misused("--duration %v, --every %v: some time is needed", s.duration, s.every)
			case s.callers < 6 || s.callers > 1000:
				return misused("--callers %d: 6 to 1000, so that each kind of caller is there", s.callers)
			case s.agents < 1 || s.agents > 100:
				return misused("--agents %d: 1 to 100", s.agents)
			}
			return a.benchSoak(cmd.Context(), &s)
		}),
	}
	flags := cmd.Flags()
	flags.DurationVar(&s.duration, "duration", 2*time.Minute, "how long it is kept busy")
	flags.DurationVar(&s.every, "every", 3*time.Second, "time between two misfortunes, on average")
	flags.IntVar(&s.callers, "callers", 24, "callers at the same time")
	flags.IntVar(&s.agents, "agents", 3, "real agents")
	flags.Uint64Var(&s.seed, "seed", 1, "which misfortunes, and in what order")
	flags.StringVar(&s.dir, "dir", os.TempDir(), "where the temporary data goes")
	return cmd
}

func (a *app) benchSoak(ctx context.Context, s *soak) (err error) {
	if runtime.GOOS == "windows" {
		return errors.New("the soak runs the command true, which this system does not have")
	}
	if s.program, err = os.Executable(); err != nil {
		return fmt.Errorf("find this program, to start it as a server: %w", err)
	}
	if s.dir, err = filepath.Abs(s.dir); err == nil {
		s.dir, err = os.MkdirTemp(s.dir, "fleetledger-soak-")
	}
	if err != nil {
		return tryNext(err, "fleetledger bench soak --dir DIR")
	}
	defer func() { err = errors.Join(err, os.RemoveAll(s.dir)) }()
	s.data = filepath.Join(s.dir, "data")
	s.counts = soakReport{Seed: s.seed, DurationMS: s.duration.Milliseconds()}
	if s.counts.Machine, err = benchedMachine(s.dir); err != nil {
		return err
	}
	if s.listen, err = freeAddress(); err != nil {
		return err
	}
	if err := s.run(ctx, printer{a.err}); err != nil {
		if ctx.Err() != nil {
			return errors.New("broken off; the temporary data is removed")
		}
		return err
	}
	if a.json {
		err = a.printValue(s.counts)
	} else {
		s.counts.print(printer{a.out})
	}
	if err == nil && !(s.counts.Check.OK() && s.counts.Audit.OK) {
		err = errQuiet
	}
	return err
}

// freeAddress is one that every life of the relay listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (s *soak) run(ctx context.Context, progress printer) error {
	random := rand.New(rand.NewPCG(s.seed, 0))
	if err := s.start(ctx, 0, 0); err != nil {
		return err
	}
	defer func() { s.server.Kill() }()
	book, agents, err := s.found(ctx)
	if err != nil {
		return err
	}
	for _, ag := range agents {
		defer ag.kill()
	}

	busy, stop := context.WithTimeout(ctx, s.duration)
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- book.Work(busy, s.callers) }()
	for busy.Err() == nil {
		pause := s.every/2 + time.Duration(random.Int64N(int64(s.every)))
		select {
		case <-time.After(pause):
		case <-busy.Done():
			continue
		case err := <-worked:
			return fmt.Errorf("after %d kills and %d restarts: %w", s.counts.Kills, s.counts.Restarts, err)
		}
		did, err := s.misfortune(ctx, random, agents)
		if err != nil {
			return err
		}
		c := book.Counts()
		progress.f("%s; %d events acknowledged, %d requests unanswered, %d tasks\n", did, c.Acknowledged, c.Unanswered, c.Tasks)
	}
	if err := <-worked; err != nil {
		return err
	}
	s.counts.Done = book.Counts()
	if s.counts.Check, err = book.Check(ctx); err != nil {
		return err
	}
	s.server.Kill()
	return s.audit(ctx)
}

// start starts a life of the relay, whose clock is off by that much from its
// beginning and jumps ahead by jump a little later.
func (s *soak) start(ctx context.Context, off, jump time.Duration) (err error) {
	s.server, err = load.Start(ctx, s.program, "bench", "offset-serve", "--data", s.data, "--listen", s.listen,
		"--clock-offset", off.String(), "--clock-jump", jump.String())
	return err
}

// found makes the actors and rules of the soak and starts the agents.
func (s *soak) found(ctx context.Context) (*load.Soak, []*soakAgent, error) {
	token, err := os.ReadFile(rootTokenFile(s.data, defaultFleet))
	if err != nil {
		return nil, nil, err
	}
	base := "http://" + s.listen
	root, err := agent.NewClient(base, strings.TrimSpace(string(token)))
	if err != nil {
		return nil, nil, err
	}
	// Whoever is killed is missed soon.
	if _, err := root.Do(ctx, agent.Request{Method: "PATCH", Path: "/v1/settings", Body: map[string]int{
		"heartbeat_s": 1, "heartbeats_missed": 3, "grace_s": 1, "approvals_per_minute": 1_000_000, "fleet_approvals_per_minute": 1_000_000}}); err != nil {
		return nil, nil, err
	}
	if _, err := root.Post(ctx, "/v1/rules", map[string]any{"action": "soak.release", "min_level": 50}); err != nil {
		return nil, nil, err
	}
	register := func(id, kind string, level int) (*agent.Client, string, error) {
		resp, err := root.Post(ctx, "/v1/actors", map[string]any{"id": id, "kind": kind, "authority_level": level, "scopes": []string{}})
		if err != nil {
			return nil, "", err
		}
		var registered struct {
			Token string `json:"token"`
		}
		if err := resp.Decode(&registered); err != nil {
			return nil, "", err
		}
		c, err := agent.NewClient(base, registered.Token)
		return c, registered.Token, err
	}
	book := &load.Soak{Root: root, Run: fmt.Sprintf("soak-%d", s.seed)}
	if book.Captain, _, err = register("captain", "human", 60); err != nil {
		return nil, nil, err
	}
	if book.Worker, _, err = register("worker", "agent", 10); err != nil {
		return nil, nil, err
	}
	var agents []*soakAgent
	for i := range s.agents {
		machine := fmt.Sprintf("soak-%d", i+1)
		book.Machines = append(book.Machines, machine)
		_, token, err := register(machine, "machine", 10)
		if err != nil {
			return nil, agents, err
		}
		ag := &soakAgent{soak: s, machine: machine, token: filepath.Join(s.dir, machine+".token")}
		if err := os.WriteFile(ag.token, []byte(token+"\n"), 0o600); err != nil {
			return nil, agents, err
		}
		if err := ag.start(); err != nil {
			return nil, agents, err
		}
		agents = append(agents, ag)
	}
	return book, agents, nil
}

// soakAgent is a real agent, and its lives one after the other.
type soakAgent struct {
	soak           *soak
	machine, token string
	end            context.CancelFunc
	ended          sync.WaitGroup
}

func (ag *soakAgent) start() error {
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, ag.soak.program, "agent", "--machine", ag.machine, "--server", "http://"+ag.soak.listen, "--token-file", ag.token,
		"--allow", "true", "--root", ag.soak.dir, "--state", filepath.Join(ag.soak.dir, ag.machine))
	cmd.Dir, cmd.WaitDelay = ag.soak.dir, time.Second
	if err := cmd.Start(); err != nil {
		cancel()
		return err
	}
	ag.end = cancel
	ag.ended.Go(func() { _ = cmd.Wait() }) // it is killed
	return nil
}

func (ag *soakAgent) kill() {
	ag.end()
	ag.ended.Wait()
}

// maxClockOff bounds how far the relay's clock is off.
const maxClockOff = 10 * time.Minute

// misfortune has one happen and says which.
func (s *soak) misfortune(ctx context.Context, random *rand.Rand, agents []*soakAgent) (string, error) {
	if random.IntN(4) == 0 {
		ag := agents[random.IntN(len(agents))]
		ag.kill()
		s.counts.AgentCrashes++
		return "agent " + ag.machine + " was killed and started again", ag.start()
	}
	what := "the relay was restarted"
	if random.IntN(3) == 0 {
		if err := s.server.Stop(ctx); err != nil {
			return "", err
		}
		s.counts.Restarts++
	} else {
		what = "the relay was killed"
		s.server.Kill()
		s.counts.Kills++
	}
	var off, jump time.Duration
	if random.IntN(2) == 0 {
		off = time.Duration(random.Int64N(int64(2*maxClockOff))) - maxClockOff
		s.counts.ClockSteps++
	}
	if random.IntN(3) == 0 {
		jump = time.Duration(random.Int64N(int64(maxClockOff)))
		s.counts.ClockSteps++
	}
	if off != 0 || jump != 0 {
		what += fmt.Sprintf(", its clock %v off and %v more later", off.Round(time.Second), jump.Round(time.Second))
	}
	return what, s.start(ctx, off, jump)
}

// audit has the directory audited by this program, with no server.
func (s *soak) audit(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, s.program, "audit", "--data", s.data, "--view", "--json")
	out, err := cmd.Output()
	if _, found := errors.AsType[*exec.ExitError](err); err != nil && !found {
		return err
	}
	if err := json.Unmarshal(out, &s.counts.Audit); err != nil {
		return fmt.Errorf("the audit printed %q: %w", out, err)
	}
	return nil
}

func (r soakReport) print(p printer) {
	d := r.Done
	p.f("busy for %v (seed %d): relay killed %d times and restarted %d times, agents killed %d times, clock stepped %d times\n",
		time.Duration(r.DurationMS)*time.Millisecond, r.Seed, r.Kills, r.Restarts, r.AgentCrashes, r.ClockSteps)
	p.f("acknowledged %d events; %d requests went unanswered and were repeated, %d were repeated on purpose; %d tasks, %d approvals granted and spent, %d reads\n",
		d.Acknowledged, d.Unanswered, d.Retried, d.Tasks, d.Granted, d.Reads)
	p.f("in the log: %d events; missing %d, doubled %d, tasks not settled once %d\n", r.Check.Events, len(r.Check.Missing), len(r.Check.Doubled), len(r.Check.Unsettled))
	for _, list := range [][]string{r.Check.Missing, r.Check.Doubled, r.Check.Unsettled} {
		for _, l := range list {
			p.f("  %s\n", l)
		}
	}
	p.f("audit: ok %t, %d events, %d decisions made again, %d findings\n", r.Audit.OK, r.Audit.Events, r.Audit.Decisions, len(r.Audit.Findings))
}

// benchOffsetServeCommand is serve under a clock that is wrong; bench soak starts
// it.
func (a *app) benchOffsetServeCommand() *cobra.Command {
	f := serveFlags{}
	var off, jump time.Duration
	cmd := &cobra.Command{
		Use:     "offset-serve",
		Short:   "Serve under a clock that is off, as bench soak does",
		Example: `  fleetledger bench offset-serve --data soaked --listen 127.0.0.1:0 --clock-offset -5m --clock-jump 1m`,
		Hidden:  true,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			jumps := time.Now().Add(time.Second)
			a.now = func() time.Time {
				now := time.Now()
				if now.After(jumps) {
					return now.Add(off + jump)
				}
				return now.Add(off)
			}
			return a.serve(cmd.Context(), f)
		}),
	}
	cmd.Flags().StringVar(&f.listen, "listen", defaultListen, "address to listen on")
	cmd.Flags().DurationVar(&off, "clock-offset", 0, "how far the clock is off")
	cmd.Flags().DurationVar(&jump, "clock-jump", 0, "how far it jumps ahead a second later")
	return cmd
}
