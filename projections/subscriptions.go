package projections

import (
	"context"
	"slices"

	"fleetledger/events"
)

// Subscription is one that was created and not removed.
type Subscription struct {
	events.Subscription
	Paused    bool
	CreatedIn events.Position
}

// Subscriptions are those of a fleet.
type Subscriptions struct {
	// Revision is that of their stream.
	Revision events.Revision
	// List is in the order of creation.
	List []Subscription
}

// Find returns the one of this name, nil if there is none.
func (s *Subscriptions) Find(name string) *Subscription {
	i := slices.IndexFunc(s.List, func(x Subscription) bool { return x.Name == name })
	if i < 0 {
		return nil
	}
	return &s.List[i]
}

// LoadSubscriptions folds their stream up to position at (0: all of it). They are
// few, and nothing that is decided often looks at them.
func LoadSubscriptions(ctx context.Context, log events.Log, at events.Position) (*Subscriptions, error) {
	s := &Subscriptions{}
	for r, err := range log.ReadStream(ctx, events.SubscriptionsStream, 0) {
		if err != nil {
			return nil, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		e, err := events.Decode(r)
		if err != nil {
			return nil, err
		}
		s.Revision = r.Header.Revision
		switch e := e.(type) {
		case events.SubscriptionCreated:
			s.List = append(s.List, Subscription{Subscription: e.Subscription, CreatedIn: r.Header.Position})
		case events.SubscriptionPaused:
			s.Find(e.Name).Paused = true
		case events.SubscriptionResumed:
			s.Find(e.Name).Paused = false
		case events.SubscriptionRemoved:
			s.List = slices.DeleteFunc(s.List, func(x Subscription) bool { return x.Name == e.Name })
		}
	}
	return s, nil
}
