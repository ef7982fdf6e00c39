package main

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetledger/events/pebblelog"
)

// TestOldDirectories opens data directories that earlier programs wrote, as they left
// them, without their secrets. They are promises: they must open and pass an audit for
// ever, take appends, and keep the Merkle root that they had.
//
//   - before-tiles: written before logs had tiles of their tree, keys and checkpoints,
//     and left by a kill. Opening it writes the tiles that it lacks and names a key.
//   - format-1: with tiles, a key, a signed checkpoint and an erased payload.
//
// A new kind of directory, when the layout changes, adds one.
func TestOldDirectories(t *testing.T) {
	for _, c := range []struct {
		name        string
		events      uint64
		decisions   int
		erased      int
		checkpoints int
		root        string
	}{
		{name: "before-tiles", events: 277, decisions: 246, root: "d5ec3daa41dd11886a4949b9135bb6d21a7b36f6967f1e6574fb1730c11ea546"},
		{name: "format-1", events: 280, decisions: 247, erased: 1, checkpoints: 1, root: "29a19912bf64d70c9ca2ad1304650df481778cb3b4a5b321f5979c17af45ba8a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			unpack(t, filepath.Join("testdata", "golden", c.name+".tar.gz"), dir)
			a := &app{in: strings.NewReader(""), out: &results{w: io.Discard}, err: io.Discard, data: dir, now: time.Now}
			audited := func(events uint64) {
				t.Helper()
				r, err := a.auditFleet(t.Context(), defaultFleet, &auditTerms{})
				if err != nil {
					t.Fatal(err)
				}
				if !r.OK || uint64(r.To) != events || r.Erased != c.erased {
					t.Fatalf("the audit: %+v", r)
				}
				if events == c.events && (r.DecisionsRederived != c.decisions || r.CheckpointsVerified != c.checkpoints) {
					t.Fatalf("the audit, of %d decisions and %d checkpoints: %+v", c.decisions, c.checkpoints, r)
				}
			}
			audited(c.events)
			for range 2 { // the second time nothing is old any more
				fleets, seals, isNew, err := a.openFleets(t.Context(), "", "relay", slog.New(slog.DiscardHandler))
				if err != nil || isNew {
					t.Fatalf("open: new %v, %v", isNew, err)
				}
				l := fleets[defaultFleet]
				if root, err := seals[defaultFleet].Reader().RootAt(c.events); err != nil || root.String() != c.root {
					t.Errorf("the root of its %d events is %s, %v", c.events, root, err)
				}
				if _, err := l.ResetRootToken(t.Context()); err != nil {
					t.Errorf("an append: %v", err)
				}
				if _, err := seals[defaultFleet].Checkpoint(); err != nil {
					t.Error(err)
				}
				size := uint64(l.Log().Durable())
				if err := l.Log().Close(); err != nil {
					t.Fatal(err)
				}
				c.checkpoints = 1
				audited(size)
			}
		})
	}
}

// TestNewerDirectories changes the number of each format file to the next one: the
// program that does not know it refuses the directory, and changes nothing.
func TestNewerDirectories(t *testing.T) {
	for _, file := range []string{formatName, "fleets/default/format"} {
		dir := filepath.Join(t.TempDir(), "data")
		unpack(t, filepath.Join("testdata", "golden", "format-1.tar.gz"), dir)
		path := filepath.Join(dir, filepath.FromSlash(file))
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(strings.Replace(string(text), "format 1", "format 2", 1)), 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{
			{"serve", "--listen", "127.0.0.1:0"}, {"serve", "--read-only", "--listen", "127.0.0.1:0"}, {"audit"},
			{"backup", filepath.Join(dir, "..", "copy")}, {"root-token", "reset"}, {"restore", dir},
		} {
			var stderr strings.Builder
			code := run(t.Context(), append(args, "--data", dir), strings.NewReader(""), io.Discard, &stderr)
			if said := stderr.String(); code != exitFailed || args[0] != "restore" && !(strings.Contains(said, "has format 2, this program reads up to 1") && strings.Contains(said, "newer program")) {
				t.Errorf("%s says 2: %v ends with %d: %s", file, args, code, said)
			}
		}
		if _, err := pebblelog.Open(fleetDir(dir, "default"), pebblelog.Options{Fleet: "default"}); file != formatName && err == nil {
			t.Error("the log was opened")
		}
		if _, err := os.Stat(filepath.Join(dir, "..", "copy")); err == nil {
			t.Error("a backup was made")
		}
	}
}

// unpack writes the files of a golden archive to the new directory dir.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if _, err := copyFile(r, path, 0o644, func(int64) {}); err != nil {
			t.Fatal(err)
		}
	}
}
