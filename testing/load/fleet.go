package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http/httputil"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"
)

// Fleet is a number of simulated agents of one server: each a machine with a
// token and an open stream of its offers (Server-Sent Events). They claim and
// report over connections that they share, so that ten thousand of them need
// little more than ten thousand files.
type Fleet struct {
	target Target
	agents []*fleetAgent
	conns  chan *conn // for requests; as many as are ever under way at once

	cancel context.CancelCauseFunc
	ctx    context.Context
	all    sync.WaitGroup
}

// fleetAgent is one of them.
type fleetAgent struct {
	machine string
	token   string
	stream  *conn

	mu       sync.Mutex
	received []receivedOffer // guarded by mu
	// settle is true while the agent answers offers by a claim and a report.
	settle atomic.Bool
	// settled has one slot: it is told when a task was reported.
	settled chan struct{}
}

type receivedOffer struct {
	task string
	at   time.Time
}

const (
	// fleetConns bounds the requests of a fleet under way at once.
	fleetConns = 64
	// MaxFan is how many machines a task of the offers phase names at most.
	MaxFan = 50
)

// NewFleet registers n machines with the server at t, whose token is root's; with
// no token (the reference) they are just named. No stream is open yet.
func NewFleet(ctx context.Context, t Target, n int) (*Fleet, error) {
	f := &Fleet{target: t, conns: make(chan *conn, fleetConns)}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	for i := range n {
		f.agents = append(f.agents, &fleetAgent{machine: fmt.Sprintf("bench-%d", i+1), settled: make(chan struct{}, 1)})
	}
	if err := f.Dial(t.Addr); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if t.Token == "" {
		return f, nil
	}
	if err := f.each(f.register); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Dial lets the fleet talk to the server at addr, which may have been started
// anew.
func (f *Fleet) Dial(addr string) error {
	f.target.Addr = addr
	for len(f.conns) > 0 {
		(<-f.conns).close()
	}
	for range fleetConns {
		c, err := dial(f.ctx, f.target)
		if err != nil {
			return err
		}
		f.conns <- c
	}
	return nil
}

// Close ends the streams and connections. Nothing of the fleet may be running but
// its streams.
func (f *Fleet) Close() error {
	f.cancel(errFleetClosed)
	f.all.Wait()
	for len(f.conns) > 0 {
		(<-f.conns).close()
	}
	return nil
}

var errFleetClosed = errors.New("the fleet is closed")

// each calls do for every agent, as many at a time as there are connections.
func (f *Fleet) each(do func(*fleetAgent) error) error {
	next := make(chan *fleetAgent)
	var workers sync.WaitGroup
	for range min(fleetConns, len(f.agents)) {
		workers.Go(func() {
			for a := range next {
				if err := do(a); err != nil {
					f.cancel(fmt.Errorf("%s: %w", a.machine, err))
				}
			}
		})
	}
	for _, a := range f.agents {
		if f.ctx.Err() != nil {
			break
		}
		next <- a
	}
	close(next)
	workers.Wait()
	return context.Cause(f.ctx)
}

// post makes a request over one of the shared connections and decodes what it is
// answered with, which must have the status.
func (f *Fleet) post(token, path, body string, status int, into any) (time.Time, error) {
	var c *conn
	select {
	case c = <-f.conns:
	case <-f.ctx.Done():
		return time.Time{}, context.Cause(f.ctx)
	}
	defer func() { f.conns <- c }()
	if err := c.net.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return time.Time{}, err
	}
	b := append(make([]byte, 0, 512+len(body)), "POST "+path+" HTTP/1.1\r\nHost: "+f.target.Addr+"\r\nContent-Type: application/json\r\n"...)
	b = Target{Token: token}.appendToken(b)
	b = fmt.Appendf(b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	a, err := c.exchange(b)
	answered := time.Now()
	switch {
	case err != nil:
		return answered, fmt.Errorf("POST %s: %w", path, err)
	case a.status != status:
		return answered, fmt.Errorf("POST %s answered %d, not %d: %s", path, a.status, status, a.body)
	case into == nil:
		return answered, nil
	}
	if err := json.Unmarshal(a.body, into); err != nil {
		return answered, fmt.Errorf("the answer to POST %s: %w", path, err)
	}
	return answered, nil
}

func (f *Fleet) register(a *fleetAgent) error {
	var reply struct {
		Token string `json:"token"`
	}
	_, err := f.post(f.target.Token, "/v1/actors", fmt.Sprintf(`{"id":%q,"kind":"machine","authority_level":10,"scopes":[]}`, a.machine), 201, &reply)
	a.token = reply.Token
	return err
}

// Connect opens every agent's stream of offers and returns when all stand.
func (f *Fleet) Connect() error { return f.each(f.connect) }

func (f *Fleet) connect(a *fleetAgent) error {
	var err error
	if a.stream, err = dial(f.ctx, f.target); err != nil {
		return err
	}
	a.stream.in = bufio.NewReaderSize(a.stream.net, 1<<10)
	b := append([]byte{}, "GET /v1/machines/"+a.machine+"/offers HTTP/1.1\r\nHost: "+f.target.Addr+"\r\nAccept: text/event-stream\r\n"...)
	b = append(Target{Token: a.token}.appendToken(b), "\r\n"...)
	if err := a.stream.net.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return err
	}
	if _, err := a.stream.net.Write(b); err != nil {
		return err
	}
	line, err := a.stream.line()
	if err != nil || !bytes.HasPrefix(line, []byte("HTTP/1.1 200")) {
		return errors.Join(err, fmt.Errorf("the stream of offers was answered with %q", line))
	}
	for len(line) > 0 {
		if line, err = a.stream.line(); err != nil {
			return err
		}
	}
	if err := a.stream.net.SetDeadline(time.Time{}); err != nil {
		return err
	}
	stop := context.AfterFunc(f.ctx, a.stream.close)
	f.all.Go(func() {
		defer stop()
		defer a.stream.close()
		// Once the fleet is closed this is its end, not a failure.
		f.cancel(fmt.Errorf("the offers of %s: %w", a.machine, f.follow(a)))
	})
	return nil
}

var taskIDName = []byte(`"task_id":"`)

// follow reads a's offers until its stream ends, and tells why it did.
func (f *Fleet) follow(a *fleetAgent) error {
	lines := bufio.NewReaderSize(httputil.NewChunkedReader(a.stream.in), 1<<10)
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return err
		}
		_, rest, found := bytes.Cut(line, taskIDName)
		if !found || !bytes.HasPrefix(line, []byte("data:")) {
			continue
		}
		received := receivedOffer{at: time.Now()}
		id, _, found := bytes.Cut(rest, []byte{'"'})
		if !found {
			return fmt.Errorf("an offer without an end: %q", line)
		}
		received.task = string(id)
		a.mu.Lock()
		a.received = append(a.received, received)
		a.mu.Unlock()
		if a.settle.Load() {
			if err := f.work(a, received.task); err != nil {
				return err
			}
			a.settled <- struct{}{}
		}
	}
}

// work is an agent's part of a task: claim and report.
func (f *Fleet) work(a *fleetAgent, task string) error {
	if _, err := f.post(a.token, "/v1/tasks/"+task+"/claim", fmt.Sprintf(`{"machine":%q}`, a.machine), 200, nil); err != nil {
		return err
	}
	now := time.Now().UTC().Format(time.RFC3339)
	_, err := f.post(a.token, "/v1/tasks/"+task+"/attempts/1/report", fmt.Sprintf(
		`{"envelope":{"outcome":"exited","exit_code":0,"started_at":%q,"ended_at":%q,"elapsed_ms":1,"machine":%q,"stdout":{"bytes":3,"sha256":%q,"tail":"ok\n"}}}`,
		now, now, a.machine, sha256OfOK), 200, nil)
	return err
}

const sha256OfOK = "dc51b8c96c2d745df3bd5590d990230a482fd247123599548e0632fdbf97fc22"

func (f *Fleet) submit(agents []*fleetAgent) (task string, answered time.Time, err error) {
	names := make([]string, len(agents))
	for i, a := range agents {
		names[i] = `"` + a.machine + `"`
	}
	mode := "single"
	if len(agents) > 1 {
		mode = "replicate"
	}
	var reply struct {
		TaskID string `json:"task_id"`
	}
	body := fmt.Sprintf(`{"argv":["echo","ok"],"targets":[%s],"mode":%q}`, strings.Join(names, ","), mode)
	answered, err = f.post(f.target.Token, "/v1/tasks", body, 201, &reply)
	return reply.TaskID, answered, err
}

// Latencies sums up durations.
type Latencies struct {
	Count int     `json:"count"`
	P50ms float64 `json:"p50_ms"`
	P99ms float64 `json:"p99_ms"`
	MaxMS float64 `json:"max_ms"`
}

// Summarize sorts the list and sums it up; of nothing all is 0.
func Summarize(list []time.Duration) Latencies {
	if len(list) == 0 {
		return Latencies{}
	}
	slices.Sort(list)
	return Latencies{len(list), milliseconds(percentile(list, 50)), milliseconds(percentile(list, 99)), milliseconds(list[len(list)-1])}
}

// Settled is what a settling fleet reached.
type Settled struct {
	PerSecond float64 `json:"tasks_per_s"`
	// Latencies are from a task's submission until its agent reported it.
	Latencies
}

// Settle has tasks for one agent each submitted, offered, claimed and reported,
// as fast as they are, inFlight at a time, each for an agent that has none. It
// counts from the end of the warm-up on.
func (f *Fleet) Settle(inFlight int, warmup, duration time.Duration) (Settled, error) {
	for _, a := range f.agents {
		a.settle.Store(true)
		defer a.settle.Store(false)
	}
	free := make(chan *fleetAgent, len(f.agents))
	for _, a := range f.agents {
		free <- a
	}
	counts := time.Now().Add(warmup)
	ends := counts.Add(duration)
	var mu sync.Mutex
	var took []time.Duration
	var last time.Time
	var all sync.WaitGroup
	for range min(inFlight, len(f.agents)) {
		all.Go(func() {
			for {
				begun := time.Now()
				if begun.After(ends) || f.ctx.Err() != nil {
					return
				}
				a := <-free
				if _, _, err := f.submit([]*fleetAgent{a}); err != nil {
					f.cancel(err)
					return
				}
				select {
				case <-a.settled:
				case <-f.ctx.Done():
					return
				case <-time.After(answerTimeout):
					f.cancel(fmt.Errorf("the task of %s was not settled within %v", a.machine, answerTimeout))
					return
				}
				now := time.Now()
				free <- a
				if begun.Before(counts) {
					continue
				}
				mu.Lock()
				took = append(took, now.Sub(begun))
				last = now
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if err := context.Cause(f.ctx); err != nil {
		return Settled{}, err
	}
	if len(took) == 0 {
		return Settled{}, fmt.Errorf("no task was settled in %v", duration)
	}
	return Settled{float64(len(took)) / last.Sub(counts).Seconds(), Summarize(took)}, nil
}

// Offers has tasks submitted so that each agent is made one offer a second, spread
// evenly, and returns how long after a task's acknowledgement its offers arrived.
// One that arrived before the acknowledgement did counts as 0. With more than 50
// agents a task names several of them, up to MaxFan. The offers are not taken.
func (f *Fleet) Offers(duration time.Duration) (Latencies, error) {
	for _, a := range f.agents {
		a.mu.Lock()
		a.received = nil
		a.mu.Unlock()
	}
	fan := min(max(1, len(f.agents)/50), MaxFan)
	every := time.Second * time.Duration(fan) / time.Duration(len(f.agents))
	tasks := max(1, int(duration/every))
	var mu sync.Mutex
	acked := map[string]time.Time{}
	var all sync.WaitGroup
	begun := time.Now()
	offers := 0
	for i := 0; i < tasks && f.ctx.Err() == nil; i++ {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * every)))
		from := i * fan % len(f.agents)
		agents := f.agents[from:min(from+fan, len(f.agents))]
		offers += len(agents)
		all.Go(func() {
			id, at, err := f.submit(agents)
			if err != nil {
				f.cancel(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			acked[id] = at
		})
	}
	all.Wait()
	if err := f.arrived(offers); err != nil {
		return Latencies{}, err
	}
	var took []time.Duration
	for _, a := range f.agents {
		a.mu.Lock()
		seen := map[string]bool{}
		for _, r := range a.received {
			at, ok := acked[r.task]
			if !ok || seen[r.task] {
				a.mu.Unlock()
				return Latencies{}, fmt.Errorf("%s was offered task %s, which was not its, or twice", a.machine, r.task)
			}
			seen[r.task] = true
			took = append(took, max(0, r.at.Sub(at)))
		}
		a.mu.Unlock()
	}
	return Summarize(took), nil
}

// arrived waits until as many offers were received.
func (f *Fleet) arrived(want int) error {
	limit := time.Now().Add(answerTimeout)
	for {
		n := 0
		for _, a := range f.agents {
			a.mu.Lock()
			n += len(a.received)
			a.mu.Unlock()
		}
		switch {
		case n == want:
			return context.Cause(f.ctx)
		case f.ctx.Err() != nil:
			return context.Cause(f.ctx)
		case n > want || time.Now().After(limit):
			return fmt.Errorf("%d offers were made, %d arrived", want, n)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
