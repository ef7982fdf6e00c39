package pebblelog_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

// TestOnDisk goes once through a log's life on the operating system's files.
func TestOnDisk(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	dir := filepath.Join(t.TempDir(), "new", "data")
	opts := pebblelog.Options{Fleet: "fleet-a", Logger: quiet()}
	if _, err := pebblelog.ReadForAudit(dir, opts, pebblelog.Head{}, events.CheckOptions{}, nil); err == nil {
		t.Fatal("there is no log, and it was audited")
	}
	l, err := pebblelog.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pebblelog.Open(dir, opts); !errors.Is(err, events.ErrLocked) {
		t.Errorf("opened twice: %v", err)
	}
	if _, err := pebblelog.ReadForAudit(dir, opts, pebblelog.Head{}, events.CheckOptions{}, nil); !errors.Is(err, events.ErrLocked) {
		t.Errorf("audited while open: %v", err)
	}
	var wg sync.WaitGroup
	for w := range 16 {
		wg.Go(func() {
			for range 20 {
				if _, err := l.Append(t.Context(), one(events.Stream(fmt.Sprintf("s-%d", w)))); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
	if l, err = pebblelog.Open(dir, opts); err != nil {
		t.Fatal(err)
	}
	if got := len(logtest.CheckWhole(t, l)); got != 320 {
		t.Errorf("%d events, not 320", got)
	}
	mustClose(t, l)
	names := func() (out []string) {
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			info, err2 := d.Info()
			out = append(out, fmt.Sprint(path, info.Size()))
			return errors.Join(err, err2)
		})
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	before := names()
	n := 0
	audit, err := pebblelog.ReadForAudit(dir, opts, pebblelog.Head{}, events.CheckOptions{}, func(_ *events.Checked, err error) error { n++; return err })
	if err != nil || n != 320 || audit.Damage != nil || audit.Index != nil || audit.Root != audit.Anchor.Root || audit.Fleet != "fleet-a" {
		t.Errorf("the audit read %d events: %+v, %v", n, audit, err)
	}
	if after := names(); !slices.Equal(before, after) {
		t.Errorf("the audit changed the directory:\n%v\n%v", before, after)
	}
}

func TestOpenRefusals(t *testing.T) {
	base, _ := closedLog(t, 3, false)
	remove := func(path string) func(*testing.T, *vfs.MemFS) {
		return func(t *testing.T, d *vfs.MemFS) {
			if err := d.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		name  string
		fleet string
		edit  func(*testing.T, *vfs.MemFS)
		words []string
	}{
		{name: "an invalid fleet", fleet: "No!", words: []string{"not a valid id"}},
		{name: "another fleet", fleet: "fleet-b", words: []string{`"fleet-a"`, `"fleet-b"`}},
		{name: "a newer format", edit: func(t *testing.T, d *vfs.MemFS) {
			setContent(t, d, "data/format", []byte("fleetledger log, format 2\n"))
		}, words: []string{"format 2", "up to 1", "newer program"}},
		{name: "an unknown format", edit: func(t *testing.T, d *vfs.MemFS) { setContent(t, d, "data/format", []byte("hello\n")) }, words: []string{"hello"}},
		{name: "no format", edit: remove("data/format"), words: []string{"not whole", "backup"}},
		{name: "no database", edit: remove("data/pebble"), words: []string{"position 1", "database is missing", "3 events"}},
		{name: "an empty manifest", edit: func(t *testing.T, d *vfs.MemFS) {
			for _, name := range filesOf(t, d, "") {
				if strings.Contains(name, "MANIFEST") {
					setContent(t, d, name, nil)
				}
			}
		}, words: []string{"manifest", "backup"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := clone(t, base)
			if c.edit != nil {
				c.edit(t, d)
			}
			opts := options(d)
			if c.fleet != "" {
				opts.Fleet = c.fleet
			}
			_, err := pebblelog.Open("data", opts)
			if err == nil {
				t.Fatal("was opened")
			}
			for _, word := range c.words {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("the message does not say %q: %v", word, err)
				}
			}
			// The lock is free again.
			if _, err := pebblelog.Open("data", opts); err == nil || errors.Is(err, events.ErrLocked) {
				t.Errorf("tried again: %v", err)
			}
		})
	}
}

// TestFoldRefusesHistory opens a log that the fold does not take.
func TestFoldRefusesHistory(t *testing.T) {
	disk, _ := closedLog(t, 5, false)
	refusal := errors.New("I do not know this")
	opts := options(disk)
	folded := 0
	opts.Fold = foldFunc(func(recs []events.Record) (func(), error) {
		if slices.ContainsFunc(recs, func(r events.Record) bool { return r.Header.Position == 3 }) {
			return nil, refusal
		}
		return func() { folded += len(recs) }, nil
	})
	if _, err := pebblelog.Open("data", opts); !errors.Is(err, refusal) || !strings.Contains(err.Error(), "position 3") || folded != 2 {
		t.Fatalf("open: %v, after %d events", err, folded)
	}
	mustClose(t, mustOpen(t, options(disk)))
}

type foldFunc func([]events.Record) (func(), error)

func (f foldFunc) Stage(recs []events.Record) (func(), error) { return f(recs) }

func (f foldFunc) Unstage() {}
