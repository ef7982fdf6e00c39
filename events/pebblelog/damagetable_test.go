package pebblelog_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

// A kind of file in a log's directory.
type fileKind struct {
	name string
	is   func(path string) bool
}

var fileKinds = []fileKind{
	{"format", func(p string) bool { return p == "data/format" }},
	{"anchor", func(p string) bool { return p == "data/anchor" }},
	{"WAL", func(p string) bool { return strings.HasSuffix(p, ".log") }},
	{"table", func(p string) bool { return strings.HasSuffix(p, ".sst") }},
	{"manifest", func(p string) bool { return strings.Contains(p, "/MANIFEST-") }},
	{"marker", func(p string) bool { return strings.Contains(p, "/marker.") }},
	{"options", func(p string) bool { return strings.Contains(p, "/OPTIONS-") }},
	{"snapshot", func(p string) bool { return strings.HasPrefix(p, "data/snapshots/") }},
	{"lock", func(p string) bool { return strings.HasSuffix(p, "/LOCK") }},
}

// The ways in which a file is damaged, in the order of the table's columns.
var damages = []string{"a flipped bit", "a cut tail", "a zeroed block", "removed", "swapped with another", "an older copy"}

// outcome is what became of a damaged log, the worst last.
type outcome int

const (
	harmless  outcome = iota // every acknowledged event is there, and appends go on
	toldAudit                // found by the audit, with the position
	toldStart                // found at start, and by the audit
	refused                  // found at start; nothing can be read, which is said
)

func (o outcome) String() string {
	return []string{"harmless", "found by the audit", "found at start", "refused: nothing can be read"}[o]
}

// TestDamageTable damages every kind of file of a log's directory in every way, many
// times, and draws the table of what comes of it. A damage is either harmless or
// found; no log that lacks an event is ever opened, or passes an audit.
//
// With FLEETLEDGER_LONG set it tries far more places.
func TestDamageTable(t *testing.T) {
	places := 2
	if testing.Short() {
		places = 1
	}
	if os.Getenv("FLEETLEDGER_LONG") != "" {
		places = 8
	}
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	table := map[string]map[string]map[outcome]int{}
	seen := func(kind, damage string, o outcome) {
		if table[kind] == nil {
			table[kind] = map[string]map[outcome]int{}
		}
		if table[kind][damage] == nil {
			table[kind][damage] = map[outcome]int{}
		}
		table[kind][damage][o]++
	}

	// Moments of one log, with several tables: what was appended last lies in the WAL,
	// or has been flushed by the start after it; or a start begins behind a snapshot.
	moments := []string{"snapshot", "in the WAL", "flushed"}
	if testing.Short() {
		moments = moments[:1] // it has every kind of file
	}
	for _, moment := range moments {
		disk := vfs.NewMem()
		l := mustOpen(t, options(disk))
		acked := fill(t, l, 30)
		mustClose(t, l)
		l = mustOpen(t, options(disk))
		for range 3 {
			done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft("large", 60_000), draft("s-1", 50)}})
			if err != nil {
				t.Fatal(err)
			}
			acked = append(acked, done.Records...)
		}
		mustClose(t, l)
		earlier := clone(t, disk)
		l = mustOpen(t, options(disk))
		acked = append(acked, fill(t, l, 300)...)
		mustClose(t, l)
		newFold := func() *tally { return nil }
		switch moment {
		case "flushed":
			mustClose(t, mustOpen(t, options(disk)))
		case "snapshot":
			newFold = func() *tally { return &tally{version: "1"} }
			f := newFold()
			l = mustOpen(t, tallied(disk, f))
			f.write(t, l)
			acked = append(acked, fill(t, l, 20)...)
			mustClose(t, l)
		}
		if v := examineWith(t, clone(t, disk), foldOf(newFold())); !v.intact(acked) {
			t.Fatalf("undamaged, the verdict is %+v", v)
		}
		paths := allFiles(t, disk, "data")
		for _, path := range paths {
			kind := kindOf(t, path)
			whole := content(t, disk, path)
			for _, damage := range damages {
				for range places {
					d := clone(t, disk)
					did := inflict(t, rng, d, earlier, paths, path, damage, whole)
					if did == "" {
						break // it cannot be done to this file
					}
					what := fmt.Sprintf("seed %d, %s: %s: %s", seed, moment, path, did)
					seen(kind, damage, judge(t, what, d, acked, newFold()))
					if damage == "removed" || damage == "an older copy" {
						break // there is one way
					}
				}
			}
		}
	}
	t.Log("\n" + drawTable(table))
}

// allFiles are the files under dir.
func allFiles(t *testing.T, disk vfs.FS, dir string) []string {
	t.Helper()
	names, err := disk.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	var out []string
	for _, name := range names {
		path := disk.PathJoin(dir, name)
		if info, err := disk.Stat(path); err != nil {
			t.Fatal(err)
		} else if info.IsDir() {
			out = append(out, allFiles(t, disk, path)...)
		} else {
			out = append(out, path)
		}
	}
	return out
}

// kindOf is the kind of a file. One that has none is new in the directory, and wants
// a row of the table.
func kindOf(t *testing.T, path string) string {
	t.Helper()
	for _, k := range fileKinds {
		if k.is(path) {
			return k.name
		}
	}
	t.Fatalf("%s is of no kind that the damage table has", path)
	return ""
}

// inflict damages the file path of d and says how; "" if that cannot be done to it.
func inflict(t *testing.T, rng *rand.Rand, d, earlier *vfs.MemFS, paths []string, path, damage string, whole []byte) string {
	t.Helper()
	changed := bytes.Clone(whole)
	switch damage {
	case "a flipped bit":
		if len(whole) == 0 {
			return ""
		}
		at, bit := rng.IntN(len(whole)), rng.IntN(8)
		changed[at] ^= 1 << bit
		setContent(t, d, path, changed)
		return fmt.Sprintf("bit %d of byte %d of %d flipped", bit, at, len(whole))
	case "a cut tail":
		if len(whole) == 0 {
			return ""
		}
		size := rng.IntN(len(whole))
		setContent(t, d, path, whole[:size])
		return fmt.Sprintf("cut to %d of %d bytes", size, len(whole))
	case "a zeroed block":
		if len(whole) == 0 {
			return ""
		}
		const block = 512
		at := rng.IntN(len(whole)) / block * block
		clear(changed[at:min(at+block, len(changed))])
		setContent(t, d, path, changed)
		return fmt.Sprintf("block at %d of %d zeroed", at, len(whole))
	case "removed":
		if err := d.Remove(path); err != nil {
			t.Fatal(err)
		}
		return damage
	case "swapped with another":
		others := slices.DeleteFunc(slices.Clone(paths), func(p string) bool { return p == path })
		other := others[rng.IntN(len(others))]
		mine := content(t, d, path)
		setContent(t, d, path, content(t, d, other))
		setContent(t, d, other, mine)
		return "swapped with " + other
	case "an older copy":
		if _, err := earlier.Stat(path); errors.Is(err, fs.ErrNotExist) {
			return ""
		}
		old := content(t, earlier, path)
		if bytes.Equal(old, whole) {
			return ""
		}
		setContent(t, d, path, old)
		return damage
	}
	t.Fatalf("nobody knows how to do %s", damage)
	return ""
}

// judge fails the test unless the damage to d is harmless or found.
func judge(t *testing.T, what string, d *vfs.MemFS, acked []events.Record, fold *tally) outcome {
	t.Helper()
	v := examineWith(t, d, foldOf(fold))
	// Opened for reading it shows a beginning of what was acknowledged, and says where
	// that ends, or it does not open.
	if r, err := pebblelog.OpenReadOnly("data", options(clone(t, d))); err == nil {
		n := 0
		for rec, err := range r.ReadAll(t.Context(), 0) {
			if err != nil {
				break // the payload, or it itself, is lost; that it is, is said
			}
			if n < len(acked) && !sameEvent(rec, acked[n]) {
				t.Fatalf("%s: opened for reading, position %d is not what was acknowledged", what, n+1)
			}
			n++
		}
		why, _ := errors.AsType[*events.ReadOnlyError](r.Degraded())
		if n < len(acked) && why.Lost == 0 && v.damage == nil && len(v.bad) == 0 {
			t.Fatalf("%s: opened for reading, %d of %d events are there, and nobody says so", what, n, len(acked))
		}
		mustClose(t, r)
	}
	switch {
	case v.openErr != nil && v.readErr != nil:
		return refused
	case v.openErr != nil || v.damage != nil:
		if v.readErr == nil && v.audit.Damage == nil && len(v.bad) == 0 && len(v.audit.Index) == 0 && len(v.records) < len(acked) {
			t.Fatalf("%s: open says %v, %v, and the audit passes with %d of %d events", what, v.damage, v.openErr, len(v.records), len(acked))
		}
		return toldStart
	case v.found():
		if v.readErr == nil && v.audit.Damage == nil && len(v.bad) == 0 && len(v.audit.Index) == 0 {
			t.Fatalf("%s: found, without a position: %+v", what, v)
		}
		return toldAudit
	case v.intact(acked):
		if fold != nil {
			want := tally{}
			publish, err := want.Stage(acked)
			if err != nil {
				t.Fatal(err)
			}
			if publish(); fold.sum != want.sum || fold.last != want.last {
				t.Fatalf("%s: the fold is at %d, with another state", what, fold.last)
			}
		}
		// Appends go on, and what is there then is whole.
		l := mustOpen(t, options(d))
		fill(t, l, 3)
		mustClose(t, l)
		if again := examine(t, d); again.found() || len(again.records) != len(acked)+3 {
			t.Fatalf("%s: harmless, but after more appends: %+v", what, again)
		}
		return harmless
	}
	t.Fatalf("%s: %d of %d events are there, and nobody says so", what, len(v.records), len(acked))
	return harmless
}

// foldOf is f as a fold, nil if there is none.
func foldOf(f *tally) events.Fold {
	if f == nil {
		return nil
	}
	return f
}

// drawTable is the table for people: a row for each kind of file.
func drawTable(table map[string]map[string]map[outcome]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| file | %s |\n|%s\n", strings.Join(damages, " | "), strings.Repeat("---|", len(damages)+1))
	for _, k := range fileKinds {
		fmt.Fprintf(&b, "| %s |", k.name)
		for _, damage := range damages {
			var cell []string
			for o := harmless; o <= refused; o++ {
				if n := table[k.name][damage][o]; n > 0 {
					cell = append(cell, fmt.Sprintf("%v (%d)", o, n))
				}
			}
			if cell == nil {
				cell = []string{"-"}
			}
			fmt.Fprintf(&b, " %s |", strings.Join(cell, ", "))
		}
		b.WriteString("\n")
	}
	return b.String()
}
