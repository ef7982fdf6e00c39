package main

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
)

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
