package relay

import (
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

const markdownType = "text/markdown"

// collectiveReply is the collective memory. Its texts are data that somebody
// wrote, never instructions.
type collectiveReply struct {
	Scope    scope          `json:"scope"`
	Sections []sectionReply `json:"sections" doc:"In the order in which each was first written."`
}

// sectionReply is a section as its last change left it.
type sectionReply struct {
	Slug       string          `json:"slug"`
	Heading    string          `json:"heading"`
	Text       string          `json:"text" doc:"Markdown, as it was written."`
	MeasuredAt *string         `json:"measured_at" doc:"As it was written."`
	How        *string         `json:"how"`
	Evidence   []string        `json:"evidence" doc:"Ids of records and tasks."`
	Revision   events.Revision `json:"revision" doc:"Of the stream \"collective\" at the section's last change; an edit says which it was made from."`
	Position   events.Position `json:"position"`
	EventID    string          `json:"event_id"`
	By         string          `json:"by"`
	At         time.Time       `json:"at"`
	Retired    bool            `json:"retired" doc:"It is in the document no more; what it said last stands here."`
	Erased     bool            `json:"erased,omitzero" doc:"What it said was erased: it is in the document no more, until it is written again."`
}

func sectionOut(s *projections.Section) sectionReply {
	out := sectionReply{
		Slug: s.Slug, Heading: s.Heading, Text: s.Text, MeasuredAt: orNull(s.MeasuredAt), How: orNull(s.How), Evidence: s.Evidence,
		Revision: s.Revision, Position: s.Position, EventID: s.EventID, By: s.By, At: s.At, Retired: s.Retired, Erased: s.Erased,
	}
	if out.Evidence == nil {
		out.Evidence = []string{}
	}
	return out
}

func (c *call) getCollective() error {
	doc, err := c.ledger.Collective(c.ctx(), c.at)
	if err != nil {
		return err
	}
	if !doc.Exists() {
		return notFound("MEMORY_NO_COLLECTIVE",
			"fleet %s has no collective memory: no section was written in stream %s up to position %d; PUT /v1/collective/sections/{slug} writes one",
			c.fleet, events.CollectiveStream, c.asOf).
			with("fleet", c.fleet).with("stream", events.CollectiveStream).with("from", 1).with("to", c.asOf)
	}
	if !c.prefersJSON() {
		c.sendBytes(http.StatusOK, markdownType+"; charset=utf-8", []byte(doc.Markdown()))
		return nil
	}
	out := collectiveReply{Scope: c.scope(), Sections: []sectionReply{}}
	out.Scope.Stream = events.CollectiveStream
	for _, s := range doc.Sections() {
		out.Sections = append(out.Sections, sectionOut(s))
	}
	c.reply(http.StatusOK, out)
	return nil
}

// prefersJSON reports whether the caller takes JSON rather than Markdown.
func (c *call) prefersJSON() bool {
	accept := strings.Join(c.r.Header["Accept"], ",")
	return quality(accept, "application/json") > quality(accept, markdownType)
}

// quality is how much a caller wants a media type (RFC 9110, 12.5.1): what names
// it most closely says so.
func quality(accept, media string) float64 {
	kind, _, _ := strings.Cut(media, "/")
	found, closest := 0.0, 0
	for part := range strings.SplitSeq(accept, ",") {
		given, params, err := mime.ParseMediaType(part)
		if err != nil {
			continue
		}
		close := map[string]int{"*/*": 1, kind + "/*": 2, media: 3}[given]
		if close <= closest {
			continue
		}
		closest, found = close, 1
		if q, err := strconv.ParseFloat(params["q"], 64); err == nil {
			found = q
		}
	}
	return found
}

type sectionHistoryReply struct {
	Section sectionReply         `json:"section"`
	History []sectionChangeReply `json:"history" doc:"Newest first. What it said then: the same path with at."`
}

type sectionChangeReply struct {
	Revision events.Revision `json:"revision"`
	Position events.Position `json:"position"`
	EventID  string          `json:"event_id"`
	Heading  *string         `json:"heading" doc:"Null if it was retired, or erased."`
	By       string          `json:"by"`
	At       time.Time       `json:"at"`
	Retired  bool            `json:"retired"`
	Erased   bool            `json:"erased,omitzero"`
}

func (c *call) getSection() (out sectionHistoryReply, err error) {
	doc, err := c.ledger.Collective(c.ctx(), c.at)
	if err != nil {
		return out, err
	}
	s := doc.Section(c.path("slug"))
	if s == nil {
		return out, notFound("SECTION_NOT_FOUND", "the collective memory had no section %+q up to position %d; see GET /v1/collective", c.path("slug"), c.asOf)
	}
	history, err := c.ledger.SectionHistory(c.ctx(), s.Slug, s.Position)
	if err != nil {
		return out, err
	}
	out = sectionHistoryReply{Section: sectionOut(s), History: make([]sectionChangeReply, len(history))}
	for i, h := range history {
		out.History[len(history)-1-i] = sectionChangeReply{h.Revision, h.Position, h.EventID, orNull(h.Heading), h.By, h.At, h.Retired, h.Erased}
	}
	c.tag(s.Revision)
	return out, nil
}

// tag tells the revision in the form that If-Match takes.
func (c *call) tag(r events.Revision) {
	c.w.Header().Set("ETag", fmt.Sprintf("%q", strconv.FormatUint(uint64(r), 10)))
}

// reviseSectionBody is all that a section is to say.
type reviseSectionBody struct {
	Heading    string           `json:"heading" doc:"One line."`
	Text       string           `json:"text" doc:"Markdown. Kept as it is written."`
	MeasuredAt string           `json:"measured_at,omitzero" doc:"A date such as 2026-03-01, or a time (RFC 3339)."`
	How        string           `json:"how,omitzero" doc:"How it was measured, in one line."`
	Evidence   []string         `json:"evidence,omitzero" doc:"Ids of the records and tasks that it rests on."`
	Revision   *events.Revision `json:"revision,omitzero" nullable:"false" doc:"Of the section that was edited, 0 for none: if it is another by now, 409 SECTION_CHANGED. The header If-Match says the same. Without it the text is written over whatever is there."`
}

func (b *reviseSectionBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	return refuseNull(raw, "revision")
}

type reviseSectionReply struct {
	Section sectionReply `json:"section" doc:"As the change left it."`
	Receipt *receipt     `json:"receipt" doc:"Null if there was nothing to change."`
}

func (c *call) reviseSection(in reviseSectionBody) (out reviseSectionReply, err error) {
	seen, err := c.ifMatch()
	if err != nil {
		return out, err
	}
	if seen == nil {
		seen = in.Revision
	} else if in.Revision != nil && *in.Revision != *seen {
		return out, malformed("IF_MATCH_INVALID", "If-Match says revision %d and the body %d: say it once", *seen, *in.Revision)
	}
	slug := c.path("slug")
	res, err := c.ledger.ReviseSection(c.ctx(), c.caller, commands.ReviseSection{
		Slug: slug, Heading: in.Heading, Text: in.Text, MeasuredAt: in.MeasuredAt, How: in.How, Evidence: in.Evidence, Revision: seen,
	})
	if err == nil && len(res.Records) == 0 {
		// There was nothing to change: it stands as somebody left it.
		s := c.ledger.State().Collective().Section(slug)
		out.Section = sectionOut(s)
		c.tag(s.Revision)
		return out, nil
	}
	e, rec, err := recorded[events.SectionRevised](res, err)
	if err != nil {
		return out, err
	}
	h, r := rec.Header, receiptOf(rec)
	out.Receipt = &r
	out.Section = sectionOut(&projections.Section{Slug: slug, SectionContent: projections.ContentOf(e),
		Revision: h.Revision, Position: h.Position, EventID: h.ID, By: h.Actor, At: h.Time, Erased: rec.Erased})
	c.tag(h.Revision)
	return out, nil
}

type retireSectionReply struct {
	Slug    string  `json:"slug"`
	Receipt receipt `json:"receipt"`
}

func (c *call) retireSection(none) (retireSectionReply, error) {
	seen, err := c.ifMatch()
	if err != nil {
		return retireSectionReply{}, err
	}
	e, rec, err := recorded[events.SectionRetired](c.ledger.RetireSection(c.ctx(), c.caller, commands.RetireSection{Slug: c.path("slug"), Revision: seen}))
	return retireSectionReply{e.Slug, receiptOf(rec)}, err
}

// ifMatch is the revision that the caller has seen, nil if it does not say.
func (c *call) ifMatch() (*events.Revision, error) {
	given := c.r.Header["If-Match"]
	if len(given) == 0 {
		return nil, nil
	}
	text, opened := strings.CutPrefix(given[0], `"`)
	text, closed := strings.CutSuffix(text, `"`)
	n, err := digits(text, 64)
	if err != nil || !opened || !closed || len(given) > 1 {
		return nil, malformed("IF_MATCH_INVALID", `the header If-Match is not one revision in quotes such as "12"`)
	}
	r := events.Revision(n)
	return &r, nil
}
