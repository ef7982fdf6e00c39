//go:build !linux && !darwin && !windows

package service

import (
	"errors"
	"path/filepath"
)

// File is not known here: each such system has a manager of its own.
func (s Service) File() (File, error) {
	return File{}, errors.New("services of this system are not known: have its manager start fleetledger agent")
}

// SystemState is the state directory of a service of the system.
func SystemState(machine string) string { return filepath.Join("/var/db/fleetledger", machine) }

func (s Service) starting(File) [][]string { return nil }
func (s Service) stopping(File) [][]string { return nil }
func (s Service) forgetting() [][]string   { return nil }

// Advice is what else whoever installs a service may want to know.
func (s Service) Advice() string { return "" }
