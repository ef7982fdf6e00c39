// Package audit reads a fleet's log from the start and believes none of it: it
// checks positions, revisions, the chain of headers and the commitment of every
// payload, decides every recorded decision again from the events before it, and
// folds each projection anew to compare it with the live one.
package audit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"fleetledger/commands"
	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// Report is what an audit found.
type Report struct {
	OK bool `json:"ok"`
	// From and To are the first and last position read.
	From   events.Position `json:"from"`
	To     events.Position `json:"to"`
	Events int             `json:"events"`
	// Erased counts events whose payload was erased: their headers are checked,
	// their payloads cannot be.
	Erased              int `json:"erased"`
	DecisionsRederived  int `json:"decisions_rederived"`
	ProjectionsCompared int `json:"projections_compared"`
	CheckpointsVerified int `json:"checkpoints_verified"`
	// HeadsVerified counts the roots over the heads of all streams that came out the
	// same when they were made again.
	HeadsVerified int `json:"heads_verified"`
	// ViewRowsCompared counts the rows of the SQL view that are what the log gives, if
	// the caller compared it.
	ViewRowsCompared int `json:"view_rows_compared"`
	// RestsOn is what earlier audits have established and this one went on from, nil if
	// it read the log from its beginning. Counts are of what came after.
	RestsOn *RestsOn `json:"rests_on"`
	// Established is what another audit may go on from, if Options.Keep is there and
	// nothing was found. Whoever finds something besides leaves it.
	Established *Point `json:"-"`
	// Witnessed is what cosignatures of witnesses show.
	Witnessed Witnessed `json:"witnessed"`
	// Findings are bounded by MaxFindings; FindingsOmitted counts the rest.
	Findings        []Finding `json:"findings"`
	FindingsOmitted int       `json:"findings_omitted"`
	ElapsedMS       int64     `json:"elapsed_ms"`
}

// MaxFindings bounds the findings that a report lists.
const MaxFindings = 1000

// Finding is one thing that is not as it must be.
type Finding struct {
	Kind     string          `json:"kind"`
	Position events.Position `json:"position"`
	Stream   events.Stream   `json:"stream,omitzero"`
	Detail   string          `json:"detail"`
	Expected any             `json:"expected,omitzero"`
	Actual   any             `json:"actual,omitzero"`
}

// Kinds of findings.
const (
	Unreadable   = "unreadable"   // the stored bytes cannot be read back
	Header       = "header"       // not in the one canonical form
	Position     = "position"     // not dense
	Revision     = "revision"     // not dense in the stream
	Chain        = "chain"        // prev is not the stream's previous leaf hash
	Time         = "time"         // runs backwards
	Payload      = "payload"      // not what the header commits to
	Kind         = "kind"         // not of a known kind or shape, or not where it belongs
	Decision     = "decision"     // decided again, it comes out otherwise
	Order        = "order"        // an event that cannot follow those before it
	Projection   = "projection"   // the live one differs from the rebuilt one
	Anchor       = "anchor"       // the head anchor and the log do not agree
	Checkpoint   = "checkpoint"   // a signed checkpoint and the log do not agree
	Heads        = "heads"        // a root over the heads of all streams comes out otherwise
	Witness      = "witness"      // a cosignature of a witness is not there, or not by its key
	Undetermined = "undetermined" // could not be checked, because of an earlier finding
)

// Options say what an audit goes by besides the log.
type Options struct {
	// Live, if not nil, is the ledger whose projections are compared; what is read is
	// then its log.
	Live *commands.Ledger
	// Progress, if not nil, is called now and then.
	Progress func(done events.Position)
	// Checkpoints are signed ones of this log, as C2SP tlog-checkpoint has them: each
	// must be signed by a key that counts for its size, over the tree that the events
	// give.
	Checkpoints [][]byte
	// Keys are verifier keys that the auditor trusts: then no other key counts than
	// these and those that they lead to. With none, the keys that the log names count.
	Keys []string
	// Witnesses are keys of witnesses that the auditor trusts, whose cosignatures are
	// looked for. With none, whose cosignatures there are is not established.
	Witnesses []seal.WitnessKey
	// HashesOnly leaves the decisions and the projections out.
	HashesOnly bool
	// Behind, if not nil, is called once, if payloads are gone and no event of src says
	// who erased them: one that came while the log was read may. It returns a signed
	// checkpoint of the log as it is by now, and the events behind those of src up to it.
	Behind func() ([]byte, iter.Seq2[events.Stored, error], error)
	// From, if not nil, is where an earlier audit of the log ended: src then yields what
	// comes after. Whether the log begins like the one that was audited is for the caller
	// to find out, from its tree. Again returns events from before, of which some in src
	// say that they were erased.
	From  *Point
	Again func([]events.Position) ([]events.Stored, error)
	// Keep, if not nil, is called on the way, where Due says so and when ctx ends, with
	// what is established by then, if nothing was found. The end is Report.Established.
	Keep func(*Point) error
	Due  func() bool
}

// Check is what an audit wants to know of each event before it comes to it.
func (o Options) Check() events.CheckOptions {
	return events.CheckOptions{Verify: true, Decode: !o.HashesOnly}
}

// Run audits what src yields, a log from its first event: either an event or the
// error that stands in its place. *events.CorruptError names the position and the
// audit goes on behind it; any other error ends it. Run keeps no bytes of an event
// once it asks for the next.
func Run(ctx context.Context, src iter.Seq2[events.Stored, error], opts Options) (Report, error) {
	return RunChecked(ctx, events.CheckAhead(src, opts.Check()), opts)
}

// RunChecked is Run on events that were checked as opts.Check has it.
func RunChecked(ctx context.Context, src iter.Seq[*events.Checked], opts Options) (Report, error) {
	live, progress := opts.Live, opts.Progress
	start := time.Now()
	a := newAuditor()
	a.report.From = 1
	if opts.HashesOnly {
		a.rebuilt = nil
	}
	a.signed = &checkpoints{trusted: opts.Keys, witnesses: opts.Witnesses}
	if opts.From != nil {
		if err := a.goOn(opts.From); err != nil {
			return a.report, fmt.Errorf("what the earlier audit has established cannot be read: %w", err)
		}
	}
	if err := a.signed.bring(opts.Checkpoints); err != nil {
		return a.report, err
	}
	var snapshot projections.Views
	if live != nil {
		snapshot = live.State().Snapshot()
		if err := live.Log().Wait(ctx, snapshot.Position); err != nil {
			return a.report, err
		}
		if snapshot.Position == 0 {
			a.compare(snapshot)
		}
	}
	due := false
	for c := range src {
		err := c.Err
		ended := ctx.Err()
		if due = due || ended != nil; due && opts.Keep != nil && err == nil && a.report.Events > 0 && !a.sameAppend(c.Record.Header) {
			if err := a.keep(opts.Keep); err != nil {
				return a.report, err
			}
			due = false
		}
		if ended != nil && (!due || opts.Keep == nil || !a.sound()) {
			return a.report, ended
		}
		var corrupt *events.CorruptError
		switch {
		case errors.As(err, &corrupt):
			a.unreadable(c.Record, corrupt)
		case err != nil:
			return a.report, err
		default:
			a.record(c)
		}
		if live != nil && a.report.To == snapshot.Position {
			a.compare(snapshot)
		}
		if a.report.Events%4096 == 0 {
			if progress != nil {
				progress(a.report.To)
			}
			due = opts.Due != nil && opts.Due()
		}
	}
	a.endAppend()
	a.lookAgain(opts.Again)
	var established *Point
	if opts.Keep != nil && a.sound() {
		var err error
		if established, err = a.point(); err != nil {
			return a.report, err
		}
	}
	a.erasedMeanwhile(opts.Behind)
	a.endErased(live)
	a.signed.end(&a.report)
	a.report.OK = len(a.report.Findings) == 0
	a.report.ElapsedMS = time.Since(start).Milliseconds()
	if a.report.OK {
		a.report.Established = established
	}
	return a.report, nil
}

// keep hands out what is established between two appends, if nothing was found.
func (a *auditor) keep(keep func(*Point) error) error {
	if a.endAppend(); !a.sound() || len(a.retold) > 0 { // those are looked at in the end
		return nil
	}
	p, err := a.point()
	if err != nil {
		return err
	}
	return keep(p)
}

// RunPart audits a part of a log: some of its streams, each from its first event,
// in the order of their positions. Besides what it is to show, the part must hold
// the authority and the settings before it, and each gate whose approval one of its
// events was recorded under: decisions rest on them. With decide false, only headers
// and payloads are checked: nothing is to be decided from events whose origin is in
// doubt.
func RunPart(part []events.Record, decide bool) Report {
	a := newAuditor()
	a.part = true
	if !decide {
		a.rebuilt = nil
	}
	for i, r := range part {
		if i == 0 {
			a.report.From = r.Header.Position
		}
		c := events.CheckOptions{Verify: true, Decode: decide}.Check(r.Stored(), nil)
		if c.Err != nil {
			a.find(r, Header, nil, nil, "%v", c.Err)
			continue
		}
		a.record(&c)
	}
	a.endAppend()
	a.report.OK = len(a.report.Findings) == 0
	return a.report
}

// Add puts a finding of the caller's own in the report.
func (r *Report) Add(f Finding) {
	r.OK = false
	if len(r.Findings) >= MaxFindings {
		r.FindingsOmitted++
		return
	}
	r.Findings = append(r.Findings, f)
}

type head struct {
	revision events.Revision
	leaf     events.Hash
}

// auditor holds what the events so far add up to.
type auditor struct {
	report  Report
	streams map[events.Stream]*head
	last    time.Time
	fleet   string // of the last event
	// part is true when not all streams are read: positions then rise with gaps,
	// and signed is nil.
	part   bool
	signed *checkpoints

	// heads are those of all streams; of a part nothing is known.
	heads heads

	// erased are the headers of events whose payloads are gone and of which no event
	// so far says that they were erased; told are the positions of which one does.
	erased map[events.Position]events.Header
	told   map[events.Position]bool
	// retold are those that were erased since an earlier audit read them.
	retold []events.PayloadErased

	// rebuilt is nil once an event could not be folded: from there on nothing
	// that rests on state can be told.
	rebuilt *projections.State
	staging [1]events.Record // what is given to it

	authority *projections.Authority
	settings  projections.Settings
	ended     map[events.Stream]endedTask
	gates     map[events.Stream]*gateState
	blocks    blocks
	// forgotten says, by event id, for whom something was forgotten: an actor, or ""
	// for all.
	forgotten map[string]string

	// What is known of the append that is being read. Its decisions were made
	// at the authority before its first event.
	lead      events.Header
	before    *projections.Authority
	rules     []gate.Rule
	rulesAt   *projections.Authority
	decided   map[question]events.Decision // at rulesAt
	unspent   map[string]events.Position   // approvals that permits of this append name
	submitted *submission
	// registering is the registration in it; changed the last change of authority.
	registering *events.ActorRegistered
	changed     events.Header
}

func newAuditor() *auditor {
	return &auditor{
		report:    Report{Findings: []Finding{}},
		streams:   map[events.Stream]*head{},
		erased:    map[events.Position]events.Header{},
		told:      map[events.Position]bool{},
		rebuilt:   projections.NewState(),
		authority: &projections.Authority{},
		settings:  projections.DefaultSettings(),
		ended:     map[events.Stream]endedTask{},
		gates:     map[events.Stream]*gateState{},
		blocks:    blocks{},
		forgotten: map[string]string{},
		unspent:   map[string]events.Position{},
	}
}

func (a *auditor) find(r events.Record, kind string, expected, actual any, format string, args ...any) {
	a.report.Add(Finding{Kind: kind, Position: r.Header.Position, Stream: r.Header.Stream,
		Detail: fmt.Sprintf(format, args...), Expected: expected, Actual: actual})
}

// unreadable notes that an event cannot be read. Of r there may be the header: then all
// that rests on headers alone goes on.
func (a *auditor) unreadable(r events.Record, e *events.CorruptError) {
	a.report.Add(Finding{Kind: Unreadable, Position: e.Position, Stream: r.Header.Stream, Detail: e.Detail})
	if r.LeafHash.IsZero() {
		a.report.Events++
		a.report.To = max(a.report.To, e.Position)
		a.signed.lost, a.heads.lost = true, true
	} else {
		a.header(r)
	}
	a.lose(e.Position)
}

// header checks where an event lies, and what whoever held the head put in its header.
func (a *auditor) header(r events.Record) {
	h := r.Header
	if want := a.report.To + 1; h.Position != want && (!a.part || h.Position < want) {
		a.find(r, Position, want, h.Position, "position %d follows %d", h.Position, a.report.To)
	}
	a.report.To = h.Position
	a.report.Events++
	a.place(r)
}

// lose gives up on whatever rests on the state after position p.
func (a *auditor) lose(p events.Position) {
	if a.rebuilt != nil {
		a.rebuilt = nil
		a.report.Add(Finding{Kind: Undetermined, Position: p,
			Detail: "decisions and projections from here on are not checked: they rest on this event; headers and payloads are"})
	}
}

func (a *auditor) record(c *events.Checked) {
	r := c.Record
	h := r.Header
	a.header(r)
	switch {
	case c.Payload != nil:
		a.find(r, Payload, nil, nil, "%v", c.Payload)
		a.lose(h.Position)
	case r.Erased:
		a.report.Erased++
		a.erased[h.Position] = h
	}
	if a.rebuilt != nil {
		a.again(r)
	}
}

// again decides what r records again, and folds it.
func (a *auditor) again(r events.Record) {
	h := r.Header
	// Whoever writes a log can put in it what no command records, and what decisions
	// and folds, which are made for what commands record, do not expect.
	defer func() {
		if p := recover(); p != nil {
			a.find(r, Decision, nil, nil, "no command records such an event after those before it: %v", p)
			a.lose(h.Position)
		}
	}()
	if !a.sameAppend(h) {
		a.endAppend()
		a.lead, a.before = h, a.authority
	}
	if r.Erased && !h.Type.Erasable() {
		a.find(r, Payload, nil, nil, "the payload of %s is not there, and decisions rest on it: it is never erased", h.Type)
		a.lose(h.Position)
		return
	} else if r.Erased {
		a.eraseAgain(r)
	} else if e, err := events.Decode(r); err != nil {
		a.find(r, Kind, nil, nil, "%v", err)
		a.lose(h.Position)
		return
	} else {
		a.rederive(r, e)
	}
	a.staging[0] = r
	publish, err := a.rebuilt.Stage(a.staging[:])
	if err != nil {
		a.find(r, Order, nil, nil, "%v", err)
		a.lose(h.Position)
		return
	}
	publish()
	a.authority, a.settings = a.rebuilt.Authority(), a.rebuilt.Settings()
}

// forgottenUnknown stands for the actor of a forgetting that was erased. No actor
// has this name.
const forgottenUnknown = "@unknown"

// place checks what whoever held the head put in the header.
func (a *auditor) place(r events.Record) {
	h := r.Header
	s := a.streams[h.Stream]
	if s == nil {
		s = new(head)
		a.streams[h.Stream] = s
	}
	if h.Revision != s.revision+1 {
		a.find(r, Revision, s.revision+1, h.Revision, "revision %d of stream %s follows %d", h.Revision, h.Stream, s.revision)
	}
	if h.Prev != s.leaf {
		a.find(r, Chain, s.leaf, h.Prev, "prev is not the leaf hash of the stream's previous header")
	}
	if h.Time.Before(a.last) {
		a.find(r, Time, a.last, h.Time, "time runs backwards")
	}
	a.last, a.fleet = h.Time, h.Fleet
	*s = head{h.Revision, r.LeafHash}
	if !a.part {
		if err := a.signed.add(r); err != nil {
			a.find(r, Order, nil, nil, "%v", err)
		}
		if h.Type == (events.HeadsRooted{}).Kind() {
			a.rooted(r)
		}
		a.heads.add(r)
	}
}

// sameAppend reports whether h was recorded in the same append as the event
// before it: what follows the first event of an append names it as its cause, and
// carries the same stamp. Agents' own events have causes of their own: those of
// one append came with the same request.
func (a *auditor) sameAppend(h events.Header) bool {
	batch := h.Type.IsExt() && a.lead.Type.IsExt() && h.Key == a.lead.Key && h.Request == a.lead.Request
	return a.lead.ID != "" && (h.Causation == a.lead.ID || batch) && h.Time.Equal(a.lead.Time) && h.Actor == a.lead.Actor
}

// compare compares every projection, rebuilt up to here, with the live one.
func (a *auditor) compare(live projections.Views) {
	// What was erased after the live ones were looked at is missing in the rebuilt
	// ones, and rightly so: they are compared another time.
	if a.rebuilt == nil || len(a.erased) > 0 {
		return
	}
	for _, d := range projections.Compare(live, a.rebuilt.Snapshot()) {
		a.report.Add(Finding{Kind: Projection, Position: live.Position, Detail: d.View + ": " + d.Item + " differs", Expected: d.Rebuilt, Actual: d.Live})
	}
	a.report.ProjectionsCompared += len(live.Views)
}
