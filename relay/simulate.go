package relay

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/commands/gate"
	"fleetledger/events"
)

// simulateBody asks what would be decided, or would have been.
type simulateBody struct {
	Rules   []jsontext.Value `json:"rules,omitzero" doc:"The whole proposed list, in order; the rules in force if absent."`
	History bool             `json:"history,omitzero" doc:"Decide every recorded decision again."`
	Action  string           `json:"action,omitzero"`
	Actor   string           `json:"actor,omitzero" doc:"Decide this action of this actor, as things stand; the caller if absent."`
	After   events.Position  `json:"after,omitzero" doc:"Leave out the decisions up to this position: the next_after of an answer before."`
	Limit   *int             `json:"limit,omitzero" minimum:"1" maximum:"1000" doc:"At most so many differences are listed; 1000 if absent. All are counted."`

	proposed commands.Simulate
}

func (b *simulateBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	if err := refuseNull(raw, "limit"); err != nil {
		return err
	}
	b.proposed.MaxDifferences, b.proposed.After = maxLimit, b.After
	if b.Limit != nil {
		if *b.Limit < 1 || *b.Limit > maxLimit {
			return malformed("LIMIT_OUT_OF_RANGE", "limit is %d: it is an integer from 1 to %d", *b.Limit, maxLimit).with("limit", maxLimit)
		}
		b.proposed.MaxDifferences = *b.Limit
	}
	if b.Action == "" && b.Actor != "" {
		return invalidFields(events.Problem{Path: "/action", Code: events.CodeRequired, Detail: "name the action that the actor is asked about"})
	}
	if b.Action == "" && !b.History {
		return invalidFields(events.Problem{Path: "/history", Code: events.CodeRequired, Detail: "ask about the history, or about an action"})
	}
	if b.Rules == nil {
		return nil
	}
	b.proposed.Rules = []events.Rule{}
	var bad []events.Problem
	for i, r := range b.Rules {
		rule, problems := gate.ParseRule(r)
		for _, p := range problems {
			p.Path = fmt.Sprintf("/rules/%d%s", i, p.Path)
			bad = append(bad, p)
		}
		b.proposed.Rules = append(b.proposed.Rules, rule)
	}
	if bad != nil {
		return &problem{status: http.StatusUnprocessableEntity, code: "RULE_MALFORMED",
			detail: "a proposed rule is malformed: it would deny everything that it covers", facts: facts{"problems": bad[:min(len(bad), events.MaxProblems)]}}
	}
	return nil
}

type simulateReply struct {
	One     *simulatedOne     `json:"one,omitzero" doc:"For an action and an actor."`
	History *simulatedHistory `json:"history,omitzero"`
}

type simulatedOne struct {
	InForce  events.Decision `json:"in_force"`
	Proposed events.Decision `json:"proposed"`
	Differs  bool            `json:"differs"`
}

type simulatedHistory struct {
	From        events.Position `json:"from"`
	To          events.Position `json:"to"`
	Decided     int             `json:"decided"`
	Differ      int             `json:"differ" doc:"How many would have been decided otherwise."`
	Differences []difference    `json:"differences" doc:"The first of them, oldest first."`
	// NextAfter goes on with the list.
	NextAfter *events.Position `json:"next_after" doc:"Where to go on if not all are listed; else null."`
}

type difference struct {
	Position events.Position `json:"position"`
	Action   string          `json:"action"`
	Actor    string          `json:"actor"`
	Was      events.Verdict  `json:"was"`
	WouldBe  events.Verdict  `json:"would_be"`
	Why      string          `json:"why"`
	Recorded events.Decision `json:"recorded"`
	Proposed events.Decision `json:"proposed" doc:"With the level and scopes that the actor had then."`
}

// simulate answers at once, or, to Accept: text/event-stream, with events
// "progress" and at last one "result".
func (c *call) simulate() error {
	var in simulateBody
	if err := c.readBody(&in); err != nil {
		return err
	}
	out := simulateReply{}
	var err error
	if out.One, err = c.simulatedOne(in); err != nil {
		return err
	}
	if !strings.Contains(c.r.Header.Get("Accept"), "text/event-stream") {
		if out.History, err = c.simulatedHistory(in, nil); err != nil {
			return err
		}
		c.reply(http.StatusOK, out)
		return nil
	}
	return c.stream(func(st *stream) error {
		head := st.ledger.Log().Durable()
		var lost, err error
		out.History, err = c.simulatedHistory(in, func(done events.Position) {
			if lost == nil {
				lost = st.event(done, "progress", map[string]events.Position{"done": done, "of": head})
			}
			if lost == nil {
				lost = st.flush()
			}
			if lost != nil {
				st.end(lost)
			}
		})
		if err != nil {
			return err
		}
		if err := st.event(head, "result", out); err != nil {
			return err
		}
		return st.flush()
	})
}

// simulatedOne answers about an action, if the caller asks about one.
func (c *call) simulatedOne(in simulateBody) (*simulatedOne, error) {
	if in.Action == "" {
		return nil, nil
	}
	if in.Actor == "" {
		in.Actor = c.token.Actor
	}
	inForce, proposed, err := c.ledger.SimulateOne(in.proposed, in.Action, in.Actor)
	if err != nil {
		return nil, err
	}
	return &simulatedOne{inForce, proposed, inForce.Verdict != proposed.Verdict}, nil
}

// simulatedHistory answers about the history, if the caller asks about it.
func (c *call) simulatedHistory(in simulateBody, progress func(events.Position)) (*simulatedHistory, error) {
	if !in.History {
		return nil, nil
	}
	s, err := c.ledger.SimulateHistory(c.ctx(), in.proposed, progress)
	if err != nil {
		return nil, err
	}
	out := &simulatedHistory{From: in.After + 1, To: s.To, Decided: s.Decided, Differ: s.Differ, Differences: []difference{}}
	if n := len(s.Differences); n < s.Differ {
		out.NextAfter = &s.Differences[n-1].Position
	}
	for _, d := range s.Differences {
		// Allowed has no decisive rule: then the recorded one says what is gone.
		why := "every rule of the proposed list that covers it allows it"
		if d.WouldBe.Decisive != nil {
			why = d.WouldBe.Decisive.Reason
		}
		out.Differences = append(out.Differences, difference{
			d.Position, d.Was.Action, d.Was.Actor, d.Was.Verdict, d.WouldBe.Verdict, why, d.Was, d.WouldBe,
		})
	}
	return out, nil
}
