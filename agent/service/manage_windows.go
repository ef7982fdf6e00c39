package service

import (
	"os"
	"path/filepath"
)

// File is the task, and where it is kept beside the state: the scheduler has its
// own copy.
func (s Service) File() (File, error) {
	return File{Path: filepath.Join(s.State, s.Name()+".xml"), Content: s.Task()}, nil
}

// SystemState is the state directory of a service of the system.
func SystemState(machine string) string {
	return filepath.Join(os.Getenv("ProgramData"), "fleetledger", machine)
}

func (s Service) starting(f File) [][]string {
	return [][]string{{"schtasks", "/Create", "/TN", s.Name(), "/XML", f.Path, "/F"}, {"schtasks", "/Run", "/TN", s.Name()}}
}

func (s Service) stopping(File) [][]string {
	// Deleting it does not end what runs.
	return [][]string{{"schtasks", "/End", "/TN", s.Name()}, {"schtasks", "/Delete", "/TN", s.Name(), "/F"}}
}

func (s Service) forgetting() [][]string { return nil }

// Advice is what else whoever installs a service may want to know.
func (s Service) Advice() string { return "schtasks /Query /V /FO LIST /TN " + s.Name() }
