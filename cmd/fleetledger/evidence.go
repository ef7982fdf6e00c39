package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/commands/evidence"
	"fleetledger/events/seal"
)

func (a *app) evidenceCommand() *cobra.Command {
	export, verify := a.exportEvidenceCommand(), a.verifyEvidenceCommand()
	return a.group("evidence", "Put all that a task rests on in one file, and verify such a file",
		export.Example+"\n"+verify.Example, export, verify)
}

func (a *app) exportEvidenceCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "export TASK",
		Short: "Write the evidence of a task to the standard output",
		Long: strings.TrimSpace(`
Write one file that shows how a task was settled: every event of it, and every actor,
rule, setting and approval that its decisions rest on, each with a proof that it is
in the log of the file's checkpoint. It is JSON Lines, with --json too.`),
		Example: `  fleetledger evidence export 0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51 > task.evidence`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			c, err := a.client(cmd)
			if err != nil {
				return err
			}
			resp, err := c.Get(cmd.Context(), agent.Path("v1", "tasks", args[0], "evidence"), nil)
			if err != nil {
				return a.unanswered(err)
			}
			_, err = a.out.Write(resp.Body)
			return err
		}),
	}
}

func (a *app) verifyEvidenceCommand() *cobra.Command {
	var keys, witnessTexts []string
	cmd := &cobra.Command{
		Use:   "verify FILE --key KEY [--witness KEY]",
		Short: "Verify an evidence file, without a server and without its data",
		Long: strings.TrimSpace(`
Recompute every hash and proof of an evidence file, make every decision in it again,
and say what that establishes and what it cannot. KEY is the text that "checkpoint
--key" showed, and that you have from somebody you trust; where the log has changed
its key since, the file leads from yours to the one that signs now. FILE may be - for
the standard input.

With --witness, give the keys of witnesses that you trust: one of them must have
cosigned the file's log, and how far is told.

Exit code 0 means that there is no finding. What was erased is told as such, and is
never taken for verified.`),
		Example: `  fleetledger evidence verify task.evidence --key "$(cat ledger.key)"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(_ *cobra.Command, args []string) error {
			if len(keys) == 0 {
				return misused("--key is missing: whose signature is to be there?")
			}
			for _, key := range keys {
				if _, err := seal.VerifierOrigin(key); err != nil {
					return misused("--key: %v", err)
				}
			}
			witnesses, err := witnessKeys(witnessTexts)
			if err != nil {
				return err
			}
			file, err := a.readFile(args[0], evidence.MaxBytes+1)
			if err != nil {
				return err
			}
			report, err := evidence.Verify(file, witnesses, keys...)
			if err != nil {
				return fmt.Errorf("%s: %w", args[0], err)
			}
			if a.json {
				err = a.printValue(report)
			} else {
				tellEvidence(printer{a.out}, report)
			}
			if err == nil && !report.OK {
				err = errQuiet
			}
			return err
		}),
	}
	cmd.Flags().StringArrayVar(&keys, "key", nil, "verifier key of the log; may be repeated")
	cmd.Flags().StringArrayVar(&witnessTexts, "witness", nil, "key of a witness, NAME+HASH+KEY; may be repeated")
	return cmd
}

func tellEvidence(p printer, r evidence.Report) {
	if r.OK {
		p.f("ok: nothing to find\n")
	} else {
		p.f("%s\n", count(len(r.Findings)+r.FindingsOmitted, "finding"))
	}
	p.f("  task %s of %s", r.TaskID, r.Origin)
	if r.Status != "" {
		p.f(": %s", strings.ReplaceAll(r.Status, "_", " "))
	}
	if r.Verdict != "" {
		p.f(", %s", r.Verdict)
	}
	p.f("\n  %s, %d proved in a log of %d, %s erased, %s made again\n",
		count(r.Events, "event"), r.Proved, r.Size, count(r.Erased, "payload"), count(r.DecisionsRederived, "decision"))
	for _, f := range r.Findings {
		p.f("position %d: %s: %s", f.Position, f.Kind, f.Detail)
		if f.Stream != "" {
			p.f(" (stream %s)", f.Stream)
		}
		p.f("\n")
	}
	if r.FindingsOmitted > 0 {
		p.f("and %s more\n", count(r.FindingsOmitted, "finding"))
	}
	list := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		p.f("%s\n", title)
		for _, line := range lines {
			p.f("  - %s\n", line)
		}
	}
	list("established", r.Established)
	list("not established", r.NotEstablished)
	if len(r.Rules) > 0 {
		p.f("rules in force when it was submitted\n")
		rows := [][]string{{"  RULE", "ACTION", "LEVEL", "BY", "POSITION"}}
		for _, rule := range r.Rules {
			level := ""
			if rule.Rule.MinLevel != nil {
				level = strconv.Itoa(int(*rule.Rule.MinLevel))
			}
			rows = append(rows, []string{"  " + rule.ID, rule.Rule.Action, level, rule.WrittenBy, strconv.FormatUint(uint64(rule.Position), 10)})
		}
		p.table(rows)
	}
}
