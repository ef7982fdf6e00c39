package logtest

import (
	"bytes"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// checkTree fails the test where the tree that an engine keeps is not the one that
// its leaves give. An engine that keeps none passes.
func checkTree(t *testing.T, l events.Log) {
	t.Helper()
	store, ok := l.(seal.Store)
	if !ok {
		return
	}
	durable := l.Durable()
	r := seal.NewReader(store)
	if r.Size() < uint64(durable) {
		t.Fatalf("the tree has %d leaves, %d events are durable", r.Size(), durable)
	}
	var tree seal.Tree
	for rec, err := range l.ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatalf("read all: %v", err)
		}
		if tree.Size() == r.Size() {
			break // appended since
		}
		tree.Append(events.LeafHash(rec.Leaf), func(full seal.Tile) {
			got, err := store.FullTile(full.Level, full.N)
			if err != nil || !bytes.Equal(got, full.AppendTo(nil)) {
				t.Fatalf("%s of a tree of %d leaves is not the one that the leaves give, error %v", full, r.Size(), err)
			}
		})
	}
	root, err := r.RootAt(r.Size())
	if err != nil || tree.Size() != r.Size() || tree.Root() != root {
		t.Fatalf("the root of %d leaves is %s (%v); %d leaves are there, with root %s", r.Size(), root, err, tree.Size(), tree.Root())
	}
	// Its right edge, as far as it is not in full tiles.
	for level, nodes := 0, r.Size(); nodes > 0; level, nodes = level+1, nodes/seal.TileWidth {
		if width := int(nodes % seal.TileWidth); width > 0 {
			b, err := r.Tile(tlog.Tile{H: seal.TileHeight, L: level, N: int64(nodes / seal.TileWidth), W: width})
			if err != nil || len(b) != width*len(root) {
				t.Fatalf("the last tile of level %d of a tree of %d leaves has %d bytes, error %v", level, r.Size(), len(b), err)
			}
		}
	}
	if r.Size() > 0 {
		for _, p := range []events.Position{1, events.Position(r.Size())} {
			if _, err := r.Inclusion(p, r.Size()); err != nil {
				t.Fatalf("position %d of %d cannot be proved: %v", p, r.Size(), err)
			}
		}
	}
}
