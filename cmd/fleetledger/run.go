package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/agent/runner"
	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/projections"
)

const (
	envAllow = "FLEETLEDGER_ALLOW"
	// allowName is the file in the state directory that lists programs, one a line.
	allowName = "allow"
)

// runMemory is how much run may have in use before it collects what it can.
const runMemory = 64 << 20

// localRun is a run of the command run.
type localRun struct {
	argv            []string
	allow, tags     []string
	machine, state  string
	approval        string
	quiet           bool
	actor           string        // who asks, empty if this machine knows nobody yet
	client          *agent.Client // nil without one
	server          string
	place           runner.Place
	gate            events.RunGate
	gateID          string
	memory          *runner.Memory
	records         *agent.Records
	shown           []string // argv without its secrets: what is asked and sent
	tried           string
	outOfReach      error // why no relay answered
	hashesOnly      bool  // the fleet keeps no tails
	question        gateQuestion
	version         string
	stderr          printer
	log             *slog.Logger
	stdin, out, err *os.File
}

// gateQuestion is the command that a gate is asked about, and its approval bound to.
type gateQuestion struct {
	Argv []string `json:"argv"`
	Cwd  string   `json:"cwd"`
}

func (a *app) runCommand() *cobra.Command {
	r := localRun{}
	cmd := &cobra.Command{
		Use:   "run [--] COMMAND [ARG]...",
		Short: "Run a command here and now: gated, remembered, its exit code passed through",
		Long: strings.TrimSpace(`
Run a command on this machine. The gate is asked about task.submit.MACHINE, one line
tells what this command did before, and the command runs with this terminal, input,
environment and these signals; its exit code is passed through. The end of what it
prints is remembered, without secrets. A command that is not allowed, or that waits
for an approval, is not run: exit code 1.

MACHINE is the token's or the device's actor, or --machine for an agent that acts
under its machine. Whoever has neither and no server is told so and works offline.

With no server at hand only this machine's own allow-list decides: --allow,
FLEETLEDGER_ALLOW (names between commas) and the file allow in the state directory
(a name a line), each exactly as the command names its program. The record then says
gate: offline, and is sent by the next run or agent that reaches the server; once 10000
wait to be sent, a new one is remembered on this machine only, and it is said.`),
		Example: `  fleetledger run -- go test ./...
  fleetledger run --approval 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 -- make deploy`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if os.Getenv("GOGC") == "" {
				// It lives for milliseconds around the command, and allocates little: what
				// would be collected is worth less than looking for it.
				debug.SetGCPercent(-1)
				debug.SetMemoryLimit(runMemory)
			}
			r.argv, r.stderr, r.version = args, printer{a.err}, version()
			r.log = a.newLogger(slog.LevelWarn)
			r.stdin, r.out, r.err = os.Stdin, os.Stdout, os.Stderr
			if args[0] == "" {
				return misused("the command's first word is empty: name a program")
			}
			if r.machine != "" && !events.ValidID(r.machine) {
				return misused("--machine %q is not an id", r.machine)
			}
			if err := a.identify(cmd, &r); err != nil {
				return err
			}
			return r.run(cmd.Context())
		}),
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // what follows the command's name is the command's
	flags.StringVar(&r.machine, "machine", "", "the machine that this is (default: the actor that asks)")
	flags.StringVar(&r.state, "state", "", "state directory (default: as for fleetledger agent)")
	flags.StringArrayVar(&r.allow, "allow", nil, "program that may run when no server answers (repeat)")
	flags.StringArrayVar(&r.tags, "tag", nil, "a tag of the record (repeat)")
	flags.StringVar(&r.approval, "approval", "", "spend this granted approval of the same command")
	flags.BoolVarP(&r.quiet, "quiet", "q", false, "do not tell what was tried before")
	return cmd
}

// identify finds out who asks: by a token, else by the one device of this user,
// else by root's token beside the data. Nobody is no failure: then it is offline.
func (a *app) identify(cmd *cobra.Command, r *localRun) error {
	r.server = a.serverURL()
	token, err := "", error(nil)
	if a.tokenFile == "" && os.Getenv(envToken) == "" {
		device, dir, err := findDevice(r.machine, r.state)
		if err != nil {
			return err
		}
		if dir != "" {
			r.actor, r.state = device.Machine(), dir
			if r.client, err = agent.NewDeviceClient(r.server, device); err != nil {
				return &misuse{err.Error()}
			}
		}
	}
	if r.client == nil {
		token, err = a.token(cmd, r.server)
		switch {
		case err == nil:
			if r.client, err = agent.NewClient(r.server, token); err != nil {
				return &misuse{err.Error()}
			}
			if parts := strings.Split(token, "~"); len(parts) == 3 && events.ValidID(parts[1]) {
				r.actor = parts[1]
			}
		case a.tokenFile != "":
			return err
		default:
			r.outOfReach = err
		}
	}
	if r.machine == "" {
		r.machine = r.actor
	}
	if r.state == "" {
		name := r.machine
		if name == "" {
			name = nobody
		}
		if r.state, err = defaultState(name); err != nil {
			return err
		}
	}
	return nil
}

// nobody is the state directory of a user who has neither token nor device. Theirs
// is what it holds once they have one.
const nobody = "local"

// sendOrphans sends what was run here before anybody had a token.
func (r *localRun) sendOrphans(ctx context.Context) error {
	dir, err := defaultState(nobody)
	if err != nil {
		return nil // then there are none
	}
	_, err = agent.NewRecords(dir, r.log).Send(ctx, r.client, r.actor, catchUp)
	return err
}

// findDevice is the device in a state directory, or the only one that this user
// has. dir is empty if there is none.
func findDevice(machine, state string) (d agent.Device, dir string, err error) {
	dirs := []string{state}
	if state == "" {
		base, err := defaultState(machine)
		if err != nil {
			return d, "", nil // said when a place is needed
		}
		dirs = []string{base}
		if machine == "" {
			files, _ := filepath.Glob(filepath.Join(base, "*", "device.json")) // the pattern is well formed
			if len(files) != 1 {
				return d, "", nil
			}
			dirs = []string{filepath.Dir(files[0])}
		}
	}
	d, err = agent.LoadDevice(dirs[0])
	if errors.Is(err, os.ErrNotExist) {
		return d, "", nil
	}
	return d, dirs[0], err
}

// exitStatus ends this program with the exit code of another.
type exitStatus struct{ code int }

func (e *exitStatus) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func (r *localRun) run(ctx context.Context) error {
	r.memory, r.records = runner.NewMemory(r.state), agent.NewRecords(r.state, r.log)
	// First: git takes as long as the gate, and to know a secret takes a moment too.
	var placing sync.WaitGroup
	var placeErr error
	placing.Go(func() { r.place, placeErr = runner.Here(ctx) })
	r.shown, _ = secrets.MaskArgv(r.argv)
	for i, w := range r.shown {
		r.shown[i] = strings.ToValidUTF8(w, "\uFFFD")
	}
	err := r.look(ctx)
	placing.Wait()
	if err := errors.Join(err, placeErr); err != nil {
		return err
	}
	if r.gate == events.GateOffline {
		if err := r.mayOffline(); err != nil {
			return err
		}
	}
	if r.tried != "" && !r.quiet {
		r.stderr.f("%s\n", r.tried)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("nothing was run: %w", err)
	}
	env, code := runner.Attached{Argv: r.argv, Stdin: r.stdin, Stdout: r.out, Stderr: r.err}.Run(r.place)
	if env.Reason != "" {
		r.stderr.f("fleetledger run: %s\ntry: command -v %s\n", visible(env.Reason), visible(shellWord(r.argv[0])))
	}
	if env.Masked && code == 0 {
		r.stderr.f("fleetledger run: exit 0, masked: this command can exit 0 when a part of it failed\n")
	}
	// A signal has ended ctx, perhaps; the run is remembered all the same.
	r.remember(context.WithoutCancel(ctx), env)
	if code != 0 {
		return &exitStatus{code}
	}
	return nil
}

// gatePatience is how long a relay may take to answer before it counts as away.
const gatePatience = 3 * time.Second

// look asks all that is asked before the command, at once: the gate, what was
// tried, and what the fleet keeps.
func (r *localRun) look(ctx context.Context) (err error) {
	dir, _ := os.Getwd() // its failure is runner.Here's
	dir, _ = secrets.Mask(strings.ToValidUTF8(dir, "\uFFFD"))
	r.question = gateQuestion{Argv: r.shown, Cwd: dir}
	if r.client == nil {
		r.gate = events.GateOffline
		return nil
	}
	ask, cancel := context.WithTimeout(ctx, gatePatience)
	defer cancel()
	var work sync.WaitGroup
	if !r.quiet {
		work.Go(func() { r.tried = r.askTried(ask) })
	}
	work.Go(func() {
		// Without an answer the relay drops them.
		r.hashesOnly, _ = r.client.HashesOnly(ask)
	})
	err = r.askGate(ask)
	if away(err) {
		r.outOfReach, r.gate, err = err, events.GateOffline, nil
		cancel()
	}
	work.Wait()
	return err
}

// away reports whether no relay answered that could decide.
func away(err error) bool {
	if _, ok := errors.AsType[*agent.UnreachableError](err); ok {
		return true
	}
	p := problemIn(err)
	return p != nil && (p.Code == "" || p.Status >= 500)
}

// askGate asks whether this may run; nil means yes.
func (r *localRun) askGate(ctx context.Context) error {
	if r.machine != r.actor {
		if err := r.actsUnder(ctx); err != nil {
			return err
		}
	}
	if r.approval != "" {
		return r.spend(ctx)
	}
	resp, err := r.client.Do(ctx, agent.Request{Method: "POST", Path: "/v1/gates", Once: true, Body: struct {
		Action          string       `json:"action"`
		Command         gateQuestion `json:"command"`
		RequestApproval bool         `json:"request_approval"`
	}{"task.submit." + r.machine, r.question, true}})
	if err != nil {
		return err
	}
	var answer struct {
		GateID     string         `json:"gate_id"`
		Verdict    events.Verdict `json:"verdict"`
		ApprovalID string         `json:"approval_id"`
		Decisive   struct {
			Reason string `json:"reason"`
		} `json:"decisive"`
	}
	if err := resp.Decode(&answer); err != nil {
		return err
	}
	switch answer.Verdict {
	case events.Allow:
		r.gate, r.gateID = events.GateAllowed, answer.GateID
		return nil
	case events.NeedsApproval:
		return tryNext(fmt.Errorf("nothing was run: it waits for approval %s: %s", answer.ApprovalID, answer.Decisive.Reason),
			"once somebody has granted it: fleetledger run --approval "+visible(answer.ApprovalID)+" -- "+visible(projections.CommandLine(r.shown)))
	}
	return tryNext(fmt.Errorf("nothing was run: %s may not run commands on %s: %s", r.actor, r.machine, answer.Decisive.Reason), "fleetledger rules list")
}

// actsUnder refuses a machine whose runs the actor cannot record: nobody would know
// afterwards that this was run.
func (r *localRun) actsUnder(ctx context.Context) error {
	resp, err := r.client.Do(ctx, agent.Request{Method: "GET", Path: agent.Path("v1", "actors", r.actor), Once: true})
	if err != nil {
		return err
	}
	var me struct {
		Parent string `json:"parent"`
	}
	if err := resp.Decode(&me); err != nil {
		return err
	}
	if me.Parent != r.machine {
		return tryNext(fmt.Errorf("nothing was run: %s does not act under %s, and so cannot record what is run there", r.actor, r.machine),
			"fleetledger run -- "+visible(projections.CommandLine(r.shown)))
	}
	return nil
}

// spend uses the approval that was granted for this command.
func (r *localRun) spend(ctx context.Context) error {
	resp, err := r.client.Do(ctx, agent.Request{Method: "GET", Path: agent.Path("v1", "approvals", r.approval), Once: true})
	if err != nil {
		return err
	}
	var approval struct {
		GateID string `json:"gate_id"`
		TaskID string `json:"task_id"`
	}
	if err := resp.Decode(&approval); err != nil {
		return err
	}
	if approval.TaskID != "" {
		return tryNext(fmt.Errorf("nothing was run: approval %s is for task %s, which its grant opens", r.approval, approval.TaskID), "fleetledger task show "+visible(approval.TaskID))
	}
	// Not once only: what is spent and not answered would be lost.
	_, err = r.client.Do(ctx, agent.Request{Method: "POST", Path: agent.Path("v1", "gates", approval.GateID, "spend"), Body: struct {
		Command gateQuestion `json:"command"`
	}{r.question}})
	if err == nil {
		r.gate, r.gateID = events.GateAllowed, approval.GateID
	}
	return err
}

// askTried tells in one line what this very command did before.
func (r *localRun) askTried(ctx context.Context) string {
	line := projections.CommandLine(r.shown)
	resp, err := r.client.Do(ctx, agent.Request{Method: "GET", Path: "/v1/tried", Query: url.Values{"q": {line}, "limit": {"20"}}, Once: true})
	if err != nil {
		return "" // the gate's answer tells of it
	}
	var answer struct {
		Answers []tried `json:"answers"`
	}
	if resp.Decode(&answer) != nil {
		return ""
	}
	same := slices.DeleteFunc(answer.Answers, func(t tried) bool { return t.WhyMatched != "same_command" })
	if len(same) == 0 {
		return "not tried before"
	}
	return triedLine(same, time.Now())
}

// triedLine sums up the runs of one command in one line.
func triedLine(same []tried, now time.Time) string {
	var runs, succeeded, failed, masked int
	last := same[0]
	for _, t := range same {
		runs, succeeded, failed, masked = runs+t.Runs, succeeded+t.Succeeded, failed+t.Failed, masked+t.Masked
		if t.LastAt.After(last.LastAt) {
			last = t
		}
	}
	counts := fmt.Sprintf("%d succeeded, %d failed", succeeded, failed)
	if masked > 0 {
		counts += fmt.Sprintf(", %d with exit 0, masked", masked)
	}
	text := fmt.Sprintf("tried before: %s, %s; last %s ago on %s: %s", count(runs, "run"), counts, age(last.LastAt, now), last.Machine, last.end())
	// What another conclusion stands in place of is not what it meant.
	if i := slices.IndexFunc(last.Conclusions, func(c conclusion) bool { return c.SupersededBy == "" }); i >= 0 {
		c := last.Conclusions[i]
		said, _, _ := strings.Cut(strings.TrimSpace(c.Text), "\n")
		text += fmt.Sprintf("; %s concluded: %s", c.By, said)
	}
	return visible(text)
}

// mayOffline asks this machine's own allow-list.
func (r *localRun) mayOffline() error {
	why := "no server is known"
	if r.outOfReach != nil {
		why = r.outOfReach.Error()
	}
	if r.approval != "" {
		return tryNext(fmt.Errorf("nothing was run: an approval is spent at the server, and %s", why), "the same again later")
	}
	allow := slices.Clone(r.allow)
	for name := range strings.SplitSeq(os.Getenv(envAllow), ",") {
		if name = strings.TrimSpace(name); name != "" {
			allow = append(allow, name)
		}
	}
	listed, err := readAllow(filepath.Join(r.state, allowName))
	if err != nil {
		return err
	}
	policy, err := runner.NewPolicy(append(allow, listed...), nil)
	if err != nil {
		return misused("%s", err)
	}
	switch program, how, ok := policy.Permits(r.argv); {
	case ok:
	case how != "":
		return tryNext(fmt.Errorf("nothing was run: %s, and this machine's own allow-list does not permit %s like this: %s", why, visible(program), visible(how)),
			"the same again later")
	default:
		return tryNext(fmt.Errorf("nothing was run: %s, and this machine's own allow-list does not permit %s", why, visible(program)),
			"fleetledger run --allow "+visible(shellWord(program))+" -- "+visible(projections.CommandLine(r.shown)))
	}
	if full, ok := errors.AsType[*agent.FullError](r.records.Full()); ok {
		// Not even --quiet keeps this back: the fleet will not know of the run.
		r.stderr.f("offline: %s; this machine's allow-list permits it, and only this machine will remember it: %s\n", visible(why), visible(full.Error()))
	} else if !r.quiet {
		r.stderr.f("offline: %s; this machine's allow-list permits it, and it is sent later\n", visible(why))
	}
	return nil
}

// readAllow reads a list of programs, one a line; # begins a remark.
func readAllow(name string) (list []string, err error) {
	f, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("allow-list: %w", err)
	}
	defer f.Close()
	lines := bufio.NewScanner(io.LimitReader(f, 1<<20))
	for lines.Scan() {
		if line := strings.TrimSpace(lines.Text()); line != "" && !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	return list, lines.Err()
}

const (
	// recordPatience is how long a run that has ended waits for its record to be taken,
	// and catchUp how many older ones it sends along.
	recordPatience = 5 * time.Second
	catchUp        = 20
)

// remember keeps the run here and sends it. What fails is told, and changes nothing
// about how the run ended.
func (r *localRun) remember(ctx context.Context, env events.Envelope) {
	env.Machine, env.Transport, env.AgentVersion = r.machine, "run", r.version
	rec := events.MemoryRecord{Envelope: env, Argv: r.argv, Tags: r.tags, Gate: r.gate, GateID: r.gateID}
	// A state directory that cannot be made is told by what is not written to it.
	_ = os.MkdirAll(r.state, 0o700)
	rec.Memory = r.memory.Append(rec)
	if !rec.Memory.Written {
		r.stderr.f("fleetledger run: not remembered on this machine: %s (%s)\n", rec.Memory.ReasonCode, visible(r.state))
	}
	if r.hashesOnly {
		rec.Envelope = rec.Envelope.WithoutTails()
	}
	key, err := r.records.Put(r.actor, rec, r.gate == events.GateOffline)
	if err != nil && r.gate == events.GateOffline {
		r.stderr.f("fleetledger run: this run cannot be sent later: %s\n", visible(err.Error()))
		return
	}
	if r.gate == events.GateOffline {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, recordPatience)
	defer cancel()
	if err != nil { // no room for it: straight to the relay
		if sent := r.client.Remember(ctx, secrets.MaskRecord(rec), agent.NewKey()); sent != nil {
			r.stderr.f("fleetledger run: not recorded, and it cannot be sent later: %s; %s\n", visible(sent.Error()), visible(err.Error()))
			return
		}
		// It is recorded. If others took the room, they are sent now.
		if _, full := errors.AsType[*agent.FullError](err); full {
			_, err = r.records.Send(ctx, r.client, r.actor, catchUp)
		} else {
			err = nil
		}
	} else {
		_, err = r.records.Send(ctx, r.client, r.actor, 1+catchUp, key)
	}
	if err == nil {
		err = r.sendOrphans(ctx)
	}
	if err != nil {
		r.stderr.f("fleetledger run: not recorded yet: %s; the next run or agent sends it\n", visible(err.Error()))
	}
}
