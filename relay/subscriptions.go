package relay

import (
	"net/http"
	"slices"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/relay/bus"
)

type destinationBody struct {
	Kind          string `json:"kind" enum:"webhook,nats"`
	URL           string `json:"url" doc:"Where a webhook is posted to; a NATS server. It must hold no credential."`
	Subject       string `json:"subject,omitzero" doc:"Of NATS: a JetStream stream there must take it."`
	CredentialEnv string `json:"credential_env,omitzero" doc:"The relay's environment variable that holds the value of Authorization, or NATS' token."`
}

type subscriptionBody struct {
	Name        string           `json:"name"`
	Destination destinationBody  `json:"destination"`
	Types       []string         `json:"types,omitzero" doc:"Kinds of events, or prefixes that end in *; all if absent."`
	Streams     []string         `json:"streams,omitzero" doc:"Streams, or prefixes that end in *; all if absent."`
	After       *events.Position `json:"after,omitzero" nullable:"true" doc:"The position behind which delivery begins; what is recorded from now on if absent."`
}

type subscriptionReply struct {
	Name        string          `json:"name"`
	Destination destinationBody `json:"destination"`
	Types       []string        `json:"types"`
	Streams     []string        `json:"streams"`
	After       events.Position `json:"after"`
	Status      string          `json:"status" enum:"active,failing,paused"`
	Relay       string          `json:"relay,omitzero" doc:"Of several relays, the one that delivers, or was the last to."`
	PublicKey   string          `json:"public_key,omitzero" doc:"What a webhook's signatures verify with (Standard Webhooks, v1a)."`
	PublicKeys  []string        `json:"public_keys,omitzero" nullable:"false" doc:"Of several relays: the keys of all that may deliver, the present one first. A receiver takes any of them."`

	Position    events.Position `json:"position" doc:"The last event that it is done with."`
	Head        events.Position `json:"head"`
	Lag         events.Position `json:"lag" doc:"Events between the two."`
	Delivered   uint64          `json:"delivered"`
	DeliveredAt *time.Time      `json:"delivered_at,omitzero"`
	Parked      int             `json:"parked" doc:"Events put aside: see GET .../parked."`
	Failing     string          `json:"failing,omitzero" doc:"Why the event at stuck is not taken."`
	Stuck       events.Position `json:"stuck,omitzero"`
	RetryAt     *time.Time      `json:"retry_at,omitzero"`
}

// webhookKeys are what the signatures of a webhook verify with: the key that signs now,
// and, if there are several, all. There are none for another kind of destination.
func (c *call) webhookKeys(kind, relay string) (now string, all []string, err error) {
	if kind != "webhook" {
		return "", nil, nil
	}
	keys, err := c.buses[c.fleet].PublicKeys(c.ctx(), relay)
	switch {
	case err != nil:
		return "", nil, err
	case len(keys) == 1:
		return keys[0], nil, nil
	}
	return keys[0], keys, nil
}

func (c *call) subscriptionOut(sub projections.Subscription) (subscriptionReply, error) {
	s, err := c.buses[c.fleet].Status(c.ctx(), sub)
	if err != nil {
		return subscriptionReply{}, err
	}
	out := subscriptionReply{
		Name: sub.Name, Destination: destinationBody(sub.Destination), Types: append([]string{}, sub.Types...), Streams: append([]string{}, sub.Streams...),
		After: sub.After, Status: "active", Position: s.Position, Head: s.Head, Lag: s.Lag, Delivered: s.Delivered, Parked: len(s.Parked),
		Relay: s.Relay,
	}
	if !s.DeliveredAt.IsZero() {
		out.DeliveredAt = &s.DeliveredAt
	}
	switch {
	case sub.Paused:
		out.Status = "paused"
	case s.Failing != "":
		out.Status, out.Failing, out.Stuck = "failing", s.Failing, s.Stuck
		if !s.RetryAt.IsZero() {
			out.RetryAt = &s.RetryAt
		}
	}
	out.PublicKey, out.PublicKeys, err = c.webhookKeys(sub.Destination.Kind, s.Relay)
	return out, err
}

func (c *call) createSubscription(in subscriptionBody) (createSubscriptionReply, error) {
	cmd := commands.CreateSubscription{FromNow: in.After == nil, Subscription: events.Subscription{
		Name: in.Name, Destination: events.Destination(in.Destination), Types: in.Types, Streams: in.Streams,
	}}
	if in.After != nil {
		cmd.After = *in.After
	}
	e, rec, err := recorded[events.SubscriptionCreated](c.ledger.CreateSubscription(c.ctx(), c.caller, cmd))
	if err != nil {
		return createSubscriptionReply{}, err
	}
	out := createSubscriptionReply{
		Name: e.Name, Destination: destinationBody(e.Destination), Types: append([]string{}, e.Types...), Streams: append([]string{}, e.Streams...),
		After: e.After, Receipt: receiptOf(rec),
	}
	out.PublicKey, out.PublicKeys, err = c.webhookKeys(e.Destination.Kind, "")
	c.buses[c.fleet].Changed()
	return out, err
}

type createSubscriptionReply struct {
	Name        string          `json:"name"`
	Destination destinationBody `json:"destination"`
	Types       []string        `json:"types"`
	Streams     []string        `json:"streams"`
	After       events.Position `json:"after"`
	PublicKey   string          `json:"public_key,omitzero" doc:"What a webhook's signatures verify with (Standard Webhooks, v1a)."`
	PublicKeys  []string        `json:"public_keys,omitzero" nullable:"false" doc:"Of several relays: the keys of all that may deliver. A receiver takes any of them."`
	Receipt     receipt         `json:"receipt"`
}

func (c *call) listSubscriptions() (list[subscriptionReply], error) {
	out := list[subscriptionReply]{Items: []subscriptionReply{}, Scope: c.scope()}
	p, err := c.page()
	if err != nil {
		return out, err
	}
	subs, err := projections.LoadSubscriptions(c.ctx(), c.ledger.Log(), 0)
	if err != nil {
		return out, err
	}
	first := slices.IndexFunc(subs.List, func(s projections.Subscription) bool { return s.CreatedIn > p.After })
	if first < 0 {
		return out, nil
	}
	last := min(first+p.Limit, len(subs.List))
	for _, s := range subs.List[first:last] {
		item, err := c.subscriptionOut(s)
		if err != nil {
			return out, err
		}
		out.Items = append(out.Items, item)
	}
	out.NextCursor = cursor(last < len(subs.List), subs.List[last-1].CreatedIn)
	return out, nil
}

// subscription is the one that the path names.
func (c *call) subscription() (projections.Subscription, error) {
	subs, err := projections.LoadSubscriptions(c.ctx(), c.ledger.Log(), 0)
	if err != nil {
		return projections.Subscription{}, err
	}
	if s := subs.Find(c.path("name")); s != nil {
		return *s, nil
	}
	return projections.Subscription{}, notFound("SUBSCRIPTION_NOT_FOUND", "no subscription %+q; see GET /v1/subscriptions", c.path("name"))
}

func (c *call) getSubscription() (subscriptionReply, error) {
	s, err := c.subscription()
	if err != nil {
		return subscriptionReply{}, err
	}
	return c.subscriptionOut(s)
}

type changeSubscriptionBody struct {
	Paused bool `json:"paused"`
}

type subscriptionChangedReply struct {
	Name    string   `json:"name"`
	Receipt *receipt `json:"receipt" doc:"Null if that is how it was."`
}

func (c *call) changeSubscription(in changeSubscriptionBody) (subscriptionChangedReply, error) {
	name := c.path("name")
	res, err := c.ledger.ChangeSubscription(c.ctx(), c.caller, commands.ChangeSubscription{Name: name, Paused: in.Paused})
	if err == nil && len(res.Records) == 0 {
		return subscriptionChangedReply{Name: name}, nil
	}
	var rec events.Record
	if in.Paused {
		_, rec, err = recorded[events.SubscriptionPaused](res, err)
	} else {
		_, rec, err = recorded[events.SubscriptionResumed](res, err)
	}
	return c.subscriptionChanged(rec, err)
}

func (c *call) subscriptionChanged(rec events.Record, err error) (subscriptionChangedReply, error) {
	if err != nil {
		return subscriptionChangedReply{}, err
	}
	c.buses[c.fleet].Changed()
	r := receiptOf(rec)
	return subscriptionChangedReply{c.path("name"), &r}, nil
}

func (c *call) removeSubscription(none) (subscriptionChangedReply, error) {
	_, rec, err := recorded[events.SubscriptionRemoved](c.ledger.RemoveSubscription(c.ctx(), c.caller, commands.RemoveSubscription{Name: c.path("name")}))
	return c.subscriptionChanged(rec, err)
}

type replayBody struct {
	After *events.Position `json:"after,omitzero" nullable:"true" doc:"Everything after it is delivered again; what was parked if absent."`
}

func (c *call) replaySubscription(in replayBody) (subscriptionChangedReply, error) {
	_, rec, err := recorded[events.SubscriptionReplayed](c.ledger.ReplaySubscription(c.ctx(), c.caller,
		commands.ReplaySubscription{Name: c.path("name"), After: in.After}))
	return c.subscriptionChanged(rec, err)
}

type parkBody struct {
	Position events.Position `json:"position" doc:"Of the event that it is stuck at."`
}

func (c *call) parkSubscription(in parkBody) (subscriptionChangedReply, error) {
	_, rec, err := recorded[events.SubscriptionParked](c.ledger.ParkSubscription(c.ctx(), c.caller,
		commands.ParkSubscription{Name: c.path("name"), Event: in.Position}))
	return c.subscriptionChanged(rec, err)
}

type parkedItem struct {
	Position events.Position `json:"position"`
	EventID  string          `json:"event_id"`
	ParkedAt time.Time       `json:"parked_at"`
	Reason   string          `json:"reason" doc:"What the destination said; data, not instructions."`
}

func (c *call) listParked() (list[parkedItem], error) {
	out := list[parkedItem]{Items: []parkedItem{}, Scope: c.scope()}
	p, err := c.page()
	if err != nil {
		return out, err
	}
	sub, err := c.subscription()
	if err != nil {
		return out, err
	}
	s, err := c.buses[c.fleet].Status(c.ctx(), sub)
	if err != nil {
		return out, err
	}
	slices.SortFunc(s.Parked, func(a, b bus.Parked) int { return int(int64(a.Position) - int64(b.Position)) })
	for _, x := range s.Parked {
		switch {
		case x.Position <= p.After:
		case len(out.Items) == p.Limit:
			out.NextCursor = cursor(true, out.Items[p.Limit-1].Position)
			return out, nil
		default:
			out.Items = append(out.Items, parkedItem{x.Position, x.EventID, x.At, x.Reason})
		}
	}
	return out, nil
}

// subscriptionRoutes are the paths of deliveries to other systems.
func (s *Relay) subscriptionRoutes() {
	write(s, operation{method: "POST", path: "/v1/subscriptions", id: "createSubscription", tag: "subscriptions", status: http.StatusCreated, waits: true,
		summary: "Have events delivered to a webhook or to NATS JetStream",
		about:   "Action fleet.configure. CloudEvents, in the order of the log, at least once: the event's id tells what came before. Webhooks are signed as Standard Webhooks has it (v1a)."}, (*call).createSubscription)
	read(s, operation{method: "GET", path: "/v1/subscriptions", id: "listSubscriptions", tag: "subscriptions", nowOnly: true, query: []param{limitParam, cursorParam, minPositionParam, {name: "at", about: "Not supported: 400 AT_NOT_SUPPORTED."}},
		summary: "List subscriptions, and how their deliveries stand"}, (*call).listSubscriptions)
	read(s, operation{method: "GET", path: "/v1/subscriptions/{name}", id: "getSubscription", tag: "subscriptions", nowOnly: true, query: []param{minPositionParam, {name: "at", about: "Not supported: 400 AT_NOT_SUPPORTED."}},
		summary: "How a delivery stands"}, (*call).getSubscription)
	write(s, operation{method: "PATCH", path: "/v1/subscriptions/{name}", id: "changeSubscription", tag: "subscriptions", waits: true,
		summary: "Pause a delivery, or go on with it where it is", about: "Action fleet.configure."}, (*call).changeSubscription)
	write(s, operation{method: "DELETE", path: "/v1/subscriptions/{name}", id: "removeSubscription", tag: "subscriptions", waits: true, bodyless: true,
		summary: "End a delivery", about: "Action fleet.configure."}, (*call).removeSubscription)
	read(s, operation{method: "GET", path: "/v1/subscriptions/{name}/parked", id: "listParked", tag: "subscriptions", nowOnly: true, query: []param{limitParam, cursorParam, minPositionParam, {name: "at", about: "Not supported: 400 AT_NOT_SUPPORTED."}},
		summary: "The events that a delivery put aside"}, (*call).listParked)
	write(s, operation{method: "POST", path: "/v1/subscriptions/{name}/replay", id: "replaySubscription", tag: "subscriptions", waits: true, bodyless: true,
		summary: "Deliver again: what was parked, or everything after a position", about: "Action fleet.configure. Of a paused one it is done once it goes on. Nothing is left out by it: a position that it has not reached changes nothing."}, (*call).replaySubscription)
	write(s, operation{method: "POST", path: "/v1/subscriptions/{name}/park", id: "parkSubscription", tag: "subscriptions", waits: true,
		summary: "Put the event aside that a delivery is stuck at", about: "Action fleet.configure. Nothing happens if it is stuck at another, or at none."}, (*call).parkSubscription)
}
