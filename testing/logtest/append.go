package logtest

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

func testEmpty(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	if d := l.Durable(); d != 0 {
		t.Errorf("durable is %d", d)
	}
	if got := readAll(t, l, 0); len(got) != 0 {
		t.Errorf("%d events", len(got))
	}
	if got := readStream(t, l, "s", 0); len(got) != 0 {
		t.Errorf("%d events in a stream", len(got))
	}
	if p, err := l.FindID(t.Context(), "none"); p != 0 || err != nil {
		t.Errorf("an id is found at %d, error %v", p, err)
	}
	if a, _, err := l.FindKey(t.Context(), events.SumHash("none")); a.First != 0 || err != nil {
		t.Errorf("a key is found at %d, error %v", a.First, err)
	}
	if err := l.Wait(t.Context(), 0); err != nil {
		t.Errorf("wait for position 0: %v", err)
	}
}

func testDense(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	var want []string
	for i := range 60 {
		if i == 30 && e.Durable {
			l = reopen(t, l, place, Options{})
		}
		s := events.Stream(fmt.Sprintf("s-%d", i%7))
		a := to(s)
		done := mustAppend(t, l, a)
		p := events.Position(i + 1)
		if done.First != p || done.Last != p || done.Duplicate || len(done.Records) != 1 {
			t.Fatalf("append %d: %+v", i, done)
		}
		if h := done.Records[0].Header; h.Position != p || h.Revision != events.Revision(i/7+1) || h.Stream != s {
			t.Fatalf("append %d: header %+v", i, h)
		}
		if d := l.Durable(); d != p {
			t.Fatalf("append %d returned and durable is %d", p, d)
		}
		want = append(want, idsOf(a)...)
	}
	checkHolds(t, l, want...)
}

func testManyStreams(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	mustAppend(t, l, to("b"))
	a := to("a", "b", "a", "c", "b", "a")
	done := mustAppend(t, l, a)
	if done.First != 2 || done.Last != 7 {
		t.Fatalf("the append lies at %d..%d, not 2..7", done.First, done.Last)
	}
	var revisions []events.Revision
	for i, r := range done.Records {
		if r.Header.Position != events.Position(2+i) || r.Header.ID != a.Drafts[i].Intent.ID {
			t.Fatalf("record %d is event %s at position %d", i, r.Header.ID, r.Header.Position)
		}
		if r.Header.Time != done.Records[0].Header.Time {
			t.Fatalf("one append has two times")
		}
		revisions = append(revisions, r.Header.Revision)
	}
	if want := []events.Revision{1, 2, 2, 1, 3, 3}; !reflect.DeepEqual(revisions, want) {
		t.Fatalf("revisions %v, not %v", revisions, want)
	}
	all := CheckWhole(t, l)
	for i, r := range done.Records {
		if !sameRecord(r, all[1+i]) {
			t.Fatalf("record %d of the answer is not what is read later", i)
		}
	}
}

func testAtomic(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	first := to("a")
	mustAppend(t, l, first)

	bad := to("a", "b", "c")
	bad.Drafts[2] = draft("c", first.Drafts[0].Intent.ID)
	var dup *events.DuplicateIDError
	if _, err := l.Append(t.Context(), bad); !errors.As(err, &dup) {
		t.Fatalf("an append whose last id is taken: %v", err)
	}
	late := expecting(to("a", "b"), "b", 3)
	var conflict *events.ConflictError
	if _, err := l.Append(t.Context(), late); !errors.As(err, &conflict) {
		t.Fatalf("an append with a wrong expectation: %v", err)
	}
	next := to("b", "a")
	if done := mustAppend(t, l, next); done.First != 2 {
		t.Fatalf("refused appends used positions: the next is %d", done.First)
	}
	// The ids of what was refused are still free.
	mustAppend(t, l, events.Append{Drafts: bad.Drafts[:2]})
	checkHolds(t, l, append(idsOf(first, next), idsOf(bad)[:2]...)...)
}

func testExpectations(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	mustAppend(t, l, to("a", "a", "b"))
	if e.Durable {
		l = reopen(t, l, place, Options{})
	}
	for _, c := range []struct {
		name string
		a    events.Append
		want *events.ConflictError // nil: it stands
	}{
		{"own stream, stale", expecting(to("a"), "a", 1), &events.ConflictError{Stream: "a", Expected: 1, Actual: 2}},
		{"own stream, ahead", expecting(to("a"), "a", 3), &events.ConflictError{Stream: "a", Expected: 3, Actual: 2}},
		{"own stream, said to be new", expecting(to("a"), "a", 0), &events.ConflictError{Stream: "a", Expected: 0, Actual: 2}},
		{"own stream, said to be old", expecting(to("new"), "new", 1), &events.ConflictError{Stream: "new", Expected: 1, Actual: 0}},
		{"relied upon, stale", expecting(to("c"), "b", 0), &events.ConflictError{Stream: "b", Expected: 0, Actual: 1}},
		{"relied upon, missing", expecting(to("c"), "none", 1), &events.ConflictError{Stream: "none", Expected: 1, Actual: 0}},
		{"the first that fails is named", expecting(expecting(expecting(to("a"), "a", 2), "b", 9), "a", 8), &events.ConflictError{Stream: "b", Expected: 9, Actual: 1}},
		{"own stream", expecting(to("a"), "a", 2), nil},
		{"new stream", expecting(to("n"), "n", 0), nil},
		{"relied upon", expecting(expecting(to("c"), "b", 1), "none", 0), nil},
		{"relied upon and written", expecting(expecting(to("a", "b"), "a", 3), "b", 1), nil},
		{"any revision", to("a"), nil},
	} {
		before := l.Durable()
		done, err := l.Append(t.Context(), c.a)
		if c.want == nil {
			if err != nil || done.First != before+1 {
				t.Fatalf("%s: %+v, %v", c.name, done, err)
			}
			continue
		}
		var got *events.ConflictError
		if !errors.As(err, &got) || *got != *c.want {
			t.Fatalf("%s: got %v, want %v", c.name, err, c.want)
		}
		if d := l.Durable(); d != before {
			t.Fatalf("%s: durable moved to %d", c.name, d)
		}
	}
	CheckWhole(t, l)
}

func testOrderOfChecks(t *testing.T, e Engine) {
	w := newWall()
	refusal := errors.New("the fold says no")
	fold := &switchable{}
	l := e.open(t, Options{Now: w.now, Fold: fold})
	first := keyed(to("a"), "k", "request 1")
	mustAppend(t, l, first)
	fold.refuse(refusal)

	// Each append fails every later check too.
	taken := first.Drafts[0].Intent.ID
	wrong := func(a events.Append) events.Append {
		a = expecting(a, "a", 7)
		a.Before = w.now()
		return a
	}
	var (
		mismatch *events.KeyMismatchError
		dup      *events.DuplicateIDError
		conflict *events.ConflictError
	)
	_, err := l.Append(t.Context(), wrong(keyed(events.Append{Drafts: []events.Draft{draft("a", taken)}}, "k", "request 2")))
	if !errors.As(err, &mismatch) {
		t.Errorf("the key comes first: %v", err)
	}
	done, err := l.Append(t.Context(), wrong(keyed(events.Append{Drafts: []events.Draft{draft("a", taken)}}, "k", "request 1")))
	if err != nil || !done.Duplicate || done.First != 1 {
		t.Errorf("a repeated request is answered before any other check: %+v, %v", done, err)
	}
	_, err = l.Append(t.Context(), wrong(keyed(events.Append{Drafts: []events.Draft{draft("a", taken)}}, "k2", "request 1")))
	if !errors.As(err, &dup) {
		t.Errorf("ids come second: %v", err)
	}
	_, err = l.Append(t.Context(), wrong(keyed(to("a"), "k2", "request 1")))
	if !errors.As(err, &conflict) {
		t.Errorf("expectations come third: %v", err)
	}
	a := keyed(to("a"), "k2", "request 1")
	a.Before = w.now()
	if _, err = l.Append(t.Context(), a); !errors.Is(err, events.ErrTooLate) {
		t.Errorf("the time comes fourth: %v", err)
	}
	a.Before = time.Time{}
	if _, err = l.Append(t.Context(), a); !errors.Is(err, refusal) {
		t.Errorf("the folds come last: %v", err)
	}
	fold.refuse(nil)
	if done := mustAppend(t, l, a); done.First != 2 {
		t.Errorf("after all refusals the next position is %d", done.First)
	}
	checkHolds(t, l, idsOf(first, a)...)
}

func testKeys(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	mustAppend(t, l, to("a"))
	first := keyed(to("a", "b"), "k", "r")
	if done := mustAppend(t, l, first); done.Duplicate {
		t.Fatal("the first use of a key is a duplicate")
	}
	mustAppend(t, l, to("a"))

	check := func(when string) {
		t.Helper()
		again := map[string]events.Append{
			"the same append":                first,
			"the same request with new ids":  keyed(to("a", "b"), "k", "r"),
			"the same request, other events": keyed(to("c"), "k", "r"),
			"a stale expectation":            expecting(first, "a", 0),
		}
		for _, name := range sorted(again) {
			done, err := l.Append(t.Context(), again[name])
			if err != nil || !done.Duplicate || done.First != 2 || done.Last != 3 || done.Records != nil {
				t.Fatalf("%s, %s: %+v, %v", when, name, done, err)
			}
		}
		var mismatch *events.KeyMismatchError
		if _, err := l.Append(t.Context(), keyed(to("a"), "k", "other")); !errors.As(err, &mismatch) || mismatch.First != 2 {
			t.Fatalf("%s: another request: %v", when, err)
		}
		found, request, err := l.FindKey(t.Context(), first.Key)
		if err != nil || found.First != 2 || found.Last != 3 || request != first.Request {
			t.Fatalf("%s: the key is found at %d..%d, request %q, error %v", when, found.First, found.Last, request, err)
		}
		if d := l.Durable(); d != 4 {
			t.Fatalf("%s: durable is %d", when, d)
		}
	}
	check("at once")
	if e.Durable {
		l = reopen(t, l, place, Options{})
		check("reopened")
	}
	CheckWhole(t, l)

	// A refused append binds no key.
	if _, err := l.Append(t.Context(), expecting(keyed(to("z"), "k3", "r"), "z", 5)); err == nil {
		t.Fatal("a wrong expectation stood")
	}
	if done := mustAppend(t, l, keyed(to("z"), "k3", "other")); done.Duplicate || done.First != 5 {
		t.Fatalf("a refused append bound its key: %+v", done)
	}
	// No key is not a key.
	for range 2 {
		if done := mustAppend(t, l, to("z")); done.Duplicate {
			t.Fatal("an append without a key is a duplicate")
		}
	}
	if found, _, err := l.FindKey(t.Context(), events.Hash{}); found.First != 0 || err != nil {
		t.Fatalf("the zero key is found at %d, error %v", found.First, err)
	}
}

func testIDs(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	mustAppend(t, l, to("a"))
	first := to("a", "b")
	mustAppend(t, l, first)

	check := func(when string) {
		t.Helper()
		for i, d := range first.Drafts {
			id := d.Intent.ID
			var dup *events.DuplicateIDError
			_, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft("x", freshID()), draft("y", id)}})
			if want := (events.DuplicateIDError{ID: id, Position: events.Position(2 + i)}); !errors.As(err, &dup) || *dup != want {
				t.Fatalf("%s: got %v, want %v", when, err, &want)
			}
			if p, err := l.FindID(t.Context(), id); err != nil || p != events.Position(2+i) {
				t.Fatalf("%s: id found at %d, error %v", when, p, err)
			}
		}
		if d := l.Durable(); d != 3 {
			t.Fatalf("%s: durable is %d", when, d)
		}
	}
	check("at once")
	if e.Durable {
		l = reopen(t, l, place, Options{})
		check("reopened")
	}
	id := freshID()
	var dup *events.DuplicateIDError
	_, err := l.Append(t.Context(), events.Append{Drafts: []events.Draft{draft("a", id), draft("b", id)}})
	if !errors.As(err, &dup) || dup.ID != id || dup.Position != 0 {
		t.Fatalf("one id twice in an append: %v", err)
	}
	if p, err := l.FindID(t.Context(), id); p != 0 || err != nil {
		t.Fatalf("the id of a refused event is found at %d, error %v", p, err)
	}
}

func testBefore(t *testing.T, e Engine) {
	w := newWall()
	l := e.open(t, Options{Now: w.now})
	now := l.Now()
	for _, c := range []struct {
		before time.Time
		want   error
	}{
		{now.Add(-time.Second), events.ErrTooLate},
		{now, events.ErrTooLate},
		{now.Add(time.Microsecond), nil},
		{time.Time{}, nil},
	} {
		a := to("a")
		a.Before = c.before
		if _, err := l.Append(t.Context(), a); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("before %s at %s: %v, want %v", c.before, now, err, c.want)
		}
	}
	a := to("a")
	a.Before = now.Add(time.Minute)
	w.move(time.Minute)
	if _, err := l.Append(t.Context(), a); !errors.Is(err, events.ErrTooLate) {
		t.Errorf("a minute later: %v", err)
	}
	if got := CheckWhole(t, l); len(got) != 2 {
		t.Errorf("the log holds %d events, not 2", len(got))
	}
}

func testInvalidInput(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	edit := func(f func(*events.Draft)) events.Append {
		a := to("a", "b")
		f(&a.Drafts[1])
		return a
	}
	long := strings.Repeat("x", events.MaxNameBytes+1)
	cases := map[string]events.Append{
		"no events":              {},
		"no id":                  edit(func(d *events.Draft) { d.Intent.ID = "" }),
		"quote in id":            edit(func(d *events.Draft) { d.Intent.ID = `a"b` }),
		"long id":                edit(func(d *events.Draft) { d.Intent.ID = long }),
		"no stream":              edit(func(d *events.Draft) { d.Intent.Stream = "" }),
		"newline in stream":      edit(func(d *events.Draft) { d.Intent.Stream = "a\nb" }),
		"zero byte in stream":    edit(func(d *events.Draft) { d.Intent.Stream = "a\x00b" }),
		"beyond ASCII in stream": edit(func(d *events.Draft) { d.Intent.Stream = "strøm" }),
		"no type":                edit(func(d *events.Draft) { d.Intent.Type = "" }),
		"no actor":               edit(func(d *events.Draft) { d.Intent.Actor = "" }),
		"space in correlation":   edit(func(d *events.Draft) { d.Intent.Correlation = "a b" }),
		"long causation":         edit(func(d *events.Draft) { d.Intent.Causation = long }),
		"no schema":              edit(func(d *events.Draft) { d.Intent.Schema = 0 }),
		"no commitment":          edit(func(d *events.Draft) { d.Intent.Commitment = events.Hash{} }),
		"wrong size":             edit(func(d *events.Draft) { d.Intent.Size++ }),
		"another key":            edit(func(d *events.Draft) { d.Intent.Key = events.SumHash("other") }),
	}
	for _, name := range sorted(cases) {
		if _, err := l.Append(t.Context(), cases[name]); err == nil {
			t.Errorf("%s: was taken", name)
		}
	}
	if d := l.Durable(); d != 0 {
		t.Fatalf("durable is %d", d)
	}
	if done := mustAppend(t, l, to("a")); done.First != 1 {
		t.Fatalf("refused input used positions: the next is %d", done.First)
	}
}

func testLimits(t *testing.T, e Engine) {
	l := e.open(t, Options{})
	var a events.Append
	for range events.MaxAppendEvents {
		a.Drafts = append(a.Drafts, draft("a", freshID()))
	}
	if done := mustAppend(t, l, a); done.Last != events.MaxAppendEvents {
		t.Fatalf("the largest append ends at %d", done.Last)
	}
	a = to("a")
	for range events.MaxAppendEvents {
		a.Drafts = append(a.Drafts, draft("a", freshID()))
	}
	if _, err := l.Append(t.Context(), a); !errors.Is(err, events.ErrTooLarge) {
		t.Fatalf("one event too many: %v", err)
	}

	big := func(bytes int) events.Append {
		half := make([]byte, bytes/2)
		a := to("b", "c")
		a.Drafts[0] = events.NewDraft(a.Drafts[0].Intent, a.Drafts[0].Salt, half)
		a.Drafts[1] = events.NewDraft(a.Drafts[1].Intent, a.Drafts[1].Salt, make([]byte, bytes-len(half)))
		return a
	}
	most := e.MaxBytes
	if most == 0 {
		most = events.MaxAppendBytes
	}
	mustAppend(t, l, big(most))
	if _, err := l.Append(t.Context(), big(events.MaxAppendBytes+1)); !errors.Is(err, events.ErrTooLarge) {
		t.Fatalf("one byte too many: %v", err)
	}
	if got := len(CheckWhole(t, l)); got != events.MaxAppendEvents+2 {
		t.Fatalf("the log holds %d events", got)
	}
}

// testStreamNames uses names of which one is the beginning of another, and
// names that look like parts of keys.
func testStreamNames(t *testing.T, e Engine) {
	place := e.New(t)
	l := openIn(t, place, Options{})
	names := []events.Stream{"a", "aa", "a|", "a|1", "a-", "a-1", "a0", "A", "!", "~", "~~", events.Stream(strings.Repeat("a", events.MaxNameBytes))}
	for range 3 {
		for _, s := range names {
			mustAppend(t, l, to(s))
		}
	}
	if e.Durable {
		l = reopen(t, l, place, Options{})
	}
	for _, s := range names {
		if got := readStream(t, l, s, 0); len(got) != 3 {
			t.Errorf("stream %s has %d events, not 3", s, len(got))
		}
		mustAppend(t, l, expecting(to(s), s, 3))
	}
	CheckWhole(t, l)
}
