package commands

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"fleetledger/events"
	"fleetledger/projections"
)

// ReviseSection writes a section of the collective memory, all of it anew.
type ReviseSection struct {
	Slug       string   `json:"slug"`
	Heading    string   `json:"heading"`
	Text       string   `json:"text"`
	MeasuredAt string   `json:"measured_at,omitzero"`
	How        string   `json:"how,omitzero"`
	Evidence   []string `json:"evidence,omitzero"`
	// Revision is that of the section that the writer has seen, 0 for no section;
	// nil writes over whatever is there.
	Revision *events.Revision `json:"revision,omitzero"`
}

// ReviseSection carries out c. A section that would say what it says already is
// left alone, and so is one whose writer changed nothing of what it said at
// Revision: nothing is recorded then. Refusals: INVALID, SECTION_NOT_FOUND,
// SECTION_CHANGED, SECRET_IN_TEXT, PAYLOAD_TOO_LARGE, and what gates answer.
func (l *Ledger) ReviseSection(ctx context.Context, caller Caller, c ReviseSection) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		unknown, err := l.unknownEvidence(ctx, c.Evidence)
		if err != nil {
			return decided{}, err
		}
		if problems := append(c.problems(), unknown...); len(problems) > 0 {
			return decided{}, invalid(problems...)
		}
		doc := l.state.Collective()
		now := doc.Section(c.Slug)
		if now != nil && !now.Retired && now.Same(c.content()) {
			return decided{}, nil
		}
		if err := c.stale(now); err != nil {
			seen, found, e := l.sectionAt(ctx, c.Slug, *c.Revision)
			switch {
			case e != nil:
				return decided{}, e
			case found && seen.Same(c.content()):
				return decided{}, nil
			}
			return decided{}, err
		}
		if err := noSecretsInText("the section", text{"/slug", c.Slug}, text{"/heading", c.Heading}, text{"/text", c.Text}, text{"/how", c.How}); err != nil {
			return decided{}, err
		}
		return v.gated([]string{"collective.revise"}, named("collective.revise", c), func(permits []events.Permit, d *decided) {
			d.add(events.CollectiveStream, v.newID(), events.SectionRevised{Slug: c.Slug, Heading: c.Heading, Text: c.Text,
				MeasuredAt: c.MeasuredAt, How: c.How, Evidence: c.Evidence, Permit: permits[0]})
			d.expect = append(d.expect, onCollective(doc))
		})
	})
}

// RetireSection takes a section out of the document. What it said stays in the
// log.
type RetireSection struct {
	Slug     string           `json:"slug"`
	Revision *events.Revision `json:"revision,omitzero"`
}

// RetireSection carries out c. Refusals: SECTION_NOT_FOUND, SECTION_CHANGED, and
// what gates answer.
func (l *Ledger) RetireSection(ctx context.Context, caller Caller, c RetireSection) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) {
		doc := l.state.Collective()
		now := doc.Section(c.Slug)
		if now == nil || now.Retired {
			return decided{}, noSection(c.Slug)
		}
		if c.Revision != nil && *c.Revision != now.Revision {
			return decided{}, sectionChanged(now, *c.Revision)
		}
		return v.gated([]string{"collective.revise"}, named("collective.retire", c), func(permits []events.Permit, d *decided) {
			d.add(events.CollectiveStream, v.newID(), events.SectionRetired{Slug: c.Slug, Permit: permits[0]})
			d.expect = append(d.expect, onCollective(doc))
		})
	})
}

// onCollective makes a decision rest on the document as it was seen.
func onCollective(doc *projections.Collective) events.Expectation {
	return events.Expectation{Stream: events.CollectiveStream, Revision: doc.Revision}
}

func (c ReviseSection) content() projections.SectionContent {
	return projections.SectionContent{Heading: c.Heading, Text: c.Text, MeasuredAt: c.MeasuredAt, How: c.How, Evidence: c.Evidence}
}

// stale refuses a writer who has not seen the section as it is now.
func (c ReviseSection) stale(now *projections.Section) error {
	switch {
	case c.Revision == nil:
		return nil
	case now == nil && *c.Revision == 0, now != nil && *c.Revision == now.Revision, now != nil && now.Retired && *c.Revision == 0:
		return nil
	case now == nil:
		return noSection(c.Slug)
	}
	return sectionChanged(now, *c.Revision)
}

func noSection(slug string) *Refusal {
	return refuse(NotFound, "SECTION_NOT_FOUND", "the collective memory has no section %q; see GET /v1/collective", slug)
}

// sectionChanged tells a writer what the section says now, so that nobody writes
// over what they have not read.
func sectionChanged(now *projections.Section, seen events.Revision) *Refusal {
	did := "revised"
	if now.Retired {
		did = "retired"
	}
	text := fmt.Sprintf("section %s was %s by %s at %s and is at revision %d now, not %d", now.Slug, did, now.By, now.At.Format(events.TimeLayout), now.Revision, seen)
	if seen == 0 {
		text = fmt.Sprintf("there is a section %s already: it was %s by %s at %s and is at revision %d", now.Slug, did, now.By, now.At.Format(events.TimeLayout), now.Revision)
	}
	return refuse(Conflict, "SECTION_CHANGED", "%s; bring your text together with it and send that with revision %d", text, now.Revision).
		With("slug", now.Slug).With("expected", seen).With("actual", now.Revision).With("retired", now.Retired).
		With("heading", now.Heading).With("text", now.Text).With("by", now.By).With("at", now.At)
}

// sectionAt reads what a section said at a revision of the collective stream;
// found is false if it was not revised there.
func (l *Ledger) sectionAt(ctx context.Context, slug string, at events.Revision) (content projections.SectionContent, found bool, err error) {
	if at == 0 {
		return content, false, nil
	}
	if err := l.readable(ctx); err != nil {
		return content, false, err
	}
	for r, err := range l.log.ReadStream(ctx, events.CollectiveStream, at-1) {
		if err != nil || r.Erased || r.Header.Type != (events.SectionRevised{}).Kind() {
			return content, false, err
		}
		e, err := events.DecodeAs[events.SectionRevised](r)
		return projections.ContentOf(e), err == nil && e.Slug == slug, err
	}
	return content, false, nil
}

// maxHeading bounds a heading, in bytes: it is read in a list.
const maxHeading = 200

func (c ReviseSection) problems() []events.Problem {
	var bad []events.Problem
	add := func(path, code, format string, args ...any) { bad = append(bad, problem(path, code, format, args...)) }
	if !events.ValidID(c.Slug) {
		add("/slug", "INVALID", "%q names no section: a slug is 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit", c.Slug)
	}
	switch {
	case strings.TrimSpace(c.Heading) == "":
		add("/heading", "REQUIRED", "a section has a heading")
	case !oneLine(c.Heading):
		add("/heading", "INVALID", "a heading is one line, without control characters, and without white space at its ends")
	case len(c.Heading) > maxHeading:
		add("/heading", "OUT_OF_RANGE", "has %d bytes, at most %d are allowed", len(c.Heading), maxHeading)
	}
	if strings.TrimSpace(c.Text) == "" {
		add("/text", "REQUIRED", "a section says something; retire one that is not to say anything any more")
	}
	if c.MeasuredAt != "" && !isDate(c.MeasuredAt) {
		add("/measured_at", "INVALID", "%q is no date such as 2026-03-01 and no time (RFC 3339) such as 2026-03-01T09:00:00Z", c.MeasuredAt)
	}
	if c.How != "" && !oneLine(c.How) {
		add("/how", "INVALID", "how it was measured is one line, without control characters, and without white space at its ends; longer belongs into the text")
	}
	for i, id := range c.Evidence {
		if slices.Index(c.Evidence, id) < i {
			add(fmt.Sprintf("/evidence/%d", i), "DUPLICATE", "%q is named twice", id)
		}
	}
	return bad
}

func oneLine(s string) bool {
	return strings.TrimSpace(s) == s && !strings.ContainsFunc(s, unicode.IsControl)
}

func isDate(s string) bool {
	for _, layout := range []string{time.DateOnly, time.RFC3339} {
		if _, err := time.Parse(layout, s); err == nil {
			return true
		}
	}
	return false
}

// unknownEvidence names what is neither a record nor a task.
func (l *Ledger) unknownEvidence(ctx context.Context, ids []string) (bad []events.Problem, err error) {
	for i, id := range ids {
		known, err := l.hasTask(ctx, id)
		if err != nil {
			return nil, err
		}
		if known {
			continue
		}
		_, _, err = l.record(ctx, id)
		if r, ok := errors.AsType[*Refusal](err); ok && r.Code == "RECORD_NOT_FOUND" {
			bad = append(bad, problem(fmt.Sprintf("/evidence/%d", i), "UNKNOWN_RECORD", "no record or task %q; see GET /v1/memory", id))
		} else if err != nil {
			return nil, err
		}
	}
	return bad, nil
}

// Collective is the document as of a position (0: now).
func (l *Ledger) Collective(ctx context.Context, at events.Position) (*projections.Collective, error) {
	if at == 0 {
		return l.state.Collective(), nil
	}
	return projections.LoadCollective(ctx, l.log, at)
}

// SectionHistory lists the changes of a section up to a position, oldest first.
func (l *Ledger) SectionHistory(ctx context.Context, slug string, at events.Position) ([]projections.SectionChange, error) {
	if err := l.readable(ctx); err != nil {
		return nil, err
	}
	return projections.LoadSectionHistory(ctx, l.log, slug, at)
}
