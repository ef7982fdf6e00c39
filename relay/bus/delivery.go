package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"

	"fleetledger/events"
	"fleetledger/projections"
)

const (
	// rejections is how often an event is refused for what it is before it is parked.
	rejections = 3
	// maxParked is how many are parked at most; then the delivery stays where it is,
	// since it is not the events that are at fault.
	maxParked = 1000
	// maxBackoff bounds the wait between two tries.
	maxBackoff = 30 * time.Second
)

// delivery runs one subscription.
type delivery struct {
	sub        projections.Subscription
	log        events.Log
	cursor     *cursor
	key        *WebhookKey
	credential func(env string) string
	// erased reports whether the payload of the event at a position was erased.
	erased func(events.Position) bool
	// may reports whether this process still is the one that delivers.
	may    func() bool
	logger *slog.Logger

	end  context.CancelFunc
	done chan struct{}
	// nudge has one slot: there is something to do between two events, or now.
	nudge chan struct{}

	// current is the position of the event that was last handed over.
	current atomic.Uint64
}

func (d *delivery) start(ctx context.Context) {
	ctx, d.end = context.WithCancel(ctx)
	d.done = make(chan struct{})
	d.nudge = make(chan struct{}, 1)
	go func() {
		defer close(d.done)
		d.run(ctx)
	}()
}

// stop ends the delivery where it is and returns when it has ended.
func (d *delivery) stop() {
	d.end()
	<-d.done
}

// ended reports whether it has ended by itself.
func (d *delivery) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

func (d *delivery) run(ctx context.Context) {
	var to *destination
	for try := 1; to == nil; try++ {
		var err error
		if to, err = d.connect(); err != nil {
			d.fail(ctx, 0, err)
			if !d.pause(ctx, backoff(try)) {
				return
			}
		}
	}
	defer to.Close()
	d.cursor.note(d.fine)

	var running reading
	defer running.close()
	messages, err := running.start(ctx, source{
		log: d.log, cursor: d.cursor, wants: d.sub.Wants,
		message: func(r events.Record) (*message.Message, error) {
			d.current.Store(uint64(r.Header.Position))
			return cloudEventMessage(r)
		},
		between: func(ctx context.Context) error { return d.replayParked(ctx, to) },
		trouble: func(err error) {
			if err == nil {
				d.cursor.note(d.fine)
				return
			}
			d.logger.Warn("a delivery waits: how far it is cannot be written", "subscription", d.sub.Name, "error", err.Error())
			d.cursor.note(func(c *cursorState) { c.Failing, c.Stuck = brief(err), events.Position(d.current.Load()) })
		},
	})
	if err != nil {
		return // ctx ended
	}
	for m := range messages {
		if !d.deliver(ctx, to, m, events.Position(d.current.Load())) {
			m.Nack()
			return
		}
		m.Ack()
	}
}

func (d *delivery) connect() (*destination, error) {
	env := d.sub.Destination.CredentialEnv
	credential := ""
	if env != "" {
		if credential = d.credential(env); credential == "" {
			return nil, fmt.Errorf("the relay's environment has no %s, which is to hold the credential: start it with that variable set", env)
		}
	}
	return connect(d.sub.Destination, credential, d.key)
}

// deliver sends a message until it is taken or parked; false when ctx ended first, or
// another process delivers now.
func (d *delivery) deliver(ctx context.Context, to *destination, m *message.Message, position events.Position) bool {
	refused := 0
	for try := 1; d.may(); try++ {
		err := d.publish(ctx, to, m, position)
		if err == nil {
			d.cursor.note(func(c *cursorState) {
				c.Delivered++
				c.DeliveredAt = time.Now().UTC()
				// Of a replay it may be one that was parked, or was to be.
				c.Parked = slices.DeleteFunc(c.Parked, func(p Parked) bool { return p.Position == position })
				if c.Skip == position {
					c.Skip = 0
				}
				d.fine(c)
			})
			return true
		}
		if ctx.Err() != nil {
			return false
		}
		var rejected *rejectedError
		if errors.As(err, &rejected) {
			refused++
		}
		d.fail(ctx, position, err)
		if d.skipped(position) || refused >= rejections && len(d.cursor.get().Parked) < maxParked {
			if d.park(ctx, position, m.UUID, err) == nil {
				return true
			}
		}
		wait := backoff(try)
		if later, ok := errors.AsType[*laterError](err); ok {
			wait = max(wait, min(later.wait, 10*maxBackoff))
		}
		if !d.pause(ctx, wait) {
			return false
		}
		if d.skipped(position) && d.park(ctx, position, m.UUID, err) == nil {
			return true
		}
	}
	return false
}

// park puts an event aside; durable when it returns nil.
func (d *delivery) park(ctx context.Context, position events.Position, id string, why error) error {
	reason := ""
	err := d.cursor.change(ctx, true, func(c *cursorState) {
		reason = brief(d.mayRepeat(why, position))
		if !slices.ContainsFunc(c.Parked, func(p Parked) bool { return p.Position == position }) { // it may be tried again
			c.Parked = append(c.Parked, Parked{Position: position, EventID: id, At: time.Now().UTC(), Reason: reason})
		}
		if c.Skip == position {
			c.Skip = 0
		}
	})
	if err != nil {
		d.logger.Error("an event could not be parked", "subscription", d.sub.Name, "position", position, "error", err)
		return err
	}
	d.logger.Warn("an event was parked: its destination refuses it", "subscription", d.sub.Name, "position", position, "reason", reason)
	d.cursor.note(d.fine)
	return nil
}

// replayParked delivers what was parked, as often as that was asked for. What is
// refused again stays parked.
func (d *delivery) replayParked(ctx context.Context, to *destination) error {
	for state := d.cursor.get(); state.Replay; state = d.cursor.get() {
		for _, p := range state.Parked {
			if err := d.replay(ctx, to, p); err != nil {
				return err
			}
		}
		// Only now: whoever goes on with this delivery after a crash does the rest. What
		// was asked since asks for another round.
		if err := d.cursor.change(ctx, true, func(c *cursorState) { c.Replay = c.Acted != state.Acted }); err != nil {
			if !isLost(err) {
				d.logger.Error("the cursor could not be written", "subscription", d.sub.Name, "error", err)
				return nil // this round is repeated before the next event
			}
			return err
		}
	}
	return nil
}

// replay delivers one parked event; an error ends this process's delivery.
func (d *delivery) replay(ctx context.Context, to *destination, p Parked) error {
	if !d.may() {
		return errNotMine
	}
	refused := d.again(ctx, to, p)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	err := d.cursor.change(ctx, true, func(c *cursorState) {
		i := slices.IndexFunc(c.Parked, func(q Parked) bool { return q.Position == p.Position })
		switch {
		case i < 0:
		case refused == nil:
			c.Parked = slices.Delete(slices.Clone(c.Parked), i, i+1)
			c.Delivered++
		default:
			c.Parked[i].Reason, c.Parked[i].At = brief(d.mayRepeat(refused, p.Position)), time.Now().UTC()
		}
	})
	if err != nil && !isLost(err) {
		d.logger.Error("the cursor could not be written", "subscription", d.sub.Name, "error", err)
		return nil
	}
	return err
}

// errNotMine says that another process delivers now.
var errNotMine = errors.New("another relay delivers")

func (d *delivery) again(ctx context.Context, to *destination, p Parked) error {
	m, err := d.message(ctx, p.Position)
	if err != nil {
		return err
	}
	return d.publish(ctx, to, m, p.Position)
}

// message is the event at a position as the log has it now.
func (d *delivery) message(ctx context.Context, p events.Position) (*message.Message, error) {
	r, err := recordAt(ctx, d.log, p)
	if err != nil {
		return nil, err
	}
	return cloudEventMessage(r)
}

// recordAt is the record at a position as the log has it now.
func recordAt(ctx context.Context, log events.Log, p events.Position) (events.Record, error) {
	for r, err := range log.ReadAll(ctx, p-1) {
		return r, err
	}
	return events.Record{}, fmt.Errorf("no event at position %d", p)
}

// publish sends a message that was read before. Its payload may have been erased since:
// then it goes as the log has it now.
func (d *delivery) publish(ctx context.Context, to *destination, m *message.Message, p events.Position) error {
	whole := true
	if d.erased(p) {
		var err error
		if m, err = d.message(ctx, p); err != nil {
			return err
		}
		whole = false
	}
	err := to.publish(ctx, m)
	if err != nil && whole {
		return &wholeError{err}
	}
	return err
}

// wholeError is what a destination said of an event that it was sent with its payload:
// it may repeat that.
type wholeError struct{ error }

func (e *wholeError) Unwrap() error { return e.error }

// withheld is kept instead of what a destination said of an event whose payload was
// erased since.
const withheld = "its destination does not take it; what it said is not kept, since the payload was erased"

// mayRepeat is why an event was not taken, as far as it may be kept. It is called with
// the cursor held, so that Bus.Forget comes before or after it.
func (d *delivery) mayRepeat(err error, p events.Position) error {
	if _, ok := errors.AsType[*wholeError](err); ok && d.erased(p) {
		return errors.New(withheld)
	}
	return err
}

func (d *delivery) fail(ctx context.Context, position events.Position, err error) {
	begins := false
	d.cursor.note(func(c *cursorState) {
		begins = c.Failing == ""
		c.Failing, c.Stuck = brief(d.mayRepeat(err, position)), position
	})
	if begins {
		d.logger.Warn("a destination does not take events; it is tried again", "subscription", d.sub.Name, "position", position, "error", err.Error())
		_ = d.cursor.flush(ctx) // it is for who looks, and is written with what comes next
	}
}

// brief is what is kept of an error's text.
func brief(err error) string {
	s := err.Error()
	return strings.ToValidUTF8(s[:min(len(s), maxReason)], "")
}

// fine notes that nothing fails.
func (d *delivery) fine(c *cursorState) {
	if c.Failing != "" {
		d.logger.Info("a delivery goes on", "subscription", d.sub.Name)
	}
	c.Failing, c.Stuck, c.RetryAt = "", 0, time.Time{}
}

func (d *delivery) skipped(position events.Position) bool {
	return position != 0 && d.cursor.get().Skip == position
}

// pause waits, or until it is nudged; false when ctx ended.
func (d *delivery) pause(ctx context.Context, wait time.Duration) bool {
	// A cursor that cannot be written says so when it moves on.
	_ = d.cursor.change(ctx, false, func(c *cursorState) { c.RetryAt = time.Now().Add(wait).UTC() })
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.nudge:
		return true
	case <-ctx.Done():
		return false
	}
}

// backoff is the wait before the try after this one: half a second doubled each
// time, of which a random part is taken off.
func backoff(try int) time.Duration {
	wait := min(maxBackoff, 500*time.Millisecond<<min(try-1, 10))
	return wait - rand.N(wait/4)
}

// wake has a running delivery look at what was asked of it.
func (d *delivery) wake() {
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}
