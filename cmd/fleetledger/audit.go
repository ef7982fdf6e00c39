package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
	"fleetledger/projections/sqlview"
)

func (a *app) auditCommand() *cobra.Command {
	var fleet string
	var checkpoints, witnessTexts []string
	var terms auditTerms
	var resume string
	var live bool
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "audit [--data DIR | --server URL]",
		Short: "Check the whole record and decide every recorded decision again",
		Long: strings.TrimSpace(`
Read a fleet's record from its first event and believe none of it: check order,
hashes, payloads and the newest checkpoint, decide every recorded decision again
from the events before it, and rebuild the projections.

With --data it reads a data directory, without a server and without changing a byte
there. With --server it reads everything over HTTP and trusts nothing of it: the
checkpoint, every leaf, payload and tile. With neither, or with --live, it asks the
server to audit itself, which compares its live projections too. Each finding names
its position. Exit code 0 means that there is none.

With --data and --view the fleet's view, which answers memory, tried and sql, is made
anew from the record in a temporary folder and compared row by row. That takes several
times as long as the rest.

Whoever holds the log may have written all of it anew, keys included. Give the key
that you trust with --key, and checkpoints that you have kept elsewhere with
--checkpoint: no other record of those events passes. With --witness, give the keys of
witnesses that you trust: how far each of them has cosigned this log is told, and a log
that none of them has is a finding. Without, whose cosignatures are recorded is not
established.

With --save an audit that finds nothing leaves in a file what it has established, and
one that is broken off what it had by then. With --resume another goes on from there:
it shows that the log still begins like the one that was audited, and reads what came
after. What it does not read again it rests on, and says so. Keep such a file where
nobody else can write.`),
		Example: `  fleetledger audit
  fleetledger audit --server https://ledger.example.org --key "$(cat ledger.key)" --checkpoint then.checkpoint
  fleetledger audit --data /mnt/backup/fleetledger-data --checkpoint then.checkpoint
  fleetledger audit --server https://ledger.example.org --key "$(cat ledger.key)" --resume ledger.audit --save ledger.audit`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			offline := cmd.Flags().Changed("data")
			if offline && a.server != "" {
				return misused("--data audits a directory and --server a server: give one of them")
			}
			remote := cmd.Flags().Changed("server") && !live
			switch {
			case offline && live:
				return misused("--live asks a server, and --data audits a directory")
			case terms.view && !offline:
				return misused("--view compares the view of a directory: give it with --data")
			case !offline && !remote && len(checkpoints)+len(terms.keys)+len(witnessTexts)+len(resume)+len(terms.save) > 0:
				return misused("--checkpoint, --key, --witness, --resume and --save are for an audit that trusts nobody: with --data, or with --server and without --live")
			case !offline && cmd.Flags().Changed("fleet"):
				return misused("--fleet names a fleet of a directory: give it with --data; a server has the fleet of the token")
			case timeout <= 0:
				return misused("--timeout %v: some time is needed", timeout)
			}
			for _, key := range terms.keys {
				if _, err := seal.VerifierOrigin(key); err != nil {
					return misused("--key: %v", err)
				}
			}
			var err error
			if terms.witnesses, err = witnessKeys(witnessTexts); err != nil {
				return err
			}
			if err := terms.read(checkpoints, resume); err != nil {
				return err
			}
			ask := a.auditServer
			if remote {
				ask = func(cmd *cobra.Command) (jsontext.Value, error) {
					return a.auditRemote(cmd, &terms, timeout)
				}
			}
			if offline {
				ask = func(cmd *cobra.Command) (jsontext.Value, error) {
					return a.auditData(cmd.Context(), fleet, &terms)
				}
			}
			raw, err := ask(cmd)
			if err != nil {
				return terms.explain(err)
			}
			if err := a.showReport(raw); err != nil {
				return err
			}
			return terms.unsaved
		}),
	}
	cmd.Flags().StringVar(&fleet, "fleet", defaultFleet, "with --data: which fleet")
	cmd.Flags().StringArrayVar(&checkpoints, "checkpoint", nil, "with --data or --server: a file with an earlier checkpoint to hold the record to; may be repeated")
	cmd.Flags().StringArrayVar(&terms.keys, "key", nil, "with --data or --server: a verifier key that you trust; no other counts then but those that it leads to; may be repeated")
	cmd.Flags().StringArrayVar(&witnessTexts, "witness", nil, "with --data or --server: the key of a witness that you trust, NAME+HASH+KEY; may be repeated")
	cmd.Flags().StringVar(&resume, "resume", "", "with --data or --server: go on from what an earlier audit has left in this file")
	cmd.Flags().StringVar(&terms.save, "save", "", "with --data or --server: leave in this file what is established, for --resume")
	cmd.Flags().BoolVar(&terms.view, "view", false, "with --data: compare the view, row by row, with one made anew")
	cmd.Flags().BoolVar(&live, "live", false, "with --server: have the server audit itself")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "with --server: how long one answer may take")
	return cmd
}

// auditServer has the server audit itself, and returns its report.
func (a *app) auditServer(cmd *cobra.Command) (jsontext.Value, error) {
	c, err := a.client(cmd)
	if err != nil {
		return nil, err
	}
	ctx := cmd.Context()
	resp, err := c.Post(ctx, "/v1/audit", nil)
	note := a.newProgress("audited")
	defer note.end()
	// An audit is no event: there is nothing to wait on but to ask again.
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		if err != nil {
			return nil, a.unanswered(err)
		}
		var run struct {
			AuditID  string `json:"audit_id"`
			Status   string `json:"status"`
			Progress struct {
				Done uint64 `json:"done"`
				Of   uint64 `json:"of"`
			} `json:"progress"`
			Report  jsontext.Value `json:"report"`
			Failure string         `json:"failure"`
		}
		if err := resp.Decode(&run); err != nil {
			return nil, err
		}
		switch run.Status {
		case "done":
			return run.Report, nil
		case "failed":
			return nil, fmt.Errorf("the audit could not be finished: %s", run.Failure)
		}
		note.at(run.Progress.Done, run.Progress.Of)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.New("waiting was broken off; the audit goes on at the server")
		}
		resp, err = c.Get(ctx, agent.Path("v1", "audit", run.AuditID), nil)
	}
}

// auditData audits the log of a fleet in the data directory.
func (a *app) auditData(ctx context.Context, fleet string, terms *auditTerms) (jsontext.Value, error) {
	if err := existingData(a.data); err != nil {
		return nil, err
	}
	names, err := fleetNames(a.data)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(fleetDir(a.data, fleet)); err != nil {
		return nil, tryNext(fmt.Errorf("there is no fleet %s in %s", fleet, a.data), "name one with --fleet: "+strings.Join(names, ", "))
	}
	if len(names) > 1 && !a.json {
		printer{a.err}.f("only fleet %s is audited; there are: %s\n", fleet, strings.Join(names, ", "))
	}
	report, err := a.auditFleet(ctx, fleet, terms)
	if err != nil {
		return nil, err
	}
	return json.Marshal(report)
}

// Kinds of findings which audit.Run does not see: about an index, about whose log it is,
// about the view.
const (
	findingIndex = "index"
	findingFleet = "fleet"
	findingView  = "view"
)

// auditFleet audits the log of a fleet in the data directory.
func (a *app) auditFleet(ctx context.Context, fleet string, terms *auditTerms) (audit.Report, error) {
	report, err := a.auditLog(ctx, a.data, fleet, terms)
	if err == nil && terms.view {
		err = a.auditView(ctx, fleet, &report)
	}
	if errors.Is(err, events.ErrLocked) {
		return report, tryNext(fmt.Errorf("the data directory %s is in use by another process", a.data), "audit the server itself: fleetledger audit --server URL")
	}
	if err != nil {
		return report, err
	}
	terms.end(report)
	return report, nil
}

// auditView compares the view of a fleet in the data directory with one made anew.
func (a *app) auditView(ctx context.Context, fleet string, report *audit.Report) (err error) {
	if !report.OK {
		report.Add(audit.Finding{Kind: audit.Undetermined, Position: report.To, Detail: "the view is not compared: the log that it is made from is not sound"})
		return nil
	}
	log, err := pebblelog.OpenReadOnly(fleetDir(a.data, fleet), pebblelog.Options{Fleet: fleet, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	note := a.newProgress("view made of")
	defer note.end()
	begun := a.now()
	c, err := sqlview.Compare(ctx, log, filepath.Join(fleetDir(a.data, fleet), viewName), func(p events.Position) { note.at(uint64(p), uint64(log.Durable())) })
	if err != nil {
		return fmt.Errorf("compare the view: %w", err)
	}
	note.end()
	switch {
	case c.Skipped != "":
		printer{a.err}.f("the view is not compared: a start makes it again anyway: %s\n", c.Skipped)
	case c.File == "":
		printer{a.err}.f("the view is not compared: there is none; a start makes it\n")
	}
	for _, d := range c.Differences {
		report.Add(audit.Finding{Kind: findingView, Position: d.Position, Detail: d.Detail, Expected: d.Log, Actual: d.File})
	}
	report.ViewRowsCompared = c.Rows
	report.ElapsedMS += a.now().Sub(begun).Milliseconds()
	return nil
}

// auditHeap is what the heap of an audit may have before garbage is collected, in bytes.
const auditHeap = 256 << 20

// auditLog reads the log of a fleet past whatever is damaged in it.
func (a *app) auditLog(ctx context.Context, dir, fleet string, terms *auditTerms) (audit.Report, error) {
	roomyHeap(auditHeap)
	note := a.newProgress("audited")
	defer note.end()
	if terms.from != nil && terms.from.Fleet != fleet {
		return audit.Report{}, tryNext(fmt.Errorf("the earlier audit was of fleet %s, this is %s", terms.from.Fleet, fleet), "audit without --resume")
	}
	checkpoints, err := keptCheckpoint(dir, fleet)
	if err != nil {
		return audit.Report{}, err
	}
	// What the earlier audit has read, it has compared with what was signed by then.
	checkpoints = slices.DeleteFunc(checkpoints, func(signed []byte) bool {
		c, err := seal.ParseCheckpoint(signed)
		return err == nil && c.Size < terms.head().Size
	})
	checkpoints = append(checkpoints, terms.checkpoints...)
	again := func(positions []events.Position) (list []events.Stored, err error) {
		err = pebblelog.ReadAgain(fleetDir(dir, fleet), pebblelog.Options{Logger: slog.New(slog.DiscardHandler)}, positions, func(s events.Stored) { list = append(list, s) })
		return list, err
	}
	options := terms.options(audit.Options{
		Progress: func(done events.Position) { note.at(uint64(done), 0) }, Checkpoints: checkpoints, Again: again,
	})
	var (
		read      pebblelog.Audit
		misplaced = map[events.Position]string{} // what is wrong with records that can be read
		stopped   = errors.New("stopped")
	)
	report, err := audit.RunChecked(ctx, func(yield func(*events.Checked) bool) {
		// What Pebble would log of damage are the findings.
		opts := pebblelog.Options{Logger: slog.New(slog.DiscardHandler)}
		var err error
		read, err = pebblelog.ReadForAudit(fleetDir(dir, fleet), opts, terms.head(), options.Check(), func(c *events.Checked, wrong error) error {
			if corrupt, ok := errors.AsType[*events.CorruptError](wrong); ok && c.Err == nil {
				misplaced[c.Stored.Position] = corrupt.Detail
			}
			if !yield(c) {
				return stopped
			}
			return nil
		})
		if err != nil && !errors.Is(err, stopped) {
			yield(&events.Checked{Err: err})
		}
	}, options)
	if other, ok := errors.AsType[*pebblelog.BeginningError](err); ok {
		return terms.otherBeginning(other.Position, other.Detail), nil
	}
	if err != nil {
		return report, err
	}
	for _, f := range report.Findings {
		delete(misplaced, f.Position) // told in the audit's own words
	}
	for _, p := range slices.Sorted(maps.Keys(misplaced)) {
		report.Add(audit.Finding{Kind: audit.Chain, Position: p, Detail: misplaced[p]})
	}
	if read.Damage != nil {
		report.Add(audit.Finding{Kind: audit.Anchor, Position: read.Damage.Position, Detail: read.Damage.Detail})
	}
	for _, c := range read.Index {
		report.Add(audit.Finding{Kind: findingIndex, Position: c.Position, Detail: c.Detail})
	}
	if read.Fleet != fleet {
		report.Add(audit.Finding{Kind: findingFleet, Position: 1, Detail: "the directory holds the log of another fleet", Expected: fleet, Actual: read.Fleet})
	}
	return report, nil
}

// showReport shows what an audit found; findings make the exit code 1.
func (a *app) showReport(raw jsontext.Value) error {
	var r struct {
		OK                  bool            `json:"ok"`
		From                int64           `json:"from"`
		To                  int64           `json:"to"`
		Events              int             `json:"events"`
		Erased              int             `json:"erased"`
		DecisionsRederived  int             `json:"decisions_rederived"`
		ProjectionsCompared int             `json:"projections_compared"`
		CheckpointsVerified int             `json:"checkpoints_verified"`
		HeadsVerified       int             `json:"heads_verified"`
		ViewRowsCompared    int             `json:"view_rows_compared"`
		RestsOn             *audit.RestsOn  `json:"rests_on"`
		Witnessed           audit.Witnessed `json:"witnessed"`
		Findings            []struct {
			Kind     string         `json:"kind"`
			Position int64          `json:"position"`
			Stream   string         `json:"stream"`
			Detail   string         `json:"detail"`
			Expected jsontext.Value `json:"expected"`
			Actual   jsontext.Value `json:"actual"`
		} `json:"findings"`
		FindingsOmitted int   `json:"findings_omitted"`
		ElapsedMS       int64 `json:"elapsed_ms"`
	}
	if err := json.Unmarshal(raw, &r); err != nil {
		return fmt.Errorf("the report cannot be read: %w", err)
	}
	if a.json {
		if err := a.printJSON(raw); err != nil {
			return err
		}
	} else {
		p := printer{a.out}
		if r.OK {
			p.f("ok: nothing to find\n")
		} else {
			p.f("%s\n", count(len(r.Findings)+r.FindingsOmitted, "finding"))
		}
		if r.Events > 0 {
			p.f("  %s, positions %d to %d, in %s\n", count(r.Events, "event"), r.From, r.To, elapsed(r.ElapsedMS))
		} else {
			p.f("  0 events, in %s\n", elapsed(r.ElapsedMS))
		}
		if on := r.RestsOn; on != nil {
			p.f("  positions 1 to %d, recorded until %s, were not read again: this rests on %s, and on their Merkle root %s\n",
				on.Position, on.RecordedAt.Format(time.RFC3339), count(on.Audits, "earlier audit"), on.Root)
		}
		p.f("  %s decided again, %s compared, %s and %s verified, %s erased\n", count(r.DecisionsRederived, "decision"),
			count(r.ProjectionsCompared, "projection"), count(r.CheckpointsVerified, "checkpoint"), count(r.HeadsVerified, "root"), count(r.Erased, "payload"))
		if r.ViewRowsCompared > 0 {
			p.f("  %s of the view compared\n", count(r.ViewRowsCompared, "row"))
		}
		tellWitnessed(p, r.Witnessed)
		for _, f := range r.Findings {
			p.f("position %d: %s: %s", f.Position, f.Kind, f.Detail)
			if f.Stream != "" {
				p.f(" (stream %s)", f.Stream)
			}
			p.f("\n")
			if len(f.Expected) > 0 {
				p.f("  expected  %s\n", string(f.Expected))
			}
			if len(f.Actual) > 0 {
				p.f("  actual    %s\n", string(f.Actual))
			}
		}
		if r.FindingsOmitted > 0 {
			p.f("and %s more\n", count(r.FindingsOmitted, "finding"))
		}
	}
	if !r.OK {
		return errQuiet
	}
	return nil
}

// progress tells on a terminal how far long work is, on one line.
type progress struct {
	app  *app
	what string
	told bool
	// copied is what bytes told last.
	copied int64
}

func (a *app) newProgress(what string) *progress { return &progress{app: a, what: what} }

func (p *progress) at(done, of uint64) {
	if !isTerminal(p.app.err) {
		return
	}
	p.told = true
	if of > 0 {
		fmt.Fprintf(p.app.err, "\r%s %d of %d events\x1b[K", p.what, done, of)
	} else {
		fmt.Fprintf(p.app.err, "\r%s %d events\x1b[K", p.what, done)
	}
}

// bytes tells how much was copied.
func (p *progress) bytes(done int64) {
	if done-p.copied < 1<<20 || !isTerminal(p.app.err) {
		return
	}
	p.told, p.copied = true, done
	fmt.Fprintf(p.app.err, "\r%s %s\x1b[K", p.what, mib(done))
}

func (p *progress) end() {
	if p.told {
		fmt.Fprint(p.app.err, "\r\x1b[K")
	}
}
