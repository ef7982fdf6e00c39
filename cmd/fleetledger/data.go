package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/google/uuid"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/projections"
)

// A data directory:
//
//	format              one line that says which layout this is
//	LOCK                held by whoever changes the directory
//	root.token          the token of the default fleet's root, mode 0600
//	relay               the name of a relay of a cluster
//	fleets/NAME/        the log of fleet NAME, or a replica of it, see package pebblelog
//	fleets/NAME/root.token  that of another fleet's root
//	fleets/NAME/checkpoint.key  what signs the fleet's checkpoints, mode 0600
//	fleets/NAME/checkpoint  the newest of them
//	fleets/NAME/subscriptions/  how far deliveries are, and the key of webhooks, mode 0600
//	fleets/NAME/view/       the fleet's read model, see package sqlview. It can be
//	                        removed while nobody serves it, and is made again
const (
	formatName    = "format"
	formatPrefix  = "fleetledger data, format "
	formatVersion = 1
	fleetsName    = "fleets"
	defaultFleet  = "default"
	rootTokenName = "root.token"
	// subscriptionsName is where a fleet's deliveries keep their cursors.
	subscriptionsName = "subscriptions"
)

// checkData refuses a directory that is not a data directory of this program. It
// reports whether the directory is new: missing, or empty but for leftovers.
func checkData(dir string, leftovers ...string) (isNew bool, err error) {
	leftovers = append(leftovers, formatName+".new", "LOCK") // of a start or a restore that was cut off
	b, err := os.ReadFile(filepath.Join(dir, formatName))
	if err == nil {
		version, ok := strings.CutPrefix(strings.TrimSuffix(string(b), "\n"), formatPrefix)
		n, err := strconv.Atoi(version)
		switch {
		case !ok || err != nil || n < 1:
			return false, tryNext(fmt.Errorf("%s does not say which format the data directory has: it should read %q",
				filepath.Join(dir, formatName), formatPrefix+strconv.Itoa(formatVersion)), "restore it from a backup, or name another directory with --data")
		case n > formatVersion:
			return false, tryNext(fmt.Errorf("%s has format %d, this program reads up to %d", dir, n, formatVersion), "use the newer program that wrote it")
		}
		return false, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("data directory: %w", err)
	}
	names, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("data directory: %w", err)
	}
	for _, n := range names {
		if !slices.Contains(leftovers, n.Name()) {
			return false, tryNext(fmt.Errorf("%s is not empty and has no file %q: it is no data directory of fleetledger, or not a whole one", dir, formatName),
				"name an empty or a new directory with --data, or restore this one from a backup")
		}
	}
	return true, nil
}

// makeData makes dir a data directory if it is new.
func makeData(dir string) error {
	isNew, err := checkData(dir)
	if err != nil || !isNew {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	// First of all, so that everything else in the directory has a format.
	return writeDurably(filepath.Join(dir, formatName), []byte(formatPrefix+strconv.Itoa(formatVersion)+"\n"), 0o644)
}

// lockData keeps the data directory from other processes that change it. readOnly
// makes no file for it.
func lockData(dir string, readOnly bool) (io.Closer, error) {
	take := pebblelog.LockDirectory
	if readOnly {
		take = pebblelog.LockDirectoryReadOnly
	}
	lock, err := take(dir)
	if errors.Is(err, events.ErrLocked) {
		return nil, inUse(dir)
	}
	return lock, err
}

func inUse(dir string) error {
	return tryNext(fmt.Errorf("the data directory %s is in use by another process", dir), "stop that process first, or name another directory with --data")
}

// lostFleet refuses a directory whose default fleet was founded, as root's token
// shows, and is not there any more: founding another in its place would hide the
// loss.
func lostFleet(dir string) error {
	if _, err := os.Stat(rootTokenFile(dir, defaultFleet)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return lost(dir, defaultFleet)
}

func lost(dir, fleet string) error {
	return tryNext(fmt.Errorf("fleet %s was founded in %s, and its log is gone; nothing was changed", fleet, dir),
		"restore "+fleetDir(dir, fleet)+" from a backup; or, to begin anew, serve --data with an empty directory")
}

// existingData is checkData for commands that make none.
func existingData(dir string) error {
	isNew, err := checkData(dir)
	if err == nil && isNew {
		return tryNext(fmt.Errorf("there is no data in %s", dir), "name the data directory with --data, or found one: fleetledger serve --data "+shellWord(dir))
	}
	return err
}

// fleetNames are the fleets in a data directory, in order.
func fleetNames(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, fleetsName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("data directory: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() || !events.ValidID(e.Name()) {
			return nil, tryNext(fmt.Errorf("%s is no fleet", filepath.Join(dir, fleetsName, e.Name())), "move it out of the data directory")
		}
		names = append(names, e.Name())
	}
	return names, nil
}

func fleetDir(dir, fleet string) string { return filepath.Join(dir, fleetsName, fleet) }

// rootTokenFile is where the token of a fleet's root is written.
func rootTokenFile(dir, fleet string) string {
	if fleet == defaultFleet {
		return filepath.Join(dir, rootTokenName)
	}
	return filepath.Join(fleetDir(dir, fleet), rootTokenName)
}

func explainOpen(err error, dir, fleet string) error {
	if errors.Is(err, events.ErrLocked) {
		return inUse(dir)
	}
	if errors.Is(err, pebblelog.ErrRole) {
		return explainRole(err, dir, fleet)
	}
	if d, ok := errors.AsType[*pebblelog.DamagedError](err); ok {
		return tryNext(fmt.Errorf("the log of fleet %s in %s is damaged from position %d on: %s; nothing was changed", fleet, dir, d.Position, d.Detail),
			"fleetledger audit --data "+shellWord(dir)+" --fleet "+fleet+", then restore a backup; until then: fleetledger serve --read-only --data "+shellWord(dir))
	}
	if errors.Is(err, syscall.ENOSPC) {
		return tryNext(fmt.Errorf("open fleet %s: %w", fleet, err), "free some space on the disk of "+dir+"; until then: fleetledger serve --read-only --data "+shellWord(dir))
	}
	return fmt.Errorf("open fleet %s: %w", fleet, err)
}

// random is where a running ledger takes ids, salts and secrets from.
func random() commands.Random {
	return commands.Random{
		ID:    func() string { return uuid.Must(uuid.NewV7()).String() },
		Bytes: func(b []byte) { _, _ = rand.Read(b) }, // never fails, says crypto/rand
	}
}

// found founds a fleet on its empty log, and writes root's token and the key that
// signs the log. A crash before the token is written leaves a fleet whose root has
// one that nobody knows: see rootTokenCommand.
func (a *app) found(ctx context.Context, l *commands.Ledger, fleet, originHost string) error {
	if _, err := os.Stat(checkpointFile(a.data, fleet)); !errors.Is(err, fs.ErrNotExist) {
		return lost(a.data, fleet)
	}
	// First of all: a log whose name was chosen keeps it.
	keys, err := a.ensureKeys(ctx, l, fleet, originHost)
	if err != nil {
		return err
	}
	r, err := l.Found(ctx, fleet)
	if err != nil {
		return fmt.Errorf("found fleet %s: %w", fleet, err)
	}
	if err := writeToken(rootTokenFile(a.data, fleet), r.Secret); err != nil {
		return err
	}
	return l.AddKey(ctx, keys[0].Verifier())
}

// writeToken writes a token to a file that only its owner reads.
func writeToken(name, token string) error {
	return writeDurably(name, []byte(token+"\n"), 0o600)
}

// writeDurably makes the file name with this content, whole or not at all.
func writeDurably(name string, content []byte, mode fs.FileMode) error {
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	// An old file of that name, or the umask, may have given it another mode.
	err = f.Chmod(mode)
	if err == nil {
		_, err = f.Write(content)
	}
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(name+".new", name)
	}
	if err != nil {
		return errors.Join(err, os.Remove(name+".new"))
	}
	return syncDirectory(filepath.Dir(name))
}

// syncDirectory makes the names in dir durable.
func syncDirectory(dir string) error {
	if runtime.GOOS == "windows" {
		return nil // it has no call for that
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// shellWord is s as a POSIX shell reads it back, for command lines to try.
func shellWord(s string) string { return projections.CommandLine([]string{s}) }
