package pebblelog_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

// secretDraft is an event whose payload and salt can be found in raw bytes.
func secretDraft(secret string) events.Draft {
	d := draft("s-secret", 20)
	salt := events.SumHash("salt of", secret)
	return events.NewDraft(d.Intent, [events.SaltBytes]byte(salt[:events.SaltBytes]), fmt.Appendf(nil, `{"password":%q}`, secret))
}

// holding names the files under dir whose bytes hold the secret of an event or its
// salt.
func holding(t *testing.T, fsys vfs.FS, dir string, d events.Draft) (files []string) {
	t.Helper()
	names, err := fsys.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		path := fsys.PathJoin(dir, name)
		info, err := fsys.Stat(path)
		if err != nil {
			continue // deleted just now
		}
		if info.IsDir() {
			files = append(files, holding(t, fsys, path, d)...)
			continue
		}
		b := content(t, fsys, path)
		if bytes.Contains(b, d.Payload) || bytes.Contains(b, d.Salt[:]) {
			files = append(files, path)
		}
	}
	return files
}

// TestScrubbedFromEveryFile looks for the bytes of erased payloads in every file of
// the directory, wherever they had come to: the newest WAL, an older one that is
// kept for reuse, tables of every level.
func TestScrubbedFromEveryFile(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	var (
		secrets []events.Draft
		erased  []events.Position
	)
	secret := func() {
		d := secretDraft(fmt.Sprintf("hunter-%d-%s", len(secrets), hex.EncodeToString([]byte("once only"))))
		done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{d}})
		if err != nil {
			t.Fatal(err)
		}
		secrets, erased = append(secrets, d), append(erased, done.First)
	}
	// Enough for many memtables of 1 MiB, so for tables and WALs of every age.
	for range 10 {
		secret()
		for range 400 {
			if _, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft("s-other", 1500)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	secret()
	for i, d := range secrets {
		if len(holding(t, disk, "data", d)) == 0 {
			t.Fatalf("secret %d is in no file: this test looks in the wrong place", i)
		}
	}
	// A reader in the middle of the log keeps nothing alive for ever.
	stopped := false
	for r, err := range l.ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Position == 20 && !stopped {
			stopped = true
			a := one("ledger")
			a.Erase = erased
			if _, err := l.Append(t.Context(), a); err != nil {
				t.Fatal(err)
			}
			if err := l.Scrub(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, d := range secrets {
				if files := holding(t, disk, "data", d); len(files) > 0 {
					t.Errorf("secret %d, erased, is still in %v", i, files)
				}
			}
		}
	}
	logtest.CheckWhole(t, l, erased...)
	mustClose(t, l)
	audit, err := pebblelog.ReadForAudit("data", options(disk), pebblelog.Head{}, events.CheckOptions{}, func(_ *events.Checked, err error) error { return err })
	if err != nil || audit.Damage != nil || len(audit.Index) > 0 {
		t.Fatalf("audited: %+v, %v", audit, err)
	}
	l = mustOpen(t, options(disk))
	logtest.CheckWhole(t, l, erased...)
	mustClose(t, l)
}

// TestPowerLossWhileErasing cuts the power before every change to the disk while a
// payload is erased. Opened again, the payload is there if the event that tells of
// its erasure is not; otherwise it is gone, and soon from every file.
func TestPowerLossWhileErasing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	var (
		disk  = vfs.NewCrashableMem()
		f     faults
		mu    sync.Mutex
		snaps []snapshot
		rng   = rand.New(rand.NewPCG(3, 4))
	)
	l := mustOpen(t, options(f.wrap(disk)))
	fill(t, l, 4)
	d := secretDraft("correct horse battery staple")
	done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{d}})
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 4)
	acked := false
	f.set(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpFileClose {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		percent := []int{0, 100, 50}[len(snaps)%3]
		s := snapshot{what: fmt.Sprintf("before write %d (kind %d of %s) with %d%% of what was not synced", len(snaps), op.Kind, op.Path, percent),
			disk: disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng})}
		if acked {
			s.acked = done.Records // only whether there are any is asked
		}
		snaps = append(snaps, s)
		return nil
	})
	a := one("ledger")
	a.Erase = []events.Position{done.First}
	if _, err := l.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	acked = true
	mu.Unlock()
	if err := l.Scrub(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.set(nil)
	mustClose(t, l)
	if len(snaps) < 20 {
		t.Fatalf("only %d writes were seen", len(snaps))
	}
	told := 0
	for _, s := range snaps {
		l, err := pebblelog.Open("data", options(s.disk))
		if err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		if l.Durable() == 9 {
			if s.acked != nil {
				t.Fatalf("%s: the erasure was acknowledged and is lost", s.what)
			}
			logtest.CheckWhole(t, l)
			mustClose(t, l)
			continue
		}
		told++
		logtest.CheckWhole(t, l, done.First)
		if err := pebblelog.AwaitScrubs(l); err != nil {
			t.Fatalf("%s: %v", s.what, err)
		}
		if files := holding(t, s.disk, "data", d); len(files) > 0 {
			t.Fatalf("%s: the secret is still in %s", s.what, strings.Join(files, ", "))
		}
		mustClose(t, l)
	}
	if told == 0 || told == len(snaps) {
		t.Errorf("of %d power losses %d came after the erasure: they are to lie on both sides", len(snaps), told)
	}
}

// TestErasureIsFinishedAtStart: a log that is stopped between the erasure and the
// removal from its files goes on with it by itself.
func TestErasureIsFinishedAtStart(t *testing.T) {
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, options(disk))
	d := secretDraft("in the first table")
	done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{d}})
	if err != nil {
		t.Fatal(err)
	}
	a := one("ledger")
	a.Erase = []events.Position{done.First}
	pebblelog.HoldScrubs(l)
	if _, err := l.Append(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	crashed := disk.CrashClone(vfs.CrashCloneCfg{})
	pebblelog.ReleaseScrubs(l)
	mustClose(t, l)
	if len(holding(t, crashed, "data", d)) == 0 {
		t.Fatal("the payload was gone before anything removed it: this test tests nothing")
	}
	l = mustOpen(t, options(crashed))
	if err := pebblelog.AwaitScrubs(l); err != nil {
		t.Fatal(err)
	}
	if files := holding(t, crashed, "data", d); len(files) > 0 {
		t.Errorf("the payload is still in %v", files)
	}
	mustClose(t, l)
}

// TestBackupKeepsNothingErased: files of a backup hold what is erased meanwhile, and
// an erasure is not done before they are gone.
func TestBackupKeepsNothingErased(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	d := secretDraft("linked")
	done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{d}})
	if err != nil {
		t.Fatal(err)
	}
	scrubbed := make(chan error, 1)
	err = l.Backup(t.Context(), func(pebblelog.Backup) error {
		a := one("ledger")
		a.Erase = []events.Position{done.First}
		if _, err := l.Append(t.Context(), a); err != nil {
			return err
		}
		ended, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := l.Scrub(ended); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a scrub beside a backup: %v", err)
		}
		go func() { scrubbed <- l.Scrub(t.Context()) }()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-scrubbed; err != nil {
		t.Fatal(err)
	}
	if files := holding(t, disk, "data", d); len(files) > 0 {
		t.Errorf("the payload is still in %v", files)
	}
	mustClose(t, l)
}
