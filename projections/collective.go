package projections

import (
	"context"
	"slices"
	"time"

	"fleetledger/events"
)

// Collective is the fleet's collective memory: a document of sections, in the
// order in which each was first written. A value is never changed once published;
// Apply returns a new one. The zero value is that of a fleet that has none.
type Collective struct {
	// Revision is that of the collective stream, which conclusions about nothing
	// move on too.
	Revision events.Revision
	// begun is true once a section was written, whatever became of it.
	begun bool
	list  []*Section // retired ones too: who writes one again finds its place
}

// SectionContent is what the writer of a section says.
type SectionContent struct {
	Heading string
	// Text is Markdown, kept as it was written.
	Text string
	// MeasuredAt is a date or a time (RFC 3339), kept as it was written.
	MeasuredAt string
	How        string
	// Evidence are ids of records and tasks.
	Evidence []string
}

// Same reports whether both say the same.
func (c SectionContent) Same(o SectionContent) bool {
	return c.Heading == o.Heading && c.Text == o.Text && c.MeasuredAt == o.MeasuredAt && c.How == o.How && slices.Equal(c.Evidence, o.Evidence)
}

// ContentOf is the content that an event gave a section.
func ContentOf(e events.SectionRevised) SectionContent {
	return SectionContent{Heading: e.Heading, Text: e.Text, MeasuredAt: e.MeasuredAt, How: e.How, Evidence: e.Evidence}
}

// Section is one section as its last change left it.
type Section struct {
	Slug string
	SectionContent
	// Revision is that of the collective stream at the section's last change: it
	// grows with each and is never used twice.
	Revision events.Revision
	Position events.Position
	EventID  string
	By       string
	At       time.Time
	// Retired is true if the last change took it out of the document; what it said
	// before stands beside it.
	Retired bool
}

// Exists reports whether the fleet has a collective memory: an empty document is
// one whose sections were all retired.
func (c *Collective) Exists() bool { return c.begun }

// Sections lists the sections of the document.
func (c *Collective) Sections() []*Section {
	out := make([]*Section, 0, len(c.list))
	for _, s := range c.list {
		if !s.Retired {
			out = append(out, s)
		}
	}
	return out
}

// Section returns the section of this slug, retired or not, nil if none was ever
// written.
func (c *Collective) Section(slug string) *Section {
	for _, s := range c.list {
		if s.Slug == slug {
			return s
		}
	}
	return nil
}

// Apply folds an event of the collective stream.
func (c *Collective) Apply(r events.Record) (*Collective, error) {
	next := *c
	next.Revision = r.Header.Revision
	next.begun = c.begun || r.Header.Type == events.SectionRevised{}.Kind()
	if r.Erased {
		return &next, nil
	}
	e, err := events.Decode(r)
	if err != nil {
		return nil, err
	}
	h := r.Header
	switch e := e.(type) {
	case events.SectionRevised:
		next.put(&Section{Slug: e.Slug, SectionContent: ContentOf(e), Revision: h.Revision, Position: h.Position, EventID: h.ID, By: h.Actor, At: h.Time})
	case events.SectionRetired:
		if s := c.Section(e.Slug); s != nil {
			gone := *s
			gone.Retired, gone.Revision, gone.Position, gone.EventID, gone.By, gone.At = true, h.Revision, h.Position, h.ID, h.Actor, h.Time
			next.put(&gone)
		}
	}
	return &next, nil
}

// put replaces the section of the same slug, or adds it at the end.
func (c *Collective) put(s *Section) {
	c.list = slices.Clone(c.list)
	for i, old := range c.list {
		if old.Slug == s.Slug {
			c.list[i] = s
			return
		}
	}
	c.list = append(c.list, s)
}

// LoadCollective folds the collective stream up to position at (0: all of it).
func LoadCollective(ctx context.Context, log events.Log, at events.Position) (*Collective, error) {
	c := &Collective{}
	for r, err := range log.ReadStream(ctx, events.CollectiveStream, 0) {
		if err != nil {
			return nil, err
		}
		if at != 0 && r.Header.Position > at {
			break
		}
		if c, err = c.Apply(r); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// SectionChange is one entry in the history of a section.
type SectionChange struct {
	Revision events.Revision
	Position events.Position
	EventID  string
	By       string
	At       time.Time
	Heading  string // empty if it was retired
	Retired  bool
}

// LoadSectionHistory lists the changes of a section up to position at, oldest
// first.
func LoadSectionHistory(ctx context.Context, log events.Log, slug string, at events.Position) ([]SectionChange, error) {
	var out []SectionChange
	for r, err := range log.ReadStream(ctx, events.CollectiveStream, 0) {
		if err != nil {
			return nil, err
		}
		if r.Header.Position > at {
			break
		}
		if r.Erased {
			continue
		}
		e, err := events.Decode(r)
		if err != nil {
			return nil, err
		}
		h := r.Header
		change := SectionChange{Revision: h.Revision, Position: h.Position, EventID: h.ID, By: h.Actor, At: h.Time}
		switch e := e.(type) {
		case events.SectionRevised:
			if e.Slug == slug {
				change.Heading = e.Heading
				out = append(out, change)
			}
		case events.SectionRetired:
			if e.Slug == slug {
				change.Retired = true
				out = append(out, change)
			}
		}
	}
	return out, nil
}
