package service

import (
	"os"
	"path/filepath"
	"strconv"
)

// File is the property list, and where it goes.
func (s Service) File() (File, error) {
	dir := "/Library/LaunchDaemons"
	if !s.System {
		home, err := os.UserHomeDir()
		if err != nil {
			return File{}, err
		}
		dir = filepath.Join(home, "Library", "LaunchAgents")
	}
	return File{Path: filepath.Join(dir, s.label()+".plist"), Content: s.Launchd()}, nil
}

// SystemState is the state directory of a service of the system.
func SystemState(machine string) string {
	return filepath.Join("/Library/Application Support/fleetledger", machine)
}

func (s Service) domain() string {
	if s.System {
		return "system"
	}
	return "gui/" + strconv.Itoa(os.Getuid())
}

func (s Service) starting(f File) [][]string {
	return [][]string{
		// One that is loaded already is taken out first; it need not be.
		{"sh", "-c", `launchctl bootout "$1" 2>/dev/null; exit 0`, "sh", s.domain() + "/" + s.label()},
		{"launchctl", "bootstrap", s.domain(), f.Path},
	}
}

func (s Service) stopping(File) [][]string {
	return [][]string{{"launchctl", "bootout", s.domain() + "/" + s.label()}}
}

func (s Service) forgetting() [][]string { return nil }

// Advice is what else whoever installs a service may want to know.
func (s Service) Advice() string { return "its log is " + filepath.Join(s.State, "agent.log") }
