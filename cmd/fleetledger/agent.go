package main

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/agent/runner"
	"fleetledger/events"
)

// agentFlags say what an agent is and may do.
type agentFlags struct {
	machine, state, code string
	allow, roots         []string
	parallel             int
	drain                time.Duration
}

func (f *agentFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.machine, "machine", "", "id of this machine")
	flags.StringVar(&f.code, "pair", "", "redeem this pairing code first")
	flags.StringArrayVar(&f.allow, "allow", nil, "program that may be run, as tasks name it (repeat)")
	flags.StringArrayVar(&f.roots, "root", nil, "directory under which commands may run (repeat; default: the working directory)")
	flags.StringVar(&f.state, "state", "", "state directory (default: fleetledger/MACHINE in the user's configuration directory)")
	flags.DurationVar(&f.drain, "drain", 0, "how long running commands may go on when the agent is to stop")
	flags.IntVar(&f.parallel, "parallel", 1, "how many commands run at once")
}

// check refuses flags that cannot be meant, and completes the machine.
func (f *agentFlags) check() error {
	if f.code != "" {
		named, err := pairedMachine(f.code)
		if err != nil {
			return err
		}
		if f.machine != "" && f.machine != named {
			return misused("--pair is a code for %s, not for %s", named, f.machine)
		}
		f.machine = named
	}
	switch {
	case f.machine == "":
		return misused("which machine is this? Give --machine ID, or --pair CODE")
	case !events.ValidID(f.machine):
		return misused("--machine %q is not an id", f.machine)
	case f.drain < 0:
		return misused("--drain is a duration such as 30s")
	case f.parallel < 1:
		return misused("--parallel is at least 1")
	}
	return nil
}

func (a *app) agentCommand() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent --machine ID|--pair CODE [--allow PROGRAM]... [--root DIR]...",
		Short: "Take this machine's offers, run them and report",
		Long: strings.TrimSpace(`
Take the offers of one machine, run what its allow-list permits, and report how it
ended. It runs until SIGTERM or SIGINT: then it takes nothing more, lets what is
running go on for --drain, stops the rest and reports that as cancelled. A second
signal ends it at once.

A program runs only if --allow names it exactly as the task does, without a shell
unless the list names the shell, in a directory under a --root (default: the
working directory). The list is no sandbox: what is allowed has this user's rights.

With --pair it first redeems a code of fleetledger actors pair: it makes a key, keeps
it in the state directory (device.json, for you alone), and signs its requests with
it, now and whenever it is started without a token.

The state directory keeps memory.jsonl, what this machine ran, and outbox/, what is
not reported yet: reports wait there for a relay that is away, over restarts of
either side. It is one agent's alone. An agent that is killed takes the command with
it (Linux, Windows); what else is left of it the next start ends, by the note of it in
started/.`),
		Example: `  fleetledger agent --machine m1 --token-file m1.token --allow go --allow git --root /srv/project
  fleetledger agent --pair default~m1~7h4kq2... --allow go --root /srv/project`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			policy, err := runner.NewPolicy(f.allow, f.roots)
			if err != nil {
				return err
			}
			if f.state == "" {
				if f.state, err = defaultState(f.machine); err != nil {
					return err
				}
			}
			client, err := a.machineClient(cmd, f.machine, f.state, f.code)
			if err != nil {
				return err
			}
			logger := a.newLogger(slog.LevelInfo)
			if len(f.allow) == 0 {
				logger.Warn("this machine allows no program: every task is refused; start the agent with --allow PROGRAM")
			}
			worker, err := agent.New(client, agent.Config{
				Machine: f.machine, Policy: policy, StateDir: f.state, Version: version(), Parallel: f.parallel, Drain: f.drain, Logger: logger,
			})
			if err != nil {
				return tryNext(err, "a directory of its own, that can be written to, with --state DIR")
			}
			err = worker.Run(cmd.Context())
			if p, ok := errors.AsType[*agent.Problem](err); ok && (p.Status == 401 || p.Status == 403) {
				return tryNext(fmt.Errorf("the relay does not let this agent take the offers of %s: %w", f.machine, err),
					"fleetledger actors pair "+f.machine+", then fleetledger agent --pair CODE; or fleetledger actors register "+f.machine+" --kind machine --level 10 --save-token "+f.machine+".token, then give that file with --token-file")
			}
			return err
		}),
	}
	f.add(cmd)
	cmd.AddCommand(a.agentInstallCommand(), a.agentUninstallCommand())
	return cmd
}

// pairedMachine is the machine that a pairing code is for.
func pairedMachine(code string) (string, error) {
	parts := strings.Split(code, "~")
	if len(parts) != 3 || !events.ValidID(parts[1]) {
		return "", misused("--pair: this is not a pairing code: it looks like default~m1~7h4kq2...")
	}
	return parts[1], nil
}

// machineClient returns the client of a machine: with the token that flags or
// environment give, else as the device in its state directory.
func (a *app) machineClient(cmd *cobra.Command, machine, state, code string) (*agent.Client, error) {
	var device agent.Device
	var err error
	switch {
	case code != "":
		device, err = a.pair(cmd, code, state)
	case a.tokenFile == "" && os.Getenv(envToken) == "":
		device, err = agent.LoadDevice(state)
		if errors.Is(err, fs.ErrNotExist) {
			return a.client(cmd)
		}
	default:
		return a.client(cmd)
	}
	if err != nil {
		return nil, err
	}
	if device.Machine() != machine {
		return nil, tryNext(fmt.Errorf("%s holds the device of %s, not of %s", state, device.Machine(), machine), "another --state for each machine")
	}
	c, err := agent.NewDeviceClient(a.serverURL(), device)
	if err != nil {
		return nil, &misuse{err.Error()}
	}
	return c, nil
}

// defaultState lies outside of the working directory: state beside a checkout
// would make every run in it look dirty.
func defaultState(machine string) (string, error) {
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "fleetledger", machine), nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", tryNext(fmt.Errorf("no place for the agent's state: %w", err), "name one with --state DIR")
	}
	return filepath.Join(dir, "fleetledger", machine), nil
}
