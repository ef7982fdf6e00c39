package relay

import (
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

type concludeBody struct {
	About      *events.About `json:"about" doc:"A task or a record; null for a conclusion about neither."`
	Text       string        `json:"text"`
	Supersedes string        `json:"supersedes,omitzero" doc:"An earlier conclusion. Both stay."`
	ImportedID string        `json:"imported_id,omitzero" format:"uuid" doc:"Of an imported conclusion: what names it in the tool that it came from, as a UUID. It becomes its id, so that it is recorded once, whoever imports it: 409 ALREADY_IMPORTED."`
}

// conclusionReply is what a reader said a result meant.
type conclusionReply struct {
	ConclusionID string          `json:"conclusion_id"`
	About        *events.About   `json:"about"`
	Subject      *events.Subject `json:"subject" doc:"Enough of what it is about to read it alone."`
	Text         string          `json:"text"`
	Supersedes   *string         `json:"supersedes"`
	SupersededBy *string         `json:"superseded_by" doc:"The newest conclusion that stands in its place. Both stay."`
	By           string          `json:"by"`
	At           time.Time       `json:"at"`
	Position     events.Position `json:"position"`
	Erased       bool            `json:"erased,omitzero" doc:"What it said was erased since."`
}

func conclusionOut(x projections.Conclusion) conclusionReply {
	return conclusionReply{x.ID, x.About, x.Subject, x.Text, orNull(x.Supersedes), orNull(x.SupersededBy), x.By, x.At, x.Position, false}
}

type concludeReply struct {
	ConclusionID string          `json:"conclusion_id"`
	Conclusion   conclusionReply `json:"conclusion"`
	Receipt      receipt         `json:"receipt"`
}

func (c *call) conclude(in concludeBody) (concludeReply, error) {
	if err := checkImportedID(in.ImportedID); err != nil {
		return concludeReply{}, err
	}
	e, rec, err := recorded[events.ConclusionRecorded](c.ledger.Conclude(c.ctx(), c.caller,
		commands.Conclude{About: in.About, Text: in.Text, Supersedes: in.Supersedes, ImportedID: in.ImportedID}))
	h := rec.Header
	return concludeReply{
		ConclusionID: h.ID,
		Conclusion:   conclusionReply{h.ID, e.About, e.Subject, e.Text, orNull(e.Supersedes), nil, h.Actor, h.Time, h.Position, rec.Erased},
		Receipt:      receiptOf(rec),
	}, err
}

func (c *call) listConclusions() (list[conclusionReply], error) {
	out := list[conclusionReply]{Items: []conclusionReply{}, Scope: c.scope()}
	page, err := c.page()
	if err != nil {
		return out, err
	}
	out.Scope.About = c.q("about")
	found, more, err := c.view().Conclusions(c.ctx(), page, out.Scope.About)
	if err != nil {
		return out, c.viewError(err)
	}
	for _, x := range found {
		out.Items = append(out.Items, conclusionOut(x))
	}
	if more {
		out.NextCursor = cursor(more, found[len(found)-1].Position)
	}
	return out, nil
}
