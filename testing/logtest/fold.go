package logtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"fleetledger/events"
)

// switchable is a fold that can be told to refuse.
type switchable struct {
	mu  sync.Mutex
	err error
}

func (f *switchable) refuse(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *switchable) Stage([]events.Record) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return func() {}, f.err
}

func (f *switchable) Unstage() {}

// ledgerFold is a fold that checks what it is told against the rules for
// telling it, and keeps it.
type ledgerFold struct {
	t      *testing.T
	refuse func([]events.Record) error // may be nil; called by Stage alone

	mu        sync.Mutex
	heads     map[events.Stream]events.Record
	staged    []events.Record
	published []events.Record
}

func newLedgerFold(t *testing.T) *ledgerFold {
	return &ledgerFold{t: t, heads: make(map[events.Stream]events.Record)}
}

func (f *ledgerFold) Stage(recs []events.Record) (func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(recs) == 0 {
		f.t.Error("the fold was given no records")
	}
	heads := make(map[events.Stream]events.Record)
	for i, r := range recs {
		h := r.Header
		head, ok := heads[h.Stream]
		if !ok {
			head = f.heads[h.Stream]
		}
		if want := events.Position(len(f.staged) + i + 1); h.Position != want {
			f.t.Errorf("the fold was given position %d where %d is due", h.Position, want)
		}
		if h.Revision != head.Header.Revision+1 || h.Prev != head.LeafHash {
			f.t.Errorf("the fold was given revision %d of %s after revision %d", h.Revision, h.Stream, head.Header.Revision)
		}
		if err := r.Verify(); err != nil {
			f.t.Errorf("the fold was given a bad payload at %d: %v", h.Position, err)
		}
		heads[h.Stream] = r
	}
	if f.refuse != nil {
		if err := f.refuse(recs); err != nil {
			return nil, err
		}
	}
	for s, r := range heads {
		f.heads[s] = r
	}
	f.staged = append(f.staged, recs...)
	end := len(f.staged)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.published)+len(recs) != end {
			f.t.Errorf("published out of order: %d records after %d", end, len(f.published))
		}
		f.published = append(f.published, recs...)
	}, nil
}

func (f *ledgerFold) Unstage() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.staged = f.staged[:len(f.published)]
	clear(f.heads)
	for _, r := range f.staged {
		f.heads[r.Header.Stream] = r
	}
}

func (f *ledgerFold) seen() []events.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.published)
}

func testFoldRefuses(t *testing.T, e Engine) {
	refusal := errors.New("not this one")
	fold := newLedgerFold(t)
	fold.refuse = func(recs []events.Record) error {
		if slices.ContainsFunc(recs, func(r events.Record) bool { return r.Header.Stream == "bad" }) {
			return refusal
		}
		return nil
	}
	l := e.open(t, Options{Fold: fold})

	// Refused appends stand among accepted ones, so that some meet in a batch.
	const writers, rounds = 8, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			s := events.Stream(fmt.Sprintf("w-%d", w))
			r := events.Revision(0)
			for i := range rounds {
				if i%2 == 0 {
					if _, err := l.Append(t.Context(), to(s, "bad", s)); !errors.Is(err, refusal) {
						t.Errorf("the fold's refusal came out as %v", err)
						return
					}
				}
				if _, err := l.Append(t.Context(), expecting(to(s, "shared"), s, r)); err != nil {
					t.Errorf("an append beside a refused one: %v", err)
					return
				}
				r++
			}
		})
	}
	wg.Wait()
	if all := CheckWhole(t, l); len(all) != writers*rounds*2 {
		t.Fatalf("the log holds %d events, not %d", len(all), writers*rounds*2)
	}
	if got := readStream(t, l, "bad", 0); len(got) != 0 {
		t.Fatalf("%d refused events are in the log", len(got))
	}
	// What a refused append named is free.
	a := keyed(to("bad"), "k", "r1")
	if _, err := l.Append(t.Context(), a); !errors.Is(err, refusal) {
		t.Fatal(err)
	}
	free := keyed(events.Append{Drafts: []events.Draft{draft("good", a.Drafts[0].Intent.ID)}}, "k", "r2")
	if done := mustAppend(t, l, free); done.Duplicate {
		t.Fatal("a refused append bound its key")
	}
	mustAppend(t, l, expecting(to("good"), "bad", 0))
}

func testFoldInStep(t *testing.T, e Engine) {
	place := e.New(t)
	fold := newLedgerFold(t)
	l := openIn(t, place, Options{Fold: fold})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for range 25 {
				done, err := l.Append(t.Context(), to(events.Stream(fmt.Sprintf("s-%d", w%3)), "x"))
				if err != nil {
					t.Error(err)
					return
				}
				if n := len(fold.seen()); n < int(done.Last) {
					t.Errorf("the append up to %d was answered when the fold had published %d", done.Last, n)
					return
				}
			}
		})
	}
	wg.Wait()
	all := CheckWhole(t, l)
	if !slices.EqualFunc(fold.seen(), all, sameRecord) {
		t.Fatal("the fold was told something else than the log holds")
	}
	if !e.Durable {
		return
	}
	again := newLedgerFold(t)
	l = reopen(t, l, place, Options{Fold: again})
	if !slices.EqualFunc(again.seen(), all, sameRecord) {
		t.Fatalf("after reopening the fold has seen %d records, the log holds %d, or they differ", len(again.seen()), len(all))
	}
	mustAppend(t, l, to("s-0"))
	if n := len(again.seen()); n != len(all)+1 {
		t.Fatalf("the reopened fold has seen %d records, not %d", n, len(all)+1)
	}
}
