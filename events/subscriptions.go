package events

import "strings"

// SubscriptionsStream says where the fleet's events are sent.
const SubscriptionsStream Stream = "subscriptions"

// SubscriptionCreated has events of the fleet delivered to another system, in the
// order of the log and at least once.
type SubscriptionCreated struct {
	Subscription
	Permit Permit `json:"permit"`
}

// Subscription is a named delivery of events.
type Subscription struct {
	Name        string      `json:"name"`
	Destination Destination `json:"destination"`
	// Types and Streams are the names of those that are wanted, or prefixes that end
	// in "*"; all if there are none. An event is wanted if both lists want it.
	Types   []string `json:"types,omitzero"`
	Streams []string `json:"streams,omitzero"`
	// After is the position behind which delivery begins.
	After Position `json:"after"`
}

// Wants reports whether the subscription is for an event of this stream and kind.
func (s Subscription) Wants(h Header) bool {
	return named(s.Types, string(h.Type)) && named(s.Streams, string(h.Stream))
}

func named(list []string, name string) bool {
	for _, n := range list {
		prefix, isPrefix := strings.CutSuffix(n, "*")
		if n == name || isPrefix && strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return len(list) == 0
}

// Destination is where events are sent.
type Destination struct {
	// Kind is "webhook" or "nats".
	Kind string `json:"kind"`
	// URL of a webhook is where each event is posted; of NATS, that of a server.
	URL string `json:"url"`
	// Subject is that of NATS, which a JetStream stream there must take.
	Subject string `json:"subject,omitzero"`
	// CredentialEnv names the relay's environment variable that holds the credential;
	// the credential itself is never recorded.
	CredentialEnv string `json:"credential_env,omitzero"`
}

// SubscriptionPaused stops a delivery where it stands.
type SubscriptionPaused struct {
	Name   string `json:"name"`
	Permit Permit `json:"permit"`
}

// SubscriptionResumed goes on with it from there.
type SubscriptionResumed struct {
	Name   string `json:"name"`
	Permit Permit `json:"permit"`
}

// SubscriptionRemoved ends it.
type SubscriptionRemoved struct {
	Name   string `json:"name"`
	Permit Permit `json:"permit"`
}

// SubscriptionReplayed has a delivery made again: of everything after a position,
// or, without one, of what was parked.
type SubscriptionReplayed struct {
	Name   string    `json:"name"`
	After  *Position `json:"after,omitzero"`
	Permit Permit    `json:"permit"`
}

// SubscriptionParked puts the event aside that a delivery is stuck at.
type SubscriptionParked struct {
	Name string `json:"name"`
	// Event is the position of the event.
	Event  Position `json:"event"`
	Permit Permit   `json:"permit"`
}

func (SubscriptionCreated) Kind() Kind  { return "subscription.created" }
func (SubscriptionPaused) Kind() Kind   { return "subscription.paused" }
func (SubscriptionResumed) Kind() Kind  { return "subscription.resumed" }
func (SubscriptionRemoved) Kind() Kind  { return "subscription.removed" }
func (SubscriptionReplayed) Kind() Kind { return "subscription.replayed" }
func (SubscriptionParked) Kind() Kind   { return "subscription.parked" }
