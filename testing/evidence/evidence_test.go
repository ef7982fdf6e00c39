package evidence_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/audit"
	"fleetledger/commands/evidence"
	"fleetledger/events"
)

// python is what verify.py says of a file.
type python struct {
	File     string `json:"file"`
	OK       bool   `json:"ok"`
	Events   int    `json:"events"`
	Erased   int    `json:"erased"`
	Findings []struct {
		Position events.Position `json:"position"`
		Detail   string          `json:"detail"`
	} `json:"findings"`
	NotChecked []string `json:"not_checked"`
}

// runPython has verify.py verify some files at once. Without a python3 the test is
// skipped, but not in CI.
func runPython(t *testing.T, key string, files ...[]byte) []python {
	t.Helper()
	program, err := exec.LookPath("python3")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatalf("the second verifier cannot be run: %v", err)
		}
		t.Skipf("THE SECOND VERIFIER IS NOT RUN: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	dir := t.TempDir()
	args := []string{"-I", "-W", "error", "verify.py", "--key", key}
	for i, file := range files {
		name := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(name, file, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, name)
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) || stderr.Len() > 0 {
		t.Fatalf("verify.py: %v\n%s", err, stderr.String())
	}
	var all []python
	good := true
	for text := range bytes.Lines(out) {
		var p python
		if err := json.Unmarshal(text, &p, json.RejectUnknownMembers(true)); err != nil {
			t.Fatal(err)
		}
		good = good && p.OK
		all = append(all, p)
	}
	if len(all) != len(files) || good != (err == nil) {
		t.Fatalf("%d answers for %d files, all good: %t, exit: %v", len(all), len(files), good, err)
	}
	return all
}

func TestGoodEvidence(t *testing.T) {
	s := newLog(t)
	file := s.export(t)
	r := verify(t, file, s.key)
	if !r.OK || r.Status != "settled" || r.Verdict != events.VerdictSucceeded || r.Proved != r.Events || r.DecisionsRederived < 20 {
		t.Fatalf("got %+v", r)
	}
	if again := s.export(t); !bytes.Equal(again, file) {
		t.Error("the same log gives another file")
	}
	if len(r.Established) < 5 || len(r.NotEstablished) < 4 {
		t.Errorf("established %q, not %q", r.Established, r.NotEstablished)
	}
	// Another key is of no harm, an unknown one of no use.
	other := "relay.test/other+" + strings.SplitN(s.key, "+", 3)[1]
	if _, err := evidence.Verify(file, other); err != nil {
		t.Error(err)
	}
	for _, keys := range [][]string{nil, {other}} {
		if r := verify(t, file, keys...); r.OK || r.DecisionsRederived != 0 || !strings.Contains(fmt.Sprint(r.Findings), "checkpoint") {
			t.Errorf("keys %q: got %+v", keys, r)
		}
	}
	// No such task, no file.
	if file, err := evidence.Export(t.Context(), s.log, s.sealer, "another"); file != nil || err != nil {
		t.Errorf("got %s, %v", file, err)
	}
}

// Each row is a file that is not what was exported. kind and at are what a finding
// must be of; a row without is one that a verifier of a single file cannot see
// through, or that is told as erased.
var damages = []struct {
	name, kind string
	damage     func(t testing.TB, lines []line) []line
	// at is the line whose position is named, of the good file, 0 for none.
	at func(t testing.TB, lines []line) int
}{
	{"nothing", "", func(_ testing.TB, l []line) []line { return l }, nil},
	{"a payload", audit.Payload, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["payload"] = strings.Replace(l[i]["payload"].(string), `"exit_code":0`, `"exit_code":1`, 1)
		return l
	}, reported},
	{"a payload in another spelling", audit.Payload, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["payload"] = l[i]["payload"].(string) + " "
		return l
	}, reported},
	{"a salt", audit.Payload, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["salt"] = hex.EncodeToString(make([]byte, 16))
		return l
	}, reported},
	{"a salt in capitals", evidence.Malformed, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["salt"] = "ABCDEF" + l[1]["salt"].(string)[6:]
		return l
	}, reported},
	{"an actor in a header", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "approval.settled", 1)
		l[i]["leaf"] = strings.Replace(l[i]["leaf"].(string), `"actor":"carl"`, `"actor":"ana"`, 1)
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "approval.settled", 1) }},
	{"a header with a space", audit.Header, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["leaf"] = strings.Replace(l[i]["leaf"].(string), `,"stream"`, `, "stream"`, 1)
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) - 1 }},
	{"a proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		proof := l[find(t, l, "task.reported", 0)]["proof"].([]any)
		proof[0], proof[1] = proof[1], proof[0]
		return l
	}, reported},
	{"a longer proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		proof := l[i]["proof"].([]any)
		l[i]["proof"] = append(proof, proof[0])
		return l
	}, reported},
	{"a shorter proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["proof"] = l[i]["proof"].([]any)[1:]
		return l
	}, reported},
	{"another's proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["proof"] = l[i-1]["proof"]
		return l
	}, reported},
	{"no proof", evidence.Malformed, func(t testing.TB, l []line) []line {
		delete(l[find(t, l, "task.reported", 0)], "proof")
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) - 1 }},
	{"an unknown member", evidence.Malformed, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["note"] = "trust me"
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) - 1 }},
	{"an event dropped", audit.Revision, func(t testing.TB, l []line) []line {
		l[0]["events"] = len(l) - 2
		return without(l, find(t, l, "task.claimed", 0))
	}, func(t testing.TB, l []line) int { return find(t, l, "lease.lapsed", 0) }},
	{"a rule dropped", audit.Revision, func(t testing.TB, l []line) []line {
		l[0]["events"] = len(l) - 2
		return without(l, find(t, l, "actor.registered", 3))
	}, nil},
	{"an event dropped and not counted", evidence.Malformed, func(_ testing.TB, l []line) []line { return l[:len(l)-1] }, nil},
	{"an event twice", audit.Position, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[0]["events"] = len(l)
		return slices.Insert(l, i, l[i])
	}, reported},
	{"two events swapped", audit.Position, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i], l[i-1] = l[i-1], l[i]
		return l
	}, nil},
	{"no authority", evidence.Malformed, func(t testing.TB, l []line) []line {
		l = slices.DeleteFunc(l, func(x line) bool { return x["leaf"] != nil && x.header(t).Stream == events.AuthorityStream })
		l[0]["events"] = len(l) - 1
		return l
	}, nil},
	{"no task", evidence.Malformed, func(t testing.TB, l []line) []line {
		l = slices.DeleteFunc(l, func(x line) bool {
			return x["leaf"] != nil && strings.HasPrefix(string(x.header(t).Stream), "task-")
		})
		l[0]["events"] = len(l) - 1
		return l
	}, nil},
	{"no events", evidence.Malformed, func(_ testing.TB, l []line) []line { l[0]["events"] = 0; return l[:1] }, nil},
	{"an erased event with its payload", evidence.Malformed, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["erased"] = true
		return l
	}, reported},
	{"no payload", audit.Payload, func(t testing.TB, l []line) []line {
		delete(l[find(t, l, "task.reported", 0)], "payload")
		return l
	}, reported},
	{"another task", evidence.Foreign, func(_ testing.TB, l []line) []line { l[0]["task_id"] = "another"; return l }, nil},
	{"another fleet", evidence.Foreign, func(_ testing.TB, l []line) []line { l[0]["fleet"] = "other"; return l }, nil},
	{"another origin", evidence.Foreign, func(_ testing.TB, l []line) []line { l[0]["origin"] = "relay.test/other"; return l }, nil},
	{"a larger checkpoint", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		parts := strings.Split(l[0]["checkpoint"].(string), "\n")
		parts[1] += "0"
		l[0]["checkpoint"] = strings.Join(parts, "\n")
		return l
	}, nil},
	{"a checkpoint without a signature", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		text, _, _ := strings.Cut(l[0]["checkpoint"].(string), "—")
		l[0]["checkpoint"] = text
		return l
	}, nil},
	{"another signature", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		text := []byte(l[0]["checkpoint"].(string))
		text[len(text)-20] ^= 1
		l[0]["checkpoint"] = string(text)
		return l
	}, nil},
	{"no checkpoint", audit.Checkpoint, func(_ testing.TB, l []line) []line { l[0]["checkpoint"] = ""; return l }, nil},

	// What one file alone cannot give away, and what is told of it instead.
	{"the end of the task left out", "", func(t testing.TB, l []line) []line {
		i := find(t, l, "task.settled", 0)
		l[0]["events"] = i - 1
		return l[:i]
	}, nil},
	{"a conclusion erased", "", func(t testing.TB, l []line) []line { return erase(l, find(t, l, "conclusion.recorded", 0)) }, nil},
}

func reported(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) }

func erase(l []line, i int) []line {
	delete(l[i], "salt")
	delete(l[i], "payload")
	l[i]["erased"] = true
	return l
}

func TestDamagedEvidence(t *testing.T) {
	s := newLog(t)
	good := s.export(t)
	var files [][]byte
	for _, c := range damages {
		at := events.Position(0)
		file := edit(t, good, func(l []line) []line {
			if c.at != nil {
				at = l[c.at(t, l)].header(t).Position
			}
			return c.damage(t, l)
		})
		files = append(files, file)
		r := verify(t, file, s.key)
		switch {
		case c.kind == "":
			if !r.OK || r.DecisionsRederived == 0 {
				t.Errorf("%s: got %+v", c.name, r.Findings)
			}
		case r.OK || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool {
			return f.Kind == c.kind && (c.at == nil || f.Position == at)
		}):
			t.Errorf("%s: no %s at position %d: %+v", c.name, c.kind, at, r.Findings)
		case r.DecisionsRederived != 0 || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.Kind == audit.Undetermined }):
			t.Errorf("%s: decisions were made again from events that are not proved", c.name)
		}
	}
	for i, p := range runPython(t, s.key, files...) {
		c := damages[i]
		ours := verify(t, files[i], s.key)
		if p.OK != ours.OK || p.Erased != ours.Erased && ours.OK {
			t.Errorf("%s: ours says %t %+v, verify.py %t %+v", c.name, ours.OK, ours.Findings, p.OK, p.Findings)
		}
		for _, f := range p.Findings {
			if f.Position > 0 && !slices.ContainsFunc(ours.Findings, func(o audit.Finding) bool { return o.Position == f.Position }) {
				t.Errorf("%s: verify.py finds %+v, ours %+v", c.name, f, ours.Findings)
			}
		}
		if len(p.NotChecked) == 0 || !strings.Contains(p.NotChecked[0], "decisions") {
			t.Errorf("verify.py does not say that it leaves decisions out: %q", p.NotChecked)
		}
	}
}

// What decisions rest on is never taken for verified when it is not there.
func TestErasedIsNotPassed(t *testing.T) {
	s := newLog(t)
	good := s.export(t)
	for _, c := range []struct {
		kind events.Kind
		ok   bool
	}{{"conclusion.recorded", true}, {"task.reported", true}, {"task.submitted", true}, {"actor.registered", false}, {"approval.settled", false}, {"task.settled", false}} {
		file := edit(t, good, func(l []line) []line { return erase(l, find(t, l, c.kind, 0)) })
		r := verify(t, file, s.key)
		if r.OK != c.ok || r.Erased != 1 || !strings.Contains(strings.Join(r.NotEstablished, "\n"), "erased in the log, or left out") {
			t.Errorf("%s: got %+v", c.kind, r)
		}
		if !c.ok && (len(r.Findings) != 2 || r.Findings[0].Kind != audit.Payload || r.Findings[0].Position == 0 || r.Findings[1].Kind != audit.Undetermined) {
			t.Errorf("%s: got %+v", c.kind, r.Findings)
		}
		told := strings.Contains(strings.Join(r.NotEstablished, "\n"), "the task's verdict")
		if rests := c.kind == "task.reported" || c.kind == "task.submitted"; rests != told {
			t.Errorf("%s: the verdict is said to be unfounded: %t: %v", c.kind, told, r.NotEstablished)
		}
	}
}

// Each row is a decision forged by somebody who holds the key: every hash and
// signature is right, and the decision's position is named. verify.py, which makes
// no decisions, says that it does not.
func TestForgedDecisions(t *testing.T) {
	s := newLog(t)
	rows := []struct {
		name  string
		kind  events.Kind
		nth   int
		forge func(r *events.Record, e events.Event) events.Event
	}{
		{"another verdict", "task.settled", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TaskSettled)
			x.Verdict = events.VerdictFailed
			return x
		}},
		{"granted by the requester", "approval.settled", 1, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "ana"
			return e
		}},
		{"a grant without an evaluation", "approval.settled", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalSettled)
			x.Evaluations = nil
			return x
		}},
		{"an easier approval", "approval.requested", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalRequested)
			x.RequiredLevel = 1
			return x
		}},
		{"a gate that let it in", "gate.decided", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.GateDecided)
			x.Decision.Verdict, x.Decision.Decisive = events.Allow, nil
			return x
		}},
		{"a gate without its rule", "gate.decided", 1, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.GateDecided)
			x.Decision.Decisive = nil
			return x
		}},
		{"a rule by leave of nobody", "rule.written", 20, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.RuleWritten)
			x.Permit = nil
			return x
		}},
		{"an approval spent for another command", "approval.spent", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.ApprovalSpent)
			x.CommandHash = events.SumHash("another")
			return x
		}},
		{"a claim of another's", "task.claimed", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "m2"
			return e
		}},
		{"a lapse said by a person", "lease.lapsed", 0, func(r *events.Record, e events.Event) events.Event {
			r.Header.Actor = "ana"
			return e
		}},
		{"a report said to be late", "task.reported", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.TaskReported)
			x.Late = true
			return x
		}},
		{"an event that has no place there", "task.opened", 0, func(_ *events.Record, _ events.Event) events.Event {
			return events.ApprovalSpent{}
		}},
		{"a setting by leave of nobody", "settings.changed", 0, func(_ *events.Record, e events.Event) events.Event {
			x := e.(events.SettingsChanged)
			x.Permit = nil
			return x
		}},
	}
	var files [][]byte
	for _, c := range rows {
		seen, at := 0, events.Position(0)
		f := s.forged(t, func(r *events.Record, e events.Event) events.Event {
			if r.Header.Type != c.kind {
				return e
			}
			if seen++; seen-1 != c.nth {
				return e
			}
			at = r.Header.Position
			x := c.forge(r, e)
			r.Header.Type = x.Kind()
			return x
		})
		if at == 0 {
			t.Fatalf("%s: there is no %s number %d", c.name, c.kind, c.nth)
		}
		file := f.export(t)
		files = append(files, file)
		r := verify(t, file, s.key)
		if r.OK || r.Proved != r.Events || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool {
			return f.Position == at && (f.Kind == audit.Decision || f.Kind == audit.Order)
		}) {
			t.Errorf("%s: position %d is not named: %+v", c.name, at, r.Findings)
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
			file, err := evidence.Export(t.Context(), f.log, f.sealer, f.task)
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

// Authority that is withheld from the end of its stream shows in what was decided
// under it.
func TestWithheldAuthorityIsFound(t *testing.T) {
	s := newLog(t)
	file := edit(t, s.export(t), func(l []line) []line {
		i := find(t, l, "rule.written", 20) // the newest of the stream
		l[0]["events"] = len(l) - 2
		return without(l, i)
	})
	r := verify(t, file, s.key)
	if r.OK || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.Kind == audit.Decision }) {
		t.Errorf("got %+v", r)
	}
}

// One bit flipped anywhere: both verifiers say the same, and good only of what is
// the same file in another spelling.
func TestFlippedBits(t *testing.T) {
	s := newLog(t)
	good := s.export(t)
	step := 193
	if testing.Short() {
		step = 997
	}
	var files [][]byte
	var where []int
	for bit := 0; bit < 8*len(good); bit += step {
		if bit/8 > 1200 && bit%(11*step) != 0 { // densely in the head, which is the one line of its kind
			continue
		}
		file := slices.Clone(good)
		file[bit/8] ^= 1 << (bit % 8)
		files, where = append(files, file), append(where, bit)
	}
	for i, p := range runPython(t, s.key, files...) {
		r, err := evidence.Verify(files[i], s.key)
		if ok := err == nil && r.OK; ok != p.OK {
			t.Errorf("bit %d, %q: ours says %t %v %+v, verify.py %t %+v", where[i], good[max(0, where[i]/8-20):where[i]/8+20], ok, err, r.Findings, p.OK, p.Findings)
		} else if ok {
			t.Errorf("bit %d, %q: it is not found", where[i], good[max(0, where[i]/8-20):where[i]/8+20])
		}
	}
}

func TestCutFiles(t *testing.T) {
	s := newLog(t)
	good := s.export(t)
	head := bytes.IndexByte(good, '\n')
	files := [][]byte{nil, []byte("\n"), good[:10], good[:head], good[:head+1], good[:head+40], good[:len(good)-1], append(slices.Clone(good), '\n'), append(slices.Clone(good), "{}\n"...),
		append([]byte("\xef\xbb\xbf"), good...), bytes.ReplaceAll(good, []byte("\n"), []byte("\n\n")), []byte(`[]` + "\n"), []byte(`"` + strings.Repeat("[", 100_000) + "\n")}
	for i, p := range runPython(t, s.key, files...) {
		r, err := evidence.Verify(files[i], s.key)
		if p.OK || err == nil && r.OK {
			t.Errorf("file %d is taken: %t, verify.py %t", i, r.OK, p.OK)
		}
	}
}

// A verifier meets whatever somebody sends it.
func FuzzVerify(f *testing.F) {
	s := newLog(f)
	good := s.export(f)
	f.Add(good)
	lines := bytes.SplitAfter(good, []byte("\n"))
	for _, n := range []int{1, 2, 20, len(lines) - 2} {
		f.Add(bytes.Join(lines[:n], nil))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := evidence.Verify(file, s.key)
		if err == nil && r.OK != (len(r.Findings) == 0) {
			t.Errorf("ok %t with %d findings", r.OK, len(r.Findings))
		}
		if err == nil && r.OK && (r.Proved != r.Events || r.Events == 0) {
			t.Errorf("good with %d of %d events proved", r.Proved, r.Events)
		}
	})
}
