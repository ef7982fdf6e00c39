package histories

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const w2mTask = `{"at":"2026-02-03T04:05:06Z","task_id":"t1","machine_id":"M1.local","machine_name":"one","argv":["go","test","./..."],"cwd_relative":"sub","exit_code":1,"duration_ms":1500,"transport":"ssh","stdout_tail":"out","stderr_tail":"err","conclusion":null,"tags":["nightly"]}` + "\n"

func TestW2M(t *testing.T) {
	const conclusion = `{"kind":"conclusion","task_id":"t1","about":{"argv":["go","test","./..."],"exit_code":1,"at":"2026-02-03T04:05:06Z"},"conclusion":"flaky","tags":[]}` + "\n"
	ran := `memory.jsonl:1 ran ["go" "test" "./..."]: exit 1 in sub on m1, 1500 ms, not ok, out "out" of 3, err "err" of 3`
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"a task and a conclusion", w2mTask + conclusion, []string{ran, `memory.jsonl:2 concluded flaky on t1 about ["go" "test" "./..."]`}},
		{"a conclusion about nothing", w2mTask + `{"kind":"conclusion","task_id":null,"about":null,"conclusion":"be careful"}`, []string{ran, `memory.jsonl:2 concluded be careful`}},
		{"a conclusion that says nothing", w2mTask + `{"kind":"conclusion","task_id":null,"about":null,"conclusion":null}`, []string{ran, `memory.jsonl:2 unreadable: ` + ReasonNoText}},
		{"twice", w2mTask + w2mTask + conclusion + conclusion, []string{ran, "memory.jsonl:2 repeated", `memory.jsonl:3 concluded flaky on t1 about ["go" "test" "./..."]`, "memory.jsonl:4 repeated"}},
		{"malformed lines, fatal to nothing", "{\n[]\n" + w2mTask + "{\"a\":1}\n" + `{"at":`, []string{
			"memory.jsonl:1 unreadable: " + ReasonMalformed, "memory.jsonl:2 unreadable: " + ReasonMalformed, strings.Replace(ran, ":1", ":3", 1),
			"memory.jsonl:4 unreadable: " + ReasonUnknown, "memory.jsonl:5 unreadable: " + ReasonTorn}},
		{"no exit code", strings.Replace(w2mTask, `"exit_code":1`, `"exit_code":null`, 1), []string{"memory.jsonl:1 not a run: " + ReasonNoExitCode}},
		{"no time", strings.Replace(w2mTask, `2026-02-03T04:05:06Z`, `soon`, 1), []string{"memory.jsonl:1 not a run: " + ReasonNoTime}},
		{"no command", strings.Replace(w2mTask, `["go","test","./..."]`, `[]`, 1), []string{"memory.jsonl:1 not a run: " + ReasonNoCommand}},
		{"a machine known by its name only", strings.Replace(w2mTask, `"M1.local"`, `null`, 1), []string{strings.Replace(ran, "on m1", "on one", 1)}},
		{"no machine", strings.Replace(strings.Replace(w2mTask, `"M1.local"`, `null`, 1), `"one"`, `""`, 1), []string{strings.Replace(ran, "on m1", "on host", 1)}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check(t, W2M, filepath.Join(folder(t, map[string]string{"memory.jsonl": c.text}), "memory.jsonl"), c.want...)
		})
	}
}

// The rotated generations come first, whether the file or its folder is named, and
// what moved from one to another keeps its key and where it came from.
func TestW2MGenerations(t *testing.T) {
	line := func(task string) string { return strings.Replace(w2mTask, "t1", task, 1) }
	dir := folder(t, map[string]string{
		"memory.jsonl": line("new"), "memory.1.jsonl": line("old"), "memory.jsonl.2": line("older"), "memory-20250101T101112Z.jsonl": line("oldest"),
		"memory.md": "x", "other.jsonl": line("other"), "memory-leak.jsonl": line("leak"),
	})
	want := []string{"oldest", "older", "old", "new"}
	for _, path := range []string{dir, filepath.Join(dir, "memory.jsonl")} {
		items, err := read(t, W2M, path)
		var got []string
		for _, it := range items {
			got = append(got, it.TaskID)
			if it.ImportedFrom() != "w2m, session M1.local, memory.jsonl" {
				t.Errorf("imported from %s", it.ImportedFrom())
			}
		}
		if err != nil || strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%s: %v, %v", path, got, err)
		}
	}
	if items, err := read(t, W2M, filepath.Join(dir, "other.jsonl")); err != nil || len(items) != 1 || items[0].TaskID != "other" {
		t.Errorf("a file of another name: %v, %v", items, err)
	}
}

// The collective document comes after the runs, as it is; whatever its name, if it is
// named itself.
func TestW2MDocument(t *testing.T) {
	const prose = "# Fleet memory\r\n\n## Disks\nfull \xff\n"
	dir := folder(t, map[string]string{"profile/fleet-memory.md": prose, "profile/notes.md": "x", "agents/memory.jsonl": w2mTask, "agents/memory.prev.jsonl": w2mTask, "huge/fleet-memory.md": strings.Repeat("x", maxDocumentBytes+1)})
	ran := `ran ["go" "test" "./..."]: exit 1 in sub on m1, 1500 ms, not ok, out "out" of 3, err "err" of 3`
	document := fmt.Sprintf("fleet-memory.md:1 document %q", "# Fleet memory\r\n\n## Disks\nfull \ufffd\n")
	check(t, W2M, dir, "memory.prev.jsonl:1 "+ran, "memory.jsonl:1 repeated", "fleet-memory.md:0 unreadable: "+ReasonLargeFile, document)
	check(t, W2M, filepath.Join(dir, "profile"), document)
	check(t, W2M, filepath.Join(dir, "profile", "fleet-memory.md"), document)
	check(t, W2M, filepath.Join(dir, "profile", "notes.md"), `notes.md:1 document "x"`)
	check(t, W2M, filepath.Join(dir, "agents", "memory.jsonl"), "memory.prev.jsonl:1 "+ran, "memory.jsonl:1 repeated")
}

func FuzzW2M(f *testing.F) {
	f.Add([]byte(w2mTask + `{"kind":"conclusion","task_id":null,"about":{"argv":["a"],"exit_code":0,"at":1},"conclusion":"x"}`))
	f.Fuzz(func(t *testing.T, b []byte) { fuzz(t, W2M, "memory.jsonl", b) })
}
