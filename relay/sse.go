package relay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// stream is one open event stream (Server-Sent Events). Its ids are positions, so
// that a reader resumes by Last-Event-ID.
type stream struct {
	*call
	// ends is done when the stream is to end, whoever wants it to.
	ends context.Context
	end  context.CancelCauseFunc
	rc   *http.ResponseController
	buf  []byte    // what is to be sent
	sent time.Time // when something last was
}

var (
	errDraining = &problem{status: http.StatusServiceUnavailable, code: "DRAINING",
		detail: "the relay is stopping and opens no more streams", facts: facts{"retry_after_s": 2}}
	errStale = errors.New("the token is not in force any more, or its actor not active")
)

// follow registers an event stream. open judges the request and returns what
// runs the stream from a position on; until then errors are answered as usual.
func follow(s *Relay, op operation, open func(*call, events.Position) (func(*stream) error, error)) {
	op.media = []string{"text/event-stream"}
	s.handle(&op, func(c *call) error {
		after, err := c.resumeAfter()
		if err != nil {
			return err
		}
		run, err := open(c, after)
		if err != nil {
			return err
		}
		return c.stream(run)
	})
}

// resumeAfter is the position that the stream goes on after.
func (c *call) resumeAfter() (events.Position, error) {
	last := c.r.Header["Last-Event-Id"]
	if len(last) == 0 || len(last) == 1 && last[0] == "" {
		after, _, err := c.position("after")
		return min(after, lastResumable), err
	}
	n, err := digits(last[0], 64)
	if err != nil || len(last) > 1 {
		return 0, malformed("LAST_EVENT_ID_INVALID", "the header Last-Event-ID is %+q: ids of this stream are positions", last[0])
	}
	return min(events.Position(n), lastResumable), nil
}

// lastResumable has one after it, to be waited for.
const lastResumable = math.MaxUint64 - 1

// resumed is the position that a stream of what is open goes on after. An id from beyond
// the log's end is of a log that was longer, before a backup of it was restored: then
// everything open is sent. Another relay may be ahead for a moment.
func (c *call) resumed(after events.Position) (events.Position, error) {
	ctx, cancel := context.WithTimeout(c.ctx(), c.cfg.PositionPatience)
	defer cancel()
	err := c.ledger.Log().Wait(ctx, after)
	if c.ctx().Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		return 0, nil
	}
	return after, err
}

// forget has the reader forget the ids that it has seen.
func (st *stream) forget() { st.buf = append(st.buf, "id: 0\n\n"...) }

func (c *call) stream(run func(*stream) error) error {
	st := &stream{call: c, rc: http.NewResponseController(c.w)}
	st.ends, st.end = context.WithCancelCause(c.ctx())
	defer st.end(nil)
	if !c.streams.add(st) {
		return errDraining
	}
	defer c.streams.remove(st)

	h := c.w.Header()
	h.Set("Connection", "close") // the deadlines for writing outlive the stream
	h.Set("X-Accel-Buffering", "no")
	c.headers("text/event-stream")
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	// The request has been read: from here on the client may be silent for ever.
	if err := st.rc.SetReadDeadline(time.Time{}); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return nil
	}
	st.buf = append(st.buf, "retry: 1000\n\n"...)
	err := st.flush()
	if err == nil {
		err = run(st)
	}
	// The request may have ended a moment before what was derived from it.
	if err != nil && st.ends.Err() == nil && c.ctx().Err() == nil && !errors.Is(err, errGone) && !errors.Is(err, events.ErrClosed) {
		c.cfg.Logger.Error("an event stream broke off", "path", c.r.URL.Path, "fleet", c.fleet, "actor", c.token.Actor, "error", err)
	}
	return nil
}

// event adds an event to what is to be sent.
func (st *stream) event(id events.Position, name string, data any) error {
	b, err := json.Marshal(data, jsonOut)
	if err != nil {
		return err
	}
	st.buf = fmt.Appendf(st.buf, "id: %d\nevent: %s\ndata: %s\n\n", id, name, b)
	return nil
}

// errGone says that the reader is gone, or takes nothing.
var errGone = errors.New("the reader is gone")

// flush sends what is to be sent. A reader that takes nothing for too long loses
// the stream.
func (st *stream) flush() error {
	if err := st.rc.SetWriteDeadline(time.Now().Add(st.cfg.StreamPatience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return errGone
	}
	if _, err := st.w.Write(st.buf); err != nil {
		return errGone
	}
	st.sent = time.Now()
	st.buf = st.buf[:0]
	if cap(st.buf) > 64<<10 {
		st.buf = nil
	}
	if err := st.rc.Flush(); err != nil {
		return errGone
	}
	return nil
}

// heartbeat says that the stream is alive, if it still may be.
func (st *stream) heartbeat() error {
	if err := st.check(); err != nil {
		return err
	}
	st.buf = append(st.buf, ": heartbeat\n\n"...)
	return st.flush()
}

// looked is for a stream that has looked at events, of which it may be sent none: it
// sends a heartbeat if one is due.
func (st *stream) looked() error {
	if time.Since(st.sent) >= st.cfg.Heartbeat {
		return st.heartbeat()
	}
	return st.check()
}

// await returns when the position can be read, or a heartbeat was due meanwhile.
func (st *stream) await(p events.Position) error {
	wait, cancel := context.WithTimeout(st.ends, st.cfg.Heartbeat)
	defer cancel()
	err := st.ledger.Log().Wait(wait, p)
	switch {
	case err == nil:
		return st.looked()
	case st.ends.Err() != nil:
		return st.ends.Err()
	case errors.Is(err, context.DeadlineExceeded):
		return st.heartbeat()
	}
	return err
}

// check ends a stream whose reader may not read any more.
func (st *stream) check() error {
	if st.stale() {
		st.end(errStale)
	}
	return st.ends.Err()
}

func (st *stream) stale() bool {
	state := st.ledger.State()
	_, _, ok := state.TokenByID(st.token.ID)
	return !ok || !state.Authority().Active(st.token.Actor)
}

// streams are the open event streams of a relay.
type streams struct {
	mu       sync.Mutex
	open     map[*stream]struct{}
	draining bool
}

// add reports whether the stream may be opened.
func (s *streams) add(st *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		return false
	}
	if s.open == nil {
		s.open = map[*stream]struct{}{}
	}
	s.open[st] = struct{}{}
	return true
}

func (s *streams) remove(st *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, st)
}

// endStale ends the streams whose readers may not read any more. The others are
// not woken for it.
func (s *streams) endStale() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.open {
		if st.stale() {
			st.end(errStale)
		}
	}
}

func (s *streams) isDraining() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining
}

// count is how many a fleet has.
func (s *streams) count(fleet string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for st := range s.open {
		if st.fleet == fleet {
			n++
		}
	}
	return n
}

func (s *streams) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	for st := range s.open {
		st.end(errDraining)
	}
}

// offerReply is the data of an event "offer".
type offerReply struct {
	TaskID         string            `json:"task_id"`
	Machine        string            `json:"machine"`
	Position       events.Position   `json:"position"`
	Argv           []string          `json:"argv"`
	Cwd            string            `json:"cwd,omitzero"`
	Env            map[string]string `json:"env,omitzero"`
	EnvFrom        []string          `json:"env_from,omitzero"`
	TimeoutSeconds int               `json:"timeout_s,omitzero"`
	Tags           []string          `json:"tags,omitzero"`
	Attempts       int               `json:"attempts" doc:"How often the leg is offered at most."`
}

func (c *call) followOffers(last events.Position) (func(*stream) error, error) {
	machine := c.path("id")
	if !machineKnown(c.ledger.State().Authority(), machine) {
		return nil, notFound("ACTOR_NOT_FOUND", "no actor of kind machine is named %+q; see GET /v1/actors", machine)
	}
	if machine != c.token.Actor {
		return nil, &problem{status: http.StatusForbidden, code: "NOT_YOUR_OFFERS", detail: "the offers of " + machine + " are read by it alone"}
	}
	after, err := c.resumed(last)
	return func(st *stream) error {
		if after < last {
			st.forget()
		}
		return st.offers(machine, after)
	}, err
}

// offers sends the offers for a machine as they are made.
func (st *stream) offers(machine string, after events.Position) error {
	state := st.ledger.State()
	// Watched before they are read: an offer made in between wakes.
	woken, unwatch := state.WatchOffers(machine)
	defer unwatch()
	beat := time.NewTicker(st.cfg.Heartbeat)
	defer beat.Stop()
	for {
		for _, o := range state.Offers(machine, after) {
			// Who is told of an offer can claim it: that reads the log.
			if err := st.ledger.Log().Wait(st.ends, o.Position); err != nil {
				return err
			}
			cmd := o.Task.Command
			after = o.Position
			if err := st.event(o.Position, "offer", offerReply{
				TaskID: o.Task.ID, Machine: machine, Position: o.Position, Argv: o.Task.Argv(o.Leg), Cwd: cmd.Cwd, Env: cmd.Env,
				EnvFrom: cmd.EnvFrom, TimeoutSeconds: cmd.TimeoutSeconds, Tags: cmd.Tags, Attempts: cmd.Attempts,
			}); err != nil {
				return err
			}
			if err := st.flush(); err != nil {
				return err
			}
		}
		select {
		case <-woken:
			if err := st.check(); err != nil {
				return err
			}
		case <-beat.C:
			if err := st.heartbeat(); err != nil {
				return err
			}
		case <-st.ends.Done():
			return st.ends.Err()
		}
	}
}

func (c *call) followEvents(after events.Position) (func(*stream) error, error) {
	f, err := c.eventFilter()
	return func(st *stream) error { return st.follow(f, after) }, err
}

const (
	// streamPage and streamPageBytes bound what is read from the log at once, and
	// so what a slow reader holds.
	streamPage      = 256
	streamPageBytes = 256 << 10
)

// follow sends the events after a position, then each as it is recorded. Between
// pages nothing of the log is held.
func (st *stream) follow(f eventFilter, after events.Position) error {
	log := st.ledger.Log()
	for {
		page, err := st.events(f, after, log.Durable(), streamPage, streamPageBytes)
		if err != nil {
			return err
		}
		for _, e := range page.items {
			if err := st.event(e.Position, "event", e); err != nil {
				return err
			}
		}
		after = page.last
		if len(page.items) > 0 {
			if err := st.flush(); err != nil {
				return err
			}
		}
		if page.more {
			if err := st.looked(); err != nil {
				return err
			}
			continue
		}
		if err := st.await(after + 1); err != nil {
			return err
		}
	}
}
