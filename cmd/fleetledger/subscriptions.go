package main

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
)

// subscription is a delivery as the server shows it.
type subscription struct {
	Name        string          `json:"name"`
	Destination destinationBody `json:"destination"`
	Types       []string        `json:"types"`
	Streams     []string        `json:"streams"`
	After       uint64          `json:"after"`
	Status      string          `json:"status"`
	Relay       string          `json:"relay"`
	PublicKey   string          `json:"public_key"`
	PublicKeys  []string        `json:"public_keys"`
	Position    uint64          `json:"position"`
	Head        uint64          `json:"head"`
	Lag         uint64          `json:"lag"`
	Delivered   uint64          `json:"delivered"`
	DeliveredAt *time.Time      `json:"delivered_at"`
	Parked      int             `json:"parked"`
	Failing     string          `json:"failing"`
	Stuck       uint64          `json:"stuck"`
	RetryAt     *time.Time      `json:"retry_at"`
}

type destinationBody struct {
	Kind          string `json:"kind"`
	URL           string `json:"url"`
	Subject       string `json:"subject,omitzero"`
	CredentialEnv string `json:"credential_env,omitzero"`
}

func (d destinationBody) String() string {
	return strings.TrimSpace(d.Kind + " " + d.URL + " " + d.Subject)
}

func (a *app) subscriptionsCommand() *cobra.Command {
	list := pages(&cobra.Command{
		Use:     "list",
		Short:   "List the deliveries, and how they stand",
		Example: `  fleetledger subscriptions list`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.get(cmd, "/v1/subscriptions", pageQuery(cmd), func(p printer, r *agent.Response) error {
				var list page[subscription]
				if err := r.Decode(&list); err != nil {
					return err
				}
				rows := [][]string{{"NAME", "STATUS", "LAG", "DELIVERED", "PARKED", "DESTINATION"}}
				for _, s := range list.Items {
					rows = append(rows, []string{s.Name, s.Status, fmt.Sprint(s.Lag), fmt.Sprint(s.Delivered), fmt.Sprint(s.Parked), s.Destination.String()})
				}
				p.table(rows)
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	})
	show := &cobra.Command{
		Use:     "show NAME",
		Short:   "How a delivery stands: position, lag, what fails and why",
		Example: `  fleetledger subscriptions show builds`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.get(cmd, agent.Path("v1", "subscriptions", args[0]), nil, func(p printer, r *agent.Response) error {
				var s subscription
				if err := r.Decode(&s); err != nil {
					return err
				}
				s.show(p)
				return nil
			})
		}),
	}
	parked := pages(&cobra.Command{
		Use:     "parked NAME",
		Short:   "List the events that a delivery put aside, and why",
		Example: `  fleetledger subscriptions parked builds`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.get(cmd, agent.Path("v1", "subscriptions", args[0], "parked"), pageQuery(cmd), func(p printer, r *agent.Response) error {
				var list page[struct {
					Position uint64    `json:"position"`
					EventID  string    `json:"event_id"`
					ParkedAt time.Time `json:"parked_at"`
					Reason   string    `json:"reason"`
				}]
				if err := r.Decode(&list); err != nil {
					return err
				}
				rows := [][]string{{"POSITION", "EVENT", "PARKED", "REASON"}}
				for _, x := range list.Items {
					rows = append(rows, []string{fmt.Sprint(x.Position), x.EventID, x.ParkedAt.Format(time.RFC3339), x.Reason})
				}
				p.table(rows)
				a.showMore(cmd, list.NextCursor)
				return nil
			})
		}),
	})
	return a.group("subscriptions", "Deliver events to webhooks and to NATS JetStream",
		`  fleetledger subscriptions create builds --webhook https://ci.example/hook --type 'ext.build.*'
  fleetledger subscriptions list`,
		spends(a.createSubscriptionCommand()), list, show, parked,
		spends(a.changeSubscriptionCommand("pause", "Stop a delivery where it is", true)),
		spends(a.changeSubscriptionCommand("resume", "Go on with a delivery where it is", false)),
		spends(a.replaySubscriptionCommand()), spends(a.parkSubscriptionCommand()), spends(a.removeSubscriptionCommand()))
}

func (s subscription) show(p printer) {
	p.f("%s: %s, to %s\n", s.Name, s.Status, s.Destination)
	if len(s.Types) > 0 {
		p.f("  types     %s\n", strings.Join(s.Types, ", "))
	}
	if len(s.Streams) > 0 {
		p.f("  streams   %s\n", strings.Join(s.Streams, ", "))
	}
	p.f("  position  %d of %d, %d behind\n", s.Position, s.Head, s.Lag)
	p.f("  delivered %d", s.Delivered)
	if s.DeliveredAt != nil {
		p.f(", last at %s", s.DeliveredAt.Format(time.RFC3339))
	}
	p.f("\n")
	if s.Parked > 0 {
		p.f("  parked    %d; see: fleetledger subscriptions parked %s\n", s.Parked, s.Name)
	}
	if s.Failing != "" {
		p.f("  failing   at position %d: %s\n", s.Stuck, s.Failing)
		if s.RetryAt != nil {
			p.f("            tried again at %s\n", s.RetryAt.Format(time.RFC3339))
		}
	}
	if s.Relay != "" {
		p.f("  relay     %s\n", s.Relay)
	}
	if s.PublicKey != "" {
		p.f("  key       %s\n", s.PublicKey)
	}
	for _, k := range s.others() {
		p.f("  or        %s, of another relay\n", k)
	}
}

// others are the keys of the relays that do not deliver now.
func (s subscription) others() []string {
	if len(s.PublicKeys) == 0 {
		return nil
	}
	return s.PublicKeys[1:]
}

func (a *app) createSubscriptionCommand() *cobra.Command {
	var webhook, nats string
	var after uint64
	body := struct {
		Name        string          `json:"name"`
		Destination destinationBody `json:"destination"`
		Types       []string        `json:"types,omitzero"`
		Streams     []string        `json:"streams,omitzero"`
		After       *uint64         `json:"after,omitzero"`
	}{}
	cmd := &cobra.Command{
		Use:   "create NAME (--webhook URL | --nats URL --subject S) [--type T]... [--stream S]... [--after N]",
		Short: "Have events delivered, from now on or from a position",
		Long: strings.TrimSpace(`
Have events delivered to another system as CloudEvents, in the order of the log and at
least once: whoever may get one twice knows it by its id. A destination that is away
costs its own lag and nothing else.

A webhook is posted each event by itself and takes it with any 2xx. It is signed as
Standard Webhooks has it (v1a: Ed25519); the key to verify with is printed, and shown
by: fleetledger subscriptions show. Of several relays each has a key of its own, and the
receiver is given all of them. An event that it refuses with 400, 413, 415 or 422
three times is parked, and the next one sent.

NATS takes events on a subject, which a JetStream stream there must take.

A credential is never recorded: --credential-env names the variable of the server's
environment that holds it (the value of Authorization; for NATS the token). It may be
any but FLEETLEDGER_TOKEN and FLEETLEDGER_ENGINE: what those who configure a fleet may
not have sent does not belong there.`),
		Example: `  fleetledger subscriptions create builds --webhook https://ci.example/hook --type 'ext.build.*'
  fleetledger subscriptions create all --nats nats://127.0.0.1:4222 --subject fleet.events --after 0`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body.Name = args[0]
			switch {
			case (webhook == "") == (nats == ""):
				return misused("give --webhook URL or --nats URL")
			case webhook != "":
				body.Destination.Kind, body.Destination.URL = "webhook", webhook
			default:
				body.Destination.Kind, body.Destination.URL = "nats", nats
			}
			if cmd.Flags().Changed("after") {
				body.After = &after
			}
			return a.post(cmd, "/v1/subscriptions", body, func(p printer, r *agent.Response) error {
				var s subscription
				if err := r.Decode(&s); err != nil {
					return err
				}
				p.f("subscription %s delivers what comes after position %d to %s\n", s.Name, s.After, s.Destination)
				if s.PublicKey != "" {
					p.f("its signatures verify with %s\n", s.PublicKey)
				}
				for _, k := range s.others() {
					p.f("or, from another relay,    %s\n", k)
				}
				return nil
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&webhook, "webhook", "", "where each event is posted to")
	flags.StringVar(&nats, "nats", "", "NATS server")
	flags.StringVar(&body.Destination.Subject, "subject", "", "subject of NATS")
	flags.StringVar(&body.Destination.CredentialEnv, "credential-env", "", "variable of the server's environment that holds the credential")
	flags.StringArrayVar(&body.Types, "type", nil, "kind of events, or a prefix that ends in * (repeat; default: all)")
	flags.StringArrayVar(&body.Streams, "stream", nil, "stream, or a prefix that ends in * (repeat; default: all)")
	flags.Uint64Var(&after, "after", 0, "position behind which delivery begins (default: from now on)")
	return cmd
}

func (a *app) changeSubscriptionCommand(use, short string, paused bool) *cobra.Command {
	return &cobra.Command{
		Use:     use + " NAME",
		Short:   short,
		Example: `  fleetledger subscriptions ` + use + ` builds`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.request(cmd, agent.Request{
				Method: http.MethodPatch, Path: agent.Path("v1", "subscriptions", args[0]), Body: map[string]bool{"paused": paused}, ApprovalID: approvalOf(cmd),
			}, func(p printer, _ *agent.Response) error {
				p.f("subscription %s: %sd\n", args[0], use)
				return nil
			})
		}),
	}
}

func (a *app) replaySubscriptionCommand() *cobra.Command {
	var after uint64
	cmd := &cobra.Command{
		Use:   "replay NAME [--after N]",
		Short: "Deliver again: what was parked, or everything after a position",
		Example: `  fleetledger subscriptions replay builds
  fleetledger subscriptions replay builds --after 0`,
		Args: cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body := map[string]uint64{}
			what := "what was parked"
			if cmd.Flags().Changed("after") {
				body["after"], what = after, fmt.Sprintf("everything after position %d", after)
			}
			return a.post(cmd, agent.Path("v1", "subscriptions", args[0], "replay"), body, func(p printer, _ *agent.Response) error {
				p.f("subscription %s delivers %s again\n", args[0], what)
				return nil
			})
		}),
	}
	cmd.Flags().Uint64Var(&after, "after", 0, "position behind which everything is delivered again")
	return cmd
}

func (a *app) parkSubscriptionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "park NAME POSITION",
		Short:   "Put the event aside that a delivery is stuck at",
		Example: `  fleetledger subscriptions park builds 4711`,
		Args:    cobra.ExactArgs(2),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			var position uint64
			if _, err := fmt.Sscan(args[1], &position); err != nil {
				return misused("%q is not a position; see: fleetledger subscriptions show %s", args[1], args[0])
			}
			return a.post(cmd, agent.Path("v1", "subscriptions", args[0], "park"), map[string]uint64{"position": position}, func(p printer, _ *agent.Response) error {
				p.f("subscription %s: the event at position %d is parked if it is stuck there\n", args[0], position)
				return nil
			})
		}),
	}
}

func (a *app) removeSubscriptionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "remove NAME",
		Short:   "End a delivery; what it did stays in the record",
		Example: `  fleetledger subscriptions remove builds`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.request(cmd, agent.Request{
				Method: http.MethodDelete, Path: agent.Path("v1", "subscriptions", args[0]), ApprovalID: approvalOf(cmd),
			}, func(p printer, _ *agent.Response) error {
				p.f("subscription %s is removed\n", args[0])
				return nil
			})
		}),
	}
}
