package commands_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

func revision(n events.Revision) *events.Revision { return &n }

func TestReviseSection(t *testing.T) {
	w := newWorld(t)
	w.people()
	tk := w.taskOf(w.submit("ana", "go", "vet"))
	record := w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 0, "ok"))).Records[0].Header.ID
	base := commands.ReviseSection{Slug: "vet", Heading: "Vet", Text: "is clean", MeasuredAt: "2026-03-01", How: "ran it", Evidence: []string{record, tk.ID}}
	revise := func(by string, changes ...func(*commands.ReviseSection)) func() (commands.Result, error) {
		c := base
		for _, f := range changes {
			f(&c)
		}
		return func() (commands.Result, error) { return w.ReviseSection(w.ctx(), as(by), c) }
	}
	text := func(s string) func(*commands.ReviseSection) { return func(c *commands.ReviseSection) { c.Text = s } }
	from := func(n events.Revision) func(*commands.ReviseSection) {
		return func(c *commands.ReviseSection) { c.Revision = &n }
	}
	for _, c := range []struct {
		name, path string
		change     func(*commands.ReviseSection)
	}{
		{"no slug", "/slug", func(c *commands.ReviseSection) { c.Slug = "" }},
		{"a slug with a space", "/slug", func(c *commands.ReviseSection) { c.Slug = "a b" }},
		{"a slug in upper case", "/slug", func(c *commands.ReviseSection) { c.Slug = "Vet" }},
		{"no heading", "/heading", func(c *commands.ReviseSection) { c.Heading = " " }},
		{"a heading of two lines", "/heading", func(c *commands.ReviseSection) { c.Heading = "a\nb" }},
		{"a heading with an escape code", "/heading", func(c *commands.ReviseSection) { c.Heading = "a\x1b[1m" }},
		{"a heading with a space behind it", "/heading", func(c *commands.ReviseSection) { c.Heading = "a " }},
		{"a long heading", "/heading", func(c *commands.ReviseSection) { c.Heading = strings.Repeat("x", 201) }},
		{"no text", "/text", text(" \n")},
		{"a date that is none", "/measured_at", func(c *commands.ReviseSection) { c.MeasuredAt = "yesterday" }},
		{"a day that is none", "/measured_at", func(c *commands.ReviseSection) { c.MeasuredAt = "2026-02-30" }},
		{"a time without a zone", "/measured_at", func(c *commands.ReviseSection) { c.MeasuredAt = "2026-03-01T09:00:00" }},
		{"how in two lines", "/how", func(c *commands.ReviseSection) { c.How = "a\nb" }},
		{"evidence that is not here", "/evidence/1", func(c *commands.ReviseSection) { c.Evidence = []string{record, "none"} }},
		{"evidence twice", "/evidence/1", func(c *commands.ReviseSection) { c.Evidence = []string{record, record} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.refused("INVALID", revise("carl", c.change))
			if p := r.Facts["problems"].([]events.Problem); len(p) != 1 || p[0].Path != c.path {
				t.Errorf("got %+v", p)
			}
		})
	}
	w.refused("SECTION_NOT_FOUND", revise("carl", from(1)))
	secret := w.refused("SECRET_IN_TEXT", revise("carl", text("the token is\n"+leaked)))
	if p := secret.Facts["problems"].([]events.Problem); len(p) != 1 || p[0].Path != "/text" || !strings.Contains(p[0].Detail, "line 2") || strings.Contains(secret.Error(), leaked) {
		t.Errorf("got %v", secret)
	}
	for _, f := range []func(*commands.ReviseSection){
		func(c *commands.ReviseSection) { c.Heading = leaked },
		func(c *commands.ReviseSection) { c.How = "with " + leaked },
	} {
		w.refused("SECRET_IN_TEXT", revise("carl", f))
	}
	one := w.ok(revise("carl", from(0))())
	first := one.Records[0].Header.Revision
	w.ok(w.Conclude(w.ctx(), as("ana"), commands.Conclude{Text: "about nothing: the same stream"}))

	// Who would change nothing records nothing.
	for _, same := range []func() (commands.Result, error){revise("carl"), revise("ana"), revise("carl", from(0)), revise("carl", from(99))} {
		if r := w.ok(same()); len(r.Records) != 0 {
			t.Errorf("the same again recorded %s", kindsOf(r))
		}
	}
	two := w.ok(revise("carl", text("fails"), from(first))()).Records[0].Header.Revision
	if two != first+2 {
		t.Errorf("revision %d follows %d", two, first)
	}

	// The second editor is told what stands there, and nothing is lost.
	r := w.refused("SECTION_CHANGED", revise("olga", text("is slow"), from(first)))
	if r.Facts["actual"] != two || r.Facts["expected"] != first || r.Facts["text"] != "fails" || r.Facts["by"] != "carl" || r.Facts["retired"] != false {
		t.Errorf("got %+v", r.Facts)
	}
	w.refused("SECTION_CHANGED", revise("olga", text("is slow"), from(0)))
	w.refused("SECTION_CHANGED", revise("olga", text("is slow"), from(99)))
	if r := w.ok(revise("olga", from(first))()); len(r.Records) != 0 {
		t.Errorf("who changed nothing of what they read recorded %s", kindsOf(r))
	}
	w.ok(revise("olga", text("fails, and is slow"), from(two))())
	w.ok(revise("olga", text("without a look"))())

	// Below the floor it waits, bound to this very text.
	asked := w.ok(revise("ana", text("ana's"))())
	rec, _ := asked.Has("approval.requested")
	w.ok(w.settle("carl", rec.Header.ID, events.Granted))
	spend := func(s string) func() (commands.Result, error) {
		c := base
		c.Text = s
		return func() (commands.Result, error) {
			return w.ReviseSection(w.ctx(), commands.Caller{Actor: "ana", ApprovalID: rec.Header.ID}, c)
		}
	}
	w.refused("COMMAND_CHANGED", spend("another"))
	w.ok(spend("ana's")())
	if s := w.State().Collective().Section("vet"); s.Text != "ana's" || s.By != "ana" || s.MeasuredAt != "2026-03-01" {
		t.Errorf("got %+v", s)
	}

	// Retired, and written again.
	retire := func(slug string, from *events.Revision) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.RetireSection(w.ctx(), as("carl"), commands.RetireSection{Slug: slug, Revision: from})
		}
	}
	w.refused("SECTION_NOT_FOUND", retire("none", nil))
	w.refused("SECTION_CHANGED", retire("vet", revision(first)))
	gone := w.ok(retire("vet", nil)()).Records[0].Header.Revision
	w.refused("SECTION_NOT_FOUND", retire("vet", nil))
	if r := w.refused("SECTION_CHANGED", revise("olga", text("late"), from(two))); r.Facts["retired"] != true || r.Facts["actual"] != gone || r.Facts["text"] != "ana's" {
		t.Errorf("got %+v", r.Facts)
	}
	if doc := w.State().Collective(); !doc.Exists() || len(doc.Sections()) != 0 {
		t.Errorf("got %+v", doc.Sections())
	}
	w.ok(revise("carl", from(0))()) // as if there were none
	w.refused("PAYLOAD_TOO_LARGE", revise("carl", text(strings.Repeat("x", projections.DefaultSettings().PayloadBytes))))

	history, err := projections.LoadSectionHistory(w.ctx(), w.Log(), "vet", w.State().Position())
	if err != nil || len(history) != 7 || !history[5].Retired || history[6].By != "carl" {
		t.Errorf("got %+v, %v", history, err)
	}
	for _, h := range history {
		then, err := projections.LoadCollective(w.ctx(), w.Log(), h.Position)
		if err != nil || then.Section("vet").Revision != h.Revision || then.Section("vet").Retired != h.Retired {
			t.Errorf("at %d: %+v, %v", h.Position, then.Section("vet"), err)
		}
	}
}

// Of many who edit one revision at once, one is taken and every other is told;
// whoever names no revision is taken too, one after the other.
func TestConcurrentEditors(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.racing()
	write := func(i int, from *events.Revision) error {
		_, err := w.ReviseSection(w.ctx(), as("carl"), commands.ReviseSection{Slug: "a", Heading: "A", Text: fmt.Sprint("by ", i), Revision: from})
		return err
	}
	if err := write(0, nil); err != nil {
		t.Fatal(err)
	}
	seen := w.State().Collective().Section("a").Revision
	var wg sync.WaitGroup
	taken := make(chan int, 20)
	for i := range 20 {
		wg.Go(func() {
			err := write(i+1, &seen)
			if err == nil {
				taken <- i
			} else if r, ok := err.(*commands.Refusal); !ok || r.Code != "SECTION_CHANGED" {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(taken) != 1 {
		t.Errorf("%d of one revision's editors were taken", len(taken))
	}
	before := w.Log().Durable()
	for i := range 20 {
		wg.Go(func() {
			if err := write(i+100, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := w.Log().Durable() - before; n != 20 {
		t.Errorf("%d of 20 revisions were recorded", n)
	}
}
