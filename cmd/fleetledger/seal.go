package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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

// ensureKeys returns the keys that sign a fleet's log, and makes one if there is
// none. The keys carry the log's origin, which never changes: host, if it is not
// empty, must be the one in it.
//
// The file of keys has one a line. A key is in it before the event that adds it, and
// until after the one that retires it: what a crash has left there of either is taken
// out here.
func (a *app) ensureKeys(ctx context.Context, l *commands.Ledger, fleet, host string) ([]*seal.Key, error) {
	ring, err := l.Keys(ctx)
	if err != nil {
		return nil, err
	}
	origin, err := originOf(ring, host, fleet)
	if err != nil {
		return nil, err
	}
	name := keyFile(a.data, fleet)
	held, err := readKeys(name)
	if err != nil {
		return nil, err
	}
	for _, key := range held {
		switch is := key.Origin(); {
		case !strings.HasSuffix(is, "/"+fleet), len(ring) > 0 && is != origin:
			return nil, tryNext(fmt.Errorf("%s has the key of %s, which does not sign the log of fleet %s", name, is, fleet),
				"restore the right one from a backup, or move it away: the next start makes a new key")
		case host != "" && is != origin:
			return nil, originError(fleet, is, origin)
		}
	}
	keys := inForce(held, ring)
	if len(keys) == 0 {
		key, err := seal.NewKey(rand.Reader, origin)
		if err != nil {
			return nil, err
		}
		keys = []*seal.Key{key}
		if len(ring) > 0 {
			printer{a.err}.f("there was no key in force in %s: from now on the checkpoints of fleet %s are signed by a new key. Whoever verifies them needs it:\n  %s\n", name, fleet, key.Verifier())
		}
	}
	if !slices.Equal(keys, held) {
		if err := writeKeys(name, keys); err != nil {
			return nil, fmt.Errorf("write the key of fleet %s: %w", fleet, err)
		}
	}
	return keys, nil
}

// inForce are those of the keys held that sign: all that the log has added and not
// retired. If there is none, one that it does not know of was put there, and is to be
// added.
func inForce(held []*seal.Key, ring seal.Keyring) []*seal.Key {
	var keys, unknown []*seal.Key
	for _, key := range held {
		i := slices.IndexFunc(ring, func(k seal.RingKey) bool { return k.Verifier == key.Verifier() })
		switch {
		case i < 0:
			unknown = append(unknown, key)
		case ring[i].Retired == 0:
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 && len(unknown) == len(held) {
		return unknown[:min(1, len(unknown))]
	}
	return keys
}

// readKeys reads a file of keys; there are none if there is no file.
func readKeys(name string) ([]*seal.Key, error) {
	text, err := os.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var keys []*seal.Key
	for line := range strings.Lines(string(text)) {
		key, err := seal.ParseKey(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, tryNext(fmt.Errorf("%s holds what is no key: %w", name, err), "restore it from a backup, or move it away: the next start makes a new key")
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// writeKeys makes the file of keys, whole or not at all.
func writeKeys(name string, keys []*seal.Key) error {
	var text strings.Builder
	for _, key := range keys {
		text.WriteString(key.Private() + "\n")
	}
	return writeDurably(name, []byte(text.String()), 0o600)
}

// originOf is the origin of a fleet's log: that of the keys it has recorded, or a
// new one.
func originOf(recorded seal.Keyring, host, fleet string) (string, error) {
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
	is, err := seal.VerifierOrigin(recorded[0].Verifier)
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
	keys, err := a.ensureKeys(ctx, l, fleet, originHost)
	if err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := l.AddKey(ctx, key.Verifier()); err != nil {
			return nil, fmt.Errorf("record the key of fleet %s: %w", fleet, err)
		}
	}
	ring, err := l.Keys(ctx)
	if err != nil {
		return nil, err
	}
	name := checkpointFile(a.data, fleet)
	kept, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	s, err := seal.NewSealer(l.Log(), store, seal.Files{
		Keys: keys, Ring: ring, Kept: kept,
		Keep:     func(signed []byte) error { return writeDurably(name, signed, 0o644) },
		KeepKeys: func(keys []*seal.Key) error { return writeKeys(keyFile(a.data, fleet), keys) },
	})
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
