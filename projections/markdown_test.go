package projections_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"

	"pgregory.net/rapid"

	"fleetledger/events"
	"fleetledger/projections"
)

// document folds sections, in order, as revisions 1, 2, 3, ...
func document(t testing.TB, list ...events.SectionRevised) *projections.Collective {
	c := &projections.Collective{}
	for i, e := range list {
		c = apply(t, c, events.Revision(i+1), e)
	}
	return c
}

func apply(t testing.TB, c *projections.Collective, at events.Revision, e events.Event) *projections.Collective {
	t.Helper()
	payload, err := events.Encode(e)
	if err != nil {
		t.Fatal(err)
	}
	n := events.Intent{ID: "e", Stream: events.CollectiveStream, Type: e.Kind(), Schema: events.Schema, Actor: "ana"}
	r := events.NewDraft(n, [events.SaltBytes]byte{}, payload).Place(events.Place{Version: 1, Fleet: "f", Position: events.Position(at), Revision: at})
	next, err := c.Apply(r)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

// fragments are what texts are made of: everything that means something to the
// reader of a document, and some that does not.
var fragments = []string{
	"\n", "\n", "\n\n", "\r\n", "\r", " ", "    ", "\t", "\\", "\\\\", "#", "# ", "## ", "## A", "\n## B\n", "\n ## C", "\n##\tD", "###", "\n```", "\n```sh\n", "```\n", "\n~~~\n",
	"\n````\n", "`", "~~~~", "> how: x", "<!-- section a revision 1 -->", "-->", "<!-- fleetledger collective memory -->", "- [x](#x)", "text", "é", "メモ", "\u2028", "\x1b[31m", "\u00a0",
	"\r## F\r", "\r\n## G\r\n", "\n\\## E\n", "\n\\```\n", "\n\\\n",
}

func genText(t *rapid.T) string {
	s := strings.Join(rapid.SliceOfN(rapid.SampledFrom(fragments), 1, 14).Draw(t, "text"), "")
	if strings.TrimSpace(s) == "" {
		s += "x"
	}
	return s
}

// What is read back from a document is what was written, whatever the texts hold.
func TestMarkdownReadsBackWhatWasWritten(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var want []events.SectionRevised
		for i := range rapid.IntRange(0, 4).Draw(rt, "sections") {
			e := events.SectionRevised{
				Slug:    "s" + strings.Repeat("-x", i),
				Heading: rapid.SampledFrom([]string{"A", "## A ##", "[a](b) ]", "# x", "`code`", "メモ", `\`, "<!-- x -->", "a  b"}).Draw(rt, "heading"),
				Text:    genText(rt),
			}
			e.MeasuredAt = rapid.SampledFrom([]string{"", "2026-03-01", "2026-03-01T09:00:00+02:00"}).Draw(rt, "measured")
			e.How = rapid.SampledFrom([]string{"", "ran it", "how: a; evidence b; measured c", "> x"}).Draw(rt, "how")
			e.Evidence = rapid.SampledFrom([][]string{nil, {"r1"}, {"r1", "r2"}}).Draw(rt, "evidence")
			want = append(want, e)
		}
		doc := document(t, want...)
		text := doc.Markdown()
		got, err := projections.ReadMarkdown(text)
		if err != nil {
			rt.Fatalf("%v in\n%s", err, text)
		}
		if len(got) != len(want) {
			rt.Fatalf("read %d sections, not %d, of\n%q", len(got), len(want), text)
		}
		var again []events.SectionRevised
		for i, s := range got {
			w := want[i]
			if s.Slug != w.Slug || !s.Same(projections.ContentOf(w)) || s.Revision == nil || *s.Revision != events.Revision(i+1) {
				rt.Fatalf("read\n%#v, not\n%#v, of\n%q", s, w, text)
			}
			one := projections.SectionMarkdown(s.Slug, *s.Revision, s.SectionContent)
			if alone, err := projections.ReadMarkdown(one); err != nil || len(alone) != 1 || alone[0].Slug != s.Slug || !alone[0].Same(s.SectionContent) {
				rt.Fatalf("the document of one section reads %+v, %v:\n%q", alone, err, one)
			}
			again = append(again, events.SectionRevised{Slug: s.Slug, Heading: s.Heading, Text: s.Text, MeasuredAt: s.MeasuredAt, How: s.How, Evidence: s.Evidence})
		}
		if document(t, again...).Markdown() != text {
			rt.Fatalf("written again it is another document than\n%s", text)
		}
	})
}

func TestMarkdown(t *testing.T) {
	doc := document(t,
		events.SectionRevised{Slug: "flaky-tests", Heading: "Flaky tests", Text: "They are [two].", MeasuredAt: "2026-03-01", How: "ran them 20 times", Evidence: []string{"r1", "r2"}},
		events.SectionRevised{Slug: "old", Heading: "Old", Text: "gone"},
		events.SectionRevised{Slug: "build", Heading: "Build [all]", Text: "## not a heading\n```\n## nor this\n```\n"},
	)
	doc = apply(t, doc, 4, events.SectionRetired{Slug: "old"})
	const want = "<!-- fleetledger collective memory -->\n# Collective memory\n\n" +
		"- [Flaky tests](#flaky-tests)\n- [Build \\[all\\]](#build)\n\n" +
		"## Flaky tests\n<!-- section flaky-tests revision 1 -->\n> measured 2026-03-01; evidence r1, r2; how: ran them 20 times\n\nThey are [two].\n\n" +
		"## Build [all]\n<!-- section build revision 3 -->\n\n\\## not a heading\n```\n## nor this\n```\n\\\n"
	if got := doc.Markdown(); got != want {
		t.Errorf("got\n%s", got)
	}
	// An editor that turns all line ends turns no text.
	turned, err := projections.ReadMarkdown(strings.ReplaceAll(want, "\n", "\r\n"))
	if err != nil || turned[1].Text != "## not a heading\n```\n## nor this\n```\n" {
		t.Errorf("got %+v, %v", turned, err)
	}
	// A section added by hand needs no mark.
	more, err := projections.ReadMarkdown(want + "\n## By hand\n\nsaid so\n")
	if err != nil || len(more) != 3 || more[2].Slug != "by-hand" || more[2].Text != "said so" || more[2].Revision != nil || more[2].Line != 22 {
		t.Errorf("got %+v, %v", more, err)
	}
	// Retired sections come back in their place; the document is empty without any.
	doc = apply(t, doc, 5, events.SectionRevised{Slug: "old", Heading: "Old", Text: "back"})
	if s := doc.Sections(); len(s) != 3 || s[1].Text != "back" || s[1].Revision != 5 {
		t.Errorf("got %+v", s)
	}
	if (&projections.Collective{}).Exists() || !apply(t, document(t, events.SectionRevised{Slug: "a"}), 2, events.SectionRetired{Slug: "a"}).Exists() {
		t.Error("none yet and an empty document are the same")
	}
}

func TestReadForeignMarkdown(t *testing.T) {
	const text = "# Fleet memory\n\nWhat we know.\n\n## Flaky tests\n\nTwo of them:\n- a\n### more\n\n```\n## a comment\n```\n\n\n## Größe\nbig\r\n## Flaky tests\n\\## as it is\n## Empty\n##\tTab ##\nx"
	var got []string
	list, err := projections.ReadMarkdown(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		got = append(got, fmt.Sprintf("%d %s|%s|%s", s.Line, s.Slug, s.Heading, s.Text))
	}
	want := []string{
		"1 fleet-memory|Fleet memory|What we know.",
		"5 flaky-tests|Flaky tests|Two of them:\n- a\n### more\n\n```\n## a comment\n```",
		"16 gr-e-2f3f3a5c|Größe|big",
		"18 flaky-tests-2|Flaky tests|\\## as it is",
		"20 empty|Empty|",
		"21 tab|Tab ##|x",
	}
	if len(got) == len(want) {
		want[2] = strings.Replace(want[2], "gr-e-2f3f3a5c", list[2].Slug, 1)
		if !strings.HasPrefix(list[2].Slug, "gr-e-") || !events.ValidID(list[2].Slug) {
			t.Errorf("the slug is %s", list[2].Slug)
		}
	}
	if strings.Join(got, "\n--\n") != strings.Join(want, "\n--\n") {
		t.Errorf("got\n%s", strings.Join(got, "\n--\n"))
	}
	for text, n := range map[string]int{"": 0, "\n\n": 0, "# Title only\n": 0, "no heading": 1, "\ufeff## A\nb": 1, "##\n## \nx": 1} {
		if list, err := projections.ReadMarkdown(text); err != nil || len(list) != n {
			t.Errorf("%q: %+v, %v", text, list, err)
		}
	}
}

func TestMarkdownThatIsRefused(t *testing.T) {
	const mark = "<!-- fleetledger collective memory -->\n"
	for text, line := range map[string]int{
		"a\n\xff\n":                                                                             2,
		mark + "prose in no section\n## A\nb":                                                   2,
		mark + "## A\n<!-- section a -->\n\nb":                                                  3,
		mark + "## A\n<!-- section a revision x -->\n\nb":                                       3,
		mark + "## A\n<!-- section a revision 1 -->\n> measured\n\nb":                           4,
		mark + "## A\n<!-- section a revision 1 -->\n> measured 1; measured 2\n\nb":             4,
		mark + "## A\n<!-- section a revision 1 -->\nb\n## B\n<!-- section a revision 1 -->\nb": 6,
	} {
		_, err := projections.ReadMarkdown(text)
		if e, ok := errors.AsType[*projections.MarkdownError](err); !ok || e.Line != line {
			t.Errorf("%q: got %v, not line %d", text, err, line)
		}
	}
}

func TestSlug(t *testing.T) {
	seen := map[string]string{}
	for _, h := range []string{"Flaky tests", "`go test` -race", "Größe", "Grüße", "メモ", "記憶", "...", "C++", strings.Repeat("long ", 40), strings.Repeat("long ", 41), "a→b", "-x-"} {
		s := projections.Slug(h)
		if !events.ValidID(s) {
			t.Errorf("%q gives %q", h, s)
		}
		if other, ok := seen[s]; ok {
			t.Errorf("%q and %q give %q", h, other, s)
		}
		seen[s] = h
	}
	if s := projections.Slug("`go test` -race"); s != "go-test-race" {
		t.Errorf("got %s", s)
	}
}

// Whatever a foreign document holds, the document made of it reads back as the
// same sections.
func FuzzReadMarkdown(f *testing.F) {
	for _, seed := range []string{"", "# T\n\nlead\n## A\nb\n", "## A\n```\n## x\n", "## A\r\n\r\nb\r\n## A\r\n\\## c\r\n", "##\u00a0x\n## A\r## B\rc",
		"<!-- fleetledger collective memory -->\n## A\n<!-- section a revision 1 -->\n> measured 2026-03-01\n\nb\n", "## A\n~~~~\n~~~\n## x\n~~~~ \ny"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := projections.ReadMarkdown(text)
		if err != nil {
			return
		}
		var list []events.SectionRevised
		for _, s := range read {
			plain := func(x string) bool { return strings.TrimSpace(x) == x && !strings.ContainsFunc(x, unicode.IsControl) }
			// What the ledger would not take: see commands.ReviseSection.
			if strings.TrimSpace(s.Text) == "" || !plain(s.Heading) || !plain(s.How) || !events.ValidID(s.Slug) || s.MeasuredAt != "" && s.MeasuredAt != "2026-03-01" || s.Evidence != nil {
				continue
			}
			list = append(list, events.SectionRevised{Slug: s.Slug, Heading: s.Heading, Text: s.Text, MeasuredAt: s.MeasuredAt, How: s.How})
		}
		written := document(t, list...).Markdown()
		again, err := projections.ReadMarkdown(written)
		if err != nil || len(again) != len(list) {
			t.Fatalf("%d sections, %v, not %d of\n%q", len(again), err, len(list), written)
		}
		for i, s := range again {
			if s.Slug != list[i].Slug || !s.Same(projections.ContentOf(list[i])) {
				t.Fatalf("read\n%#v, not\n%#v", s, list[i])
			}
		}
	})
}

// A text of the largest size is written and read in time that does not grow with
// the square of its lines.
func TestMarkdownOfManyFences(t *testing.T) {
	text := strings.Repeat("```a\n", 60_000) + "x"
	start := time.Now()
	read, err := projections.ReadMarkdown(document(t, events.SectionRevised{Slug: "a", Heading: "A", Text: text}).Markdown())
	if err != nil || len(read) != 1 || read[0].Text != text {
		t.Errorf("read %d sections, %v", len(read), err)
	}
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("it took %v", d)
	}
}
