package bus

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// Config says what a bus delivers and where it keeps its cursors.
type Config struct {
	Ledger *commands.Ledger
	// Dir keeps the cursors and the key that signs webhooks; empty keeps them in
	// memory.
	Dir    string
	Logger *slog.Logger
}

// Bus runs a fleet's subscriptions. Methods may be called concurrently.
type Bus struct {
	cfg     Config
	cursors *Cursors

	mu      sync.Mutex
	key     *WebhookKey          // guarded by mu
	running map[string]*delivery // by name; guarded by mu
	changed chan struct{}        // has one slot
}

// New returns a bus that does not run yet.
func New(cfg Config) *Bus {
	return &Bus{cfg: cfg, cursors: NewCursors(cfg.Dir), running: map[string]*delivery{}, changed: make(chan struct{}, 1)}
}

// look is how often a bus looks for subscriptions that another relay changed.
const look = 2 * time.Second

// Run runs the subscriptions until ctx ends and returns when all deliveries have
// ended, their cursors written.
func (b *Bus) Run(ctx context.Context) error {
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for name, d := range b.running {
			d.stop()
			delete(b.running, name)
		}
	}()
	tick := time.NewTicker(look)
	defer tick.Stop()
	seen := events.Revision(0)
	for first := true; ; first = false {
		s, err := projections.LoadSubscriptions(ctx, b.cfg.Ledger.Log(), 0)
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if first || s.Revision != seen {
			if err := b.apply(ctx, s); err != nil && ctx.Err() != nil {
				return nil
			} else if err != nil {
				b.cfg.Logger.Error("subscriptions are not run as they should be", "error", err)
			} else {
				seen = s.Revision
			}
		}
		select {
		case <-b.changed:
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// Changed has the bus look at the subscriptions now.
func (b *Bus) Changed() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// PublicKey is what webhooks are verified with.
func (b *Bus) PublicKey() (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.openKey(); err != nil {
		return "", err
	}
	return b.key.Public(), nil
}

func (b *Bus) openKey() (err error) {
	if b.key == nil {
		b.key, err = OpenWebhookKey(b.cfg.Dir)
	}
	return err
}

// apply starts and ends deliveries so that those run that should, and acts on what
// was asked of them since.
func (b *Bus) apply(ctx context.Context, s *projections.Subscriptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(s.List) > 0 {
		if err := b.openKey(); err != nil {
			return err
		}
	}
	for name, d := range b.running {
		if now := s.Find(name); now == nil || now.Paused || now.CreatedIn != d.sub.CreatedIn {
			d.stop()
			delete(b.running, name)
			if now == nil || now.CreatedIn != d.sub.CreatedIn {
				if err := b.cursors.remove(cursorName(d.sub)); err != nil {
					return err
				}
			}
		}
	}
	asked, err := b.asked(ctx)
	if err != nil {
		return err
	}
	for _, sub := range s.List {
		if sub.Paused {
			continue // what is asked of it meanwhile is done once it goes on
		}
		cur, err := b.cursors.get(cursorName(sub), sub.After)
		if err != nil {
			return err
		}
		d := b.running[sub.Name]
		replay := false
		var skip events.Position
		for _, a := range asked[sub.Name] {
			if a.position <= max(cur.get().Acted, sub.CreatedIn) {
				continue
			}
			switch e := a.event.(type) {
			case events.SubscriptionReplayed:
				if e.After == nil {
					replay = true
					break
				}
				if d != nil { // it would move the cursor on from where it was
					d.stop()
					delete(b.running, sub.Name)
					d = nil
				}
				after := *e.After
				err = cur.change(true, func(c *cursorState) { c.Position = after })
			case events.SubscriptionParked:
				skip = e.Event
			}
			if err == nil {
				err = cur.change(true, func(c *cursorState) { c.Acted = a.position })
			}
			if err != nil {
				return err
			}
		}
		if d == nil {
			d = &delivery{sub: sub, log: b.cfg.Ledger.Log(), cursor: cur, key: b.key, credential: os.Getenv,
				logger: b.cfg.Logger, replay: replay, skip: skip}
			d.start(ctx)
			b.running[sub.Name] = d
			continue
		}
		if replay || skip != 0 {
			d.act(func() {
				d.replay = d.replay || replay
				if skip != 0 {
					d.skip = skip
				}
			})
		}
	}
	return nil
}

func cursorName(s projections.Subscription) string {
	return fmt.Sprintf("%s-%d", s.Name, s.CreatedIn)
}

type request struct {
	position events.Position
	event    events.Event
}

// asked are the replays and parkings that were ever asked for, by name.
func (b *Bus) asked(ctx context.Context) (map[string][]request, error) {
	list := map[string][]request{}
	for r, err := range b.cfg.Ledger.Log().ReadStream(ctx, events.SubscriptionsStream, 0) {
		if err != nil {
			return nil, err
		}
		e, err := events.Decode(r)
		if err != nil {
			return nil, err
		}
		name := ""
		switch e := e.(type) {
		case events.SubscriptionReplayed:
			name = e.Name
		case events.SubscriptionParked:
			name = e.Name
		default:
			continue
		}
		list[name] = append(list[name], request{r.Header.Position, e})
	}
	return list, nil
}

// Status is how a delivery stands.
type Status struct {
	// Position is the last event that it is done with, Head the log's, Lag the events
	// between: those that the subscription does not want count until they were looked
	// at.
	Position, Head, Lag events.Position
	Delivered           uint64
	DeliveredAt         time.Time
	Parked              []Parked
	// Failing is why the event at Stuck is not taken, empty if nothing fails; it is
	// tried again at RetryAt.
	Failing string
	Stuck   events.Position
	RetryAt time.Time
}

// Status returns how the delivery of a subscription stands.
func (b *Bus) Status(sub projections.Subscription) (Status, error) {
	b.mu.Lock()
	d := b.running[sub.Name]
	b.mu.Unlock()
	cur, err := b.cursors.get(cursorName(sub), sub.After)
	if err != nil {
		return Status{}, err
	}
	c := cur.get()
	s := Status{Position: c.Position, Head: b.cfg.Ledger.Log().Durable(), Delivered: c.Delivered, DeliveredAt: c.DeliveredAt, Parked: c.Parked}
	if s.Head > s.Position {
		s.Lag = s.Head - s.Position
	}
	if d != nil {
		d.mu.Lock()
		s.Failing, s.Stuck, s.RetryAt = d.failing, d.stuck, d.retryAt
		d.mu.Unlock()
	}
	return s, nil
}
