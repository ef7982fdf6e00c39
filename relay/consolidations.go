package relay

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
)

type consolidateBody struct {
	Text    string       `json:"text" doc:"What the records amount to, or why they are forgotten."`
	Records []string     `json:"records,omitzero" doc:"Ids of the records that it rests on, at most 256."`
	Forgets *forgetsBody `json:"forgets,omitzero" nullable:"false" doc:"What views leave out from now on, unless they are asked for it. The log keeps it."`
	Recalls string       `json:"recalls,omitzero" doc:"A consolidation that forgot something: it is shown again."`
}

// forgetsBody says what is forgotten: cited records, and those of a machine.
type forgetsBody struct {
	ForAll  bool       `json:"for_all,omitzero" doc:"Everybody's views leave it out, which takes action collective.revise too; else the caller's alone."`
	Cited   bool       `json:"cited,omitzero" doc:"The records cited."`
	Machine string     `json:"machine,omitzero" doc:"Records of this machine that are here by now."`
	Command string     `json:"command,omitzero" doc:"Of these, those of this command, as the answers show it."`
	Before  *time.Time `json:"before,omitzero" nullable:"false" doc:"Of these, those of runs that had ended before."`
}

func (b *consolidateBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	if err := refuseNull(raw, "forgets"); err != nil || b.Forgets == nil {
		return err
	}
	var members map[string]jsontext.Value
	if err := events.DecodeStrict(raw, &members); err != nil {
		return err
	}
	return refuseNullAt("/forgets", members["forgets"], "before")
}

// consolidationReply is what somebody said that records amount to.
type consolidationReply struct {
	ConsolidationID string             `json:"consolidation_id"`
	Text            string             `json:"text"`
	Records         []string           `json:"records" doc:"Those that it rests on."`
	Forgets         *events.Forgetting `json:"forgets" doc:"What views leave out by it; null if nothing."`
	Recalls         *string            `json:"recalls"`
	By              string             `json:"by"`
	At              time.Time          `json:"at"`
	Position        events.Position    `json:"position"`
}

func consolidationOut(x projections.Consolidation) consolidationReply {
	return consolidationReply{x.ID, x.Text, orEmpty(x.Records), x.Forgets, orNull(x.Recalls), x.By, x.At, x.Position}
}

type consolidateReply struct {
	ConsolidationID string             `json:"consolidation_id"`
	Consolidation   consolidationReply `json:"consolidation"`
	Receipt         receipt            `json:"receipt"`
}

func (c *call) consolidate(in consolidateBody) (out consolidateReply, err error) {
	cmd := commands.Consolidate{Text: in.Text, Records: in.Records, Recalls: in.Recalls}
	if f := in.Forgets; f != nil {
		cmd.Forgets = &events.Forgetting{ForAll: f.ForAll, Cited: f.Cited, Machine: f.Machine, Command: f.Command, Before: f.Before}
	}
	e, rec, err := recorded[events.MemoryConsolidated](c.ledger.Consolidate(c.ctx(), c.caller, cmd))
	if err != nil {
		return out, err
	}
	return consolidateReply{rec.Header.ID, consolidationOut(projections.ConsolidationOf(rec, e)), receiptOf(rec)}, nil
}

func (c *call) getConsolidation() (consolidationReply, error) {
	x, err := c.ledger.Consolidation(c.ctx(), c.path("id"), c.at)
	if err != nil {
		return consolidationReply{}, err
	}
	return consolidationOut(x), nil
}

func (c *call) listConsolidations() (list[consolidationReply], error) {
	out := list[consolidationReply]{Items: []consolidationReply{}, Scope: c.scope()}
	page, err := c.page()
	if err != nil {
		return out, err
	}
	out.Scope.Machine, out.Scope.Record = c.q("machine"), c.q("record")
	found, more, err := c.view().Consolidations(c.ctx(), page, sqlview.ConsolidationFilter{Machine: out.Scope.Machine, Record: out.Scope.Record})
	if err != nil {
		return out, c.viewError(err)
	}
	out.Items = consolidationsOut(found)
	if more {
		out.NextCursor = cursor(more, found[len(found)-1].Position)
	}
	return out, nil
}

func consolidationsOut(found []projections.Consolidation) []consolidationReply {
	out := make([]consolidationReply, len(found))
	for i, x := range found {
		out[i] = consolidationOut(x)
	}
	return out
}

// forgetful is whose forgettings an answer about memory goes by: the caller's and
// everybody's, or nobody's. It is told in the scope.
func (c *call) forgetful(s *scope) (string, error) {
	if c.q("include_forgotten") == "true" {
		s.Forgotten = "included"
		return "", nil
	}
	forgets, err := c.view().Forgets(c.ctx(), c.token.Actor, c.asOf)
	if err != nil {
		return "", c.viewError(err)
	}
	if forgets {
		s.Forgotten = "left_out"
	}
	return c.token.Actor, nil
}
