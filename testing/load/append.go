package load

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Options say what is measured.
type Options struct {
	// Clients is how many connections append at the same time, each into a
	// stream of its own.
	Clients int
	// Batch is the number of events in a request, 1 to 1000.
	Batch int
	// Warmup is how long the clients append before it counts.
	Warmup time.Duration
	// Duration is how long it counts.
	Duration time.Duration
}

// Result is what one measurement found.
type Result struct {
	// Acknowledged is how many events were, warm-up included: all of them are in the
	// log.
	Acknowledged int `json:"acknowledged"`
	// Requests were made while it counted; rate and latencies are theirs.
	Requests  int     `json:"requests"`
	PerSecond float64 `json:"events_per_s"`
	P50ms     float64 `json:"p50_ms"`
	P99ms     float64 `json:"p99_ms"`
	// CPUMicros is the processor time that the server took for each event, user and
	// system, warm-up included; 0 where the system does not tell. Whoever measures sets
	// it, who knows the process.
	CPUMicros float64 `json:"cpu_us_per_event,omitzero"`
}

// answerTimeout is how long an answer may take before the measurement fails.
const answerTimeout = 30 * time.Second

// Append measures durable appends to t. It fails if any answer is not the one
// expected, or if the log did not grow by what was acknowledged, but for an event of
// the server's own now and then: nothing else may append to it meanwhile.
func Append(ctx context.Context, t Target, o Options) (Result, error) {
	if o.Clients < 1 || o.Batch < 1 || o.Batch > 1000 || o.Duration <= 0 {
		return Result{}, fmt.Errorf("%d clients, %d events a request, %v: at least one client, 1 to 1000 events and some time are needed", o.Clients, o.Batch, o.Duration)
	}
	before, err := readPosition(ctx, t)
	if err != nil {
		return Result{}, err
	}
	clients, took, err := measure(ctx, t, o, before)
	if err != nil {
		return Result{}, err
	}
	after, err := readPosition(ctx, t)
	if err != nil {
		return Result{}, err
	}
	var positions []uint64
	var latencies []time.Duration
	for _, c := range clients {
		positions = append(positions, c.positions...)
		latencies = append(latencies, c.latencies...)
	}
	if err := checkPositions(positions, before, after); err != nil {
		return Result{}, err
	}
	slices.Sort(latencies)
	return Result{
		Acknowledged: len(positions),
		Requests:     len(latencies),
		PerSecond:    float64(len(latencies)*o.Batch) / took.Seconds(),
		P50ms:        milliseconds(percentile(latencies, 50)),
		P99ms:        milliseconds(percentile(latencies, 99)),
	}, nil
}

// client is one of them, and what it saw.
type client struct {
	conn      *conn
	requests  *requests
	positions []uint64        // of every acknowledged event
	latencies []time.Duration // of the requests of this phase
}

// measure has all clients append for the warm-up, and then for what counts. It
// returns how long the latter took: until the last answer. The events are numbered
// from the log's length on, so that none has the id of one that is there.
func measure(ctx context.Context, t Target, o Options, length uint64) (clients []*client, took time.Duration, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var seq atomic.Uint64
	seq.Store(length)
	for i := range o.Clients {
		c, err := dial(ctx, t)
		if err != nil {
			return nil, 0, err
		}
		defer c.close()
		// A client that waits for an answer is woken when another has failed.
		defer context.AfterFunc(ctx, c.close)()
		clients = append(clients, &client{conn: c, requests: newRequests(t, i, o.Batch, &seq)})
	}
	phase := func(d time.Duration) time.Duration {
		begun := time.Now()
		var all sync.WaitGroup
		for i, c := range clients {
			all.Go(func() {
				if err := c.run(begun.Add(d)); err != nil {
					cancel(fmt.Errorf("client %d: %w", i, err))
				}
			})
		}
		all.Wait()
		return time.Since(begun)
	}
	if o.Warmup > 0 {
		phase(o.Warmup)
		for _, c := range clients {
			c.latencies = c.latencies[:0]
		}
	}
	if ctx.Err() == nil {
		took = phase(o.Duration)
	}
	return clients, took, context.Cause(ctx)
}

// run makes requests until ends, at least one. The last is waited for: left out,
// the slow ones would be missing from what is measured.
func (c *client) run(ends time.Time) error {
	if err := c.conn.net.SetDeadline(ends.Add(answerTimeout)); err != nil {
		return err
	}
	batch := len(c.requests.ids)
	for begun, more := time.Now(), true; more; {
		a, err := c.conn.exchange(c.requests.next())
		if err != nil {
			return err
		}
		answered := time.Now()
		if a.status != 201 {
			return fmt.Errorf("POST /v1/events answered %d: %s", a.status, a.body)
		}
		had := len(c.positions)
		if c.positions, err = appendPositions(c.positions, a.body); err != nil {
			return err
		}
		if n := len(c.positions) - had; n != batch {
			return fmt.Errorf("POST /v1/events answered with %d positions for %d events: %s", n, batch, a.body)
		}
		c.latencies = append(c.latencies, answered.Sub(begun))
		begun, more = answered, answered.Before(ends)
	}
	return nil
}

var positionName = []byte(`"position":`)

// appendPositions appends the positions of the receipts in body.
func appendPositions(list []uint64, body []byte) ([]uint64, error) {
	for {
		_, rest, found := bytes.Cut(body, positionName)
		if !found {
			return list, nil
		}
		n := 0
		for n < len(rest) && rest[n] >= '0' && rest[n] <= '9' {
			n++
		}
		p, err := strconv.ParseUint(string(rest[:n]), 10, 64)
		if err != nil {
			return list, fmt.Errorf("a receipt's position: %w", err)
		}
		list = append(list, p)
		body = rest[n:]
	}
}

// ownEvery is after how many events the server may at most record one of its own: a
// root over the heads of its streams.
const ownEvery = 5000

// checkPositions reports what is wrong if a log that grew from position before to
// after did not take exactly these.
func checkPositions(positions []uint64, before, after uint64) error {
	slices.Sort(positions)
	for i, p := range positions {
		switch {
		case i > 0 && p == positions[i-1]:
			return fmt.Errorf("position %d was acknowledged twice", p)
		case p <= before || p > after:
			return fmt.Errorf("position %d was acknowledged, but the log went from %d to %d", p, before, after)
		}
	}
	grew, n := after-before, uint64(len(positions))
	if grew < n || grew-n > 1+grew/ownEvery {
		return fmt.Errorf("%d events were acknowledged, but the log grew by %d, from %d to %d", len(positions), grew, before, after)
	}
	return nil
}

// percentile is the smallest value that p of 100 are not above.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		panic("bug: percentile of nothing")
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// growBatch is how many events Grow sends at once.
const growBatch = 1000

// Grow appends events, many at a time, until the log has at least size of them.
func Grow(ctx context.Context, t Target, size int) error {
	for {
		at, err := readPosition(ctx, t)
		if err != nil {
			return err
		}
		missing := size - int(at)
		if missing <= 0 {
			return nil
		}
		o := Options{Clients: 4, Batch: min(growBatch, max(1, missing/4)), Duration: time.Millisecond}
		if missing > 100*growBatch {
			o.Duration = time.Second
		}
		if _, err := Append(ctx, t, o); err != nil {
			return err
		}
	}
}
