package bus

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// fixture is a fleet whose bus runs until the test ends, or is restarted.
type fixture struct {
	*commands.Ledger
	t   testing.TB
	dir string
	// shared, unless nil, is what its relay shares with others.
	shared Store
	bus    *Bus
	stop   func()
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{Ledger: newLedger(t), t: t, dir: t.TempDir()}
	f.start()
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *fixture) start() {
	f.bus = New(Config{Ledger: f.Ledger, Dir: f.dir, Shared: f.shared, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f.bus.Run(ctx) }()
	f.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			f.t.Error(err)
		}
	})
}

func (f *fixture) restart() { f.stop(); f.start() }

func (f *fixture) ok(_ commands.Result, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
	f.bus.Changed()
}

var root = commands.Caller{Actor: "root"}

func (f *fixture) subscribe(s events.Subscription) {
	f.t.Helper()
	f.ok(f.CreateSubscription(context.Background(), root, commands.CreateSubscription{Subscription: s}))
}

// record appends n events of a kind whose data count on from first, and returns
// their ids.
func (f *fixture) record(kind events.Kind, stream events.Stream, first, n int) (ids []string) {
	f.t.Helper()
	for i := range n {
		id := uuid.NewString()
		_, err := f.AppendExt(context.Background(), root, []commands.ExtEvent{{ID: id, Type: kind, Stream: stream,
			Body: events.Ext{Source: "/test", DataContentType: "application/json", Data: fmt.Appendf(nil, `{"n":%d}`, first+i)}}})
		if err != nil {
			f.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

func (f *fixture) status(name string) Status {
	f.t.Helper()
	list, err := projections.LoadSubscriptions(context.Background(), f.Log(), 0)
	if err != nil {
		f.t.Fatal(err)
	}
	s, err := f.bus.Status(context.Background(), *list.Find(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return s
}

// cursor is what is kept of a subscription's.
func (f *fixture) cursor(name string) cursorState {
	f.t.Helper()
	list, err := projections.LoadSubscriptions(context.Background(), f.Log(), 0)
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := f.bus.cursor(context.Background(), *list.Find(name))
	if err != nil {
		f.t.Fatal(err)
	}
	return c.get()
}

// await waits until the condition holds.
func (f *fixture) await(what string, holds func() bool) {
	f.t.Helper()
	for limit := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(limit) {
			list, _ := projections.LoadSubscriptions(context.Background(), f.Log(), 0)
			for _, sub := range list.List {
				s, err := f.bus.Status(context.Background(), sub)
				f.t.Logf("%s: %+v (%v)", sub.Name, s, err)
			}
			f.t.Fatalf("%s: not within 20 s", what)
		}
	}
}

// receiver is a webhook that notes what it takes.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	ids    []string // taken, in order
	refuse func(id string, body string) int
	calls  int
	last   *http.Request
	body   string
}

func newReceiver(t testing.TB) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		b, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls++
		r.last, r.body = req, string(b)
		id := req.Header.Get("webhook-id")
		if r.refuse != nil {
			if status := r.refuse(id, string(b)); status != 0 {
				http.Error(w, "not this one", status)
				return
			}
		}
		r.ids = append(r.ids, id)
	}))
	t.Cleanup(r.Close)
	return r
}

// taken are the ids of what it took, in order. One that was under way when its
// delivery was stopped may come again after that, and counts once.
func (r *receiver) taken() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Compact(slices.Clone(r.ids))
}

func (r *receiver) refusing(f func(id, body string) int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = f
}

func webhook(url string) events.Destination { return events.Destination{Kind: "webhook", URL: url} }

// Events arrive as signed CloudEvents, in the log's order, filtered, and after a
// restart where the delivery was.
func TestWebhook(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	f.subscribe(events.Subscription{Name: "all-builds", Destination: webhook(r.URL), Types: []string{"ext.build.*"}, Streams: []string{"ext-a*"}})
	f.record("ext.other", "ext-a", 0, 3)
	want := f.record("ext.build.done", "ext-a1", 0, 20)
	f.record("ext.build.done", "ext-b", 0, 3)
	f.await("20 events", func() bool { return len(r.taken()) == 20 })

	keys, err := f.bus.PublicKeys(t.Context(), "")
	if err != nil || len(keys) != 1 {
		t.Fatal(keys, err)
	}
	key := keys[0]
	raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key, "whpk_"))
	if err != nil {
		t.Fatal(err)
	}
	h := r.last.Header
	sig, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(h.Get("webhook-signature"), "v1a,"))
	if err != nil || !ed25519.Verify(raw, []byte(h.Get("webhook-id")+"."+h.Get("webhook-timestamp")+"."+r.body), sig) {
		t.Errorf("the signature %q does not verify (%v)", h.Get("webhook-signature"), err)
	}
	if got := h.Get("Content-Type"); got != cloudEventType {
		t.Errorf("Content-Type %q", got)
	}
	var e map[string]any
	if err := json.Unmarshal([]byte(r.body), &e); err != nil {
		t.Fatal(err)
	}
	if e["specversion"] != "1.0" || e["id"] != want[19] || e["type"] != "ext.build.done" || e["subject"] != "ext-a1" || e["source"] != "/test" ||
		e["actor"] != "root" || e["revision"] != 20.0 || e["data"].(map[string]any)["n"] != 19.0 {
		t.Errorf("delivered %s", r.body)
	}

	f.restart()
	want = append(want, f.record("ext.build.failed", "ext-a1", 20, 5)...)
	f.await("the other 5", func() bool { return len(r.taken()) >= 25 })
	if got := r.taken(); !slices.Equal(got, want) {
		t.Errorf("took %v, want %v", got, want)
	}
	if again, err := f.bus.PublicKeys(t.Context(), ""); err != nil || again[0] != key {
		t.Errorf("after a restart the key is %q (%v), it was %q", again, err, key)
	}
	if info, err := os.Stat(filepath.Join(f.dir, webhookKeyName)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the key's file: %v %v", info.Mode(), err)
	}
	f.await("no lag", func() bool { return f.status("all-builds").Lag == 0 })
}

// A webhook that is down gets everything afterwards, in order, once; appends do not
// wait for it, and the status says what is wrong.
func TestWebhookDown(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	r.refusing(func(string, string) int { return http.StatusServiceUnavailable })
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	want := f.record("ext.a", "ext-a", 0, 500)
	f.await("a failure shown", func() bool { s := f.status("w"); return s.Failing != "" && s.Stuck != 0 && !s.RetryAt.IsZero() })
	s := f.status("w")
	if !strings.Contains(s.Failing, "503") || s.Lag < 500 || s.Delivered != 0 || len(s.Parked) != 0 {
		t.Errorf("%+v", s)
	}
	r.refusing(nil)
	f.await("500 events", func() bool { return len(r.taken()) >= 500 })
	if got := r.taken(); !slices.Equal(got, want) {
		t.Errorf("took %d events, or not in order", len(got))
	}
	f.await("nothing fails", func() bool { s := f.status("w"); return s.Failing == "" && s.Delivered == 500 && s.Lag == 0 })
}

// What is refused for what it is is parked, visibly, and does not hold up the rest;
// it is delivered when that is asked for.
func TestPoison(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	r.refusing(func(_, body string) int {
		if strings.Contains(body, `"n":2}`) {
			return http.StatusUnprocessableEntity
		}
		return 0
	})
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 0, 5)
	f.await("the other 4", func() bool { return len(r.taken()) == 4 })
	if got := r.taken(); !slices.Equal(got, append(slices.Clone(ids[:2]), ids[3:]...)) {
		t.Errorf("took %v of %v", got, ids)
	}
	f.restart()
	s := f.status("w")
	if len(s.Parked) != 1 || s.Parked[0].EventID != ids[2] || !strings.Contains(s.Parked[0].Reason, "422") || !strings.Contains(s.Parked[0].Reason, "not this one") {
		t.Fatalf("parked: %+v", s.Parked)
	}
	// Still refused: still parked.
	f.ok(f.ReplaySubscription(context.Background(), root, commands.ReplaySubscription{Name: "w"}))
	before := s.Parked[0].At
	f.await("another try", func() bool { p := f.status("w").Parked; return len(p) == 1 && p[0].At.After(before) })

	r.refusing(nil)
	f.ok(f.ReplaySubscription(context.Background(), root, commands.ReplaySubscription{Name: "w"}))
	f.await("nothing parked", func() bool { return len(f.status("w").Parked) == 0 })
	if got := r.taken(); len(got) != 5 || got[4] != ids[2] {
		t.Errorf("took %v of %v", got, ids)
	}
}

// An event that a destination is stuck at is parked on request; a pause stops the
// delivery where it is; a replay goes back; a removal ends it.
func TestOperating(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	ctx := context.Background()
	r.refusing(func(_, body string) int {
		if strings.Contains(body, `"n":0}`) {
			return http.StatusForbidden
		}
		return 0
	})
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 0, 2)
	f.await("it is stuck", func() bool { return f.status("w").Stuck != 0 })
	f.ok(f.ParkSubscription(ctx, root, commands.ParkSubscription{Name: "w", Event: f.status("w").Stuck}))
	f.await("the next", func() bool { return slices.Equal(r.taken(), ids[1:]) })
	if p := f.status("w").Parked; len(p) != 1 || p[0].EventID != ids[0] {
		t.Errorf("parked %+v", p)
	}

	f.ok(f.ChangeSubscription(ctx, root, commands.ChangeSubscription{Name: "w", Paused: true}))
	f.await("it has stopped", func() bool { f.bus.mu.Lock(); defer f.bus.mu.Unlock(); return f.bus.running["w"] == nil })
	ids = append(ids, f.record("ext.a", "ext-a", 2, 3)...)
	f.ok(f.ChangeSubscription(ctx, root, commands.ChangeSubscription{Name: "w", Paused: false}))
	f.await("what came meanwhile", func() bool { return slices.Equal(r.taken(), ids[1:]) })

	r.refusing(nil)
	start := events.Position(0)
	f.ok(f.ReplaySubscription(ctx, root, commands.ReplaySubscription{Name: "w", After: &start}))
	f.await("everything again", func() bool { return slices.Equal(r.taken(), append(slices.Clone(ids[1:]), ids...)) })

	f.ok(f.RemoveSubscription(ctx, root, commands.RemoveSubscription{Name: "w"}))
	f.await("it has ended", func() bool { f.bus.mu.Lock(); defer f.bus.mu.Unlock(); return f.bus.running["w"] == nil })
	f.await("no cursor is left", func() bool {
		left, err := filepath.Glob(filepath.Join(f.dir, "w-*"))
		return err == nil && len(left) == 0
	})
	// One of the same name is another one.
	calls := len(r.taken())
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}, After: f.Log().Durable()})
	last := f.record("ext.a", "ext-a", 5, 1)
	f.await("only what is new", func() bool { got := r.taken(); return len(got) == calls+1 && got[calls] == last[0] })
}

// What was parked and is taken when everything is delivered again is not parked any
// more.
func TestReplayOfParked(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	r.refusing(func(_, body string) int {
		if strings.Contains(body, `"n":1}`) {
			return http.StatusBadRequest
		}
		return 0
	})
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 0, 3)
	f.await("one is parked", func() bool { return len(r.taken()) == 2 && len(f.status("w").Parked) == 1 })
	r.refusing(nil)
	start := events.Position(0)
	f.ok(f.ReplaySubscription(context.Background(), root, commands.ReplaySubscription{Name: "w", After: &start}))
	f.await("everything again", func() bool { return len(r.taken()) == 5 && f.status("w").Lag == 0 })
	if got, s := r.taken()[2:], f.status("w"); !slices.Equal(got, ids) || len(s.Parked) != 0 {
		t.Errorf("took %v of %v, parked %+v", got, ids, s.Parked)
	}
}

// What is asked about an event that was not tried yet leaves nothing out: to park it, or
// to begin again behind it.
func TestAskedAhead(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	ctx := context.Background()
	r.refusing(func(string, string) int { return http.StatusServiceUnavailable })
	f.subscribe(events.Subscription{Name: "w", Destination: webhook(r.URL), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 0, 3)
	f.await("it is stuck", func() bool { return f.status("w").Stuck != 0 })
	end := f.Log().Durable()
	f.ok(f.ParkSubscription(ctx, root, commands.ParkSubscription{Name: "w", Event: end - 1}))
	f.ok(f.ReplaySubscription(ctx, root, commands.ReplaySubscription{Name: "w", After: &end}))
	f.await("both are acted on", func() bool { return f.cursor("w").Acted == f.Log().Durable() })
	tried := false
	r.refusing(func(_, body string) int {
		if !tried && strings.Contains(body, `"n":1}`) {
			tried = true
			return http.StatusServiceUnavailable
		}
		return 0
	})
	f.await("all of them", func() bool { return slices.Equal(r.taken(), ids) && f.status("w").Lag == 0 })
	if s := f.status("w"); len(s.Parked) != 0 {
		t.Errorf("parked %+v", s.Parked)
	}
}

// A credential comes from the relay's environment; without it the status says so.
func TestCredential(t *testing.T) {
	f, r := newFixture(t), newReceiver(t)
	d := webhook(r.URL)
	d.CredentialEnv = "FLEETLEDGER_TEST_CREDENTIAL"
	f.subscribe(events.Subscription{Name: "w", Destination: d, Types: []string{"ext.*"}})
	f.record("ext.a", "ext-a", 0, 1)
	f.await("it is missed", func() bool { return strings.Contains(f.status("w").Failing, "FLEETLEDGER_TEST_CREDENTIAL") })
	t.Setenv("FLEETLEDGER_TEST_CREDENTIAL", "Bearer xyz")
	f.await("the event", func() bool { return len(r.taken()) == 1 })
	if got := r.last.Header.Get("Authorization"); got != "Bearer xyz" {
		t.Errorf("Authorization: %q", got)
	}
}

// recordLarge records an event of about that many bytes.
func (f *fixture) recordLarge(stream events.Stream, size int) {
	f.t.Helper()
	_, err := f.AppendExt(context.Background(), root, []commands.ExtEvent{{ID: uuid.NewString(), Type: "ext.large", Stream: stream,
		Body: events.Ext{Source: "/test", DataContentType: "application/json", Data: fmt.Appendf(nil, "%q", strings.Repeat("x", size))}}})
	if err != nil {
		f.t.Fatal(err)
	}
}

// Publishers are closed while a message is under way, to a receiver that takes it and
// to one that does not answer: each ends at once, and nothing is touched by two (the
// race detector tells).
func TestStopInMidDelivery(t *testing.T) {
	n := newNATS(t, server.Options{})
	n.stream("")
	silent := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		_, _ = io.Copy(io.Discard, req.Body) // only then is it seen that the client left
		<-req.Context().Done()
	}))
	t.Cleanup(silent.Close)
	key, err := OpenWebhookKey("")
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []events.Destination{
		webhook(newReceiver(t).URL), webhook(silent.URL),
		{Kind: "nats", URL: n.ClientURL(), Subject: "fleet.events"},
		{Kind: "nats", URL: n.ClientURL(), Subject: "no.stream"},
	} {
		for i := range 50 {
			to, err := connect(d, "", key)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*100*time.Microsecond)
			began := time.Now()
			err = to.publish(ctx, message.NewMessage(fmt.Sprint(i), []byte("{}")))
			if took := time.Since(began); took > answerTimeout/2 {
				t.Errorf("%s: %v after its context ended (%v)", d.URL, took, err)
			}
			if err := to.Close(); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
}
