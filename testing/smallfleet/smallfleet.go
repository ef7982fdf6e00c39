// Package smallfleet is a founded fleet in memory for tests. Its time stands still unless
// it is moved and its ids count up, so it comes out the same, hash by hash, each time
// that the same is done to it. Beside it are the keys that sign its log, and what
// somebody who holds a log could make of it.
//
//	f := smallfleet.New(t)
//	f.Do(f.RegisterActor(ctx, smallfleet.As("root"), …))
//	sealer := smallfleet.NewSealer(t, f.Memory(), nil, smallfleet.NewKey(t, "first"))
package smallfleet

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// Fleet is the fleet "default". Whoever changes its fields calls its methods from one
// goroutine.
type Fleet struct {
	*commands.Ledger
	// Now is what the log takes for the time.
	Now time.Time
	// Last is the result of what was done last.
	Last commands.Result

	t   testing.TB
	log *memlog.Log
	ids uint64
}

// New founds a fleet.
func New(t testing.TB) *Fleet {
	t.Helper()
	f := &Fleet{Now: time.Date(2026, 3, 1, 9, 0, 0, 0, time.UTC), t: t}
	state := projections.NewState()
	var err error
	if f.log, err = memlog.New(memlog.Options{Fleet: "default", Fold: state, Now: func() time.Time { return f.Now }}); err != nil {
		t.Fatal(err)
	}
	f.Ledger = commands.New(f.log, state, commands.Random{
		ID:    func() string { f.ids++; return fmt.Sprintf("00000000-0000-7000-8000-%012d", f.ids) },
		Bytes: func(b []byte) { f.ids++; clear(b); binary.BigEndian.PutUint64(b, f.ids) },
	})
	f.Do(f.Found(context.Background(), "default"))
	return f
}

// As is a caller that is known.
func As(actor string) commands.Caller { return commands.Caller{Actor: actor} }

// Level is a level that is given.
func Level(n events.Level) *events.Level { return &n }

// Do fails the test unless a command was carried out.
func (f *Fleet) Do(r commands.Result, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	f.Last = r
}

// Asked is the id of the approval that was asked for last.
func (f *Fleet) Asked() string {
	f.t.Helper()
	r, ok := f.Last.Has("approval.requested")
	if !ok {
		f.t.Fatal("no approval was asked for")
	}
	return r.Header.ID
}

// Memory is the fleet's log as its engine has it.
func (f *Fleet) Memory() *memlog.Log { return f.log }

// All is what the log holds now.
func (f *Fleet) All() []events.Record {
	f.t.Helper()
	return Records(f.t, f.log)
}

// Records are what a log holds now.
func Records(t testing.TB, log events.Log) (list []events.Record) {
	t.Helper()
	for r, err := range log.ReadAll(context.Background(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, r)
	}
	return list
}

// Origin is what the fleet's log is called in checkpoints.
const Origin = "ledger.test/default"

// NewKey makes a key of the fleet's log; the same for the same seed.
func NewKey(t testing.TB, seed string) *seal.Key {
	t.Helper()
	random := sha256.Sum256([]byte(seed))
	key, err := seal.NewKey(bytes.NewReader(append(random[:], random[:]...)), Origin)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// NewSealer signs a log with these keys, whatever the log says of them. keep is told the
// keys when they change; without it they cannot.
func NewSealer(t testing.TB, log *memlog.Log, keep func([]*seal.Key), keys ...*seal.Key) *seal.Sealer {
	t.Helper()
	files := seal.Files{Keys: keys, Keep: func([]byte) error { return nil }}
	if keep != nil {
		files.KeepKeys = func(keys []*seal.Key) error { keep(keys); return nil }
	}
	s, err := seal.NewSealer(log, log, files)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
