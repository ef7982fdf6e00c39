package relay

import (
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// eventReply is an event as it is read. The members after actor that an agent's
// own event has and others have not are what its CloudEvent said.
type eventReply struct {
	Position      events.Position `json:"position"`
	ID            string          `json:"id"`
	Stream        events.Stream   `json:"stream"`
	Revision      events.Revision `json:"revision"`
	Type          events.Kind     `json:"type"`
	Schema        int             `json:"schema"`
	Time          time.Time       `json:"time" doc:"When it was recorded."`
	Actor         string          `json:"actor"`
	CorrelationID string          `json:"correlation_id,omitzero"`
	CausationID   string          `json:"causation_id,omitzero"`

	Source          string                    `json:"source,omitzero" doc:"Of an agent's own event."`
	SourceTime      string                    `json:"source_time,omitzero" doc:"When it happened, as its source says."`
	DataContentType string                    `json:"datacontenttype,omitzero"`
	DataSchema      string                    `json:"dataschema,omitzero"`
	DataBase64      string                    `json:"data_base64,omitzero"`
	Extensions      map[string]jsontext.Value `json:"extensions,omitzero" doc:"CloudEvents extension attributes."`
	Permit          *events.Permit            `json:"permit,omitzero" doc:"What the gate decided about an agent's own event."`

	Data     jsontext.Value `json:"data" doc:"The payload of one of the ledger's own kinds; the data of an agent's own event."`
	Erased   bool           `json:"erased,omitzero" doc:"The payload was erased; header, hash and proofs stand."`
	Erasure  *erasureReply  `json:"erasure,omitzero" doc:"Who erased it, and why."`
	LeafHash events.Hash    `json:"leaf_hash"`

	record events.Record
}

func eventOut(r events.Record) (eventReply, error) {
	h := r.Header
	out := eventReply{
		Position: h.Position, ID: h.ID, Stream: h.Stream, Revision: h.Revision, Type: h.Type, Schema: h.Schema, Time: h.Time,
		Actor: h.Actor, CorrelationID: h.Correlation, CausationID: h.Causation, Erased: r.Erased, LeafHash: r.LeafHash, record: r,
	}
	if r.Erased {
		return out, nil
	}
	if !h.Type.IsExt() {
		out.Data = r.Payload
		return out, nil
	}
	e, err := events.DecodeAs[events.Ext](r)
	if err != nil {
		return out, err
	}
	out.Source, out.SourceTime, out.DataContentType, out.DataSchema = e.Source, e.Time, e.DataContentType, e.DataSchema
	out.DataBase64, out.Extensions, out.Permit, out.Data = e.DataBase64, e.Extensions, &e.Permit, e.Data
	return out, nil
}

const (
	cloudEventType      = "application/cloudevents+json"
	cloudEventBatchType = "application/cloudevents-batch+json"
)

// wantsCloudEvents reports whether the caller asks for CloudEvents.
func (c *call) wantsCloudEvents() bool {
	for part := range strings.SplitSeq(c.r.Header.Get("Accept"), ",") {
		if media, _, err := mime.ParseMediaType(part); err == nil && (media == cloudEventType || media == cloudEventBatchType) {
			return true
		}
	}
	return false
}

// eventFilter is which events of the log are wanted.
type eventFilter struct {
	stream events.Stream
	kind   events.Kind
}

func (c *call) eventFilter() (f eventFilter, err error) {
	for _, name := range []string{"stream", "type"} {
		if v := c.q(name); v != "" && events.CheckName(name, v) != nil {
			return f, parameterInvalid(name, fmt.Sprintf("is %+q, which no event has", v))
		}
	}
	return eventFilter{events.Stream(c.q("stream")), events.Kind(c.q("type"))}, nil
}

const (
	// maxScan bounds how many events one page looks at.
	maxScan = 10_000
	// maxPageBytes bounds the payloads of one page.
	maxPageBytes = 8 << 20
)

// eventPage is a part of the log.
type eventPage struct {
	items []eventReply
	// last is the position up to which the log was looked at; more, that there is
	// more of it behind.
	last events.Position
	more bool
}

// events reads the log after a position, at most up to upTo.
func (c *call) events(f eventFilter, after, upTo events.Position, limit, maxBytes int) (eventPage, error) {
	p := eventPage{items: []eventReply{}, last: after}
	read := c.ledger.Log().ReadAll(c.ctx(), after)
	if f.stream != "" {
		revision, err := c.revisionAt(f.stream, after)
		if err != nil {
			return p, err
		}
		read = c.ledger.Log().ReadStream(c.ctx(), f.stream, revision)
	}
	scanned, bytes := 0, 0
	for r, err := range read {
		if err != nil {
			return p, err
		}
		if r.Header.Position > upTo {
			break
		}
		if len(p.items) == limit || scanned == maxScan || bytes >= maxBytes {
			p.more = true
			return p, nil
		}
		scanned++
		p.last = r.Header.Position
		if f.kind != "" && r.Header.Type != f.kind {
			continue
		}
		e, err := c.eventOut(r)
		if err != nil {
			return p, err
		}
		bytes += len(r.Payload)
		p.items = append(p.items, e)
	}
	p.last = max(p.last, upTo)
	return p, nil
}

// revisionAt is the revision that a stream had at a position: its events after it
// come after that revision.
func (c *call) revisionAt(s events.Stream, at events.Position) (events.Revision, error) {
	if at == 0 {
		return 0, nil
	}
	// upTo reports whether the stream has a revision n that lies at or before at.
	upTo := func(n events.Revision) (bool, error) {
		for r, err := range c.ledger.Log().ReadStream(c.ctx(), s, n-1) {
			return err == nil && r.Header.Position <= at, err
		}
		return false, nil
	}
	low, high := events.Revision(0), events.Revision(1) // low is at or before
	for {
		ok, err := upTo(high)
		if err != nil {
			return 0, err
		}
		if !ok {
			break
		}
		low, high = high, 2*high
	}
	for high-low > 1 {
		middle := low + (high-low)/2
		ok, err := upTo(middle)
		if err != nil {
			return 0, err
		}
		if ok {
			low = middle
		} else {
			high = middle
		}
	}
	return low, nil
}

func (c *call) listEvents() error {
	page, err := c.page()
	if err != nil {
		return err
	}
	after, _, err := c.position("after")
	if err != nil {
		return err
	}
	f, err := c.eventFilter()
	if err != nil {
		return err
	}
	after = max(after, page.After)
	found, err := c.events(f, after, c.asOf, page.Limit, maxPageBytes)
	if err != nil {
		return err
	}
	next := cursor(found.more, found.last)
	if c.wantsCloudEvents() {
		if next != nil {
			q := c.r.URL.Query()
			q.Set("cursor", *next)
			c.w.Header().Set("Link", fmt.Sprintf("<%s>; rel=\"next\"", (&url.URL{Path: c.r.URL.Path, RawQuery: q.Encode()}).String()))
		}
		batch := make([]map[string]any, len(found.items))
		for i, e := range found.items {
			if batch[i], err = events.CloudEvent(e.record); err != nil {
				return err
			}
		}
		c.send(http.StatusOK, cloudEventBatchType, batch)
		return nil
	}
	out := list[eventReply]{Items: found.items, NextCursor: next, Scope: c.scope()}
	out.Scope.From, out.Scope.To, out.Scope.Stream, out.Scope.Type = after+1, found.last, f.stream, f.kind
	c.reply(http.StatusOK, out)
	return nil
}

func (c *call) getEvent() error {
	id := c.path("id")
	missing := notFound("EVENT_NOT_FOUND", "no event %+q; see GET /v1/events", id)
	if events.CheckName("event id", id) != nil {
		return missing
	}
	pos, err := c.ledger.Log().FindID(c.ctx(), id)
	if err != nil {
		return err
	}
	if pos == 0 {
		return missing
	}
	recs, err := c.ledger.Records(c.ctx(), pos, pos)
	if err != nil {
		return err
	}
	e, err := c.eventOut(recs[0])
	if err != nil {
		return err
	}
	if c.wantsCloudEvents() {
		ce, err := events.CloudEvent(e.record)
		if err != nil {
			return err
		}
		c.send(http.StatusOK, cloudEventType, ce)
		return nil
	}
	c.reply(http.StatusOK, e)
	return nil
}
