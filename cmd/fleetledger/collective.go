package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/projections"
)

// section is a section of the collective memory as the server shows it.
type section struct {
	Slug       string          `json:"slug"`
	Heading    string          `json:"heading"`
	Text       string          `json:"text"`
	MeasuredAt string          `json:"measured_at"`
	How        string          `json:"how"`
	Evidence   []string        `json:"evidence"`
	Revision   events.Revision `json:"revision"`
	By         string          `json:"by"`
	At         time.Time       `json:"at"`
	Retired    bool            `json:"retired"`
	Erased     bool            `json:"erased"`
}

func (s section) content() projections.SectionContent {
	return projections.SectionContent{Heading: s.Heading, Text: s.Text, MeasuredAt: s.MeasuredAt, How: s.How, Evidence: s.Evidence}
}

// sectionBody is the body of PUT /v1/collective/sections/{slug}.
type sectionBody struct {
	Heading    string           `json:"heading"`
	Text       string           `json:"text"`
	MeasuredAt string           `json:"measured_at,omitzero"`
	How        string           `json:"how,omitzero"`
	Evidence   []string         `json:"evidence,omitzero"`
	Revision   *events.Revision `json:"revision,omitzero"`
}

func sectionPath(slug string) string { return agent.Path("v1", "collective", "sections", slug) }

func (a *app) collectiveCommand() *cobra.Command {
	return a.group("collective", "The collective memory: what the fleet knows, in sections", `  fleetledger collective show`,
		a.collectiveShowCommand(), spends(a.collectiveImportCommand()), a.collectiveEditCommand(), spends(a.collectiveRetireCommand()))
}

func (a *app) collectiveShowCommand() *cobra.Command {
	var at uint64
	var output string
	cmd := &cobra.Command{
		Use:   "show [SLUG]",
		Short: "Show the collective memory, or one section with its history",
		Long: `Show the collective memory as Markdown, its list of sections first; or one section,
with who wrote it, what it rests on and how it came about. What people and agents
wrote there is data: characters that a terminal could act upon are shown as escapes.
--output writes the document to a file as it is, for "collective import" to read back.`,
		Example: `  fleetledger collective show
  fleetledger collective show flaky-tests
  fleetledger collective show --output fleet-memory.md`,
		Args: cobra.MaximumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			q := url.Values{}
			if cmd.Flags().Changed("at") {
				q.Set("at", strconv.FormatUint(at, 10))
			}
			if len(args) == 1 {
				if output != "" {
					return misused("--output is for the whole document")
				}
				return a.get(cmd, sectionPath(args[0]), q, showSection)
			}
			r := agent.Request{Method: http.MethodGet, Path: "/v1/collective", Query: q}
			if output != "" || !a.json {
				r.Accept = "text/markdown"
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			resp, err := c.Do(cmd.Context(), r)
			switch {
			case err != nil:
				return a.unanswered(err)
			case output != "":
				return os.WriteFile(output, resp.Body, 0o666)
			case a.json:
				return a.printJSON(resp.Body)
			}
			a.showMarkdown(string(resp.Body))
			return nil
		}),
	}
	cmd.Flags().Uint64Var(&at, "at", 0, "as the ledger knew it at this position")
	cmd.Flags().StringVarP(&output, "output", "o", "", "write the document to this file")
	return cmd
}

// showMarkdown prints a document line by line, tabs as they are.
func (a *app) showMarkdown(text string) {
	changed := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		cells := strings.Split(line, "\t")
		for i, cell := range cells {
			cells[i] = visible(cell)
		}
		shown := strings.Join(cells, "\t")
		if shown != line {
			changed++
		}
		_, _ = fmt.Fprintln(a.out, shown) // see results
	}
	if changed > 0 {
		printer{a.err}.f("%s with characters that are shown as escapes; --output FILE writes them as they are\n", count(changed, "line"))
	}
}

func showSection(p printer, r *agent.Response) error {
	var answer struct {
		Section section   `json:"section"`
		History []section `json:"history"`
	}
	if err := r.Decode(&answer); err != nil {
		return err
	}
	s := answer.Section
	p.f("%s: %s\n", s.Slug, s.Heading)
	did := "written"
	switch {
	case s.Retired:
		did = "retired"
	case s.Erased:
		did = "written, and since erased,"
	}
	p.f("  revision %d, %s by %s at %s\n", s.Revision, did, s.By, when(s.At))
	if s.MeasuredAt != "" {
		p.f("  measured %s\n", s.MeasuredAt)
	}
	if s.How != "" {
		p.f("  how: %s\n", s.How)
	}
	for _, id := range s.Evidence {
		p.f("  rests on %s\n", id)
	}
	p.block("  ", s.Text)
	for _, h := range answer.History[min(1, len(answer.History)):] {
		did := "written as " + h.Heading
		switch {
		case h.Retired:
			did = "retired"
		case h.Erased:
			did = "written, and since erased,"
		}
		p.f("  before: revision %d, %s by %s at %s\n", h.Revision, did, h.By, when(h.At))
	}
	return nil
}

func (a *app) collectiveRetireCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "retire SLUG",
		Short:   "Take a section out of the document; it stays in the record",
		Example: `  fleetledger collective retire flaky-tests`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.request(cmd, agent.Request{
				Method: http.MethodDelete, Path: sectionPath(args[0]), Key: agent.NewKey(), ApprovalID: approvalOf(cmd),
			}, func(p printer, _ *agent.Response) error {
				p.f("section %s is retired\n", args[0])
				return nil
			})
		}),
	}
}

func (a *app) collectiveImportCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "import FILE",
		Short: "Write the sections of a Markdown file",
		Long: `Write the sections of a Markdown file into the collective memory: each heading of the
second level ("## So") with what stands under it, and what stands before the first.
Text is kept as it is written. A section that says what it said before records
nothing, so a file can be imported again; sections that are not in the file stay.

A file that "collective show --output" wrote says which revision each section was
taken from: one that somebody has changed since is refused, and nothing is lost.`,
		Example: `  fleetledger collective import fleet-memory.md`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			raw, err := os.ReadFile(args[0])
			if err != nil {
				return err
			}
			list, err := projections.ReadMarkdown(string(raw))
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if len(list) == 0 {
				return fmt.Errorf("%s has no section: a section is a heading of the second level, ## So, with text under it", args[0])
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			return a.importSections(cmd, c, list)
		}),
	}
}

// imported is what became of one section of a file.
type imported struct {
	Slug     string          `json:"slug"`
	Line     int             `json:"line"`
	Outcome  string          `json:"outcome"` // written, unchanged, skipped, refused, waiting
	Revision events.Revision `json:"revision,omitzero"`
	Detail   string          `json:"detail,omitzero"`
	Approval string          `json:"approval_id,omitzero"`
}

func (a *app) importSections(cmd *cobra.Command, c *agent.Client, list []projections.ReadSection) error {
	now, err := currentSections(cmd, c)
	if err != nil {
		return a.unanswered(err)
	}
	approval := approvalOf(cmd)
	report := []imported{}
	for _, s := range list {
		before := now[s.Slug]
		x, err := importSection(cmd, c, s, before, approval)
		if err != nil {
			return errors.Join(a.tellImported(report), a.unanswered(err))
		}
		if x.Outcome == "written" {
			approval = "" // it is spent
			if before.Revision != 0 {
				x.Detail = fmt.Sprintf("before, it was revision %d by %s", before.Revision, before.By)
			}
		}
		report = append(report, x)
		if x.Outcome == "waiting" {
			// The next ones would wait too, and each approval lets in one section.
			break
		}
	}
	if err := a.tellImported(report); err != nil {
		return err
	}
	if last := report[len(report)-1]; last.Outcome == "waiting" && !a.json {
		return tryNext(fmt.Errorf("section %s waits for approval %s; once granted, repeat the same command with --approval %s", last.Slug, last.Approval, last.Approval),
			"fleetledger approvals show "+last.Approval)
	}
	if slices.ContainsFunc(report, func(x imported) bool { return x.Outcome == "refused" || x.Outcome == "waiting" }) {
		return errQuiet
	}
	return nil
}

// importSection writes one section of a file; before is what it is now.
func importSection(cmd *cobra.Command, c *agent.Client, s projections.ReadSection, before section, approval string) (imported, error) {
	if strings.TrimSpace(s.Text) == "" {
		return imported{Slug: s.Slug, Line: s.Line, Outcome: "skipped", Detail: "nothing stands under its heading"}, nil
	}
	if s.Revision == nil {
		s.Revision = &before.Revision
	}
	resp, err := putSection(cmd.Context(), c, s, approval)
	if p, ok := errors.AsType[*agent.Problem](err); ok && p.Code == "SECTION_NOT_FOUND" {
		// It was taken from another ledger: this one never had it.
		s.Revision = new(events.Revision)
		resp, err = putSection(cmd.Context(), c, s, approval)
	}
	return outcomeOf(s, resp, err)
}

// outcomeOf is what became of a section; an error is one that the next section
// would meet too.
func outcomeOf(s projections.ReadSection, resp *agent.Response, err error) (imported, error) {
	x := imported{Slug: s.Slug, Line: s.Line}
	if err != nil {
		p, ok := errors.AsType[*agent.Problem](err)
		if !ok || p.Status != http.StatusConflict && p.Status != http.StatusUnprocessableEntity && p.Status != http.StatusRequestEntityTooLarge {
			return x, err
		}
		x.Outcome, x.Detail = "refused", p.Error()
		return x, nil
	}
	var answer struct {
		Section  section  `json:"section"`
		Receipt  *receipt `json:"receipt"`
		Approval string   `json:"approval_id"`
	}
	if err := resp.Decode(&answer); err != nil {
		return x, err
	}
	x.Revision, x.Approval = answer.Section.Revision, answer.Approval
	switch {
	case x.Approval != "":
		x.Outcome = "waiting"
	case answer.Receipt != nil:
		x.Outcome = "written"
	default:
		x.Outcome = "unchanged"
	}
	return x, nil
}

// receipt is as much of one as says that something was recorded.
type receipt struct {
	Position events.Position `json:"position"`
}

func (a *app) tellImported(report []imported) error {
	if a.json {
		return a.printValue(report)
	}
	counts := map[string]int{}
	for _, x := range report {
		counts[x.Outcome]++
		p := printer{a.out}
		if x.Outcome == "refused" || x.Outcome == "skipped" {
			p = printer{a.err}
		}
		p.f("%s, line %d: %s", x.Slug, x.Line, x.Outcome)
		if x.Revision != 0 {
			p.f(", revision %d", x.Revision)
		}
		if x.Detail != "" {
			p.f("; %s", x.Detail)
		}
		p.f("\n")
	}
	printer{a.err}.f("%d written, %d unchanged, %d skipped, %d refused\n", counts["written"], counts["unchanged"], counts["skipped"], counts["refused"])
	return nil
}

// currentSections are those of the document, by slug; none if there is no document.
func currentSections(cmd *cobra.Command, c *agent.Client) (map[string]section, error) {
	resp, err := c.Get(cmd.Context(), "/v1/collective", nil)
	if p, ok := errors.AsType[*agent.Problem](err); ok && p.Code == "MEMORY_NO_COLLECTIVE" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var doc struct {
		Sections []section `json:"sections"`
	}
	if err := resp.Decode(&doc); err != nil {
		return nil, err
	}
	out := map[string]section{}
	for _, s := range doc.Sections {
		out[s.Slug] = s
	}
	return out, nil
}

func putSection(ctx context.Context, c *agent.Client, s projections.ReadSection, approval string) (*agent.Response, error) {
	return c.Do(ctx, agent.Request{
		Method: http.MethodPut, Path: sectionPath(s.Slug), Key: agent.NewKey(), ApprovalID: approval,
		Body: sectionBody{Heading: s.Heading, Text: s.Text, MeasuredAt: s.MeasuredAt, How: s.How, Evidence: s.Evidence, Revision: s.Revision},
	})
}
