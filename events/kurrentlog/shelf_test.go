package kurrentlog_test

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/testing/kurrentstub"
)

func TestShelf(t *testing.T) {
	c := start(t, kurrentstub.Options{Nodes: 3})
	l := mustOpen(t, c, filepath.Join(t.TempDir(), "a"), kurrentlog.Options{})
	defer mustClose(t, l)
	a := kurrentlog.NewShelf(l)
	b, err := kurrentlog.OpenShelf(kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	holds := func(want string, version uint64) {
		t.Helper()
		for _, s := range []*kurrentlog.Shelf{a, b} {
			if got, v, err := s.Get(t.Context(), "x"); err != nil || string(got) != want || v != version {
				t.Errorf("%q, version %d, %v; want %q, version %d", got, v, err, want, version)
			}
		}
	}
	holds("", 0)
	if v, err := a.Put(t.Context(), "x", []byte("1"), 0); err != nil || v != 1 {
		t.Fatal(v, err)
	}
	holds("1", 1)
	_, err = b.Put(t.Context(), "x", []byte("2"), 0)
	if conflict, ok := errors.AsType[*events.ConflictError](err); !ok || conflict.Actual != 1 {
		t.Errorf("a value that was not seen is replaced: %v", err)
	}
	for v := range uint64(20) { // more than are kept
		if got, err := b.Put(t.Context(), "x", []byte(strconv.Itoa(int(v+2))), v+1); err != nil || got != v+2 {
			t.Fatal(got, err)
		}
	}
	holds("21", 21)
	if _, err := a.Put(t.Context(), "x", []byte(strings.Repeat("x", kurrentlog.MaxBatchBytes+1)), 21); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("too much: %v", err)
	}
	if err := errors.Join(a.Remove(t.Context(), "x"), a.Remove(t.Context(), "x"), a.Remove(t.Context(), "never")); err != nil {
		t.Error(err)
	}
	holds("", 0)
}

// TestShelfAfterALostAnswer puts again after a value was written whose answer was lost:
// upon the same version that is its own; upon an older one, as a node that lags tells
// it, what another relay has put between would be lost.
func TestShelfAfterALostAnswer(t *testing.T) {
	c := start(t, kurrentstub.Options{Nodes: 1})
	open := func() *kurrentlog.Shelf {
		s, err := kurrentlog.OpenShelf(kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet, Deadline: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		return s
	}
	a, b := open(), open()
	put := func(s *kurrentlog.Shelf, value string, version uint64) uint64 {
		t.Helper()
		v, err := s.Put(t.Context(), "x", []byte(value), version)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	lose := func(value string, version uint64) {
		t.Helper()
		c.Misbehave(kurrentstub.Faults{DropAfterWrite: 1})
		defer c.Misbehave(kurrentstub.Faults{})
		if _, err := a.Put(t.Context(), "x", []byte(value), version); !errors.Is(err, events.ErrUnavailable) {
			t.Fatalf("the answer was lost: %v", err)
		}
	}
	put(a, "1", 0)
	put(b, "2", 1)
	lose("3", 2)
	_, err := a.Put(t.Context(), "x", []byte("of 1"), 1)
	if conflict, ok := errors.AsType[*events.ConflictError](err); !ok || conflict.Actual != 3 {
		t.Errorf("put upon what another relay has replaced: %v", err)
	}
	if v := put(a, "4", 2); v != 4 {
		t.Errorf("version %d, want 4: behind the one whose answer was lost", v)
	}
	lose("5", 4)
	put(b, "6", 5)
	if _, err := a.Put(t.Context(), "x", []byte("of 4"), 4); err == nil {
		t.Error("put upon what another relay has replaced")
	}
	if got, v, err := b.Get(t.Context(), "x"); err != nil || string(got) != "6" || v != 6 {
		t.Errorf("%q, version %d, %v; want 6, version 6", got, v, err)
	}
}

// TestShelfOnAClusterThatMisbehaves has two relays count in one value: an increment
// that was acknowledged is there, one that conflicted is not.
func TestShelfOnAClusterThatMisbehaves(t *testing.T) {
	c := start(t, kurrentstub.Options{Nodes: 3})
	c.Misbehave(kurrentstub.Faults{Seed: 3, DropAfterWrite: 0.1, Reset: 0.05, Stall: 0.02, StallFor: time.Second, NotLeader: 0.05, Early: 0.05, Unknown: 0.05, Lag: 0.1})
	var (
		wg             sync.WaitGroup
		mu             sync.Mutex
		sure, unknowns int
	)
	count := func(s *kurrentlog.Shelf) error {
		value, version, err := s.Get(context.Background(), "n")
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(value)) // 0 when there is none
		_, err = s.Put(context.Background(), "n", []byte(strconv.Itoa(n+1)), version)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err == nil:
			sure++
		case errors.Is(err, events.ErrUnavailable):
			unknowns++
		}
		return err
	}
	for range 2 {
		s, err := kurrentlog.OpenShelf(kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet, Deadline: 200 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		wg.Go(func() {
			for done := 0; done < 40; {
				err := count(s)
				switch _, conflict := errors.AsType[*events.ConflictError](err); {
				case err == nil:
					done++
				case !conflict && !errors.Is(err, events.ErrUnavailable):
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	met := c.Done()
	c.Misbehave(kurrentstub.Faults{})
	s, err := kurrentlog.OpenShelf(kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	value, _, err := s.Get(t.Context(), "n")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := strconv.Atoi(string(value)); err != nil || n < sure || n > sure+unknowns {
		t.Errorf("it is %s after %d increments that were acknowledged and %d of which nobody knows", value, sure, unknowns)
	}
	t.Logf("%d acknowledged, %d unknown; met %v", sure, unknowns, met)
}
