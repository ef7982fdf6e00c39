package histories

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// claudeUse is a line with a call, at a second of one minute.
func claudeUse(second int, id, command string) string {
	return fmt.Sprintf(`{"type":"assistant","uuid":"u%d","sessionId":"s1","timestamp":"2026-02-03T04:05:%02dZ","cwd":"/work","version":"2.1.33","message":{"content":[{"type":"text","text":"now"},{"type":"tool_use","id":%q,"name":"Bash","input":{"command":%q}}]}}`+"\n", second, second, id, command)
}

// claudeGot is a line with a result: content and toolUseResult are JSON.
func claudeGot(second int, id, content, result string) string {
	isError := strings.HasPrefix(result, `"`)
	return fmt.Sprintf(`{"type":"user","sessionId":"s1","timestamp":"2026-02-03T04:05:%02dZ","cwd":"/work","message":{"content":[{"type":"tool_result","tool_use_id":%q,"content":%s,"is_error":%t}]},"toolUseResult":%s}`+"\n", second, id, content, isError, result)
}

func claudeOK(stdout string) string {
	return fmt.Sprintf(`{"stdout":%q,"stderr":"","interrupted":false,"isImage":false}`, stdout)
}

func TestClaudeCode(t *testing.T) {
	call := claudeUse(1, "t1", "go test ./...")
	for _, c := range []struct {
		name, text string
		want       []string
	}{
		{"an object is a success", call + claudeGot(3, "t1", `"ok"`, claudeOK("ok")),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "ok"`}},
		{"a text is a failure with its code", call + claudeGot(3, "t1", `"Exit code 128\nfatal: no"`, `"Error: Exit code 128\nfatal: no"`),
			[]string{`a.jsonl:1 ran go test ./...: exit 128 in /work on host, 2000 ms, not ok, out "fatal: no"`}},
		{"a failure in blocks", call + claudeGot(3, "t1", `[{"type":"text","text":"Exit code 2\nno"}]`, `"x"`),
			[]string{`a.jsonl:1 ran go test ./...: exit 2 in /work on host, 2000 ms, not ok, out "no"`}},
		{"an interpreted code", call + claudeGot(3, "t1", `""`, `{"stdout":"","stderr":"","interrupted":false,"returnCodeInterpretation":"No matches found"}`),
			[]string{`a.jsonl:1 ran go test ./...: exit 1 in /work on host, 2000 ms`}},
		{"an interpretation that is not known", call + claudeGot(3, "t1", `""`, `{"stdout":"","interrupted":false,"returnCodeInterpretation":"Moon is full"}`),
			[]string{`a.jsonl:1 not a run: ` + ReasonNoExitCode}},
		{"a time-out", call + claudeGot(3, "t1", `"Exit code 143\nCommand timed out after 2m 0.0s\npart"`, `"Error: x"`),
			[]string{`a.jsonl:1 ran go test ./...: timed_out in /work on host, 2000 ms, not ok, out "Command timed out after 2m 0.0s\npart"`}},
		{"interrupted while it ran", call + claudeGot(3, "t1", `"part"`, `{"stdout":"part","stderr":"","interrupted":true}`),
			[]string{`a.jsonl:1 ran go test ./...: cancelled in /work on host, 2000 ms, not ok, out "part"`}},
		{"refused by the user", call + claudeGot(3, "t1", `"The user doesn't want to proceed with this tool use."`, `"User rejected tool use"`),
			[]string{`a.jsonl:1 not a run: ` + ReasonRefused + `, not ok`}},
		{"cancelled with a sibling", call + claudeGot(3, "t1", `"<tool_use_error>Sibling tool call errored</tool_use_error>"`, `"Sibling tool call errored"`),
			[]string{`a.jsonl:1 not a run: ` + ReasonSibling + `, not ok`}},
		{"interrupted before it ran", call + claudeGot(3, "t1", `"[Request interrupted by user for tool use]"`, `"Error: [Request interrupted by user for tool use]"`),
			[]string{`a.jsonl:1 not a run: ` + ReasonInterrupted + `, not ok`}},
		{"another refusal", call + claudeGot(3, "t1", `"<tool_use_error>InputValidationError</tool_use_error>"`, `"InputValidationError"`),
			[]string{`a.jsonl:1 not a run: ` + ReasonNotStarted + `, not ok`}},
		{"no result", call, []string{`a.jsonl:1 not a run: ` + ReasonNoResult}},
		{"in the background", call + claudeGot(3, "t1", `"Command running in background"`, `{"stdout":"","stderr":"","interrupted":false,"backgroundTaskId":"b1"}`),
			[]string{`a.jsonl:1 not a run: ` + ReasonBackground}},
		{"a result that tells no end", call + `{"type":"user","sessionId":"s1","timestamp":"2026-02-03T04:05:03Z","message":{"content":[{"type":"tool_result","tool_use_id":"t1","content":"ok"}]}}`,
			[]string{`a.jsonl:1 not a run: ` + ReasonNoExitCode}},
		{"progress tells when it began", call +
			`{"type":"progress","sessionId":"s1","timestamp":"2026-02-03T04:05:32Z","parentToolUseID":"t1","data":{"type":"bash_progress","elapsedTimeSeconds":2}}` + "\n" +
			claudeGot(33, "t1", `"ok"`, claudeOK("ok")),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 3000 ms, out "ok"`}},
		{"a clock that went back", claudeUse(9, "t1", "true") + claudeGot(3, "t1", `""`, claudeOK("")),
			[]string{`a.jsonl:1 ran true: exit 0 in /work on host, 0 ms`}},
		{"an output kept elsewhere", call + claudeGot(3, "t1", `"<persisted-output>\nOutput too large (45.5KB). Full output saved to: /x/y.txt\n\nPreview (first 2KB):\nabc"`, `{"stdout":"abc","stderr":"","interrupted":false,"persistedOutputPath":"/x/y.txt","persistedOutputSize":46600}`),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "abc" of 46600`}},
		{"an output with a hole", call + claudeGot(3, "t1", `"x"`, claudeOK("a\n\n... [17 lines truncated] ...\n\nb")),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "a\n\n... [17 lines truncated] ...\n\nb" of 34`}},
		{"an output cleared from the context", call + claudeGot(3, "t1", `"[Old tool result content cleared]"`, claudeOK("still here")),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "still here"`}},
		{"an image", call + claudeGot(3, "t1", `""`, `{"stdout":"iVBOR","stderr":"","interrupted":false,"isImage":true}`),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "" of 5`}},
		{"the last line torn", call + claudeGot(3, "t1", `"ok"`, claudeOK("ok")) + `{"type":"assistant","uuid":"u9","sess`,
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "ok"`, `a.jsonl:3 unreadable: ` + ReasonTorn}},
		{"a line torn in the middle", call + "{\"type\":\n" + claudeGot(3, "t1", `"ok"`, claudeOK("ok")),
			[]string{`a.jsonl:2 unreadable: ` + ReasonMalformed, `a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "ok"`}},
		{"two objects on one line", strings.TrimSpace(call) + claudeGot(3, "t1", `"ok"`, claudeOK("ok")),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "ok"`}},
		{"lone surrogates, bytes that are no text, duplicate names", strings.Replace(call, "go test ./...", `echo \ud83d `+"\xff", 1) + strings.Replace(claudeGot(3, "t1", `"x"`, claudeOK("ok")), `"stdout":"ok"`, `"stdout":"1","stdout":"\udc00"`, 1),
			[]string{"a.jsonl:1 ran echo \uFFFD \uFFFD: exit 0 in /work on host, 2000 ms, out \"\uFFFD\""}},
		{"told again after a compaction", call + claudeGot(3, "t1", `"ok"`, claudeOK("ok")) + `{"type":"system","subtype":"compact_boundary","uuid":"c","sessionId":"s1"}` + "\n" + call + claudeGot(3, "t1", `"ok"`, claudeOK("ok")),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "ok"`, `a.jsonl:4 repeated`}},
		{"members of other types", `{"type":"assistant","sessionId":7,"uuid":"u","message":"x"}` + "\n" + `{"type":"user","uuid":[],"message":{"content":"x"}}` + "\n" + call + claudeGot(3, "t1", `7`, `"Exit code 3"`),
			[]string{`a.jsonl:3 ran go test ./...: exit 3 in /work on host, 2000 ms, not ok`}},
		{"a call without a command", strings.Replace(call, `"command"`, `"cmd"`, 1), []string{`a.jsonl:1 not a run: ` + ReasonNoCommand}},
		{"other tools", strings.Replace(call, "Bash", "Read", 1) + claudeGot(3, "t1", `"ok"`, `{"file":{}}`), nil},
		{"carriage returns and a byte order mark", "\xef\xbb\xbf" + strings.ReplaceAll(call+claudeGot(3, "t1", `"ok"`, claudeOK("ok")), "\n", "\r\n"),
			[]string{`a.jsonl:1 ran go test ./...: exit 0 in /work on host, 2000 ms, out "ok"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			check(t, ClaudeCode, filepath.Join(folder(t, map[string]string{"a.jsonl": c.text}), "a.jsonl"), c.want...)
		})
	}
}

// A session can lie in several files: a copy, an older version that ends before
// the result, and those of its sub-agents.
func TestClaudeCodeFolder(t *testing.T) {
	call, got := claudeUse(1, "t1", "go vet"), claudeGot(3, "t1", `"ok"`, claudeOK("ok"))
	sub := strings.ReplaceAll(claudeUse(5, "t2", "ls")+claudeGot(6, "t2", `""`, claudeOK("")), `"sessionId"`, `"isSidechain":true,"agentId":"a1","sessionId"`)
	other := strings.ReplaceAll(call+got, `"s1"`, `"s2"`)
	items := check(t, ClaudeCode, folder(t, map[string]string{
		"-work/s1.jsonl":                    call,
		"-work/s1/subagents/agent-a1.jsonl": sub,
		"-work2/s1.jsonl":                   call + got,
		"-work2/s2.jsonl":                   other,
		"-work2/notes.txt":                  "x",
	}),
		"agent-a1.jsonl:1 ran ls: exit 0 in /work on host, 1000 ms",
		"s1.jsonl:1 repeated",
		`s1.jsonl:1 ran go vet: exit 0 in /work on host, 2000 ms, out "ok"`,
		`s2.jsonl:1 ran go vet: exit 0 in /work on host, 2000 ms, out "ok"`,
	)
	if got := items[0].ImportedFrom(); got != "claude-code, session s1, agent-a1.jsonl" {
		t.Errorf("imported from %s", got)
	}
	if items[2].Key() == items[3].Key() {
		t.Error("two sessions share a key")
	}
}

// A five-megabyte output is kept as its end, its size and its hash.
func TestLargeOutput(t *testing.T) {
	text := claudeUse(1, "t1", "cat big") + claudeGot(3, "t1", `""`, claudeOK(strings.Repeat("0123456789", 1<<19)+"the end"))
	items, err := read(t, ClaudeCode, filepath.Join(folder(t, map[string]string{"a.jsonl": text}), "a.jsonl"))
	if err != nil || len(items) != 1 {
		t.Fatal(items, err)
	}
	o := items[0].Run.Record.Stdout
	if o.Bytes != 10<<19+7 || o.SHA256.IsZero() || !o.Truncated || len(o.Tail) != 4<<10 || !strings.HasSuffix(o.Tail, "9the end") {
		t.Errorf("%d bytes, hash %s, truncated %t, a tail of %d", o.Bytes, o.SHA256, o.Truncated, len(o.Tail))
	}
}

func FuzzClaudeCode(f *testing.F) {
	f.Add([]byte(claudeUse(1, "t1", "ls") + claudeGot(3, "t1", `"ok"`, claudeOK("ok"))))
	f.Add([]byte(claudeUse(1, "t1", "ls") + claudeGot(3, "t1", `"Exit code 1\nx"`, `"Error: Exit code 1\nx"`)))
	f.Fuzz(func(t *testing.T, b []byte) { fuzz(t, ClaudeCode, "a.jsonl", b) })
}
