package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"fleetledger/events"
)

// leaked is a word that no rule knows for a secret, in every kind of payload that
// can be erased.
const leaked = "xyzzy-plugh"

// erasedWorld is a fleet in which leaked stands in one payload of each kind.
type erasedWorld struct {
	*fleet
	task     string
	requests []erasedRequest
}

// erasedRequest is one that recorded a payload with leaked in it.
type erasedRequest struct {
	as, method, path, body, key string
	first                       answer
}

func newErasedWorld(t *testing.T) *erasedWorld {
	f := &erasedWorld{fleet: newFleet(t).people()}
	do := func(as, method, path, body string) answer {
		t.Helper()
		key := newKey()
		a := f.do(as, method, path, body, "Idempotency-Key", key)
		if a.status/100 != 2 {
			t.Fatalf("%s: %d %s", a.what, a.status, a.body)
		}
		f.requests = append(f.requests, erasedRequest{as, method, path, body, key, a})
		return a
	}
	f.task = do("ana", "POST", "/v1/tasks", `{"argv":["login","`+leaked+`"],"targets":["m1"],"tags":["`+leaked+`"]}`).text("task_id")
	f.do("m1", "POST", "/v1/tasks/"+f.task+"/claim", `{"machine":"m1"}`).want(200)
	printed := strings.Replace(envelope, `"ok\n"`, `"`+leaked+`\n"`, 1)
	do("m1", "POST", "/v1/tasks/"+f.task+"/attempts/1/report", `{"envelope":`+printed+`}`)
	do("ana", "POST", "/v1/conclusions", `{"about":{"task_id":"`+f.task+`"},"text":"`+leaked+` works"}`)
	cancelled := f.submit("ana", "sleep", "m1")
	do("ana", "POST", "/v1/tasks/"+cancelled+"/cancel", `{"reason":"`+leaked+` was in it"}`)
	do("m1", "POST", "/v1/memory", `{"record":{"argv":["login","`+leaked+`"],`+printed[1:]+`}`)
	f.do("cy", "PUT", "/v1/collective/sections/hints", `{"heading":"Hints","text":"none"}`).want(200)
	do("cy", "PUT", "/v1/collective/sections/hints", `{"heading":"Hints","text":"say `+leaked+`"}`)
	do("cy", "PUT", "/v1/collective/sections/words", `{"heading":"Words","text":"say `+leaked+`"}`)
	do("ana", "POST", "/v1/events", `{"specversion":"1.0","id":"leak","source":"/a","type":"ext.a","subject":"ext-a","data":"`+leaked+`"}`)
	do("ana", "POST", "/v1/events", `[{"specversion":"1.0","id":"leak2","source":"/a","type":"ext.a","subject":"ext-a","data":"`+leaked+`"}]`)
	return f
}

// eventID is the id of the event that a request recorded.
func (r erasedRequest) eventID() string {
	if id := r.first.text("receipt.event_id"); id != "" {
		return id
	}
	return r.first.text("receipts.0.event_id")
}

// telling lists the answers of every reading path in which leaked stands.
func (f *erasedWorld) telling() (out []string) {
	f.t.Helper()
	head := fmt.Sprint(f.ledger.Log().Durable())
	paths := []string{
		"/v1/events?limit=1000", "/v1/tasks", "/v1/tasks/" + f.task, "/v1/tasks/" + f.task + "/history", "/v1/tasks/" + f.task + "/evidence", "/v1/memory",
		"/v1/memory?machine=m1", "/v1/memory?argv=login&argv=" + leaked, "/v1/tried?q=login", "/v1/tried", "/v1/conclusions", "/v1/conclusions?about=" + f.task,
		"/v1/collective", "/v1/collective/sections/hints", "/v1/collective/sections/words", "/v1/events/leak", "/v1/events/leak2",
		"/v1/approvals", "/log/tile/entries/000.p/" + head,
	}
	for _, r := range f.requests {
		paths = append(paths, "/v1/events/"+r.eventID())
	}
	for _, p := range []string{"/v1/tasks", "/v1/tasks/" + f.task, "/v1/tasks/" + f.task + "/history", "/v1/memory", "/v1/conclusions", "/v1/collective", "/v1/collective/sections/words"} {
		for at := f.ledger.Log().Durable() - 20; at <= f.ledger.Log().Durable(); at++ {
			paths = append(paths, p+"?at="+fmt.Sprint(at))
		}
	}
	for _, p := range paths {
		a := f.do("root", "GET", p, "", "Accept", "application/json, */*")
		if a.status != 200 && a.status != 404 {
			f.t.Errorf("GET %s: %d %s", p, a.status, a.body)
		}
		body := strings.ReplaceAll(string(a.body), `"q":"`+leaked, "")
		body = strings.ReplaceAll(body, `"command":"login `+leaked+`","output"`, "") // the question
		if strings.Contains(body, leaked) {
			out = append(out, p+" "+body)
		}
	}
	r := f.follow("root", "/v1/events/stream?after=0")
	for {
		e, ok := r.next()
		if !ok {
			f.t.Fatal("the stream has ended")
		}
		if strings.Contains(fmt.Sprint(e.data), leaked) {
			out = append(out, "SSE "+e.id)
		}
		if e.id == head {
			break
		}
	}
	r.resp.Body.Close()
	return out
}

// What was erased is in no answer any more, of no path, as of no position, in no
// repeated request; and everything else is still there.
func TestErasureReachesEverything(t *testing.T) {
	f := newErasedWorld(t)
	if n := len(f.telling()); n < 20 {
		t.Fatalf("only %d answers tell the word: this test looks in the wrong places", n)
	}
	f.do("bo", "GET", "/v1/tried?q=login", "").want(200).has("answers.0.runs", "2")
	for _, r := range slices.Backward(f.requests) { // or a conclusion would go with its task
		a := f.do("root", "POST", "/v1/events/"+r.eventID()+"/erase", `{"reason":"it was leaked"}`).want(200).has("event_id", r.eventID(), "receipt.stream", "ledger", "reason", "it was leaked")
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/events/"+r.eventID()+"/erase", `{"reason":"again"}`) }).want(409, "ALREADY_ERASED").
			has("erased_by", "root", "erasure_position", fmt.Sprint(a.get("receipt.position")))
		f.do("bo", "GET", "/v1/events/"+r.eventID(), "").want(200).has("erased", "true", "data", "<nil>", "erasure.by", "root", "erasure.reason", "it was leaked",
			"erasure.position", fmt.Sprint(a.get("receipt.position")))
	}
	check := func(when string) {
		t.Helper()
		for _, told := range f.telling() {
			t.Errorf("%s: still told: %s", when, told)
		}
		for _, r := range f.requests {
			a := f.unchanged(func() answer { return f.do(r.as, r.method, r.path, r.body, "Idempotency-Key", r.key) }).want(r.first.status)
			for _, m := range []string{"receipt", "receipts", "task_id", "record_id", "conclusion_id", "status", "verdict", "late", "section.slug", "section.revision"} {
				if got, want := fmt.Sprint(a.get(m)), fmt.Sprint(r.first.get(m)); got != want {
					t.Errorf("%s: %s: asked again, %s is %s, not %s", when, a.what, m, got, want)
				}
			}
			if strings.Contains(string(a.body), leaked) {
				t.Errorf("%s: asked again, %s answers %s", when, a.what, a.body)
			}
			f.unchanged(func() answer { return f.do(r.as, r.method, r.path, r.body+" ", "Idempotency-Key", r.key) }).want(409, "IDEMPOTENCY_MISMATCH")
		}
		f.do("bo", "GET", "/v1/tasks/"+f.task, "").want(200).has("command_erased", "true", "status", "settled", "verdict", "succeeded", "argv", "[]",
			"legs.0.machine", "m1", "legs.0.status", "reported", "legs.0.attempts.0.erased", "true", "legs.0.attempts.0.late", "false", "submitted_by", "ana")
		f.do("bo", "GET", "/v1/collective/sections/words", "").want(200).has("section.erased", "true", "section.text", "", "history.0.erased", "true")
		f.do("bo", "GET", "/v1/collective/sections/hints", "").want(200).has("section.erased", "true", "history.0.erased", "true", "history.1.heading", "Hints")
		f.do("bo", "GET", "/v1/tried?q=login", "").want(200).has("answers", "[]")
		f.do("bo", "GET", "/v1/memory", "").want(200).has("items", "[]")
		f.do("bo", "GET", "/v1/conclusions", "").want(200).has("items", "[]")
	}
	check("at once")

	// Life goes on.
	f.do("m1", "POST", "/v1/tasks/"+f.task+"/attempts/1/report", `{"envelope":`+envelope+`}`).want(409, "ALREADY_REPORTED")
	f.do("m1", "POST", "/v1/tasks/"+f.task+"/claim", `{"machine":"m1"}`).want(409, "ALREADY_CLAIMED")
	said := f.do("ana", "POST", "/v1/conclusions", `{"about":{"task_id":"`+f.task+`"},"text":"it ran"}`).want(201)
	f.do("root", "POST", "/v1/events/"+said.text("conclusion_id")+"/erase", `{"reason":"it did not"}`).want(200)
	f.do("cy", "PUT", "/v1/collective/sections/more", `{"heading":"More","text":"none"}`).want(200)
	f.do("bo", "GET", "/v1/collective", "", "Accept", "application/json").want(200).has("sections.0.slug", "more", "sections.1", "<nil>")
	more := f.do("cy", "DELETE", "/v1/collective/sections/more", "").want(200)
	f.do("root", "POST", "/v1/events/"+more.text("receipt.event_id")+"/erase", `{"reason":"x"}`).want(422, "NOT_ERASABLE")

	f.restart()
	check("after a restart")
}

func TestErasureIsRefused(t *testing.T) {
	f := newFleet(t).people()
	f.ext("e")
	for _, body := range []string{`{"reason":""}`, `{"reason":"  "}`, `{"reason":"` + strings.Repeat("x", 1001) + `"}`} {
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/events/e/erase", body) }).want(422, "INVALID").has("problems.0.path", "/reason")
	}
	for _, body := range []string{`{}`, `{"reason":null}`, `{"reason":1}`, ``, `{"reason":"x","more":1}`} {
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/events/e/erase", body) }).want(400)
	}
	secret := "ghp_" + "q7ZtR2mXw9KbL4vNc8Yd" + "J3hFs6GpUa1TeQ5i"
	f.unchanged(func() answer { return f.do("root", "POST", "/v1/events/e/erase", `{"reason":"it held `+secret+`"}`) }).want(422, "SECRET_IN_TEXT")
	for _, id := range []string{"none", "00000000-0000-7000-8000-000000000000", "%22", strings.Repeat("x", 200)} {
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/events/"+id+"/erase", `{"reason":"x"}`) }).want(404, "EVENT_NOT_FOUND")
	}

	// What decisions rest on, and a task that its machine still needs.
	open := f.submit("ana", "ls", "m1")
	f.do("m1", "POST", "/v1/tasks/"+open+"/claim", `{"machine":"m1"}`).want(200)
	waiting := f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202)
	f.do("cy", "POST", "/v1/approvals/"+waiting.text("approval_id")+"/settle", `{"outcome":"refused","reason":"no"}`).want(200)
	f.do("root", "POST", "/v1/rules", `{"action":"deploy","min_level":50}`).want(201)
	asked := f.do("ana", "POST", "/v1/gates", `{"action":"deploy","request_approval":true}`).want(200)
	f.do("cy", "POST", "/v1/approvals/"+asked.text("approval_id")+"/settle", `{"outcome":"granted","reason":"go"}`).want(200)
	f.do("ana", "POST", "/v1/gates/"+asked.text("gate_id")+"/spend", `{}`).want(200)
	kinds := map[events.Kind]bool{}
	for r, err := range f.ledger.Log().ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		kind := r.Header.Type
		if kind.Erasable() && string(r.Header.Stream) != "task-"+open {
			continue
		}
		kinds[kind] = true
		a := f.unchanged(func() answer { return f.do("root", "POST", "/v1/events/"+r.Header.ID+"/erase", `{"reason":"x"}`) }).want(422, "NOT_ERASABLE").has("kind", string(kind))
		if kind.Erasable() {
			a.has("task_status", "open")
		}
	}
	for _, k := range []events.Kind{"fleet.founded", "actor.registered", "rule.written", "token.issued", "gate.decided", "approval.requested", "approval.settled",
		"approval.spent", "task.submitted", "task.opened", "task.claimed", "task.settled", "key.added"} {
		if !kinds[k] {
			t.Errorf("no %s was tried", k)
		}
	}

	// Who may not, and who may with somebody's leave.
	f.do("ana", "POST", "/v1/events/e/erase", `{"reason":"x"}`).want(202).has("decision.action", "payload.erase", "required_level", "90")
	stopped := f.do("di", "POST", "/v1/events/e/erase", `{"reason":"x"}`).want(202)
	f.do("bo", "GET", "/v1/events/e", "").want(200).has("erased", "<nil>", "data.n", "1")
	f.do("root", "POST", "/v1/approvals/"+stopped.text("approval_id")+"/settle", `{"outcome":"granted","reason":"go"}`).want(200)
	f.do("di", "POST", "/v1/events/e/erase", `{"reason":"y"}`, "Approval-Id", stopped.text("approval_id")).want(409, "COMMAND_CHANGED")
	key := newKey()
	done := f.do("di", "POST", "/v1/events/e/erase", `{"reason":"x"}`, "Approval-Id", stopped.text("approval_id"), "Idempotency-Key", key).want(200)
	again := f.unchanged(func() answer {
		return f.do("di", "POST", "/v1/events/e/erase", `{"reason":"x"}`, "Approval-Id", stopped.text("approval_id"), "Idempotency-Key", key)
	}).want(200)
	if string(done.body) != string(again.body) {
		t.Errorf("%s, then %s", done.body, again.body)
	}
	f.do("bo", "GET", "/v1/events/e", "", "Accept", cloudEventType).want(200).has("erased", "true", "data", "<nil>")
	f.do("ana", "POST", "/v1/events", `{"specversion":"1.0","id":"f","source":"/a","type":"ext.a","subject":"ext-a","erased":true}`).want(400, "INVALID_FIELDS")
}

// Of many who erase one payload at the same time one does it.
func TestOneErases(t *testing.T) {
	f := newFleet(t).people()
	f.ext("e")
	answers := make(chan answer, 8)
	for range cap(answers) {
		go func() { answers <- f.do("root", "POST", "/v1/events/e/erase", `{"reason":"x"}`) }()
	}
	done := 0
	for range cap(answers) {
		if a := <-answers; a.status == 200 {
			done++
		} else {
			a.want(409, "ALREADY_ERASED")
		}
	}
	if done != 1 {
		t.Errorf("%d erased it", done)
	}
}

// What was concluded about a run begins with its words: they go with it.
func TestErasureReachesConclusions(t *testing.T) {
	f := newFleet(t).people()
	const word = "zanzibar"
	run := f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["echo","`+word+`"],`+envelope[1:]+`}`).want(201).text("record_id")
	kept := f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["ls"],`+envelope[1:]+`}`).want(201).text("record_id")
	task := f.do("ana", "POST", "/v1/tasks", `{"argv":["echo","`+word+`"],"targets":["m1"]}`).want(201)
	f.do("ana", "POST", "/v1/tasks/"+task.text("task_id")+"/cancel", "").want(200)
	conclude := func(about string) string {
		return f.do("bo", "POST", "/v1/conclusions", `{"about":`+about+`,"text":"it prints"}`).want(201).text("conclusion_id")
	}
	ofRun, ofKept, ofTask := conclude(`{"record_id":"`+run+`"}`), conclude(`{"record_id":"`+kept+`"}`), conclude(`{"task_id":"`+task.text("task_id")+`"}`)
	head := f.ledger.Log().Durable()

	f.do("root", "POST", "/v1/events/"+run+"/erase", `{"reason":"a leak"}`).want(200).has("copies", "["+ofRun+"]")
	f.do("root", "POST", "/v1/events/"+task.text("receipt.event_id")+"/erase", `{"reason":"a leak"}`).want(200).has("copies", "["+ofTask+"]")
	for _, path := range []string{"/v1/conclusions", "/v1/conclusions?about=" + run, fmt.Sprintf("/v1/conclusions?at=%d", head), "/v1/memory", "/v1/tried", "/v1/events?limit=1000", "/v1/payloads?limit=1000",
		"/v1/tasks/" + task.text("task_id"), "/v1/tasks/" + task.text("task_id") + "/history"} {
		if a := f.do("ana", "GET", path, "").want(200); strings.Contains(string(a.body), word) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	f.do("ana", "GET", "/v1/conclusions?about="+kept, "").want(200).has("items.0.conclusion_id", ofKept, "items.0.text", "it prints")
	f.do("root", "POST", "/v1/events/"+ofRun+"/erase", `{"reason":"a leak"}`).want(409, "ALREADY_ERASED")
}
