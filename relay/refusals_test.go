package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/seal"
)

// Bad input is answered with a status and a code, and changes nothing.
func TestBadInput(t *testing.T) {
	f := newFleet(t).people()
	open := f.submit("ana", "true", "m1")
	claimed := f.submit("ana", "make", "m1")
	f.do("m1", "POST", "/v1/tasks/"+claimed+"/claim", `{"machine":"m1"}`).want(200)
	done := f.submit("ana", "ls", "m1")
	f.ran(done)
	waiting := f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202)
	approval := waiting.text("approval_id")
	event := `{"specversion":"1.0","id":"e1","source":"/a","type":"ext.a","subject":"ext-a"}`
	f.do("ana", "POST", "/v1/events", event).want(201)
	long := strings.Repeat("x", 100)
	words := func(n int, w string) string { return strings.TrimSuffix(strings.Repeat(`"`+w+`",`, n), ",") }
	level := func(l string) string { return `{"id":"new","kind":"agent","authority_level":` + l + `}` }

	for _, c := range []struct {
		as, request, body string
		status            int
		code              string
		headers           []string
	}{
		// Levels.
		{"root", "POST /v1/actors", level("50.5"), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level(`"60"`), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level("null"), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level("true"), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level("5e1"), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level("-0"), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level("[60]"), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level("99999999999999999999"), 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", level("101"), 422, "INVALID", nil},
		{"root", "POST /v1/actors", level("-1"), 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent"}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","parent":"ana","cap":null}`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","parent":"ana","cap":50.5}`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","parent":"ana","cap":101}`, 422, "INVALID", nil},
		{"root", "PATCH /v1/actors/ana", `{"authority_level":"60"}`, 400, "INVALID_FIELDS", nil},
		{"root", "PATCH /v1/actors/ana", `{"authority_level":null}`, 400, "INVALID_FIELDS", nil},
		{"root", "PATCH /v1/actors/ana", `{"suspended":null}`, 400, "INVALID_FIELDS", nil},
		{"root", "PATCH /v1/actors/ana", `{"authority_level":101}`, 422, "INVALID", nil},
		{"root", "PATCH /v1/actors/ana", `{}`, 422, "INVALID", nil},

		// JSON.
		{"root", "POST /v1/actors", `{"id":"new","id":"new2","kind":"agent","authority_level":1}`, 400, "MALFORMED_JSON", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","authority_level":1} {}`, 400, "MALFORMED_JSON", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","authority_level":1`, 400, "MALFORMED_JSON", nil},
		{"root", "POST /v1/actors", "{\"id\":\"n\xffw\",\"kind\":\"agent\",\"authority_level\":1}", 400, "MALFORMED_JSON", nil},
		{"root", "POST /v1/actors", `{"Id":"new","kind":"agent","authority_level":1}`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","authorityLevel":1}`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","authority_level":1,"admin":true}`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", `{"id":null,"kind":"agent","authority_level":1}`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", `[]`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/actors", ``, 400, "MALFORMED_JSON", nil},
		{"root", "POST /v1/actors", strings.Repeat("[", 100), 400, "INVALID_FIELDS", nil},

		// Ids that could pass for another one, or for none.
		{"root", "POST /v1/actors", `{"id":"Ana","kind":"agent","authority_level":1}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"аna","kind":"agent","authority_level":1}`, 422, "INVALID", nil}, // Cyrillic а
		{"root", "POST /v1/actors", `{"id":"an\u200ba","kind":"agent","authority_level":1}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"@relay","kind":"agent","authority_level":1}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"","kind":"agent","authority_level":1}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"` + long + `","kind":"agent","authority_level":1}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"robot","authority_level":1}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","authority_level":1,"scopes":["OPS"]}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"machine","authority_level":1,"scopes":["a","b"]}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"new","kind":"agent","parent":"nobody"}`, 422, "INVALID", nil},
		{"root", "POST /v1/actors", `{"id":"ana","kind":"human","authority_level":10}`, 409, "ACTOR_EXISTS", nil},
		{"di", "POST /v1/actors", `{"id":"new","kind":"human","authority_level":81}`, 403, "ABOVE_OWN_LEVEL", nil},
		{"di", "POST /v1/actors", `{"id":"new","kind":"human","authority_level":1,"scopes":["dev"]}`, 403, "SCOPE_NOT_HELD", nil},
		{"ana", "POST /v1/actors", `{"id":"new","kind":"agent","parent":"bo"}`, 403, "PARENT_NOT_YOURS", nil},

		// Who and what is not there.
		{"root", "GET /v1/actors/nobody", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "GET /v1/actors/%D0%B0na", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "GET /v1/actors/ANA", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "GET /v1/actors/%FF", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "PATCH /v1/actors/nobody", `{"suspended":true}`, 404, "ACTOR_NOT_FOUND", nil},
		{"root", "POST /v1/actors/nobody/tokens", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "DELETE /v1/actors/ana/tokens/none", "", 404, "TOKEN_NOT_FOUND", nil},
		{"root", "DELETE /v1/rules/none", "", 404, "RULE_NOT_FOUND", nil},
		{"root", "GET /v1/gates/none", "", 404, "GATE_NOT_FOUND", nil},
		{"root", "GET /v1/gates/" + approval, "", 404, "GATE_NOT_FOUND", nil},
		{"root", "POST /v1/gates/none/spend", "{}", 404, "GATE_NOT_FOUND", nil},
		{"root", "GET /v1/approvals/none", "", 404, "APPROVAL_NOT_FOUND", nil},
		{"root", "POST /v1/approvals/none/settle", `{"outcome":"granted","reason":"x"}`, 404, "APPROVAL_NOT_FOUND", nil},
		{"root", "POST /v1/approvals/none/withdraw", "", 404, "APPROVAL_NOT_FOUND", nil},
		{"root", "GET /v1/tasks/none", "", 404, "TASK_NOT_FOUND", nil},
		{"root", "GET /v1/tasks/a%2Fb", "", 404, "TASK_NOT_FOUND", nil},
		{"root", "GET /v1/tasks/none/history", "", 404, "TASK_NOT_FOUND", nil},
		{"root", "POST /v1/tasks/none/cancel", "", 404, "TASK_NOT_FOUND", nil},
		{"m1", "POST /v1/tasks/none/claim", `{"machine":"m1"}`, 404, "TASK_NOT_FOUND", nil},
		{"m1", "POST /v1/tasks/none/attempts/1/heartbeat", "", 404, "TASK_NOT_FOUND", nil},
		{"root", "GET /v1/events/none", "", 404, "EVENT_NOT_FOUND", nil},
		{"root", "GET /v1/audit/none", "", 404, "AUDIT_NOT_FOUND", nil},
		{"root", "GET /v1/machines/nobody/offers", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "GET /v1/machines/ana/offers", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "GET /v1/memory?machine=m2", "", 404, "MEMORY_NOT_HERE", nil},
		{"root", "GET /v1/memory?machine=nobody", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "GET /v1/memory?machine=ana", "", 404, "ACTOR_NOT_FOUND", nil},
		{"root", "GET /v1/tried?q=ls&machine=m2", "", 404, "MEMORY_NOT_HERE", nil},

		// Rules.
		{"root", "POST /v1/rules", `{"action":"*","min_level":50.5,"scope":"OPS","colour":1}`, 422, "RULE_MALFORMED", nil},
		{"root", "POST /v1/rules", `{"action":"a.b","min_level":null}`, 422, "RULE_MALFORMED", nil},
		{"root", "POST /v1/rules", `{"min_level":50}`, 422, "RULE_MALFORMED", nil},
		{"root", "POST /v1/rules", `{"action":"a.b","min_level":50`, 400, "MALFORMED_JSON", nil},
		{"root", "POST /v1/rules", `{"action":"a.b","action":"a.c","min_level":50}`, 400, "MALFORMED_JSON", nil},
		{"di", "POST /v1/rules", `{"action":"a.b","min_level":81}`, 403, "RULE_ABOVE_OWN_LEVEL", nil},
		{"root", "POST /v1/rules", `{"action":"rule.retire","min_level":100,"scope":"nobody"}`, 422, "LOCKOUT", nil},

		// Gates and approvals.
		{"ana", "POST /v1/gates", `{"action":"Deploy"}`, 422, "INVALID", nil},
		{"ana", "POST /v1/gates", `{"action":""}`, 422, "INVALID", nil},
		{"ana", "POST /v1/gates", `{"action":"deploy","command":1e400}`, 400, "MALFORMED_COMMAND", nil},
		{"ana", "POST /v1/gates", `{"action":"deploy","request_approval":"yes"}`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/approvals/" + approval + "/settle", `{"outcome":"granted","reason":"mine"}`, 403, "APPROVER_NOT_ENTITLED", nil},
		{"bo", "POST /v1/approvals/" + approval + "/settle", `{"outcome":"granted","reason":"x"}`, 403, "APPROVER_NOT_ENTITLED", nil},
		{"cy", "POST /v1/approvals/" + approval + "/settle", `{"outcome":"maybe","reason":"x"}`, 422, "INVALID", nil},
		{"cy", "POST /v1/approvals/" + approval + "/settle", `{"outcome":"granted"}`, 400, "INVALID_FIELDS", nil},
		{"bo", "POST /v1/approvals/" + approval + "/withdraw", `{}`, 403, "NOT_REQUESTER", nil},
		{"root", "POST /v1/approvals/settle", `{"settlements":[]}`, 400, "INVALID_FIELDS", nil},
		{"root", "POST /v1/approvals/settle", `{"settlements":[` + strings.TrimSuffix(strings.Repeat(`{"approval_id":"x","outcome":"granted","reason":""},`, 1001), ",") + `]}`, 413, "SETTLEMENTS_TOO_MANY", nil},
		{"root", "GET /v1/approvals?status=open", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "POST /v1/rules", `{"action":"x.y","min_level":0}`, 409, "COMMAND_CHANGED", []string{"Approval-Id", approval}},
		{"ana", "POST /v1/rules", `{"action":"x.y","min_level":0}`, 404, "APPROVAL_NOT_FOUND", []string{"Approval-Id", "none"}},
		{"ana", "POST /v1/rules", `{"action":"x.y","min_level":0}`, 400, "APPROVAL_ID_INVALID", []string{"Approval-Id", "a b"}},
		{"ana", "POST /v1/rules", `{"action":"x.y","min_level":0}`, 400, "APPROVAL_ID_INVALID", []string{"Approval-Id", ""}},

		// Tasks.
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["nowhere"]}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["M1"]}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["bo"]}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1","m1"]}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":[]}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":[],"targets":["m1"]}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["l\u0000s"],"targets":["m1"]}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"]}`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/tasks", `{"argv":"ls","targets":["m1"]}`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"mode":"all"}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"quorum":1}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"timeout_s":-1}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"timeout_s":1.5}`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"attempts":101}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"attempts":0}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"attempts":null}`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1","m2"],"quorum":0}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"quorum":null}`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"env":{"A":"b\u0000"}}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"cwd":"b\u0000"}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"],"env":{"A=B":"c"}}`, 422, "INVALID", nil},
		{"ana", "POST /v1/tasks", `{"argv":[` + words(257, "a") + `],"targets":["m1"]}`, 413, "ARGV_TOO_LARGE", nil},
		{"ana", "POST /v1/tasks", `{"argv":[` + words(1, strings.Repeat("a", 32<<10+1)) + `],"targets":["m1"]}`, 413, "ARGV_TOO_LARGE", nil},
		{"ana", "POST /v1/tasks", `{"argv":["a"],"targets":[` + words(251, "a") + `]}`, 413, "TARGETS_TOO_MANY", nil},
		{"ana", "POST /v1/tasks", `{"argv":["a"],"env":{"A":"` + strings.Repeat("a", 64<<10) + `"},"targets":["m1"]}`, 413, "PAYLOAD_TOO_LARGE", nil},
		{"root", "GET /v1/tasks?status=done", "", 400, "PARAMETER_INVALID", nil},

		// Attempts.
		{"m2", "POST /v1/tasks/" + open + "/claim", `{"machine":"m2"}`, 403, "NOT_YOUR_LEG", nil},
		{"m2", "POST /v1/tasks/" + open + "/claim", `{"machine":"m1"}`, 403, "NOT_YOUR_LEG", nil},
		{"ana", "POST /v1/tasks/" + open + "/claim", `{"machine":"m1"}`, 403, "NOT_YOUR_LEG", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/claim", `{"machine":"m1"}`, 409, "ALREADY_CLAIMED", nil},
		{"m1", "POST /v1/tasks/" + open + "/claim", `{}`, 400, "INVALID_FIELDS", nil},
		{"m2", "POST /v1/tasks/" + waiting.text("task_id") + "/claim", `{"machine":"m2"}`, 409, "TASK_NOT_OPEN", nil},
		{"m1", "POST /v1/tasks/" + open + "/attempts/1/heartbeat", "", 404, "ATTEMPT_NOT_FOUND", nil},
		{"m1", "POST /v1/tasks/" + open + "/attempts/x/heartbeat", "", 400, "ATTEMPT_INVALID", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/01/heartbeat", "", 400, "ATTEMPT_INVALID", nil},
		{"m1", "POST /v1/tasks/" + open + "/attempts/0/report", `{"envelope":` + envelope + `}`, 400, "ATTEMPT_INVALID", nil},
		{"m2", "POST /v1/tasks/" + claimed + "/attempts/1/heartbeat", "", 403, "NOT_YOUR_LEG", nil},
		{"m1", "POST /v1/tasks/" + done + "/attempts/1/heartbeat", "", 409, "ATTEMPT_ENDED", nil},
		{"m2", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + envelope + `}`, 403, "NOT_YOUR_LEG", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, `"m1"`, `"m2"`, 1) + `}`, 422, "INVALID", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, `"exit_code":0,`, ``, 1) + `}`, 422, "INVALID", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, `"exit_code":0`, `"exit_code":"0"`, 1) + `}`, 400, "INVALID_FIELDS", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, `"exited"`, `"passed"`, 1) + `}`, 422, "INVALID", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, `"elapsed_ms"`, `"elapsedMs"`, 1) + `}`, 400, "INVALID_FIELDS", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, "2026-03-01T09:00:00Z", "0000-01-01T00:00:00+01:00", 1) + `}`, 400, "INVALID_FIELDS", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, `ok\n`, strings.Repeat("x", 4<<10+1), 1) + `}`, 413, "TAIL_TOO_LARGE", nil},
		{"m1", "POST /v1/tasks/" + claimed + "/attempts/1/report", `{}`, 400, "INVALID_FIELDS", nil},
		{"m1", "POST /v1/tasks/" + done + "/attempts/1/report", `{"envelope":` + strings.Replace(envelope, "1500", "1501", 1) + `}`, 409, "ALREADY_REPORTED", nil},
		{"m1", "POST /v1/tasks/" + done + "/claim", `{"machine":"m1"}`, 409, "ALREADY_CLAIMED", nil},
		{"ana", "POST /v1/tasks/" + done + "/cancel", "", 409, "TASK_SETTLED", nil},
		{"ana", "GET /v1/machines/m1/offers", "", 403, "NOT_YOUR_OFFERS", nil},
		{"m2", "GET /v1/machines/m1/offers", "", 403, "NOT_YOUR_OFFERS", nil},
		{"m1", "GET /v1/machines/m1/offers", "", 400, "LAST_EVENT_ID_INVALID", []string{"Last-Event-ID", "x"}},

		// Memory and conclusions.
		{"ana", "POST /v1/memory", `{"record":{"argv":["ls"],` + envelope[1:] + `}`, 403, "NOT_YOUR_MEMORY", nil},
		{"m1", "POST /v1/memory", `{"record":{"argv":[],` + envelope[1:] + `}`, 422, "INVALID", nil},
		{"m1", "POST /v1/memory", `{"record":{"argv":["ls"],"conclusion":"fine",` + envelope[1:] + `}`, 422, "INVALID", nil},
		{"m1", "POST /v1/memory", `{"record":{"argv":["ls"],` + strings.Replace(envelope, "11:00:01.5+02:00", "08:00:00Z", 1)[1:] + `}`, 422, "INVALID", nil},
		{"m1", "POST /v1/memory", `{"record":{"argv":["ls"]}}`, 400, "INVALID_FIELDS", nil},
		{"m1", "POST /v1/conclusions", `{"about":{"task_id":"` + done + `"},"text":"fine"}`, 403, "MACHINE_MAY_NOT_CONCLUDE", nil},
		{"ana", "POST /v1/conclusions", `{"text":"fine"}`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/conclusions", `{"about":null,"text":" "}`, 422, "INVALID", nil},
		{"ana", "POST /v1/conclusions", `{"about":{},"text":"x"}`, 422, "INVALID", nil},
		{"ana", "POST /v1/conclusions", `{"about":{"task_id":"none"},"text":"x"}`, 404, "TASK_NOT_FOUND", nil},
		{"ana", "POST /v1/conclusions", `{"about":{"record_id":"none"},"text":"x"}`, 404, "RECORD_NOT_FOUND", nil},
		{"ana", "POST /v1/conclusions", `{"about":null,"text":"x","supersedes":"none"}`, 422, "INVALID", nil},

		// Collective memory.
		{"ana", "GET /v1/collective", "", 404, "MEMORY_NO_COLLECTIVE", nil},
		{"ana", "GET /v1/collective/sections/a", "", 404, "SECTION_NOT_FOUND", nil},
		{"cy", "DELETE /v1/collective/sections/a", "", 404, "SECTION_NOT_FOUND", nil},
		{"cy", "PUT /v1/collective/sections/A", `{"heading":"A","text":"x"}`, 422, "INVALID", nil},
		{"cy", "PUT /v1/collective/sections/a%20b", `{"heading":"A","text":"x"}`, 422, "INVALID", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A"}`, 400, "INVALID_FIELDS", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":null}`, 400, "INVALID_FIELDS", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","revision":null}`, 400, "INVALID_FIELDS", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","revision":-1}`, 400, "INVALID_FIELDS", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","slug":"a"}`, 400, "INVALID_FIELDS", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":" "}`, 422, "INVALID", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","measured_at":"2026-02-30"}`, 422, "INVALID", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","evidence":["none"]}`, 422, "INVALID", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","revision":3}`, 404, "SECTION_NOT_FOUND", nil},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x"}`, 404, "SECTION_NOT_FOUND", []string{"If-Match", `"3"`}},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","revision":3}`, 400, "IF_MATCH_INVALID", []string{"If-Match", `"4"`}},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x"}`, 400, "IF_MATCH_INVALID", []string{"If-Match", "*"}},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x"}`, 400, "IF_MATCH_INVALID", []string{"If-Match", `3`}},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"` + strings.Repeat("x", 64<<10) + `"}`, 413, "PAYLOAD_TOO_LARGE", nil},

		// Agents' own events.
		{"ana", "POST /v1/events", strings.Replace(event, "ext.a", "task.opened", 1), 403, "KIND_RESERVED", nil},
		{"ana", "POST /v1/events", strings.Replace(event, "ext.a", "my.kind", 1), 422, "KIND_UNKNOWN", nil},
		{"ana", "POST /v1/events", strings.Replace(event, "ext-a", "authority", 1), 403, "STREAM_RESERVED", nil},
		{"ana", "POST /v1/events", strings.Replace(event, "ext-a", "ext-", 1), 403, "STREAM_RESERVED", nil},
		{"ana", "POST /v1/events", strings.Replace(event, "/a", "/b", 1), 409, "EVENT_ID_MISMATCH", nil},
		{"bo", "POST /v1/events", event, 409, "EVENT_ID_MISMATCH", nil},
		{"ana", "POST /v1/events", `[]`, 400, "INVALID_FIELDS", nil},
		{"ana", "POST /v1/events", `[` + strings.TrimSuffix(strings.Repeat(event+",", 1001), ",") + `]`, 413, "BATCH_TOO_LARGE", nil},
		{"ana", "POST /v1/events", `[` + event + `,` + event + `]`, 422, "INVALID", nil},
		{"ana", "POST /v1/events", event, 400, "INVALID_FIELDS", []string{"Content-Type", cloudEventBatchType}},
		{"ana", "POST /v1/events", `[` + event + `]`, 400, "INVALID_FIELDS", []string{"Content-Type", cloudEventType}},

		// Headers and parameters.
		{"ana", "POST /v1/gates", `{"action":"a"}`, 415, "UNSUPPORTED_MEDIA_TYPE", []string{"Content-Type", "text/plain"}},
		{"ana", "POST /v1/gates", `{"action":"a"}`, 415, "UNSUPPORTED_MEDIA_TYPE", []string{"Content-Type", "application/json; charset=latin1"}},
		{"ana", "POST /v1/gates", `{"action":"a"}`, 415, "UNSUPPORTED_MEDIA_TYPE", []string{"Content-Type", cloudEventType}},
		{"ana", "POST /v1/events", event, 415, "UNSUPPORTED_MEDIA_TYPE", []string{"Content-Type", "application/xml"}},
		{"ana", "POST /v1/gates", `{"action":"a"}`, 400, "IDEMPOTENCY_KEY_INVALID", []string{"Idempotency-Key", "1"}},
		{"ana", "POST /v1/gates", `{"action":"a"}`, 400, "IDEMPOTENCY_KEY_INVALID", []string{"Idempotency-Key", ""}},
		{"ana", "POST /v1/gates", `{"action":"a"}`, 400, "IDEMPOTENCY_KEY_INVALID", []string{"Idempotency-Key", strings.ReplaceAll(newKey(), "-", "")}},
		{"ana", "POST /v1/gates", `{"action":"a"}`, 400, "IDEMPOTENCY_KEY_INVALID", []string{"Idempotency-Key", newKey(), "Idempotency-Key", newKey()}},
		{"ana", "POST /v1/gates", `{"action":"a","command":"` + strings.Repeat("a", 1<<20) + `"}`, 413, "BODY_TOO_LARGE", nil},
		{"ana", "POST /v1/gates?at=1", `{"action":"a"}`, 400, "UNKNOWN_PARAMETER", nil},
		{"ana", "GET /v1/tasks?limit=0", "", 400, "LIMIT_OUT_OF_RANGE", nil},
		{"ana", "GET /v1/tasks?limit=05", "", 400, "LIMIT_OUT_OF_RANGE", nil},
		{"ana", "GET /v1/tasks?at=01", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/tasks?limit=1001", "", 400, "LIMIT_OUT_OF_RANGE", nil},
		{"ana", "GET /v1/tasks?limit=ten", "", 400, "LIMIT_OUT_OF_RANGE", nil},
		{"ana", "GET /v1/tasks?limit=", "", 400, "LIMIT_OUT_OF_RANGE", nil},
		{"ana", "GET /v1/tasks?limit=1&limit=2", "", 400, "PARAMETER_REPEATED", nil},
		{"ana", "GET /v1/tasks?cursor=x", "", 400, "CURSOR_INVALID", nil},
		{"ana", "GET /v1/tasks?cursor=AAAAAAAAAAA", "", 400, "CURSOR_INVALID", nil},
		{"ana", "GET /v1/tasks?colour=red", "", 400, "UNKNOWN_PARAMETER", nil},
		{"ana", "GET /v1/tasks?Status=open", "", 400, "UNKNOWN_PARAMETER", nil},
		{"ana", "GET /v1/tasks?%FF=1", "", 400, "UNKNOWN_PARAMETER", nil},
		{"ana", "GET /v1/tasks?machine=%FF", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/tasks?machine=%zz", "", 400, "QUERY_MALFORMED", nil},
		{"ana", "GET /v1/tasks?at=0", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/tasks?at=-1", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/tasks?at=1.5", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/tasks?at=99999", "", 422, "AT_PAST_HEAD", nil},
		{"ana", "GET /v1/actors?at=99999", "", 422, "AT_PAST_HEAD", nil},
		{"ana", "GET /v1/tried?q=ls&at=1", "", 400, "AT_NOT_SUPPORTED", nil},
		{"ana", "GET /v1/tried?q=ls&at=99999", "", 400, "AT_NOT_SUPPORTED", nil},
		{"ana", "GET /v1/tasks?min_position=x", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/events?after=x", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/events?type=a%20b", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/events/stream?after=x", "", 400, "PARAMETER_INVALID", nil},
		{"ana", "GET /v1/events/stream?colour=red", "", 400, "UNKNOWN_PARAMETER", nil},
		{"ana", "GET /v1/events/stream", "", 400, "LAST_EVENT_ID_INVALID", []string{"Last-Event-ID", "-1"}},
	} {
		method, path, _ := strings.Cut(c.request, " ")
		f.unchanged(func() answer { return f.do(c.as, method, path, c.body, c.headers...) }).want(c.status, c.code)
	}
}

func TestProblemsAreNamed(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"*","min_level":50.5,"scope":"OPS","colour":1}`).want(422).
		has("problems.0.path", "/min_level", "problems.1.path", "/colour", "problems.2.path", "/action", "problems.3.path", "/scope")
	f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m1"],"Cwd":"/","cwd":7,"cwd":8}`).want(400, "MALFORMED_JSON").
		has("problems.0.code", "CASE_VARIANT", "problems.0.path", "/Cwd", "problems.1.code", "WRONG_TYPE", "problems.2.code", "DUPLICATE_NAME")
	f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m1","nowhere"],"mode":"single"}`).want(422).
		has("problems.0.path", "/targets", "problems.1.code", "UNKNOWN_MACHINE")
	f.do("m1", "POST", "/v1/tasks/x/attempts/1/report", `{"envelope":{"outcome":"exited"}}`).want(400).
		has("problems.0.path", "/envelope/started_at", "problems.0.code", "REQUIRED")
	f.do("ana", "POST", "/v1/tasks", `{"argv":[`+strings.Repeat(`"a",`, 256)+`"a"],"targets":["m1"]}`).want(413).has("limit", "256", "actual", "257")
	f.do("ana", "GET", "/v1/tasks?colour=red", "").want(400).has("parameter", "colour")
	f.do("ana", "GET", "/v1/tasks?at=99999", "").want(422).has("at", "99999")
}

// Facts stand beside the members of the problem document.
func TestFactsOfConflicts(t *testing.T) {
	f := newFleet(t).people()
	task := f.submit("ana", "ls", "m1")
	f.ran(task)
	f.do("m1", "POST", "/v1/tasks/"+task+"/claim", `{"machine":"m1"}`).want(409, "ALREADY_CLAIMED").has("status", "409", "leg_status", "reported")
	event := `{"specversion":"1.0","id":"e%d","source":"/a","type":"ext.a","subject":"ext-a","expectedrevision":0}`
	f.do("ana", "POST", "/v1/events", fmt.Sprintf(event, 1)).want(201)
	f.do("ana", "POST", "/v1/events", fmt.Sprintf(event, 2)).want(409, "REVISION_CONFLICT").has("stream", "ext-a", "expected", "0", "actual", "1")
	f.do("ana", "POST", "/v1/events", strings.Replace(fmt.Sprintf(event, 3), "ext.a", "task.opened", 1)).want(403, "KIND_RESERVED").
		has("kind", "task.opened", "type", "about:blank")
}

func TestIdentity(t *testing.T) {
	f := newFleet(t).people()
	ask := func(authorization ...string) answer {
		return f.unchanged(func() answer {
			var headers []string
			for _, a := range authorization {
				headers = append(headers, "Authorization", a)
			}
			return f.do("", "GET", "/v1/tasks", "", headers...)
		})
	}
	root := f.tokens["root"]
	parts := strings.Split(root, "~")
	head := f.do("root", "GET", "/v1/limits", "").want(200).header.Get("Ledger-Position")
	for _, c := range []struct {
		name, code string
		header     []string
	}{
		{"none", "TOKEN_MISSING", nil},
		{"empty", "TOKEN_MISSING", []string{""}},
		{"no scheme", "TOKEN_MISSING", []string{root}},
		{"another scheme", "TOKEN_MISSING", []string{"Basic " + root}},
		{"two", "TOKEN_MISSING", []string{"Bearer " + root, "Bearer " + root}},
		{"nothing behind the scheme", "TOKEN_MISSING", []string{"Bearer "}}, // Go trims the header
		{"no form", "TOKEN_UNKNOWN", []string{"Bearer x"}},
		{"unknown secret", "TOKEN_UNKNOWN", []string{"Bearer " + root[:len(root)-1]}},
		{"other actor's name", "TOKEN_UNKNOWN", []string{"Bearer " + parts[0] + "~ana~" + parts[2]}},
		{"other fleet's name", "TOKEN_UNKNOWN", []string{"Bearer other~" + parts[1] + "~" + parts[2]}},
		{"unknown fleet", "TOKEN_UNKNOWN", []string{"Bearer nowhere~" + parts[1] + "~" + parts[2]}},
	} {
		a := ask(c.header...)
		if a.status != 401 || a.text("code") != c.code || a.header.Get("WWW-Authenticate") != "Bearer" || a.header.Get("Ledger-Position") != head {
			t.Errorf("%s: %d %s %v", c.name, a.status, a.body, a.header)
		}
	}
	ask("bearer " + root).want(200)
	for _, path := range []string{"/v1/nope", "/openapi.json", "/docs", "/v1/events/stream", "/v1/machines/m1/offers", "/metrics"} {
		f.do("", "GET", path, "").want(401, "TOKEN_MISSING")
	}
	f.do("", "DELETE", "/v1/tasks", "").want(401, "TOKEN_MISSING")
	f.do("", "GET", "/healthz", "").want(200).has("status", "ok")
	f.do("", "GET", "/readyz", "").want(200).has("status", "ready", "fleets.0.fleet", "default", "fleets.1.fleet", "other", "fleets.1.position", "24")
}

func TestSuspendedIsRefusedEverywhere(t *testing.T) {
	f := newFleet(t).people()
	own := f.do("ana", "POST", "/v1/actors/ana/tokens", "").want(201)
	f.tokens["ana2"] = own.text("token")
	f.do("ana2", "GET", "/v1/limits", "").want(200)
	f.do("ana", "DELETE", "/v1/actors/ana/tokens/"+own.text("token_id"), "").want(200).has("token_id", own.text("token_id"))
	f.do("ana2", "GET", "/v1/limits", "").want(401, "TOKEN_UNKNOWN")

	f.do("root", "PATCH", "/v1/actors/ana", `{"suspended":true}`).want(200).has("actor.suspended", "true", "actor.active", "false")
	for _, as := range []string{"ana", "bot"} { // bot acts under ana
		for _, r := range []string{"GET /v1/tasks", "POST /v1/tasks", "GET /v1/events/stream", "GET /openapi.json", "GET /v1/nope", "PUT /v1/tasks"} {
			method, path, _ := strings.Cut(r, " ")
			f.unchanged(func() answer { return f.do(as, method, path, "{}") }).want(403, "ACTOR_NOT_ACTIVE").has("actor", as)
		}
	}
	f.do("root", "PATCH", "/v1/actors/ana", `{"suspended":false}`).want(200)
	f.do("bot", "GET", "/v1/tasks", "").want(200)
}

func TestFleetsAreApart(t *testing.T) {
	f := newFleet(t).people()
	task := f.submit("ana", "ls", "m1")
	event := f.do("ana", "POST", "/v1/events", `{"specversion":"1.0","id":"e1","source":"/a","type":"ext.a","subject":"ext-a"}`).want(201)
	gate := f.do("ana", "POST", "/v1/gates", `{"action":"nothing"}`).want(200)
	audit := f.do("root", "POST", "/v1/audit", "").want(201)
	for path, code := range map[string]string{
		"/v1/tasks/" + task:                            "TASK_NOT_FOUND",
		"/v1/tasks/" + task + "/history":               "TASK_NOT_FOUND",
		"/v1/events/" + event.text("receipt.event_id"): "EVENT_NOT_FOUND",
		"/v1/gates/" + gate.text("gate_id"):            "GATE_NOT_FOUND",
		"/v1/audit/" + audit.text("audit_id"):          "AUDIT_NOT_FOUND",
		"/v1/actors/ana":                               "ACTOR_NOT_FOUND",
		"/v1/memory?machine=m1":                        "ACTOR_NOT_FOUND",
	} {
		f.do("other:root", "GET", path, "").want(404, code)
	}
	f.do("other:root", "GET", "/v1/tasks", "").want(200).has("items", "[]", "scope.fleet", "other", "scope.to", "24")
	f.do("other:root", "POST", "/v1/tasks/"+task+"/cancel", "").want(404, "TASK_NOT_FOUND")
	// The same event id is another event there.
	f.do("other:root", "POST", "/v1/events", `{"specversion":"1.0","id":"e1","source":"/b","type":"ext.a","subject":"ext-a"}`).want(201).has("receipt.position", "25")
}

// raw sends bytes and reads one answer, closing its side of the connection.
func (f *fleet) raw(request string) *http.Response {
	f.t.Helper()
	conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, request); err != nil {
		f.t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		f.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		f.t.Fatal(err)
	}
	return resp
}

// Who is refused is told at once, whatever of the body is still to come, and told all
// the same if it goes on sending.
func TestRefusedBeforeTheBody(t *testing.T) {
	f := newFleet(t)
	for _, sends := range []int{0, 4 << 20} {
		conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		head := "POST /v1/gates HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.tokens["root"] + "\r\nContent-Type: application/json\r\nContent-Length: 100000000\r\n\r\n"
		if _, err := io.WriteString(conn, head+strings.Repeat(" ", sends)); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 413 || !strings.Contains(string(body), "BODY_TOO_LARGE") {
			t.Errorf("%d bytes sent: %d %s %v", sends, resp.StatusCode, body, err)
		}
	}
}

// Who waited to be told to send, and sends too much, is told so all the same.
func TestRefusedWithinTheBody(t *testing.T) {
	f := newFleet(t)
	for _, head := range []string{"POST /v1/gates HTTP/1.1\r\nAuthorization: Bearer " + f.tokens["root"] + "\r\n", "POST /v1/pairings/redeem HTTP/1.1\r\n"} {
		conn, err := net.Dial("tcp", f.server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		fmt.Fprint(conn, head+"Host: x\r\nExpect: 100-continue\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
		if resp, err := http.ReadResponse(in, nil); err != nil || resp.StatusCode != http.StatusContinue {
			t.Fatalf("%v %v", resp, err)
		}
		chunk := "10000\r\n" + strings.Repeat(" ", 1<<16) + "\r\n"
		if _, err := io.WriteString(conn, strings.Repeat(chunk, 100)); err != nil {
			t.Errorf("it could not be sent: %v", err)
			continue
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != 413 || !strings.Contains(string(body), "BODY_TOO_LARGE") {
			t.Errorf("%d %s %v", resp.StatusCode, body, err)
		}
	}
}

func TestBodyCutOff(t *testing.T) {
	f := newFleet(t)
	head := "POST /v1/gates HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + f.tokens["root"] + "\r\nContent-Type: application/json\r\n"
	before := f.ledger.Log().Durable()
	for name, c := range map[string]struct {
		request string
		status  int
		code    string
	}{
		"short of its length": {"Content-Length: 30\r\n\r\n" + `{"action":"a"}`, 400, "BODY_CUT_OFF"},
		"within a chunk":      {"Transfer-Encoding: chunked\r\n\r\n1e\r\n" + `{"action":"a"}`, 400, "BODY_CUT_OFF"},
		"no last chunk":       {"Transfer-Encoding: chunked\r\n\r\ne\r\n" + `{"action":"a"}` + "\r\n", 400, "BODY_CUT_OFF"},
		"no chunk at all":     {"Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "BODY_UNREADABLE"},
		"too many chunks":     {"Transfer-Encoding: chunked\r\n\r\n" + strings.Repeat("10000\r\n"+strings.Repeat(" ", 1<<16)+"\r\n", 17) + "0\r\n\r\n", 413, "BODY_TOO_LARGE"},
	} {
		resp := f.raw(head + c.request)
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		a := answer{t, name, resp.StatusCode, resp.Header, body}
		a.check(nil, "POST", "/v1/gates")
		a.want(c.status, c.code)
	}
	if after := f.ledger.Log().Durable(); after != before {
		t.Errorf("%d events were recorded", after-before)
	}
}

// Every error has its status and its code; what is not foreseen is told to the
// operator alone.
func TestErrorTable(t *testing.T) {
	wrapped := func(err error) error { return fmt.Errorf("position 7: %w: with details", err) }
	for _, c := range []struct {
		err    error
		status int
		code   string
	}{
		{&commands.Refusal{Class: commands.Malformed, Code: "X"}, 400, "X"},
		{&commands.Refusal{Class: commands.Forbidden, Code: "X"}, 403, "X"},
		{&commands.Refusal{Class: commands.NotFound, Code: "X"}, 404, "X"},
		{&commands.Refusal{Class: commands.Conflict, Code: "X"}, 409, "X"},
		{&commands.Refusal{Class: commands.TooLarge, Code: "X"}, 413, "X"},
		{&commands.Refusal{Class: commands.Impossible, Code: "X"}, 422, "X"},
		{&commands.Refusal{Class: commands.TooMany, Code: "X"}, 429, "X"},
		{&commands.Refusal{Class: commands.Unavailable, Code: "X"}, 503, "X"},
		{wrapped(events.ErrTooLarge), 413, "APPEND_TOO_LARGE"},
		{wrapped(&events.TooLargeError{Bytes: 8, Limit: 7}), 413, "APPEND_TOO_LARGE"},
		{wrapped(events.ErrNoSpace), 507, "NO_SPACE"},
		{wrapped(syscall.ENOSPC), 507, "NO_SPACE"},
		{wrapped(fmt.Errorf("%w: %w", events.ErrFailed, syscall.ENOSPC)), 503, "LOG_FAILED"},
		{wrapped(seal.ErrNotOnDuty), 503, "NOT_ON_DUTY"},
		{wrapped(events.ErrUnavailable), 503, "LOG_UNAVAILABLE"},
		{wrapped(events.ErrFailed), 503, "LOG_FAILED"},
		{wrapped(events.ErrClosed), 503, "LOG_CLOSED"},
		{wrapped(context.DeadlineExceeded), 503, "TIMED_OUT"},
		{wrapped(context.Canceled), 503, "CANCELLED"},
		{&events.StrictError{Malformed: true}, 400, "MALFORMED_JSON"},
		{&events.StrictError{}, 400, "INVALID_FIELDS"},
	} {
		p := problemOf(c.err)
		if p == nil || p.status != c.status || p.code != c.code {
			t.Errorf("%v: %+v", c.err, p)
		}
	}
	if p := problemOf(&events.TooLargeError{Bytes: 8, Limit: 7}); p.facts["limit"] != 7 || p.facts["actual"] != 8 {
		t.Errorf("%+v", p.facts)
	}
	if p := problemOf(&events.CorruptError{Position: 7, Detail: "secret"}); p != nil {
		t.Errorf("a corrupt log is the caller's to know: %+v", p)
	}
}

func TestInternalErrorsStayInside(t *testing.T) {
	f := newFleet(t)
	for name, serve := range map[string]func(*call) error{
		"error": func(*call) error { return errors.New("the secret of the machine") },
		"panic": func(*call) error { panic("the secret of the machine") },
	} {
		f.relay.router.Get("/test/"+name, func(w http.ResponseWriter, r *http.Request) {
			c := &call{Relay: f.relay, op: &operation{method: "GET", path: "/test"}, w: w, r: r}
			defer c.recover()
			if err := c.enter(); err != nil {
				t.Error(err)
			}
			c.fail(serve(c))
		})
		a := f.do("root", "GET", "/test/"+name, "").want(500, "INTERNAL")
		if strings.Contains(string(a.body), "secret") {
			t.Errorf("%s: %s", name, a.body)
		}
		f.expectLogged("the secret of the machine")
	}
}

func TestDenialsAreLimited(t *testing.T) {
	f := newFleet(t).people()
	for range 60 {
		f.do("ana", "POST", "/v1/gates", `{"action":"nothing"}`).want(200).has("verdict", "deny", "decisive.reason_code", "NO_RULE")
	}
	a := f.unchanged(func() answer { return f.do("ana", "POST", "/v1/gates", `{"action":"nothing"}`) }).want(429, "DENIALS_LIMITED").has("limit", "60")
	if a.header.Get("Retry-After") != fmt.Sprint(a.get("retry_after_s")) {
		t.Errorf("Retry-After is %s, not %v", a.header.Get("Retry-After"), a.get("retry_after_s"))
	}
	f.do("bo", "POST", "/v1/gates", `{"action":"nothing"}`).want(200)
}

func TestClosedLog(t *testing.T) {
	f := newFleet(t)
	if err := f.ledger.Log().Close(); err != nil {
		t.Fatal(err)
	}
	f.do("root", "POST", "/v1/gates", `{"action":"a"}`).want(503, "LOG_CLOSED")
	f.do("root", "GET", "/v1/events", "").want(503, "LOG_CLOSED")
}

// A client that sends all of a body that is too large before it reads is answered
// all the same.
func TestLargeBodyIsAnswered(t *testing.T) {
	f := newFleet(t)
	body := `{"id":"` + strings.Repeat("x", 3<<20) + `"}`
	for range 20 {
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/actors", body) }).want(413, "BODY_TOO_LARGE")
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/nothing/here", body) }).want(404)
	}
}
