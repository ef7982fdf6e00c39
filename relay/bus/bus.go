package bus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// Config says what a bus delivers and where it keeps its cursors.
type Config struct {
	Ledger *commands.Ledger
	// Dir keeps the cursors and the key that signs webhooks; empty keeps them in
	// memory.
	Dir string
	// Shared, unless nil, keeps the cursors instead, for all relays of a fleet: the one
	// that has the duty delivers, and whoever takes it over goes on from there.
	Shared Store
	Logger *slog.Logger
}

// Bus runs a fleet's subscriptions. Methods may be called concurrently.
type Bus struct {
	cfg     Config
	relay   string
	cursors *Cursors

	key     func() (*WebhookKey, error)
	changed chan struct{} // has one slot

	mu      sync.Mutex
	running map[string]*delivery // by name; guarded by mu
}

// New returns a bus that does not run yet.
func New(cfg Config) *Bus {
	b := &Bus{cfg: cfg, running: map[string]*delivery{}, changed: make(chan struct{}, 1)}
	b.key = sync.OnceValues(func() (*WebhookKey, error) { return OpenWebhookKey(cfg.Dir) })
	if b.cursors = NewCursors(cfg.Dir); cfg.Shared != nil {
		b.cursors = sharedCursors(cfg.Shared)
		b.relay, _ = cfg.Ledger.Relays()
	}
	return b
}

const (
	// look is how often a bus looks for subscriptions that another relay changed.
	look = 2 * time.Second
	// dutyLook is how often it looks whether it is the one that delivers.
	dutyLook = 200 * time.Millisecond
)

// mine reports whether this relay delivers.
func (b *Bus) mine() bool { return b.cfg.Shared == nil || b.cfg.Ledger.HoldsDuty() }

// Run runs the subscriptions until ctx ends and returns when all deliveries have
// ended, their cursors written.
func (b *Bus) Run(ctx context.Context) error {
	defer b.stopAll()
	every := look
	if b.cfg.Shared != nil {
		every = dutyLook
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	var (
		looked    time.Time
		seen      events.Revision
		mine      bool
		published = b.cfg.Shared == nil
		trouble   string
		erased    int // payloads, when it last forgot what was said of them
	)
	again := func(f func() error) bool {
		err := f()
		if err == nil || ctx.Err() != nil {
			return err == nil
		}
		if trouble != err.Error() { // the same trouble is told once
			trouble = err.Error()
			b.cfg.Logger.Error("subscriptions are not run as they should be", "error", err)
		}
		return false
	}
	for {
		if !published {
			published = again(func() error { return b.publishKey(ctx) })
		}
		was := mine
		if mine = b.mine(); was && !mine {
			b.stopAll()
		}
		if mine && (!was || time.Since(looked) >= look-dutyLook) {
			s, err := projections.LoadSubscriptions(ctx, b.cfg.Ledger.Log(), 0)
			if err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
			looked = time.Now()
			if n := b.cfg.Ledger.State().Erased(); n != erased && again(func() error { return b.Forget(ctx) }) {
				erased = n // also those of before a crash
			}
			if !was || s.Revision != seen || b.someEnded() {
				if again(func() error { return b.apply(ctx, s) }) {
					seen, trouble = s.Revision, ""
				} else {
					looked, seen = time.Time{}, 0
				}
			}
		}
		select {
		case <-b.changed:
			looked = time.Time{}
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// stopAll ends every delivery. Another relay may go on with them: what is known of
// their cursors is forgotten.
func (b *Bus) stopAll() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.running {
		d.end() // all at once
	}
	for name, d := range b.running {
		d.stop()
		delete(b.running, name)
	}
	b.cursors.forgetAll()
}

// someEnded reports whether a delivery has ended by itself: its cursor was lost, to
// another relay or another try of this one.
func (b *Bus) someEnded() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.running {
		if d.ended() {
			return true
		}
	}
	return false
}

// Changed has the bus look at the subscriptions now.
func (b *Bus) Changed() {
	select {
	case b.changed <- struct{}{}:
	default:
	}
}

// keysName is where relays keep what their webhooks are verified with, by their names.
const keysName = "webhook-keys"

// PublicKeys are what webhooks are verified with: of several relays, each signs with
// the key in its own directory. The first one is the key of a relay by name, or, if
// that is not known, this relay's.
func (b *Bus) PublicKeys(ctx context.Context, relay string) ([]string, error) {
	own, err := b.ownKey()
	if err != nil || b.cfg.Shared == nil {
		return []string{own}, err
	}
	keys, _, err := b.sharedKeys(ctx)
	if err != nil {
		return nil, err
	}
	keys[b.relay] = own
	first, ok := keys[relay]
	if !ok {
		first = own
	}
	all := []string{first}
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		if !slices.Contains(all, keys[name]) {
			all = append(all, keys[name])
		}
	}
	return all, nil
}

func (b *Bus) ownKey() (string, error) {
	key, err := b.key()
	if err != nil {
		return "", err
	}
	return key.Public(), nil
}

func (b *Bus) sharedKeys(ctx context.Context) (keys map[string]string, version uint64, err error) {
	text, version, err := b.cfg.Shared.Get(ctx, keysName)
	if err != nil {
		return nil, 0, fmt.Errorf("keys of webhooks: %w", err)
	}
	keys = map[string]string{}
	if text != nil {
		err = json.Unmarshal(text, &keys)
	}
	return keys, version, err
}

// publishKey tells the other relays what this one's webhooks are verified with.
func (b *Bus) publishKey(ctx context.Context) error {
	own, err := b.ownKey()
	if err != nil {
		return err
	}
	for {
		keys, version, err := b.sharedKeys(ctx)
		if err != nil || keys[b.relay] == own {
			return err
		}
		keys[b.relay] = own
		text, err := json.Marshal(keys, json.Deterministic(true))
		if err != nil {
			return err
		}
		if _, err := b.cfg.Shared.Put(ctx, keysName, text, version); !isLost(err) {
			return err
		}
	}
}

// apply starts and ends deliveries so that those run that should, and acts on what
// was asked of them since.
func (b *Bus) apply(ctx context.Context, s *projections.Subscriptions) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, d := range b.running {
		now := s.Find(name)
		gone := now == nil || now.CreatedIn != d.sub.CreatedIn
		if !gone && !now.Paused && !d.ended() {
			continue
		}
		lost := d.ended()
		d.stop()
		delete(b.running, name)
		switch {
		case gone:
			if err := b.cursors.remove(ctx, cursorName(d.sub)); err != nil {
				return err
			}
		case lost:
			b.cursors.forget(cursorName(d.sub))
		}
	}
	asked, err := b.asked(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, sub := range s.List {
		if sub.Paused {
			continue // what is asked of it meanwhile is done once it goes on
		}
		if err := b.run(ctx, sub, asked[sub.Name]); err != nil {
			errs = append(errs, err)
			if b.running[sub.Name] == nil {
				b.cursors.forget(cursorName(sub)) // it is read anew
			}
			if errors.Is(err, events.ErrUnavailable) {
				break
			}
		}
	}
	return errors.Join(errs...)
}

// run has a subscription delivered, and acts on what was asked of it since. Called
// with mu held.
func (b *Bus) run(ctx context.Context, sub projections.Subscription, asked []request) error {
	cur, err := b.cursor(ctx, sub)
	if err != nil {
		return err
	}
	d := b.running[sub.Name]
	woken := false
	for _, a := range asked {
		if a.position <= max(cur.get().Acted, sub.CreatedIn) {
			continue
		}
		woken = true
		act := func(*cursorState) {}
		switch e := a.event.(type) {
		case events.SubscriptionReplayed:
			if e.After == nil {
				act = func(c *cursorState) { c.Replay = true }
				break
			}
			if d != nil { // it would move the cursor on from where it was
				d.stop()
				delete(b.running, sub.Name)
				d = nil
			}
			// Again is what was passed: nothing is left out by it.
			act = func(c *cursorState) { c.Position = min(c.Position, *e.After) }
		case events.SubscriptionParked:
			act = func(c *cursorState) {
				if c.Stuck == e.Event { // an event that is not tried yet may well be taken
					c.Skip = e.Event
				}
			}
		}
		// In one write: what is noted as acted on is done, by whoever goes on.
		if err := cur.change(ctx, true, func(c *cursorState) { act(c); c.Acted = a.position }); err != nil {
			return err
		}
	}
	if d != nil {
		if woken {
			d.wake()
		}
		return nil
	}
	if b.cfg.Shared != nil {
		// Written before anything is delivered: who delivered before cannot write it any
		// more, and if it is not the newest that was read, this is refused.
		if err := cur.change(ctx, true, func(c *cursorState) { c.Relay = b.relay }); err != nil {
			return err
		}
	}
	key, err := b.key()
	if err != nil {
		return err
	}
	d = &delivery{sub: sub, log: b.cfg.Ledger.Log(), cursor: cur, key: key, credential: os.Getenv, erased: b.erased, may: b.mine, logger: b.cfg.Logger}
	d.start(ctx)
	b.running[sub.Name] = d
	return nil
}

// erased reports whether the payload of the event at a position was erased.
func (b *Bus) erased(p events.Position) bool {
	_, ok := b.cfg.Ledger.State().Erasure(p)
	return ok
}

// Forget takes out of the cursors what destinations said of events whose payloads were
// erased: it may repeat them. When it returns nil, it is in no file any more.
func (b *Bus) Forget(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mine() {
		return nil // nothing is erased in a cluster
	}
	s, err := projections.LoadSubscriptions(ctx, b.cfg.Ledger.Log(), 0)
	if err != nil {
		return err
	}
	var errs []error
	for _, sub := range s.List {
		cur, err := b.cursor(ctx, sub)
		if _, bad := errors.AsType[*badCursorError](err); bad {
			continue // it does not read, which is told where it is used
		}
		if err == nil {
			if cur.repeats(b.erased) {
				cur.note(func(c *cursorState) { c.forget(b.erased) })
			}
			err = cur.flush(ctx) // also of a try that could not write it
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// cursor is that of a subscription.
func (b *Bus) cursor(ctx context.Context, sub projections.Subscription) (*cursor, error) {
	cur, err := b.cursors.get(ctx, cursorName(sub), sub.After)
	if err != nil || b.cfg.Shared != nil { // another relay may be ahead of this one's replica
		return cur, err
	}
	if p, end := cur.get().Position, b.cfg.Ledger.Log().Durable(); p > end {
		// What comes up to p would be left out, and nobody would miss it.
		return nil, &badCursorError{fmt.Sprintf("cursor %s stands at position %d, the log ends at %d: the log is an older copy, or another: remove the cursor in %s, and everything is delivered anew",
			cursorName(sub), p, end, b.cursors.where)}
	}
	return cur, nil
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
	// Relay is the relay of a cluster that delivers, or was the last to.
	Relay string
}

// Status returns how the delivery of a subscription stands. A relay that does not
// deliver knows it as it was last written.
func (b *Bus) Status(ctx context.Context, sub projections.Subscription) (Status, error) {
	var c cursorState
	if b.mine() {
		cur, err := b.cursor(ctx, sub)
		if bad, ok := errors.AsType[*badCursorError](err); ok {
			b.cfg.Logger.Error("nothing is delivered", "subscription", sub.Name, "error", bad)
			return Status{Head: b.cfg.Ledger.Log().Durable(), Failing: "its cursor cannot be used; the log of the relay says why, and what helps"}, nil
		}
		if err != nil {
			return Status{}, err
		}
		c = cur.get()
	} else {
		var err error
		if c, _, err = b.cursors.load(ctx, cursorName(sub), sub.After); err != nil {
			return Status{}, err
		}
	}
	s := Status{Position: c.Position, Head: b.cfg.Ledger.Log().Durable(), Delivered: c.Delivered, DeliveredAt: c.DeliveredAt, Parked: c.Parked,
		Failing: c.Failing, Stuck: c.Stuck, RetryAt: c.RetryAt}
	if b.cfg.Shared != nil {
		s.Relay = c.Relay
	}
	if s.Head > s.Position {
		s.Lag = s.Head - s.Position
	}
	return s, nil
}
