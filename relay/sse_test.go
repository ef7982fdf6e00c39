package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
)

// reader follows an event stream.
type reader struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Reader
	beat int // heartbeats seen
}

// sent is one event of a stream.
type sent struct {
	id, name string
	data     map[string]any
}

func (f *fleet) follow(as, path string, headers ...string) *reader {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 20*time.Second)
	f.t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, "GET", f.server.URL+path, nil)
	if err != nil {
		f.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.tokens[as])
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { resp.Body.Close() })
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" || resp.Header.Get("Ledger-Position") == "" {
		body, _ := io.ReadAll(resp.Body)
		f.t.Fatalf("GET %s: %d %v %s", path, resp.StatusCode, resp.Header, body)
	}
	return newReader(f.t, resp)
}

func newReader(t *testing.T, resp *http.Response) *reader {
	return &reader{t: t, resp: resp, in: bufio.NewReader(resp.Body)}
}

// next returns the next event; ok is false when the stream has ended.
func (r *reader) next() (e sent, ok bool) {
	r.t.Helper()
	for {
		line, err := r.in.ReadString('\n')
		if err != nil {
			return e, false
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "id":
			e.id = value
		case "event":
			e.name = value
		case "data":
			if err := json.Unmarshal([]byte(value), &e.data); err != nil {
				r.t.Fatalf("%s: %v", line, err)
			}
		case "":
			if value == "heartbeat" {
				r.beat++
			} else if e.data != nil {
				return e, true
			}
		}
	}
}

func (r *reader) want(id any, name string) sent {
	r.t.Helper()
	e, ok := r.next()
	if !ok || e.id != fmt.Sprint(id) || e.name != name {
		r.t.Fatalf("got %+v (%v), not the %s %v", e, ok, name, id)
	}
	return e
}

// ended fails the test unless the stream ends, after whatever it still sends.
func (r *reader) ended(within time.Duration) {
	r.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			if _, ok := r.next(); !ok {
				return
			}
		}
	}()
	select {
	case <-done:
	case <-time.After(within):
		r.resp.Body.Close()
		<-done
		r.t.Fatalf("the stream goes on after %v", within)
	}
}

func (f *fleet) ext(id string) answer {
	f.t.Helper()
	return f.do("ana", "POST", "/v1/events", fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/a","type":"ext.a","subject":"ext-a","data":{"n":1}}`, id)).want(201)
}

// batch appends n events at once; their ids start alike.
func (f *fleet) batch(id string, n int, data string) {
	f.t.Helper()
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf(`{"specversion":"1.0","id":"%s%d","source":"/a","type":"ext.a","subject":"ext-a","data":%s}`, id, i, data)
	}
	f.do("ana", "POST", "/v1/events", "["+strings.Join(list, ",")+"]").want(201)
}

func TestOffers(t *testing.T) {
	f := newFleet(t).people()
	first := f.submit("ana", "one", "m1")
	claimed := f.submit("ana", "gone", "m1")
	f.do("m1", "POST", "/v1/tasks/"+claimed+"/claim", `{"machine":"m1"}`).want(200)
	f.submit("di", "other", "m2")
	position := func(task string) any { // of the event that opened it
		return f.do("ana", "GET", "/v1/tasks/"+task+"/history", "").get("events.1.position")
	}
	r := f.follow("m1", "/v1/machines/m1/offers")
	e := r.want(position(first), "offer")
	if e.data["task_id"] != first || fmt.Sprint(e.data["argv"]) != "[one]" || e.data["machine"] != "m1" || fmt.Sprint(e.data["position"]) != e.id {
		t.Errorf("%v", e.data)
	}
	second := f.do("ana", "POST", "/v1/tasks", `{"argv":["two"],"targets":["m1"],"cwd":"w","env":{"A":"b"},"env_from":["HOME"],"timeout_s":5,"tags":["t"],"attempts":2}`).want(201).text("task_id")
	e = r.want(position(second), "offer")
	if got := fmt.Sprint(e.data["argv"], e.data["cwd"], e.data["env"], e.data["env_from"], e.data["timeout_s"], e.data["tags"], e.data["attempts"]); got != "[two]wmap[A:b] [HOME] 5 [t] 2" {
		t.Errorf("%s", got)
	}

	// Resumed, what was sent is not sent again; started anew, what is open is.
	resumed := f.follow("m1", "/v1/machines/m1/offers", "Last-Event-ID", fmt.Sprint(position(first)))
	resumed.want(position(second), "offer")
	f.do("m1", "POST", "/v1/tasks/"+first+"/claim", `{"machine":"m1"}`).want(200)
	anew := f.follow("m1", "/v1/machines/m1/offers")
	anew.want(position(second), "offer")

	// A leg that lapsed is offered again.
	f.do("m1", "POST", "/v1/tasks/"+second+"/claim", `{"machine":"m1"}`).want(200)
	f.skew.Add(int64(time.Minute))
	if err := f.ledger.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, x := range []*reader{r, resumed, anew} {
		if e, ok := x.next(); !ok || e.data["task_id"] != second || e.id == fmt.Sprint(position(second)) {
			t.Errorf("%+v %v", e, ok)
		}
	}
}

func TestEventStream(t *testing.T) {
	f := newFleet(t).people()
	head := f.ledger.Log().Durable()
	for i := range 6 { // more than a page
		f.batch(fmt.Sprint("e", i), 100, `{"n":1}`)
	}
	r := f.follow("bo", fmt.Sprintf("/v1/events/stream?after=%d", head))
	for i := range 600 {
		if e := r.want(int(head)+1+i, "event"); e.data["id"] != fmt.Sprintf("e%d%d", i/100, i%100) || fmt.Sprint(e.data["data"]) != "map[n:1]" {
			t.Fatalf("%v", e.data)
		}
	}
	f.ext("live")
	r.want(int(head)+601, "event")
	resumed := f.follow("bo", "/v1/events/stream?after=1", "Last-Event-ID", fmt.Sprint(int(head)+600))
	if e := resumed.want(int(head)+601, "event"); e.data["id"] != "live" || e.data["actor"] != "ana" || e.data["source"] != "/a" {
		t.Errorf("%v", e.data)
	}
	whole := f.follow("bo", "/v1/events/stream")
	whole.want(1, "event")
	whole.want(2, "event")
	few := f.follow("bo", "/v1/events/stream?type=actor.registered")
	few.want(2, "event")
	stream := f.follow("bo", "/v1/events/stream?stream=ext-a")
	stream.want(int(head)+1, "event")
	// Past the head nothing comes before it is reached.
	late := f.follow("bo", fmt.Sprintf("/v1/events/stream?after=%d", int(head)+602))
	f.ext("skipped")
	f.ext("seen")
	late.want(int(head)+603, "event")
}

// A stream says that it lives, ends within seconds when its reader may read no
// more, and takes nothing down with it.
func TestStreamsEndWithTheirReaders(t *testing.T) {
	f := newFleet(t).people()
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- f.relay.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	token := f.do("ana", "POST", "/v1/actors/ana/tokens", "").want(201)
	f.tokens["ana2"] = token.text("token")
	head := f.ledger.Log().Durable()
	events := fmt.Sprintf("/v1/events/stream?after=%d", head)
	revoked, suspended, descendant := f.follow("ana2", events), f.follow("bo", events), f.follow("bot", events)
	offers := f.follow("m1", "/v1/machines/m1/offers")
	staying := f.follow("cy", events)

	f.do("ana", "DELETE", "/v1/actors/ana/tokens/"+token.text("token_id"), "").want(200)
	revoked.ended(5 * time.Second)
	for _, id := range []string{"bo", "ana", "m1"} {
		f.do("root", "PATCH", "/v1/actors/"+id, `{"suspended":true}`).want(200)
	}
	suspended.ended(5 * time.Second)
	descendant.ended(5 * time.Second)
	offers.ended(5 * time.Second)
	staying.want(int(head)+1, "event")
}

func TestHeartbeats(t *testing.T) {
	f := newFleet(t, func(c *Config) { c.Heartbeat = 5 * time.Millisecond }).people()
	for _, c := range []struct{ as, path string }{{"m1", "/v1/machines/m1/offers"}, {"m2", "/v1/events/stream?after=9999"}} {
		r := f.follow(c.as, c.path)
		for r.beat < 3 {
			line, err := r.in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if line == ": heartbeat\n" {
				r.beat++
			}
		}
		// Without Run the heartbeat notices that the reader may read no more.
		f.do("root", "PATCH", "/v1/actors/"+c.as, `{"suspended":true}`).want(200)
		r.ended(5 * time.Second)
	}
}

// A stream that wants nothing of what is recorded is alive all the same.
func TestHeartbeatsBesideOtherEvents(t *testing.T) {
	f := newFleet(t, func(c *Config) { c.Heartbeat = 100 * time.Millisecond }).people()
	streams := []*reader{f.follow("bo", "/v1/events/stream?after=9&type=ext.never"), f.follow("bo", "/v1/events/stream?stream=ext-never"), f.follow("bo", "/v1/approvals/stream")}
	var beating sync.WaitGroup
	for _, r := range streams {
		beating.Go(func() {
			for range 2 {
				for line := ""; line != ": heartbeat\n"; {
					var err error
					if line, err = r.in.ReadString('\n'); err != nil {
						t.Errorf("no heartbeat: %v", err)
						return
					}
				}
			}
		})
	}
	all := make(chan struct{})
	go func() { beating.Wait(); close(all) }()
	for i := 0; ; i++ {
		select {
		case <-all:
			return
		default:
			f.ext(fmt.Sprint("other", i))
		}
	}
}

// A log that was restored from a backup may end before what its readers have seen: what
// is open there is sent all the same, and they resume by it from then on.
func TestResumeInAShorterLog(t *testing.T) {
	f := newFleet(t, func(c *Config) { c.PositionPatience = 50 * time.Millisecond }).people()
	task := f.submit("ana", "one", "m1")
	f.do("root", "POST", "/v1/rules", `{"action":"deploy.prod","min_level":50}`).want(201)
	approval := f.do("ana", "POST", "/v1/gates", `{"action":"deploy.prod","request_approval":true}`).want(200).text("approval_id")
	for _, c := range []struct{ as, path, name, member, want string }{
		{"m1", "/v1/machines/m1/offers", "offer", "task_id", task},
		{"bo", "/v1/approvals/stream", "requested", "approval_id", approval},
	} {
		r := f.follow(c.as, c.path, "Last-Event-ID", "9999")
		var lines []string
		for range 4 {
			line, err := r.in.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		if got := strings.Join(lines, ""); got != "retry: 1000\n\nid: 0\n\n" {
			t.Errorf("%s begins with %q", c.path, got)
		}
		if e, ok := r.next(); !ok || e.name != c.name || e.data[c.member] != c.want {
			t.Errorf("%s: %+v", c.path, e)
		}
	}
}

// After the last position that there could be, a stream waits for the next one.
func TestResumeAfterTheLastPosition(t *testing.T) {
	f := newFleet(t).people()
	for _, c := range []struct{ path, header string }{
		{"/v1/events/stream?after=18446744073709551615", ""}, {"/v1/events/stream", "18446744073709551615"}, {"/v1/approvals/stream", "18446744073709551615"},
	} {
		r := httptest.NewRequest("GET", c.path, nil)
		r.Header.Set("Last-Event-ID", c.header)
		after, err := (&call{Relay: f.relay, r: r, query: r.URL.Query()}).resumeAfter()
		if after+1 == 0 || err != nil {
			t.Errorf("%+v: waits for the event after %d, %v", c, after, err)
		}
	}
}

func TestDrain(t *testing.T) {
	f := newFleet(t).people()
	a, b := f.follow("m1", "/v1/machines/m1/offers"), f.follow("bo", "/v1/events/stream?after=9999")
	f.relay.Drain()
	a.ended(5 * time.Second)
	b.ended(5 * time.Second)
	f.do("bo", "GET", "/v1/events/stream", "").want(503, "DRAINING")
	f.do("", "GET", "/readyz", "").want(503, "DRAINING")
	f.do("bo", "GET", "/v1/events", "").want(200)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := f.server.Config.Shutdown(ctx); err != nil {
		t.Errorf("shutdown: %v", err)
	}
}

// A reader that takes nothing loses its stream; meanwhile everybody else is
// served.
func TestSlowReader(t *testing.T) {
	f := newFleet(t, func(c *Config) { c.StreamPatience = 100 * time.Millisecond }).people()
	for i := range 14 { // more than a connection holds
		f.batch(fmt.Sprint("e", i, "-"), 15, `"`+strings.Repeat("x", 60<<10)+`"`)
	}
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprintf(conn, "GET /v1/events/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n", f.tokens["bo"])
	open := func() int {
		f.relay.streams.mu.Lock()
		defer f.relay.streams.mu.Unlock()
		return len(f.relay.streams.open)
	}
	for deadline := time.Now().Add(5 * time.Second); open() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stream was not opened")
		}
	}
	fast := f.follow("cy", "/v1/events/stream?after=9999")
	f.ext("meanwhile")
	for deadline := time.Now().Add(5 * time.Second); open() > 1; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the stream of a reader that takes nothing stays open")
		}
	}
	f.relay.Drain()
	fast.ended(5 * time.Second)
}

// What expires and lapses is recorded while Run runs, of each fleet.
func TestRunSweeps(t *testing.T) {
	f := newFleet(t).people()
	task := f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202).text("task_id")
	f.skew.Add(int64(48 * time.Hour))
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	next := f.ledger.Log().Durable() + 1
	go func() { ran <- f.relay.Run(ctx) }()
	if err := f.ledger.Log().Wait(t.Context(), next); err != nil {
		t.Error(err)
	}
	f.do("ana", "GET", "/v1/tasks/"+task, "").want(200).has("status", "settled", "verdict", "refused")
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
}

// Trouble that lasts is told once.
func TestRunTellsOfTrouble(t *testing.T) {
	f := newFleet(t).people()
	f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202)
	f.skew.Add(int64(48 * time.Hour))
	if err := f.ledger.Log().Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- f.relay.Run(ctx) }()
	for deadline := time.Now().Add(5 * time.Second); f.logged.String() == ""; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing is told")
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Error(err)
	}
	f.expectLogged("the log is closed")
}
