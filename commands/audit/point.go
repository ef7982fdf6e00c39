package audit

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// Point is what an audit without findings has established up to a position, and all
// that it takes to go on from there: the tree, the keys, the head of every stream, the
// folded state, and what later decisions may rest on. Whoever can write it can hide a
// finding: it is for the auditor alone.
type Point struct {
	Format string `json:"format"`
	// Version is that of the folds that the state is of.
	Version string `json:"version"`
	Fleet   string `json:"fleet"`
	RestsOn
	state []byte
}

// RestsOn is what an audit has not looked at itself: the events up to a position, which
// earlier audits have.
type RestsOn struct {
	Position events.Position `json:"position"`
	Root     events.Hash     `json:"root"`
	// RecordedAt is the time of the event at Position, by the log.
	RecordedAt time.Time `json:"recorded_at"`
	// Audits is how many audits these were, one after the other.
	Audits int `json:"audits"`
}

const (
	pointFormat = "fleetledger-audit/1"
	// pointVersion is to be raised whenever savedState changes, or what is audited.
	pointVersion = "1 "
)

// savedState is what an auditor knows, in the form of a Point.
type savedState struct {
	Tree        []byte // seal.Recent
	Keys        seal.Keyring
	Checkpoints []savedCheckpoint
	Streams     []byte // savedHeads, in the order of names
	HeadsAt     events.Position
	Heads       []byte   // seal.Heads
	Recent      []byte   // savedHeads, of the events from HeadsAt on
	Erased      []string // headers
	Told        []events.Position
	State       jsontext.Value // of projections.State
	Ended       map[events.Stream]endedTask
	Gates       map[events.Stream]*gateState
	Blocks      blocks
	Forgotten   map[string]string
}

// savedCheckpoint is a checkpoint whose tree was compared.
type savedCheckpoint struct {
	Signed    string
	At        events.Position
	Witnessed bool
}

// savedJSON writes durations as numbers.
var savedJSON = json.JoinOptions(jsonv1.FormatDurationAsNano(true), json.Deterministic(true))

// sound reports whether nothing was found and nothing is left undetermined.
func (a *auditor) sound() bool {
	return len(a.report.Findings) == 0 && a.rebuilt != nil && !a.signed.lost && !a.heads.lost
}

// point is what is established so far. An append must have ended here.
func (a *auditor) point() (*Point, error) {
	p := &Point{Format: pointFormat, Version: pointVersion + a.rebuilt.SnapshotVersion(), Fleet: a.fleet,
		RestsOn: RestsOn{Position: a.report.To, Root: a.signed.tree.Root(), RecordedAt: a.last, Audits: 1}}
	if on := a.report.RestsOn; on != nil {
		p.Audits += on.Audits
	}
	s := savedState{Keys: a.signed.ring, HeadsAt: a.heads.upTo, Ended: a.ended, Gates: a.gates, Blocks: a.blocks, Forgotten: a.forgotten,
		Told: slices.Sorted(maps.Keys(a.told))}
	for _, c := range a.signed.all {
		if c.met && c.found == nil {
			s.Checkpoints = append(s.Checkpoints, savedCheckpoint{string(c.signed), c.at, c.witnessed})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(a.streams)) {
		h := a.streams[name]
		s.Streams = appendHead(s.Streams, events.StreamHead{Stream: name, Revision: h.revision, LeafHash: h.leaf})
	}
	for _, x := range a.heads.recent {
		s.Recent = appendHead(s.Recent, x.head)
	}
	for _, at := range slices.Sorted(maps.Keys(a.erased)) {
		h := a.erased[at]
		s.Erased = append(s.Erased, string(h.Encode()))
	}
	var err error
	if s.Tree, err = a.signed.tree.MarshalBinary(); err != nil {
		return nil, err
	}
	if s.Heads, err = a.heads.tree.MarshalBinary(); err != nil {
		return nil, err
	}
	if _, s.State, err = a.rebuilt.EncodeSnapshot(); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	// Most of it are hashes, which no effort makes shorter.
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(json.MarshalWrite(z, s, savedJSON), z.Close()); err != nil {
		return nil, err
	}
	p.state = b.Bytes()
	return p, nil
}

func appendHead(b []byte, h events.StreamHead) []byte {
	b = binary.AppendUvarint(b, uint64(len(h.Stream)))
	b = append(b, h.Stream...)
	b = binary.AppendUvarint(b, uint64(h.Revision))
	return append(b, h.LeafHash[:]...)
}

// eachHead calls f with each of the heads that appendHead has written.
func eachHead(b []byte, f func(events.StreamHead)) error {
	cut := errors.New("the heads of streams are cut off")
	for len(b) > 0 {
		n, used := binary.Uvarint(b)
		if used <= 0 || n > events.MaxNameBytes || uint64(len(b)-used) < n {
			return cut
		}
		h := events.StreamHead{Stream: events.Stream(b[used : used+int(n)])}
		b = b[used+int(n):]
		revision, used := binary.Uvarint(b)
		if used <= 0 || len(b)-used < len(h.LeafHash) {
			return cut
		}
		h.Revision = events.Revision(revision)
		b = b[used:]
		b = b[copy(h.LeafHash[:], b):]
		f(h)
	}
	return nil
}

// WriteTo writes p: a line of JSON that says what it is of, the state, and the SHA-256
// of both.
func (p *Point) WriteTo(w io.Writer) (int64, error) {
	head, err := json.Marshal(p)
	if err != nil {
		return 0, err
	}
	head = append(head, '\n')
	sum := sha256.New()
	n := int64(0)
	for _, b := range [][]byte{head, p.state} {
		sum.Write(b)
		m, err := w.Write(b)
		if n += int64(m); err != nil {
			return n, err
		}
	}
	m, err := w.Write(sum.Sum(nil))
	return n + int64(m), err
}

// ReadPoint reads what WriteTo has written. The error says why it is none that an audit
// can go on from.
func ReadPoint(file []byte) (*Point, error) {
	end := len(file) - sha256.Size
	first, rest, ok := bytes.Cut(file[:max(end, 0)], []byte("\n"))
	if !ok || !bytes.Contains(first, []byte(`"fleetledger-audit/`)) {
		return nil, errors.New("no audit has written it")
	}
	if sha256.Sum256(file[:end]) != [sha256.Size]byte(file[end:]) {
		return nil, errors.New("it is damaged: it does not have the hash that it was written with")
	}
	p := &Point{state: rest}
	if err := json.Unmarshal(first, p); err != nil {
		return nil, err
	}
	if want := pointVersion + projections.NewState().SnapshotVersion(); p.Format != pointFormat || p.Version != want {
		return nil, fmt.Errorf("another version of this program has written it: it has %s %q, this one goes on from %s %q", p.Format, p.Version, pointFormat, want)
	}
	return p, nil
}

// goOn begins where p ended.
func (a *auditor) goOn(p *Point) error {
	z, err := gzip.NewReader(bytes.NewReader(p.state))
	if err != nil {
		return err
	}
	var s savedState
	if err := json.UnmarshalRead(z, &s, savedJSON, json.RejectUnknownMembers(true)); err != nil {
		return err
	}
	if err := a.signed.tree.UnmarshalBinary(s.Tree); err != nil {
		return err
	}
	if a.signed.tree.Size() != uint64(p.Position) || a.signed.tree.Root() != p.Root {
		return fmt.Errorf("its tree has %d events and the root %s, it says %d and %s", a.signed.tree.Size(), a.signed.tree.Root(), p.Position, p.Root)
	}
	a.signed.ring = s.Keys
	for _, c := range s.Checkpoints {
		claims, err := seal.ParseCheckpoint([]byte(c.Signed))
		if err != nil {
			return err
		}
		a.signed.all = append(a.signed.all, &checkpoint{signed: []byte(c.Signed), claims: claims, at: c.At, met: true, witnessed: c.Witnessed, earlier: true})
	}
	if err := eachHead(s.Streams, func(h events.StreamHead) { a.streams[h.Stream] = &head{h.Revision, h.LeafHash} }); err != nil {
		return err
	}
	a.heads.upTo = s.HeadsAt
	if err := a.heads.tree.UnmarshalBinary(s.Heads); err != nil {
		return err
	}
	at := s.HeadsAt
	if err := eachHead(s.Recent, func(h events.StreamHead) {
		at++
		a.heads.recent = append(a.heads.recent, headAt{at, h})
	}); err != nil {
		return err
	}
	if at != p.Position {
		return fmt.Errorf("its heads of streams go to position %d, it says %d", at, p.Position)
	}
	for _, text := range s.Erased {
		h, err := events.ParseHeader([]byte(text))
		if err != nil {
			return err
		}
		a.erased[h.Position] = h
	}
	for _, at := range s.Told {
		a.told[at] = true
	}
	if err := a.rebuilt.RestoreSnapshot(p.Position, s.State); err != nil {
		return err
	}
	a.authority, a.settings, a.last = a.rebuilt.Authority(), a.rebuilt.Settings(), p.RecordedAt
	maps.Copy(a.ended, s.Ended)
	maps.Copy(a.gates, s.Gates)
	maps.Copy(a.blocks, s.Blocks)
	maps.Copy(a.forgotten, s.Forgotten)
	a.fleet, a.report.From, a.report.To = p.Fleet, p.Position+1, p.Position
	on := p.RestsOn
	a.report.RestsOn = &on
	return nil
}

// BeforeError says that a checkpoint is of fewer events than those that an audit goes on
// from, and was not compared by the earlier one.
type BeforeError struct {
	Size uint64
	From events.Position
}

func (e *BeforeError) Error() string {
	return fmt.Sprintf("a checkpoint over %d events cannot be compared: the audit goes on from position %d, and the earlier one did not have it", e.Size, e.From)
}
