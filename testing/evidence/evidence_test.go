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

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/commands/evidence"
	"fleetledger/events"
	"fleetledger/events/seal"
)

// python is what verify.py says of a file.
type python struct {
	File   string `json:"file"`
	OK     bool   `json:"ok"`
	Events int    `json:"events"`
	Erased int    `json:"erased"`
	// CompleteTo is as in our own report.
	CompleteTo events.Position `json:"complete_to"`
	Findings   []struct {
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
	if file, err := evidence.Export(t.Context(), s.log, s.sealer, seal.NewHeadsProver(s.log), "another"); file != nil || err != nil {
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

	// By the root over the heads of all streams.
	{"the last event of the task dropped", evidence.Missing, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "conclusion.recorded", 0)))
	}, nil},
	{"the end of the task left out", evidence.Missing, leaveOutTheEnd, nil},
	{"the last event of a gate dropped", evidence.Missing, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "approval.spent", 0)))
	}, nil},
	{"the settings left out", evidence.Missing, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "settings.changed", 0)))
	}, nil},
	{"the root left out", evidence.Malformed, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "heads.rooted", 0)))
	}, rooted},
	{"the proofs left out", evidence.Foreign, func(_ testing.TB, l []line) []line { delete(l[0], "heads"); return l }, rooted},
	{"another root", evidence.Malformed, func(_ testing.TB, l []line) []line { heads(l)["position"] = 3; return l }, nil},
	{"a proof less", evidence.Malformed, func(_ testing.TB, l []line) []line {
		heads(l)["proofs"] = heads(l)["proofs"].([]any)[1:]
		return l
	}, rooted},
	{"two proofs swapped", evidence.Malformed, func(_ testing.TB, l []line) []line {
		p := heads(l)["proofs"].([]any)
		p[0], p[1] = p[1], p[0]
		return l
	}, rooted},
	{"a proof twice", evidence.Malformed, func(_ testing.TB, l []line) []line {
		p := heads(l)["proofs"].([]any)
		heads(l)["proofs"] = append(p, p[len(p)-1])
		return l
	}, rooted},
	{"the head of another stream", audit.Heads, func(_ testing.TB, l []line) []line {
		proof(l, "task-")["found"] = proof(l, "gate-")["found"]
		proof(l, "task-")["path"] = proof(l, "gate-")["path"]
		return l
	}, rooted},
	{"an earlier head", audit.Heads, func(_ testing.TB, l []line) []line {
		found := proof(l, "task-")["found"].(map[string]any)
		found["revision"] = found["revision"].(float64) - 1
		return l
	}, rooted},
	{"a bit of a proof", audit.Heads, func(_ testing.TB, l []line) []line {
		step := proof(l, "task-")["path"].([]any)[0].(map[string]any)
		step["bit"] = step["bit"].(float64) - 1
		return l
	}, rooted},
	{"a hash of a proof", audit.Heads, func(_ testing.TB, l []line) []line {
		proof(l, "task-")["path"].([]any)[0].(map[string]any)["hash"] = strings.Repeat("ab", 32)
		return l
	}, rooted},
	{"no path in a proof", audit.Heads, func(_ testing.TB, l []line) []line { proof(l, "task-")["path"] = []any{}; return l }, rooted},
	{"a payload left out", audit.Payload, func(t testing.TB, l []line) []line { return erase(l, find(t, l, "conclusion.recorded", 0)) },
		func(t testing.TB, l []line) int { return find(t, l, "conclusion.recorded", 0) }},

	// What one file alone cannot give away, and what is told of it instead.
	{"the end of the task left out, without a root", "", func(t testing.TB, l []line) []line {
		delete(l[0], "heads")
		l = leaveOutTheEnd(t, l)
		return counted(without(l, find(t, l, "heads.rooted", 0)))
	}, nil},
}

// leaveOutTheEnd leaves out the task's last events, from its verdict on.
func leaveOutTheEnd(t testing.TB, l []line) []line {
	settled := l[find(t, l, "task.settled", 0)].header(t)
	return counted(slices.DeleteFunc(l, func(x line) bool {
		return x["leaf"] != nil && x.header(t).Stream == settled.Stream && x.header(t).Revision >= settled.Revision
	}))
}

// counted makes the head say how many events there are.
func counted(l []line) []line {
	l[0]["events"] = len(l) - 1
	return l
}

func heads(l []line) map[string]any { return l[0]["heads"].(map[string]any) }

// proof is that of the stream whose name begins like this.
func proof(l []line, stream string) map[string]any {
	for _, p := range heads(l)["proofs"].([]any) {
		if p := p.(map[string]any); strings.HasPrefix(p["stream"].(string), stream) {
			return p
		}
	}
	panic("no proof of " + stream)
}

func rooted(t testing.TB, l []line) int { return find(t, l, "heads.rooted", 0) }

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
		if p.OK != ours.OK || p.Erased != ours.Erased && ours.OK || p.CompleteTo != ours.CompleteTo {
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

// What was erased is told as erased, by whom and why, and whatever rests on it is not
// said to be established. What decisions rest on is never taken for erased.
func TestErasedIsNotPassed(t *testing.T) {
	var files [][]byte
	for _, c := range []struct {
		kind  events.Kind
		rests bool // the verdict, on it
	}{{"conclusion.recorded", false}, {"task.reported", true}, {"task.submitted", true}} {
		s := unrootedLog(t)
		at := s.erase(t, c.kind, 0)
		s.root(t)
		file := s.export(t)
		files = append(files, file)
		r := verify(t, file, s.key)
		if !r.OK || r.Erased != 1 || r.CompleteTo == 0 || len(r.Erasures) != 1 || r.Erasures[0].Position != at || r.Erasures[0].By != "root" || r.Erasures[0].Reason != "leaked" {
			t.Errorf("%s: got %+v", c.kind, r)
		}
		no := strings.Join(r.NotEstablished, "\n")
		if !strings.Contains(no, "erased in the log, or left out") || strings.Contains(no, "the task's verdict") != c.rests {
			t.Errorf("%s: not established are %v", c.kind, r.NotEstablished)
		}
		// Without the event that tells of it, it is only left out.
		file = edit(t, file, func(l []line) []line { return counted(without(l, find(t, l, "payload.erased", 0))) })
		files = append(files, file)
		if r := verify(t, file, s.key); r.OK || len(r.Findings) != 2 || r.Findings[0].Kind != audit.Payload || r.Findings[0].Position != at {
			t.Errorf("%s, without its erasure: got %+v", c.kind, r.Findings)
		}
		// Nor does the erasure of one excuse another.
		file = edit(t, s.export(t), func(l []line) []line { return erase(l, find(t, l, "task.opened", 0)) })
		files = append(files, file)
		if r := verify(t, file, s.key); r.OK {
			t.Errorf("%s: another payload left out beside it is taken", c.kind)
		}
	}
	s := newLog(t)
	for _, kind := range []events.Kind{"actor.registered", "approval.settled", "task.settled", "task.reported", "heads.rooted"} {
		file := edit(t, s.export(t), func(l []line) []line { return erase(l, find(t, l, kind, 0)) })
		files = append(files, file)
		if r := verify(t, file, s.key); r.OK || r.Findings[0].Kind != audit.Payload || r.Findings[0].Position == 0 {
			t.Errorf("%s: got %+v", kind, r.Findings)
		}
	}
	for i, p := range runPython(t, s.key, files...) {
		ours := verify(t, files[i], s.key)
		if p.OK != ours.OK || p.Erased != ours.Erased && ours.OK || p.CompleteTo != ours.CompleteTo {
			t.Errorf("file %d: ours says %t %+v, verify.py %t %+v", i, ours.OK, ours.Findings, p.OK, p.Findings)
		}
	}
}

// Both verifiers know the same kinds that are erased.
func TestErasableKinds(t *testing.T) {
	text, err := os.ReadFile("verify.py")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "ERASABLE = {")
	list, _, _ = strings.Cut(list, "}")
	for _, k := range events.Kinds() {
		if k.Erasable() != strings.Contains(list, strconv.Quote(string(k))) {
			t.Errorf("%s can be erased: %t, and verify.py says otherwise", k, k.Erasable())
		}
	}
}

// A root shows that a task has no other event up to it; a log without one says that
// it does not, and so does one whose root is older than the task's last event.
func TestCompleteness(t *testing.T) {
	none := unrootedLog(t)
	early := unrootedLog(t)
	early.root(t)
	if _, err := early.ledger.Conclude(t.Context(), commands.Caller{Actor: "ana"}, commands.Conclude{About: &events.About{TaskID: early.task}, Text: "again"}); err != nil {
		t.Fatal(err)
	}
	whole := newLog(t)
	files := [][]byte{none.export(t), early.export(t), whole.export(t)}
	earlier, later := early.ledger.State().Rooted().At, whole.ledger.State().Rooted().At
	for i, want := range []struct {
		to    events.Position
		words string
	}{
		{0, "no root over the heads of all streams is in the file"},
		{earlier, fmt.Sprintf("no event behind position %d", earlier)},
		{later, fmt.Sprintf("no event behind position %d", later)},
	} {
		r := verify(t, files[i], whole.key)
		if !r.OK || r.CompleteTo != want.to || !strings.Contains(strings.Join(r.NotEstablished, "\n"), want.words) {
			t.Errorf("file %d: complete to %d: %v %+v", i, r.CompleteTo, r.NotEstablished, r.Findings)
		}
		if told := strings.Contains(strings.Join(r.Established, "\n"), "it has no other event up to position"); told != (want.to > 0) {
			t.Errorf("file %d: established are %v", i, r.Established)
		}
	}
	for i, p := range runPython(t, whole.key, files...) {
		if ours := verify(t, files[i], whole.key); !p.OK || p.CompleteTo != ours.CompleteTo {
			t.Errorf("file %d: verify.py says %+v", i, p)
		}
	}
	// A root of somebody else's, or of a position to come, is none.
	for name, forge := range map[string]func(r *events.Record, e events.HeadsRooted) events.HeadsRooted{
		"of root's": func(r *events.Record, e events.HeadsRooted) events.HeadsRooted { r.Header.Actor = "root"; return e },
		"of nothing": func(_ *events.Record, e events.HeadsRooted) events.HeadsRooted {
			e.Root = events.SumHash("x")
			return e
		},
	} {
		f := whole.forged(t, func(r *events.Record, e events.Event) events.Event {
			if h, ok := e.(events.HeadsRooted); ok {
				return forge(r, h)
			}
			return e
		})
		file, err := evidence.Export(t.Context(), f.log, f.sealer, seal.NewHeadsProver(f.log), f.task)
		if err != nil {
			continue // the exporter makes it again too
		}
		if r := verify(t, file, f.key); r.OK || r.CompleteTo != 0 {
			t.Errorf("%s: got %+v", name, r)
		}
		if p := runPython(t, f.key, file); p[0].OK {
			t.Errorf("%s: verify.py takes it", name)
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

// Authority that is withheld from the end of its stream shows in what was decided
// under it.
func TestWithheldAuthorityIsFound(t *testing.T) {
	s := newLog(t)
	file := edit(t, s.export(t), func(l []line) []line {
		for _, kind := range []events.Kind{"rule.written", "actor.registered"} { // the last before the task, the first behind it
			nth := map[events.Kind]int{"rule.written": 20, "actor.registered": 5}[kind]
			l = without(l, find(t, l, kind, nth))
		}
		l[0]["events"] = len(l) - 1
		return l
	})
	r := verify(t, file, s.key)
	if r.OK || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.Kind == evidence.Missing }) {
		t.Errorf("got %+v", r)
	}
	// Without a root it shows in the decisions.
	r = verify(t, edit(t, file, func(l []line) []line {
		delete(l[0], "heads")
		l = without(l, find(t, l, "heads.rooted", 0))
		l[0]["events"] = len(l) - 1
		return l
	}), s.key)
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
