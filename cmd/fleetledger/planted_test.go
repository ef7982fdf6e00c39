package main

import (
	"bytes"
	"crypto/sha256"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	_ "modernc.org/sqlite"

	"fleetledger/events/pebblelog"
)

// planted is a secret in the text that gives it away, and the part that may be nowhere.
type planted struct{ text, secret string }

// plant makes one of each kind for a way in, so that one that is found names the way.
// They are put together here, so that no tool takes this file for a leak.
func plant(way string) []planted {
	n := 0
	made := func(length int, alphabet string) string {
		var b strings.Builder
		for ; b.Len() < length; n++ {
			for _, c := range sha256.Sum256(fmt.Append(nil, way, n)) {
				b.WriteByte(alphabet[int(c)%len(alphabet)])
			}
		}
		return b.String()[:length]
	}
	const letters, digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "0123456789"
	var list []planted
	add := func(before, secret, after string) { list = append(list, planted{before + secret + after, secret}) }
	add("", "AKIA"+made(16, letters[:26]+"234567"), "")
	add("", "ghp_"+made(36, letters+digits), "")
	add(`curl -H "Authorization: Bearer `, made(40, letters+digits), `" https://example.org`)
	add("authorization: Bearer ", made(40, letters+digits), "")
	add("Bearer ", made(40, letters+digits), "")
	add("password=", made(23, letters+digits)+"7", "") // of letters alone it could be a word
	add(`{"api_key": "`, made(31, letters+digits)+"7", `"}`)
	add("postgres://app:", made(20, letters+digits), "@db.example.org/app")
	line := made(64, letters+digits)
	add("-----BEGIN RSA "+"PRIVATE KEY-----\n", line, "\n"+made(64, letters+digits)+"\n"+made(40, letters+digits)+"==\n-----END RSA "+"PRIVATE KEY-----")
	return list
}

// A planted secret is nowhere: whatever way it comes in, it is refused or masked, and no
// file of the server, of a machine, of a backup or of what was logged or exported has it.
func TestPlantedSecretIsNowhere(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("it runs a real server and sh")
	}
	p := newPlantation(t)
	p.serve()
	for name, args := range map[string][]string{
		"m1": {"--kind", "machine", "--level", "10"}, "ana": {"--kind", "human", "--level", "60"},
	} {
		p.must("actors", append([]string{"register", name, "--save-token", name + ".token"}, args...)...)
	}
	agent := p.start("agent.log", "taking offers", "agent", "--machine", "m1", "--token-file", "m1.token", "--allow", "cat", "--allow", "sh", "--state", "state", "--root", ".")

	p.commands()
	p.requests()
	p.imports()

	// What is there is read in every way.
	p.export("events.jsonl", "events", "tail", "--json", "--after", "0")
	p.export("memory.json", "memory", "list", "--json", "--limit", "1000")
	p.export("collective.md", "collective", "show")
	p.export("tasks.json", "task", "list", "--json", "--limit", "1000")
	if p.task != "" {
		p.export("task.evidence", "evidence", "export", p.task)
	}
	p.must("backup", "backup")
	p.stop(agent)
	p.nowhere("while it is served")
	p.stop(p.server)
	p.nowhere("stopped")
	p.nowhereInPayloads()
	if p.masks() == 0 {
		t.Error("nothing was masked: the ways in led nowhere")
	}
}

type plantation struct {
	*testing.T
	dir, program, listen string
	server               *exec.Cmd
	task                 string
	secrets              []struct{ way, secret string }
}

func newPlantation(t *testing.T) *plantation {
	p := &plantation{T: t, dir: t.TempDir()}
	var err error
	if p.program, err = exec.LookPath("fleetledger"); err != nil { // TestMain has put it there
		t.Fatal(err)
	}
	if p.listen, err = freeAddress(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plantation) path(name ...string) string {
	return filepath.Join(append([]string{p.dir}, name...)...)
}

func (p *plantation) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "FLEETLEDGER_URL=http://" + p.listen, "GORACE=atexit_sleep_ms=0"}
	return cmd
}

// start runs the program in the background until the file that it logs to says ready.
func (p *plantation) start(log, ready string, args ...string) *exec.Cmd {
	p.Helper()
	f, err := os.Create(p.path(log))
	if err != nil {
		p.Fatal(err)
	}
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	_ = f.Close()
	p.Cleanup(func() { _ = cmd.Process.Kill() })
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if b, _ := os.ReadFile(p.path(log)); bytes.Contains(b, []byte(ready)) {
			return cmd
		} else if time.Now().After(deadline) {
			p.Fatalf("%v: %s", args, b)
		}
	}
}

func (p *plantation) serve() {
	p.server = p.start("serve.log", "listening on", "serve", "--data", "data", "--listen", p.listen)
}

func (p *plantation) stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		p.Error(err)
	}
}

// run runs a command as root and returns all that it printed.
func (p *plantation) run(name string, args ...string) (string, error) {
	cmd := p.command(append([]string{name, "--data", "data"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *plantation) must(name string, args ...string) string {
	p.Helper()
	out, err := p.run(name, args...)
	if err != nil {
		p.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

func (p *plantation) export(file, name string, args ...string) {
	p.Helper()
	p.write(file, p.must(name, args...))
}

func (p *plantation) write(file, text string) {
	p.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(file)), 0o700); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(p.path(file), []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
}

// by plants secrets of each kind by one way in.
func (p *plantation) by(way string, enter func(text string)) {
	p.Helper()
	for _, s := range plant(way) {
		p.secrets = append(p.secrets, struct{ way, secret string }{way, s.secret})
		enter(s.text)
	}
}

// sources are what the secrets are read from; only there may they be.
const sources = "sources"

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

// requests plants in every text of every request that takes one.
func (p *plantation) requests() {
	root, err := os.ReadFile(p.path("data", "root.token"))
	if err != nil {
		p.Fatal(err)
	}
	machine, err := os.ReadFile(p.path("m1.token"))
	if err != nil {
		p.Fatal(err)
	}
	ask := func(method, path string, body any, header ...string) {
		p.Helper()
		raw, ok := body.(string)
		if !ok {
			b, err := json.Marshal(body)
			if err != nil {
				p.Fatal(err)
			}
			raw = string(b)
		}
		r, err := http.NewRequest(method, "http://"+p.listen+path, strings.NewReader(raw))
		if err != nil {
			return // no client can send it
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(root)))
		for i := 0; i+1 < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return // nor this
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			p.Fatal(err)
		}
		if resp.StatusCode >= 500 && resp.StatusCode != http.StatusServiceUnavailable {
			p.Errorf("%s %s: %d %s", method, path, resp.StatusCode, b)
		}
	}
	asMachine := []string{"Authorization", "Bearer " + strings.TrimSpace(string(machine))}
	type object = map[string]any
	output := func(tail string) object {
		return object{"bytes": len(tail), "sha256": strings.Repeat("0", 64), "tail": tail, "truncated": false}
	}
	at := "2026-11-30T10:00:00Z"
	record := func(change object) object {
		r := object{"outcome": "exited", "exit_code": 0, "started_at": at, "ended_at": at, "elapsed_ms": 1, "cwd": "/", "stdout": output(""), "stderr": output(""),
			"masked": false, "transport": "test", "machine": "m1", "agent_version": "1", "memory": object{"written": false, "rotated": false, "reason_code": "TEST"}, "argv": []string{"x"}}
		for k, v := range change {
			r[k] = v
		}
		return r
	}
	// Of a record: what the machine says, in each of its texts.
	for name, in := range map[string]func(s string) object{
		"argv": func(s string) object { return object{"argv": []string{"x", s}} }, "stdout": func(s string) object { return object{"stdout": output(s)} },
		"stderr": func(s string) object { return object{"stderr": output("a\n" + s)} }, "cwd": func(s string) object { return object{"cwd": "/" + s} },
		"repo": func(s string) object { return object{"repo": s} }, "commit": func(s string) object { return object{"commit": s} },
		"transport": func(s string) object { return object{"transport": s} }, "agent_version": func(s string) object { return object{"agent_version": s} },
		"tags": func(s string) object { return object{"tags": []string{s}} }, "task_id": func(s string) object { return object{"task_id": s} },
		"memory": func(s string) object {
			return object{"memory": object{"written": true, "file": s, "rotated": false, "reason_code": s}}
		},
		"reason": func(s string) object { return object{"outcome": "not_started", "exit_code": nil, "reason": s} },
	} {
		p.by("a record's "+name, func(s string) { ask("POST", "/v1/memory", object{"record": record(in(s))}, asMachine...) })
		p.by("an imported record's "+name, func(s string) { ask("POST", "/v1/memory", object{"record": record(in(s)), "imported_from": "x"}) })
	}
	p.by("where a record came from", func(s string) { ask("POST", "/v1/memory", object{"record": record(nil), "imported_from": s}) })

	uuidOf := func(s string) string { return uuid.NewSHA1(uuid.NameSpaceOID, []byte(s)).String() }
	event := func(change object) object {
		e := object{"specversion": "1.0", "id": uuidOf(fmt.Sprint(change)), "source": "test", "type": "ext.test", "subject": "ext-test", "data": object{"a": 1}}
		for k, v := range change {
			e[k] = v
		}
		return e
	}
	events := []string{"Content-Type", "application/cloudevents+json"}
	for _, name := range []string{"id", "source", "type", "subject", "dataschema", "datacontenttype", "time", "correlationid", "causationid", "extra"} {
		p.by("an event's "+name, func(s string) { ask("POST", "/v1/events", event(object{name: s}), events...) })
	}
	p.by("an event's data", func(s string) {
		ask("POST", "/v1/events", event(object{"data": object{"a": []any{object{"b": s}}}}), events...)
	})
	p.by("a name in an event's data", func(s string) { ask("POST", "/v1/events", event(object{"data": object{s: 1}}), events...) })
	p.by("an event's data in base64", func(s string) {
		e := event(object{"data_base64": base64.StdEncoding.EncodeToString([]byte(s))})
		delete(e, "data")
		ask("POST", "/v1/events", e, events...)
	})
	p.by("an event's data that is JSON itself", func(s string) { ask("POST", "/v1/events", event(object{"data": json1(s)}), events...) })

	for name, in := range map[string]func(s string) (method, path string, body object){
		"a task's env": func(s string) (string, string, object) {
			return "POST", "/v1/tasks", object{"argv": []string{"x"}, "targets": []string{"m1"}, "env": object{"A": s}}
		},
		"a name in a task's env": func(s string) (string, string, object) {
			return "POST", "/v1/tasks", object{"argv": []string{"x"}, "targets": []string{"m1"}, "env": object{s: "1"}}
		},
		"a task's env_from": func(s string) (string, string, object) {
			return "POST", "/v1/tasks", object{"argv": []string{"x"}, "targets": []string{"m1"}, "env_from": []string{s}}
		},
		"a task's cwd": func(s string) (string, string, object) {
			return "POST", "/v1/tasks", object{"argv": []string{"x"}, "targets": []string{"m1"}, "cwd": s}
		},
		"a task's tags": func(s string) (string, string, object) {
			return "POST", "/v1/tasks", object{"argv": []string{"x"}, "targets": []string{"m1"}, "tags": []string{s}}
		},
		"a task's targets": func(s string) (string, string, object) {
			return "POST", "/v1/tasks", object{"argv": []string{"x"}, "targets": []string{s}}
		},
		"a part of a task": func(s string) (string, string, object) {
			return "POST", "/v1/tasks", object{"mode": "split", "parts": []any{[]string{"x", s}}, "targets": []string{"m1"}}
		},
		"a gate's action": func(s string) (string, string, object) { return "POST", "/v1/gates", object{"action": s} },
		"a gate's command": func(s string) (string, string, object) {
			return "POST", "/v1/gates", object{"action": "task.submit.m1", "command": object{"argv": []string{s}}}
		},
		"a gate that is asked for": func(s string) (string, string, object) {
			return "POST", "/v1/gates", object{"action": "deploy.x", "command": s, "request_approval": true}
		},
		"a rule's why": func(s string) (string, string, object) {
			return "POST", "/v1/rules", object{"action": "x.y", "min_level": 1, "why": s}
		},
		"a rule's action": func(s string) (string, string, object) {
			return "POST", "/v1/rules", object{"action": s, "min_level": 1}
		},
		"a rule's scope": func(s string) (string, string, object) {
			return "POST", "/v1/rules", object{"action": "x.y", "min_level": 1, "scope": s}
		},
		"an actor's id": func(s string) (string, string, object) {
			return "POST", "/v1/actors", object{"id": s, "kind": "human", "authority_level": 1}
		},
		"an actor's scopes": func(s string) (string, string, object) {
			return "POST", "/v1/actors", object{"id": "x" + uuidOf(s)[:8], "kind": "human", "authority_level": 1, "scopes": []string{s}}
		},
		"a conclusion": func(s string) (string, string, object) {
			return "POST", "/v1/conclusions", object{"about": nil, "text": "it is " + s}
		},
		"what a conclusion is about": func(s string) (string, string, object) {
			return "POST", "/v1/conclusions", object{"about": object{"task_id": s}, "text": "x"}
		},
		"what it supersedes": func(s string) (string, string, object) {
			return "POST", "/v1/conclusions", object{"about": nil, "text": "x", "supersedes": s}
		},
		"a consolidation": func(s string) (string, string, object) {
			return "POST", "/v1/consolidations", object{"text": s, "forgets": object{"machine": "m1"}}
		},
		"what is forgotten": func(s string) (string, string, object) {
			return "POST", "/v1/consolidations", object{"text": "x", "forgets": object{"machine": "m1", "command": s}}
		},
		"a machine that is forgotten": func(s string) (string, string, object) {
			return "POST", "/v1/consolidations", object{"text": "x", "forgets": object{"machine": s}}
		},
		"a section's text": func(s string) (string, string, object) {
			return "PUT", "/v1/collective/sections/a", object{"heading": "A", "text": "see " + s}
		},
		"a section's heading": func(s string) (string, string, object) {
			return "PUT", "/v1/collective/sections/a", object{"heading": s, "text": "x"}
		},
		"how a section was measured": func(s string) (string, string, object) {
			return "PUT", "/v1/collective/sections/a", object{"heading": "A", "text": "x", "measured_at": at, "how": s}
		},
		"when a section was measured": func(s string) (string, string, object) {
			return "PUT", "/v1/collective/sections/a", object{"heading": "A", "text": "x", "measured_at": s}
		},
		"a section's evidence": func(s string) (string, string, object) {
			return "PUT", "/v1/collective/sections/a", object{"heading": "A", "text": "x", "evidence": []string{s}}
		},
		"a section's name": func(s string) (string, string, object) {
			return "PUT", "/v1/collective/sections/" + url.PathEscape(s), object{"heading": "A", "text": "x"}
		},
		"a block's field": func(s string) (string, string, object) {
			return "POST", "/v1/blocks", object{"fields": object{"mood": s}, "parents": []string{}}
		},
		"a block's parents": func(s string) (string, string, object) {
			return "POST", "/v1/blocks", object{"fields": object{"mood": "x"}, "parents": []string{s}}
		},
		"a subscription's address": func(s string) (string, string, object) {
			return "POST", "/v1/subscriptions", object{"name": "a" + uuidOf(s)[:8], "destination": object{"kind": "webhook", "url": "http://127.0.0.1:1/?" + s}}
		},
		"a subscription's filter": func(s string) (string, string, object) {
			return "POST", "/v1/subscriptions", object{"name": "b" + uuidOf(s)[:8], "types": []string{s}, "destination": object{"kind": "webhook", "url": "http://127.0.0.1:1/"}}
		},
		"a subscription's subject": func(s string) (string, string, object) {
			return "POST", "/v1/subscriptions", object{"name": "c" + uuidOf(s)[:8], "destination": object{"kind": "nats", "url": "nats://127.0.0.1:1", "subject": s}}
		},
		"a subscription's credential": func(s string) (string, string, object) {
			return "POST", "/v1/subscriptions", object{"name": "d" + uuidOf(s)[:8], "destination": object{"kind": "webhook", "url": "http://127.0.0.1:1/", "credential_env": s}}
		},
		"a query in SQL": func(s string) (string, string, object) {
			return "POST", "/v1/sql", object{"query": "SELECT ?, '" + strings.ReplaceAll(s, "'", "") + "'", "params": []string{s}}
		},
		"a query that is none":     func(s string) (string, string, object) { return "POST", "/v1/sql", object{"query": "SELEKT " + s} },
		"a member that is unknown": func(s string) (string, string, object) { return "POST", "/v1/conclusions", object{s: 1} },
		"a pairing": func(s string) (string, string, object) {
			return "POST", "/v1/pairings", object{"id": s, "authority_level": 1}
		},
		"a code": func(s string) (string, string, object) {
			return "POST", "/v1/pairings/redeem", object{"code": s, "public_key": s}
		},
		"a setting": func(s string) (string, string, object) { return "PATCH", "/v1/settings", object{"output": s} },
		"a task's cancellation": func(s string) (string, string, object) {
			return "POST", "/v1/tasks/" + p.task + "/cancel", object{"reason": s}
		},
		"a simulation": func(s string) (string, string, object) {
			return "POST", "/v1/gates/simulate", object{"action": s, "actor": s}
		},
	} {
		p.by(name, func(s string) { method, path, body := in(s); ask(method, path, body) })
	}
	// An approval, and what is said when it is settled.
	ask("POST", "/v1/rules", object{"action": "deploy.prod", "min_level": 70})
	p.by("why an approval ends", func(s string) {
		ask("POST", "/v1/approvals/"+uuidOf(s)+"/settle", object{"outcome": "granted", "reason": s})
		ask("POST", "/v1/approvals/settle", object{"settlements": []any{object{"approval_id": s, "outcome": "refused", "reason": s}}})
	})
	p.by("an erasure", func(s string) { ask("POST", "/v1/events/"+uuidOf(s)+"/erase", object{"reason": s}) })
	// Where no text belongs.
	p.by("a path", func(s string) { ask("GET", "/v1/tasks/"+url.PathEscape(s), "") })
	p.by("a query", func(s string) {
		for _, path := range []string{"/v1/tried?q=", "/v1/memory?argv=", "/v1/memory?machine=", "/v1/conclusions?about=", "/v1/events?stream=", "/v1/tasks?cursor=", "/v1/actors?nonsense="} {
			ask("GET", path+url.QueryEscape(s), "")
		}
	})
	p.by("an Idempotency-Key", func(s string) {
		ask("POST", "/v1/conclusions", object{"about": nil, "text": "x"}, "Idempotency-Key", s)
	})
	p.by("an Approval-Id", func(s string) { ask("POST", "/v1/conclusions", object{"about": nil, "text": "x"}, "Approval-Id", s) })
	p.by("a token", func(s string) { ask("GET", "/v1/actors", "", "Authorization", "Bearer "+s) })
	p.by("a body that is no JSON", func(s string) { ask("POST", "/v1/conclusions", "{"+s) })
	p.by("a header", func(s string) {
		ask("GET", "/v1/actors", "", "X-"+hex.EncodeToString([]byte(s))[:8], s, "User-Agent", s)
	})
}

// json1 is s as it stands in JSON, without the quotes around it.
func json1(s string) string {
	b, _ := json.Marshal(s) // every text has a form
	return string(b)
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
		read("claude-code", fmt.Sprintf("claude%d.jsonl", n), `{"type":"assistant","uuid":"u1","sessionId":"s`+id+`","timestamp":"2026-02-03T04:05:01Z","cwd":`+quoted("/work/"+s)+`,"message":{"content":[{"type":"tool_use","id":"`+id+`","name":"Bash","input":{"command":`+quoted("echo '"+s+"'")+`}}]}}
{"type":"user","uuid":"u2","sessionId":"s`+id+`","timestamp":"2026-02-03T04:05:03Z","cwd":"/work","message":{"content":[{"type":"tool_result","tool_use_id":"`+id+`","content":"x"}]},"toolUseResult":{"stdout":`+quoted(s)+`,"stderr":`+quoted("err "+s)+`,"interrupted":false}}
`)
	})
	p.by("Codex", func(s string) {
		n++
		id := fmt.Sprint("c", n)
		call, _ := json.Marshal(map[string]any{"command": []string{"bash", "-lc", "echo '" + s + "'"}, "workdir": "/work"})
		result, _ := json.Marshal(map[string]any{"output": s, "metadata": map[string]any{"exit_code": 0, "duration_seconds": 1}})
		read("codex", fmt.Sprintf("rollout-%d.jsonl", n), `{"timestamp":"2026-02-03T04:05:01Z","type":"session_meta","payload":{"id":"`+id+`","cwd":"/work","git":{"repository_url":`+quoted("https://ana:"+s+"@example.org/x.git")+`}}}
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
		if _, err := db.Exec("INSERT INTO history VALUES (?, 1770091506000000000, 5000000, 0, ?, ?, 's', 'laptop:ana', NULL)", fmt.Sprint(n), "echo '"+s+"'", "/work/"+s); err != nil {
			p.Fatal(err)
		}
		if out, err := p.run("import", "atuin", file, "--machine", "laptop"); err != nil {
			p.Errorf("import atuin: %v\n%s", err, out)
		}
	})
}

// A needle is a form in which a file can have a secret.
type needle struct {
	way  string
	form []byte
}

const needleBegin = 8

// needles are the forms of all secrets, by how they begin: as it is without its first
// letters, for an index keeps of a word what differs from the one before it, in
// hexadecimal, and in base64, wherever in a group of three bytes it begins. They are in
// lower case.
func (p *plantation) needles() map[[needleBegin]byte][]needle {
	all := map[[needleBegin]byte][]needle{}
	for _, s := range p.secrets {
		list := []string{s.secret[8:], hex.EncodeToString([]byte(s.secret))}
		for skip := range 3 {
			list = append(list, base64.StdEncoding.EncodeToString([]byte(s.secret[skip:skip+(len(s.secret)-skip)/3*3])))
		}
		for _, form := range list {
			form := []byte(strings.ToLower(form))
			begin := [needleBegin]byte(form)
			all[begin] = append(all[begin], needle{s.way, form})
		}
	}
	return all
}

// nowhere looks at the bytes of every file but the sources.
func (p *plantation) nowhere(when string) {
	p.Helper()
	files, needles := 0, p.needles()
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == sources {
			if d != nil && d.Name() == sources {
				return filepath.SkipDir
			}
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // the server has removed it
		}
		if err != nil {
			return err
		}
		files++
		p.holdsNone(when+": "+strings.TrimPrefix(path, p.dir), b, needles)
		return nil
	})
	if err != nil {
		p.Fatal(err)
	}
	if files < 20 {
		p.Errorf("%s: only %d files were looked at", when, files)
	}
}

func (p *plantation) holdsNone(what string, b []byte, needles map[[needleBegin]byte][]needle) {
	p.Helper()
	b = bytes.ToLower(b)
	told := map[string]bool{}
	for i := 0; i+needleBegin <= len(b); i++ {
		for _, n := range needles[[needleBegin]byte(b[i:])] {
			if bytes.HasPrefix(b[i:], n.form) && !told[n.way] {
				told[n.way] = true
				p.Errorf("%s has the secret of %s: %q", what, n.way, b[max(0, i-60):min(len(b), i+len(n.form)+20)])
			}
		}
	}
}

// nowhereInPayloads reads every record, for tables on disk can be compressed.
func (p *plantation) nowhereInPayloads() {
	p.Helper()
	log, err := pebblelog.OpenReadOnly(fleetDir(p.path("data"), defaultFleet), pebblelog.Options{Fleet: defaultFleet, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	n, needles := 0, p.needles()
	for rec, err := range log.ReadAll(p.Context(), 0) {
		if err != nil {
			p.Fatal(err)
		}
		n++
		p.holdsNone(fmt.Sprintf("position %d (%s)", rec.Header.Position, rec.Header.Type), slices.Concat(rec.Leaf, rec.Payload), needles)
	}
	if n < 100 {
		p.Errorf("only %d events were recorded: the ways in led nowhere", n)
	}
}

// masks counts the marks in the log.
func (p *plantation) masks() int {
	b, err := os.ReadFile(p.path("events.jsonl"))
	if err != nil {
		p.Fatal(err)
	}
	return bytes.Count(b, []byte("[secret:"))
}
