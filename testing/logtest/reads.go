package logtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"fleetledger/events"
)

// Commits are counted if they can be: what was recorded, and nothing else.
func testCommits(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	c, ok := l.(events.Committing)
	if !ok {
		t.Skip("this engine does not count what it commits")
	}
	before := c.Commits()
	first := keyed(to("a", "b", "c", "d", "e"), "key", "request")
	mustAppend(t, l, first)
	mustAppend(t, l, first) // recorded already
	if _, err := l.Append(t.Context(), expecting(to("a"), "a", 7)); err == nil {
		t.Fatal("an append that expects another revision was taken")
	}
	mustAppend(t, l, to("a"))
	after := c.Commits()
	if appends, n := after.Appends-before.Appends, after.Events-before.Events; appends != 2 || n != 6 {
		t.Errorf("%d appends of %d events are counted, not 2 of 6", appends, n)
	}
	for i := range after.Groups {
		want := uint64(0)
		if i == 0 || i == 3 { // 1 event; 5 to 8
			want = 1
		}
		if got := after.Groups[i] - before.Groups[i]; got != want {
			t.Errorf("%d groups of up to %d events are counted, not %d", got, 1<<i, want)
		}
	}
}

func testReads(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	const n = 700 // more than an engine is likely to read at a time
	for i := 0; i < n; {
		a := to()
		for ; len(a.Drafts) < 35; i++ {
			a.Drafts = append(a.Drafts, draft(events.Stream(fmt.Sprintf("s-%d", i%2)), freshID()))
		}
		mustAppend(t, l, a)
	}
	all := CheckWhole(t, l)
	if len(all) != n {
		t.Fatalf("%d events, not %d", len(all), n)
	}
	for _, after := range []events.Position{0, 1, 2, 255, 256, 257, n - 1, n, n + 1, 1 << 62} {
		want := all[min(int(after), n):]
		if got := readAll(t, l, after); !slices.EqualFunc(got, want, sameRecord) {
			t.Errorf("after position %d: %d events, not %d, or they differ", after, len(got), len(want))
		}
	}
	s1 := readStream(t, l, "s-1", 0)
	for _, after := range []events.Revision{0, 1, 2, 127, 128, n/2 - 1, n / 2, n/2 + 1, 1 << 62} {
		want := s1[min(int(after), len(s1)):]
		if got := readStream(t, l, "s-1", after); !slices.EqualFunc(got, want, sameRecord) {
			t.Errorf("after revision %d: %d events, not %d, or they differ", after, len(got), len(want))
		}
	}

	// A reading can be broken off, and made again from the start.
	reading := l.ReadAll(t.Context(), 10)
	for range 2 {
		var got []events.Record
		for r, err := range reading {
			if err != nil {
				t.Fatal(err)
			}
			if got = append(got, r); len(got) == 5 {
				break
			}
		}
		if !slices.EqualFunc(got, all[10:15], sameRecord) {
			t.Fatal("a broken off reading gave other events")
		}
	}

	// What is appended after the call is not part of a reading.
	reading, streamReading := l.ReadAll(t.Context(), n-1), l.ReadStream(t.Context(), "s-1", n/2-1)
	mustAppend(t, l, to("s-1", "s-1"))
	count := func(seq func(func(events.Record, error) bool)) (k int) {
		for _, err := range seq {
			if err != nil {
				t.Fatal(err)
			}
			k++
		}
		return k
	}
	if a, s := count(reading), count(streamReading); a != 1 || s != 1 {
		t.Errorf("readings grew after the call: %d and %d events, not 1 and 1", a, s)
	}

	// A reader may append as it goes.
	for r, err := range l.ReadAll(t.Context(), n) {
		if err != nil {
			t.Fatal(err)
		}
		mustAppend(t, l, to(r.Header.Stream))
	}
	CheckWhole(t, l)
}

func testTime(t *testing.T, e Engine) {
	w := newWall()
	start := w.now()
	place := e.New(t)
	l := openIn(t, place, Options{Now: w.now})
	stamp := func() time.Time {
		t.Helper()
		return mustAppend(t, l, to("a")).Records[0].Header.Time
	}
	if got := stamp(); !got.Equal(start) {
		t.Fatalf("the first event is stamped %s, the clock says %s", got, start)
	}
	w.move(time.Hour)
	ahead := stamp()
	if !ahead.Equal(start.Add(time.Hour)) {
		t.Fatalf("an hour later the stamp is %s", ahead)
	}
	w.move(-2 * time.Hour)
	if got := l.Now(); got.Before(ahead) {
		t.Fatalf("the clock stepped back and Now went from %s to %s", ahead, got)
	}
	if got := stamp(); got.Before(ahead) {
		t.Fatalf("the clock stepped back and stamps went from %s to %s", ahead, got)
	}
	if e.Durable {
		l = reopen(t, l, place, Options{Now: w.now})
		if got := l.Now(); got.Before(ahead) {
			t.Fatalf("reopened with a clock behind, Now is %s, the last event was at %s", got, ahead)
		}
		if got := stamp(); got.Before(ahead) {
			t.Fatalf("reopened with a clock behind, the stamp is %s, the last event was at %s", got, ahead)
		}
	}
	w.move(48 * time.Hour)
	if got := stamp(); !got.After(ahead) {
		t.Fatalf("two days later the stamp is %s", got)
	}
	CheckWhole(t, l)
}

func testPayloads(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	payloads := [][]byte{{}, {0}, []byte("null"), []byte("{}"), slices.Repeat([]byte{0xff, 0x00, '\n'}, 30_000)}
	for _, p := range payloads {
		d := draft("a", freshID())
		mustAppend(t, l, events.Append{Drafts: []events.Draft{events.NewDraft(d.Intent, d.Salt, p)}})
	}
	if e.Durable {
		l = reopen(t, l, place, Options{})
	}
	for i, r := range CheckWhole(t, l) {
		if string(r.Payload) != string(payloads[i]) {
			t.Errorf("payload %d came back as %d bytes, not %d, or they differ", i, len(r.Payload), len(payloads[i]))
		}
	}
}

func testWait(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	const n = 20
	var wg sync.WaitGroup
	for p := events.Position(1); p <= n; p++ {
		wg.Go(func() {
			if err := l.Wait(t.Context(), p); err != nil {
				t.Errorf("wait for %d: %v", p, err)
			}
			if d := l.Durable(); d < p {
				t.Errorf("the wait for %d ended when durable was %d", p, d)
			}
		})
	}
	cancelled, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- l.Wait(cancelled, n+1) }()
	for range n {
		mustAppend(t, l, to("a"))
	}
	wg.Wait()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled wait: %v", err)
	}
	if err := l.Wait(cancelled, n); err != nil {
		t.Errorf("a wait for what is there already: %v", err)
	}
}

func testClose(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	first := to("a", "b")
	mustAppend(t, l, first)
	waiting := make(chan error)
	go func() { waiting <- l.Wait(context.Background(), 100) }()
	reading := l.ReadAll(t.Context(), 0)
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if err := <-waiting; !errors.Is(err, events.ErrClosed) {
		t.Errorf("a wait ended by closing: %v", err)
	}
	if _, err := l.Append(t.Context(), to("a")); !errors.Is(err, events.ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if err := l.Wait(t.Context(), 100); !errors.Is(err, events.ErrClosed) {
		t.Errorf("wait: %v", err)
	}
	if _, err := l.FindID(t.Context(), first.Drafts[0].Intent.ID); !errors.Is(err, events.ErrClosed) {
		t.Errorf("find id: %v", err)
	}
	if _, _, err := l.FindKey(t.Context(), events.SumHash("k")); !errors.Is(err, events.ErrClosed) {
		t.Errorf("find key: %v", err)
	}
	for name, seq := range map[string]func(func(events.Record, error) bool){
		"a reading from before": reading,
		"read all":              l.ReadAll(t.Context(), 0),
		"read stream":           l.ReadStream(t.Context(), "a", 0),
		"read no stream":        l.ReadStream(t.Context(), "none", 0),
	} {
		var last error
		for _, err := range seq {
			last = err
		}
		if !errors.Is(last, events.ErrClosed) {
			t.Errorf("%s: %v", name, last)
		}
	}
	if err := l.Close(); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if e.Durable {
		checkHolds(t, openIn(t, place, Options{}), idsOf(first)...)
	}
}

// testCloseFinishes closes a log under appends: each stands or was refused with
// ErrClosed, and none is in between.
func testCloseFinishes(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		stood = make(map[string]bool)
	)
	for range 8 {
		wg.Go(func() {
			for {
				a := to("a", "b")
				_, err := l.Append(context.Background(), a)
				if err != nil {
					if !errors.Is(err, events.ErrClosed) {
						t.Errorf("append under close: %v", err)
					}
					return
				}
				mu.Lock()
				for _, id := range idsOf(a) {
					stood[id] = true
				}
				mu.Unlock()
			}
		})
	}
	if err := l.Wait(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	wg.Wait()
	if !e.Durable {
		return
	}
	all := CheckWhole(t, openIn(t, place, Options{}))
	if len(all) != len(stood) {
		t.Fatalf("%d events were acknowledged, %d are in the log", len(stood), len(all))
	}
	for _, r := range all {
		if !stood[r.Header.ID] {
			t.Fatalf("event %s is in the log, its append was answered with ErrClosed", r.Header.ID)
		}
	}
}

func testContext(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	mustAppend(t, l, to("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Append(ctx, to("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("append: %v", err)
	}
	if err := l.Wait(ctx, 9); !errors.Is(err, context.Canceled) {
		t.Errorf("wait: %v", err)
	}
	if _, err := l.FindID(ctx, "x"); !errors.Is(err, context.Canceled) {
		t.Errorf("find id: %v", err)
	}
	if _, _, err := l.FindKey(ctx, events.SumHash("x")); !errors.Is(err, context.Canceled) {
		t.Errorf("find key: %v", err)
	}
	for _, err := range l.ReadAll(ctx, 0) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("read all: %v", err)
		}
	}
	for _, err := range l.ReadStream(ctx, "a", 0) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("read stream: %v", err)
		}
	}
	if d := l.Durable(); d != 1 {
		t.Errorf("an append with an ended context was written: durable is %d", d)
	}
}

// testContextMidway ends contexts at any moment of an append. Whatever became
// of it, asking again with the same key tells, and writes at most once.
func testContextMidway(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 25 {
				a := keyed(to("a", events.Stream(fmt.Sprintf("w-%d", w))), fmt.Sprintf("%d.%d", w, i), "r")
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i*7)*time.Microsecond)
				first, err := l.Append(ctx, a)
				cancel()
				if err != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("append: %v", err)
					return
				}
				again, err2 := l.Append(t.Context(), a)
				if err2 != nil {
					t.Errorf("again: %v", err2)
					return
				}
				if err == nil && (!again.Duplicate || again.First != first.First || again.Last != first.Last) {
					t.Errorf("acknowledged at %d..%d, then %+v", first.First, first.Last, again)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := len(CheckWhole(t, l)); got != 8*25*2 {
		t.Errorf("the log holds %d events, not %d", got, 8*25*2)
	}
}
