package kurrentlog_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/kurrentstub"
)

func openOwn(t *testing.T, dir string) *pebblelog.Log {
	t.Helper()
	l, err := pebblelog.Open(dir, pebblelog.Options{Fleet: fleet, Logger: slog.New(slog.DiscardHandler), MemTableBytes: 8 << 20, MinFreeBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fill appends events to l: some of one key together, some whose payload is erased, and
// an append of more than a cluster takes at once.
func fill(t *testing.T, l *pebblelog.Log, size int) {
	t.Helper()
	for n := 0; n < size; n += 100 {
		a := events.Append{}
		for i := n; i < min(n+100, size); i++ {
			a.Drafts = append(a.Drafts, one(events.Stream(fmt.Sprint("s-", i%97)), fmt.Sprint("e", i)).Drafts...)
		}
		if n%300 == 0 {
			a = keyed(a, fmt.Sprint(n))
		}
		if n > 0 && n%500 == 0 {
			a.Erase = []events.Position{events.Position(n - 50)}
		}
		if n == 200 {
			for i := range a.Drafts {
				d := &a.Drafts[i]
				*d = events.NewDraft(d.Intent, d.Salt, fmt.Appendf(nil, `{"much":"%030000d"}`, i))
			}
			a = keyed(a, "large")
		}
		if _, err := l.Append(t.Context(), a); err != nil {
			t.Fatal(err)
		}
	}
}

// TestMoveThereAndBack moves a log into a cluster that misbehaves, twice interrupted,
// and out of it into a new directory: the bytes, the keys and the root are the same.
func TestMoveThereAndBack(t *testing.T) {
	size := 3000
	if os.Getenv("FLEETLEDGER_LONG") != "" {
		size = 100_000
	}
	c := start(t, kurrentstub.Options{Nodes: 3})
	dir := t.TempDir()
	own := openOwn(t, filepath.Join(dir, "own"))
	defer own.Close()
	fill(t, own, size)
	opts := kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet, Logger: slog.New(slog.DiscardHandler), Deadline: time.Second}
	c.Misbehave(kurrentstub.Faults{Seed: 1, DropAfterWrite: 0.05, Reset: 0.05, Early: 0.05, NotLeader: 0.05, Unknown: 0.05})

	began := time.Now()
	for _, until := range []int{size / 3, size / 2} {
		ctx, cancel := context.WithCancel(t.Context())
		err := kurrentlog.Import(ctx, own, opts, func(done events.Position) {
			if int(done) >= until {
				cancel()
			}
		})
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("a move that is interrupted after %d: %v", until, err)
		}
	}
	if err := kurrentlog.Import(t.Context(), own, opts, func(events.Position) {}); err != nil {
		t.Fatal(err)
	}
	in := time.Since(began)
	began = time.Now()
	l := mustOpen(t, c, filepath.Join(dir, "back"), kurrentlog.Options{})
	if l.Durable() != own.Durable() || l.Tree().Root != own.Tree().Root {
		t.Errorf("%d events with root %s came back as %d with root %s", own.Durable(), own.Tree().Root, l.Durable(), l.Tree().Root)
	}
	if err := kurrentlog.Compare(t.Context(), l, opts); err != nil {
		t.Error(err)
	}
	mustClose(t, l)
	if err := pebblelog.SetReplica(filepath.Join(dir, "back"), false); err != nil {
		t.Fatal(err)
	}
	back := openOwn(t, filepath.Join(dir, "back"))
	defer back.Close()
	next, stop := iter.Pull2(back.ReadAll(t.Context(), 0))
	defer stop()
	for want, err := range own.ReadAll(t.Context(), 0) {
		got, gotErr, _ := next()
		if err != nil || gotErr != nil || !same(got, want) || got.Erased != want.Erased {
			t.Fatalf("position %d came back as another event: %v, %v", want.Header.Position, err, gotErr)
		}
		if want.Header.Key.IsZero() {
			continue
		}
		a, _, err := own.FindKey(t.Context(), want.Header.Key)
		b, _, err2 := back.FindKey(t.Context(), want.Header.Key)
		if err != nil || err2 != nil || a.First != b.First || a.Last != b.Last {
			t.Fatalf("the key at %d is found at %d to %d, not %d to %d: %v, %v", want.Header.Position, b.First, b.Last, a.First, a.Last, err, err2)
		}
	}
	if _, err := back.Append(t.Context(), one("s-0", "after")); err != nil {
		t.Error(err)
	}
	t.Logf("%d events: in, with two interruptions, %s; out %s; met %v", size, in, time.Since(began), c.Done())
}

// TestMoveIntoAnotherLog refuses a stream that holds something else.
func TestMoveIntoAnotherLog(t *testing.T) {
	c := start(t, kurrentstub.Options{})
	dir := t.TempDir()
	l := mustOpen(t, c, filepath.Join(dir, "a"), kurrentlog.Options{})
	if _, err := l.Append(t.Context(), one("s", "theirs")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, l)
	own := openOwn(t, filepath.Join(dir, "own"))
	defer own.Close()
	for n := range 2 { // shorter than the stream, and as long
		err := kurrentlog.Import(t.Context(), own, kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet, Logger: slog.New(slog.DiscardHandler)}, func(events.Position) {})
		var other *kurrentlog.NotEmptyError
		if !errors.As(err, &other) {
			t.Fatalf("a stream that holds another log: %v", err)
		}
		if _, err := own.Append(t.Context(), one("s", fmt.Sprint("ours", n))); err != nil {
			t.Fatal(err)
		}
	}
}
