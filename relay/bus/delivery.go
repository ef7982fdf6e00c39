package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
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
	logger     *slog.Logger

	end  context.CancelFunc
	done chan struct{}
	// nudge has one slot: there is something to do between two events, or now.
	nudge chan struct{}

	// current is the position of the event that was last handed over.
	current atomic.Uint64

	mu sync.Mutex // guards the rest
	// failing is why the event under way was not taken yet, retryAt when it is tried
	// again; stuck is its position.
	failing string
	retryAt time.Time
	stuck   events.Position
	// skip is the position of an event to park, replay says that the parked ones are
	// to be delivered.
	skip   events.Position
	replay bool
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

func (d *delivery) run(ctx context.Context) {
	var to *destination
	for try := 1; to == nil; try++ {
		var err error
		if to, err = d.connect(); err != nil {
			d.fail(0, err)
			if !d.pause(ctx, backoff(try)) {
				return
			}
		}
	}
	defer to.Close()
	d.fine()

	var running reading
	defer running.close()
	messages, err := running.start(ctx, source{
		log: d.log, cursor: d.cursor, wants: d.sub.Wants,
		message: func(r events.Record) (*message.Message, error) {
			d.current.Store(uint64(r.Header.Position))
			return cloudEventMessage(r)
		},
		between: func(ctx context.Context) error { return d.replayParked(ctx, to) },
	})
	if err != nil {
		return // ctx ended
	}
	for m := range messages {
		if d.deliver(ctx, to, m, events.Position(d.current.Load())) {
			m.Ack()
		} else {
			m.Nack()
		}
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

// deliver sends a message until it is taken or parked; false when ctx ended first.
func (d *delivery) deliver(ctx context.Context, to *destination, m *message.Message, position events.Position) bool {
	refused := 0
	for try := 1; ; try++ {
		err := to.publish(ctx, m)
		if err == nil {
			d.fine()
			_ = d.cursor.change(false, func(c *cursorState) {
				c.Delivered++
				c.DeliveredAt = time.Now().UTC()
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
		d.fail(position, err)
		if d.skipped(position) || refused >= rejections && len(d.cursor.get().Parked) < maxParked {
			if d.park(position, m.UUID, err) == nil {
				d.fine()
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
		if d.skipped(position) && d.park(position, m.UUID, err) == nil {
			d.fine()
			return true
		}
	}
}

// park puts an event aside; durable when it returns nil.
func (d *delivery) park(position events.Position, id string, why error) error {
	err := d.cursor.change(true, func(c *cursorState) {
		c.Parked = append(c.Parked, Parked{Position: position, EventID: id, At: time.Now().UTC(), Reason: why.Error()})
	})
	if err != nil {
		d.logger.Error("an event could not be parked", "subscription", d.sub.Name, "position", position, "error", err)
		return err
	}
	d.logger.Warn("an event was parked: its destination refuses it", "subscription", d.sub.Name, "position", position, "reason", why.Error())
	return nil
}

// replayParked delivers what was parked, if that was asked for. What is refused
// again stays parked.
func (d *delivery) replayParked(ctx context.Context, to *destination) error {
	d.mu.Lock()
	asked := d.replay
	d.replay = false
	d.mu.Unlock()
	if !asked {
		return nil
	}
	for _, p := range d.cursor.get().Parked {
		err := d.again(ctx, to, p)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		err = d.cursor.change(true, func(c *cursorState) {
			for i := range c.Parked {
				switch {
				case c.Parked[i].Position != p.Position:
				case err == nil:
					c.Parked = append(c.Parked[:i:i], c.Parked[i+1:]...)
					c.Delivered++
					return
				default:
					c.Parked[i].Reason, c.Parked[i].At = err.Error(), time.Now().UTC()
				}
			}
		})
		if err != nil {
			d.logger.Error("the cursor could not be written", "subscription", d.sub.Name, "error", err)
		}
	}
	return nil
}

func (d *delivery) again(ctx context.Context, to *destination, p Parked) error {
	for r, err := range d.log.ReadAll(ctx, p.Position-1) {
		if err != nil {
			return err
		}
		m, err := cloudEventMessage(r)
		if err != nil {
			return err
		}
		return to.publish(ctx, m)
	}
	return fmt.Errorf("no event at position %d", p.Position)
}

func (d *delivery) fail(position events.Position, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failing == "" {
		d.logger.Warn("a destination does not take events; it is tried again", "subscription", d.sub.Name, "position", position, "error", err.Error())
	}
	d.failing, d.stuck = err.Error(), position
}

func (d *delivery) fine() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.failing != "" {
		d.logger.Info("a destination takes events again", "subscription", d.sub.Name)
	}
	d.failing, d.stuck, d.retryAt = "", 0, time.Time{}
}

func (d *delivery) skipped(position events.Position) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.skip == position && position != 0
}

// pause waits, or until it is nudged; false when ctx ended.
func (d *delivery) pause(ctx context.Context, wait time.Duration) bool {
	d.mu.Lock()
	d.retryAt = time.Now().Add(wait).UTC()
	d.mu.Unlock()
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

// act does what was asked of a running delivery.
func (d *delivery) act(f func()) {
	d.mu.Lock()
	f()
	d.mu.Unlock()
	select {
	case d.nudge <- struct{}{}:
	default:
	}
}
