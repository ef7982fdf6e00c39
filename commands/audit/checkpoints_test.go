package audit_test

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/testing/smallfleet"
)

// sign makes the key of this origin, records it, and signs the log as it is then.
func (f *fleet) sign(t *testing.T, name string) (signed []byte) {
	t.Helper()
	key := smallfleet.NewKey(t, name)
	if err := f.AddKey(t.Context(), key.Verifier()); err != nil {
		t.Fatal(err)
	}
	signed = f.signedBy(t, key)
	f.read()
	return signed
}

// signedBy signs what the log is now with a key, whatever the log says of it.
func (f *fleet) signedBy(t *testing.T, key *seal.Key) []byte {
	t.Helper()
	signed, err := smallfleet.NewSealer(t, f.Memory(), nil, key).Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	return signed
}

func TestCheckpoints(t *testing.T) {
	f := newFleet(t)
	founded := len(f.records)
	first := f.sign(t, "first")
	if got := len(f.records) - founded; got != 1 {
		t.Fatalf("%d events were recorded for a key", got)
	}
	second := f.sign(t, "second") // another key of the same log
	if err := f.AddKey(context.Background(), "made-up+00000000+AA=="); err == nil {
		t.Error("what is no key was recorded")
	}
	at := events.Position(len(f.records))

	// A log in which one decision is told otherwise, and every hash made to fit.
	rewritten := rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
		if n, ok := e.(events.ConclusionRecorded); ok {
			n.Text = "all was well"
			return n
		}
		return e
	})
	withoutKeys := slices.DeleteFunc(slices.Clone(f.records), func(r events.Record) bool { return r.Header.Stream == events.LedgerStream })
	unreadable := func(yield func(events.Stored, error) bool) {
		for i, r := range f.records {
			if i == 4 && !yield(events.Stored{}, &events.CorruptError{Position: 5, Detail: "checksum mismatch"}) || i != 4 && !yield(r.Stored(), nil) {
				return
			}
		}
	}
	lines := bytes.Split(second, []byte("\n"))
	lines[2] = append([]byte{lines[2][1], lines[2][0]}, lines[2][2:]...)
	otherRoot := bytes.Join(lines, []byte("\n"))
	changed := bytes.Replace(second, []byte("ledger.test"), []byte("old.test"), 1)
	for what, c := range map[string]struct {
		src      iter.Seq2[events.Stored, error]
		signed   [][]byte
		verified int
		finding  string
		position events.Position
	}{
		"none":                  {seq(f.records), nil, 0, "", 0},
		"good ones":             {seq(f.records), [][]byte{second, first, second}, 3, "", 0},
		"a rewritten log":       {seq(rewritten), [][]byte{second}, 0, "is not the one that was signed", 1},
		"a cut log":             {seq(f.records[:len(f.records)-1]), [][]byte{second, first}, 1, "a checkpoint was signed over", at},
		"no log":                {seq(nil), [][]byte{first}, 0, "0 are there", 1},
		"a header is lost":      {unreadable, [][]byte{second}, 0, "is not checked", at},
		"the keys are gone":     {seq(withoutKeys), [][]byte{first}, 0, "a checkpoint was signed over", at - 1},
		"before its key":        {seq(f.records[:founded]), [][]byte{signedOver(t, f.records[:founded])}, 0, "not signed by a key of this log", events.Position(founded)},
		"another root":          {seq(f.records), [][]byte{otherRoot}, 0, "at least one of them was replaced; or the checkpoint was changed: ", 1},
		"another size":          {seq(f.records), [][]byte{bytes.Replace(second, fmt.Appendf(nil, "\n%d\n", at), []byte("\n9999\n"), 1)}, 0, "are there; or the checkpoint was changed: ", at + 1},
		"changed":               {seq(f.records), [][]byte{changed}, 0, "does not verify", at},
		"no checkpoint at all":  {seq(f.records), [][]byte{[]byte("what is this\n")}, 0, "cannot be read", 1},
		"good and bad together": {seq(f.records), [][]byte{first, changed}, 1, "does not verify", at},
	} {
		t.Run(what, func(t *testing.T) {
			report, err := audit.Run(context.Background(), c.src, audit.Options{Checkpoints: c.signed})
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
				return strings.Contains(f.Detail, c.finding) && f.Position == c.position
			})
			if report.CheckpointsVerified != c.verified || c.finding != "" && (report.OK || !found) || c.finding == "" && !report.OK {
				t.Errorf("got %+v", report)
			}
		})
	}
}

// signedOver is a checkpoint over a log by a key that is not recorded in it.
func signedOver(t *testing.T, records []events.Record) []byte {
	t.Helper()
	f := newFleet(t)
	if len(f.records) != len(records) || f.records[len(records)-1].LeafHash != records[len(records)-1].LeafHash {
		t.Fatal("two fleets differ")
	}
	return f.signedBy(t, smallfleet.NewKey(t, "stranger"))
}
