package pebblelog_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

// TestFullDisk appends to a real file system until it has no space, past a mark that
// is far too low. Nothing that was acknowledged is lost, reads go on, and with space
// again the log opens whole.
func TestFullDisk(t *testing.T) {
	disk := t.TempDir()
	if err := syscall.Mount("fleetledger-test", disk, "tmpfs", 0, "size=24m,mode=0755"); err != nil {
		t.Skipf("NOT TESTED, what happens on a full disk: no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil { // a failed engine keeps files open
			t.Errorf("unmount: %v", err)
		}
	})
	ballast := filepath.Join(disk, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 8<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	opts := pebblelog.Options{Fleet: "fleet-a", Logger: quiet(), MemTableBytes: 1 << 20, MinFreeBytes: 1}
	dir := filepath.Join(disk, "data")
	l, err := pebblelog.Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	var acked []events.Record
	for range 1000 {
		d := draft("s", 10)
		random := make([]byte, 30_000) // it does not compress much
		_, _ = rand.Read(random)
		d = events.NewDraft(d.Intent, d.Salt, fmt.Appendf(nil, `{"fill":"%x"}`, random))
		// Memory may be full before it is known that nothing more goes onto the disk;
		// then an append waits for space.
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		done, err := l.Append(ctx, events.Append{Drafts: []events.Draft{d}})
		cancel()
		if err != nil {
			if !errors.Is(err, events.ErrFailed) && !errors.Is(err, events.ErrNoSpace) && !errors.Is(err, context.DeadlineExceeded) {
				t.Fatalf("append: %v", err)
			}
			t.Logf("after %d events: %v", len(acked), err)
			break
		}
		acked = append(acked, done.Records...)
	}
	if len(acked) < 20 || len(acked) == 1000 {
		t.Fatalf("%d events went onto the disk", len(acked))
	}
	checkAcknowledged(t, l, acked)
	within(t, "close", func() { _ = l.Close() }) // it may have failed, or not yet
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}

	// What failed holds its lock until the process ends; a copy has none. Pebble's own
	// goroutines go on there, now that space is back: a copy made meanwhile may lack a
	// file that another names.
	for try := range 10 {
		time.Sleep(time.Duration(try) * 100 * time.Millisecond)
		whole := filepath.Join(t.TempDir(), "data")
		if err = os.CopyFS(whole, os.DirFS(dir)); err != nil {
			continue
		}
		if l, err = pebblelog.Open(whole, opts); err == nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	checkAcknowledged(t, l, acked)
	if _, err := l.Append(t.Context(), one("after")); err != nil {
		t.Errorf("append: %v", err)
	}
	mustClose(t, l)
}
