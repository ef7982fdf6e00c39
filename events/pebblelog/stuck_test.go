package pebblelog_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

// TestReadersOutliveTheEngine has a reader begin before the engine fails and end
// after it. The reader is the last to use what Pebble wants to be rid of, so that
// letting go of it takes Pebble's lock; it must not wait for those that failed.
func TestReadersOutliveTheEngine(t *testing.T) {
	var f faults
	disk := vfs.NewMem()
	opts := options(f.wrap(disk))
	l := mustOpen(t, opts)
	acked := fill(t, l, 7)
	mustClose(t, l)
	l = mustOpen(t, opts) // everything is in files now, and nothing in a cache

	var (
		once    sync.Once
		reached = make(chan struct{}) // the reader is in the middle of its work
		goOn    = make(chan struct{}) // closed to let it go on
		failing = make(chan struct{}) // closed when the manifest is to be written
	)
	f.set(func(op errorfs.Op) error {
		if strings.HasSuffix(op.Path, ".sst") && op.Kind == errorfs.OpFileReadAt {
			once.Do(func() {
				close(reached)
				<-goOn
			})
		}
		return nil
	})
	read := make(chan error, 1)
	go func() {
		n := 0
		for _, err := range l.ReadAll(context.Background(), 0) {
			if err != nil {
				read <- err
				return
			}
			n++
		}
		if n < len(acked) {
			read <- errors.New("it ended early")
			return
		}
		read <- nil
	}()
	<-reached
	f.set(func(op errorfs.Op) error {
		if strings.Contains(op.Path, "MANIFEST") && op.Kind == errorfs.OpFileWrite {
			close(failing)
			return errInjected
		}
		return nil
	})
	for {
		// The memtable fills up and another takes its place.
		_, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft("s", 4000)}})
		if err != nil {
			if !errors.Is(err, events.ErrFailed) {
				t.Fatalf("append: %v", err)
			}
			break
		}
	}
	<-failing
	f.set(nil)
	close(goOn)
	within(t, "the reader", func() {
		if err := <-read; err != nil {
			t.Errorf("the reader: %v", err)
		}
	})
	within(t, "close", func() {
		if err := l.Close(); !errors.Is(err, events.ErrFailed) {
			t.Errorf("close: %v", err)
		}
	})
}

func isTable(op errorfs.Op) bool { return strings.HasSuffix(op.Path, ".sst") }

// TestTablesCannotBeWritten fills the log while no memtable can be written to its
// file: it fails before appends wait for ever, and can be closed.
func TestTablesCannotBeWritten(t *testing.T) {
	t.Parallel()
	var f faults
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, options(f.wrap(disk)))
	acked := fill(t, l, 7)
	f.set(func(op errorfs.Op) error {
		if isTable(op) && op.Kind == errorfs.OpFileWrite {
			return errInjected
		}
		return nil
	})
	within(t, "append", func() {
		for {
			done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft("s", 40000)}})
			if err != nil {
				if !errors.Is(err, events.ErrFailed) || !strings.Contains(err.Error(), "memtable") {
					t.Errorf("append: %v", err)
				}
				return
			}
			acked = append(acked, done.Records...)
		}
	})
	checkAcknowledged(t, l, acked)
	within(t, "close", func() {
		if err := l.Close(); !errors.Is(err, events.ErrFailed) {
			t.Errorf("close: %v", err)
		}
	})
	l = mustOpen(t, options(disk.CrashClone(vfs.CrashCloneCfg{})))
	checkAcknowledged(t, l, acked)
	mustClose(t, l)
}

// TestTablesFindNoSpace appends more than fits into memory while the disk is full
// for Pebble and nobody saw it coming. Appends are refused as soon as that is known;
// what was under way waits, and goes on when space comes back. A log that is closed
// before that does not wait for it.
func TestTablesFindNoSpace(t *testing.T) {
	t.Parallel()
	var f faults
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, options(f.wrap(disk)))
	tried := make(chan struct{}, 1) // to write a table
	full := func(op errorfs.Op) error {
		if !isTable(op) || op.Kind != errorfs.OpFileWrite {
			return nil
		}
		select {
		case tried <- struct{}{}:
		default:
		}
		return syscall.ENOSPC
	}
	type answer struct {
		recs []events.Record
		err  error
	}
	const appends = 30 // of 400 kB; memory has room for 4 MiB and one group
	begin := func() <-chan answer {
		answers := make(chan answer, appends)
		for range appends {
			go func() {
				done, err := l.Append(context.Background(), events.Append{Drafts: []events.Draft{draft("s", 400_000)}})
				answers <- answer{done.Records, err}
			}()
		}
		for range 3 {
			<-tried
		}
		return answers
	}
	acked := make(map[events.Position]events.Record)
	end := func(answers <-chan answer) (failed, late, refused int) {
		for range appends {
			switch a := <-answers; {
			case a.err == nil:
				acked[a.recs[0].Header.Position] = a.recs[0]
			case errors.Is(a.err, events.ErrFailed):
				failed++
			case errors.Is(a.err, events.ErrClosed):
				late++
			case errors.Is(a.err, events.ErrNoSpace):
				refused++
			default:
				t.Errorf("append: %v", a.err)
			}
		}
		return failed, late, refused
	}
	check := func(l *pebblelog.Log) {
		all := logtest.CheckWhole(t, l)
		for p, r := range acked {
			if int(p) > len(all) || string(all[p-1].Leaf) != string(r.Leaf) {
				t.Fatalf("the event acknowledged at position %d is gone; the log has %d", p, len(all))
			}
		}
	}
	f.set(full)
	answers := begin()
	f.set(nil)
	within(t, "an append that waited for space", func() {
		if failed, late, _ := end(answers); failed+late > 0 {
			t.Errorf("%d appends failed with space again", failed+late)
		}
		for {
			done, err := l.Append(t.Context(), one("s"))
			if err == nil {
				acked[done.First] = done.Records[0]
				return
			}
			if !errors.Is(err, events.ErrNoSpace) {
				t.Errorf("with space again: %v", err)
				return
			}
		}
	})
	check(l)

	f.set(full)
	answers = begin()
	var err error
	within(t, "close", func() { err = l.Close() })
	// Those that came late may have been too many for the others to be too many.
	if failed, late, refused := end(answers); failed+late+refused == 0 || failed > 0 && !errors.Is(err, events.ErrFailed) {
		t.Errorf("of %d appends %d failed, %d came too late, %d were refused; close: %v", appends, failed, late, refused, err)
	}
	l = mustOpen(t, options(disk.CrashClone(vfs.CrashCloneCfg{})))
	check(l)
	mustClose(t, l)
}

// within fails the test if f does not come to an end.
func within(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

// TestOpenOnFullDisk opens a log whose WAL has to be written to tables, which never
// succeeds: it says so, and does not try for ever.
func TestOpenOnFullDisk(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	acked := fill(t, l, 20)
	mustClose(t, l)
	var f faults
	f.set(func(op errorfs.Op) error {
		if isTable(op) && op.Kind == errorfs.OpFileWrite {
			return syscall.ENOSPC
		}
		return nil
	})
	within(t, "open", func() {
		if _, err := pebblelog.Open("data", options(f.wrap(clone(t, disk)))); !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("open: %v", err)
		}
	})
	l, err := pebblelog.OpenReadOnly("data", options(disk))
	if err != nil {
		t.Fatal(err)
	}
	checkAcknowledged(t, l, acked)
	mustClose(t, l)
	l = mustOpen(t, options(disk))
	checkAcknowledged(t, l, acked)
	mustClose(t, l)
}
