package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Subscription is one event stream of a relay (Server-Sent Events).
type Subscription struct {
	Path  string
	Query url.Values
	// LastID is the id of the last event seen; empty starts where the query says.
	LastID string
	// Connected and Lost, unless nil, are told when the stream stands and when it
	// broke: why, and how long until it is tried again.
	Connected func()
	Lost      func(err error, wait time.Duration)
}

// ServerEvent is one event of a stream.
type ServerEvent struct {
	ID   string
	Name string
	Data []byte
}

const (
	// streamIdle is how long a stream may say nothing, heartbeats included,
	// before it counts as broken.
	streamIdle = 40 * time.Second
	// streamWait bounds the wait before a stream is opened again.
	streamWait = 15 * time.Second
	// maxEvent bounds one event of a stream.
	maxEvent = 4 << 20
)

// Subscribe calls each for every event of the stream, in order and from one
// goroutine. A stream that breaks is opened again, resuming after the last event
// that each returned nil for. It returns when ctx ends, with ctx's error; when
// each fails, with that error; and when the relay refuses the stream, with its
// *Problem, unless that is temporary.
func (c *Client) Subscribe(ctx context.Context, s Subscription, each func(ServerEvent) error) error {
	var failed error // each's
	for try := 1; ; try++ {
		began := time.Now()
		err := c.follow(ctx, s, func(id string) { s.LastID = id }, func(e ServerEvent) error {
			if failed = each(e); failed != nil {
				return failed
			}
			if e.ID != "" {
				s.LastID = e.ID
			}
			try = 1
			return nil
		})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if failed != nil {
			return failed
		}
		p, isProblem := errors.AsType[*Problem](err)
		if isProblem && !p.temporary() {
			return err
		}
		if time.Since(began) > streamIdle {
			try = 1
		}
		wait := streamBackoff(try)
		if isProblem {
			wait = max(wait, min(p.retryAfter(), streamWait))
		}
		if s.Lost != nil {
			s.Lost(err, wait)
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

func streamBackoff(try int) time.Duration {
	return min(streamWait, backoff(min(try, 7))*time.Duration(max(1, try-5)))
}

// follow reads one connection's worth of a stream. It never returns nil: a stream
// that ends was broken off.
func (c *Client) follow(ctx context.Context, s Subscription, resume func(id string), each func(ServerEvent) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// A relay that vanished without a word would be waited for without end.
	idle := time.AfterFunc(streamIdle, func() { cancel(errIdle) })
	defer idle.Stop()

	resp, err := c.send(ctx, Request{Method: http.MethodGet, Path: s.Path, Query: s.Query, Accept: "text/event-stream"}, nil, func(h http.Header) {
		if s.LastID != "" {
			h.Set("Last-Event-ID", s.LastID)
		}
	})
	if err != nil {
		return idleOr(ctx, err)
	}
	defer resp.Body.Close()
	if s.Connected != nil {
		s.Connected()
	}
	err = readEvents(resp.Body, func() { idle.Reset(streamIdle) }, resume, each)
	if err == nil {
		return fmt.Errorf("the relay at %s ended the stream", c.Address())
	}
	return fmt.Errorf("the stream from the relay at %s broke off: %w", c.Address(), idleOr(ctx, err))
}

// Download asks for a long answer and returns its body, to be closed. An answer that
// stops coming for streamIdle is broken off.
func (c *Client) Download(ctx context.Context, path string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	idle := time.AfterFunc(streamIdle, func() { cancel(errIdle) })
	req, err := c.request(ctx, Request{Method: http.MethodGet, Path: path, Accept: "*/*"}, nil)
	if err != nil {
		idle.Stop()
		cancel(nil)
		return nil, err
	}
	resp, err := c.http.Do(req)
	if err != nil {
		idle.Stop()
		err = c.unreachable(idleOr(ctx, err))
		cancel(nil)
		return nil, err
	}
	d := &download{ReadCloser: resp.Body, ctx: ctx, cancel: cancel, idle: idle}
	if resp.StatusCode == http.StatusOK {
		return d, nil
	}
	body, _ := io.ReadAll(io.LimitReader(d, 1<<20))
	p := problemFrom(resp, body)
	p.addRetryAfter(resp.Header)
	return nil, errors.Join(p, d.Close())
}

type download struct {
	io.ReadCloser
	ctx    context.Context
	cancel context.CancelCauseFunc
	idle   *time.Timer
}

func (d *download) Read(p []byte) (int, error) {
	n, err := d.ReadCloser.Read(p)
	d.idle.Reset(streamIdle)
	if err != nil && err != io.EOF {
		err = idleOr(d.ctx, err)
	}
	return n, err
}

func (d *download) Close() error {
	d.idle.Stop()
	d.cancel(nil)
	return d.ReadCloser.Close()
}

var errIdle = fmt.Errorf("it said nothing for %v", streamIdle)

// idleOr is err, unless that only tells that the stream was silent for too long.
func idleOr(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errIdle) {
		return errIdle
	}
	return err
}

// readEvents parses an event stream as the HTML standard has it, but for the
// field retry. alive is called with each line, resume with an id that comes without an
// event: the stream is resumed after it from then on.
func readEvents(r io.Reader, alive func(), resume func(id string), each func(ServerEvent) error) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 4<<10), maxEvent)
	var e ServerEvent
	var data []string
	size := 0
	for lines.Scan() {
		alive()
		line := lines.Text()
		if line == "" {
			if data != nil {
				e.Data = []byte(strings.Join(data, "\n"))
				if err := each(e); err != nil {
					return err
				}
			} else if e.ID != "" {
				resume(e.ID)
			}
			e, data, size = ServerEvent{}, nil, 0
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			e.ID = value
		case "event":
			e.Name = value
		case "data":
			if size += len(value); size > maxEvent {
				return fmt.Errorf("an event of the stream has more than %d bytes", maxEvent)
			}
			data = append(data, value)
		}
	}
	return lines.Err()
}
