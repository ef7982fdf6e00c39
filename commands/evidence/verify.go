package evidence

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// Report is what the verification of a file established, and what not.
type Report struct {
	// OK says that there are no findings.
	OK     bool   `json:"ok"`
	Origin string `json:"origin"`
	Fleet  string `json:"fleet"`
	TaskID string `json:"task_id"`
	// Size and Root are those of the file's checkpoint, zero if it is not signed.
	Size uint64      `json:"size"`
	Root events.Hash `json:"root"`

	// Status, Verdict and SettledAt are the task's as its events tell it, nil and
	// empty where they cannot be folded.
	Status  string             `json:"status"`
	Verdict events.TaskVerdict `json:"verdict"`
	// Rules are those in force when the task was submitted.
	Rules []Rule `json:"rules"`

	Streams []Stream `json:"streams"`
	Events  int      `json:"events"`
	Proved  int      `json:"proved"`
	Erased  int      `json:"erased"`
	// Erasures say who erased payloads of these events, and why.
	Erasures []Erasure `json:"erasures"`
	// CompleteTo is the position up to which the task's stream is shown to have no
	// other event, by the root over all streams at RootedAt; 0 if there is none.
	CompleteTo events.Position `json:"complete_to"`
	RootedAt   events.Position `json:"rooted_at"`
	// Witnessed is what cosignatures show: of the file's one cosigned checkpoint, if it
	// has one.
	Witnessed          audit.Witnessed `json:"witnessed"`
	DecisionsRederived int             `json:"decisions_rederived"`

	Established     []string        `json:"established"`
	NotEstablished  []string        `json:"not_established"`
	Findings        []audit.Finding `json:"findings"`
	FindingsOmitted int             `json:"findings_omitted"`
}

// Rule is a rule in force.
type Rule struct {
	ID        string          `json:"rule_id"`
	Rule      events.Rule     `json:"rule"`
	WrittenBy string          `json:"written_by"`
	Position  events.Position `json:"position"`
}

// Stream is how far the file shows a stream: all of it up to a revision.
type Stream struct {
	Stream   events.Stream   `json:"stream"`
	Revision events.Revision `json:"revision"`
	Position events.Position `json:"position"`
}

// Erasure is the erasure of a payload.
type Erasure struct {
	Position events.Position `json:"position"`
	By       string          `json:"by"`
	At       time.Time       `json:"at"`
	Reason   string          `json:"reason"`
	// Told is the position of the event that tells of it.
	Told events.Position `json:"told"`
}

// Kinds of findings besides those of an audit.
const (
	Missing   = "missing"   // an event was left out
	Malformed = "malformed" // a line is not as the format has it
	Inclusion = "inclusion" // not proved to be in the tree of the checkpoint
	Foreign   = "foreign"   // of another log, fleet or task
)

// Verify verifies an evidence file against public keys of its log, which may have been
// rotated since: what signs the file is one of them, or follows from one. If keys of
// witnesses are given, one of them must have cosigned its log. The error says that file
// is none. What is wrong with one is in the report, and nothing in a file can make a
// finding go away: no decision is looked at before every header and payload is proved.
func Verify(file []byte, witnesses []seal.WitnessKey, keys ...string) (Report, error) {
	if len(file) > MaxBytes {
		return Report{}, fmt.Errorf("it is no evidence file: it has more than %d bytes", MaxBytes)
	}
	first, rest, _ := bytes.Cut(file, []byte("\n"))
	var head fileHead
	if err := events.DecodeStrict(first, &head); err != nil {
		return Report{}, fmt.Errorf("it is no evidence file: its first line: %w", err)
	}
	if err := noNull(first); err != nil {
		return Report{}, fmt.Errorf("it is no evidence file: its first line: %w", err)
	}
	if head.Format != Format && head.Format != keylessFormat {
		return Report{}, fmt.Errorf("its format is %+q, this program reads %s and %s", head.Format, Format, keylessFormat)
	}
	v := &verifier{head: head, witnesses: witnesses, report: Report{Origin: head.Origin, Fleet: head.Fleet, TaskID: head.TaskID,
		Rules: []Rule{}, Streams: []Stream{}, Erasures: []Erasure{}, Established: []string{}, NotEstablished: []string{}}}
	v.lines(rest)
	v.checkpoint(keys)
	v.inclusions()
	v.audit()
	v.tell()
	return v.report, nil
}

// noNull refuses a head that has null for what it lacks: no export writes that.
func noNull(head []byte) error {
	var members map[string]jsontext.Value
	if err := json.Unmarshal(head, &members); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if members[name].Kind() == jsontext.KindNull {
			return fmt.Errorf("%s is null", name)
		}
	}
	return nil
}

type verifier struct {
	head      fileHead
	signed    bool // a key given, or one that follows, signed what the events are proved against
	against   seal.Checkpoint
	witnesses []seal.WitnessKey
	// followed is the key that signed it if it is none of those given.
	followed *seal.RingKey
	// proofs are the inclusion proofs of all events, in the order of the file.
	proofs []inclusion
	// records are whole streams, as far as the file has them; told are single events
	// of the ledger's own.
	records, told []events.Record
	findings      audit.Report
	// complete are the streams that are shown to have no other event up to
	// rootAt.
	complete map[events.Stream]bool
	// rootAt is the position that the root over all streams is of, 0 without one.
	rootAt events.Position
	report Report
	// unfounded is true if the verdict rests on what was erased.
	unfounded bool
}

func (v *verifier) find(kind string, p events.Position, s events.Stream, format string, args ...any) {
	v.findings.Add(audit.Finding{Kind: kind, Position: p, Stream: s, Detail: fmt.Sprintf(format, args...)})
}

// checkpoint establishes that the file's checkpoint is signed as it must be.
func (v *verifier) checkpoint(keys []string) {
	c, err := v.signature(keys)
	if err != nil {
		v.find(audit.Checkpoint, 0, "", "the checkpoint: %v: nothing is proved to be in a log", err)
		return
	}
	v.signed, v.against = true, c
	v.report.Size, v.report.Root = c.Size, c.Root
	if c.Origin != v.head.Origin {
		v.find(Foreign, 0, "", "the file says that it is of %+q, its checkpoint is of %+q", v.head.Origin, c.Origin)
	}
	if !strings.HasSuffix(c.Origin, "/"+v.head.Fleet) {
		v.find(Foreign, 0, "", "the checkpoint of %+q is not of fleet %+q", c.Origin, v.head.Fleet)
	}
}

// lines reads the events.
func (v *verifier) lines(rest []byte) {
	if len(rest) > 0 && rest[len(rest)-1] != '\n' {
		v.find(Malformed, 0, "", "the last line has no end: the file was cut")
	}
	n, last := 0, events.Position(0)
	for line := range bytes.Lines(rest) {
		if n++; n > MaxEvents {
			v.find(Malformed, last, "", "the file has more than %d events", MaxEvents)
			return
		}
		if p, ok := v.event(n, last, bytes.TrimSuffix(line, []byte("\n"))); ok {
			last = p
		}
	}
	if n != v.head.Events {
		v.find(Malformed, last, "", "the file has %d events, its head says %d", n, v.head.Events)
	}
}

// event reads the event of line n, after the one at position last.
func (v *verifier) event(n int, last events.Position, line []byte) (events.Position, bool) {
	var e fileEvent
	if err := events.DecodeStrict(line, &e); err != nil {
		v.find(Malformed, last, "", "event %d of the file, the one after this position: %v", n, err)
		return 0, false
	}
	h, err := events.ParseHeader([]byte(e.Leaf))
	if err != nil {
		v.find(audit.Header, last, "", "event %d of the file, the one after this position: %v", n, err)
		return 0, false
	}
	r := events.Record{Header: h, Leaf: []byte(e.Leaf), LeafHash: events.LeafHash([]byte(e.Leaf)), Erased: e.Erased}
	switch salt, err := hex.DecodeString(e.Salt); {
	case e.Erased && (e.Salt != "" || e.Payload != ""):
		v.find(Malformed, h.Position, h.Stream, "it is said to be erased, and it has a salt or a payload")
	case e.Erased:
	case err != nil || len(salt) != events.SaltBytes || hex.EncodeToString(salt) != e.Salt:
		v.find(Malformed, h.Position, h.Stream, "the salt is not %d bytes in lower-case hexadecimal", events.SaltBytes)
	default:
		r.Salt, r.Payload = [events.SaltBytes]byte(salt), []byte(e.Payload)
	}
	if h.Fleet != v.head.Fleet {
		v.find(Foreign, h.Position, h.Stream, "it is of fleet %s", h.Fleet)
	}
	if !v.head.holds(h) {
		v.find(Foreign, h.Position, h.Stream, "such events of this stream are no evidence of the task")
	}
	if h.Position <= last {
		v.find(audit.Position, h.Position, h.Stream, "it comes after position %d", last)
	}
	v.proofs = append(v.proofs, inclusion{h.Position, h.Stream, r.LeafHash, e.Proof})
	if h.Stream == events.LedgerStream {
		v.told = append(v.told, r)
	} else {
		v.records = append(v.records, r)
	}
	return h.Position, true
}

// inclusion is the proof that an event is in a log.
type inclusion struct {
	position events.Position
	stream   events.Stream
	leaf     events.Hash
	proof    []events.Hash
}

func (i inclusion) check(c seal.Checkpoint) error {
	return seal.CheckInclusion(c, i.position, i.leaf, i.proof)
}

// inclusions checks that all events are in the log of the checkpoint.
func (v *verifier) inclusions() {
	if !v.signed {
		return
	}
	for _, i := range v.proofs {
		if err := i.check(v.against); err != nil {
			v.find(Inclusion, i.position, i.stream, "it is not proved to be in the log: %v", err)
		} else {
			v.report.Proved++
		}
	}
}

// audit checks what the events are among each other and decides again.
func (v *verifier) audit() {
	shown := map[events.Stream]int{}
	for _, r := range v.records {
		i, ok := shown[r.Header.Stream]
		if !ok {
			i = len(v.report.Streams)
			shown[r.Header.Stream] = i
			v.report.Streams = append(v.report.Streams, Stream{Stream: r.Header.Stream})
		}
		v.report.Streams[i].Revision, v.report.Streams[i].Position = r.Header.Revision, r.Header.Position
	}
	for _, s := range []events.Stream{events.AuthorityStream, events.TaskStream(v.head.TaskID)} {
		if _, ok := shown[s]; !ok {
			v.find(Malformed, 0, s, "the file has no event of this stream")
		}
	}
	v.checkTold()
	sound := v.signed && len(v.findings.Findings) == 0
	if sound {
		// Headers, chains and payloads first: only what is whole is decided upon.
		sound = audit.RunPart(v.records, false).OK
	}
	if sound {
		v.erasures()
		v.heads()
		sound = len(v.findings.Findings) == 0
	}
	a := audit.RunPart(v.records, sound)
	for _, f := range a.Findings {
		v.findings.Add(f)
	}
	v.findings.FindingsOmitted += a.FindingsOmitted
	v.report.Events, v.report.Erased, v.report.DecisionsRederived = a.Events+len(v.told), a.Erased, a.DecisionsRederived
	if sound {
		v.fold()
	} else {
		v.find(audit.Undetermined, 0, "", "no decision was made again: the events that it rests on are not proved to be the log's")
	}
	v.witnessed()
	v.report.Findings, v.report.FindingsOmitted = v.findings.Findings, v.findings.FindingsOmitted
	if v.report.Findings == nil {
		v.report.Findings = []audit.Finding{}
	}
	if v.report.OK = len(v.report.Findings) == 0; !v.report.OK {
		v.complete, v.report.CompleteTo = nil, 0
	}
}

// fold tells the task, and the rules at its submission, as far as the events fit.
func (v *verifier) fold() {
	auth, task := &projections.Authority{}, (*projections.Task)(nil)
	var err error
	for _, r := range v.records {
		switch r.Header.Stream {
		case events.AuthorityStream:
			if task == nil {
				auth, err = auth.Apply(r)
			}
		case events.TaskStream(v.head.TaskID):
			task, err = task.Apply(r)
		}
		if err != nil {
			return // an audit has said why
		}
	}
	if task == nil {
		return
	}
	v.report.Status, v.report.Verdict = task.Status, task.Verdict
	v.unfounded = task.CommandErased || task.ReportErased
	for _, r := range auth.Rules {
		v.report.Rules = append(v.report.Rules, Rule{ID: r.ID, Rule: r.Rule, WrittenBy: r.WrittenBy, Position: r.Position})
	}
}
