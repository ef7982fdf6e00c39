package logtest

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fleetledger/events"
	"fleetledger/events/memlog"
)

// errModelRefusal is what pickyFold refuses with.
var errModelRefusal = errors.New("three in one append is one too many for stream m-0")

// pickyFold refuses appends by a rule that depends on the records alone.
type pickyFold struct{}

func (pickyFold) Stage(recs []events.Record) (func(), error) {
	n := 0
	for _, r := range recs {
		if r.Header.Stream == "m-0" {
			n++
		}
	}
	if n > 2 {
		return nil, errModelRefusal
	}
	return func() {}, nil
}

func (pickyFold) Unstage() {}

// testSameAsModel makes the same random calls on the engine and on memlog: the
// answers and the bytes of the log are the same. The wall clock never steps back
// here, since how a clock goes on from there depends on when it was read.
func testSameAsModel(t *testing.T, e Engine) {
	rapid.Check(t, func(rt *rapid.T) {
		var (
			w      = newWall()
			o      = Options{Fleet: fleet, Fold: pickyFold{}, Now: w.now}
			place  = e.New(t)
			opened = func() events.Log {
				l, err := place(o)
				if err != nil {
					rt.Fatalf("open: %v", err)
				}
				return l
			}
			l = opened()
		)
		defer func() { _ = l.Close() }() // reported below, unless the check failed before
		model, err := memlog.New(memlog.Options{Fleet: fleet, Fold: pickyFold{}, Now: w.now})
		if err != nil {
			rt.Fatal(err)
		}
		for i := range rapid.IntRange(1, 40).Draw(rt, "calls") {
			switch rapid.IntRange(0, 19).Draw(rt, "what") {
			case 0:
				w.move(time.Duration(rapid.IntRange(0, 10).Draw(rt, "seconds")) * time.Second)
			case 1:
				if e.Durable {
					if err := l.Close(); err != nil {
						rt.Fatalf("close: %v", err)
					}
					l = opened()
				}
			default:
				a := randomAppend(rt, w.now())
				if n := int(model.Durable()); n > 0 && !e.CannotErase && rapid.IntRange(0, 5).Draw(rt, "erase") == 0 {
					a.Erase = append(a.Erase, events.Position(rapid.IntRange(1, n).Draw(rt, "erased")))
				}
				got, gotErr := l.Append(t.Context(), a)
				want, wantErr := model.Append(t.Context(), a)
				if err := sameAnswer(got, gotErr, want, wantErr); err != nil {
					rt.Fatalf("call %d: %v", i, err)
				}
			}
		}
		if got, want := l.Durable(), model.Durable(); got != want {
			rt.Fatalf("durable is %d, memlog says %d", got, want)
		}
		want := readAll(t, model, 0)
		for r, err := range l.ReadAll(t.Context(), 0) {
			if err != nil {
				rt.Fatalf("read all: %v", err)
			}
			if m := want[r.Header.Position-1]; !sameRecord(r, m) {
				rt.Fatalf("position %d holds\n%s\nmemlog holds\n%s", r.Header.Position, r.Leaf, m.Leaf)
			}
		}
		if err := l.Close(); err != nil {
			rt.Fatalf("close: %v", err)
		}
	})
}

// randomAppend draws an append whose names come from small pools, so that
// everything that can collide does.
func randomAppend(rt *rapid.T, now time.Time) events.Append {
	stream := rapid.Custom(func(rt *rapid.T) events.Stream {
		return events.Stream(fmt.Sprintf("m-%d", rapid.IntRange(0, 3).Draw(rt, "stream")))
	})
	var a events.Append
	for range rapid.IntRange(1, 4).Draw(rt, "events") {
		id := fmt.Sprintf("id-%d", rapid.IntRange(0, 60).Draw(rt, "id"))
		a.Drafts = append(a.Drafts, draft(stream.Draw(rt, "stream"), id))
	}
	for range rapid.IntRange(0, 2).Draw(rt, "expectations") {
		a = expecting(a, stream.Draw(rt, "stream"), events.Revision(rapid.IntRange(0, 6).Draw(rt, "revision")))
	}
	if k := rapid.IntRange(0, 8).Draw(rt, "key"); k > 3 {
		a = keyed(a, fmt.Sprint(k), fmt.Sprint(rapid.IntRange(0, 1).Draw(rt, "request")))
	}
	if rapid.IntRange(0, 5).Draw(rt, "before") == 0 {
		a.Before = now.Add(time.Duration(rapid.IntRange(-2, 2).Draw(rt, "seconds")) * time.Second)
	}
	return a
}

// sameAnswer reports how two answers to one append differ.
func sameAnswer(got events.Appended, gotErr error, want events.Appended, wantErr error) error {
	switch {
	case (gotErr == nil) != (wantErr == nil):
		return fmt.Errorf("got %+v, %v; memlog got %+v, %v", got, gotErr, want, wantErr)
	case gotErr != nil:
		if errors.Is(wantErr, events.ErrTooLate) || errors.Is(wantErr, errModelRefusal) {
			if !errors.Is(gotErr, errors.Unwrap(wantErr)) && !errors.Is(gotErr, wantErr) {
				return fmt.Errorf("got %v, memlog got %v", gotErr, wantErr)
			}
			return nil
		}
		if !reflect.DeepEqual(gotErr, wantErr) {
			return fmt.Errorf("got %#v, memlog got %#v", gotErr, wantErr)
		}
		return nil
	case got.First != want.First, got.Last != want.Last, got.Duplicate != want.Duplicate, len(got.Records) != len(want.Records):
		return fmt.Errorf("got %+v, memlog got %+v", got, want)
	}
	for i := range got.Records {
		if !bytes.Equal(got.Records[i].Leaf, want.Records[i].Leaf) {
			return fmt.Errorf("got leaf\n%s\nmemlog got\n%s", got.Records[i].Leaf, want.Records[i].Leaf)
		}
	}
	return nil
}
