package evidence_test

import (
	"bytes"
	"context"
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
	// Witnessed is how many events a witness whose key was given has cosigned.
	Witnessed uint64 `json:"witnessed"`
	Findings  []struct {
		Position events.Position `json:"position"`
		Detail   string          `json:"detail"`
	} `json:"findings"`
	NotChecked []string `json:"not_checked"`
}

// runPython has verify.py verify some files at once. Without a python3 the test is
// skipped, but not in CI.
func runPython(t *testing.T, key string, files ...[]byte) []python {
	t.Helper()
	return runPythonWith(t, []string{"--key", key}, files...)
}

// runPythonWith is runPython with these options.
func runPythonWith(t *testing.T, options []string, files ...[]byte) []python {
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
	args := append([]string{"-I", "-W", "error", "verify.py"}, options...)
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
	other := "ledger.test/other+" + strings.SplitN(s.key, "+", 3)[1]
	if _, err := evidence.Verify(file, nil, other); err != nil {
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

// What was erased is told as erased, by whom and why, and whatever rests on it is not
// said to be established. What decisions rest on is never taken for erased.
func TestErasedIsNotPassed(t *testing.T) {
	var files [][]byte
	for _, c := range []struct {
		kind  events.Kind
		rests bool // the verdict, on it
		goes  int  // how many payloads go: what was concluded about a task goes with it
	}{{"conclusion.recorded", false, 1}, {"task.reported", true, 1}, {"task.submitted", true, 2}} {
		s := unrootedLog(t)
		at := s.erase(t, c.kind, 0)
		s.root(t)
		file := s.export(t)
		files = append(files, file)
		r := verify(t, file, s.key)
		if !r.OK || r.Erased != c.goes || r.CompleteTo == 0 || len(r.Erasures) != c.goes || r.Erasures[0].Position != at || r.Erasures[0].By != "root" || r.Erasures[0].Reason != "leaked" {
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
