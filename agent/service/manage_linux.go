package service

import (
	"os"
	"path/filepath"
)

// File is the unit, and where it goes.
func (s Service) File() (File, error) {
	dir := "/etc/systemd/system"
	if !s.System {
		config, err := os.UserConfigDir()
		if err != nil {
			return File{}, err
		}
		dir = filepath.Join(config, "systemd", "user")
	}
	return File{Path: filepath.Join(dir, s.Name()+".service"), Content: s.Systemd()}, nil
}

// SystemState is the state directory of a service of the system.
func SystemState(machine string) string { return filepath.Join("/var/lib", systemdState, machine) }

func (s Service) systemctl(args ...string) []string {
	if s.System {
		return append([]string{"systemctl"}, args...)
	}
	return append([]string{"systemctl", "--user"}, args...)
}

func (s Service) starting(File) [][]string {
	// Restarted, not only started: one that runs may be of an earlier description.
	return [][]string{s.systemctl("daemon-reload"), s.systemctl("enable", s.Name()), s.systemctl("restart", s.Name())}
}

func (s Service) stopping(File) [][]string {
	return [][]string{s.systemctl("disable", "--now", s.Name())}
}

func (s Service) forgetting() [][]string { return [][]string{s.systemctl("daemon-reload")} }

// Advice is what else whoever installs a service may want to know.
func (s Service) Advice() string {
	if s.System {
		return "journalctl -u " + s.Name()
	}
	return "journalctl --user -u " + s.Name() + "; to have it run while you are not logged in: loginctl enable-linger"
}
