package smallfleet

import (
	"testing"

	"fleetledger/events"
)

// Forgery is what somebody who holds a log, and its key, makes of one event in it.
type Forgery struct {
	Name string

	kind  events.Kind
	nth   int
	forge func(r *events.Record, e events.Event) events.Event
}

// Forge changes what the nth event of a kind says, from 0.
func Forge[E events.Event](name string, kind events.Kind, nth int, change func(x *E)) Forgery {
	return Forgery{name, kind, nth, func(_ *events.Record, e events.Event) events.Event {
		x := e.(E)
		change(&x)
		return x
	}}
}

// ForgeActor has the nth event of a kind, from 0, done by another actor.
func ForgeActor(name string, kind events.Kind, nth int, actor string) Forgery {
	return Forgery{name, kind, nth, func(r *events.Record, e events.Event) events.Event {
		r.Header.Actor = actor
		return e
	}}
}

// ForgeKind puts another event in the place of the nth of a kind, from 0.
func ForgeKind(name string, kind events.Kind, nth int, other events.Event) Forgery {
	return Forgery{name, kind, nth, func(r *events.Record, _ events.Event) events.Event {
		r.Header.Type = other.Kind()
		return other
	}}
}

// In is the position of what is forged in these records, which hold every position, and
// what changes it there and nothing else.
func (f Forgery) In(t testing.TB, records []events.Record) (at events.Position, change func(r *events.Record, e events.Event) events.Event) {
	t.Helper()
	at = records[Find(t, records, f.kind, f.nth)].Header.Position
	return at, func(r *events.Record, e events.Event) events.Event {
		if r.Header.Position != at {
			return e
		}
		return f.forge(r, e)
	}
}

// Find is the index of the nth record of a kind, from 0.
func Find(t testing.TB, records []events.Record, kind events.Kind, nth int) int {
	t.Helper()
	for i, r := range records {
		if r.Header.Type == kind {
			if nth == 0 {
				return i
			}
			nth--
		}
	}
	t.Fatalf("there is no %s of this number", kind)
	return 0
}
