package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/seal"
)

const (
	// defaultOriginHost names logs that nobody has named otherwise.
	defaultOriginHost = "fleetledger.local"
	keyName           = "checkpoint.key"
	checkpointName    = "checkpoint"
)

func keyFile(dir, fleet string) string { return filepath.Join(fleetDir(dir, fleet), keyName) }

func checkpointFile(dir, fleet string) string {
	return filepath.Join(fleetDir(dir, fleet), checkpointName)
}

func originHostFlag(cmd *cobra.Command, host *string) {
	cmd.Flags().StringVar(host, "origin-host", "", "host in the name of a new fleet's log, which its checkpoints carry for ever (default "+defaultOriginHost+")")
}

// ensureKey returns the key that signs a fleet's log, and makes one if there is
// none. The key carries the log's origin, which never changes: host, if it is not
// empty, must be the one in it.
func (a *app) ensureKey(ctx context.Context, l *commands.Ledger, fleet, host string) (*seal.Key, error) {
	recorded, err := l.Keys(ctx)
	if err != nil {
		return nil, err
	}
	origin, err := originOf(recorded, host, fleet)
	if err != nil {
		return nil, err
	}
	name := keyFile(a.data, fleet)
	var key *seal.Key
	switch text, err := os.ReadFile(name); {
	case err == nil:
		if key, err = seal.ParseKey(strings.TrimSuffix(string(text), "\n")); err != nil {
			return nil, tryNext(fmt.Errorf("%s is no key: %w", name, err), "restore it from a backup, or move it away: the next start makes a new key")
		}
	case errors.Is(err, fs.ErrNotExist):
		if key, err = seal.NewKey(rand.Reader, origin); err != nil {
			return nil, err
		}
		if err := writeDurably(name, []byte(key.Private()+"\n"), 0o600); err != nil {
			return nil, fmt.Errorf("write the key of fleet %s: %w", fleet, err)
		}
		if len(recorded) > 0 {
			printer{a.err}.f("there was no %s: from now on the checkpoints of fleet %s are signed by a new key. Whoever verifies them needs it:\n  %s\n", name, fleet, key.Verifier())
		}
	default:
		return nil, err
	}
	if (host != "" || len(recorded) > 0) && key.Origin() != origin {
		return nil, originError(fleet, key.Origin(), origin)
	}
	if !strings.HasSuffix(key.Origin(), "/"+fleet) {
		return nil, fmt.Errorf("%s is the key of %s, not of fleet %s: restore the right one from a backup", name, key.Origin(), fleet)
	}
	return key, nil
}

// originOf is the origin of a fleet's log: that of the keys it has recorded, or a
// new one.
func originOf(recorded []string, host, fleet string) (string, error) {
	wanted := host
	if wanted == "" {
		wanted = defaultOriginHost
	}
	origin, err := seal.Origin(wanted, fleet)
	if err != nil {
		return "", misused("--origin-host: %v", err)
	}
	if len(recorded) == 0 {
		return origin, nil
	}
	is, err := seal.VerifierOrigin(recorded[0])
	if err == nil && host != "" && is != origin {
		err = originError(fleet, is, origin)
	}
	return is, err
}

func originError(fleet, is, wanted string) error {
	return tryNext(fmt.Errorf("the log of fleet %s is named %s and cannot be named %s: its name never changes", fleet, is, wanted), "leave --origin-host out")
}

// openSealer makes what signs and serves the tree of a founded fleet's log, and
// records its key.
func (a *app) openSealer(ctx context.Context, l *commands.Ledger, store seal.Store, fleet, originHost string) (*seal.Sealer, error) {
	key, err := a.ensureKey(ctx, l, fleet, originHost)
	if err != nil {
		return nil, err
	}
	if err := l.AddKey(ctx, key.Verifier()); err != nil {
		return nil, fmt.Errorf("record the key of fleet %s: %w", fleet, err)
	}
	keys, err := l.Keys(ctx)
	if err != nil {
		return nil, err
	}
	name := checkpointFile(a.data, fleet)
	kept, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s, err := seal.NewSealer(l.Log(), store, key, keys, kept, func(signed []byte) error { return writeDurably(name, signed, 0o644) })
	audit := "fleetledger audit --data " + shellWord(a.data) + " --fleet " + fleet
	if corrupt, ok := errors.AsType[*events.CorruptError](err); ok {
		return nil, tryNext(fmt.Errorf("the log of fleet %s in %s is not the one that was signed, from position %d on: %s", fleet, a.data, corrupt.Position, corrupt.Detail),
			audit+", then restore a backup")
	}
	if err != nil {
		return nil, tryNext(fmt.Errorf("%s: %w", name, err), audit+"; if nothing else is wrong, move that file away")
	}
	return s, nil
}

// keptCheckpoint is the newest checkpoint that was signed, none if there is no
// file of it.
func keptCheckpoint(dir, fleet string) ([][]byte, error) {
	signed, err := os.ReadFile(checkpointFile(dir, fleet))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return [][]byte{signed}, err
}
