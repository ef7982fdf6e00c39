package pebblelog_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

// backUp makes a backup of l on a file system of its own.
func backUp(t *testing.T, l *pebblelog.Log) (*vfs.MemFS, pebblelog.Head) {
	t.Helper()
	out := vfs.NewMem()
	if err := out.MkdirAll("data/pebble", 0o755); err != nil {
		t.Fatal(err)
	}
	var head pebblelog.Head
	err := l.Backup(t.Context(), func(b pebblelog.Backup) error {
		head = b.Head
		for _, f := range b.Files {
			r, err := f.Open()
			if err != nil {
				return err
			}
			content, err := io.ReadAll(r)
			if err := errors.Join(err, r.Close()); err != nil {
				return err
			}
			if int64(len(content)) != f.Size {
				return fmt.Errorf("%s has %d bytes, not %d", f.Name, len(content), f.Size)
			}
			setContent(t, out, "data/"+f.Name, content)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("backup: %v", err)
	}
	return out, head
}

// TestBackupUnderLoad backs a log up while many write to it. Every copy opens and
// holds what was acknowledged before it was begun, and nothing that the log itself
// does not hold.
func TestBackupUnderLoad(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	acked := acks{recs: make(map[events.Position]events.Record)}
	appends := 600 // by each writer
	if testing.Short() {
		appends = 150
	}
	var wg sync.WaitGroup
	for w := range 6 {
		wg.Go(func() {
			for range appends {
				s := events.Stream(fmt.Sprintf("s-%d", w))
				done, err := l.Append(t.Context(), keyed(events.Append{Drafts: []events.Draft{draft(s, 3000), draft("all", 20)}}, fmt.Sprint(serial.Add(1))))
				if err != nil {
					t.Errorf("append: %v", err)
					return
				}
				acked.add(done.Records)
			}
		})
	}
	type copied struct {
		disk   *vfs.MemFS
		before map[events.Position]events.Record
		head   pebblelog.Head
	}
	var copies []copied
	for i := range 6 {
		if err := l.Wait(t.Context(), events.Position(i*appends+1)); err != nil {
			t.Fatal(err)
		}
		before := acked.list()
		disk, head := backUp(t, l)
		copies = append(copies, copied{disk, before, head})
	}
	wg.Wait()
	whole := logtest.CheckWhole(t, l)
	mustClose(t, l)
	if names, err := disk.List("data"); err != nil || strings.Contains(strings.Join(names, " "), "backup") {
		t.Errorf("the log's directory holds %v, %v", names, err)
	}
	for i, c := range copies {
		a := audited(t, c.disk)
		if a.Damage != nil || len(a.Index) > 0 || a.Anchor == nil || a.Anchor.Size != c.head.Size || a.Size < c.head.Size {
			t.Fatalf("backup %d of %+v: the audit: %+v", i, c.head, a)
		}
		l := mustOpen(t, options(c.disk))
		all := logtest.CheckWhole(t, l)
		for p, r := range c.before {
			if int(p) > len(all) || string(all[p-1].Leaf) != string(r.Leaf) {
				t.Fatalf("backup %d: the event acknowledged at position %d is not in it; it has %d", i, p, len(all))
			}
		}
		for p, r := range all {
			if string(whole[p].Leaf) != string(r.Leaf) {
				t.Fatalf("backup %d: position %d is not what the log has there", i, p+1)
			}
		}
		if _, err := l.Append(t.Context(), one("after")); err != nil {
			t.Fatalf("backup %d: append: %v", i, err)
		}
		mustClose(t, l)
	}
}

// TestBackupFails makes the writing of a copy fail: that is no trouble of the log's,
// and nothing is left of it.
func TestBackupFails(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, kind := range []errorfs.OpKind{errorfs.OpCreate, errorfs.OpFileWrite, errorfs.OpFileSync, errorfs.OpFileClose, errorfs.OpLink, errorfs.OpMkdirAll, errorfs.OpOpenDir} {
		var f faults
		disk := vfs.NewMem()
		l := mustOpen(t, options(f.wrap(disk)))
		acked := fill(t, l, 300)
		f.set(func(op errorfs.Op) error {
			if op.Kind == kind && strings.Contains(op.Path, "backup.new") {
				return syscall.ENOSPC
			}
			return nil
		})
		err := l.Backup(t.Context(), func(pebblelog.Backup) error { return nil })
		f.set(nil)
		// A file that cannot be linked is copied; a close is of a copy that was synced.
		if err == nil && kind != errorfs.OpLink && kind != errorfs.OpFileClose && kind != errorfs.OpFileSync {
			t.Errorf("kind %d failed, and the backup did not", kind)
		}
		acked = append(acked, fill(t, l, 10)...)
		copied, _ := backUp(t, l)
		stopped := errors.New("stopped")
		if err := l.Backup(t.Context(), func(pebblelog.Backup) error {
			if err := l.Backup(t.Context(), func(pebblelog.Backup) error { return nil }); !errors.Is(err, pebblelog.ErrBackingUp) {
				t.Errorf("a second backup at once: %v", err)
			}
			return stopped
		}); !errors.Is(err, stopped) {
			t.Errorf("a backup that was broken off: %v", err)
		}
		mustClose(t, l)
		if err := l.Backup(t.Context(), func(pebblelog.Backup) error { return nil }); !errors.Is(err, events.ErrClosed) {
			t.Errorf("a backup of a closed log: %v", err)
		}
		l = mustOpen(t, options(copied))
		checkAcknowledged(t, l, acked)
		mustClose(t, l)
	}
}

// TestBackupCutOff starts where a crash has left a backup half made.
func TestBackupCutOff(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	acked := fill(t, l, 10)
	var left *vfs.MemFS
	if err := l.Backup(t.Context(), func(pebblelog.Backup) error {
		left = clone(t, disk)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	l = mustOpen(t, options(left))
	checkAcknowledged(t, l, acked)
	mustClose(t, l)
	if _, err := left.Stat("data/backup.new"); err == nil {
		t.Error("what the crash left is still there")
	}
}
