package logtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"fleetledger/events"
)

// testOneWinner has several writers append at the same revision of a stream, or
// rely on the same revision of a stream that each also writes: one stands.
func testOneWinner(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	const writers, rounds = 8, 25
	for round := range events.Revision(rounds) {
		var (
			wg   sync.WaitGroup
			wins atomic.Int32
		)
		for w := range writers {
			wg.Go(func() {
				a := expecting(to(events.Stream(fmt.Sprintf("w-%d", w)), "contested"), "contested", round)
				done, err := l.Append(t.Context(), a)
				var conflict *events.ConflictError
				switch {
				case err == nil:
					wins.Add(1)
					if r := done.Records[1].Header.Revision; r != round+1 {
						t.Errorf("the winner of round %d wrote revision %d", round, r)
					}
				case !errors.As(err, &conflict):
					t.Errorf("a loser got %v", err)
				default:
					if want := (events.ConflictError{Stream: "contested", Expected: round, Actual: round + 1}); *conflict != want {
						t.Errorf("a loser was told %v, not %v", conflict, &want)
					}
					// What it lost to is there to be read.
					if n := len(readStream(t, l, "contested", round)); n != 1 {
						t.Errorf("a loser of round %d reads %d newer events", round, n)
					}
				}
			})
		}
		wg.Wait()
		if n := wins.Load(); n != 1 {
			t.Fatalf("round %d has %d winners", round, n)
		}
	}
	if got := len(CheckWhole(t, l)); got != rounds*2 {
		t.Fatalf("the log holds %d events, not %d", got, rounds*2)
	}
}

func testManyWriters(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	const writers, each = 32, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			own := events.Stream(fmt.Sprintf("w-%02d", w))
			for i := range events.Revision(each) {
				before := l.Durable()
				done, err := l.Append(t.Context(), expecting(to(own, "all"), own, i))
				if err != nil {
					t.Errorf("writer %d: %v", w, err)
					return
				}
				if done.First <= before || l.Durable() < done.Last {
					t.Errorf("appended at %d..%d between durable %d and %d", done.First, done.Last, before, l.Durable())
					return
				}
			}
		})
	}
	wg.Wait()
	if t.Failed() {
		return
	}
	all := CheckWhole(t, l)
	if len(all) != 2*writers*each {
		t.Fatalf("the log holds %d events, not %d", len(all), 2*writers*each)
	}
	for i := 0; i < len(all); i += 2 {
		if all[i+1].Header.Stream != "all" {
			t.Fatalf("an append was torn apart at position %d", i+1)
		}
	}
	if e.Durable {
		l = reopen(t, l, place, Options{})
		if got := CheckWhole(t, l); len(got) != len(all) {
			t.Fatalf("reopened, the log holds %d events, not %d", len(got), len(all))
		}
	}
}

// testConcurrentKeys has several callers use one key at once, one of them for
// another request: one is written, and everyone is told so.
func testConcurrentKeys(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	type answer struct {
		request string
		done    events.Appended
		err     error
	}
	for round := range 25 {
		var (
			wg      sync.WaitGroup
			mu      sync.Mutex
			answers []answer
		)
		for w := range 9 {
			wg.Go(func() {
				request := "r"
				if w == round%9 {
					request = "another"
				}
				done, err := l.Append(t.Context(), keyed(to("a", "b"), fmt.Sprintf("k-%d", round), request))
				if d := l.Durable(); err == nil && d < done.Last {
					t.Errorf("answered %d..%d when durable was %d", done.First, done.Last, d)
				}
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, answer{request, done, err})
			})
		}
		wg.Wait()
		won := slices.IndexFunc(answers, func(a answer) bool { return a.err == nil && !a.done.Duplicate })
		if won < 0 {
			t.Fatalf("round %d: nobody wrote", round)
		}
		winner := answers[won]
		for i, a := range answers {
			var mismatch *events.KeyMismatchError
			switch {
			case i == won:
			case a.request != winner.request:
				if !errors.As(a.err, &mismatch) || mismatch.First != winner.done.First {
					t.Fatalf("round %d: another request than the one at %d got %+v, %v", round, winner.done.First, a.done, a.err)
				}
			case a.err != nil || !a.done.Duplicate || a.done.First != winner.done.First || a.done.Last != winner.done.Last:
				t.Fatalf("round %d: a repetition of the request at %d got %+v, %v", round, winner.done.First, a.done, a.err)
			}
		}
	}
	if got := len(CheckWhole(t, l)); got != 50 {
		t.Fatalf("the log holds %d events, not 50", got)
	}
}

// testConcurrentIDs has several callers use one event id at once.
func testConcurrentIDs(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	const rounds = 25
	for round := range rounds {
		var (
			wg   sync.WaitGroup
			wins atomic.Int32
		)
		id := freshID()
		for w := range 8 {
			wg.Go(func() {
				d := draft(events.Stream(fmt.Sprintf("w-%d", w)), id)
				_, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{d}})
				var dup *events.DuplicateIDError
				switch {
				case err == nil:
					wins.Add(1)
				case !errors.As(err, &dup):
					t.Errorf("a loser got %v", err)
				case dup.Position != events.Position(round+1) || l.Durable() < dup.Position:
					t.Errorf("a loser was told position %d when durable was %d", dup.Position, l.Durable())
				}
			})
		}
		wg.Wait()
		if n := wins.Load(); n != 1 {
			t.Fatalf("round %d: one id was written %d times", round, n)
		}
	}
	if got := len(CheckWhole(t, l)); got != rounds {
		t.Fatalf("the log holds %d events, not %d", got, rounds)
	}
}

// testReadsWhileAppending reads in every way while events arrive: whatever is
// seen is durable, whatever was durable is seen, and in order.
func testReadsWhileAppending(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	each := 60
	if e.Remote {
		each = 15
	}
	for w := range 4 {
		writers.Go(func() {
			for i := range each {
				a := keyed(to("a", events.Stream(fmt.Sprintf("w-%d", w))), fmt.Sprintf("%d.%d", w, i), "r")
				if _, err := l.Append(t.Context(), a); err != nil {
					t.Errorf("append: %v", err)
					return
				}
			}
		})
	}
	reader := func(read func() error) {
		readers.Go(func() {
			for {
				if err := read(); err != nil {
					t.Error(err)
					return
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	reader(func() error {
		before := l.Durable()
		n := events.Position(0)
		for r, err := range l.ReadAll(t.Context(), 0) {
			if err != nil {
				return fmt.Errorf("read all: %w", err)
			}
			if n++; r.Header.Position != n {
				return fmt.Errorf("read position %d where %d is due", r.Header.Position, n)
			}
		}
		if after := l.Durable(); n < before || n > after {
			return fmt.Errorf("read %d events between durable %d and %d", n, before, after)
		}
		return nil
	})
	reader(func() error {
		var last events.Record
		for r, err := range l.ReadStream(t.Context(), "a", 0) {
			if err != nil {
				return fmt.Errorf("read stream: %w", err)
			}
			if r.Header.Revision != last.Header.Revision+1 || r.Header.Prev != last.LeafHash {
				return fmt.Errorf("revision %d came after %d", r.Header.Revision, last.Header.Revision)
			}
			last = r
		}
		if d := l.Durable(); last.Header.Position > d {
			return fmt.Errorf("position %d was read from a stream when durable was %d", last.Header.Position, d)
		}
		return nil
	})
	at := events.Position(0)
	reader(func() error {
		d := l.Durable()
		if d == at {
			return nil
		}
		at = d
		for r, err := range l.ReadAll(t.Context(), d-1) {
			if err != nil {
				return fmt.Errorf("read at durable: %w", err)
			}
			if p, err := l.FindID(t.Context(), r.Header.ID); err != nil || p != r.Header.Position {
				return fmt.Errorf("the id of position %d is found at %d, error %w", r.Header.Position, p, err)
			}
			a, _, err := l.FindKey(t.Context(), r.Header.Key)
			if err != nil || a.Last < r.Header.Position || a.First == 0 {
				return fmt.Errorf("the key of position %d is found at %d..%d, error %w", r.Header.Position, a.First, a.Last, err)
			}
			if now := l.Durable(); now < a.Last {
				return fmt.Errorf("a key is found at %d..%d when durable is %d", a.First, a.Last, now)
			}
			return nil
		}
		return fmt.Errorf("position %d is durable and cannot be read", d)
	})
	writers.Wait()
	close(stop)
	readers.Wait()
	CheckWhole(t, l)
}
