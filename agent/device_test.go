package agent_test

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"fleetledger/agent"
	"fleetledger/commands"
	"fleetledger/events/devicekey"
	"fleetledger/projections/sqlview"
	"fleetledger/relay"
)

// code makes a pairing code for m1.
func (w *world) code() string {
	w.Helper()
	r, err := w.ledger.PairMachine(w.Context(), commands.Caller{Actor: "root"}, commands.PairMachine{ID: "m1"})
	if err != nil {
		w.Fatal(err)
	}
	return r.Secret
}

func (w *world) pair(base string) *agent.Client {
	w.Helper()
	d, err := agent.Pair(w.Context(), base, w.code(), w.state)
	if err != nil {
		w.Fatal(err)
	}
	c, err := agent.NewDeviceClient(base, d)
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// A paired agent works as one with a token does, its stream of offers included.
func TestPairedAgent(t *testing.T) {
	w := newWorld(t)
	if _, err := agent.LoadDevice(w.state); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("before it is paired: %v", err)
	}
	client := w.pair(w.server.URL)
	stop := w.agentAs(client)
	defer stop()
	w.verdict(w.submit("echo ran >> ran; exit 3"), "failed")
	if n := w.lines("ran"); n != 1 {
		t.Errorf("it ran %d times", n)
	}
	info, err := os.Stat(filepath.Join(w.state, "device.json"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", info.Mode(), err)
	}
	files, err := filepath.Glob(filepath.Join(w.state, "*.new*"))
	if err != nil || len(files) > 0 {
		t.Errorf("left: %v %v", files, err)
	}
}

// A redemption whose answer is lost is repeated, by this start and by the next.
func TestPairingIsRepeated(t *testing.T) {
	w := newWorld(t)
	code := w.code()
	lose := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		next.ServeHTTP(discard{http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})
	w.front.Store(&lose)
	ctx, cancel := context.WithCancel(t.Context())
	first := atomic.Bool{}
	stopAfterFirst := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if !first.Swap(true) {
			cancel()
		}
		lose(rw, r, next)
	})
	w.front.Store(&stopAfterFirst)
	if d, err := agent.Pair(ctx, w.server.URL, code, w.state); err == nil {
		t.Fatalf("paired as %s without an answer", d.Name)
	}
	w.front.Store(nil)
	d, err := agent.Pair(t.Context(), w.server.URL, code, w.state)
	if err != nil {
		t.Fatal(err)
	}
	again, err := agent.Pair(t.Context(), "http://127.0.0.1:1", code, w.state) // asks nobody
	if err != nil || again.Name != d.Name || !again.Key.Equal(d.Key) {
		t.Errorf("%v %v", again.Name, err)
	}
	if d.Machine() != "m1" {
		t.Errorf("it is %s", d.Machine())
	}
	// Another code pairs another device; a bad one changes nothing.
	if _, err := agent.Pair(t.Context(), w.server.URL, "default~m1~nothing", w.state); err == nil {
		t.Error("paired by a code that never was")
	}
	if kept, err := agent.LoadDevice(w.state); err != nil || kept.Name != d.Name {
		t.Errorf("%v %v", kept.Name, err)
	}
	other, err := agent.Pair(t.Context(), w.server.URL, w.code(), w.state)
	if err != nil || other.Name == d.Name {
		t.Errorf("%v %v", other.Name, err)
	}
}

// discard is an answer that nobody gets.
type discard struct{ h http.Header }

func (d discard) Header() http.Header         { return d.h }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// A relay that stands behind a proxy under a path of its own is signed for all the
// same, and the first request to a relay that has just started is signed twice, for its
// nonce, but for a device that paired with it since.
func TestDeviceBehindAProxy(t *testing.T) {
	w := newWorld(t)
	var requests atomic.Int64
	prefixed := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		requests.Add(1)
		if !strings.HasPrefix(r.URL.Path, "/fleet/ledger/") {
			http.NotFound(rw, r)
			return
		}
		http.StripPrefix("/fleet/ledger", next).ServeHTTP(rw, r)
	})
	w.front.Store(&prefixed)
	c := w.pair(w.server.URL + "/fleet/ledger/")
	if _, err := c.Get(t.Context(), agent.Path("v1", "actors", "m1"), nil); err != nil {
		t.Fatal(err)
	}
	if n := requests.Load(); n != 2 {
		t.Errorf("%d requests for a redemption and one read", n)
	}

	restarted := relay.New(map[string]*commands.Ledger{"default": w.ledger}, relay.Config{
		Views: map[string]*sqlview.View{"default": w.view}, Logger: slog.New(slog.DiscardHandler),
	})
	t.Cleanup(restarted.Drain)
	anew := front(func(rw http.ResponseWriter, r *http.Request, _ http.Handler) { prefixed(rw, r, restarted.Handler()) })
	w.front.Store(&anew)
	for i, want := range []int64{4, 5} {
		if _, err := c.Post(t.Context(), "/v1/gates", map[string]string{"action": "ext.x"}); err != nil {
			t.Error(err)
		}
		if n := requests.Load(); n != want {
			t.Errorf("request %d after a restart: %d in all, want %d: the nonce is asked for once, and kept", i+1, n, want)
		}
	}
}

// A signature that the relay has seen, because an answer was lost, is made anew.
func TestReplayedSignatureIsMadeAnew(t *testing.T) {
	w := newWorld(t)
	c := w.pair(w.server.URL)
	if _, err := c.Get(t.Context(), "/v1/rules", nil); err != nil {
		t.Fatal(err)
	}
	var seen atomic.Int64
	twice := front(func(rw http.ResponseWriter, r *http.Request, next http.Handler) {
		if seen.Add(1) == 1 {
			next.ServeHTTP(discard{http.Header{}}, r.Clone(r.Context())) // what a proxy that tries again does
		}
		next.ServeHTTP(rw, r)
	})
	w.front.Store(&twice)
	if _, err := c.Get(t.Context(), "/v1/rules", nil); err != nil {
		t.Error(err)
	}
	if seen.Load() != 2 {
		t.Errorf("%d requests", seen.Load())
	}
	if h := http.CanonicalHeaderKey("DPoP"); h != devicekey.Header {
		t.Errorf("the header is %s", h)
	}
}

// A machine whose clock is wrong signs by the relay's.
func TestDeviceWithAWrongClock(t *testing.T) {
	w := newWorld(t)
	w.ahead.Store(int64(3 * time.Hour))
	c := w.pair(w.server.URL)
	for range 3 {
		if _, err := c.Get(t.Context(), "/v1/rules", nil); err != nil {
			t.Fatal(err)
		}
	}
	w.ahead.Store(int64(4 * time.Hour)) // set right, or wrong, while both run
	if _, err := c.Post(t.Context(), "/v1/gates", map[string]string{"action": "ext.x"}); err != nil {
		t.Fatal(err)
	}
}
