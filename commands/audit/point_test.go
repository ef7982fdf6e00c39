package audit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
)

// kept audits records, after those of from if it is not nil, and returns the file of
// what it has established, nil if it found something.
func kept(t *testing.T, records []events.Record, opts audit.Options) (audit.Report, []byte) {
	t.Helper()
	opts.Keep = func(*audit.Point) error { return nil }
	report, err := audit.Run(context.Background(), seq(records), opts)
	if err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if report.Established != nil {
		if _, err := report.Established.WriteTo(&file); err != nil {
			t.Fatal(err)
		}
	}
	if report.OK != (file.Len() > 0) {
		t.Errorf("ok %t, and %d bytes are kept", report.OK, file.Len())
	}
	return report, file.Bytes()
}

func point(t *testing.T, file []byte) *audit.Point {
	t.Helper()
	p, err := audit.ReadPoint(file)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// appends are the places between two appends of a log, its ends too.
func appends(records []events.Record) (ends []int) {
	var lead events.Header
	for i, r := range records {
		if h := r.Header; i == 0 || h.Causation != lead.ID || !h.Time.Equal(lead.Time) || h.Actor != lead.Actor {
			ends, lead = append(ends, i), h
		}
	}
	return append(ends, len(records))
}

// beginning is what an audit of the first events, so many, establishes.
func beginning(t *testing.T, records []events.Record, n int) *audit.Point {
	t.Helper()
	report, file := kept(t, records[:n], audit.Options{})
	if !report.OK {
		t.Fatalf("the first %d events: %+v", n, report.Findings)
	}
	return point(t, file)
}

// TestGoOn: wherever an audit is cut in two, the second establishes what one would have.
func TestGoOn(t *testing.T) {
	f := newRotated(t).fleet
	rooted := func() {
		if err := f.RootHeads(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	rooted()
	signed := f.sign(t, "third")
	rooted()
	f.sign(t, "fourth")
	whole, file := kept(t, f.records, audit.Options{Checkpoints: [][]byte{signed}})
	if !whole.OK || whole.HeadsVerified != 2 || whole.CheckpointsVerified < 2 || whole.RestsOn != nil {
		t.Fatalf("at once: %+v", whole)
	}
	all := point(t, file)
	if all.Audits != 1 || all.Position != events.Position(len(f.records)) || all.Fleet != "default" {
		t.Errorf("at once: %+v", all.RestsOn)
	}
	for _, n := range appends(f.records) {
		if n == 0 {
			continue
		}
		from := beginning(t, f.records, n)
		if n > whole.Events-2 { // the checkpoint is of fewer events than those
			continue
		}
		report, file := kept(t, f.records[n:], audit.Options{From: from, Checkpoints: [][]byte{signed}})
		first, _ := kept(t, f.records[:n], audit.Options{})
		if !report.OK || report.From != events.Position(n+1) || report.Events+n != whole.Events || report.DecisionsRederived+first.DecisionsRederived != whole.DecisionsRederived ||
			report.HeadsVerified+first.HeadsVerified != whole.HeadsVerified || report.CheckpointsVerified+first.CheckpointsVerified != whole.CheckpointsVerified {
			t.Errorf("from %d on: %+v, before it %+v, at once %+v", n, report, first, whole)
		}
		if report.RestsOn == nil || *report.RestsOn != from.RestsOn || from.Position != events.Position(n) {
			t.Errorf("from %d on it rests on %+v", n, report.RestsOn)
		}
		// Going on from both, nothing is told apart any more.
		p := point(t, file)
		if p.Root != all.Root || p.Audits != 2 {
			t.Errorf("from %d on: %+v, at once %+v", n, p.RestsOn, all.RestsOn)
		}
		again, _ := kept(t, nil, audit.Options{From: p, Checkpoints: [][]byte{signed}})
		if !again.OK || again.Events != 0 || again.To != p.Position || again.RestsOn.Audits != 2 {
			t.Errorf("with nothing new: %+v", again)
		}
	}
}

// TestGoOnFinds: what is found behind the point is what an audit of all finds there.
func TestGoOnFinds(t *testing.T) {
	f := newFleet(t)
	ends := appends(f.records)
	for i, r := range f.records {
		kind := r.Header.Type
		if i < 30 || kind == "payload.erased" {
			continue
		}
		n := 0
		for _, end := range ends {
			if end <= i {
				n = end
			}
		}
		// An event told as of somebody else: who did what is what most decisions rest on.
		forged := rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
			if r.Header.Position == events.Position(i+1) {
				r.Header.Actor = "m2"
			}
			return e
		})
		at := run(t, forged)
		from := beginning(t, f.records, n)
		report, file := kept(t, forged[n:], audit.Options{From: from})
		if !reflect.DeepEqual(report.Findings, at.Findings) || at.OK && file == nil {
			t.Errorf("%s at %d: from %d on\n%+v\nat once\n%+v", kind, i+1, n, report.Findings, at.Findings)
		}
	}
	// Another past shows in the first event that follows it.
	other := rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
		if x, ok := e.(events.RuleWritten); ok {
			x.Rule.Why = "other"
			return x
		}
		return e
	})
	n := ends[len(ends)-12]
	if report, _ := kept(t, other[n:], audit.Options{From: beginning(t, f.records, n)}); report.OK {
		t.Errorf("another past: %+v", report)
	}
	if report, _ := kept(t, f.records[n+1:], audit.Options{From: beginning(t, f.records, n)}); report.OK || report.Findings[0].Kind != audit.Position {
		t.Errorf("a gap: %+v", report)
	}
}

// TestGoOnErased: what was erased since an earlier audit read it is looked at again.
func TestGoOnErased(t *testing.T) {
	before, f := newFleet(t).records, erasedFleet(t)
	n := len(before)
	again := func(records []events.Record) func([]events.Position) ([]events.Stored, error) {
		return func(positions []events.Position) (list []events.Stored, _ error) {
			for _, p := range positions {
				list = append(list, records[p-1].Stored())
			}
			return list, nil
		}
	}
	from := beginning(t, before, n)
	report, file := kept(t, f.records[n:], audit.Options{From: from, Again: again(f.records)})
	if !report.OK || report.HeadsVerified != 2 {
		t.Fatalf("got %+v", report)
	}
	if report, _ := kept(t, nil, audit.Options{From: point(t, file)}); !report.OK {
		t.Errorf("after it: %+v", report)
	}
	report, _ = kept(t, f.records[n:], audit.Options{From: from, Again: again(before)})
	if report.OK || len(report.Findings) < 9 || report.Findings[0].Kind != audit.Payload || report.Findings[0].Position > events.Position(n) {
		t.Errorf("still there: %+v", report)
	}
	report, _ = kept(t, f.records[n:], audit.Options{From: from, Again: func([]events.Position) ([]events.Stored, error) {
		return nil, errors.New("no answer")
	}})
	if report.OK || report.Findings[0].Kind != audit.Undetermined {
		t.Errorf("not to be read: %+v", report)
	}
}

// endsAfter ends after its end was asked for so often.
type endsAfter struct {
	context.Context
	left int
}

func (c *endsAfter) Err() error {
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestKeptOnTheWay: an audit that is ended keeps what it has established by then, and
// another goes on from there.
func TestKeptOnTheWay(t *testing.T) {
	for what, f := range map[string]fleet{"whole": newFleet(t), "with what is erased later": erasedFleet(t)} {
		for at := 1; at < len(f.records); at += 7 {
			var file bytes.Buffer
			_, err := audit.Run(&endsAfter{t.Context(), at}, seq(f.records), audit.Options{Keep: func(p *audit.Point) error {
				_, err := p.WriteTo(&file)
				return err
			}})
			if at > len(f.records)-8 && err == nil {
				continue // its last append was not over before the end
			}
			if !errors.Is(err, context.Canceled) || file.Len() == 0 {
				t.Fatalf("%s: %v, %d bytes are kept", what, err, file.Len())
			}
			p := point(t, file.Bytes())
			if p.Position < events.Position(at) {
				t.Errorf("%s: ended after %d events, %d are kept", what, at, p.Position)
			}
			report, _ := kept(t, f.records[p.Position:], audit.Options{From: p})
			if !report.OK || report.To != events.Position(len(f.records)) {
				t.Errorf("%s, from %d on: %+v", what, p.Position, report)
			}
		}
	}
}

// TestPointFile: a file that an audit did not write, or not like this, is none.
func TestPointFile(t *testing.T) {
	f := newFleet(t)
	_, file := kept(t, f.records, audit.Options{})
	line, _, _ := bytes.Cut(file, []byte("\n"))
	if !strings.Contains(string(line), `"fleet":"default"`) || !strings.Contains(string(line), `"position":`) {
		t.Errorf("the first line does not say what it is of: %s", line)
	}
	for at := 0; at < len(file); at += 97 {
		bad := bytes.Clone(file)
		bad[at] ^= 4
		if _, err := audit.ReadPoint(bad); err == nil {
			t.Errorf("byte %d of %d is changed", at, len(file))
		}
	}
	for _, n := range []int{0, 1, 31, 32, len(line), len(line) + 1, len(line) + 33, len(file) - 1} {
		if _, err := audit.ReadPoint(file[:n]); err == nil {
			t.Errorf("cut after %d bytes", n)
		}
	}
	// Another version's state would be read as something that it is not.
	p := point(t, file)
	p.Version = "0 state/1"
	var other bytes.Buffer
	if _, err := p.WriteTo(&other); err != nil {
		t.Fatal(err)
	}
	if _, err := audit.ReadPoint(other.Bytes()); err == nil || !strings.Contains(err.Error(), "another version") {
		t.Errorf("another version's: %v", err)
	}
	// What it says of itself must be what it holds.
	p = point(t, file)
	p.Root = events.SumHash("another")
	if _, err := audit.Run(t.Context(), seq(nil), audit.Options{From: p}); err == nil {
		t.Error("another root is taken")
	}
	signed := f.sign(t, "key")
	p = beginning(t, f.records, len(f.records))
	var before *audit.BeforeError
	if _, err := audit.Run(t.Context(), seq(nil), audit.Options{From: p, Checkpoints: [][]byte{signed}}); err != nil {
		t.Errorf("a checkpoint at the point: %v", err)
	}
	f.sign(t, "more")
	p = beginning(t, f.records, len(f.records))
	if _, err := audit.Run(t.Context(), seq(nil), audit.Options{From: p, Checkpoints: [][]byte{signed}}); !errors.As(err, &before) {
		t.Errorf("a checkpoint from before: %v", err)
	}
}

// TestKeptNowAndThen: a long audit keeps what it has established where that is due.
func TestKeptNowAndThen(t *testing.T) {
	f := newFleet(t)
	for i := range 60 {
		list := make([]commands.ExtEvent, 100)
		for j := range list {
			list[j] = commands.ExtEvent{ID: fmt.Sprintf("many-%d-%d", i, j), Type: "ext.note", Stream: "ext-many", Body: events.Ext{Source: "/t", Data: jsontext.Value(`{"a":1}`)}}
		}
		if _, err := f.AppendExt(t.Context(), commands.Caller{Actor: []string{"ana", "carl"}[i%2]}, list); err != nil {
			t.Fatal(err)
		}
	}
	f.records = nil
	for r, err := range f.Log().ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		f.records = append(f.records, r)
	}
	var points []*audit.Point
	opts := audit.Options{Due: func() bool { return true }, Keep: func(p *audit.Point) error { points = append(points, p); return nil }}
	report, err := audit.Run(t.Context(), seq(f.records), opts)
	if err != nil || !report.OK || len(points) != 1 || points[0].Position < 4096 || report.Established.Position != report.To {
		t.Fatalf("%v %+v, %d are kept", err, report, len(points))
	}
	rest, _ := kept(t, f.records[points[0].Position:], audit.Options{From: points[0]})
	if !rest.OK || rest.Events+int(points[0].Position) != report.Events {
		t.Errorf("from %d on: %+v", points[0].Position, rest)
	}
	// What cannot be kept ends it.
	opts.Keep = func(*audit.Point) error { return errors.New("the disk is full") }
	if _, err := audit.Run(t.Context(), seq(f.records), opts); err == nil || !strings.Contains(err.Error(), "disk is full") {
		t.Errorf("got %v", err)
	}
}
