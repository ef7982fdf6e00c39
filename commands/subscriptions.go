package commands

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"fleetledger/events"
	"fleetledger/events/secrets"
	"fleetledger/projections"
)

// CreateSubscription has events delivered to another system.
type CreateSubscription struct {
	events.Subscription
	// FromNow has delivery begin with what is recorded after this; After is not
	// looked at then.
	FromNow bool `json:"from_now,omitzero"`
}

const (
	maxSubscriptions       = 100
	maxSubscriptionFilters = 50
)

// CreateSubscription carries out c. Refusals: INVALID, SECRET_IN_COMMAND,
// SUBSCRIPTION_EXISTS, SUBSCRIPTIONS_LIMITED, and what gates answer.
func (l *Ledger) CreateSubscription(ctx context.Context, caller Caller, c CreateSubscription) (Result, error) {
	return l.onSubscriptions(ctx, caller, func(v view, s *projections.Subscriptions) (decided, error) {
		if err := c.check(l.log.Durable()); err != nil {
			return decided{}, err
		}
		switch {
		case s.Find(c.Name) != nil:
			return decided{}, refuse(Conflict, "SUBSCRIPTION_EXISTS", "there is a subscription %s; remove it first, or choose another name", c.Name)
		case len(s.List) >= maxSubscriptions:
			return decided{}, refuse(Impossible, "SUBSCRIPTIONS_LIMITED", "there are %d subscriptions, at most %d are run: remove one first", len(s.List), maxSubscriptions).
				With("limit", maxSubscriptions)
		}
		sub := c.Subscription
		if c.FromNow {
			sub.After = l.log.Durable()
		}
		return v.gated([]string{"fleet.configure"}, named("subscription.create", c), func(permits []events.Permit, d *decided) {
			d.add(events.SubscriptionsStream, v.newID(), events.SubscriptionCreated{Subscription: sub, Permit: permits[0]})
		})
	})
}

// ChangeSubscription pauses a delivery or goes on with it.
type ChangeSubscription struct {
	Name   string `json:"name"`
	Paused bool   `json:"paused"`
}

// ChangeSubscription carries out c. What changes nothing records nothing.
// Refusals: SUBSCRIPTION_NOT_FOUND, and what gates answer.
func (l *Ledger) ChangeSubscription(ctx context.Context, caller Caller, c ChangeSubscription) (Result, error) {
	return l.onSubscriptions(ctx, caller, func(v view, s *projections.Subscriptions) (decided, error) {
		sub := s.Find(c.Name)
		if sub == nil {
			return decided{}, noSubscription(c.Name)
		}
		if sub.Paused == c.Paused {
			return decided{}, nil
		}
		return v.gated([]string{"fleet.configure"}, named("subscription.change", c), func(permits []events.Permit, d *decided) {
			if c.Paused {
				d.add(events.SubscriptionsStream, v.newID(), events.SubscriptionPaused{Name: c.Name, Permit: permits[0]})
			} else {
				d.add(events.SubscriptionsStream, v.newID(), events.SubscriptionResumed{Name: c.Name, Permit: permits[0]})
			}
		})
	})
}

// RemoveSubscription ends a delivery.
type RemoveSubscription struct {
	Name string `json:"name"`
}

// RemoveSubscription carries out c. Refusals: SUBSCRIPTION_NOT_FOUND, and what
// gates answer.
func (l *Ledger) RemoveSubscription(ctx context.Context, caller Caller, c RemoveSubscription) (Result, error) {
	return l.onSubscriptions(ctx, caller, func(v view, s *projections.Subscriptions) (decided, error) {
		if s.Find(c.Name) == nil {
			return decided{}, noSubscription(c.Name)
		}
		return v.gated([]string{"fleet.configure"}, named("subscription.remove", c), func(permits []events.Permit, d *decided) {
			d.add(events.SubscriptionsStream, v.newID(), events.SubscriptionRemoved{Name: c.Name, Permit: permits[0]})
		})
	})
}

// ReplaySubscription has a delivery made again.
type ReplaySubscription struct {
	Name string `json:"name"`
	// After is the position to begin behind; nil has what was parked delivered.
	After *events.Position `json:"after,omitzero"`
}

// ReplaySubscription records c; whoever runs the delivery acts on it. Refusals:
// SUBSCRIPTION_NOT_FOUND, INVALID, and what gates answer.
func (l *Ledger) ReplaySubscription(ctx context.Context, caller Caller, c ReplaySubscription) (Result, error) {
	return l.onSubscriptions(ctx, caller, func(v view, s *projections.Subscriptions) (decided, error) {
		if s.Find(c.Name) == nil {
			return decided{}, noSubscription(c.Name)
		}
		if head := l.log.Durable(); c.After != nil && *c.After > head {
			return decided{}, invalid(problem("/after", "OUT_OF_RANGE", "the log ends at position %d", head))
		}
		return v.gated([]string{"fleet.configure"}, named("subscription.replay", c), func(permits []events.Permit, d *decided) {
			d.add(events.SubscriptionsStream, v.newID(), events.SubscriptionReplayed{Name: c.Name, After: c.After, Permit: permits[0]})
		})
	})
}

// ParkSubscription puts the event aside that a delivery is stuck at.
type ParkSubscription struct {
	Name  string          `json:"name"`
	Event events.Position `json:"event"`
}

// ParkSubscription records c; whoever runs the delivery acts on it. Refusals:
// SUBSCRIPTION_NOT_FOUND, and what gates answer.
func (l *Ledger) ParkSubscription(ctx context.Context, caller Caller, c ParkSubscription) (Result, error) {
	return l.onSubscriptions(ctx, caller, func(v view, s *projections.Subscriptions) (decided, error) {
		if s.Find(c.Name) == nil {
			return decided{}, noSubscription(c.Name)
		}
		return v.gated([]string{"fleet.configure"}, named("subscription.park", c), func(permits []events.Permit, d *decided) {
			d.add(events.SubscriptionsStream, v.newID(), events.SubscriptionParked{Name: c.Name, Event: c.Event, Permit: permits[0]})
		})
	})
}

// onSubscriptions makes a decision rest on the subscriptions there are.
func (l *Ledger) onSubscriptions(ctx context.Context, caller Caller, decide func(view, *projections.Subscriptions) (decided, error)) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		s, err := projections.LoadSubscriptions(ctx, l.log, 0)
		if err != nil {
			return decided{}, err
		}
		d, err := decide(v, s)
		d.expect = append(d.expect, events.Expectation{Stream: events.SubscriptionsStream, Revision: s.Revision})
		return d, err
	})
}

func noSubscription(name string) *Refusal {
	return refuse(NotFound, "SUBSCRIPTION_NOT_FOUND", "no subscription %q; see GET /v1/subscriptions", name)
}

var (
	natsSubject = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	envName     = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

// serversOwn are the variables that the server takes credentials of its own from: whoever
// configures one fleet may not have them sent.
var serversOwn = []string{"FLEETLEDGER_TOKEN", "FLEETLEDGER_ENGINE"}

func (c CreateSubscription) check(head events.Position) error {
	var bad []events.Problem
	if !events.ValidID(c.Name) {
		bad = append(bad, badID("/name", c.Name))
	}
	bad = append(bad, checkDestination(c.Destination)...)
	for _, l := range []struct {
		path  string
		names []string
	}{{"/types", c.Types}, {"/streams", c.Streams}} {
		if len(l.names) > maxSubscriptionFilters {
			bad = append(bad, problem(l.path, "TOO_MANY", "at most %d", maxSubscriptionFilters))
			continue
		}
		for i, n := range l.names {
			rest := strings.TrimSuffix(n, "*")
			// No kind has a * in it, and some streams do.
			if n == "" || rest != "" && events.CheckName("name", rest) != nil || l.path == "/types" && strings.Contains(rest, "*") {
				bad = append(bad, problem(fmt.Sprintf("%s/%d", l.path, i), "INVALID", "%q is neither a name nor a prefix that ends in *", n))
			}
		}
	}
	if !c.FromNow && c.After > head {
		bad = append(bad, problem("/after", "OUT_OF_RANGE", "the log ends at position %d", head))
	}
	if len(bad) > 0 {
		return invalid(bad...)
	}
	texts := []text{{"/name", c.Name}, {"/destination/subject", c.Destination.Subject}, {"/destination/credential_env", c.Destination.CredentialEnv}}
	for i, n := range c.Types {
		texts = append(texts, text{fmt.Sprintf("/types/%d", i), n})
	}
	for i, n := range c.Streams {
		texts = append(texts, text{fmt.Sprintf("/streams/%d", i), n})
	}
	return noSecretsInText("the subscription", texts...)
}

func checkDestination(d events.Destination) []events.Problem {
	var bad []events.Problem
	u, err := url.Parse(d.URL)
	schemes := map[string][]string{"webhook": {"http", "https"}, "nats": {"nats", "tls"}}[d.Kind]
	switch {
	case schemes == nil:
		return []events.Problem{problem("/destination/kind", "UNKNOWN_VALUE", "%q is neither webhook nor nats", d.Kind)}
	case err != nil || u.Host == "" || u.Scheme != schemes[0] && u.Scheme != schemes[1] || len(d.URL) > 2048:
		bad = append(bad, problem("/destination/url", "INVALID", "it looks like %s://host/...", strings.Join(schemes, ":// or ")))
	case u.User != nil || len(secrets.Find(d.URL)) > 0:
		bad = append(bad, problem("/destination/url", "SECRET_IN_COMMAND", "it holds a credential, which would be recorded for ever: name the relay's environment variable that holds it in credential_env"))
	case u.Fragment != "":
		bad = append(bad, problem("/destination/url", "INVALID", "a fragment is never sent"))
	}
	switch {
	case d.Kind == "nats" && (len(d.Subject) > 256 || !natsSubject.MatchString(d.Subject)):
		bad = append(bad, problem("/destination/subject", "INVALID", "NATS needs a subject: words of letters, digits, - and _, joined by dots"))
	case d.Kind != "nats" && d.Subject != "":
		bad = append(bad, problem("/destination/subject", "INVALID", "only NATS has subjects"))
	}
	switch {
	case d.CredentialEnv == "":
	case !envName.MatchString(d.CredentialEnv):
		bad = append(bad, problem("/destination/credential_env", "INVALID", "it is the name of an environment variable"))
	case slices.ContainsFunc(serversOwn, func(name string) bool { return strings.EqualFold(name, d.CredentialEnv) }): // Windows' names have no case
		bad = append(bad, problem("/destination/credential_env", "INVALID", "%s is the relay's own, and is sent nowhere", d.CredentialEnv))
	}
	return bad
}
