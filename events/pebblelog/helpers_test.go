package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// options are those of most tests: small, and silent.
func options(fsys vfs.FS) pebblelog.Options {
	return pebblelog.Options{Fleet: "fleet-a", FS: fsys, Logger: quiet(), MemTableBytes: 1 << 20}
}

func mustOpen(t *testing.T, opts pebblelog.Options) *pebblelog.Log {
	t.Helper()
	l, err := pebblelog.Open("data", opts)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	return l
}

func mustClose(t *testing.T, l *pebblelog.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
}

var serial atomic.Uint64

// draft is an event with a fresh id and a payload of about this size.
func draft(s events.Stream, size int) events.Draft {
	id := fmt.Sprintf("id-%08d", serial.Add(1))
	h := events.SumHash("salt", id)
	payload := fmt.Appendf(nil, `{"id":%q,"fill":"`, id)
	for i := len(payload); i < size; i++ {
		payload = append(payload, 'a'+h[i%len(h)]%26)
	}
	return events.NewDraft(events.Intent{ID: id, Stream: s, Type: "ext.test", Schema: 1, Actor: "tester"},
		[events.SaltBytes]byte(h[:events.SaltBytes]), append(payload, '"', '}'))
}

func one(s events.Stream) events.Append { return events.Append{Drafts: []events.Draft{draft(s, 60)}} }

func keyed(a events.Append, key string) events.Append {
	a.Key, a.Request = events.SumHash("key", key), events.SumHash("request", key)
	for i := range a.Drafts {
		a.Drafts[i].Intent.Key, a.Drafts[i].Intent.Request = a.Key, a.Request
	}
	return a
}

// fill appends n events, one at a time, some of them with keys.
func fill(t *testing.T, l *pebblelog.Log, n int) []events.Record {
	t.Helper()
	var out []events.Record
	for i := range n {
		a := one(events.Stream(fmt.Sprintf("s-%d", i%5)))
		if i%3 == 0 {
			a = keyed(a, a.Drafts[0].Intent.ID)
		}
		done, err := l.Append(t.Context(), a)
		if err != nil {
			t.Fatalf("append: %v", err)
		}
		out = append(out, done.Records...)
	}
	return out
}

// checkAcknowledged fails the test unless l holds exactly these records first.
func checkAcknowledged(t *testing.T, l events.Log, want []events.Record) {
	t.Helper()
	n := 0
	for r, err := range l.ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatalf("read: %v", err)
		}
		if n < len(want) && string(r.Leaf) != string(want[n].Leaf) {
			t.Fatalf("position %d holds\n%s\nacknowledged was\n%s", n+1, r.Leaf, want[n].Leaf)
		}
		n++
	}
	if n < len(want) {
		t.Fatalf("%d events were acknowledged, %d are there", len(want), n)
	}
}

// faults is a file system whose operations can be held up or made to fail: without
// being done, or after they were.
type faults struct {
	mu   sync.Mutex
	hook func(errorfs.Op) error // guarded by mu
	late bool                   // the hook decides after the operation; guarded by mu
}

var errInjected = errors.New("injected")

func (f *faults) wrap(fsys vfs.FS) vfs.FS {
	return errorfs.Wrap(lateFS{fsys, f}, errorfs.InjectorFunc(func(op errorfs.Op) error { return f.decide(op, false) }))
}

func (f *faults) decide(op errorfs.Op, late bool) error {
	f.mu.Lock()
	hook := f.hook
	if f.late != late {
		hook = nil
	}
	f.mu.Unlock()
	if hook == nil {
		return nil
	}
	return hook(op)
}

// set has hook decide before each operation whether it fails instead.
func (f *faults) set(hook func(errorfs.Op) error) { f.setLate(hook, false) }

// setLate, with late, has hook decide after each operation that writes whether it is
// said to have failed.
func (f *faults) setLate(hook func(errorfs.Op) error, late bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook, f.late = hook, late
}

// lateFS does what it is told and lies about it.
type lateFS struct {
	vfs.FS
	f *faults
}

func (l lateFS) Unwrap() vfs.FS { return l.FS }

func (l lateFS) file(file vfs.File, err error, kind errorfs.OpKind, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	if err := l.f.decide(errorfs.Op{Kind: kind, Path: name}, true); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &lateFile{File: file, f: l.f, name: name}, nil
}

func (l lateFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := l.FS.Create(name, c)
	return l.file(file, err, errorfs.OpCreate, name)
}

func (l lateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := l.FS.OpenReadWrite(name, c, opts...)
	return l.file(file, err, errorfs.OpOpen, name)
}

func (l lateFS) OpenDir(name string) (vfs.File, error) {
	file, err := l.FS.OpenDir(name)
	return l.file(file, err, errorfs.OpOpenDir, name)
}

func (l lateFS) Rename(from, to string) error {
	return errors.Join(l.FS.Rename(from, to), l.f.decide(errorfs.Op{Kind: errorfs.OpRename, Path: to}, true))
}

func (l lateFS) Remove(name string) error {
	if err := l.FS.Remove(name); err != nil {
		return err
	}
	return l.f.decide(errorfs.Op{Kind: errorfs.OpRemove, Path: name}, true)
}

type lateFile struct {
	vfs.File
	f    *faults
	name string
}

func (l *lateFile) said(kind errorfs.OpKind, err error) error {
	if err != nil {
		return err
	}
	return l.f.decide(errorfs.Op{Kind: kind, Path: l.name}, true)
}

func (l *lateFile) Write(p []byte) (int, error) {
	n, err := l.File.Write(p)
	return n, l.said(errorfs.OpFileWrite, err)
}

func (l *lateFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := l.File.WriteAt(p, at)
	return n, l.said(errorfs.OpFileWriteAt, err)
}

func (l *lateFile) Sync() error { return l.said(errorfs.OpFileSync, l.File.Sync()) }

func (l *lateFile) SyncData() error { return l.said(errorfs.OpFileSyncData, l.File.SyncData()) }

// clone copies all files of a file system that nobody writes to.
func clone(t *testing.T, fsys vfs.FS) *vfs.MemFS {
	t.Helper()
	out := vfs.NewMem()
	if ok, err := vfs.Clone(fsys, out, "data", "data"); err != nil || !ok {
		t.Fatalf("copy the files: %v, %v", ok, err)
	}
	return out
}

// content and setContent are for damaging files.
func content(t *testing.T, fsys vfs.FS, path string) []byte {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func setContent(t *testing.T, fsys vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(append([]byte(nil), b...)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

// kept is the record of c with bytes of its own.
func kept(c *events.Checked) events.Record {
	r := c.Record
	r.Leaf, r.Payload = bytes.Clone(r.Leaf), bytes.Clone(r.Payload)
	return r
}
