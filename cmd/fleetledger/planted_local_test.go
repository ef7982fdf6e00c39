package main

import (
	"database/sql"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	_ "modernc.org/sqlite"
)

// commands plants by the command line, and by what runs on the machine.
func (p *plantation) commands() {
	n := 0
	source := func(text string) string {
		n++
		name := filepath.Join(sources, fmt.Sprintf("%d.txt", n))
		p.write(name, "begin\n"+text+"\nend\n")
		return name
	}
	run := func(args ...string) { _, _ = p.run("run", append([]string{"-q"}, args...)...) }
	p.by("what run prints", func(s string) { run("--", "cat", source(s)) })
	p.by("what run prints to stderr, in the middle of a line", func(s string) { run("--", "sh", "-c", `echo "x $(cat "$0") y" >&2; exit 3`, source(s)) })
	p.by("the command of run", func(s string) { run("--", "echo", s) })
	p.by("the command of run, within a shell's line", func(s string) { run("--", "sh", "-c", "true '"+s+"'") })
	p.by("a tag of run", func(s string) { run("--tag", s, "--", "true") })
	p.by("an offline run", func(s string) {
		run("--server", "http://127.0.0.1:1", "--allow", "cat", "--allow", "echo", "--", "cat", source(s))
		run("--server", "http://127.0.0.1:1", "--allow", "cat", "--allow", "echo", "--", "echo", s)
	})
	p.by("what a task prints", func(s string) {
		out, _ := p.run("task", "submit", "--target", "m1", "--wait", "--", "cat", source(s))
		if _, rest, ok := strings.Cut(out, "task "); ok {
			p.task, _, _ = strings.Cut(rest, ":")
		}
	})
	p.by("the command of a task", func(s string) { _, _ = p.run("task", "submit", "--target", "m1", "--", "echo", s) })
	p.by("a question on the command line", func(s string) {
		_, _ = p.run("tried", s)
		_, _ = p.run("sql", "SELECT '"+strings.ReplaceAll(s, "'", "''")+"'")
	})
	p.by("a section that is imported", func(s string) {
		p.write(sources+"/notes.md", "## Notes\n\n"+s+"\n")
		_, _ = p.run("collective", "import", sources+"/notes.md")
	})
	p.by("the machine's allow-list", func(s string) { run("--server", "http://127.0.0.1:1", "--", "./"+strings.ReplaceAll(s, "/", "_")) })
}

// imports plants in the histories of other tools.
func (p *plantation) imports() {
	quoted := json1
	n := 0
	read := func(tool, file, text string) {
		p.write(sources+"/"+file, text)
		out, err := p.run("import", tool, sources+"/"+file, "--machine", "laptop")
		if err != nil {
			p.Errorf("import %s: %v\n%s", tool, err, out)
		}
	}
	p.by("Claude Code", func(s string) {
		n++
		id := fmt.Sprint("t", n)
		read("claude-code", fmt.Sprintf("claude%d.jsonl", n), `{"type":"assistant","uuid":"u1","sessionId":"s`+id+`","timestamp":"2026-02-03T04:05:01Z","cwd":`+quoted("/srv/"+s)+`,"message":{"content":[{"type":"tool_use","id":"`+id+`","name":"Bash","input":{"command":`+quoted("echo '"+s+"'")+`}}]}}
{"type":"user","uuid":"u2","sessionId":"s`+id+`","timestamp":"2026-02-03T04:05:03Z","cwd":"/srv","message":{"content":[{"type":"tool_result","tool_use_id":"`+id+`","content":"x"}]},"toolUseResult":{"stdout":`+quoted(s)+`,"stderr":`+quoted("err "+s)+`,"interrupted":false}}
`)
	})
	p.by("Codex", func(s string) {
		n++
		id := fmt.Sprint("c", n)
		call, _ := json.Marshal(map[string]any{"command": []string{"bash", "-lc", "echo '" + s + "'"}, "workdir": "/srv"})
		result, _ := json.Marshal(map[string]any{"output": s, "metadata": map[string]any{"exit_code": 0, "duration_seconds": 1}})
		read("codex", fmt.Sprintf("rollout-%d.jsonl", n), `{"timestamp":"2026-02-03T04:05:01Z","type":"session_meta","payload":{"id":"`+id+`","cwd":"/srv","git":{"repository_url":`+quoted("https://ana:"+s+"@example.org/x.git")+`}}}
{"timestamp":"2026-02-03T04:05:02Z","type":"response_item","payload":{"type":"function_call","name":"shell","call_id":"`+id+`","arguments":`+quoted(string(call))+`}}
{"timestamp":"2026-02-03T04:05:03Z","type":"response_item","payload":{"type":"function_call_output","call_id":"`+id+`","output":`+quoted(string(result))+`}}
`)
	})
	p.by("W2M", func(s string) {
		n++
		task := fmt.Sprint("w", n)
		read("w2m", fmt.Sprintf("w2m%d/memory.jsonl", n), `{"at":"2026-02-03T04:05:06Z","task_id":"`+task+`","machine_id":"laptop","machine_name":"laptop","argv":["echo",`+quoted(s)+`],"cwd":".","exit_code":0,"duration_ms":5,"transport":"ssh","stdout_tail":`+quoted(s)+`,"stderr_tail":`+quoted(s)+`,"conclusion":null,"tags":[`+quoted(s)+`]}
{"kind":"conclusion","at":"2026-02-03T04:06:06Z","task_id":"`+task+`","about":null,"conclusion":`+quoted("because "+s)+`,"tags":[]}
`)
		read("w2m", fmt.Sprintf("w2m%d/fleet-memory.md", n), fmt.Sprintf("## Section %d\n\n%s\n", n, s))
	})
	p.by("atuin", func(s string) {
		n++
		file := fmt.Sprintf("%s/atuin%d.db", sources, n)
		db, err := sql.Open("sqlite", p.path(file))
		if err != nil {
			p.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec("CREATE TABLE history (id text primary key, timestamp integer not null, duration integer not null, exit integer not null, command text not null, cwd text not null, session text not null, hostname text not null, deleted_at integer)"); err != nil {
			p.Fatal(err)
		}
		if _, err := db.Exec("INSERT INTO history VALUES (?, 1770091506000000000, 5000000, 0, ?, ?, 's', 'laptop:ana', NULL)", fmt.Sprint(n), "echo '"+s+"'", "/srv/"+s); err != nil {
			p.Fatal(err)
		}
		if out, err := p.run("import", "atuin", file, "--machine", "laptop"); err != nil {
			p.Errorf("import atuin: %v\n%s", err, out)
		}
	})
}
