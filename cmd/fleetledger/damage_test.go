package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

// TestDamagedDirectory damages every file of a data directory that is not the log's
// own (package pebblelog has a table of those): formats, keys, checkpoints, tokens,
// read models and whatever else there comes to be. Either the start refuses the
// directory and says why, or all events are there, under the root that they had; an
// audit that passes has read them all.
func TestDamagedDirectory(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	places := 3
	if testing.Short() {
		places = 1
	}
	dir := filepath.Join(t.TempDir(), "data")
	quiet := func(dir string) *app {
		return &app{in: strings.NewReader(""), out: io.Discard, err: io.Discard, data: dir, now: time.Now}
	}
	// open is a start of the server, up to where it would listen; then, all the way
	// back.
	open := func(a *app, more int) (size uint64, root events.Hash, err error) {
		fleets, seals, _, err := a.openFleets(t.Context(), "", "relay", slog.New(slog.DiscardHandler))
		if err != nil {
			return 0, events.Hash{}, err
		}
		views, err := openViews(a.data, fleets, false, slog.New(slog.DiscardHandler))
		if err == nil {
			for range more {
				if _, err := fleets[defaultFleet].ResetRootToken(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := seals[defaultFleet].Checkpoint(); err != nil {
				t.Fatal(err)
			}
			view := seals[defaultFleet].Reader()
			if size = view.Size(); size > 0 {
				root, err = view.RootAt(min(size, 30))
			}
			err = errors.Join(err, closeViews(views))
		}
		return size, root, errors.Join(err, fleets[defaultFleet].Log().Close())
	}
	a := quiet(dir)
	if err := makeData(dir); err != nil {
		t.Fatal(err)
	}
	lock, err := lockData(dir, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := open(a, 5); err != nil {
		t.Fatal(err)
	}
	earlier := filepath.Join(t.TempDir(), "earlier")
	if err := os.CopyFS(earlier, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	events, root, err := open(a, 5)
	if err != nil || events < 30 {
		t.Fatalf("%d events, %v", events, err)
	}

	var files []string
	if err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(dir, path)
		name = filepath.ToSlash(name)
		switch {
		case err != nil:
			return err
		case name == "fleets/default/pebble":
			return fs.SkipDir
		case !d.IsDir() && name != "fleets/default/anchor" && name != "fleets/default/format":
			files = append(files, name)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"format", "LOCK", "root.token", "fleets/default/checkpoint", "fleets/default/checkpoint.key"} {
		if !slices.Contains(files, must) {
			t.Fatalf("there is no %s in the directory: %v", must, files)
		}
	}
	content := func(dir, name string) []byte {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return b
	}
	outcomes := map[string]map[string]int{}
	for _, name := range files {
		outcomes[name] = map[string]int{}
		whole := content(dir, name)
		for _, damage := range []string{"a flipped bit", "a cut tail", "a zeroed block", "removed", "swapped", "an older copy"} {
			for range places {
				changed := bytes.Clone(whole)
				swapped := ""
				switch {
				case damage == "removed":
					changed = nil
				case damage == "swapped":
					if swapped = files[rng.IntN(len(files))]; swapped == name {
						continue
					}
					changed = append([]byte{}, content(dir, swapped)...)
				case damage == "an older copy":
					if changed = content(earlier, name); changed == nil {
						continue // there was none
					}
				case len(whole) == 0:
					continue
				case damage == "a flipped bit":
					changed[rng.IntN(len(changed))] ^= 1 << rng.IntN(8)
				case damage == "a cut tail":
					changed = changed[:rng.IntN(len(changed))]
				case damage == "a zeroed block":
					at := rng.IntN(len(changed)) / 512 * 512
					clear(changed[at:min(at+512, len(changed))])
				}
				what := fmt.Sprintf("seed %d: %s: %s %s", seed, name, damage, swapped)
				bad := filepath.Join(t.TempDir(), "bad")
				if err := os.CopyFS(bad, os.DirFS(dir)); err != nil {
					t.Fatal(err)
				}
				put := func(name string, b []byte) {
					path := filepath.Join(bad, filepath.FromSlash(name))
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
					if b == nil {
						return
					}
					if err := os.WriteFile(path, b, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				put(name, changed)
				if swapped != "" {
					put(swapped, whole)
				}

				b := quiet(bad)
				if err := existingData(bad); err == nil {
					r, err := b.auditFleet(t.Context(), defaultFleet, &auditTerms{})
					if err == nil && r.OK && uint64(r.To) < events {
						t.Errorf("%s: the audit passes with %d of %d events", what, r.To, events)
					}
				}
				if err := makeData(bad); err != nil {
					outcomes[name]["refused"]++
					continue
				}
				size, then, err := open(b, 0)
				switch {
				case err != nil:
					outcomes[name]["refused"]++
				case size < events || then != root:
					t.Errorf("%s: it is served with %d of %d events, root %s", what, size, events, then)
				default:
					outcomes[name]["harmless"]++
				}
			}
		}
	}
	for _, name := range files {
		t.Logf("%-40s %v", name, outcomes[name])
	}
	for _, name := range []string{"format", "fleets/default/checkpoint", "fleets/default/checkpoint.key"} {
		if outcomes[name]["refused"] == 0 {
			t.Errorf("%s is not looked at", name)
		}
	}
}
