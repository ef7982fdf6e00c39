package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/commands"
	"fleetledger/events"
)

// founded is a program with a data directory that has a fleet.
func founded(t *testing.T) *app {
	t.Helper()
	a := &app{out: &results{w: io.Discard}, err: io.Discard, data: filepath.Join(t.TempDir(), "data"), now: time.Now}
	if err := makeData(a.data); err != nil {
		t.Fatal(err)
	}
	fleets := opened(t, a)
	if err := fleets[defaultFleet].Log().Close(); err != nil {
		t.Fatal(err)
	}
	return a
}

func opened(t *testing.T, a *app) map[string]*commands.Ledger {
	t.Helper()
	fleets, _, _, err := a.openFleets(t.Context(), "", "relay", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return fleets
}

// A backup whose list does not name the files of a backup, each once, is refused, and
// nothing is left where it was to go.
func TestListsOfBackups(t *testing.T) {
	a := founded(t)
	good := filepath.Join(t.TempDir(), "good")
	command := func(args ...string) (code int, told string) {
		var stderr bytes.Buffer
		return run(t.Context(), args, strings.NewReader(""), io.Discard, &stderr), stderr.String()
	}
	if code, told := command("backup", good, "--data", a.data); code != 0 {
		t.Fatal(told)
	}
	var m manifest
	text, err := os.ReadFile(filepath.Join(good, manifestName))
	if err == nil {
		err = json.Unmarshal(text, &m)
	}
	if err != nil {
		t.Fatal(err)
	}
	// file writes a file into the backup, and lists it.
	file := func(name, content string) func(string, *manifest) {
		return func(dir string, m *manifest) {
			path := filepath.Join(dir, filepath.FromSlash(name))
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o644)); err != nil {
				t.Fatal(err)
			}
			m.Files = slices.DeleteFunc(m.Files, func(f manifestFile) bool { return f.Name == name })
			m.Files = append(m.Files, manifestFile{name, int64(len(content)), events.Hash(sha256.Sum256([]byte(content)))})
		}
	}
	for _, c := range []struct {
		name, told string
		change     func(dir string, m *manifest)
	}{
		{"as it was", "", func(string, *manifest) {}},
		{"a fleet twice", "named twice", func(_ string, m *manifest) { m.Fleets = append(m.Fleets, m.Fleets[0]) }},
		{"no fleet", "names no fleet", func(_ string, m *manifest) { m.Fleets = nil }},
		{"another fleet's name", "no file of a backup", func(_ string, m *manifest) { m.Fleets[0].Fleet = "other" }},
		{"a file twice", "listed twice", func(_ string, m *manifest) { m.Files = append(m.Files, m.Files[0]) }},
		{"no format", `does not list "format"`, func(_ string, m *manifest) { m.Files = m.Files[1:] }},
		{"another format", "does not say which format", file("format", "something else\n")},
		{"a newer format", "has format 2, this program reads up to 1", file("format", "fleetledger data, format 2\n")},
		{"a file beside it", "no file of a backup", file("../evil", "x")},
		{"a file beside the logs", "no file of a backup", file("fleets/default/../../evil", "x")},
		{"a path from the root", "no file of a backup", func(_ string, m *manifest) { m.Files[0].Name = "/etc/passwd" }},
		{"a lock", "no file of a backup", file("LOCK", "")},
		{"a fleet that is not named", "no file of a backup", file("fleets/other/anchor", "x")},
		{"a view", "no file of a backup", file("fleets/default/view/view.db", "x")},
		{"a snapshot", "no file of a backup", file("fleets/default/snapshots/10", "x")},
		{"the list itself", "no file of a backup", func(_ string, m *manifest) { m.Files = append(m.Files, manifestFile{Name: manifestName}) }},
	} {
		dir, to := filepath.Join(t.TempDir(), "backup"), filepath.Join(t.TempDir(), "to")
		if err := os.CopyFS(dir, os.DirFS(good)); err != nil {
			t.Fatal(err)
		}
		changed := m
		changed.Files, changed.Fleets = slices.Clone(m.Files), slices.Clone(m.Fleets)
		c.change(dir, &changed)
		text, err := json.Marshal(changed)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, manifestName), text, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
		code, told := command("restore", dir, "--data", to)
		_, err = os.Stat(to)
		switch {
		case c.told == "" && (code != 0 || err != nil):
			t.Errorf("%s: %d, %s (%v)", c.name, code, told, err)
		case c.told != "" && (code != 1 || !strings.Contains(told, c.told) || err == nil):
			t.Errorf("%s: %d, %s; what is there of it: %v", c.name, code, told, err)
		}
	}
}

// A server that cannot make a backup says so before it sends anything: who asked is
// told why.
func TestRefusedBackupSendsNothing(t *testing.T) {
	a := founded(t)
	fleets := opened(t, a)
	send := a.backupOf(fleets)
	var first, second, after bytes.Buffer
	err := send(t.Context(), defaultFleet, writer(func(p []byte) (int, error) {
		if first.Len() == 0 {
			err := send(t.Context(), defaultFleet, &second)
			if r, ok := errors.AsType[*commands.Refusal](err); !ok || r.Code != "BACKUP_RUNNING" || second.Len() > 0 {
				t.Errorf("beside another: %v, %d bytes", err, second.Len())
			}
		}
		return first.Write(p)
	}))
	if err != nil || first.Len() == 0 {
		t.Fatal(first.Len(), err)
	}
	if err := fleets[defaultFleet].Log().Close(); err != nil {
		t.Fatal(err)
	}
	readOnly, _, _, err := a.openReadOnly(context.Background(), "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly[defaultFleet].Log().Close()
	err = a.backupOf(readOnly)(t.Context(), defaultFleet, &after)
	if _, ok := errors.AsType[*events.ReadOnlyError](err); !ok || after.Len() > 0 {
		t.Errorf("of a directory that is only read: %v, %d bytes", err, after.Len())
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
