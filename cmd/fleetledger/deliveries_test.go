package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"fleetledger/testing/kurrentstub"
)

// sink is a destination that notes the numbers of the events that it takes.
type sink struct {
	mu    sync.Mutex
	taken []int
}

// numberOf is that of an event.
func numberOf(t *testing.T, cloudEvent []byte) int {
	var e struct {
		Data struct {
			N int `json:"n"`
		} `json:"data"`
	}
	if err := json.Unmarshal(cloudEvent, &e); err != nil {
		t.Errorf("%v: %s", err, cloudEvent)
	}
	return e.Data.N
}

func (s *sink) take(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken = append(s.taken, n)
}

func (s *sink) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.taken)
}

// check holds what was taken to: everything from 0 to n-1 but skipped, in order but for
// what was repeated.
func (s *sink) check(t *testing.T, what string, n int, skipped ...int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	next, repeats := 0, 0
	for _, x := range s.taken {
		for slices.Contains(skipped, next) {
			next++
		}
		switch {
		case x == next:
			next++
		case x < next:
			repeats++
		default:
			t.Fatalf("%s: %d came where %d was due", what, x, next)
		}
	}
	if next != n {
		t.Errorf("%s: took up to %d of %d", what, next, n)
	}
	// At most what was delivered in the second before each of two deaths.
	if repeats > n/2 {
		t.Errorf("%s: %d of %d came again", what, repeats, n)
	}
	t.Logf("%s: %d events, %d came again", what, n, repeats)
}

// TestDeliveriesGoOnAtAnotherRelay has three relays with a webhook and a subject of
// NATS to deliver to, on a cluster that misbehaves. The relay that delivers is killed
// in the middle, twice, once with an event parked and once with a replay asked for.
// Everything arrives at each destination, in order, and little of it twice; any relay
// tells how it stands.
func TestDeliveriesGoOnAtAnotherRelay(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("it takes long, and kills")
	}
	c, err := kurrentstub.Start(kurrentstub.Options{Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	dir := t.TempDir()
	relays := map[string]*relayProcess{}
	for _, name := range []string{"a", "b", "c"} {
		r := &relayProcess{dir: filepath.Join(dir, name), name: name, engine: c.ConnectionString()}
		r.start(t)
		defer func() { r.kill() }()
		relays[name] = r
	}
	var hooked, published sink
	run := func(relay *relayProcess, args ...string) string {
		t.Helper()
		out, err := relay.command(t, filepath.Join(dir, "a", rootTokenName), args...)
		if err != nil {
			t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
		}
		return out
	}
	recorded := make(chan error, 1) // has the outcome once all is recorded
	await := func(what string, holds func() bool) {
		t.Helper()
		for limit := time.Now().Add(patience); !holds(); time.Sleep(50 * time.Millisecond) {
			select {
			case err := <-recorded:
				if recorded <- err; err != nil {
					t.Fatal(err)
				}
			default:
			}
			if time.Now().After(limit) {
				for _, r := range relays {
					told, _ := os.ReadFile(r.out)
					t.Logf("relay %s: %s", r.name, told)
				}
				t.Fatalf("%s: not within %s", what, patience)
			}
		}
	}

	const poison = 150
	var healed atomic.Bool
	killed := make(chan struct{})
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return // a relay that was killed
		}
		n := numberOf(t, b)
		if n == poison && !healed.Load() {
			w.WriteHeader(http.StatusUnprocessableEntity)
			return
		}
		if n >= 2*poison { // so that it dies in the middle
			select {
			case <-killed:
			case <-r.Context().Done():
				return
			}
		}
		time.Sleep(2 * time.Millisecond)
		hooked.take(n)
	}))
	defer hook.Close()
	subject := subscribeNATS(t, func(b []byte) { published.take(numberOf(t, b)) })

	run(relays["b"], "subscriptions", "create", "hook", "--webhook", hook.URL, "--type", "ext.*")
	run(relays["c"], "subscriptions", "create", "subject", "--nats", subject, "--subject", "fleet.events", "--type", "ext.*")
	status := func(relay, name string) (s subscription) {
		t.Helper()
		if err := json.Unmarshal([]byte(run(relays[relay], "subscriptions", "show", name, "--json")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	await("a relay delivers both", func() bool { return status("a", "hook").Relay != "" && status("b", "subject").Relay != "" })
	first := status("c", "hook").Relay

	c.Misbehave(kurrentstub.Faults{Seed: 7, DropAfterWrite: 0.02, Reset: 0.02, Stall: 0.01, StallFor: 300 * time.Millisecond,
		NotLeader: 0.02, Early: 0.02, Unknown: 0.02, Lag: 0.02})
	const n = 1000
	others := slices.DeleteFunc([]string{"a", "b", "c"}, func(s string) bool { return s == first })
	ctx, stop := context.WithTimeout(t.Context(), 2*patience)
	defer stop()
	secret, err := os.ReadFile(filepath.Join(dir, "a", rootTokenName))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(secret))
	go func() {
		recorded <- func() error {
			for i := 0; i < n; i += 20 {
				var batch strings.Builder
				for k := i; k < i+20; k++ {
					fmt.Fprintf(&batch, `,{"specversion":"1.0","id":"e%d","source":"test","type":"ext.load","subject":"ext-load","data":{"n":%d}}`, k, k)
				}
				body := "[" + batch.String()[1:] + "]"
				for try := 0; ; try++ {
					status, answer, err := relays[others[try%2]].send(ctx, token, "POST", "/v1/events", "application/cloudevents-batch+json", uuid.NewSHA1(uuid.Nil, fmt.Append(nil, i)).String(), []byte(body))
					if err == nil && status < 300 {
						break
					}
					if ctx.Err() != nil || err == nil && status != http.StatusTooManyRequests {
						return fmt.Errorf("%d %s %v", status, answer, err)
					}
				}
			}
			return nil
		}()
	}()

	// The poison is parked, and then the relay that delivers is killed.
	await("the poison is parked", func() bool { return status(others[0], "hook").Parked == 1 })
	relays[first].kill()
	close(killed)
	before := hooked.count()
	second := first // by one answer: on this cluster another relay may lag, and tell of the one that was killed
	await("another relay delivers", func() bool {
		if hooked.count() > before+100 {
			second = status(others[1], "hook").Relay
		}
		return second != first && second != ""
	})
	third := others[0]
	if second == third {
		third = others[1]
	}
	if s := status(third, "hook"); s.Parked != 1 || len(s.PublicKeys) != 3 || s.PublicKey != s.PublicKeys[0] {
		t.Errorf("what was parked, and the keys, at the third relay: %+v", s)
	}
	if err := <-recorded; err != nil {
		t.Fatal(err)
	}
	await("all is delivered", func() bool {
		return status(third, "hook").Lag == 0 && status(third, "subject").Lag == 0
	})
	c.Misbehave(kurrentstub.Faults{})
	hooked.check(t, "the webhook", n, poison)
	published.check(t, "NATS", n)

	// The replay is asked for when nobody delivers, and who takes over does it.
	relays[first].start(t)
	relays[second].kill()
	healed.Store(true)
	run(relays[third], "subscriptions", "replay", "hook")
	await("what was parked is delivered", func() bool { return status(third, "hook").Parked == 0 })
	if s := status(first, "hook"); s.Relay == second || s.Delivered < n {
		t.Errorf("afterwards: %+v", s)
	}
	hooked.mu.Lock()
	if last := hooked.taken[len(hooked.taken)-1]; last != poison {
		t.Errorf("the last that was delivered is %d, not what was parked", last)
	}
	hooked.mu.Unlock()
	if got := run(relays[third], "audit", "--json"); !strings.Contains(got, `"ok":true`) {
		t.Error(got)
	}
}

// subscribeNATS starts a NATS server with a stream, and has f called with what is
// published to fleet.events.
func subscribeNATS(t *testing.T, f func([]byte)) (url string) {
	t.Helper()
	s, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("NATS does not start")
	}
	conn, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := conn.JetStream()
	if err != nil {
		t.Fatal(err)
	}
	// It keeps what comes again, so that the test sees it.
	if _, err := js.AddStream(&nats.StreamConfig{Name: "fleet", Subjects: []string{"fleet.events"}, Duplicates: 100 * time.Millisecond}); err != nil {
		t.Fatal(err)
	}
	if _, err := js.Subscribe("fleet.events", func(m *nats.Msg) { f(m.Data) }, nats.OrderedConsumer()); err != nil {
		t.Fatal(err)
	}
	return s.ClientURL()
}
