package pebblelog_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
)

// No table holds keys of two spaces. One that did would overlap all later tables of
// the space that it begins in, so that what comes in order is written again for ever.
func TestTablesHoldOneSpace(t *testing.T) {
	disk := vfs.NewMem()
	l := mustOpen(t, options(disk))
	for range 8 {
		var a events.Append
		for i := range 400 {
			a.Drafts = append(a.Drafts, draft(events.TaskStream(fmt.Sprint(i)), 900))
		}
		if _, err := l.Append(context.Background(), keyed(a, fmt.Sprint(l.Durable()))); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, l)
	// It writes to tables what is only in the WAL: by the engine's tuning, then.
	mustClose(t, mustOpen(t, options(disk)))

	db, err := pebble.Open("data/pebble", &pebble.Options{FS: disk, FormatMajorVersion: pebble.FormatNewest, Logger: silent{}, ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	levels, err := db.SSTables()
	if err != nil {
		t.Fatal(err)
	}
	tables := map[byte]int{}
	for _, level := range levels {
		for _, table := range level {
			first, last := table.Smallest.UserKey, table.Largest.UserKey
			if first[0] != last[0] {
				t.Errorf("a table holds %q to %q", first, last)
			}
			tables[first[0]]++
		}
	}
	for _, space := range []byte("hpsikt") {
		if tables[space] == 0 {
			t.Errorf("no table holds keys of %q; there are %v", space, tables)
		}
	}
}
