package histories

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// codexLine is a line with a payload, at a second of one minute.
func codexLine(second int, kind, payload string) string {
	return fmt.Sprintf(`{"timestamp":"2026-02-03T04:05:%02d.000Z","type":%q,"payload":%s}`+"\n", second, kind, payload)
}

var codexMeta = codexLine(0, "session_meta", `{"id":"s1","cwd":"/work","cli_version":"0.40.0","git":{"commit_hash":"abc","repository_url":"git@example.org:a/b.git"}}`)

func codexAsk(second int, id, name, arguments string) string {
	return codexLine(second, "response_item", fmt.Sprintf(`{"type":"function_call","name":%q,"arguments":%q,"call_id":%q}`, name, arguments, id))
}

func codexAnswer(second int, id, output string) string {
	return codexLine(second, "response_item", fmt.Sprintf(`{"type":"function_call_output","call_id":%q,"output":%q}`, id, output))
}

func TestCodex(t *testing.T) {
	shell := codexAsk(1, "c1", "shell", `{"command":["bash","-lc","go vet"],"workdir":"/w2","timeout_ms":1000}`)
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"an exit code in the metadata", codexMeta + shell + codexAnswer(9, "c1", `{"output":"no\n","metadata":{"exit_code":1,"duration_seconds":1.5}}`),
			[]string{`a.jsonl:2 ran go vet: exit 1 in /w2 on host, 1500 ms, not ok, out "no\n"`}},
		{"an argv of its own", codexMeta + codexAsk(1, "c1", "shell", `{"command":["git","log","-1"]}`) + codexAnswer(9, "c1", `{"output":"","metadata":{"exit_code":0,"duration_seconds":0.0}}`),
			[]string{`a.jsonl:2 ran ["git" "log" "-1"]: exit 0 in /work on host, 0 ms`}},
		{"refused by the sandbox", codexMeta + shell + codexAnswer(2, "c1", "failed in sandbox: denied"),
			[]string{`a.jsonl:2 not a run: ` + ReasonSandbox + `, not ok`}},
		{"refused by the user", codexMeta + shell + codexAnswer(2, "c1", "exec command rejected by user"),
			[]string{`a.jsonl:2 not a run: ` + ReasonRefused + `, not ok`}},
		{"interrupted", codexMeta + shell + codexAnswer(2, "c1", "aborted"),
			[]string{`a.jsonl:2 not a run: ` + ReasonInterrupted + `, not ok`}},
		{"not started", codexMeta + shell + codexAnswer(2, "c1", "unsupported call"),
			[]string{`a.jsonl:2 not a run: ` + ReasonNotStarted + `, not ok`}},
		{"no output", codexMeta + shell, []string{`a.jsonl:2 not a run: ` + ReasonNoResult}},
		{"a time-out", codexMeta + shell + codexAnswer(9, "c1", `{"output":"command timed out after 1000 milliseconds\n","metadata":{"exit_code":124,"duration_seconds":1.0}}`),
			[]string{`a.jsonl:2 ran go vet: timed_out in /w2 on host, 1000 ms, not ok, out "command timed out after 1000 milliseconds\n"`}},
		{"an output with a hole", codexMeta + shell + codexAnswer(9, "c1", `{"output":"a\n[... omitted 5 of 9 lines ...]\nb","metadata":{"exit_code":0}}`),
			[]string{`a.jsonl:2 ran go vet: exit 0 in /w2 on host, 8000 ms, out "a\n[... omitted 5 of 9 lines ...]\nb" of 34`}},
		{"shell_command: a line, and a text as the output", codexMeta + codexAsk(1, "c1", "shell_command", `{"command":"go vet","workdir":"/w2"}`) + codexAnswer(9, "c1", "Exit code: 2\nWall time: 0.5 seconds\nOutput:\nno\n"),
			[]string{`a.jsonl:2 ran go vet: exit 2 in /w2 on host, 500 ms, not ok, out "no\n"`}},
		{"exec_command: its own record, and the output after it", codexMeta + codexAsk(1, "c1", "exec_command", `{"cmd":"go vet","workdir":"/w2"}`) +
			codexLine(5, "event_msg", `{"type":"exec_command_end","call_id":"c1","command":["bash","-lc","go vet"],"cwd":"/w2","stdout":"a","stderr":"b","exit_code":3,"duration":{"secs":1,"nanos":500000000}}`) +
			codexAnswer(6, "c1", "Process exited with code 3\nWall time: 1.5 seconds\nOutput:\nab"),
			[]string{`a.jsonl:2 ran go vet: exit 3 in /w2 on host, 1500 ms, not ok, out "a", err "b"`}},
		{"exec_command: the output, and its own record after it", codexMeta + codexAsk(1, "c1", "exec_command", `{"cmd":"go vet"}`) +
			codexAnswer(6, "c1", "Chunk ID: x\nWall time: 1.5 seconds\nProcess exited with code 0\nOutput:\nab") +
			codexLine(7, "event_msg", `{"type":"exec_command_end","call_id":"c1","command":["bash","-lc","go vet"],"exit_code":0}`),
			[]string{`a.jsonl:2 ran go vet: exit 0 in /work on host, 1500 ms, out "ab"`}},
		{"exec_command: in the background, then ended", codexMeta + codexAsk(1, "c1", "exec_command", `{"cmd":"make"}`) + codexAnswer(2, "c1", "Process running with session ID 7\nOutput:\n") +
			codexLine(30, "event_msg", `{"type":"exec_command_end","call_id":"c1","command":["bash","-lc","make"],"cwd":"/work","aggregated_output":"x","exit_code":0,"duration":"29s"}`),
			[]string{`a.jsonl:2 ran make: exit 0 in /work on host, 29000 ms, out "x"`}},
		{"exec_command: in the background for good", codexMeta + codexAsk(1, "c1", "exec_command", `{"cmd":"make"}`) + codexAnswer(2, "c1", "Process running with session ID 7\nOutput:\n"),
			[]string{`a.jsonl:2 not a run: ` + ReasonBackground}},
		{"code mode: items", codexMeta + codexLine(5, "event_msg", `{"type":"item_completed","item":{"type":"CommandExecution","id":"i1","command":"go vet","cwd":"/w2","aggregated_output":"x","exit_code":0,"status":"completed","duration_ms":20}}`) +
			codexLine(6, "event_msg", `{"type":"item_completed","item":{"type":"CommandExecution","id":"i2","command":["rm","x"],"cwd":"/w2","exit_code":null,"status":"declined"}}`) +
			codexLine(7, "event_msg", `{"type":"item_completed","item":{"type":"CommandExecution","id":"i3","command":["rm","x"],"exit_code":null,"status":"failed"}}`) +
			codexLine(8, "event_msg", `{"type":"item_completed","item":{"type":"AgentMessage","id":"i4"}}`),
			[]string{`a.jsonl:2 ran go vet: exit 0 in /w2 on host, 20 ms, out "x"`, `a.jsonl:3 not a run: ` + ReasonRefused + `, not ok`, `a.jsonl:4 not a run: ` + ReasonNoExitCode}},
		{"the oldest: bare items, one time for all", `{"id":"s0","timestamp":"2026-02-03T04:05:00Z","instructions":null}` + "\n" + `{"record_type":"state"}` + "\n" +
			`{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"c1"}` + "\n" + `{"type":"function_call_output","call_id":"c1","output":"{\"output\":\"x\",\"metadata\":{\"exit_code\":0,\"duration_seconds\":0.5}}"}`,
			[]string{`a.jsonl:3 ran ["ls"]: exit 0 in  on host, 500 ms, out "x"`}},
		{"a local shell call", codexMeta + codexLine(1, "response_item", `{"type":"local_shell_call","call_id":"c1","action":{"type":"exec","command":["ls"],"working_directory":"/w3"}}`) +
			codexAnswer(2, "c1", `{"output":"x","metadata":{"exit_code":0}}`),
			[]string{`a.jsonl:2 ran ["ls"]: exit 0 in /w3 on host, 1000 ms, out "x"`}},
		{"the session's first meta counts, the last working directory too", codexMeta + codexLine(0, "session_meta", `{"id":"s0","cwd":"/old"}`) + codexLine(0, "turn_context", `{"cwd":"/new"}`) +
			codexAsk(1, "c1", "shell", `{"command":["ls"]}`) + codexAnswer(2, "c1", `{"output":"","metadata":{"exit_code":0}}`),
			[]string{`a.jsonl:4 ran ["ls"]: exit 0 in /new on host, 1000 ms`}},
		{"what was compacted is not read again", codexMeta + shell + codexAnswer(2, "c1", `{"output":"","metadata":{"exit_code":0}}`) + codexLine(3, "compacted", `{"message":"m","replacement_history":[{"type":"function_call","name":"shell","call_id":"c1"}]}`) + shell,
			[]string{`a.jsonl:2 ran go vet: exit 0 in /w2 on host, 1000 ms`, `a.jsonl:5 repeated`}},
		{"arguments that are no JSON", codexMeta + codexAsk(1, "c1", "shell", `{"comm`) + codexAnswer(2, "c1", "failed to parse function arguments"),
			[]string{`a.jsonl:2 not a run: ` + ReasonNoCommand + `, not ok`}},
		{"torn, and two on one line", strings.TrimSpace(codexMeta) + shell + strings.TrimSpace(codexAnswer(2, "c1", `{"output":"","metadata":{"exit_code":0}}`)) + `{"times`,
			[]string{`a.jsonl:1 ran go vet: exit 0 in /w2 on host, 1000 ms`, `a.jsonl:2 unreadable: ` + ReasonTorn}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check(t, Codex, filepath.Join(folder(t, map[string]string{"a.jsonl": c.text}), "a.jsonl"), c.want...)
		})
	}
}

func TestCodexFolder(t *testing.T) {
	run := codexMeta + codexAsk(1, "c1", "shell", `{"command":["ls"]}`) + codexAnswer(2, "c1", `{"output":"","metadata":{"exit_code":0}}`)
	items := check(t, Codex, folder(t, map[string]string{"2026/02/03/rollout-a.jsonl": run, "2026/02/04/rollout-b.jsonl": run}),
		`rollout-a.jsonl:2 ran ["ls"]: exit 0 in /work on host, 1000 ms`, "rollout-b.jsonl:2 repeated")
	if r := items[0].Run.Record; r.Repo != "git@example.org:a/b.git" || r.Commit != "" || r.AgentVersion != "codex 0.40.0" {
		t.Errorf("repository %q, commit %q, %q", r.Repo, r.Commit, r.AgentVersion)
	}
}

func FuzzCodex(f *testing.F) {
	f.Add([]byte(codexMeta + codexAsk(1, "c1", "shell", `{"command":["ls"]}`) + codexAnswer(2, "c1", `{"output":"","metadata":{"exit_code":0}}`)))
	f.Add([]byte(codexMeta + codexLine(5, "event_msg", `{"type":"exec_command_end","call_id":"c1","command":"ls","exit_code":0,"duration":{"secs":1}}`)))
	f.Add([]byte(`{"id":"s0","timestamp":"2026-02-03T04:05:00Z"}` + "\n" + `{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"c1"}`))
	f.Fuzz(func(t *testing.T, b []byte) { fuzz(t, Codex, "a.jsonl", b) })
}
