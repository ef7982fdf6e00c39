package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
)

// auditTerms are what an audit that trusts nobody goes by.
type auditTerms struct {
	checkpoints [][]byte // signed, kept elsewhere
	keys        []string
	witnesses   []seal.WitnessKey
	view        bool // it is compared too

	from  *audit.Point // what an earlier audit has left, nil to begin at the beginning
	save  string       // the file to leave the same in, "" for none
	saved *saved
	// unsaved is why the end of the audit could not be saved, nil if it was.
	unsaved error
}

// saved is how far what an audit has established is in its file.
type saved struct {
	position events.Position
	at       time.Time
}

// saveEvery is how often a long audit saves what it has established so far.
const saveEvery = time.Minute

// read reads the files with checkpoints, and the one of an earlier audit.
func (t *auditTerms) read(checkpoints []string, resume string) error {
	for _, name := range checkpoints {
		signed, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		t.checkpoints = append(t.checkpoints, signed)
	}
	if resume == "" {
		return nil
	}
	file, err := os.ReadFile(resume)
	if err != nil {
		return tryNext(err, "an audit leaves such a file with --save "+shellWord(resume))
	}
	if t.from, err = audit.ReadPoint(file); err != nil {
		return tryNext(fmt.Errorf("%s: %w", resume, err), "audit without --resume")
	}
	return nil
}

// head is what an earlier audit has read, zero if there is none.
func (t *auditTerms) head() pebblelog.Head {
	if t.from == nil {
		return pebblelog.Head{}
	}
	return pebblelog.Head{Size: uint64(t.from.Position), Root: t.from.Root}
}

// options completes those of an audit of a fleet.
func (t *auditTerms) options(opts audit.Options) audit.Options {
	opts.Keys, opts.Witnesses, opts.From = t.keys, t.witnesses, t.from
	if t.save == "" {
		return opts
	}
	t.saved = &saved{at: time.Now()}
	opts.Due = func() bool { return time.Since(t.saved.at) >= saveEvery }
	opts.Keep = t.keep
	return opts
}

// keep saves what an audit has established.
func (t *auditTerms) keep(p *audit.Point) error {
	var file bytes.Buffer
	if _, err := p.WriteTo(&file); err != nil {
		return err
	}
	if err := writeDurably(t.save, file.Bytes(), 0o600); err != nil {
		return fmt.Errorf("what was established is not saved: %w", err)
	}
	t.saved.position, t.saved.at = p.Position, time.Now()
	return nil
}

// end saves what an audit has established, all that there was to look at having been
// looked at. If it cannot, the report is shown all the same.
func (t *auditTerms) end(r audit.Report) {
	if t.save != "" && r.OK {
		t.unsaved = t.keep(r.Established)
	}
}

// otherBeginning is the report of an audit that could not go on from an earlier one.
func (t *auditTerms) otherBeginning(p events.Position, detail string) audit.Report {
	r := audit.Report{From: t.from.Position + 1, To: t.from.Position, RestsOn: &t.from.RestsOn, Witnessed: audit.Witnessed{Witnesses: []audit.Reach{}}}
	r.Add(audit.Finding{Kind: audit.Checkpoint, Position: p, Detail: detail})
	r.Add(audit.Finding{Kind: audit.Undetermined, Position: p, Detail: "nothing else was looked at: an audit without --resume names what there is"})
	return r
}

// explain says what can be done about an audit that was not finished.
func (t *auditTerms) explain(err error) error {
	var before *audit.BeforeError
	switch {
	case errors.As(err, &before):
		return tryNext(err, "audit without --resume")
	case errors.Is(err, context.Canceled) && t.saved != nil && t.saved.position > 0:
		return tryNext(fmt.Errorf("the audit was broken off; what it has established up to position %d is saved", t.saved.position), "go on with --resume "+shellWord(t.save))
	}
	return err
}
