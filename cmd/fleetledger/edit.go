package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/projections"
)

func (a *app) collectiveEditCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "edit SLUG",
		Short: "Edit a section in your editor, or write a new one",
		Long: `Open a section in $EDITOR ($VISUAL, or vi, if that is not set) and write it when the
editor ends. A section that is not there yet is written anew. What it rests on stands
in a line of its own below the mark, each part only if there is one:

  > measured 2026-03-01; evidence RECORD, RECORD; how: ran the suite 20 times

If somebody else changed the section meanwhile, nothing is written: your text stays in
a file, and you are told how to go on.`,
		Example: `  EDITOR=nano fleetledger collective edit flaky-tests`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			if !events.ValidID(args[0]) {
				return misused("%q names no section: a slug is 1 to 64 of a-z, 0-9, '.', '_' and '-', beginning with a letter or digit", args[0])
			}
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			before, err := a.sectionToEdit(cmd, c, args[0])
			if err != nil {
				return a.unanswered(err)
			}
			return a.editSection(cmd, c, before)
		}),
	}
}

// sectionToEdit is the section as it stands, or a new one.
func (a *app) sectionToEdit(cmd *cobra.Command, c *agent.Client, slug string) (section, error) {
	resp, err := c.Get(cmd.Context(), sectionPath(slug), nil)
	if p, ok := errors.AsType[*agent.Problem](err); ok && p.Code == "SECTION_NOT_FOUND" {
		return section{Slug: slug, Heading: slug}, nil
	}
	if err != nil {
		return section{}, err
	}
	var answer struct {
		Section section `json:"section"`
	}
	if err := resp.Decode(&answer); err != nil {
		return section{}, err
	}
	if s := &answer.Section; s.Erased {
		s.Heading = s.Slug
		printer{a.err}.f("what %s said was erased: write it anew\n", s.Slug)
	} else if s.Retired {
		printer{a.err}.f("%s was retired by %s at %s: writing it brings it back\n", s.Slug, s.By, when(s.At))
	}
	return answer.Section, nil
}

// editSection has the user edit a section and writes what came of it. Whatever
// goes wrong once the user has written something, the file stays.
func (a *app) editSection(cmd *cobra.Command, c *agent.Client, before section) error {
	text := projections.SectionMarkdown(before.Slug, before.Revision, before.content())
	f, err := os.CreateTemp("", "collective-"+before.Slug+"-*.md")
	if err != nil {
		return err
	}
	name := f.Name()
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	editing := a.runEditor(name)
	raw, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("what the editor left: %w", err)
	}
	if string(raw) == text || strings.TrimSpace(string(raw)) == "" {
		if err := os.Remove(name); err != nil {
			return err
		}
		if editing == nil {
			printer{a.err}.f("nothing was changed: the file is as it was, or empty\n")
		}
		return editing
	}
	kept := func(err error, try string) error {
		printer{a.err}.f("your text is kept in %s\n", name)
		return tryNext(err, try)
	}
	again := "mend it, then: fleetledger collective import " + name
	if editing != nil {
		return kept(editing, again)
	}
	list, err := projections.ReadMarkdown(string(raw))
	if err == nil && len(list) == 1 && list[0].Revision == nil {
		list[0].Slug = before.Slug // its mark is gone
	}
	if err == nil && (len(list) != 1 || list[0].Slug != before.Slug) {
		err = fmt.Errorf("the file holds %s, not the one section %s; a heading within the text stands behind a backslash, \\## so",
			count(len(list), "section"), before.Slug)
	}
	if err != nil {
		return kept(err, again)
	}
	s := list[0]
	s.Revision = &before.Revision
	// An interrupt was meant for the editor, and must not cost the text.
	resp, err := putSection(context.WithoutCancel(cmd.Context()), c, s, "")
	if p, ok := errors.AsType[*agent.Problem](err); ok && p.Code == "SECTION_CHANGED" {
		var actual events.Revision
		p.Fact("actual", &actual)
		return kept(err, fmt.Sprintf("fleetledger collective show %s; bring the two together in the file, write revision %d in its mark, then: fleetledger collective import %s",
			before.Slug, actual, name))
	}
	if err != nil {
		return kept(a.unanswered(err), again)
	}
	x, err := outcomeOf(s, resp, nil)
	switch {
	case err != nil:
		return kept(err, again)
	case x.Outcome == "waiting":
		return kept(fmt.Errorf("nothing was changed: it waits for approval %s", x.Approval),
			fmt.Sprintf("once it is granted: fleetledger collective import %s --approval %s", name, x.Approval))
	}
	if err := os.Remove(name); err != nil {
		return err
	}
	return a.show(resp, func(p printer, _ *agent.Response) error {
		p.f("%s: %s, revision %d\n", x.Slug, x.Outcome, x.Revision)
		return nil
	})
}

// runEditor opens a file in the user's editor and waits for its end. The variable
// may hold arguments: like other tools, it is read by the shell.
func (a *app) runEditor(file string) error {
	// The terminal interrupts both: what that means is for the editor to say.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	editor := os.Getenv("EDITOR")
	if editor == "" {
		editor = os.Getenv("VISUAL")
	}
	var run *exec.Cmd
	if runtime.GOOS == "windows" {
		words := append(strings.Fields(editor), file)
		if editor == "" {
			words = []string{"notepad", file}
		}
		run = exec.Command(words[0], words[1:]...)
	} else {
		if editor == "" {
			editor = "vi"
		}
		run = exec.Command("sh", "-c", editor+` "$@"`, editor, file)
	}
	run.Stdin, run.Stdout, run.Stderr = a.in, a.terminal, a.err
	if err := run.Run(); err != nil {
		return fmt.Errorf("the editor %s: %w; nothing was written", editor, err)
	}
	return nil
}
