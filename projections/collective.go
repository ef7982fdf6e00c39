package projections

import (
	"cmp"
	"context"
	"maps"
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
	// list is in the order of First, retired ones too: who writes one again finds its
	// place.
	list []*Section
	// unread are revisions that were erased and whose section is not known yet: the
	// payload.erased to come names it.
	unread map[events.Position]SectionChange
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
	// First is the position at which the section was first written, ContentFrom that
	// of the revision which said what it says.
	First, ContentFrom events.Position
	// Erased is true if that revision's payload was erased: it says nothing then, and
	// is not in the document.
	Erased bool
}

// Exists reports whether the fleet has a collective memory: an empty document is
// one whose sections were all retired.
func (c *Collective) Exists() bool { return c.begun }

// Sections lists the sections of the document.
func (c *Collective) Sections() []*Section {
	out := make([]*Section, 0, len(c.list))
	for _, s := range c.list {
		if !s.Retired && !s.Erased {
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
		if r.Header.Type == (events.SectionRevised{}).Kind() {
			next.unread = maps.Clone(c.unread)
			if next.unread == nil {
				next.unread = map[events.Position]SectionChange{}
			}
			next.unread[r.Header.Position] = changeOf(r)
		}
		return &next, nil
	}
	e, err := events.Decode(r)
	if err != nil {
		return nil, err
	}
	switch e := e.(type) {
	case events.SectionRevised:
		s := &Section{Slug: e.Slug, SectionContent: ContentOf(e), First: r.Header.Position, ContentFrom: r.Header.Position}
		if old := c.Section(e.Slug); old != nil {
			s.First = old.First
		}
		s.changed(changeOf(r))
		next.put(s)
	case events.SectionRetired:
		gone := Section{Slug: e.Slug, First: r.Header.Position}
		if s := c.Section(e.Slug); s != nil {
			gone = *s
		} else if !c.Unsure() {
			break
		}
		gone.changed(changeOf(r))
		gone.Retired = true
		next.put(&gone)
	}
	return &next, nil
}

// Unsure reports whether revisions were erased of which it is not known yet what
// section they were of.
func (c *Collective) Unsure() bool { return len(c.unread) > 0 }

// erase takes back what an erased revision said. It comes out the same whether the
// revision was met before with its payload or without.
func (c *Collective) erase(e events.PayloadErased) *Collective {
	next := *c
	change, unread := c.unread[e.Position]
	if unread {
		next.unread = maps.Clone(c.unread)
		delete(next.unread, e.Position)
	}
	s := Section{Slug: e.Slug, First: e.Position}
	if old := c.Section(e.Slug); old != nil {
		s = *old
	} else if !unread {
		return &next
	}
	s.First = min(s.First, e.Position)
	if unread && s.Position < e.Position {
		s.changed(change)
	}
	if s.ContentFrom <= e.Position {
		s.SectionContent, s.ContentFrom, s.Erased = SectionContent{}, e.Position, true
	}
	next.put(&s)
	return &next
}

// changed makes s that of its last change, a revision.
func (s *Section) changed(by SectionChange) {
	s.Revision, s.Position, s.EventID, s.By, s.At, s.Retired = by.Revision, by.Position, by.EventID, by.By, by.At, false
}

// put replaces the section of the same slug, or adds it, in its place.
func (c *Collective) put(s *Section) {
	c.list = slices.DeleteFunc(slices.Clone(c.list), func(old *Section) bool { return old.Slug == s.Slug })
	i, _ := slices.BinarySearchFunc(c.list, s.First, func(x *Section, first events.Position) int { return cmp.Compare(x.First, first) })
	c.list = slices.Insert(c.list, i, s)
}

// LoadCollective folds the collective stream up to position at (0: all of it), but
// for what was erased, then or later.
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
	if !c.Unsure() {
		return c, nil
	}
	erased, err := loadErased(ctx, log, events.CollectiveStream)
	if err != nil {
		return nil, err
	}
	for _, e := range erased {
		if _, unread := c.unread[e.Position]; unread {
			c = c.erase(e)
		}
	}
	return c, nil
}

// loadErased lists what was erased of a stream, in the order of the erasures.
func loadErased(ctx context.Context, log events.Log, s events.Stream) (list []events.PayloadErased, err error) {
	for r, err := range log.ReadStream(ctx, events.LedgerStream, 0) {
		if err != nil {
			return nil, err
		}
		if r.Header.Type != (events.PayloadErased{}).Kind() {
			continue
		}
		e, err := events.DecodeAs[events.PayloadErased](r)
		if err != nil {
			return nil, err
		}
		if e.Stream == s {
			list = append(list, e)
		}
	}
	return list, nil
}

// SectionChange is one entry in the history of a section.
type SectionChange struct {
	Revision events.Revision
	Position events.Position
	EventID  string
	By       string
	At       time.Time
	Heading  string // empty if it was retired, or erased
	Retired  bool
	Erased   bool
}

func changeOf(r events.Record) SectionChange {
	h := r.Header
	return SectionChange{Revision: h.Revision, Position: h.Position, EventID: h.ID, By: h.Actor, At: h.Time, Erased: r.Erased}
}

// LoadSectionHistory lists the changes of a section up to position at, oldest
// first.
func LoadSectionHistory(ctx context.Context, log events.Log, slug string, at events.Position) ([]SectionChange, error) {
	var out []SectionChange
	unread := map[events.Position]SectionChange{}
	for r, err := range log.ReadStream(ctx, events.CollectiveStream, 0) {
		if err != nil {
			return nil, err
		}
		if r.Header.Position > at {
			break
		}
		change := changeOf(r)
		if r.Erased {
			unread[r.Header.Position] = change
			continue
		}
		e, err := events.Decode(r)
		if err != nil {
			return nil, err
		}
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
	if len(unread) == 0 {
		return out, nil
	}
	erased, err := loadErased(ctx, log, events.CollectiveStream)
	if err != nil {
		return nil, err
	}
	for _, e := range erased {
		if change, ok := unread[e.Position]; ok && e.Slug == slug {
			out = append(out, change)
		}
	}
	slices.SortFunc(out, func(a, b SectionChange) int { return cmp.Compare(a.Position, b.Position) })
	return out, nil
}
