package main

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/agent/runner"
	"fleetledger/agent/service"
	"fleetledger/events"
)

func (a *app) agentInstallCommand() *cobra.Command {
	var f agentFlags
	var system, show bool
	var as string
	cmd := &cobra.Command{
		Use:   "install --machine ID|--pair CODE [--system --user NAME] [--print] [AGENT FLAG]...",
		Short: "Make this machine's agent a service that the system starts",
		Long: strings.TrimSpace(`
Make the agent a service, with the flags given here: of this user (a unit of systemd,
an agent of launchd, a task of the Windows scheduler), or with --system of the whole
system, where it runs as --user, never as root. It is started at once, again when it
ends, and at each login or start of the system.

The agent's credentials are a file (--token-file) or the key of its device: --pair
redeems a code now. A description of a service is no place for secrets, so it has
none. The PATH of this shell is what the agent finds programs by.

--print shows the description and changes nothing.`),
		Example: `  fleetledger agent install --pair default~m1~7h4kq2... --allow go --root /srv/project
  fleetledger agent install --machine m1 --token-file m1.token --allow go --print
  sudo fleetledger agent install --pair CODE --system --user build --allow go --root /srv/project`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if as != "" && !system {
				return misused("--user is for --system: without it the service is yours")
			}
			s, err := a.service(f, system, as)
			if err != nil {
				return err
			}
			if err := s.Check(); err != nil {
				return misused("%s", err)
			}
			if show {
				file, err := s.File()
				if err != nil {
					return err
				}
				printer{a.err}.f("%s would hold:\n", file.Path)
				_, err = a.out.Write(file.Content)
				return err
			}
			if err := a.credentials(cmd, f, s); err != nil {
				return err
			}
			file, err := s.Install(cmd.Context())
			if c, ok := errors.AsType[*service.CommandError](err); ok {
				return tryNext(fmt.Errorf("%s is written, but the service could not be started: %w", file.Path, err), strings.Join(c.Args, " "))
			}
			if err != nil {
				return err
			}
			if a.json {
				return a.printValue(struct {
					Service string `json:"service"`
					File    string `json:"file"`
					State   string `json:"state"`
				}{s.Name(), file.Path, s.State})
			}
			p := printer{a.out}
			p.f("%s is installed and started\n  file    %s\n  state   %s\n", s.Name(), file.Path, s.State)
			printer{a.err}.f("see: %s\n", s.Advice())
			return nil
		}),
	}
	f.add(cmd)
	cmd.Flags().BoolVar(&system, "system", false, "a service of the whole system, not of this user")
	cmd.Flags().StringVar(&as, "user", "", "with --system: the user without privileges that the agent runs as")
	cmd.Flags().BoolVar(&show, "print", false, "show what would be installed, and install nothing")
	return cmd
}

func (a *app) agentUninstallCommand() *cobra.Command {
	var machine string
	var system bool
	cmd := &cobra.Command{
		Use:   "uninstall --machine ID [--system]",
		Short: "Stop the agent's service and take it away",
		Long: `Stop the agent's service and take its description away. The state directory stays: it
has the machine's memory, what is not reported yet, and the key of its device.`,
		Example: `  fleetledger agent uninstall --machine m1`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if !events.ValidID(machine) {
				return misused("--machine %q is not an id", machine)
			}
			state, err := serviceState("", machine, system)
			if err != nil {
				return err
			}
			s := service.Service{Machine: machine, State: state, System: system}
			file, err := s.Uninstall(cmd.Context())
			if errors.Is(err, service.ErrNotInstalled) {
				return tryNext(fmt.Errorf("there is no service %s: %s is not there", s.Name(), file.Path), "fleetledger agent uninstall --machine "+machine+" --system, or without it")
			}
			if c, ok := errors.AsType[*service.CommandError](err); ok {
				return tryNext(fmt.Errorf("%s is gone, but the service may run on: %w", file.Path, err), strings.Join(c.Args, " "))
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.Name(), err)
			}
			if a.json {
				return a.printValue(struct {
					Service string `json:"service"`
					File    string `json:"file"`
				}{s.Name(), file.Path})
			}
			printer{a.out}.f("%s is stopped and taken away; its state stays in %s\n", s.Name(), state)
			return nil
		}),
	}
	cmd.Flags().StringVar(&machine, "machine", "", "id of this machine")
	cmd.Flags().BoolVar(&system, "system", false, "the service of the whole system")
	return cmd
}

// service describes the agent that the flags are of.
func (a *app) service(f agentFlags, system bool, as string) (service.Service, error) {
	var s service.Service
	program, err := os.Executable()
	if err != nil {
		return s, err
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		return s, err
	}
	if strings.Contains(program, "go-build") {
		return s, tryNext(errors.New("this program is a temporary one that go run has made"), "go build -o fleetledger ./cmd/fleetledger, then ./fleetledger agent install")
	}
	if _, err := runner.NewPolicy(f.allow, f.roots); err != nil {
		return s, err
	}
	state, err := serviceState(f.state, f.machine, system)
	if err != nil {
		return s, err
	}
	// From here on relative paths would be those of the service.
	args := []string{"agent", "--machine", f.machine, "--server", a.serverURL(), "--state", state}
	if a.tokenFile != "" {
		name, err := filepath.Abs(a.tokenFile)
		if err != nil {
			return s, err
		}
		args = append(args, "--token-file", name)
	}
	for _, name := range f.allow {
		args = append(args, "--allow", name)
	}
	roots := f.roots
	if len(roots) == 0 {
		roots = []string{"."}
	}
	for _, dir := range roots {
		if dir, err = filepath.Abs(dir); err != nil {
			return s, err
		}
		args = append(args, "--root", dir)
	}
	if f.parallel != 1 {
		args = append(args, "--parallel", strconv.Itoa(f.parallel))
	}
	if f.drain > 0 {
		args = append(args, "--drain", f.drain.String())
	}
	if system && as == "" {
		as = os.Getenv("SUDO_USER")
	}
	if system && as != "" {
		// Found now, not when the service fails to start.
		if u, err := user.Lookup(as); err != nil {
			return s, fmt.Errorf("--user %s: %w", as, err)
		} else if u.Uid == "0" {
			as = "root" // by another name: refused as such
		}
	}
	const farewell = 20 * time.Second // what the agent takes to stop, reports included
	return service.Service{
		Machine: f.machine, Program: program, Args: args, State: state, Path: os.Getenv("PATH"), Stop: f.drain + farewell, System: system, User: as,
	}, nil
}

// serviceState is the absolute state directory of a service.
func serviceState(state, machine string, system bool) (string, error) {
	if state == "" && system {
		return service.SystemState(machine), nil
	}
	if state == "" {
		var err error
		if state, err = defaultState(machine); err != nil {
			return "", err
		}
	}
	return filepath.Abs(state)
}

// credentials sees to it that the service has some.
func (a *app) credentials(cmd *cobra.Command, f agentFlags, s service.Service) error {
	if f.code != "" {
		_, err := a.pair(cmd, f.code, s.State)
		return err
	}
	if a.tokenFile != "" {
		_, err := a.token(cmd, a.serverURL())
		return err
	}
	device, err := agent.LoadDevice(s.State)
	if errors.Is(err, os.ErrNotExist) {
		return tryNext(fmt.Errorf("the agent of %s would have no credentials: there is no device in %s, and a service's description is no place for a token", f.machine, s.State),
			"fleetledger agent install --pair CODE, with a code of fleetledger actors pair "+f.machine+", or --token-file FILE")
	}
	if err == nil && device.Machine() != f.machine {
		err = fmt.Errorf("%s holds the device of %s, not of %s", s.State, device.Machine(), f.machine)
	}
	return err
}
