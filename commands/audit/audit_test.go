package audit_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
)

func TestSoundLogPasses(t *testing.T) {
	f := newFleet(t)
	report, err := audit.Run(context.Background(), seq(f.records), audit.Options{Live: f.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK || report.Events != len(f.records) || report.ProjectionsCompared == 0 || report.DecisionsRederived < 30 {
		t.Errorf("got %+v", report)
	}
}
func reversed(part []events.Record) []events.Record {
	slices.Reverse(part)
	return part
}

// A part of a log is audited as all of it is, and what is not in it is missed.
func TestPart(t *testing.T) {
	f := newFleet(t)
	of := func(streams ...string) (part []events.Record) {
		for _, r := range f.records {
			for _, s := range streams {
				if strings.HasPrefix(string(r.Header.Stream), s) {
					part = append(part, r)
				}
			}
		}
		return part
	}
	for _, c := range []struct {
		name string
		part []events.Record
		ok   bool
	}{
		{"all of it", f.records, true},
		{"tasks, and what they rest on", of("authority", "settings", "task-", "gate-"), true},
		{"without the gates", of("authority", "settings", "task-"), false},
		{"without the authority", of("task-"), false},
		{"without its beginning", of("authority", "settings", "task-", "gate-")[1:], false},
		{"backwards", reversed(of("task-")), false},
	} {
		r := audit.RunPart(c.part, true)
		if r.OK != c.ok || c.ok && (r.DecisionsRederived < 20 || r.Events != len(c.part)) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if r := audit.RunPart(c.part, false); r.DecisionsRederived != 0 || c.ok && !r.OK {
			t.Errorf("%s, without decisions: %+v", c.name, r)
		}
	}
}

// Each row damages the stored bytes of one event and nothing else.
func TestDamageIsFound(t *testing.T) {
	f := newFleet(t)
	for _, c := range []struct {
		name, kind string
		damage     func(r []events.Record) []events.Record
		at         events.Position
	}{
		{"a byte of a payload", audit.Payload, func(r []events.Record) []events.Record {
			p := slices.Clone(r[9].Payload)
			p[10] ^= 1
			r[9].Payload = p
			return r
		}, 10},
		{"a shorter payload", audit.Payload, func(r []events.Record) []events.Record {
			r[9].Payload = r[9].Payload[:20]
			return r
		}, 10},
		{"the salt", audit.Payload, func(r []events.Record) []events.Record { r[9].Salt[3] ^= 1; return r }, 10},
		{"a header in another form", audit.Unreadable, func(r []events.Record) []events.Record {
			r[9].Leaf = bytes.Replace(r[9].Leaf, []byte(`":"`), []byte(`": "`), 1)
			return r
		}, 10},
		{"a byte of a header", audit.Chain, func(r []events.Record) []events.Record {
			leaf := slices.Clone(r[9].Leaf)
			leaf[40] ^= 1 // of its id
			r[9].Leaf = leaf
			return r
		}, 11},
		{"a dropped event", audit.Position, func(r []events.Record) []events.Record { return slices.Delete(r, 9, 10) }, 11},
		{"two swapped events", audit.Position, func(r []events.Record) []events.Record { r[9], r[10] = r[10], r[9]; return r }, 11},
		{"an event back-dated", audit.Time, func(r []events.Record) []events.Record {
			h := r[9].Header
			h.Time = h.Time.Add(-time.Hour)
			r[9] = events.NewDraft(h.Intent, r[9].Salt, r[9].Payload).Place(h.Place)
			return r
		}, 10},
		{"an event put in another's place", audit.Chain, func(r []events.Record) []events.Record {
			h := r[9].Header
			h.Prev = events.SumHash("another past")
			r[9] = events.NewDraft(h.Intent, r[9].Salt, r[9].Payload).Place(h.Place)
			return r
		}, 10},
	} {
		t.Run(c.name, func(t *testing.T) {
			report := run(t, c.damage(slices.Clone(f.records)))
			if report.OK || !slices.ContainsFunc(report.Findings, func(f audit.Finding) bool { return f.Kind == c.kind && f.Position == c.at }) {
				t.Errorf("no %s at position %d: %+v", c.kind, c.at, report.Findings)
			}
		})
	}
}

// An event that cannot be read is named, and no other: where its header can be, streams,
// checkpoints and roots go on over it.
func TestUnreadableEventIsNamedAndTheRestIsRead(t *testing.T) {
	f := newFleet(t)
	signed := f.sign(t, "key")
	if err := f.RootHeads(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.read()
	for _, c := range []struct {
		name     string
		header   bool // can be read
		kinds    []string
		verified int
	}{
		{"the header", false, []string{audit.Unreadable, audit.Undetermined, audit.Revision, audit.Chain, audit.Undetermined, audit.Undetermined}, 0},
		{"the payload", true, []string{audit.Unreadable, audit.Undetermined}, 1},
	} {
		report, err := audit.Run(t.Context(), func(yield func(events.Stored, error) bool) {
			for i, r := range f.records {
				s, err := r.Stored(), error(nil)
				if i == 4 {
					err = &events.CorruptError{Position: 5, Detail: "checksum mismatch"}
					s.Payload = nil
					if !c.header {
						s = events.Stored{}
					}
				}
				if !yield(s, err) {
					return
				}
			}
		}, audit.Options{Checkpoints: [][]byte{signed}})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, x := range report.Findings {
			kinds = append(kinds, x.Kind)
		}
		if !slices.Equal(kinds, c.kinds) || report.Findings[0].Position != 5 || report.CheckpointsVerified != c.verified || report.HeadsVerified != c.verified ||
			report.To != events.Position(len(f.records)) || report.Events != len(f.records) {
			t.Errorf("%s: got %+v", c.name, report)
		}
	}
}

func TestLiveProjectionThatDiffersIsFound(t *testing.T) {
	f := newFleet(t)
	other := newFleet(t)
	if _, err := other.ChangeActor(context.Background(), commands.Caller{Actor: "root"}, commands.ChangeActor{ID: "ana", AddScopes: []string{"zz"}}); err != nil {
		t.Fatal(err)
	}
	// The log of one fleet beside the state of the other, at the same position.
	records := f.records
	if _, err := f.ChangeActor(context.Background(), commands.Caller{Actor: "root"}, commands.ChangeActor{ID: "ana", AddScopes: []string{"yy"}}); err != nil {
		t.Fatal(err)
	}
	for r, err := range f.Log().ReadAll(context.Background(), events.Position(len(records))) {
		if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	report, err := audit.Run(context.Background(), seq(records), audit.Options{Live: other.Ledger})
	if err != nil {
		t.Fatal(err)
	}
	if report.OK || !slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
		return f.Kind == audit.Projection && f.Detail == "authority: actor ana differs"
	}) {
		t.Errorf("got %+v", report)
	}
}

// A source may overwrite the bytes of an event once it is asked for the next.
func TestSourceReusesItsBytes(t *testing.T) {
	f := newFleet(t)
	var buf []byte
	report, err := audit.Run(context.Background(), func(yield func(events.Stored, error) bool) {
		for _, r := range f.records {
			clear(buf)
			buf = append(append(buf[:0], r.Leaf...), r.Payload...)
			s := r.Stored()
			s.Leaf, s.Payload = buf[:len(r.Leaf)], buf[len(r.Leaf):]
			if !yield(s, nil) {
				return
			}
		}
	}, audit.Options{Live: f.Ledger})
	if err != nil || !report.OK || report.Events != len(f.records) || report.ProjectionsCompared == 0 {
		t.Errorf("got %+v, error %v", report, err)
	}
}
