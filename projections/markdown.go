package projections

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"fleetledger/events"
)

// The collective memory as Markdown. Ours begins with documentMark and the list
// of its sections:
//
//	<!-- fleetledger collective memory -->
//	# Collective memory
//
//	- [Flaky tests](#flaky-tests)
//
//	## Flaky tests
//	<!-- section flaky-tests revision 12 -->
//	> measured 2026-03-01; evidence 0193b2c5-..., 0193b2c6-...; how: ran the suite 20 times
//
//	The text, as it was written.
//
// What is read back is what was written, to the byte. So a line of a text that
// would be read as something else, such as a heading of the second level, is
// written behind a backslash, and a line that begins with one already gets
// another. Lines within a fenced block are left alone, as Markdown leaves them.
const (
	documentMark  = "<!-- fleetledger collective memory -->"
	documentTitle = "# Collective memory"
)

// Markdown writes the document. The same sections give the same bytes.
func (c *Collective) Markdown() string {
	var b strings.Builder
	b.WriteString(documentMark + "\n" + documentTitle + "\n\n")
	sections := c.Sections()
	if len(sections) == 0 {
		return b.String()
	}
	label := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`)
	for _, s := range sections {
		fmt.Fprintf(&b, "- [%s](#%s)\n", label.Replace(s.Heading), s.Slug)
	}
	for _, s := range sections {
		b.WriteString("\n")
		writeSection(&b, s.Slug, s.Revision, s.SectionContent)
	}
	return b.String()
}

// SectionMarkdown writes a document of one section, for an editor. revision is
// that which the writer has seen, 0 for none.
func SectionMarkdown(slug string, revision events.Revision, content SectionContent) string {
	var b strings.Builder
	b.WriteString(documentMark + "\n\n")
	writeSection(&b, slug, revision, content)
	return b.String()
}

func writeSection(b *strings.Builder, slug string, revision events.Revision, c SectionContent) {
	fmt.Fprintf(b, "## %s\n<!-- section %s revision %d -->\n", c.Heading, slug, revision)
	var basis []string
	if c.MeasuredAt != "" {
		basis = append(basis, "measured "+c.MeasuredAt)
	}
	if len(c.Evidence) > 0 {
		basis = append(basis, "evidence "+strings.Join(c.Evidence, ", "))
	}
	if c.How != "" {
		basis = append(basis, "how: "+c.How)
	}
	if basis != nil {
		b.WriteString("> " + strings.Join(basis, "; ") + "\n")
	}
	b.WriteString("\n")
	if c.Text == "" {
		return
	}
	for _, line := range shield(linesOf(c.Text)) {
		b.WriteString(line)
	}
	b.WriteString("\n")
}

// linesOf cuts a text behind each line ending that Markdown knows (\n, \r\n, \r);
// what is behind the last, if only nothing, is a line too.
func linesOf(text string) []string {
	var lines []string
	for {
		i := strings.IndexAny(text, "\r\n")
		if i < 0 {
			return append(lines, text)
		}
		i++
		if strings.HasPrefix(text[i-1:], "\r\n") {
			i++
		}
		lines, text = append(lines, text[:i]), text[i:]
	}
}

// shield puts a backslash before each line of a text that would be read as
// something else.
func shield(lines []string) []string {
	out := slices.Clone(lines)
	first := slices.IndexFunc(lines, func(l string) bool { return !blank(l) })
	last := len(lines) - 1
	for last > first && blank(lines[last]) {
		last--
	}
	closers := longestClosers(lines)
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		if f := fenceOf(line); f != "" {
			if closers[i+1][f[0]] < len(f) {
				// Never closed: it would take in the sections behind it.
				out[i] = `\` + line
				continue
			}
			for i++; !closes(f, lines[i]); i++ {
			}
			continue
		}
		rest := strings.TrimLeft(line, `\`)
		if rest != line && special(rest) || headingOf(line) != "" || i < first || i > last {
			out[i] = `\` + line
		}
	}
	return out
}

// longestClosers says, for each line and the end, how long the longest fence is
// that it or a line behind it could close, by the fence's character: to look for
// the end of each fence by itself would take quadratic time.
func longestClosers(lines []string) []map[byte]int {
	out := make([]map[byte]int, len(lines)+1)
	now := map[byte]int{}
	out[len(lines)] = now
	for i, line := range slices.Backward(lines) {
		f := fenceOf(line)
		if f != "" && closes(f, line) && len(f) > now[f[0]] {
			now = maps.Clone(now)
			now[f[0]] = len(f)
		}
		out[i] = now
	}
	return out
}

// special reports whether a line, its backslashes taken off, is one that shield
// may have written.
func special(line string) bool { return blank(line) || headingOf(line) != "" || fenceOf(line) != "" }

func blank(line string) bool { return strings.TrimSpace(line) == "" }

// unindented takes off the indentation that Markdown allows before a mark.
func unindented(line string) string {
	for i := range 4 {
		if i == len(line) || line[i] != ' ' {
			return line[i:]
		}
	}
	return ""
}

// headingOf is the heading of a line that is one of the second level, else empty.
func headingOf(line string) string {
	rest, ok := strings.CutPrefix(unindented(line), "##")
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '\t' {
		return ""
	}
	return strings.TrimSpace(rest)
}

// fenceOf is the fence that a line opens, empty if it opens none.
func fenceOf(line string) string {
	line = unindented(line)
	for _, mark := range []string{"`", "~"} {
		rest := strings.TrimLeft(line, mark)
		if n := len(line) - len(rest); n >= 3 && (mark == "~" || !strings.Contains(rest, "`")) {
			return line[:n]
		}
	}
	return ""
}

func closes(fence, line string) bool {
	line = unindented(line)
	rest := strings.TrimLeft(line, fence[:1])
	return len(line)-len(rest) >= len(fence) && blank(rest)
}

// ReadSection is a section as a document has it.
type ReadSection struct {
	Slug string
	SectionContent
	// Revision is the one that the text was taken from, 0 for none; nil if the
	// document does not say.
	Revision *events.Revision
	// Line is that of its heading, from 1.
	Line int
}

// A MarkdownError is a document that cannot be taken as sections.
type MarkdownError struct {
	Line   int
	Detail string
}

func (e *MarkdownError) Error() string { return fmt.Sprintf("line %d: %s", e.Line, e.Detail) }

// ReadMarkdown reads a document as sections: one that Markdown wrote, as it was;
// any other by its headings of the second level. What stands before the first of
// them is a section of its own there, named by its title. Text is kept as it is
// written, but for blank lines at its ends.
func ReadMarkdown(text string) ([]ReadSection, error) {
	text = strings.TrimPrefix(text, "\ufeff")
	lines := linesOf(text)
	for i, l := range lines {
		if !utf8.ValidString(l) {
			return nil, &MarkdownError{i + 1, "it is not UTF-8; save it as that"}
		}
	}
	first := slices.IndexFunc(lines, func(l string) bool { return !blank(l) })
	ours := first >= 0 && strings.TrimSpace(lines[first]) == documentMark
	if ours && strings.HasSuffix(lines[first], "\r\n") {
		// We write no carriage returns: an editor turned all line ends.
		lines = linesOf(strings.ReplaceAll(text, "\r\n", "\n"))
	}
	parts := split(lines)
	var out []ReadSection
	if ours {
		for i, l := range parts[0] {
			if l = strings.TrimSpace(l); l != "" && l != documentMark && l != documentTitle && !strings.HasPrefix(l, "- [") {
				return nil, &MarkdownError{i + 1, "this stands in no section: put it under a heading, ## SO"}
			}
		}
	} else if s, ok := lead(parts[0]); ok {
		out = append(out, s)
	}
	at := len(parts[0]) + 1
	for _, part := range parts[1:] {
		s := ReadSection{Line: at, SectionContent: SectionContent{Heading: headingOf(part[0])}}
		body := part[1:]
		if ours {
			var err error
			if body, err = s.readMarks(body); err != nil {
				return nil, err
			}
		}
		if body = trimBlank(body); ours {
			s.Text = strings.TrimSuffix(strings.Join(unshield(body), ""), "\n")
		} else {
			s.Text = asText(body)
		}
		out = append(out, s)
		at += len(part)
	}
	return out, nameSections(out)
}

// split cuts a document at its headings of the second level; the first part is
// what stands before them.
func split(lines []string) [][]string {
	var parts [][]string
	start, fence := 0, ""
	for i, l := range lines {
		switch {
		case fence != "":
			if closes(fence, l) {
				fence = ""
			}
		case headingOf(l) != "":
			parts = append(parts, lines[start:i])
			start = i
		default:
			fence = fenceOf(l)
		}
	}
	return append(parts, lines[start:])
}

// lead is the section that stands before the first heading of the second level.
func lead(lines []string) (ReadSection, bool) {
	s := ReadSection{Line: 1, SectionContent: SectionContent{Heading: "Introduction"}}
	for i, l := range lines {
		if blank(l) {
			continue
		}
		s.Line = i + 1
		if title, ok := strings.CutPrefix(unindented(l), "# "); ok && !blank(title) {
			s.Heading, lines = strings.TrimSpace(title), lines[i+1:]
		}
		break
	}
	s.Text = asText(trimBlank(lines))
	return s, s.Text != ""
}

// asText joins the lines of a foreign document, without the end of the last.
func asText(lines []string) string {
	return strings.TrimSuffix(strings.TrimSuffix(strings.Join(lines, ""), "\n"), "\r")
}

// readMarks reads what Markdown writes below a heading and returns what is left.
// A section that somebody added by hand has none of it.
func (s *ReadSection) readMarks(body []string) ([]string, error) {
	if len(body) == 0 {
		return body, nil
	}
	mark, ok := strings.CutPrefix(strings.TrimSpace(body[0]), "<!-- section ")
	if !ok {
		return body, nil
	}
	words := strings.Fields(strings.TrimSuffix(mark, "-->"))
	n := uint64(0)
	var err error
	if ok = strings.HasSuffix(mark, "-->") && len(words) == 3 && words[1] == "revision"; ok {
		n, err = strconv.ParseUint(words[2], 10, 64)
	}
	if !ok || err != nil {
		return nil, &MarkdownError{s.Line + 1, "this is no mark of a section: it looks like <!-- section flaky-tests revision 12 -->"}
	}
	revision := events.Revision(n)
	s.Slug, s.Revision = words[0], &revision
	body = body[1:]
	if len(body) == 0 || !strings.HasPrefix(body[0], "> ") {
		return body, nil
	}
	if !s.readBasis(strings.TrimSpace(strings.TrimPrefix(body[0], "> "))) {
		return nil, &MarkdownError{s.Line + 2, "this does not say what the section rests on: it looks like > measured 2026-03-01; evidence ID, ID; how: TEXT, each part only if there is one"}
	}
	return body[1:], nil
}

func (s *ReadSection) readBasis(line string) bool {
	for line != "" {
		if how, ok := strings.CutPrefix(line, "how: "); ok {
			s.How = how
			return true
		}
		part, rest, _ := strings.Cut(line, "; ")
		line = rest
		if at, ok := strings.CutPrefix(part, "measured "); ok && s.MeasuredAt == "" {
			s.MeasuredAt = at
		} else if ids, ok := strings.CutPrefix(part, "evidence "); ok && s.Evidence == nil {
			s.Evidence = strings.Split(ids, ", ")
		} else {
			return false
		}
	}
	return true
}

func trimBlank(lines []string) []string {
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// unshield takes off the backslashes that shield put on.
func unshield(lines []string) []string {
	out := slices.Clone(lines)
	fence := ""
	for i, l := range lines {
		if fence != "" {
			if closes(fence, l) {
				fence = ""
			}
			continue
		}
		if fence = fenceOf(l); fence != "" {
			continue
		}
		if rest := strings.TrimLeft(l, `\`); rest != l && special(rest) {
			out[i] = l[1:]
		}
	}
	return out
}

// nameSections gives a slug to each section that has none: that of its heading,
// numbered if the document has it before.
func nameSections(list []ReadSection) error {
	taken := map[string]bool{}
	for _, s := range list {
		if s.Slug != "" && taken[s.Slug] {
			return &MarkdownError{s.Line + 1, fmt.Sprintf("the section %s is there twice", s.Slug)}
		}
		taken[s.Slug] = true
	}
	last := map[string]int{} // the number given last, by name
	for i := range list {
		s := &list[i]
		if s.Slug != "" {
			continue
		}
		name := Slug(s.Heading)
		s.Slug = name
		for n := max(2, last[name]+1); taken[s.Slug]; n++ {
			suffix := "-" + strconv.Itoa(n)
			s.Slug, last[name] = name[:min(len(name), maxSlug-len(suffix))]+suffix, n
		}
		taken[s.Slug] = true
	}
	return nil
}

// maxSlug is how long an id may be, see events.ValidID.
const maxSlug = 64

// Slug names a section by its heading: its ASCII letters and digits, in lower
// case, joined by hyphens. Where that leaves letters out, part of a hash of the
// whole heading keeps apart what would look the same.
func Slug(heading string) string {
	var b strings.Builder
	whole := true
	for _, r := range strings.ToLower(heading) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
			continue
		case r > unicode.MaxASCII && (unicode.IsLetter(r) || unicode.IsNumber(r) || unicode.IsMark(r) || unicode.IsSymbol(r)):
			whole = false
		}
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "-") {
			b.WriteByte('-')
		}
	}
	slug := strings.TrimSuffix(b.String(), "-")
	if whole && slug != "" && len(slug) <= maxSlug {
		return slug
	}
	hash := fmt.Sprintf("%x", sha256.Sum256([]byte(heading)))[:8]
	slug = strings.TrimSuffix(slug[:min(len(slug), maxSlug-len(hash)-1)], "-")
	if slug == "" {
		slug = "section"
	}
	return slug + "-" + hash
}
