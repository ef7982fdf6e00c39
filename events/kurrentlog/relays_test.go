package kurrentlog_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/kurrentstub"
	"fleetledger/testing/logtest"
)

const fleet = "fleet-a"

func mustOpen(t *testing.T, c *kurrentstub.Cluster, dir string, o kurrentlog.Options) *kurrentlog.Log {
	t.Helper()
	o.Connection, o.Fleet = c.ConnectionString(), fleet
	l, err := open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func mustClose(t *testing.T, l *kurrentlog.Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func one(s events.Stream, id string) events.Append {
	h := events.SumHash("salt", id)
	d := events.NewDraft(events.Intent{ID: id, Stream: s, Type: "ext.test", Schema: 1, Actor: "tester"},
		[events.SaltBytes]byte(h[:]), fmt.Appendf(nil, `{"id":%q}`, id))
	return events.Append{Drafts: []events.Draft{d}}
}

func keyed(a events.Append, key string) events.Append {
	a.Key, a.Request = events.SumHash("key", key), events.SumHash("request", key)
	for i := range a.Drafts {
		a.Drafts[i].Intent.Key, a.Drafts[i].Intent.Request = a.Key, a.Request
	}
	return a
}

// TestRelaysSeeOneLog has what one relay records read, and its keys found, at
// another, and a relay begun anew hold the same bytes.
func TestRelaysSeeOneLog(t *testing.T) {
	c := start(t, kurrentstub.Options{Nodes: 3})
	dir := t.TempDir()
	a, b := mustOpen(t, c, filepath.Join(dir, "a"), kurrentlog.Options{}), mustOpen(t, c, filepath.Join(dir, "b"), kurrentlog.Options{})
	defer mustClose(t, a)
	for i := range 20 {
		l := []*kurrentlog.Log{a, b}[i%2]
		if _, err := l.Append(t.Context(), keyed(one("s", fmt.Sprint("e", i)), fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	// The other relay has not seen it yet, and is asked for it again.
	if done, err := a.Append(t.Context(), keyed(one("s", "e19"), "19")); err != nil || !done.Duplicate || done.First != 20 {
		t.Fatalf("a retry at another relay: %+v, %v", done, err)
	}
	// It expects what only the other relay has applied.
	fresh := one("s", "e20")
	fresh.Expect = []events.Expectation{{Stream: "s", Revision: 20}}
	if _, err := b.Append(t.Context(), fresh); err != nil {
		t.Fatal(err)
	}
	if err := a.Wait(t.Context(), 21); err != nil {
		t.Fatal(err)
	}
	want := logtest.CheckWhole(t, a)
	if got := logtest.CheckWhole(t, b); !slices.EqualFunc(got, want, same) {
		t.Fatal("two relays hold two logs")
	}
	mustClose(t, b)
	// A replica that was lost is made again; one that was left behind goes on.
	for _, name := range []string{"c", "b"} {
		again := mustOpen(t, c, filepath.Join(dir, name), kurrentlog.Options{})
		if got := logtest.CheckWhole(t, again); !slices.EqualFunc(got, want, same) || again.Tree().Root != a.Tree().Root {
			t.Errorf("replica %s holds another log", name)
		}
		mustClose(t, again)
	}
}

func same(a, b events.Record) bool {
	return string(a.Leaf) == string(b.Leaf) && a.Salt == b.Salt && string(a.Payload) == string(b.Payload)
}

// TestRefusesAnotherStream has a replica meet a stream that it was not made from, and
// one that is shorter than it.
func TestRefusesAnotherStream(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a")
	first := start(t, kurrentstub.Options{})
	l := mustOpen(t, first, dir, kurrentlog.Options{})
	for i := range 3 {
		if _, err := l.Append(t.Context(), one("s", fmt.Sprint("e", i))); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, l)
	another := start(t, kurrentstub.Options{})
	for n := range 4 {
		_, err := open(dir, kurrentlog.Options{Connection: another.ConnectionString(), Fleet: fleet})
		var foreign *kurrentlog.ForeignError
		if !errors.As(err, &foreign) || foreign.Position != 3 {
			t.Fatalf("a stream of %d other events: %v", n, err)
		}
		l := mustOpen(t, another, filepath.Join(t.TempDir(), "b"), kurrentlog.Options{})
		if _, err := l.Append(t.Context(), one("s", fmt.Sprint("other", n))); err != nil {
			t.Fatal(err)
		}
		mustClose(t, l)
	}
}

// TestRefusesATruncatedStream has a stream lose events by its metadata, before a
// relay starts and under one.
func TestRefusesATruncatedStream(t *testing.T) {
	for _, metadata := range []string{`{"$maxCount":2}`, `{"$maxAge":100000}`, `{"$tb":1}`} {
		c := start(t, kurrentstub.Options{})
		dir := t.TempDir()
		l := mustOpen(t, c, filepath.Join(dir, "a"), kurrentlog.Options{})
		for i := range 3 {
			if _, err := l.Append(t.Context(), one("s", fmt.Sprint("e", i))); err != nil {
				t.Fatal(err)
			}
		}
		mustClose(t, l)
		c.SetMetadata("fleetledger-"+fleet, []byte(metadata))
		for _, name := range []string{"a", "new"} {
			_, err := open(filepath.Join(dir, name), kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet})
			var truncated *kurrentlog.TruncatedError
			if !errors.As(err, &truncated) {
				t.Errorf("%s, replica %s: %v", metadata, name, err)
			}
		}
		// Without the setting, but with the events gone.
		c.SetMetadata("fleetledger-"+fleet, []byte(`{}`))
		c.Forget("fleetledger-"+fleet, 1)
		_, err := open(filepath.Join(dir, "new"), kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet})
		var truncated *kurrentlog.TruncatedError
		if !errors.As(err, &truncated) {
			t.Errorf("a stream that begins at revision 1: %v", err)
		}
	}
}

func TestAReplicaIsNoLogOfItsOwn(t *testing.T) {
	c := start(t, kurrentstub.Options{})
	dir := filepath.Join(t.TempDir(), "a")
	mustClose(t, mustOpen(t, c, dir, kurrentlog.Options{}))
	if _, err := pebblelog.Open(dir, pebblelog.Options{Fleet: fleet}); !errors.Is(err, pebblelog.ErrRole) {
		t.Errorf("a replica was opened as a log of its own: %v", err)
	}
	own := filepath.Join(t.TempDir(), "own")
	l, err := pebblelog.Open(own, pebblelog.Options{Fleet: fleet})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := pebblelog.OpenReplica(own, pebblelog.Options{Fleet: fleet}); !errors.Is(err, pebblelog.ErrRole) {
		t.Errorf("a log of its own was opened as a replica: %v", err)
	}
}

func TestTooLargeForACluster(t *testing.T) {
	c := start(t, kurrentstub.Options{MaxAppendBytes: 100_000})
	l := mustOpen(t, c, filepath.Join(t.TempDir(), "a"), kurrentlog.Options{})
	defer mustClose(t, l)
	big := func(bytes int) events.Append {
		a := one("s", fmt.Sprint("big", bytes))
		a.Drafts[0] = events.NewDraft(a.Drafts[0].Intent, a.Drafts[0].Salt, make([]byte, bytes))
		return a
	}
	for _, bytes := range []int{kurrentlog.MaxBatchBytes, 200_000} { // ours, and a stricter server's
		if _, err := l.Append(t.Context(), big(bytes)); !errors.Is(err, events.ErrTooLarge) {
			t.Errorf("%d bytes: %v", bytes, err)
		}
	}
	_, err := l.Append(t.Context(), big(kurrentlog.MaxBatchBytes))
	if e, ok := errors.AsType[*events.TooLargeError](err); !ok || e.Limit != l.AppendBytes() || e.Bytes <= e.Limit {
		t.Errorf("it is not told by how much: %v", err)
	}
	// Ours is refused before it is sent, also where the server would take it.
	lenient := start(t, kurrentstub.Options{MaxAppendBytes: 4 << 20})
	other := mustOpen(t, lenient, filepath.Join(t.TempDir(), "b"), kurrentlog.Options{})
	defer mustClose(t, other)
	if _, err := other.Append(t.Context(), big(kurrentlog.MaxBatchBytes)); !errors.Is(err, events.ErrTooLarge) || lenient.Appends() != 0 {
		t.Errorf("%v, and %d appends were sent", err, lenient.Appends())
	}
	if _, err := other.Append(t.Context(), big(kurrentlog.MaxBatchBytes-4<<10)); err != nil || lenient.Appends() != 1 {
		t.Errorf("%v, and %d appends were sent", err, lenient.Appends())
	}
	// In one batch with such an append, others still stand.
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if i%4 == 0 {
				if _, err := l.Append(t.Context(), big(150_000+i)); !errors.Is(err, events.ErrTooLarge) {
					t.Errorf("beside others: %v", err)
				}
				return
			}
			if _, err := l.Append(t.Context(), big(1000+i)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := len(logtest.CheckWhole(t, l)); n != 15 {
		t.Errorf("%d events were recorded", n)
	}
}

func TestConnectionStrings(t *testing.T) {
	for s, well := range map[string]bool{
		"kurrentdb://a:2113":                                true,
		"kurrentdb://ops:secret@a:2113,b:2113,c:2113":       true,
		"kurrentdb+discover://db.example.org?tls=true":      true,
		"esdb://a?tls=false":                                true,
		"kurrentdb://a?streamPrefix=mine&tls=false":         true,
		"kurrentdb://a?streamPrefix=not mine":               false,
		"http://a:2113":                                     false,
		"a:2113":                                            false,
		"kurrentdb://ops:secret@a:x":                        false,
		"kurrentdb://ops:secret@a?tlsCAFile=/there/is/none": false,
	} {
		_, err := kurrentlog.ParseConnection(s)
		if (err == nil) != well {
			t.Errorf("%s: %v", s, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("an error shows the password: %v", err)
		}
	}
	if got := kurrentlog.Redact("kurrentdb://ops:secret@a:2113,b"); got != "kurrentdb://ops:***@a:2113,b" {
		t.Error(got)
	}
}

// relay is one relay of a test, with what it was told is recorded.
type relay struct {
	log *kurrentlog.Log

	mu    sync.Mutex
	acked map[string]events.Position // by event id
}

// record appends until it is told an outcome, as a client does that sends the same
// request again; nil is a conflict.
func (r *relay) record(ctx context.Context, a events.Append) (won bool, err error) {
	for {
		done, err := r.log.Append(ctx, a)
		var conflict *events.ConflictError
		switch {
		case errors.As(err, &conflict):
			return false, nil
		case errors.Is(err, events.ErrUnavailable):
			continue
		case err != nil:
			return false, err
		}
		r.mu.Lock()
		r.acked[a.Drafts[0].Intent.ID] = done.First
		r.mu.Unlock()
		return true, nil
	}
}

// TestRelaysOnAClusterThatMisbehaves has three relays write at once, each its own
// stream and all of them one that only one can win at a time, while everything goes
// wrong that can, and a leader changes. Nothing acknowledged is lost or there twice,
// each revision has one winner, and all replicas hold the same bytes.
//
// Then again, handing over what they append to one of them, which changes, and of which
// the first dies.
func TestRelaysOnAClusterThatMisbehaves(t *testing.T) {
	for _, handing := range []bool{false, true} {
		t.Run(map[bool]string{false: "apart", true: "handing over"}[handing], func(t *testing.T) { relaysThatMisbehave(t, handing) })
	}
}

func relaysThatMisbehave(t *testing.T, handing bool) {
	rounds := 25
	if testing.Short() {
		rounds = 10
	}
	c := start(t, kurrentstub.Options{Nodes: 3})
	var relays []*relay
	var peers []*kurrentlog.Peers
	for i := range 3 {
		if peers = append(peers, nil); handing {
			peers[i] = listenPeers(t)
		}
		l := mustOpen(t, c, filepath.Join(t.TempDir(), fmt.Sprint(i)), kurrentlog.Options{
			Deadline: 300 * time.Millisecond, Patience: 2 * time.Second, Poll: 100 * time.Millisecond, Peers: peers[i]})
		defer mustClose(t, l)
		relays = append(relays, &relay{log: l, acked: map[string]events.Position{}})
	}
	c.Misbehave(kurrentstub.Faults{Seed: 1, DropAfterWrite: 0.05, Reset: 0.05, Stall: 0.04, StallFor: time.Second,
		NotLeader: 0.05, Early: 0.05, Unknown: 0.05, Lag: 0.05})

	var (
		wg   sync.WaitGroup
		mu   sync.Mutex
		wins = map[int]int{} // by round
	)
	for i, r := range relays {
		wg.Go(func() { // what nobody else writes
			for n := range rounds {
				id := fmt.Sprintf("own-%d-%d", i, n)
				a := keyed(one(events.Stream(fmt.Sprint("r-", i)), id), id)
				a.Expect = []events.Expectation{{Stream: a.Drafts[0].Intent.Stream, Revision: events.Revision(n)}}
				if won, err := r.record(t.Context(), a); err != nil || !won {
					t.Errorf("relay %d, event %d of its own stream: won %v, %v", i, n, won, err)
					return
				}
			}
		})
		wg.Go(func() { // what all of them want
			for n := range rounds {
				id := fmt.Sprintf("contested-%d-%d", i, n)
				a := keyed(one("contested", id), id)
				a.Expect = []events.Expectation{{Stream: "contested", Revision: events.Revision(n)}}
				won, err := r.record(t.Context(), a)
				if err != nil {
					t.Errorf("relay %d, round %d: %v", i, n, err)
					return
				}
				if won {
					mu.Lock()
					wins[n]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Go(func() {
		for _, leader := range []int{1, 2, 0} {
			if err := relays[0].log.Wait(t.Context(), relays[0].log.Durable()+events.Position(rounds/2)); err != nil {
				t.Error(err)
			}
			c.Elect(leader)
		}
		c.RefuseDiscovery(time.Second)
	})
	followed := make(chan struct{})
	if handing {
		ctx, cancel := context.WithCancel(t.Context())
		defer func() { cancel(); <-followed }()
		go func() {
			defer close(followed)
			for n := 0; ctx.Err() == nil; n++ {
				duty := min(n/40, 2) // some 400 ms each
				if n == 40 {
					_ = peers[0].Close() // it dies for the others
				}
				for i, r := range relays {
					relays[duty].log.Admit(r.log.Peer())
					if i != duty {
						r.log.Follow(relays[duty].log.Peer())
					} else {
						r.log.Follow("")
					}
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
	}
	wg.Wait()
	done := c.Done()
	c.Misbehave(kurrentstub.Faults{})
	taken := uint64(0)
	for _, r := range relays {
		taken += r.log.Taken()
	}
	if handing && taken < uint64(rounds)/2 {
		t.Errorf("%d appends were handed over", taken)
	}
	if t.Failed() {
		return
	}
	for n := range rounds {
		if wins[n] != 1 {
			t.Errorf("round %d has %d winners", n, wins[n])
		}
	}
	size := events.Position(0)
	for _, r := range relays {
		size = max(size, r.log.Durable())
	}
	var first []events.Record
	for i, r := range relays {
		if err := r.log.Wait(t.Context(), size); err != nil {
			t.Fatal(err)
		}
		all := logtest.CheckWhole(t, r.log)
		if len(all) != 4*rounds {
			t.Errorf("relay %d holds %d events, not %d", i, len(all), 4*rounds)
		}
		for id, p := range r.acked {
			if all[p-1].Header.ID != id {
				t.Errorf("relay %d was told that %s is at %d, where %s is", i, id, p, all[p-1].Header.ID)
			}
		}
		if i == 0 {
			first = all
		} else if !slices.EqualFunc(all, first, same) {
			t.Errorf("relay %d holds another log than relay 0", i)
		}
	}
	if len(done) < 5 {
		t.Errorf("only these faults were met: %v", done)
	}
	t.Logf("%d events, %d handed over; met %v", size, taken, done)
}

// TestUnreachable has a cluster refuse discovery for longer than an append waits,
// and then come back: the log goes on by itself.
func TestUnreachable(t *testing.T) {
	c := start(t, kurrentstub.Options{Nodes: 3})
	l := mustOpen(t, c, filepath.Join(t.TempDir(), "a"), kurrentlog.Options{Deadline: 200 * time.Millisecond, Patience: 500 * time.Millisecond, Poll: 50 * time.Millisecond})
	defer mustClose(t, l)
	if _, err := l.Append(t.Context(), one("s", "before")); err != nil {
		t.Fatal(err)
	}
	c.RefuseDiscovery(time.Hour)
	a := keyed(one("s", "during"), "k")
	if _, err := l.Append(t.Context(), a); !errors.Is(err, events.ErrUnavailable) {
		t.Fatalf("an append without a cluster: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.Append(ctx, one("s", "given-up")); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("an append whose caller gives up: %v", err)
	}
	if got := logtest.CheckWhole(t, l); len(got) != 1 {
		t.Fatalf("%d events are read without a cluster", len(got))
	}
	c.RefuseDiscovery(0)
	for {
		if _, err := l.Append(t.Context(), a); err == nil {
			break
		} else if !errors.Is(err, events.ErrUnavailable) {
			t.Fatal(err)
		}
	}
	logtest.CheckWhole(t, l)
}

// orderly is a fold that fails the test when it is not told every position in order.
type orderly struct {
	t                 *testing.T
	staged, published events.Position
}

func (f *orderly) Stage(recs []events.Record) (func(), error) {
	for _, r := range recs {
		if f.staged++; r.Header.Position != f.staged {
			f.t.Errorf("position %d was staged where %d is due", r.Header.Position, f.staged)
		}
	}
	end := f.staged
	return func() { f.published = end }, nil
}

func (f *orderly) Unstage() { f.staged = f.published }

// TestFoldFollowsWhatOthersRecord has appends that stand beside one that expects what
// only another relay has seen: the fold is told all of it in the order of the log.
func TestFoldFollowsWhatOthersRecord(t *testing.T) {
	c := start(t, kurrentstub.Options{})
	dir := t.TempDir()
	a := mustOpen(t, c, filepath.Join(dir, "a"), kurrentlog.Options{Fold: &orderly{t: t}})
	defer mustClose(t, a)
	b := mustOpen(t, c, filepath.Join(dir, "b"), kurrentlog.Options{Fold: &orderly{t: t}})
	defer mustClose(t, b)
	for round := range 30 {
		if _, err := a.Append(t.Context(), one("s", fmt.Sprint("a", round))); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				n := one(events.Stream(fmt.Sprint("b-", i)), fmt.Sprintf("b-%d-%d", round, i))
				if i == 2 {
					n.Expect = []events.Expectation{{Stream: "s", Revision: events.Revision(round + 1)}}
				}
				if _, err := b.Append(t.Context(), n); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			return
		}
	}
}
