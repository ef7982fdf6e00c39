// Package service makes an agent a service of its system, which starts it with the
// system or the user's session and again when it ends: systemd on Linux, launchd on
// macOS, the Task Scheduler on Windows.
//
//	s := service.Service{Machine: "m1", Program: "/usr/local/bin/fleetledger", Args: []string{"agent", "--machine", "m1"}, State: dir}
//	file, err := s.File()          // where it is described, and how
//	err = s.Install(ctx)           // written and started
//
// The agent runs without privileges: as the user who installs it, or, as a service
// of the whole system, as one that is named. What describes it (systemd.go,
// launchd.go, task.go) is made on every system and so tested on every system; what
// writes it and calls the manager is in a file for each (manage_*.go).
package service

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Service is an agent as it is started.
type Service struct {
	// Machine is the id of the machine, by which the service is named.
	Machine string
	// Program is the absolute path of fleetledger, and Args what follows it.
	Program string
	Args    []string
	// State is the agent's state directory, an absolute path.
	State string
	// Path is the PATH that the agent finds programs by.
	Path string
	// Stop is how long the agent may take to stop.
	Stop time.Duration
	// System is true for a service of the whole system, which runs as User; else it
	// is the user's own.
	System bool
	User   string
}

// Name is the service's name.
func (s Service) Name() string { return "fleetledger-agent-" + s.Machine }

// File is what describes a service to its manager.
type File struct {
	Path    string
	Content []byte
}

// Check refuses what no manager could be told.
func (s Service) Check() error {
	if s.System && s.User == "" {
		return errors.New("a service of the system needs a user to run as, one without privileges")
	}
	if s.System && s.User == "root" {
		return errors.New("the agent does not run as root: name a user without privileges")
	}
	for _, text := range append([]string{s.Program, s.State, s.Path, s.User}, s.Args...) {
		if strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r == 0x7f || r == '\uFFFD' }) {
			return fmt.Errorf("%q holds a character that a service's description cannot", text)
		}
	}
	for _, path := range []string{s.Program, s.State} {
		if !filepath.IsAbs(path) {
			return fmt.Errorf("%s is not an absolute path", path)
		}
	}
	return nil
}

// ErrNotInstalled says that there is nothing to take away.
var ErrNotInstalled = errors.New("it is not installed")

// CommandError is a call of the service's manager that failed.
type CommandError struct {
	Args   []string
	Output string
	Err    error
}

func (e *CommandError) Error() string {
	text := fmt.Sprintf("%s: %v", strings.Join(e.Args, " "), e.Err)
	if out := strings.TrimSpace(e.Output); out != "" {
		text += ": " + out
	}
	return text
}

func (e *CommandError) Unwrap() error { return e.Err }

// Install describes the service to its manager, in place of what was there, and
// starts it. With a *CommandError the file is in its place and the service is not
// started.
func (s Service) Install(ctx context.Context) (File, error) {
	if err := s.Check(); err != nil {
		return File{}, err
	}
	f, err := s.File()
	if err != nil {
		return f, err
	}
	if err := os.MkdirAll(filepath.Dir(f.Path), 0o755); err != nil {
		return f, err
	}
	if err := os.WriteFile(f.Path, f.Content, 0o644); err != nil {
		return f, err
	}
	if err := s.giveState(); err != nil {
		return f, err
	}
	return f, each(ctx, s.starting(f))
}

// giveState gives the state directory of a service of the system, which whoever
// installs it has filled, to the user that it runs as.
func (s Service) giveState() error {
	if !s.System || runtime.GOOS == "windows" {
		return nil
	}
	u, err := user.Lookup(s.User)
	if err != nil {
		return err
	}
	uid, errU := strconv.Atoi(u.Uid)
	gid, errG := strconv.Atoi(u.Gid)
	if err := errors.Join(errU, errG); err != nil {
		return err
	}
	return filepath.WalkDir(s.State, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, gid)
	})
}

// Uninstall stops the service and takes its description away. Its state stays. With
// a *CommandError the file is gone, but the service may run on.
func (s Service) Uninstall(ctx context.Context) (File, error) {
	f, err := s.File()
	if err != nil {
		return f, err
	}
	if _, err := os.Stat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return f, ErrNotInstalled
	}
	stopped := each(ctx, s.stopping(f))
	if err := os.Remove(f.Path); err != nil {
		return f, err
	}
	if stopped != nil {
		return f, stopped
	}
	return f, each(ctx, s.forgetting())
}

func each(ctx context.Context, commands [][]string) error {
	for _, args := range commands {
		out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput()
		if err != nil {
			return &CommandError{Args: args, Output: string(out), Err: err}
		}
	}
	return nil
}
