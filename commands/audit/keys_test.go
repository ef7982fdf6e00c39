package audit_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/testing/smallfleet"
)

// rotated is a fleet whose log is signed by one key, then by two, then by the second.
type rotated struct {
	fleet
	keys        []*seal.Key // as they were kept last
	old, new    string
	oldKey      *seal.Key
	first, last []byte // checkpoints before the rotation and after the retirement
}

func newRotated(t *testing.T) *rotated {
	t.Helper()
	f := &rotated{fleet: newFleet(t)}
	key := smallfleet.NewKey(t, "old")
	ctx, root := t.Context(), smallfleet.As("root")
	if err := f.AddKey(ctx, key.Verifier()); err != nil {
		t.Fatal(err)
	}
	s := smallfleet.NewSealer(t, f.Memory(), func(keys []*seal.Key) { f.keys = keys }, key)
	var err error
	f.oldKey, f.old = key, key.Verifier()
	if f.first, err = s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.RetireKey(ctx, root, s, commands.RetireKey{ID: seal.RingKey{Verifier: f.old}.ID()}); refusal(err) != "KEY_LAST" {
		t.Errorf("the only key was retired: %v", err)
	}
	if _, err := f.RotateKey(ctx, root, s, commands.RotateKey{Reason: "yearly"}); err != nil {
		t.Fatal(err)
	}
	if len(f.keys) != 2 || !slices.Equal(s.Verifiers(), []string{f.keys[0].Verifier(), f.keys[1].Verifier()}) {
		t.Fatalf("%d keys are kept, %q sign", len(f.keys), s.Verifiers())
	}
	f.new = f.keys[1].Verifier()
	if _, err := f.RotateKey(ctx, root, s, commands.RotateKey{}); refusal(err) != "KEY_OVERLAP" || len(f.keys) != 2 {
		t.Errorf("a third key: %v, %d are kept", err, len(f.keys))
	}
	both, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{f.old, f.new} {
		if _, err := seal.VerifyCheckpoint(both, key); err != nil {
			t.Errorf("while both are in force: %v", err)
		}
	}
	if _, err := f.RetireKey(ctx, root, s, commands.RetireKey{ID: seal.RingKey{Verifier: f.old}.ID(), Reason: "replaced"}); err != nil {
		t.Fatal(err)
	}
	if f.last, err = s.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if _, err := seal.VerifyCheckpoint(f.last, f.old); !errors.Is(err, seal.ErrNotSigned) || len(f.keys) != 1 {
		t.Errorf("the retired key signs: %v; %d keys are kept", err, len(f.keys))
	}
	f.read()
	return f
}

func refusal(err error) string {
	var r *commands.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

// TestKeysAreFollowed: whoever has only the first key learns of the second from what
// the first one signed; a retired key counts no further.
func TestKeysAreFollowed(t *testing.T) {
	f := newRotated(t)
	withoutLast := rewrite(t, f.records, func(r *events.Record, e events.Event) events.Event {
		if n, ok := e.(events.KeyRetired); ok {
			n.Checkpoint = string(f.last)
			return n
		}
		return e
	})
	other := newFleet(t)
	other.sign(t, "another")
	stranger, err := seal.NewKey(rand.Reader, "ledger.test/default")
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]struct {
		records  []events.Record
		signed   [][]byte
		keys     []string
		verified int
		finding  string
	}{
		"the log's keys":        {f.records, [][]byte{f.first, f.last}, nil, 3, ""},
		"the old key":           {f.records, [][]byte{f.first, f.last}, []string{f.old}, 3, ""},
		"the old key, late":     {f.records, [][]byte{f.last}, []string{f.old}, 2, ""},
		"the new key":           {f.records, [][]byte{f.last}, []string{f.new}, 2, ""},
		"a stranger's key":      {f.records, [][]byte{f.last}, []string{stranger.Verifier()}, 0, "names none of the keys"},
		"past the retirement":   {f.records, [][]byte{f.signedBy(t, f.oldKey)}, nil, 1, "had been retired by then"},
		"another last one":      {withoutLast, nil, nil, 0, "the last checkpoint of the key"},
		"a log that is another": {other.records, [][]byte{f.first}, []string{f.old}, 0, "names none of the keys"},
	} {
		t.Run(what, func(t *testing.T) {
			report, err := audit.Run(context.Background(), seq(c.records), audit.Options{Checkpoints: c.signed, Keys: c.keys})
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(report.Findings, func(f audit.Finding) bool { return strings.Contains(f.Detail, c.finding) })
			if report.CheckpointsVerified != c.verified || report.OK != (c.finding == "") || c.finding != "" && !found {
				t.Errorf("got %+v", report)
			}
		})
	}
}
