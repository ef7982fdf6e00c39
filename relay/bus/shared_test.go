package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// shelf is what relays share, in memory.
type shelf struct {
	mu      sync.Mutex
	values  map[string][]byte
	version map[string]uint64
	down    bool
	puts    int
}

func (s *shelf) Get(_ context.Context, name string) ([]byte, uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, 0, events.ErrUnavailable
	}
	return s.values[name], s.version[name], nil
}

func (s *shelf) Put(_ context.Context, name string, value []byte, version uint64) (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.down:
		return 0, events.ErrUnavailable
	case version != s.version[name]:
		return 0, &events.ConflictError{Stream: events.Stream(name)}
	}
	s.puts++
	s.values[name] = value
	s.version[name]++
	return s.version[name], nil
}

func (s *shelf) Remove(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.values, name)
	return nil
}

func (s *shelf) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

// nobody is a channel on which no other relay is.
type nobody struct{}

func (nobody) Say(context.Context, []byte) error       { return nil }
func (nobody) Heard(context.Context) ([][]byte, error) { return nil, nil }
func (nobody) Peer() string                            { return "" }
func (nobody) Admit(string)                            {}
func (nobody) Follow(string)                           {}

// newShared is a fixture whose relay, "a", shares its subscriptions.
func newShared(t *testing.T) (*fixture, *shelf) {
	s := &shelf{values: map[string][]byte{}, version: map[string]uint64{}}
	f := &fixture{Ledger: newLedger(t), t: t, dir: t.TempDir()}
	f.Share("a", nobody{}, nil)
	f.shared = s
	f.start()
	t.Cleanup(func() { f.stop() })
	return f, s
}

func (f *fixture) keepDuty() {
	f.t.Helper()
	if err := f.KeepDuty(context.Background()); err != nil {
		f.t.Fatal(err)
	}
}

// Only the relay that has the duty delivers, and only while the others can know that it
// has it.
func TestOnlyTheDutyDelivers(t *testing.T) {
	f, s := newShared(t)
	r := newReceiver(t)
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 0, 5)
	time.Sleep(3 * dutyLook)
	if got := r.taken(); len(got) > 0 {
		t.Fatalf("delivered without the duty: %v", got)
	}
	if st := f.status("w"); st.Relay != "" || st.Lag == 0 {
		t.Errorf("%+v", st)
	}
	f.keepDuty()
	f.await("5 events", func() bool { return slices.Equal(r.taken(), ids) })
	f.await("it is known where", func() bool { st := f.status("w"); return st.Relay == "a" && st.Delivered == 5 })
	if keys, err := f.bus.PublicKeys(t.Context(), "a"); err != nil || len(keys) != 1 {
		t.Error(keys, err)
	}

	// Others have not heard of it for so long that one may have taken over.
	f.await("it stops", func() bool { return !f.HoldsDuty() })
	more := f.record("ext.a", "ext-a", 5, 5)
	time.Sleep(3 * dutyLook)
	if got := r.taken(); len(got) > 5 {
		t.Errorf("delivered %d when it may have lost the duty", len(got))
	}
	f.keepDuty()
	f.await("it goes on where it was", func() bool { return slices.Equal(r.taken(), append(slices.Clone(ids), more...)) })

	// Somebody else writes the cursor: it is read again, and nothing is lost.
	s.mu.Lock()
	for name := range s.version {
		s.version[name]++
	}
	s.mu.Unlock()
	more = append(more, f.record("ext.a", "ext-a", 10, 5)...)
	f.await("it goes on after a conflict", func() bool {
		f.keepDuty()
		got := r.taken()
		return slices.Contains(got, more[len(more)-1])
	})
	got := r.taken()
	for i, id := range append(slices.Clone(ids), more...) {
		if !slices.Contains(got, id) {
			t.Errorf("event %d was never delivered", i)
		}
	}
}

// While a cursor cannot be written, hardly more is delivered than what may come again.
func TestCursorThatCannotBeWritten(t *testing.T) {
	f, s := newShared(t)
	r := newReceiver(t)
	r.refusing(func(string, string) int { time.Sleep(20 * time.Millisecond); return 0 })
	f.keepDuty()
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 0, 200)
	f.await("it has begun", func() bool { f.keepDuty(); return len(r.taken()) > 5 })
	s.set(true)
	f.await("it waits", func() bool {
		f.keepDuty()
		before := len(r.taken())
		time.Sleep(300 * time.Millisecond)
		return len(r.taken()) == before
	})
	if n := len(r.taken()); n == len(ids) {
		t.Fatalf("all %d were delivered", n)
	}
	if st := f.status("w"); !strings.Contains(st.Failing, "write cursor") {
		t.Errorf("%+v", st)
	}
	s.set(false)
	f.await("the rest", func() bool { f.keepDuty(); return slices.Equal(r.taken(), ids) })
	f.await("nothing fails", func() bool { return f.status("w").Failing == "" })
}

// What was asked for is done by whoever goes on, if nobody was there.
func TestReplayOutlivesItsRelay(t *testing.T) {
	f, s := newShared(t)
	r := newReceiver(t)
	refuse := true
	r.refusing(func(_, body string) int {
		if refuse && strings.Contains(body, `"n":1}`) {
			return http.StatusUnprocessableEntity
		}
		return 0
	})
	f.keepDuty()
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 0, 3)
	f.await("one is parked", func() bool {
		f.keepDuty()
		st := f.status("w")
		return len(st.Parked) == 1 && st.Delivered == 2 && st.Lag == 0
	})

	// The relay dies between noting the replay and doing it.
	f.stop()
	f.ok(f.ReplaySubscription(context.Background(), root, commands.ReplaySubscription{Name: "w"}))
	subs, err := projections.LoadSubscriptions(t.Context(), f.Log(), 0)
	if err != nil {
		t.Fatal(err)
	}
	name := cursorName(subs.List[0])
	b := New(Config{Ledger: f.Ledger, Dir: t.TempDir(), Shared: s, Logger: slog.New(slog.DiscardHandler)})
	cur, err := b.cursors.get(t.Context(), name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := cur.change(t.Context(), true, func(c *cursorState) { c.Replay, c.Acted = true, f.Log().Durable() }); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	refuse = false
	r.mu.Unlock()
	f.start()
	f.await("what was parked", func() bool { f.keepDuty(); return len(f.status("w").Parked) == 0 })
	if got := r.taken(); !slices.Equal(got, []string{ids[0], ids[2], ids[1]}) {
		t.Errorf("took %v of %v", got, ids)
	}
}

// Cursors go along with a log that is moved.
func TestCopyCursors(t *testing.T) {
	f, s := newShared(t)
	r := newReceiver(t)
	f.keepDuty()
	for i := range 2 {
		f.subscribe(events.Subscription{Name: fmt.Sprint("w", i), Destination: webhook(r.URL), Types: []string{"ext.*"}})
	}
	f.record("ext.a", "ext-a", 0, 3)
	f.await("both", func() bool { f.keepDuty(); return f.status("w0").Delivered == 3 && f.status("w1").Delivered == 3 })
	f.stop()
	dir := t.TempDir()
	if err := CopyCursors(t.Context(), f.Log(), s, Files(dir)); err != nil {
		t.Fatal(err)
	}
	other := &shelf{values: map[string][]byte{}, version: map[string]uint64{}}
	if err := CopyCursors(t.Context(), f.Log(), Files(dir), other); err != nil {
		t.Fatal(err)
	}
	for name, value := range other.values {
		if strings.TrimSpace(string(value)) != strings.TrimSpace(string(s.values[name])) {
			t.Errorf("%s: %s, it was %s", name, value, s.values[name])
		}
	}
	if len(other.values) != 2 {
		t.Errorf("%d cursors were copied", len(other.values))
	}
	other.down = true
	if err := CopyCursors(t.Context(), f.Log(), Files(dir), other); !errors.Is(err, events.ErrUnavailable) {
		t.Error(err)
	}
}
