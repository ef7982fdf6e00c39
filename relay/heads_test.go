package relay

import (
	"context"
	"testing"
	"time"

	"fleetledger/events"
)

// Roots are recorded after so many events, and not for their own sake.
func TestRootsAreRecorded(t *testing.T) {
	f := newFleet(t, func(c *Config) { c.RootEvery = 3 }).people()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.relay.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	await := func(p events.Position) events.HeadsRooted {
		t.Helper()
		wait, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		if err := f.ledger.Log().Wait(wait, p); err != nil {
			t.Fatal(err)
		}
		recs, err := f.ledger.Records(ctx, p, p)
		if err != nil {
			t.Fatal(err)
		}
		e, err := events.DecodeAs[events.HeadsRooted](recs[0])
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	head := f.ledger.Log().Durable()
	if e := await(head + 1); e.At != head || e.Streams < 3 {
		t.Errorf("at %d the root is %+v", head, e)
	}
	// The root itself and one more are not three.
	f.ext("a")
	if f.relay.rootDue(f.ledger, f.ledger.Log().Now()) {
		t.Error("a root is due too soon")
	}
	f.ext("b")
	if e := await(head + 4); e.At != head+3 {
		t.Errorf("it is of %d, not of %d", e.At, head+3)
	}
	if f.relay.rootDue(f.ledger, f.ledger.Log().Now()) {
		t.Error("a root is due for a root")
	}
	f.skew.Add(int64(rootAfter))
	if f.relay.rootDue(f.ledger, time.Time{}) {
		t.Error("a root is due although nothing was recorded since")
	}
}

// A quiet fleet gets its root a while after its last event.
func TestRootsOfAQuietFleet(t *testing.T) {
	f := newFleet(t).people()
	begun := f.ledger.Log().Now()
	if f.relay.rootDue(f.ledger, begun) {
		t.Error("a root is due at once")
	}
	f.skew.Add(int64(rootAfter))
	if !f.relay.rootDue(f.ledger, begun) {
		t.Error("no root is due after a while")
	}
	if err := f.ledger.RootHeads(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.skew.Add(int64(rootAfter))
	if f.relay.rootDue(f.ledger, begun) {
		t.Error("a root is due although nothing was recorded since")
	}
	f.ext("a")
	if !f.relay.rootDue(f.ledger, begun) {
		t.Error("no root is due for an event long after the last root")
	}
}
