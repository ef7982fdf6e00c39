package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

// verdict is what became of a damaged log.
type verdict struct {
	damage  *pebblelog.DamagedError // Open said so
	openErr error                   // Open said something else
	audit   pebblelog.Audit
	bad     []events.Position // positions that the audit named
	records []events.Record   // what the audit read well
	readErr error             // the audit could not read at all
}

// examine opens and audits a damaged log. Neither may change anything that
// matters: the audit comes last and must agree.
func examine(t *testing.T, disk *vfs.MemFS) (v verdict) {
	t.Helper()
	return examineWith(t, disk, nil)
}

// examineWith is examine with a fold, which a snapshot may be taken up for: what was
// passed over then is awaited.
func examineWith(t *testing.T, disk *vfs.MemFS, fold events.Fold) (v verdict) {
	t.Helper()
	opts := options(clone(t, disk))
	opts.Fold = fold
	l, err := pebblelog.Open("data", opts)
	switch {
	case errors.As(err, &v.damage):
	case err != nil:
		v.openErr = err
	default:
		limit := time.Now().Add(20 * time.Second)
		for done, of := l.Verified(); done < of && l.Degraded() == nil; done, of = l.Verified() {
			if time.Sleep(time.Millisecond); time.Now().After(limit) {
				t.Fatalf("%d of %d events were verified, and no more", done, of)
			}
		}
		if lost, ok := errors.AsType[*events.ReadOnlyError](l.Degraded()); ok {
			v.damage = &pebblelog.DamagedError{Dir: "data", Position: lost.Lost, Detail: lost.Detail}
		}
		_ = l.Close() // it says what is wrong once more
	}
	v.audit, v.readErr = pebblelog.ReadForAudit("data", options(disk), pebblelog.Head{}, events.CheckOptions{}, func(c *events.Checked, err error) error {
		if err != nil {
			v.bad = append(v.bad, c.Stored.Position)
		} else {
			v.records = append(v.records, kept(c))
		}
		return nil
	})
	return v
}

// intact reports whether every acknowledged event is there.
func (v verdict) intact(acked []events.Record) bool {
	return v.damage == nil && v.openErr == nil && v.readErr == nil && len(v.bad) == 0 && v.audit.Damage == nil &&
		len(v.audit.Index) == 0 && slices.EqualFunc(v.records, acked, sameEvent)
}

// found reports whether the damage was named by Open or by the audit.
func (v verdict) found() bool {
	return v.damage != nil || v.openErr != nil || v.readErr != nil || len(v.bad) > 0 || v.audit.Damage != nil || len(v.audit.Index) > 0
}

func sameEvent(a, b events.Record) bool {
	return bytes.Equal(a.Leaf, b.Leaf) && bytes.Equal(a.Payload, b.Payload)
}

// closedLog is a log with n events whose files lie still. flushed says whether
// they lie in tables or in the WAL.
func closedLog(t *testing.T, n int, flushed bool) (*vfs.MemFS, []events.Record) {
	t.Helper()
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	acked := fill(t, l, n)
	mustClose(t, l)
	if flushed {
		mustClose(t, mustOpen(t, options(disk))) // opening flushes the WAL
	}
	return disk, acked
}

func filesOf(t *testing.T, disk vfs.FS, suffix string) []string {
	t.Helper()
	names, err := disk.List("data/pebble")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			out = append(out, "data/pebble/"+name)
		}
	}
	slices.Sort(out)
	return out
}

// lastWAL is the WAL that holds the events.
func lastWAL(t *testing.T, disk vfs.FS) string {
	t.Helper()
	wals := filesOf(t, disk, ".log")
	slices.SortFunc(wals, func(a, b string) int { return len(content(t, disk, a)) - len(content(t, disk, b)) })
	return wals[len(wals)-1]
}

// TestCutWAL cuts the WAL at many lengths. Pebble alone would open each of them
// with events missing and no error.
func TestCutWAL(t *testing.T) {
	disk, acked := closedLog(t, 40, false)
	wal := lastWAL(t, disk)
	whole := content(t, disk, wal)
	lengths := 0
	for size := 0; size < len(whole); size += 1 + len(whole)/60 {
		d := clone(t, disk)
		setContent(t, d, wal, whole[:size])
		v := examine(t, d)
		if v.intact(acked) {
			continue // only the end mark of the WAL was cut
		}
		lengths++
		if v.damage == nil {
			t.Fatalf("cut at %d of %d, open says %v; there are %d of %d events", size, len(whole), v.openErr, len(v.records), len(acked))
		}
		if v.audit.Damage == nil || v.audit.Damage.Position != v.damage.Position {
			t.Fatalf("cut at %d, open says %v, the audit says %v", size, v.damage, v.audit.Damage)
		}
		first := len(v.records) + 1
		if int(v.damage.Position) != first || !slices.EqualFunc(v.records, acked[:len(v.records)], sameEvent) {
			t.Fatalf("cut at %d, %d events are left, the first lost one is said to be %d", size, len(v.records), v.damage.Position)
		}
		for _, word := range []string{fmt.Sprintf("position %d", first), "fleetledger audit --data data", "backup"} {
			if !strings.Contains(v.damage.Error(), word) {
				t.Fatalf("the message does not say %q: %v", word, v.damage)
			}
		}
	}
	if lengths < 50 {
		t.Fatalf("only %d cuts lost something", lengths)
	}
}

// TestFlippedBytes flips single bytes all over the files: each flip is found, or
// every event is there.
func TestFlippedBytes(t *testing.T) {
	per := 40
	if testing.Short() {
		per = 15
	}
	for _, flushed := range []bool{false, true} {
		disk, acked := closedLog(t, 40, flushed)
		if v := examine(t, clone(t, disk)); !v.intact(acked) {
			t.Fatalf("undamaged, the verdict is %+v", v)
		}
		suffix := ".log"
		if flushed {
			suffix = ".sst"
		}
		found := 0
		for _, file := range filesOf(t, disk, suffix) {
			whole := content(t, disk, file)
			for at := 0; at < len(whole); at += 1 + len(whole)/per {
				d := clone(t, disk)
				flipped := bytes.Clone(whole)
				flipped[at] ^= 0x20
				setContent(t, d, file, flipped)
				v := examine(t, d)
				if !v.intact(acked) && !v.found() {
					t.Fatalf("byte %d of %s flipped: %d of %d events, and nobody says so", at, file, len(v.records), len(acked))
				}
				if v.found() {
					found++
				}
			}
		}
		if found < per/4 {
			t.Errorf("flips in %s files: only %d were found", suffix, found)
		}
	}
}

// TestFlippedPayloadInWAL flips a byte of each payload in the WAL: Open and the audit
// both name the very event, and the audit reads all before it. Pebble alone would
// say that the WAL is damaged, not which event is.
func TestFlippedPayloadInWAL(t *testing.T) {
	disk, acked := closedLog(t, 40, false)
	wal := lastWAL(t, disk)
	whole := content(t, disk, wal)
	for _, r := range acked {
		at := bytes.Index(whole, r.Payload)
		if at < 0 {
			continue // split by the WAL's own blocks
		}
		d := clone(t, disk)
		flipped := bytes.Clone(whole)
		flipped[at+len(r.Payload)/2] ^= 1
		setContent(t, d, wal, flipped)
		v := examine(t, d)
		if want := r.Header.Position; v.damage == nil || v.damage.Position != want || v.audit.Damage == nil || v.audit.Damage.Position != want ||
			!slices.EqualFunc(v.records, acked[:want-1], sameEvent) {
			t.Fatalf("position %d: open says %v, %v; the audit says %v, %v, and reads %d events", want, v.damage, v.openErr, v.audit.Damage, v.readErr, len(v.records))
		}
	}
}

// TestDamagedTable damages one block of a table: the audit names the positions
// in it and reads all others.
func TestDamagedTable(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	const n = 300
	var acked []events.Record
	for range n / 10 {
		a := events.Append{}
		for range 10 {
			a.Drafts = append(a.Drafts, draft("s", 200))
		}
		done, err := l.Append(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		acked = append(acked, done.Records...)
	}
	mustClose(t, l)
	mustClose(t, mustOpen(t, options(disk)))

	var partly int
	for _, file := range filesOf(t, disk, ".sst") {
		whole := content(t, disk, file)
		for at := 1000; at < len(whole); at += 20011 {
			d := clone(t, disk)
			flipped := bytes.Clone(whole)
			flipped[at] ^= 0x01
			setContent(t, d, file, flipped)
			v := examine(t, d)
			if len(v.bad) == 0 {
				continue
			}
			if len(v.bad)+len(v.records) != n {
				t.Fatalf("of %d positions %d are bad and %d well", n, len(v.bad), len(v.records))
			}
			if v.damage != nil && v.damage.Position != v.bad[0] {
				t.Fatalf("open says %v, the audit's first is %d", v.damage, v.bad[0])
			}
			if v.damage != nil && strings.Contains(v.damage.Detail, "\n") {
				t.Fatalf("what is wrong is told as %q", v.damage.Detail)
			}
			for _, r := range v.records {
				if !sameEvent(r, acked[r.Header.Position-1]) {
					t.Fatalf("position %d was read wrongly", r.Header.Position)
				}
			}
			if len(v.records) > 0 {
				partly++
			}
		}
	}
	if partly == 0 {
		t.Fatal("no damage left a part of the log readable")
	}
}

func TestAnchorDamage(t *testing.T) {
	const slot = 4096
	var older []byte
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	acked := fill(t, l, 9)
	older = content(t, disk, "data/anchor")
	mustClose(t, l)
	shorter := clone(t, disk)
	l = mustOpen(t, options(disk))
	acked = append(acked, fill(t, l, 4)...)
	mustClose(t, l)
	newest := content(t, disk, "data/anchor")

	other := vfs.NewMem()
	l = mustOpen(t, options(other))
	fill(t, l, 13)
	mustClose(t, l)

	// newerSlot is the slot that holds the newest record.
	newerSlot := 0
	if string(newest[slot:slot+48]) > string(newest[:48]) { // the same up to the generation
		newerSlot = 1
	}
	edit := func(f func(b []byte)) []byte {
		b := bytes.Clone(newest)
		f(b)
		return b
	}
	for _, c := range []struct {
		name   string
		disk   *vfs.MemFS
		anchor []byte          // nil: removed
		want   events.Position // 0: opens
		word   string          // in the message
		acked  []events.Record
	}{
		{name: "untouched", disk: disk, anchor: newest, acked: acked},
		{name: "a byte of the newer slot flipped", disk: disk, anchor: edit(func(b []byte) { b[newerSlot*slot+60] ^= 1 }), acked: acked},
		{name: "the newer slot torn", disk: disk, anchor: edit(func(b []byte) { clear(b[newerSlot*slot : newerSlot*slot+100]) }), acked: acked},
		{name: "the older slot torn", disk: disk, anchor: edit(func(b []byte) { clear(b[(1-newerSlot)*slot:][:slot]) }), acked: acked},
		{name: "a byte of the padding flipped", disk: disk, anchor: edit(func(b []byte) { b[newerSlot*slot+3000] ^= 1 }), acked: acked},
		{name: "an older copy", disk: disk, anchor: older, acked: acked},
		{name: "both slots flipped", disk: disk, anchor: edit(func(b []byte) { b[50] ^= 1; b[slot+50] ^= 1 }), want: 1, word: "no valid record"},
		{name: "the slots exchanged", disk: disk, anchor: edit(func(b []byte) { copy(b, append(bytes.Clone(b[slot:]), b[:slot]...)) }), want: 1, word: "other slot"},
		{name: "cut", disk: disk, anchor: newest[:100], want: 1, word: "ends before"},
		{name: "empty", disk: disk, anchor: []byte{}, want: 1, word: "no valid record"},
		{name: "removed", disk: disk, want: 1, word: "no valid record"},
		{name: "that of another log", disk: disk, anchor: content(t, other, "data/anchor"), want: 1, word: "another log"},
		{name: "a newer copy", disk: shorter, anchor: newest, want: 10, word: "13 events were acknowledged, 9 are there"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := clone(t, c.disk)
			if c.anchor == nil {
				if err := d.Remove("data/anchor"); err != nil {
					t.Fatal(err)
				}
			} else {
				setContent(t, d, "data/anchor", c.anchor)
			}
			v := examine(t, clone(t, d))
			if c.want != 0 {
				if v.damage == nil || v.damage.Position != c.want || !strings.Contains(v.damage.Error(), c.word) {
					t.Fatalf("open says %v, %v", v.damage, v.openErr)
				}
				if v.audit.Damage == nil || v.audit.Damage.Position != c.want {
					t.Fatalf("the audit says %v", v.audit.Damage)
				}
				if len(v.bad) > 0 || len(v.records) == 0 {
					t.Fatalf("the audit names %v as bad", v.bad)
				}
				return
			}
			if !v.intact(c.acked) {
				t.Fatalf("the verdict is %+v", v)
			}
			l := mustOpen(t, options(d))
			fill(t, l, 3)
			if got := len(logtest.CheckWhole(t, l)); got != len(c.acked)+3 {
				t.Fatalf("%d events", got)
			}
			mustClose(t, l)
			if v := examine(t, d); v.found() {
				t.Fatalf("after more appends the verdict is %+v", v)
			}
		})
	}
}

// TestReplacedEvents writes into Pebble what it would not notice itself.
func TestReplacedEvents(t *testing.T) {
	base, acked := closedLog(t, 12, true)
	forge := func(place func(*events.Place)) []byte {
		h := acked[5].Header
		place(&h.Place)
		return h.Encode()
	}
	header := func(p byte) []byte { return []byte{'h', 0, 0, 0, 0, 0, 0, 0, p} }
	payload := func(p byte) []byte { return []byte{'p', 0, 0, 0, 0, 0, 0, 0, p} }
	h := acked[5].Header
	stream := func(s events.Stream, r byte) []byte {
		return append(append([]byte{'s'}, s...), 0, 0, 0, 0, 0, 0, 0, 0, r)
	}
	for _, c := range []struct {
		name  string
		edit  func(db *pebble.DB) error
		opens bool              // Open does not read what was changed
		bad   []events.Position // what the audit names
		index int               // index problems the audit names, at least
		all   bool              // damage of the whole, named by root
	}{
		{name: "an event is missing", edit: func(db *pebble.DB) error { return db.Delete(header(6), pebble.Sync) }, bad: []events.Position{6}},
		{name: "its time was changed", edit: func(db *pebble.DB) error {
			return db.Set(header(6), forge(func(p *events.Place) { p.Time = p.Time.Add(1000) }), pebble.Sync)
		}, bad: []events.Position{11}}, // the next of its stream no longer follows
		{name: "the last event was replaced", edit: func(db *pebble.DB) error {
			last := acked[11].Header
			last.Actor = "somebody-else"
			return db.Set(header(12), last.Encode(), pebble.Sync)
		}, all: true},
		{name: "it is spelled differently", edit: func(db *pebble.DB) error {
			return db.Set(header(6), append(acked[5].Leaf, ' '), pebble.Sync)
		}, bad: []events.Position{6}},
		{name: "it is another position's", edit: func(db *pebble.DB) error { return db.Set(header(6), acked[6].Leaf, pebble.Sync) }, bad: []events.Position{6}},
		{name: "it is of another fleet", edit: func(db *pebble.DB) error {
			return db.Set(header(6), forge(func(p *events.Place) { p.Fleet = "other" }), pebble.Sync)
		}, bad: []events.Position{6, 11}},
		{name: "a payload was changed", edit: func(db *pebble.DB) error {
			return db.Set(payload(6), append(bytes.Clone(acked[5].Salt[:]), `{"forged":true}`...), pebble.Sync)
		}, opens: true, bad: []events.Position{6}},
		{name: "a payload is missing", edit: func(db *pebble.DB) error { return db.Delete(payload(6), pebble.Sync) }, opens: true, bad: []events.Position{6}},
		{name: "an id points elsewhere", edit: func(db *pebble.DB) error {
			return db.Set(append([]byte{'i'}, h.ID...), []byte{0, 0, 0, 0, 0, 0, 0, 3}, pebble.Sync)
		}, opens: true, index: 1},
		{name: "an id is missing", edit: func(db *pebble.DB) error { return db.Delete(append([]byte{'i'}, h.ID...), pebble.Sync) }, opens: true, index: 1},
		{name: "an id is made up", edit: func(db *pebble.DB) error {
			return db.Set([]byte("imade-up"), []byte{0, 0, 0, 0, 0, 0, 0, 3}, pebble.Sync)
		}, opens: true, index: 1},
		{name: "a stream's entry is missing", edit: func(db *pebble.DB) error {
			return db.Delete(stream(h.Stream, byte(h.Revision)), pebble.Sync)
		}, opens: true, index: 1},
		{name: "a stream has an entry too many", edit: func(db *pebble.DB) error {
			return db.Set(stream(h.Stream, 9), append([]byte{0, 0, 0, 0, 0, 0, 0, 6}, acked[5].LeafHash[:]...), pebble.Sync)
		}, opens: true, index: 1},
		{name: "a key is missing", edit: func(db *pebble.DB) error {
			return db.Delete(append([]byte{'k'}, acked[3].Header.Key[:]...), pebble.Sync)
		}, opens: true, index: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := clone(t, base)
			db, err := pebble.Open("data/pebble", &pebble.Options{FS: d, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(c.edit(db), db.Close()); err != nil {
				t.Fatal(err)
			}
			v := examine(t, d)
			if c.opens != (v.damage == nil) || v.openErr != nil || v.readErr != nil {
				t.Fatalf("open says %v, %v; the audit %v", v.damage, v.openErr, v.readErr)
			}
			if !slices.Equal(v.bad, c.bad) {
				t.Errorf("the audit names %v, not %v", v.bad, c.bad)
			}
			if len(v.audit.Index) < c.index || c.index == 0 && len(c.bad) == 0 && len(v.audit.Index) > 2 {
				t.Errorf("the audit names %d index problems: %v", len(v.audit.Index), v.audit.Index)
			}
			if c.all && v.audit.Damage == nil {
				t.Error("the audit's root agrees")
			}
			if !c.opens && len(c.bad) > 0 && v.damage.Position != c.bad[0] {
				t.Errorf("open names position %d first, the audit %d", v.damage.Position, c.bad[0])
			}
		})
	}
}
