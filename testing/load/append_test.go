package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if mode := os.Getenv(modeVariable); mode != "" {
		os.Exit(play(mode))
	}
	// Pebble leaves this one behind when a database cannot be opened.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/cockroachdb/pebble/v2/vfs.(*diskHealthCheckingFS).startTickerLocked.func1"))
}

// ledger is a server that counts what it is sent, and can be made to lie.
type ledger struct {
	mu     sync.Mutex
	last   uint64
	bodies [][]byte
	ids    map[string]bool

	// answer, unless nil, replaces the answer to a POST whose events got the
	// positions first to last.
	answer func(w http.ResponseWriter, first, last uint64)
}

func (l *ledger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Authorization") != "Bearer secret" {
		http.Error(w, "no token", http.StatusUnauthorized)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if r.Method == "GET" {
		w.Header().Set("Ledger-Position", fmt.Sprint(l.last))
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client is gone
	}
	var list []event
	if r.Header.Get("Content-Type") == "application/cloudevents+json" {
		list = make([]event, 1)
		err = json.Unmarshal(body, &list[0])
	} else {
		err = json.Unmarshal(body, &list)
	}
	first := l.last + 1
	var receipts []string
	for _, e := range list {
		if err != nil || e.check() != nil || len(e.ID) != 36 || l.ids[e.ID] {
			http.Error(w, "not a new event: "+string(body), http.StatusBadRequest)
			return
		}
		l.ids[e.ID] = true
		l.last++
		receipts = append(receipts, fmt.Sprintf(`{"position":%d}`, l.last))
	}
	l.bodies = append(l.bodies, body)
	if l.answer != nil {
		l.answer(w, first, l.last)
		return
	}
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"receipts":[%s]}`, strings.Join(receipts, ","))
}

func serve(t *testing.T, h http.Handler) Target {
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return Target{Addr: srv.Listener.Addr().String(), Token: "secret"}
}

func TestAppend(t *testing.T) {
	for _, o := range []Options{
		{Clients: 1, Batch: 1, Warmup: 10 * time.Millisecond, Duration: 100 * time.Millisecond},
		{Clients: 4, Batch: 1, Duration: 100 * time.Millisecond},
		{Clients: 4, Batch: 200, Duration: 100 * time.Millisecond}, // answered in chunks
	} {
		t.Run(fmt.Sprintf("%d clients, %d a request", o.Clients, o.Batch), func(t *testing.T) {
			l := &ledger{last: 7, ids: map[string]bool{}}
			r, err := Append(t.Context(), serve(t, l), o)
			if err != nil {
				t.Fatal(err)
			}
			if want := int(l.last - 7); r.Acknowledged != want || want == 0 {
				t.Errorf("%d events acknowledged, the server recorded %d", r.Acknowledged, want)
			}
			if r.Requests < o.Clients || r.Requests*o.Batch > r.Acknowledged || r.PerSecond <= 0 || r.PerSecond > float64(r.Requests*o.Batch)/0.1 {
				t.Errorf("%d requests, %v events/s of %d acknowledged", r.Requests, r.PerSecond, r.Acknowledged)
			}
			if r.P50ms <= 0 || r.P99ms < r.P50ms {
				t.Errorf("p50 %v ms, p99 %v ms", r.P50ms, r.P99ms)
			}
			streams := map[string]bool{}
			for _, body := range l.bodies {
				if want := EventBytes*o.Batch + min(1, o.Batch-1)*(o.Batch+1); len(body) != want {
					t.Fatalf("a request of %d bytes, want %d: %s", len(body), want, body)
				}
				for i := range o.Batch {
					raw := body
					if o.Batch > 1 {
						raw = body[1+i*(EventBytes+1):][:EventBytes]
					}
					var e event
					if err := json.Unmarshal(raw, &e); err != nil {
						t.Fatal(err)
					}
					streams[e.Subject] = true
				}
			}
			if len(streams) != o.Clients {
				t.Errorf("%d clients appended to %d streams", o.Clients, len(streams))
			}
		})
	}
}

// Whatever a server does wrong ends the measurement with an error that says so.
func TestAppendRefusesWrongAnswers(t *testing.T) {
	created := func(body string, args ...any) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusCreated)
			fmt.Fprintf(w, body, args...)
		}
	}
	for _, c := range []struct {
		name, want string
		answer     func(w http.ResponseWriter, first, last uint64)
	}{
		{"an error", "answered 429: slow down", func(w http.ResponseWriter, _, _ uint64) {
			http.Error(w, "slow down", http.StatusTooManyRequests)
		}},
		{"another success", "answered 202", func(w http.ResponseWriter, _, _ uint64) {
			w.WriteHeader(http.StatusAccepted)
		}},
		{"no receipt", "0 positions for 1 events", func(w http.ResponseWriter, _, _ uint64) {
			created(`{"receipt":null}`)(w)
		}},
		{"a position that is no number", "a receipt's position", func(w http.ResponseWriter, _, _ uint64) {
			created(`{"receipt":{"position":"7"}}`)(w)
		}},
		{"a position twice", "position 1 was acknowledged twice", func(w http.ResponseWriter, _, _ uint64) {
			created(`{"receipt":{"position":1}}`)(w)
		}},
		{"a position past the head", "the log went from 0 to", func(w http.ResponseWriter, first, _ uint64) {
			created(`{"receipt":{"position":%d}}`, first+1)(w)
		}},
		{"closes the connection", "EOF", func(w http.ResponseWriter, _, _ uint64) {
			panic(http.ErrAbortHandler)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := &ledger{ids: map[string]bool{}, answer: c.answer}
			_, err := Append(t.Context(), serve(t, l), Options{Clients: 2, Batch: 1, Duration: 30 * time.Millisecond})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
		})
	}
}

func TestAppendSeesWhatWasNotAcknowledged(t *testing.T) {
	l := &ledger{ids: map[string]bool{}}
	l.answer = func(w http.ResponseWriter, first, _ uint64) {
		l.last++ // the log grows by an event of somebody else
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"receipt":{"position":%d}}`, first)
	}
	_, err := Append(t.Context(), serve(t, l), Options{Clients: 1, Batch: 1, Duration: 30 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "but the log grew by") {
		t.Errorf("got %v, want that more was recorded than acknowledged", err)
	}
}

func TestAppendNeedsTheToken(t *testing.T) {
	target := serve(t, &ledger{ids: map[string]bool{}})
	target.Token = ""
	_, err := Append(t.Context(), target, Options{Clients: 1, Batch: 1, Duration: time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "answered 401") {
		t.Errorf("got %v, want 401", err)
	}
}

func TestAppendEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := &ledger{ids: map[string]bool{}}
	l.answer = func(w http.ResponseWriter, first, _ uint64) {
		if first > 100 {
			cancel()
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"receipt":{"position":%d}}`, first)
	}
	_, err := Append(ctx, serve(t, l), Options{Clients: 4, Batch: 1, Duration: time.Hour})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}

func TestAppendRefusesOptions(t *testing.T) {
	for _, o := range []Options{
		{Clients: 0, Batch: 1, Duration: 1},
		{Clients: 1, Batch: 0, Duration: 1},
		{Clients: 1, Batch: 1001, Duration: 1},
		{Clients: 1, Batch: 1},
	} {
		if _, err := Append(t.Context(), Target{}, o); err == nil || !strings.Contains(err.Error(), "are needed") {
			t.Errorf("%+v: got %v", o, err)
		}
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]time.Duration, 100)
	for i := range hundred {
		hundred[i] = time.Duration(i + 1)
	}
	for _, c := range []struct {
		sorted []time.Duration
		p      int
		want   time.Duration
	}{
		{hundred, 50, 50}, {hundred, 99, 99}, {hundred[:1], 99, 1}, {hundred[:2], 50, 1}, {hundred[:2], 51, 2}, {hundred[:10], 99, 10},
	} {
		if got := percentile(c.sorted, c.p); got != c.want {
			t.Errorf("p%d of %d values is %v, want %v", c.p, len(c.sorted), got, c.want)
		}
	}
}

func TestMedian(t *testing.T) {
	round := func(product, reference float64) Round {
		return Round{Product: Result{PerSecond: product, P99ms: product}, Reference: Result{PerSecond: reference, P99ms: reference}}
	}
	// The ratio of the medians would be 20/40.
	c := Comparison{Rounds: []Round{round(30, 40), round(20, 100), round(10, 10)}}
	if got := c.Median(Round.Ratio); got != 0.75 {
		t.Errorf("median ratio %v of 0.75, 0.2 and 1", got)
	}
	c.Rounds = c.Rounds[:2]
	if got := c.Median(func(r Round) float64 { return r.Product.PerSecond }); got != 25 {
		t.Errorf("median %v of 30 and 20", got)
	}
}

func TestSyncLatency(t *testing.T) {
	dir := t.TempDir()
	d, err := SyncLatency(dir)
	if err != nil || d <= 0 {
		t.Errorf("got %v, %v", d, err)
	}
	if _, err := SyncLatency(dir + "/missing"); err == nil {
		t.Error("a directory that is not there was measured")
	}
}
