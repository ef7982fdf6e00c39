package pebblelog_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

// contents is a directory with its files' contents, to see that nothing changes.
func contents(t *testing.T, disk vfs.FS, dir string) string {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var out strings.Builder
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		if info, err := disk.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			out.WriteString(name + "/" + contents(t, disk, path))
			continue
		}
		out.WriteString(name + "=" + string(content(t, disk, path)) + "\n")
	}
	return out.String()
}

// TestStartWithDamage has each way in which a log can fall short of what is known of
// it. It is not opened; opened for reading it serves what comes before the damage, and
// says where that begins; and nothing in its directory changes.
func TestStartWithDamage(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	acked := fill(t, l, 9)
	shorter := func() *vfs.MemFS { mustClose(t, l); return clone(t, disk) }()
	l = mustOpen(t, options(disk))
	early := l.Tree()
	acked = append(acked, fill(t, l, 4)...)
	whole := l.Tree()
	mustClose(t, l)
	other, _ := closedLog(t, 13, false)
	replaced := clone(t, disk) // the same anchor, another log
	anchor := content(t, disk, "data/anchor")
	cutWAL := clone(t, disk)
	wal := lastWAL(t, cutWAL)
	setContent(t, cutWAL, wal, content(t, cutWAL, wal)[:len(content(t, cutWAL, wal))/2])

	for _, c := range []struct {
		name   string
		disk   *vfs.MemFS
		change func(disk *vfs.MemFS)
		signed *pebblelog.Head
		serves int             // how many events, from the first on
		lost   events.Position // 0: nothing is wrong
		opens  bool            // for appends too: what is wrong shows only against signed
		word   string
	}{
		{name: "whole", disk: disk, serves: 13, opens: true},
		{name: "whole, and signed before", disk: disk, signed: &pebblelog.Head{Size: early.Size, Root: early.Root}, serves: 13, opens: true},
		{name: "shorter than its anchor", disk: shorter, change: func(d *vfs.MemFS) { setContent(t, d, "data/anchor", anchor) }, serves: 9, lost: 10, word: "13 events were acknowledged, 9 are there"},
		{name: "shorter than a checkpoint", disk: shorter, signed: &pebblelog.Head{Size: whole.Size, Root: whole.Root}, serves: 9, lost: 10, opens: true, word: "a checkpoint was signed over 13 events, 9 are there"},
		{name: "signed with another past", disk: disk, signed: &pebblelog.Head{Size: early.Size, Root: whole.Root}, serves: 9, lost: 1, opens: true, word: "was signed: at least one of them was replaced"},
		{name: "the anchor is another log's", disk: replaced, change: func(d *vfs.MemFS) { setContent(t, d, "data/anchor", content(t, other, "data/anchor")) }, serves: 13, lost: 1, word: "another log"},
		{name: "no anchor", disk: disk, change: func(d *vfs.MemFS) {
			if err := d.Remove("data/anchor"); err != nil {
				t.Fatal(err)
			}
		}, serves: 13, lost: 1, word: "no valid record"},
		{name: "both slots are bad", disk: disk, change: func(d *vfs.MemFS) {
			b := bytes.Clone(anchor)
			b[50] ^= 1
			b[4096+50] ^= 1
			setContent(t, d, "data/anchor", b)
		}, serves: 13, lost: 1, word: "no valid record"},
		{name: "a WAL that was cut", disk: cutWAL, serves: -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := clone(t, c.disk)
			if c.change != nil {
				c.change(d)
			}
			before := contents(t, d, "data")
			if !c.opens {
				var damage *pebblelog.DamagedError
				_, err := pebblelog.Open("data", options(clone(t, d)))
				if !errors.As(err, &damage) || c.lost != 0 && damage.Position != c.lost {
					t.Fatalf("open: %v", err)
				}
			}
			opts := options(d)
			opts.Signed = c.signed
			opts.Fold = &published{}
			l, err := pebblelog.OpenReadOnly("data", opts)
			if err != nil {
				t.Fatalf("open for reading: %v", err)
			}
			var got []events.Record
			for r, err := range l.ReadAll(t.Context(), 0) {
				if err != nil {
					t.Fatalf("read: %v", err)
				}
				got = append(got, r)
			}
			var why *events.ReadOnlyError
			if !errors.As(l.Degraded(), &why) {
				t.Fatalf("degraded is %v", l.Degraded())
			}
			if c.serves < 0 { // it shows what is there, and that is not all
				c.serves, c.lost, c.word = len(got), events.Position(len(got)+1), "13 events were acknowledged"
				if len(got) == 0 || len(got) == len(acked) {
					t.Fatalf("%d events are left", len(got))
				}
			}
			if !slices.EqualFunc(got, acked[:c.serves], sameEvent) || why.Lost != c.lost || !strings.Contains(why.Detail, c.word) {
				t.Fatalf("%d events are served; degraded is %+v", len(got), why)
			}
			if _, err := l.Append(t.Context(), one("s")); !errors.Is(err, events.ErrReadOnly) {
				t.Errorf("append: %v", err)
			}
			id := acked[0].Header.ID
			if p, err := l.FindID(t.Context(), id); p != 1 || err != nil {
				t.Errorf("its first event is found at %d, %v", p, err)
			}
			if err := l.Backup(t.Context(), func(pebblelog.Backup) error { return nil }); !errors.Is(err, events.ErrReadOnly) {
				t.Errorf("backup: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := l.Wait(ctx, l.Durable()+1); !errors.Is(err, context.Canceled) {
				t.Errorf("wait: %v", err)
			}
			mustClose(t, l)
			if _, err := l.Append(t.Context(), one("s")); err == nil {
				t.Error("an append after the end")
			}
			if contents(t, d, "data") != before {
				t.Error("its directory was changed")
			}
		})
	}
}

// deniedFS has a lock file that this user may not write.
type deniedFS struct{ vfs.FS }

func (deniedFS) Lock(name string) (io.Closer, error) {
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
}

func (f deniedFS) Unwrap() vfs.FS { return f.FS }

// A log whose lock may not be taken is not told as damaged.
func TestLockDenied(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	fill(t, l, 3)
	mustClose(t, l)
	opts := options(disk)
	opts.FS = deniedFS{disk}
	_, reading := pebblelog.OpenReadOnly("data", opts)
	_, auditing := pebblelog.ReadForAudit("data", opts, pebblelog.Head{}, events.CheckOptions{}, func(*events.Checked, error) error { return nil })
	for _, err := range []error{reading, auditing} {
		if !errors.Is(err, fs.ErrPermission) || strings.Contains(err.Error(), "restore a backup") || !strings.Contains(err.Error(), "has to be able to write that file") {
			t.Errorf("the lock may not be taken: %v", err)
		}
	}
}
