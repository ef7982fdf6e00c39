package pebblelog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"
	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
)

// tileKey is the key of a tile, as the package comment has it.
func tileKey(level byte, n byte) []byte { return []byte{'t', level, 0, 0, 0, 0, 0, 0, 0, n} }

// edit changes the database of a closed log behind its back.
func edit(t *testing.T, disk vfs.FS, f func(db *pebble.DB)) {
	t.Helper()
	db, err := pebble.Open("data/pebble", &pebble.Options{FS: disk, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}})
	if err != nil {
		t.Fatal(err)
	}
	f(db)
	if err := db.Flush(); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// storedTiles are the tiles in the files of a log.
func storedTiles(t *testing.T, disk *vfs.MemFS) map[string][]byte {
	t.Helper()
	tiles := map[string][]byte{}
	edit(t, clone(t, disk), func(db *pebble.DB) {
		it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{'t'}, UpperBound: []byte{'u'}})
		if err != nil {
			t.Fatal(err)
		}
		for valid := it.First(); valid; valid = it.Next() {
			tiles[string(it.Key())] = bytes.Clone(it.Value())
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	})
	return tiles
}

// tilesOf are the full tiles that leaves give.
func tilesOf(leaves []events.Record) map[string][]byte {
	tiles := map[string][]byte{}
	var tree seal.Tree
	for _, r := range leaves {
		tree.Append(events.LeafHash(r.Leaf), func(full seal.Tile) {
			tiles[string(tileKey(byte(full.Level), byte(full.N)))] = full.AppendTo(nil)
		})
	}
	return tiles
}

func sameTiles(t *testing.T, what string, got, want map[string][]byte) {
	t.Helper()
	for key := range want {
		if !bytes.Equal(got[key], want[key]) {
			t.Fatalf("%s: tile %x has %d bytes and is not the one that the leaves give", what, key, len(got[key]))
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%s: %d tiles are stored, the leaves give %d", what, len(got), len(want))
	}
}

// batches appends n events, many at a time.
func batches(t *testing.T, l *pebblelog.Log, n int) []events.Record {
	t.Helper()
	var out []events.Record
	for len(out) < n {
		var a events.Append
		for range min(1+len(out)%90, n-len(out)) {
			a.Drafts = append(a.Drafts, draft("s", 20))
		}
		done, err := l.Append(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, done.Records...)
	}
	return out
}

func audited(t *testing.T, disk vfs.FS) pebblelog.Audit {
	t.Helper()
	a, err := pebblelog.ReadForAudit("data", options(disk), pebblelog.Head{}, events.CheckOptions{}, func(_ *events.Checked, err error) error { return err })
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func TestTilesLieWithTheLeaves(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	if v := l.Tree(); v.Size != 0 {
		t.Fatalf("a new log's tree has %d leaves", v.Size)
	}
	recs := batches(t, l, 1000)
	for range 3 {
		mustClose(t, l)
		want := tilesOf(recs)
		if len(want) != len(recs)/seal.TileWidth {
			t.Fatalf("%d leaves give %d tiles", len(recs), len(want))
		}
		sameTiles(t, "closed", storedTiles(t, disk), want)
		if a := audited(t, disk); a.Damage != nil || len(a.Index) > 0 {
			t.Fatalf("the audit finds %v, %v", a.Damage, a.Index)
		}
		l = mustOpen(t, options(disk))
		checkProved(t, l, recs)
		recs = append(recs, batches(t, l, 300)...)
		checkProved(t, l, recs)
	}
	mustClose(t, l)
	if _, err := l.FullTile(0, 0); !errors.Is(err, events.ErrClosed) {
		t.Errorf("a tile of a closed log: %v", err)
	}
}

// checkProved has some events of l proved against its newest root.
func checkProved(t *testing.T, l *pebblelog.Log, recs []events.Record) {
	t.Helper()
	r := seal.NewReader(l)
	root := l.Tree().Root
	for p := 1; p <= len(recs); p += 37 {
		proof, err := r.Inclusion(events.Position(p), uint64(len(recs)))
		if err == nil {
			err = tlog.CheckRecord(proof, int64(len(recs)), tlog.Hash(root), int64(p-1), tlog.RecordHash(recs[p-1].Leaf))
		}
		if err != nil {
			t.Fatalf("position %d of %d: %v", p, len(recs), err)
		}
	}
}

// TestReceiptsCanBeProved: whoever has a receipt can have it proved at once,
// while others append.
func TestReceiptsCanBeProved(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	l := mustOpen(t, options(vfs.NewMem()))
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 60 {
				done, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft(events.Stream(fmt.Sprint("s-", w)), 20), draft("all", 20)}})
				if err != nil {
					t.Error(err)
					return
				}
				r := seal.NewReader(l)
				if r.Size() < uint64(done.Last) {
					t.Errorf("the tree has %d leaves, the receipt says %d", r.Size(), done.Last)
				}
				root, err := r.RootAt(r.Size())
				if err != nil {
					t.Error(err)
				}
				proof, err := r.Inclusion(done.First, r.Size())
				if err == nil {
					err = tlog.CheckRecord(proof, int64(r.Size()), tlog.Hash(root), int64(done.First)-1, tlog.Hash(done.Records[0].LeafHash))
				}
				if err != nil {
					t.Errorf("position %d of %d: %v", done.First, r.Size(), err)
					return
				}
			}
		})
	}
	wg.Wait()
	mustClose(t, l)
}

// TestOlderLogsGetTiles opens logs whose tiles, all or some, are not there.
func TestOlderLogsGetTiles(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	recs := batches(t, l, 1300)
	mustClose(t, l)
	want := tilesOf(recs)

	all, one := clone(t, disk), clone(t, disk)
	edit(t, all, func(db *pebble.DB) {
		if err := db.DeleteRange([]byte{'t'}, []byte{'u'}, pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	edit(t, one, func(db *pebble.DB) {
		if err := db.Delete(tileKey(0, 2), pebble.Sync); err != nil {
			t.Fatal(err)
		}
	})
	if a := audited(t, all); a.Damage != nil || len(a.Index) > 0 {
		t.Errorf("a log that never had tiles: %v, %v", a.Damage, a.Index)
	}
	if a := audited(t, one); len(a.Index) != 1 || a.Index[0].Position != 513 || !strings.Contains(a.Index[0].Detail, "tile 0/2") {
		t.Errorf("the audit of a log that lacks tile 0/2 finds %v", a.Index)
	}
	for what, disk := range map[string]*vfs.MemFS{"all": all, "one": one} {
		l := mustOpen(t, options(disk))
		checkProved(t, l, recs)
		more := batches(t, l, 300)
		checkProved(t, l, append(recs[:len(recs):len(recs)], more...))
		mustClose(t, l)
		got := storedTiles(t, disk)
		for key := range want {
			if !bytes.Equal(got[key], want[key]) {
				t.Fatalf("%s: tile %x was not made", what, key)
			}
		}
	}
}

// TestWrongTiles changes tiles behind the back of the log. Both Open and the
// audit name the first event below the tile.
func TestWrongTiles(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	recs := batches(t, l, 700)
	mustClose(t, l)
	good := tilesOf(recs)[string(tileKey(0, 1))]
	flipped := bytes.Clone(good)
	flipped[777] ^= 16
	for what, c := range map[string]struct {
		key, value []byte
		position   events.Position
	}{
		"a flipped bit":         {tileKey(0, 1), flipped, 257},
		"another tile":          {tileKey(0, 0), good, 1},
		"cut":                   {tileKey(0, 1), good[:8191], 257},
		"empty":                 {tileKey(0, 1), nil, 257},
		"a tile past the end":   {tileKey(0, 2), good, 701},
		"far past the end":      {tileKey(0, 200), good, 701},
		"a level that is empty": {tileKey(1, 0), good, 701},
	} {
		disk := clone(t, disk)
		edit(t, disk, func(db *pebble.DB) {
			if err := db.Set(c.key, c.value, pebble.Sync); err != nil {
				t.Fatal(err)
			}
		})
		if a := audited(t, disk); len(a.Index) != 1 || a.Index[0].Position != c.position {
			t.Errorf("%s: the audit finds %v", what, a.Index)
		}
		_, err := pebblelog.Open("data", options(disk))
		var damaged *pebblelog.DamagedError
		if !errors.As(err, &damaged) || damaged.Position != c.position {
			t.Errorf("%s: open: %v", what, err)
		}
	}
}

// TestPowerLossKeepsTilesAndLeavesTogether cuts the power at random moments while
// tiles are filled: on the disk lie the tiles of the leaves that lie there, not one
// more or less.
func TestPowerLossKeepsTilesAndLeavesTogether(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	disk := vfs.NewCrashableMem()
	l := mustOpen(t, options(disk))
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil {
				var a events.Append
				for range 40 {
					a.Drafts = append(a.Drafts, draft("s", 20))
				}
				if _, err := l.Append(t.Context(), a); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	rounds := 12
	if testing.Short() {
		rounds = 4
	}
	type loss struct {
		disk  *vfs.MemFS
		acked seal.View
	}
	var losses []loss
	for i := range rounds {
		if err := l.Wait(t.Context(), l.Durable()+events.Position(100+rng.IntN(300))); err != nil {
			t.Fatal(err)
		}
		acked := l.Tree()
		percent := []int{0, 100, 1 + rng.IntN(99)}[i%3]
		losses = append(losses, loss{disk.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rng}), acked})
	}
	stop()
	wg.Wait()
	mustClose(t, l)
	for i, c := range losses {
		what := fmt.Sprintf("seed %d, power loss %d", seed, i)
		var recs []events.Record
		a, err := pebblelog.ReadForAudit("data", options(c.disk), pebblelog.Head{}, events.CheckOptions{}, func(c *events.Checked, err error) error {
			recs = append(recs, kept(c))
			return err
		})
		if err != nil || a.Damage != nil || len(a.Index) > 0 || a.Size < c.acked.Size {
			t.Fatalf("%s: %d events were acknowledged; the audit: %+v, %v", what, c.acked.Size, a, err)
		}
		sameTiles(t, what, storedTiles(t, c.disk), tilesOf(recs))
		l := mustOpen(t, options(c.disk))
		if root, err := seal.NewReader(l).RootAt(c.acked.Size); err != nil || root != c.acked.Root {
			t.Fatalf("%s: the root of the %d acknowledged events was %s, and is %s, %v", what, c.acked.Size, c.acked.Root, root, err)
		}
		mustClose(t, l)
		sameTiles(t, what+", opened", storedTiles(t, c.disk), tilesOf(recs))
	}
}

// TestAuditOfTheRest: what an earlier audit has read is not read again, and must be the
// beginning of the log by its tiles.
func TestAuditOfTheRest(t *testing.T) {
	disk := vfs.NewMem()
	log := mustOpen(t, options(disk))
	fill(t, log, 700)
	reader := seal.NewReader(log)
	roots := map[uint64]events.Hash{}
	for _, n := range []uint64{1, 255, 256, 257, 512, 699, 700} {
		root, err := reader.RootAt(n)
		if err != nil {
			t.Fatal(err)
		}
		roots[n] = root
	}
	mustClose(t, log)
	for n, root := range roots {
		var read []events.Position
		a, err := pebblelog.ReadForAudit("data", options(disk), pebblelog.Head{Size: n, Root: root}, events.CheckOptions{}, func(c *events.Checked, err error) error {
			read = append(read, c.Stored.Position)
			return err
		})
		if err != nil || a.Damage != nil || a.Size != 700 || a.Root != roots[700] || len(read) != int(700-n) || len(read) > 0 && read[0] != events.Position(n+1) {
			t.Errorf("from %d on: %v %v, %d read", n, err, a.Damage, len(read))
		}
		_, err = pebblelog.ReadForAudit("data", options(disk), pebblelog.Head{Size: n, Root: events.SumHash("another")}, events.CheckOptions{}, nil)
		if _, ok := errors.AsType[*pebblelog.BeginningError](err); !ok {
			t.Errorf("another root at %d: %v", n, err)
		}
	}
	_, err := pebblelog.ReadForAudit("data", options(disk), pebblelog.Head{Size: 701, Root: roots[700]}, events.CheckOptions{}, nil)
	if other, ok := errors.AsType[*pebblelog.BeginningError](err); !ok || other.Position != 701 {
		t.Errorf("of more than there is: %v", err)
	}
	var again []events.Position
	if err := pebblelog.ReadAgain("data", options(disk), []events.Position{3, 700}, func(s events.Stored) { again = append(again, s.Position) }); err != nil || !slices.Equal(again, []events.Position{3, 700}) {
		t.Errorf("read again: %v, %v", again, err)
	}
	if pebblelog.ReadAgain("data", options(disk), []events.Position{701}, func(events.Stored) {}) == nil {
		t.Error("what is not there is read again")
	}
}
