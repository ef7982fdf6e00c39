package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

// A task that a scope rule stops waits; a captain of the scope grants it; the
// machine claims, runs and reports; a reader concludes; the history tells it all.
func TestTaskFromApprovalToConclusion(t *testing.T) {
	f := newFleet(t).people()
	submitted := f.do("ana", "POST", "/v1/tasks", `{"argv":["make","test"],"targets":["m2"],"tags":["ci"]}`).want(202).
		has("status", "awaiting_approval", "gates.0.machine", "m2", "gates.0.decision.verdict", "needs_approval", "gates.0.decision.decisive.reason_code", "OUT_OF_SCOPE", "required_level", "50")
	task, approval := submitted.text("task_id"), submitted.text("approval_id")
	if submitted.text("receipt.stream") != "task-"+task || submitted.text("receipt.leaf_hash") == "" {
		t.Errorf("the receipt is %v", submitted.get("receipt"))
	}
	f.do("bo", "GET", "/v1/approvals?status=pending", "").want(200).
		has("items.0.approval_id", approval, "items.0.action", "task.submit.m2", "items.0.requested_by", "ana", "items.0.level", "10", "items.0.scope", "ops",
			"items.0.task_id", task, "items.0.command.argv", "[make test]", "items.0.may_settle", "false", "items.0.status", "pending", "items.0.tried_before", "[]", "scope.status", "pending")
	f.do("cy", "GET", "/v1/approvals/"+approval, "").want(200).has("may_settle", "true", "may_not_settle_because", "<nil>")
	f.do("ana", "GET", "/v1/approvals/"+approval, "").want(200).has("may_settle", "false")
	f.do("cy", "POST", "/v1/approvals/"+approval+"/settle", `{"outcome":"granted","reason":"go"}`).want(200).
		has("approval_id", approval, "outcome", "granted", "settled_by", "cy", "reason", "go", "task_id", task, "receipt.stream", "task-"+task)
	f.do("di", "POST", "/v1/approvals/"+approval+"/settle", `{"outcome":"refused","reason":"no"}`).want(409, "APPROVAL_ENDED").has("outcome", "granted", "settled_by", "cy")

	claim := f.do("m2", "POST", "/v1/tasks/"+task+"/claim", `{"machine":"m2"}`).want(200).
		has("attempt", "1", "command.argv", "[make test]", "command.mode", "single", "command.tags", "[ci]")
	if until, err := time.Parse(time.RFC3339, claim.text("lease_expires_at")); err != nil || !until.After(time.Now()) {
		t.Errorf("the lease expires at %s", claim.text("lease_expires_at"))
	}
	f.unchanged(func() answer { return f.do("m2", "POST", "/v1/tasks/"+task+"/attempts/1/heartbeat", "") }).want(200)
	report := `{"envelope":` + strings.ReplaceAll(strings.Replace(envelope, `"exit_code":0`, `"exit_code":2,"repo":"r","commit":"c","cwd":"/w"`, 1), "m1", "m2") + `}`
	reported := f.do("m2", "POST", "/v1/tasks/"+task+"/attempts/1/report", report).want(200).has("late", "false", "status", "settled", "verdict", "failed")
	again := f.unchanged(func() answer { return f.do("m2", "POST", "/v1/tasks/"+task+"/attempts/1/report", report) }).want(200)
	if string(reported.body) != string(again.body) {
		t.Errorf("the same envelope is answered %s, then %s", reported.body, again.body)
	}
	f.do("bo", "GET", "/v1/tasks/"+task, "").want(200).has("status", "settled", "verdict", "failed", "submitted_by", "ana", "approval_id", approval, "argv", "[make test]",
		"legs.0.machine", "m2", "legs.0.status", "reported", "legs.0.attempts.0.exit_code", "2", "legs.0.attempts.0.envelope.stdout.tail", "ok\n",
		"legs.0.attempts.0.envelope.ended_at", "2026-03-01T09:00:01.500000Z", "gates.0.decision.verdict", "needs_approval")
	f.do("bo", "GET", "/v1/tasks", "").want(200).has("items.0.legs.0.attempts.0.exit_code", "2", "items.0.legs.0.attempts.0.envelope", "<nil>")

	concluded := f.do("bo", "POST", "/v1/conclusions", `{"about":{"task_id":"`+task+`"},"text":"the disk is full"}`).want(201).
		has("conclusion.by", "bo", "conclusion.subject.argv", "[make test]", "conclusion.subject.exit_code", "2", "conclusion.supersedes", "<nil>", "conclusion.about.task_id", task)
	f.do("bo", "POST", "/v1/conclusions", `{"about":{"record_id":"`+reported.text("receipt.event_id")+`"},"text":"no, the cache","supersedes":"`+concluded.text("conclusion_id")+`"}`).want(201)
	f.do("bo", "POST", "/v1/conclusions", `{"about":null,"text":"disks fill up"}`).want(201).has("receipt.stream", "collective")
	f.do("bo", "GET", "/v1/conclusions?about="+task, "").want(200).has("items.0.text", "the disk is full", "items.1", "<nil>", "scope.about", task)

	history := f.do("bo", "GET", "/v1/tasks/"+task+"/history", "").want(200)
	var kinds []string
	last := 0.0
	for _, e := range history.list("events") {
		kinds = append(kinds, member(e, "type").(string))
		if p := member(e, "position").(float64); p <= last || member(e, "leaf_hash") == "" || member(e, "data") == nil {
			t.Errorf("event %v", e)
		} else {
			last = p
		}
	}
	want := "[task.submitted gate.decided approval.requested approval.settled task.opened task.claimed task.reported task.settled conclusion.recorded conclusion.recorded]"
	if fmt.Sprint(kinds) != want {
		t.Errorf("the history is\n%v, not\n%v", kinds, want)
	}
	f.do("bo", "GET", "/v1/tasks/"+task+"/history?at="+fmt.Sprint(submitted.get("receipt.position")), "").want(200).has("events.0.type", "task.submitted", "events.1", "<nil>")

	// What was tried.
	f.do("bo", "GET", "/v1/tried?q=make+test", "").want(200).has("answers.0.command", "make test", "answers.0.why_matched", "same_command", "answers.0.runs", "1", "answers.0.failed", "1",
		"answers.0.succeeded", "0", "answers.0.machine", "m2", "answers.0.repo", "r", "answers.0.last.task_id", task, "answers.0.last.exit_code", "2", "answers.0.last.commit", "c",
		"answers.0.last.stdout_tail", "ok\n", "answers.0.conclusions.0.text", "no, the cache", "answers.0.conclusions.1.text", "the disk is full", "scope.q", "make test")
	f.do("bo", "GET", "/v1/tried?q=full", "").want(200).has("answers.0.command", "make test", "answers.0.why_matched", "same_phrase")
	f.do("bo", "GET", "/v1/tried?q=nothing+like+it", "").want(200).has("answers", "[]")
	f.do("bo", "GET", "/v1/memory?machine=m2&argv=make+test", "").want(200).has("items.0.record_id", reported.text("receipt.event_id"), "items.0.task_id", task,
		"items.0.stdout.tail", "ok\n", "items.0.conclusion", "<nil>", "items.0.conclusions.0.text", "no, the cache", "items.0.tags", "[ci]", "items.0.cwd", "/w")
	f.do("bo", "GET", "/v1/memory?machine=m2&argv=make&argv=test", "").want(200).has("items.0.exit_code", "2", "scope.command", "make test")
	f.do("bo", "GET", "/v1/memory?machine=m2&argv=make", "").want(200).has("items", "[]")

	// The next approval of the same command tells of it.
	second := f.do("ana", "POST", "/v1/tasks", `{"argv":["make","test"],"targets":["m2"]}`).want(202).text("approval_id")
	f.do("cy", "GET", "/v1/approvals/"+second, "").want(200).has("tried_before.0.exit_code", "2", "tried_before.0.task_id", task)
	f.do("cy", "GET", fmt.Sprintf("/v1/approvals/%s?at=%v", approval, submitted.get("receipt.position")), "").want(404, "APPROVAL_NOT_FOUND")
}

// A grant lifts the rule that stopped a command, not a stricter one behind it: who
// does not pass every rule may not grant.
func TestGrantDoesNotBypassAStricterRule(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"task.submit.m2","min_level":70,"why":"m2 is production"}`).want(201)
	a := f.do("ana", "POST", "/v1/tasks", `{"argv":["rm","x"],"targets":["m2"]}`).want(202).has("gates.0.decision.decisive.reason_code", "OUT_OF_SCOPE", "required_level", "70")
	f.do("cy", "POST", "/v1/approvals/"+a.text("approval_id")+"/settle", `{"outcome":"granted","reason":"go"}`).want(403, "APPROVER_NOT_ENTITLED").
		has("reason_code", "APPROVER_NOT_ALLOWED", "required_level", "70")
	f.do("cy", "GET", "/v1/approvals/"+a.text("approval_id"), "").want(200).has("may_settle", "false")
	f.do("di", "POST", "/v1/approvals/"+a.text("approval_id")+"/settle", `{"outcome":"granted","reason":"go"}`).want(200)
	f.do("ana", "GET", "/v1/tasks/"+a.text("task_id"), "").want(200).has("status", "open")
}

// A stopped command changes nothing; the same request with the granted approval is
// carried out once; with one argument changed it is another request.
func TestApprovalOfACommand(t *testing.T) {
	f := newFleet(t).people()
	body := `{"action":"deploy.prod","min_level":20}`
	stopped := f.do("cy", "POST", "/v1/rules", body).want(202).has("verdict", "needs_approval", "decision.action", "rule.write",
		"decision.decisive.reason_code", "BELOW_MINIMUM", "required_level", "70", "actions", "[rule.write]")
	approval := stopped.text("approval_id")
	if stopped.text("receipt.stream") != "gate-"+stopped.text("gate_id") {
		t.Errorf("the receipt is %v", stopped.get("receipt"))
	}
	with := func(body string) answer { return f.do("cy", "POST", "/v1/rules", body, "Approval-Id", approval) }
	f.unchanged(func() answer { return with(body) }).want(409, "APPROVAL_NOT_GRANTED").has("approval_status", "pending", "status", "409")
	f.do("cy", "GET", "/v1/gates/"+stopped.text("gate_id"), "").want(200).has("verdict", "needs_approval", "approval.status", "pending", "spent", "false", "command.command", "rule.write")
	f.do("di", "POST", "/v1/approvals/"+approval+"/settle", `{"outcome":"granted","reason":"ok"}`).want(200).has("task_id", "<nil>")
	f.unchanged(func() answer { return with(strings.Replace(body, "20", "10", 1)) }).want(409, "COMMAND_CHANGED")
	f.unchanged(func() answer { return f.do("bo", "POST", "/v1/rules", body, "Approval-Id", approval) }).want(403)
	written := with(body).want(201).has("rule.action", "deploy.prod", "receipt.stream", "authority")
	f.do("cy", "GET", "/v1/gates/"+stopped.text("gate_id"), "").want(200).has("approval.status", "granted", "approval.settled_by", "di", "spent", "true")
	f.unchanged(func() answer { return with(body) }).want(409, "APPROVAL_SPENT")
	f.do("cy", "GET", "/v1/rules?limit=1000", "").want(200)
	f.do("root", "DELETE", "/v1/rules/"+written.text("rule_id"), "").want(200)
}

// Registering an actor is stopped for who lacks the level, and goes on with its
// approval, token and all.
func TestRegistrationWithAnApproval(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"actor.register","min_level":0,"scope":"staff"}`).want(201)
	f.do("root", "PATCH", "/v1/actors/di", `{"authority_level":70}`).want(200)
	body := `{"id":"new","kind":"human","authority_level":5}`
	stopped := f.do("di", "POST", "/v1/actors", body).want(202).has("decision.decisive.reason_code", "OUT_OF_SCOPE", "required_level", "90")
	approval := stopped.text("approval_id")
	f.do("root", "GET", "/v1/actors/new", "").want(404)
	f.do("root", "POST", "/v1/approvals/"+approval+"/settle", `{"outcome":"granted","reason":"ok"}`).want(403, "APPROVER_NOT_ENTITLED") // outside the scope too
	f.do("root", "PATCH", "/v1/actors/root", `{"add_scopes":["staff"]}`).want(200)
	f.do("root", "POST", "/v1/approvals/"+approval+"/settle", `{"outcome":"granted","reason":"ok"}`).want(200)
	key := newKey()
	a := f.do("di", "POST", "/v1/actors", body, "Approval-Id", approval, "Idempotency-Key", key).want(201).has("actor.registered_by", "di", "actor.authority_level", "5", "receipt.stream", "authority")
	f.tokens["new"] = a.text("token")
	f.do("new", "GET", "/v1/actors/new", "").want(200).has("authority_level", "5", "tokens.1", "<nil>")
	f.unchanged(func() answer {
		return f.do("di", "POST", "/v1/actors", body, "Approval-Id", approval, "Idempotency-Key", key)
	}).want(201).has("token", "<nil>")
}

func TestGateAskedAndSpent(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"deploy","min_level":50}`).want(201)
	command := `{"to":"prod","n":1}`
	f.do("cy", "POST", "/v1/gates", `{"action":"deploy"}`).want(200).has("verdict", "allow", "decisive", "<nil>", "evaluated.0.reason_code", "MEETS_MINIMUM")
	plain := f.do("ana", "POST", "/v1/gates", `{"action":"deploy","command":`+command+`}`).want(200).has("verdict", "needs_approval", "approval_id", "<nil>", "decisive.reason_code", "BELOW_MINIMUM", "level", "10")
	f.do("ana", "POST", "/v1/gates/"+plain.text("gate_id")+"/spend", `{"command":`+command+`}`).want(409, "APPROVAL_NOT_GRANTED")
	a := f.do("ana", "POST", "/v1/gates", `{"action":"deploy","command":`+command+`,"request_approval":true}`).want(200).has("required_level", "50")
	gate := "/v1/gates/" + a.text("gate_id")
	f.do("ana", "POST", gate+"/spend", `{"command":`+command+`}`).want(409, "APPROVAL_NOT_GRANTED")
	f.do("cy", "POST", "/v1/approvals/"+a.text("approval_id")+"/settle", `{"outcome":"granted","reason":"go"}`).want(200)
	f.unchanged(func() answer { return f.do("bo", "POST", gate+"/spend", `{"command":`+command+`}`) }).want(403, "NOT_REQUESTER")
	f.unchanged(func() answer { return f.do("ana", "POST", gate+"/spend", `{"command":{"to":"prod","n":2}}`) }).want(409, "COMMAND_CHANGED")
	f.do("ana", "POST", gate+"/spend", `{"command":{"n":1.0,"to":"prod"}}`).want(200).has("spent", "true", "approver", "cy", "approval_id", a.text("approval_id"))
	f.unchanged(func() answer { return f.do("ana", "POST", gate+"/spend", `{"command":`+command+`}`) }).want(409, "APPROVAL_SPENT")
	f.do("bo", "GET", gate, "").want(200).has("spent", "true", "approval.status", "granted", "command.to", "prod")
	f.do("bo", "GET", gate+"?at="+fmt.Sprint(a.get("receipt.position")), "").want(200).has("spent", "false", "approval", "<nil>")

	// Rules that changed meanwhile, and time.
	b := f.do("ana", "POST", "/v1/gates", `{"action":"deploy","request_approval":true}`).want(200)
	f.do("cy", "POST", "/v1/approvals/"+b.text("approval_id")+"/settle", `{"outcome":"granted","reason":"go"}`).want(200)
	f.do("root", "PATCH", "/v1/actors/cy", `{"suspended":true}`).want(200)
	f.do("ana", "POST", "/v1/gates/"+b.text("gate_id")+"/spend", "").want(409, "RULES_CHANGED")
	f.do("root", "PATCH", "/v1/actors/cy", `{"suspended":false}`).want(200)
	f.skew.Add(int64(25 * time.Hour))
	f.do("ana", "POST", "/v1/gates/"+b.text("gate_id")+"/spend", "").want(409, "APPROVAL_EXPIRED")
}

func TestSettlingSeveralAtOnce(t *testing.T) {
	f := newFleet(t).people()
	var ids []string
	for range 3 {
		ids = append(ids, f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202).text("approval_id"))
	}
	own := f.do("cy", "POST", "/v1/rules", `{"action":"a.b","min_level":1}`).want(202).text("approval_id")
	body := fmt.Sprintf(`{"settlements":[{"approval_id":%q,"outcome":"granted","reason":"a"},{"approval_id":"none","outcome":"granted","reason":""},
		{"approval_id":%q,"outcome":"granted","reason":""},{"approval_id":%q,"outcome":"refused","reason":"b"},{"approval_id":%[1]q,"outcome":"refused","reason":"c"},{"approval_id":%[4]q,"outcome":"maybe","reason":"c"}]}`,
		ids[0], own, ids[1], ids[2])
	key := newKey()
	a := f.do("cy", "POST", "/v1/approvals/settle", body, "Idempotency-Key", key).want(200).has(
		"results.0.status", "200", "results.0.outcome", "granted", "results.0.approval_id", ids[0],
		"results.1.status", "404", "results.1.problem.code", "APPROVAL_NOT_FOUND",
		"results.2.status", "403", "results.2.problem.code", "APPROVER_NOT_ENTITLED",
		"results.3.status", "200", "results.3.outcome", "refused",
		"results.4.status", "409", "results.4.problem.code", "APPROVAL_ENDED",
		"results.5.status", "422", "results.5.problem.code", "INVALID")
	again := f.unchanged(func() answer { return f.do("cy", "POST", "/v1/approvals/settle", body, "Idempotency-Key", key) }).want(200)
	if string(a.body) != string(again.body) {
		t.Errorf("%s\nthen %s", a.body, again.body)
	}
	// A key is bound with all its settlements, those that were refused too.
	f.unchanged(func() answer {
		return f.do("cy", "POST", "/v1/approvals/settle", `{"settlements":[{"approval_id":"`+ids[2]+`","outcome":"granted","reason":"a"}]}`, "Idempotency-Key", key)
	}).want(409, "IDEMPOTENCY_MISMATCH")
	f.do("ana", "GET", "/v1/approvals?status=refused", "").want(200).has("items.0.approval_id", ids[1], "items.0.reason", "b", "items.0.settled_by", "cy")
}

func TestAttemptsLapseAndComeLate(t *testing.T) {
	f := newFleet(t).people()
	a := f.do("ana", "POST", "/v1/tasks", `{"argv":["sleep"],"targets":["m1"],"attempts":2}`).want(201)
	task := "/v1/tasks/" + a.text("task_id")
	f.do("m1", "POST", task+"/claim", `{"machine":"m1"}`).want(200)
	f.skew.Add(int64(time.Minute))
	if err := f.ledger.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.do("m1", "POST", task+"/attempts/1/heartbeat", "").want(409, "ATTEMPT_ENDED").has("task_status", "open")
	f.do("m1", "POST", task+"/claim", `{"machine":"m1"}`).want(200).has("attempt", "2")
	f.do("m1", "POST", task+"/attempts/1/report", `{"envelope":`+envelope+`}`).want(200).has("late", "true", "status", "open", "verdict", "<nil>")
	f.do("m1", "POST", task+"/attempts/2/report", `{"envelope":`+strings.Replace(envelope, `"exited","exit_code":0`, `"timed_out"`, 1)+`}`).want(200).has("late", "false", "status", "settled", "verdict", "timed_out")
	f.do("ana", "GET", task, "").want(200).has("legs.0.attempts.0.lapsed", "true", "legs.0.attempts.0.late", "true", "legs.0.attempts.1.outcome", "timed_out", "legs.0.attempts.1.exit_code", "<nil>")
	f.do("ana", "GET", "/v1/memory?machine=m1", "").want(200).has("items.0.outcome", "timed_out", "items.1.late", "true")
}

func TestSplitAndReplicate(t *testing.T) {
	f := newFleet(t).people()
	f.register("root", `{"id":"m3","kind":"machine","authority_level":10}`)
	a := f.do("ana", "POST", "/v1/tasks", `{"mode":"split","parts":[["a"],["b"]],"targets":["m1","m3"]}`).want(201)
	f.do("m3", "POST", "/v1/tasks/"+a.text("task_id")+"/claim", `{"machine":"m3"}`).want(200).has("command.argv", "[b]", "command.mode", "split", "attempt", "1")
	f.do("m1", "POST", "/v1/tasks/"+a.text("task_id")+"/claim", `{"machine":"m1"}`).want(200).has("command.argv", "[a]", "attempt", "2")
	b := f.do("ana", "POST", "/v1/tasks", `{"argv":["x"],"targets":["m1","m3"],"quorum":1}`).want(201)
	f.do("ana", "GET", "/v1/tasks/"+b.text("task_id"), "").want(200).has("mode", "replicate", "quorum", "1", "legs.1.machine", "m3", "legs.1.status", "offered")
}

func TestActors(t *testing.T) {
	f := newFleet(t).people()
	f.do("ana", "GET", "/v1/actors/bot", "").want(200).has("kind", "agent", "parent", "ana", "authority_level", "10", "effective_level", "10", "cap", "<nil>", "registered_by", "ana", "active", "true")
	capped := f.register("cy", `{"id":"cybot","kind":"agent","parent":"cy","authority_level":90,"cap":55,"scopes":["ops"]}`).
		has("capped", "true", "actor.authority_level", "55", "actor.effective_level", "55", "actor.cap", "55", "actor.scopes", "[ops]", "actor.parent", "cy")
	if capped.text("reason") == "" {
		t.Error("no reason for the cap")
	}
	before := capped.get("receipt.position")
	f.do("root", "PATCH", "/v1/actors/cy", `{"authority_level":20,"remove_scopes":["ops"]}`).want(200).has("actor.authority_level", "20", "actor.scopes", "[]", "receipt.stream", "authority")
	f.do("ana", "GET", "/v1/actors/cybot", "").want(200).has("authority_level", "55", "effective_level", "20", "scopes", "[]")
	f.do("ana", "GET", fmt.Sprintf("/v1/actors/cybot?at=%v", before), "").want(200).has("effective_level", "55", "scopes", "[ops]", "tokens", "[]")
	f.do("ana", "GET", fmt.Sprintf("/v1/actors/cybot?at=%v", before.(float64)+1), "").want(200).has("tokens.1", "<nil>")
	f.do("ana", "GET", fmt.Sprintf("/v1/actors/cybot?at=%v", before.(float64)-1), "").want(404)
	same := f.unchanged(func() answer { return f.do("root", "PATCH", "/v1/actors/cy", `{"authority_level":20}`) }).want(200).has("receipt", "<nil>", "actor.authority_level", "20")
	if same.get("actor.id") != "cy" {
		t.Errorf("%s", same.body)
	}
	f.do("ana", "PATCH", "/v1/actors/bo", `{"suspended":true}`).want(403, "LEVEL_NOT_ABOVE")
	f.do("ana", "PATCH", "/v1/actors/bot", `{"suspended":true}`).want(202).has("decision.action", "actor.change")
	f.do("root", "PATCH", "/v1/actors/di", `{"suspended":true}`).want(200)
	f.do("root", "PATCH", "/v1/actors/root", `{"suspended":true}`).want(422, "LOCKOUT")
	f.do("root", "PATCH", "/v1/actors/ana", `{"suspended":true}`).want(200)

	// A machine of a scope brings its rule.
	rules := f.do("root", "GET", "/v1/rules?limit=1000", "").want(200).list("items")
	last := rules[len(rules)-1]
	if got := fmt.Sprint(member(last, "rule.action"), member(last, "rule.scope"), member(last, "rule.matching_exempt_level"), member(last, "written_by")); got != "task.submit.m2ops70root" && got != "task.submit.m2 ops 70 root" {
		t.Errorf("the last rule is %v", last)
	}
}

func TestMemory(t *testing.T) {
	f := newFleet(t).people()
	a := f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["echo","it's"],"tags":["x"],"conclusion":null,"dirty":null,`+envelope[1:]+`}`).want(201)
	if a.text("record_id") != a.text("receipt.event_id") || a.text("receipt.stream") != "machine-m1" {
		t.Errorf("%s", a.body)
	}
	f.do("bo", "POST", "/v1/memory", `{"imported_from":"atuin","record":{"argv":["ls"],`+strings.Replace(envelope, `"m1"`, `"elsewhere"`, 1)[1:]+`}`).want(201)
	f.do("bo", "GET", "/v1/memory", "").want(200).has("items.0.imported_from", "atuin", "items.1.argv", "[echo it's]", "items.1.command", `echo 'it'\''s'`, "items.1.started_at", "2026-03-01T09:00:00.000000Z")
	f.do("bo", "GET", "/v1/memory?machine=elsewhere", "").want(200).has("items.0.machine", "elsewhere")
	within := `"record":{"argv":["ls"],"imported_from":"w2m",` + strings.Replace(envelope, `"m1"`, `"third"`, 1)[1:] + `}`
	f.do("bo", "POST", "/v1/memory", `{`+within).want(201)
	f.do("bo", "GET", "/v1/memory?machine=third", "").want(200).has("items.0.imported_from", "w2m")
	f.do("bo", "POST", "/v1/memory", `{"imported_from":"atuin",`+within).want(422, "INVALID")
	f.do("bo", "GET", "/v1/memory?machine=m1&at="+fmt.Sprint(a.get("receipt.position")), "").want(200).has("items.0.record_id", a.text("record_id"))
	f.do("bo", "GET", "/v1/memory?machine=m1&at=25", "").want(404)
	f.do("bo", "GET", "/v1/memory?machine=m2", "").want(404, "MEMORY_NOT_HERE").has("machine", "m2")
	f.do("bo", "GET", "/v1/conclusions?about=none", "").want(200).has("items", "[]", "scope.about", "none")
}

func TestAudit(t *testing.T) {
	f := newFleet(t).people()
	f.ran(f.submit("ana", "ls", "m1"))
	a := f.do("bo", "POST", "/v1/audit", "").want(201).has("started_by", "bo", "report", "<nil>")
	path := "/v1/audit/" + a.text("audit_id")
	deadline := time.Now().Add(5 * time.Second)
	for a.text("status") == "running" || a.get("report") == nil {
		if time.Now().After(deadline) {
			t.Fatalf("the audit does not end: %s", a.body)
		}
		a = f.do("bo", "GET", path, "").want(200)
	}
	a.has("status", "done", "report.ok", "true", "report.findings", "[]", "progress.done", fmt.Sprint(f.ledger.Log().Durable()), "report.to", fmt.Sprint(f.ledger.Log().Durable()))
	if a.get("report.decisions_rederived").(float64) == 0 || a.get("report.projections_compared").(float64) == 0 {
		t.Errorf("%s", a.body)
	}
	f.relay.Drain()
	f.do("bo", "POST", "/v1/audit", "").want(503, "DRAINING")
	f.do("bo", "GET", path, "").want(200)
}

func TestLimits(t *testing.T) {
	newFleet(t).do("root", "GET", "/v1/limits", "").want(200).has("payload_bytes", "65536", "batch_events", "1000", "batch_bytes", fmt.Sprint(float64(1<<20)),
		"argv_items", "256", "argv_bytes", "32768", "tail_bytes", "4096", "approvals_per_minute", "60", "denials_per_minute", "60", "json_depth", fmt.Sprint(events.MaxJSONDepth))
}
