package evidence_test

import (
	"bytes"
	"slices"
	"strconv"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/audit"
	"fleetledger/commands/evidence"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/testing/smallfleet"
)

// Each row is a decision forged by somebody who holds the key: every hash and
// signature is right, and the decision's position is named. verify.py, which makes
// no decisions, says that it does not.
func TestForgedDecisions(t *testing.T) {
	s := newLog(t)
	rows := []smallfleet.Forgery{
		smallfleet.Forge("another verdict", "task.settled", 0, func(x *events.TaskSettled) { x.Verdict = events.VerdictFailed }),
		smallfleet.ForgeActor("granted by the requester", "approval.settled", 1, "ana"),
		smallfleet.Forge("a grant without an evaluation", "approval.settled", 1, func(x *events.ApprovalSettled) { x.Evaluations = nil }),
		smallfleet.Forge("an easier approval", "approval.requested", 1, func(x *events.ApprovalRequested) { x.RequiredLevel = 1 }),
		smallfleet.Forge("a gate that let it in", "gate.decided", 1, func(x *events.GateDecided) { x.Decision.Verdict, x.Decision.Decisive = events.Allow, nil }),
		smallfleet.Forge("a gate without its rule", "gate.decided", 1, func(x *events.GateDecided) { x.Decision.Decisive = nil }),
		smallfleet.Forge("a rule by leave of nobody", "rule.written", 20, func(x *events.RuleWritten) { x.Permit = nil }),
		smallfleet.Forge("an approval spent for another command", "approval.spent", 0, func(x *events.ApprovalSpent) { x.CommandHash = events.SumHash("another") }),
		smallfleet.ForgeActor("a claim of another's", "task.claimed", 0, "m2"),
		smallfleet.ForgeActor("a lapse said by a person", "lease.lapsed", 0, "ana"),
		smallfleet.Forge("a report said to be late", "task.reported", 0, func(x *events.TaskReported) { x.Late = true }),
		smallfleet.ForgeKind("an event that has no place there", "task.opened", 0, events.ApprovalSpent{}),
		smallfleet.Forge("a setting by leave of nobody", "settings.changed", 0, func(x *events.SettingsChanged) { x.Permit = nil }),
	}
	var files [][]byte
	for _, c := range rows {
		at, change := c.In(t, smallfleet.Records(t, s.log))
		file := s.forged(t, change).export(t)
		files = append(files, file)
		r := verify(t, file, s.key)
		if r.OK || r.Proved != r.Events || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool {
			return f.Position == at && (f.Kind == audit.Decision || f.Kind == audit.Order)
		}) {
			t.Errorf("%s: position %d is not named: %+v", c.Name, at, r.Findings)
		}
	}
	// The key is the same for all: a log of this name without forgeries.
	files = append(files, s.forged(t, func(_ *events.Record, e events.Event) events.Event { return e }).export(t))
	if r := verify(t, files[len(files)-1], s.key); !r.OK {
		t.Errorf("not forged: %+v", r.Findings)
	}
	for i, p := range runPython(t, s.key, files...) {
		if !p.OK {
			t.Errorf("verify.py, file %d: %+v", i, p.Findings)
		}
	}
}

// Whoever holds the key can sign any nonsense: members missing, null, or empty. It is
// found, or it made no difference, and the verifier is not stopped by it.
func TestSignedNonsense(t *testing.T) {
	if testing.Short() {
		t.Skip("it forges a log for each member of each payload")
	}
	s := newLog(t)
	// The paths of one payload of each kind.
	type place struct {
		kind events.Kind
		path jsontext.Pointer
	}
	var places []place
	seen := map[events.Kind]bool{}
	for r, err := range s.log.ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		// The newest rule is not one of the founding, which have no permit.
		if seen[r.Header.Type] && r.Header.Type != "rule.written" && r.Header.Type != "actor.registered" || r.Header.Position < 10 {
			continue
		}
		seen[r.Header.Type] = true
		d := jsontext.NewDecoder(bytes.NewReader(r.Payload))
		for d.PeekKind() != 0 {
			if _, err := d.ReadToken(); err != nil {
				t.Fatal(err)
			}
			p := place{r.Header.Type, d.StackPointer()}
			if p.path != "" && !slices.Contains(places, p) {
				places = append(places, p)
			}
		}
	}
	if len(places) < 150 {
		t.Fatalf("only %d members", len(places))
	}
	found, nonsense := 0, []any{nil, "", 0, []any{}, missing{}}
	for i, p := range places {
		for k := range 3 {
			to := nonsense[(i+k)%len(nonsense)]
			f := s.rewritten(t, func(r *events.Record) []byte {
				if r.Header.Type != p.kind {
					return r.Payload
				}
				var v any
				if err := json.Unmarshal(r.Payload, &v); err != nil {
					t.Fatal(err)
				}
				out, err := json.Marshal(put(v, slices.Collect(p.path.Tokens()), to), json.Deterministic(true))
				if err != nil {
					t.Fatal(err)
				}
				return out
			})
			file, err := evidence.Export(t.Context(), f.log, f.sealer, seal.NewHeadsProver(f.log), f.task)
			if err != nil {
				continue // not even the exporter can decode it
			}
			if !verify(t, file, f.key).OK {
				found++
			}
		}
	}
	if found < 150 {
		t.Errorf("only %d forgeries were found", found)
	}
}

// missing stands for a member that is not there.
type missing struct{}

// put changes what a path leads to, where it leads to something.
func put(v any, path []string, to any) any {
	if len(path) == 0 {
		return to
	}
	switch v := v.(type) {
	case map[string]any:
		if old, ok := v[path[0]]; ok {
			if v[path[0]] = put(old, path[1:], to); v[path[0]] == (missing{}) {
				delete(v, path[0])
			}
		}
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i < len(v) {
			if v[i] = put(v[i], path[1:], to); v[i] == any(missing{}) {
				return slices.Delete(v, i, i+1)
			}
		}
	}
	return v
}
