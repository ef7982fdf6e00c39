package commands_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
)

func TestConsolidate(t *testing.T) {
	w := newWorld(t)
	w.people()
	tk := w.taskOf(w.submit("ana", "make"))
	reported := w.ok(w.report(tk, "m1", w.claim(tk, "m1"), w.envelope("m1", 1, "no"))).Records[0].Header.ID
	record := func(machine string) string {
		rec := events.MemoryRecord{Envelope: w.envelope(machine, 0, "ok"), Argv: []string{"ls"}}
		return w.ok(w.RecordMemory(w.ctx(), as("ana"), commands.RecordMemory{Record: rec, ImportedFrom: "atuin"})).Records[0].Header.ID
	}
	laptop := record("laptop")
	concluded := w.ok(w.Conclude(w.ctx(), as("ana"), commands.Conclude{Text: "no record"})).Records[0].Header.ID
	do := func(by string, c commands.Consolidate) func() (commands.Result, error) {
		return func() (commands.Result, error) { return w.Consolidate(w.ctx(), as(by), c) }
	}
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		name, code, path string
		cmd              commands.Consolidate
	}{
		{"without a text", "INVALID", "/text", commands.Consolidate{Text: " ", Records: []string{reported}}},
		{"without a record", "INVALID", "/records", commands.Consolidate{Text: "x"}},
		{"a record twice", "INVALID", "/records/1", commands.Consolidate{Text: "x", Records: []string{reported, reported}}},
		{"too many records", "INVALID", "/records", commands.Consolidate{Text: "x", Records: numbered(commands.MaxCited + 1)}},
		{"a record that is not here", "RECORD_NOT_FOUND", "/records/1", commands.Consolidate{Text: "x", Records: []string{reported, "none"}}},
		{"no record", "RECORD_NOT_FOUND", "/records/0", commands.Consolidate{Text: "x", Records: []string{concluded}}},
		{"a name that is none", "RECORD_NOT_FOUND", "/records/0", commands.Consolidate{Text: "x", Records: []string{"a\nb"}}},
		{"a secret", "SECRET_IN_TEXT", "/text", commands.Consolidate{Text: leaked, Records: []string{reported}}},
		{"forgetting nothing", "INVALID", "/forgets", commands.Consolidate{Text: "x", Records: []string{reported}, Forgets: &events.Forgetting{ForAll: true}}},
		{"forgetting what is not cited", "INVALID", "/forgets/cited", commands.Consolidate{Text: "x", Forgets: &events.Forgetting{Cited: true}}},
		{"a command of no machine", "INVALID", "/forgets/machine", commands.Consolidate{Text: "x", Records: []string{reported}, Forgets: &events.Forgetting{Cited: true, Command: "ls"}}},
		{"a time of no machine", "INVALID", "/forgets/machine", commands.Consolidate{Text: "x", Records: []string{reported}, Forgets: &events.Forgetting{Cited: true, Before: &at}}},
		{"a machine that can be none", "INVALID", "/forgets/machine", commands.Consolidate{Text: "x", Forgets: &events.Forgetting{Machine: "M 1"}}},
		{"a secret as a machine", "SECRET_IN_TEXT", "/forgets/machine", commands.Consolidate{Text: "x", Forgets: &events.Forgetting{Machine: strings.ToLower(leaked)}}},
		{"recalling and citing", "INVALID", "/recalls", commands.Consolidate{Text: "x", Recalls: "y", Records: []string{reported}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.refused(c.code, do("ana", c.cmd))
			if p := r.Facts["problems"].([]events.Problem); len(p) != 1 || p[0].Path != c.path || strings.Contains(r.Error(), leaked) {
				t.Errorf("got %+v", p)
			}
		})
	}

	// Machines may too: it is what records amount to, not what they meant.
	one := w.ok(do("m1", commands.Consolidate{Text: "make fails, ls does not", Records: []string{reported, laptop}})())
	if h := one.Records[0].Header; h.Stream != "machine-m1" {
		t.Errorf("recorded in %s", h.Stream)
	}
	if r := w.ok(do("ana", commands.Consolidate{Text: "x", Records: []string{laptop}})()); r.Records[0].Header.Stream != "machine-laptop" {
		t.Errorf("recorded in %s", r.Records[0].Header.Stream)
	}
	c, err := w.Consolidation(w.ctx(), one.Records[0].Header.ID, 0)
	if err != nil || c.Text != "make fails, ls does not" || len(c.Records) != 2 || c.By != "m1" {
		t.Errorf("got %+v, %v", c, err)
	}

	// Anybody forgets for itself; for all, who may revise what all read.
	mine := w.ok(do("ana", commands.Consolidate{Text: "old", Forgets: &events.Forgetting{Machine: "laptop", Command: "ls", Before: &at}})()).Records[0].Header
	if mine.Stream != "machine-laptop" {
		t.Errorf("recorded in %s", mine.Stream)
	}
	everybody := commands.Consolidate{Text: "old", Records: []string{reported}, Forgets: &events.Forgetting{Cited: true, ForAll: true}}
	if r := w.ok(do("ana", everybody)()); kindsOf(r) != "gate.decided approval.requested" {
		t.Errorf("recorded %s", kindsOf(r))
	}
	all := w.ok(do("carl", everybody)())
	if e := first[events.MemoryConsolidated](w, all); e.ForAllPermit == nil || e.ForAllPermit.Decision.Action != "collective.revise" || e.Permit.Decision.Action != "memory.consolidate" {
		t.Errorf("got %+v", e)
	}

	// And shown again.
	w.refused("CONSOLIDATION_NOT_FOUND", do("ana", commands.Consolidate{Text: "x", Recalls: "none"}))
	w.refused("CONSOLIDATION_NOT_FOUND", do("ana", commands.Consolidate{Text: "x", Recalls: one.Records[0].Header.ID}))
	w.refused("CONSOLIDATION_NOT_FOUND", do("ana", commands.Consolidate{Text: "x", Recalls: reported}))
	w.refused("NOT_YOUR_FORGETTING", do("carl", commands.Consolidate{Text: "x", Recalls: mine.ID}))
	w.ok(do("ana", commands.Consolidate{Text: "needed again", Recalls: mine.ID})())
	if r := w.ok(do("ana", commands.Consolidate{Text: "x", Recalls: all.Records[0].Header.ID})()); kindsOf(r) != "gate.decided approval.requested" {
		t.Errorf("recorded %s", kindsOf(r))
	}
	w.ok(do("olga", commands.Consolidate{Text: "x", Recalls: all.Records[0].Header.ID})())
}

func numbered(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprint("r", i)
	}
	return out
}
