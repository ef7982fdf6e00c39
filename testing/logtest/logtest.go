// Package logtest is the contract of events.Log as tests: the suite that every
// engine passes, the one in memory first.
//
//	func TestLog(t *testing.T) {
//		logtest.Run(t, logtest.Engine{
//			New: func(t *testing.T) logtest.Open {
//				dir := t.TempDir()
//				return func(o logtest.Options) (events.Log, error) { return engine.Open(dir, ...) }
//			},
//			Durable: true,
//		})
//	}
package logtest

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"fleetledger/events"
)

// Engine is an engine under test.
type Engine struct {
	// New makes an empty place for one log and returns the way to open it there.
	New func(t *testing.T) Open
	// Durable says that what was appended is there again when the log is closed
	// and opened once more. The suite then also tests across reopening.
	Durable bool
	// CannotErase says that the engine refuses to erase payloads.
	CannotErase bool
	// MaxBytes is how much payload one append holds at least; 0 means
	// events.MaxAppendBytes.
	MaxBytes int
	// Remote is set for an engine that appends over a network: busy readers beside it
	// starve it of the processor, so it has less to append there.
	Remote bool
}

// Open opens the log of one place. The suite closes it before it opens it again.
type Open func(Options) (events.Log, error)

// Options are what the suite asks an engine to open a log with.
type Options struct {
	Fleet string
	Fold  events.Fold      // may be nil
	Now   func() time.Time // the wall clock; nil means time.Now
}

// Run runs the suite. Every test opens logs of its own.
func Run(t *testing.T, e Engine) {
	for _, c := range []struct {
		name string
		run  func(*testing.T, Engine)
	}{
		{"Empty", testEmpty},
		{"PositionsAndRevisionsAreDense", testDense},
		{"OneAppendManyStreams", testManyStreams},
		{"AppendIsAtomic", testAtomic},
		{"Expectations", testExpectations},
		{"OrderOfChecks", testOrderOfChecks},
		{"Keys", testKeys},
		{"IDs", testIDs},
		{"Before", testBefore},
		{"InvalidInput", testInvalidInput},
		{"Limits", testLimits},
		{"StreamNamesDoNotCollide", testStreamNames},
		{"Reads", testReads},
		{"FoldRefuses", testFoldRefuses},
		{"FoldKeepsInStep", testFoldInStep},
		{"TimeNeverRunsBackwards", testTime},
		{"Payloads", testPayloads},
		{"Erase", testErase},
		{"EraseIsAtomic", testEraseAtomic},
		{"Heads", testHeads},
		{"Commits", testCommits},
		{"Wait", testWait},
		{"Close", testClose},
		{"CloseFinishesAppends", testCloseFinishes},
		{"Context", testContext},
		{"ContextMidway", testContextMidway},
		{"OneWinner", testOneWinner},
		{"ManyWriters", testManyWriters},
		{"ConcurrentKeys", testConcurrentKeys},
		{"ConcurrentIDs", testConcurrentIDs},
		{"ReadsWhileAppending", testReadsWhileAppending},
		{"Linearizable", testLinearizable},
		{"SameAsModel", testSameAsModel},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
}

const fleet = "fleet-a"

// open opens a log in a new place.
func (e Engine) open(t *testing.T, o Options) events.Log {
	t.Helper()
	return openIn(t, e.New(t), o)
}

// openIn opens the log of a place.
func openIn(t *testing.T, open Open, o Options) events.Log {
	t.Helper()
	if o.Fleet == "" {
		o.Fleet = fleet
	}
	l, err := open(o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return l
}

// reopen closes l and opens the log of the same place again.
func reopen(t *testing.T, l events.Log, open Open, o Options) events.Log {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	return openIn(t, open, o)
}

var serial atomic.Uint64

// freshID returns an event id that no test used before.
func freshID() string { return fmt.Sprintf("e-%08d", serial.Add(1)) }

// draft makes an event with this id. Everything in it follows from s and id.
func draft(s events.Stream, id string) events.Draft {
	h := events.SumHash("salt", id)
	return events.NewDraft(events.Intent{
		ID:     id,
		Stream: s,
		Type:   "ext.test",
		Schema: 1,
		Actor:  "tester",
	}, [events.SaltBytes]byte(h[:events.SaltBytes]), fmt.Appendf(nil, `{"id":%q,"stream":%q}`, id, s))
}

// to is an append of one event with a fresh id to each of the streams.
func to(streams ...events.Stream) events.Append {
	var a events.Append
	for _, s := range streams {
		a.Drafts = append(a.Drafts, draft(s, freshID()))
	}
	return a
}

// keyed binds a to an idempotency key and the request it was made from.
func keyed(a events.Append, key, request string) events.Append {
	a.Key, a.Request = events.SumHash("key", key), events.SumHash("request", request)
	a.Drafts = slices.Clone(a.Drafts)
	for i := range a.Drafts {
		a.Drafts[i].Intent.Key, a.Drafts[i].Intent.Request = a.Key, a.Request
	}
	return a
}

// expecting adds an expectation to a.
func expecting(a events.Append, s events.Stream, r events.Revision) events.Append {
	a.Expect = append(slices.Clone(a.Expect), events.Expectation{Stream: s, Revision: r})
	return a
}

func mustAppend(t *testing.T, l events.Log, a events.Append) events.Appended {
	t.Helper()
	done, err := l.Append(t.Context(), a)
	if err != nil {
		t.Fatalf("append: %v", err)
	}
	return done
}

// CheckWhole reads the whole log in every way there is and fails the test where
// a promise about its records is broken. It returns the records. The payloads at
// the positions erased, and no others, are gone.
func CheckWhole(t *testing.T, l events.Log, erased ...events.Position) []events.Record {
	t.Helper()
	var (
		all     []events.Record
		streams = make(map[events.Stream][]events.Record)
		heads   = make(map[events.Stream]events.Record)
		last    time.Time
		durable = l.Durable()
	)
	checkTree(t, l)
	for r, err := range l.ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatalf("read all, after position %d: %v", len(all), err)
		}
		h, head := r.Header, heads[r.Header.Stream]
		switch parsed, err := events.ParseHeader(r.Leaf); {
		case err != nil:
			t.Fatalf("position %d: leaf: %v", h.Position, err)
		case parsed != h:
			t.Fatalf("position %d: header and leaf differ:\n%+v\n%s", h.Position, h, r.Leaf)
		case h.Position != events.Position(len(all)+1):
			t.Fatalf("position %d came where %d is due", h.Position, len(all)+1)
		case h.Revision != head.Header.Revision+1:
			t.Fatalf("position %d: stream %s goes from revision %d to %d", h.Position, h.Stream, head.Header.Revision, h.Revision)
		case h.Prev != head.LeafHash:
			t.Fatalf("position %d: prev is %q, the stream's previous leaf hash is %q", h.Position, h.Prev, head.LeafHash)
		case r.LeafHash != events.LeafHash(r.Leaf):
			t.Fatalf("position %d: the leaf hash is not the leaf's", h.Position)
		case h.Time.Before(last):
			t.Fatalf("position %d: time runs back from %s to %s", h.Position, last, h.Time)
		case h.Fleet != fleet:
			t.Fatalf("position %d: fleet %q", h.Position, h.Fleet)
		}
		if gone := slices.Contains(erased, h.Position); r.Erased != gone {
			t.Fatalf("position %d: erased: %t, it should be %t", h.Position, r.Erased, gone)
		}
		if r.Erased && (r.Payload != nil || r.Salt != [events.SaltBytes]byte{}) {
			t.Fatalf("position %d: erased, and something of its payload is still there", h.Position)
		}
		if err := r.Verify(); err != nil {
			t.Fatalf("position %d: %v", h.Position, err)
		}
		if p, err := l.FindID(t.Context(), h.ID); err != nil || p != h.Position {
			t.Fatalf("position %d: its id is found at %d, error %v", h.Position, p, err)
		}
		if !h.Key.IsZero() {
			a, request, err := l.FindKey(t.Context(), h.Key)
			if err != nil || request != h.Request || h.Position < a.First || h.Position > a.Last {
				t.Fatalf("position %d: its key is found at %d..%d with request %q, error %v", h.Position, a.First, a.Last, request, err)
			}
		}
		all = append(all, r)
		streams[h.Stream] = append(streams[h.Stream], r)
		heads[h.Stream], last = r, h.Time
	}
	if got := events.Position(len(all)); got < durable {
		t.Fatalf("%d events are durable, %d were read", durable, got)
	}
	n := 0
	for s, err := range events.ReadStored(t.Context(), l, 0) {
		if err != nil {
			t.Fatalf("read stored, after position %d: %v", n, err)
		}
		if n == len(all) {
			break // appended meanwhile
		}
		if r, err := s.Record(); err != nil || !sameRecord(r, all[n]) {
			t.Fatalf("position %d: what is stored is not the record: %v", n+1, err)
		}
		n++
	}
	if n != len(all) {
		t.Fatalf("%d events are read as stored, %d as records", n, len(all))
	}
	for s, want := range streams {
		if got := readStream(t, l, s, 0); !slices.EqualFunc(got, want, sameRecord) {
			t.Fatalf("stream %s reads as %d events, its part of the log has %d, or they differ", s, len(got), len(want))
		}
	}
	var want []events.StreamHead
	for _, s := range sorted(heads) {
		want = append(want, headOf(heads[s]))
	}
	if got := readHeads(t, l, "", events.Position(len(all))); !slices.Equal(got, want) {
		t.Fatalf("the streams' heads are %v, they should be %v", got, want)
	}
	if now := l.Now(); now.Before(last) {
		t.Fatalf("the ledger's time %s is before its last event's %s", now, last)
	}
	return all
}

func readStream(t *testing.T, l events.Log, s events.Stream, after events.Revision) []events.Record {
	t.Helper()
	var out []events.Record
	for r, err := range l.ReadStream(t.Context(), s, after) {
		if err != nil {
			t.Fatalf("read stream %s: %v", s, err)
		}
		out = append(out, r)
	}
	return out
}

func readAll(t *testing.T, l events.Log, after events.Position) []events.Record {
	t.Helper()
	var out []events.Record
	for r, err := range l.ReadAll(t.Context(), after) {
		if err != nil {
			t.Fatalf("read all: %v", err)
		}
		out = append(out, r)
	}
	return out
}

func sameRecord(a, b events.Record) bool {
	return a.Header == b.Header && string(a.Leaf) == string(b.Leaf) && a.LeafHash == b.LeafHash &&
		a.Salt == b.Salt && string(a.Payload) == string(b.Payload) && a.Erased == b.Erased
}

// checkHolds fails the test unless the log holds exactly these event ids in
// this order.
func checkHolds(t *testing.T, l events.Log, want ...string) {
	t.Helper()
	var got []string
	for _, r := range CheckWhole(t, l) {
		got = append(got, r.Header.ID)
	}
	if !slices.Equal(got, want) {
		t.Fatalf("the log holds %v, it should hold %v", got, want)
	}
}

// idsOf lists the ids of an append's events.
func idsOf(appends ...events.Append) []string {
	var out []string
	for _, a := range appends {
		for _, d := range a.Drafts {
			out = append(out, d.Intent.ID)
		}
	}
	return out
}

// wall is a wall clock that only the test moves.
type wall struct{ at atomic.Int64 }

func newWall() *wall {
	w := &wall{}
	w.at.Store(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).UnixMicro())
	return w
}

func (w *wall) now() time.Time       { return time.UnixMicro(w.at.Load()).UTC() }
func (w *wall) move(d time.Duration) { w.at.Add(d.Microseconds()) }

// sorted lists a map's keys in order, so that failures are the same each time.
func sorted[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
