package main

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
)

func (a *app) eventsCommand() *cobra.Command {
	return a.group("events", "The record itself, event by event", `  fleetledger events tail --follow`,
		a.eventsTailCommand(), a.eventsAppendCommand(), a.eventsEraseCommand())
}

// tailEvents is how many of the newest events are shown when none is named.
const tailEvents = 20

func (a *app) eventsTailCommand() *cobra.Command {
	var follow bool
	var after uint64
	var stream, kind string
	cmd := &cobra.Command{
		Use:   "tail [--follow] [--after N] [--type KIND] [--stream S]",
		Short: "Show events in the order of the record",
		Long: `Show events in the order of the record: the newest ` + strconv.Itoa(tailEvents) + `, or with --type, --stream or
--after all there are from that position on. --follow goes on with what is recorded
from now on, through restarts of the server. With --json each event is one line.`,
		Example: `  fleetledger events tail --follow --type task.settled`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			if !cmd.Flags().Changed("after") && stream == "" && kind == "" {
				if after, err = headLess(cmd, c, tailEvents); err != nil {
					return a.unanswered(err)
				}
			}
			q := url.Values{"after": {strconv.FormatUint(after, 10)}}
			setQuery(q, "stream", stream)
			setQuery(q, "type", kind)
			if follow {
				return a.followEvents(cmd, c, q)
			}
			return a.unanswered(a.listEvents(cmd, c, q))
		}),
	}
	flags := cmd.Flags()
	flags.BoolVar(&follow, "follow", false, "go on with what comes")
	flags.Uint64Var(&after, "after", 0, "only events behind this position")
	flags.StringVar(&kind, "type", "", "only events of this kind")
	flags.StringVar(&stream, "stream", "", "only events of this stream")
	return cmd
}

// headLess is the position n events before the newest.
func headLess(cmd *cobra.Command, c *agent.Client, n uint64) (uint64, error) {
	resp, err := c.Get(cmd.Context(), "/v1/events", url.Values{"limit": {"1"}})
	if err != nil {
		return 0, err
	}
	head, err := strconv.ParseUint(resp.Header.Get("Ledger-Position"), 10, 64)
	if err != nil {
		return 0, errors.New("the relay's answer has no Ledger-Position: client and relay may be of different versions")
	}
	return head - min(head, n), nil
}

func (a *app) listEvents(cmd *cobra.Command, c *agent.Client, q url.Values) error {
	for {
		resp, err := c.Get(cmd.Context(), "/v1/events", q)
		if err != nil {
			return err
		}
		var list page[jsontext.Value]
		if err := resp.Decode(&list); err != nil {
			return err
		}
		for _, raw := range list.Items {
			if err := a.showEvent(raw); err != nil {
				return err
			}
		}
		if list.NextCursor == nil {
			return nil
		}
		q.Set("cursor", *list.NextCursor)
	}
}

func (a *app) followEvents(cmd *cobra.Command, c *agent.Client, q url.Values) error {
	err := c.Subscribe(cmd.Context(), agent.Subscription{
		Path: "/v1/events/stream", Query: q,
		Lost: func(err error, wait time.Duration) {
			printer{a.err}.f("%s; next try in %d ms\n", err, wait.Milliseconds())
		},
	}, func(e agent.ServerEvent) error { return a.showEvent(e.Data) })
	if cmd.Context().Err() != nil {
		return nil // the user has seen enough
	}
	return a.unanswered(err)
}

// maxShown bounds how much of an event's data is shown on its line.
const maxShown = 100

func (a *app) showEvent(raw jsontext.Value) error {
	if a.json {
		return a.printJSON(raw)
	}
	var e storedEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	data := []rune(string(e.Data))
	text := string(data[:min(len(data), maxShown)])
	if e.Erased {
		text = e.erased()
	}
	if len(data) > maxShown {
		text += "..."
	}
	printer{a.out}.f("%6d  %s  %s  %s  %s  %s\n", uint64(e.Position), when(e.Time), e.Actor, e.Type, e.Stream, text)
	return a.out.err // there is no end of events
}

// cloudEvent is the body of POST /v1/events (CloudEvents 1.0, JSON format).
type cloudEvent struct {
	SpecVersion      string         `json:"specversion"`
	ID               string         `json:"id"`
	Source           string         `json:"source"`
	Type             string         `json:"type"`
	Subject          string         `json:"subject"`
	Data             jsontext.Value `json:"data,omitzero"`
	ExpectedRevision *uint64        `json:"expectedrevision,omitzero"`
}

func (a *app) eventsAppendCommand() *cobra.Command {
	body := cloudEvent{SpecVersion: "1.0"}
	var data string
	var expected uint64
	cmd := &cobra.Command{
		Use:   "append --type ext.KIND --stream ext-NAME [--data JSON|-]",
		Short: "Record an event of your own",
		Long: strings.TrimSpace(`
Record an event of your own: its type starts with "ext.", its stream with "ext-".
--data is any JSON, "-" reads it from stdin. The same --id with the same content is
recorded once; --expected-revision refuses it if the stream has moved on.`),
		Example: `  fleetledger events append --type ext.deploy.finished --stream ext-web --data '{"version":"1.4"}'`,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			var err error
			if data == "-" {
				body.Data, err = a.readInput(data)
			} else {
				body.Data, err = jsonFlag("--data", data)
			}
			if err != nil {
				return err
			}
			if body.ID == "" {
				body.ID = agent.NewKey()
			}
			if cmd.Flags().Changed("expected-revision") {
				body.ExpectedRevision = &expected
			}
			return a.request(cmd, agent.Request{
				Method: http.MethodPost, Path: "/v1/events", Body: body, ContentType: "application/cloudevents+json", ApprovalID: approvalOf(cmd),
			}, func(p printer, r *agent.Response) error {
				var answer struct {
					Receipt struct {
						Position uint64 `json:"position"`
						Stream   string `json:"stream"`
						Revision uint64 `json:"revision"`
					} `json:"receipt"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				p.f("recorded at position %d, as revision %d of %s\n", answer.Receipt.Position, answer.Receipt.Revision, answer.Receipt.Stream)
				return nil
			})
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&body.Type, "type", "", "kind of the event, under ext.")
	flags.StringVar(&body.Subject, "stream", "", "stream it goes into, ext-...")
	flags.StringVar(&body.ID, "id", "", "its id (default: a new one)")
	flags.StringVar(&body.Source, "source", "fleetledger", "where it comes from")
	flags.StringVar(&data, "data", "", "its content: JSON, or - for stdin")
	flags.Uint64Var(&expected, "expected-revision", 0, "revision that the stream must be at")
	_ = cmd.MarkFlagRequired("type") // they exist
	_ = cmd.MarkFlagRequired("stream")
	return spends(cmd)
}

func (a *app) eventsEraseCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "erase EVENT --reason TEXT",
		Short: "Erase the payload of an event, for good",
		Long: strings.TrimSpace(`
Erase what an event says: a secret that leaked, or what a person wants gone. The event
itself stays, with its hash, its place and every proof, and the record keeps who
erased it and why. The payload goes from every view and answer, also from those as of
an earlier position, and from the server's files before this command returns.

Authority, gates and approvals cannot be erased, since decisions rest on them; what
belongs to a task can be once the task is settled. With a block goes what its
receivers took of it. What else says the same is erased by itself: a command is repeated in conclusions about it, in the memory of its
machine, and, where it waited for one, in its approval, which stays. Machines, backups
and files that were exported keep what they have.`),
		Example: `  fleetledger events erase 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 --reason 'a password was in it'`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			body := struct {
				Reason string `json:"reason"`
			}{reason}
			return a.request(cmd, agent.Request{
				Method: http.MethodPost, Path: agent.Path("v1", "events", args[0], "erase"), Body: body, Key: agent.NewKey(), ApprovalID: approvalOf(cmd),
			}, func(p printer, r *agent.Response) error {
				var answer struct {
					Type     string   `json:"type"`
					Position uint64   `json:"position"`
					Copies   []string `json:"copies"`
					Receipt  struct {
						Position uint64 `json:"position"`
					} `json:"receipt"`
				}
				if err := r.Decode(&answer); err != nil {
					return err
				}
				p.f("the payload of %s at position %d is erased; position %d says so\n", answer.Type, answer.Position, answer.Receipt.Position)
				for _, id := range answer.Copies {
					p.f("and that of event %s, which repeated it\n", id)
				}
				return nil
			})
		}),
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; it is kept in the record")
	_ = cmd.MarkFlagRequired("reason") // it exists
	return spends(cmd)
}
