package agent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// answers is a relay that answers each request with the next of a list, and
// remembers what it was asked.
type answers struct {
	mu   sync.Mutex
	list []func(http.ResponseWriter)
	seen []*http.Request
}

func (s *answers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.seen = append(s.seen, r)
	answer := s.list[min(len(s.seen), len(s.list))-1]
	s.mu.Unlock()
	answer(w)
}

func (s *answers) keys() (keys []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.seen {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
	}
	return keys
}

func status(code int, body string) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "application/json")
		if code >= 400 {
			w.Header().Set("Content-Type", "application/problem+json")
		}
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, body)
	}
}

// cutOff breaks the connection before the answer.
func cutOff(http.ResponseWriter) { panic(http.ErrAbortHandler) }

func newTestClient(t *testing.T, list ...func(http.ResponseWriter)) (*Client, *answers) {
	t.Helper()
	s := &answers{list: list}
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	c, err := NewClient(server.URL+"/", "token")
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestRetries(t *testing.T) {
	busy := status(503, `{"code":"LOG_CLOSED"}`)
	gateway := status(502, `bad gateway`)
	limited := status(429, `{"code":"DENIALS_LIMITED","detail":"slowly","retry_after_s":60}`)
	ok := status(200, `{}`)
	for _, c := range []struct {
		name   string
		method string
		once   bool
		list   []func(http.ResponseWriter)
		tries  int
		status int // of the problem; 0 for none, -1 for no answer
	}{
		{"a POST is repeated after 503", "POST", false, []func(http.ResponseWriter){busy, busy, ok}, 3, 0},
		{"a POST is repeated after a lost answer", "POST", false, []func(http.ResponseWriter){cutOff, ok}, 2, 0},
		{"a POST is repeated after 502", "POST", false, []func(http.ResponseWriter){gateway, ok}, 2, 0},
		{"a POST is not repeated if it is to be tried once", "POST", true, []func(http.ResponseWriter){busy, ok}, 1, 503},
		{"a GET is repeated after 502", "GET", false, []func(http.ResponseWriter){gateway, ok}, 2, 0},
		{"a PATCH is repeated after 503, when nothing was done", "PATCH", false, []func(http.ResponseWriter){busy, ok}, 2, 0},
		{"a PATCH is not repeated after 502, when it may have been", "PATCH", false, []func(http.ResponseWriter){gateway, ok}, 1, 502},
		{"nor after a lost answer", "DELETE", false, []func(http.ResponseWriter){cutOff, ok}, 1, -1},
		{"a long Retry-After is the caller's", "POST", false, []func(http.ResponseWriter){limited, ok}, 1, 429},
		{"a refusal is an answer", "POST", false, []func(http.ResponseWriter){status(409, `{"code":"APPROVAL_ENDED"}`), ok}, 1, 409},
		{"tries are bounded", "GET", false, []func(http.ResponseWriter){busy}, maxTries, 503},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, s := newTestClient(t, c.list...)
			_, err := client.Do(t.Context(), Request{Method: c.method, Path: "/v1/x", Body: jsontext.Value(`{}`), Once: c.once})
			got := 0
			if p, ok := errors.AsType[*Problem](err); ok {
				got = p.Status
			} else if _, ok := errors.AsType[*UnreachableError](err); ok {
				got = -1
			} else if err != nil {
				t.Fatal(err)
			}
			keys := s.keys()
			if got != c.status || len(keys) != c.tries {
				t.Errorf("status %d after %d tries, want %d after %d", got, len(keys), c.status, c.tries)
			}
			if same := slices.Compact(keys); len(same) != 1 || (same[0] != "") != (c.method == "POST") {
				t.Errorf("idempotency keys %q: a POST has one, the same each time, and nothing else has", keys)
			}
		})
	}
}

func TestRetriesAreUnderTheContext(t *testing.T) {
	client, s := newTestClient(t, status(503, `{"code":"LOG_CLOSED","retry_after_s":5}`))
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	if _, err := client.Get(ctx, "/v1/x", nil); err == nil {
		t.Error("a relay that is never ready answered")
	}
	if d := time.Since(began); d > 3*time.Second || len(s.keys()) != 1 {
		t.Errorf("%d tries took %v", len(s.keys()), d)
	}
}

func TestProblem(t *testing.T) {
	client, _ := newTestClient(t, status(422, `{"type":"about:blank","title":"Unprocessable","status":422,"code":"INVALID","detail":"the command has values that cannot be",
		"problems":[{"path":"/targets/0","code":"UNKNOWN_MACHINE","detail":"no machine m9"}],"limit":7}`))
	_, err := client.Post(t.Context(), "/v1/tasks", struct{}{})
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		t.Fatalf("%v is no problem", err)
	}
	var limit int
	if p.Status != 422 || p.Code != "INVALID" || !p.Fact("limit", &limit) || limit != 7 {
		t.Errorf("read as %+v", p)
	}
	if got, want := p.Error(), "the command has values that cannot be: /targets/0 no machine m9"; got != want {
		t.Errorf("says %q, want %q", got, want)
	}
	if _, there := p.Facts["code"]; there {
		t.Error("the code counts as a fact")
	}
}

// A token goes to the address that was given and nowhere else.
func TestRedirectsAreNotFollowed(t *testing.T) {
	other := &answers{list: []func(http.ResponseWriter){status(200, `{}`)}}
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	client, _ := newTestClient(t, func(w http.ResponseWriter) {
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(307)
	})
	_, err := client.Get(t.Context(), "/v1/x", nil)
	if p, ok := errors.AsType[*Problem](err); !ok || p.Status != 307 {
		t.Errorf("answered %v", err)
	}
	if len(other.keys()) != 0 {
		t.Error("the redirect was followed")
	}
}

func TestNewClientRefuses(t *testing.T) {
	for _, c := range []struct{ base, token string }{
		{"127.0.0.1:7070", "t"}, {"ftp://127.0.0.1", "t"}, {"http://user@host", "t"}, {"", "t"},
		{"http://127.0.0.1:7070", "two\nlines"}, {"http://127.0.0.1:7070", "tökèn"},
	} {
		if _, err := NewClient(c.base, c.token); err == nil {
			t.Errorf("base %q, token %q: taken", c.base, c.token)
		}
	}
}

func TestSubscribeResumes(t *testing.T) {
	stream := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = fmt.Fprint(w, text)
		}
	}
	client, s := newTestClient(t,
		status(503, `{"code":"LOG_CLOSED"}`),
		stream(": alive\n\nid: 3\nevent: offer\ndata: a\ndata: b\n\nid: 4\ndata: cut o"),
		cutOff,
		stream("id:4\r\ndata:whole\r\n\r\n"),
		stream("id: 0\n\n"), // an id alone: the ones before are of another log
		status(403, `{"code":"ACTOR_NOT_ACTIVE","detail":"m1 is suspended"}`),
	)
	var got []string
	connected, lost := 0, 0
	err := client.Subscribe(t.Context(), Subscription{
		Path: "/v1/machines/m1/offers", Query: url.Values{"after": {"2"}},
		Connected: func() { connected++ },
		Lost:      func(error, time.Duration) { lost++ },
	}, func(e ServerEvent) error {
		got = append(got, e.ID+" "+e.Name+" "+string(e.Data))
		return nil
	})
	if p, ok := errors.AsType[*Problem](err); !ok || p.Code != "ACTOR_NOT_ACTIVE" {
		t.Errorf("ended with %v", err)
	}
	if want := []string{"3 offer a\nb", "4  whole"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	// The connection that was cut off may be repeated by net/http itself, unseen.
	if connected != 3 || lost < 4 || lost > 5 {
		t.Errorf("connected %d times, lost %d times", connected, lost)
	}
	var resumed []string
	for _, r := range s.seen {
		resumed = append(resumed, r.Header.Get("Last-Event-ID"))
		if r.URL.RawQuery != "after=2" || r.Header.Get("Accept") != "text/event-stream" {
			t.Errorf("asked %s for %s", r.URL, r.Header.Get("Accept"))
		}
	}
	if want := []string{"", "", "3", "3", "4", "0"}; !slices.Equal(resumed, want) {
		t.Errorf("resumed after %q, want %q", resumed, want)
	}
}

func TestSubscribeEndsWithItsReader(t *testing.T) {
	client, s := newTestClient(t, func(w http.ResponseWriter) { _, _ = fmt.Fprint(w, "data: x\n\ndata: y\n\n") })
	enough := errors.New("enough")
	n := 0
	err := client.Subscribe(t.Context(), Subscription{Path: "/s"}, func(ServerEvent) error { n++; return enough })
	if !errors.Is(err, enough) || n != 1 || len(s.keys()) != 1 {
		t.Errorf("%d events in %d connections, ended with %v", n, len(s.keys()), err)
	}
}

func TestReadEventsIsBounded(t *testing.T) {
	line := "data: " + strings.Repeat("x", 1<<20) + "\n"
	err := readEvents(strings.NewReader(strings.Repeat(line, 5)+"\n"), func() {}, func(string) {}, func(ServerEvent) error {
		t.Error("an event of 5 MiB was taken")
		return nil
	})
	if err == nil {
		t.Error("no error")
	}
}
