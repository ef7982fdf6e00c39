package relay

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// The same key and body gives the same status, body and receipt: at once, after
// everything has changed, and after a restart. Only a token is shown once.
func TestReplays(t *testing.T) {
	f := newFleet(t).people()
	open := f.submit("ana", "true", "m1")
	reported := f.submit("ana", "make", "m1")
	f.do("m1", "POST", "/v1/tasks/"+reported+"/claim", `{"machine":"m1"}`).want(200)
	cancelled := f.submit("ana", "sleep", "m1")
	stopped := f.submit("bo", "sleep", "m1")
	approvals := []string{}
	for range 4 {
		approvals = append(approvals, f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202).text("approval_id"))
	}
	f.do("root", "POST", "/v1/rules", `{"action":"deploy","min_level":50}`).want(201)
	asked := f.do("ana", "POST", "/v1/gates", `{"action":"deploy","command":{"to":"prod"},"request_approval":true}`).want(200)
	f.do("cy", "POST", "/v1/approvals/"+asked.text("approval_id")+"/settle", `{"outcome":"granted","reason":"go"}`).want(200)
	rule := f.do("root", "POST", "/v1/rules", `{"action":"ext.late.*","min_level":0}`).want(201).text("rule_id")
	token := f.do("bo", "POST", "/v1/actors/bo/tokens", "").want(201).text("token_id")
	f.do("ana", "POST", "/v1/events", `{"specversion":"1.0","id":"known","source":"/a","type":"ext.a","subject":"ext-a"}`).want(201)

	block := f.do("ana", "POST", "/v1/blocks", `{"fields":{"focus":"beans"}}`).want(201).text("hash")
	f.do("other:root", "POST", "/v1/blocks", `{"fields":{"focus":"beans"}}`).want(201)
	foreign := f.do("other:root", "POST", "/v1/blocks", `{"fields":{"issue":"none left"},"parents":["`+block+`"]}`).want(201).text("hash")
	exported := string(f.do("other:root", "GET", "/v1/blocks/"+foreign+"/export", "").want(200).body)

	type request struct {
		as, method, path, body, key string
		status                      int
		first                       answer
	}
	f.do("cy", "PUT", "/v1/collective/sections/gone", `{"heading":"Gone","text":"x"}`).want(200)
	var requests []*request
	for _, r := range []struct {
		as, request, body string
		status            int
	}{
		{"root", "POST /v1/actors", `{"id":"new","kind":"human","authority_level":10}`, 201},
		{"ana", "POST /v1/actors", `{"id":"new2","kind":"agent","parent":"ana","authority_level":90}`, 201},
		{"cy", "POST /v1/actors", `{"id":"new3","kind":"human","authority_level":10}`, 202},
		{"root", "PATCH /v1/actors/bo", `{"authority_level":20,"add_scopes":["dev"]}`, 200},
		{"root", "POST /v1/actors/bo/tokens", ``, 201},
		{"root", "DELETE /v1/actors/bo/tokens/" + token, ``, 200},
		{"root", "POST /v1/rules", `{"action":"a.b","min_level":10}`, 201},
		{"cy", "POST /v1/rules", `{"action":"a.c","min_level":10}`, 202},
		{"root", "DELETE /v1/rules/" + rule, ``, 200},
		{"ana", "POST /v1/gates", `{"action":"deploy","command":[1]}`, 200},
		{"ana", "POST /v1/gates", `{"action":"deploy","command":[2],"request_approval":true}`, 200},
		{"ana", "POST /v1/gates", `{"action":"nothing"}`, 200},
		{"ana", "POST /v1/gates/" + asked.text("gate_id") + "/spend", `{"command":{"to":"prod"}}`, 200},
		{"cy", "POST /v1/approvals/" + approvals[0] + "/settle", `{"outcome":"granted","reason":"ok"}`, 200},
		{"cy", "POST /v1/approvals/" + approvals[1] + "/settle", `{"outcome":"refused","reason":"no"}`, 200},
		{"ana", "POST /v1/approvals/" + approvals[2] + "/withdraw", `{"reason":"later"}`, 200},
		{"cy", "POST /v1/approvals/settle", `{"settlements":[{"approval_id":"` + approvals[3] + `","outcome":"granted","reason":"ok"},{"approval_id":"none","outcome":"granted","reason":"ok"}]}`, 200},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m1"]}`, 201},
		{"ana", "POST /v1/tasks", `{"argv":["ls"],"targets":["m2"]}`, 202},
		{"m1", "POST /v1/tasks/" + open + "/claim", `{"machine":"m1"}`, 200},
		{"m1", "POST /v1/tasks/" + reported + "/attempts/1/report", `{"envelope":` + envelope + `}`, 200},
		{"ana", "POST /v1/tasks/" + cancelled + "/cancel", `{"reason":"enough"}`, 200},
		{"ana", "POST /v1/tasks/" + stopped + "/cancel", ``, 202},
		{"m1", "POST /v1/memory", `{"record":{"argv":["ls"],` + envelope[1:] + `}`, 201},
		{"ana", "POST /v1/conclusions", `{"about":{"task_id":"` + reported + `"},"text":"it works"}`, 201},
		{"cy", "PUT /v1/collective/sections/a", `{"heading":"A","text":"x","revision":0}`, 200},
		{"ana", "PUT /v1/collective/sections/b", `{"heading":"B","text":"x"}`, 202},
		{"cy", "DELETE /v1/collective/sections/gone", ``, 200},
		{"ana", "POST /v1/consolidations", `{"text":"enough","forgets":{"machine":"m1"}}`, 201},
		{"ana", "POST /v1/consolidations", `{"text":"enough","forgets":{"machine":"m1","for_all":true}}`, 202},
		{"ana", "POST /v1/blocks", `{"fields":{"mood":"calm"}}`, 201},
		{"cy", "POST /v1/blocks/" + block + "/accept", `{"narrow":{"refuse":["mood"]}}`, 200},
		{"ana", "POST /v1/blocks/import", exported, 200},
		{"ana", "POST /v1/events", `{"specversion":"1.0","id":"e1","source":"/a","type":"ext.a","subject":"ext-a","data":9007199254740993}`, 201},
		{"ana", "POST /v1/events", `[{"specversion":"1.0","id":"e2","source":"/a","type":"ext.a","subject":"ext-a"},{"specversion":"1.0","id":"known","source":"/a","type":"ext.a","subject":"ext-a"},{"specversion":"1.0","id":"e3","source":"/a","type":"ext.b","subject":"ext-b"}]`, 201},
	} {
		method, path, _ := strings.Cut(r.request, " ")
		requests = append(requests, &request{as: r.as, method: method, path: path, body: r.body, key: newKey(), status: r.status})
	}
	for _, r := range requests {
		r.first = f.do(r.as, r.method, r.path, r.body, "Idempotency-Key", r.key).want(r.status)
	}
	without := func(body []byte, token string) string {
		if token == "" {
			return string(body)
		}
		return strings.Replace(string(body), `"token":"`+token+`"`, `"token":null`, 1)
	}
	again := func(when string) {
		for _, r := range requests {
			got := f.unchanged(func() answer { return f.do(r.as, r.method, r.path, r.body, "Idempotency-Key", strings.ToUpper(r.key)) })
			if want := without(r.first.body, r.first.text("token")); got.status != r.status || string(got.body) != want {
				t.Errorf("%s: %s %s is answered %d %s, not %d %s", when, r.method, r.path, got.status, got.body, r.status, want)
			}
		}
	}
	again("at once")

	// Another body, another approval, another actor, another path.
	for _, r := range requests {
		other := r.body + " "
		if r.body == "" {
			other = "{}"
		}
		f.unchanged(func() answer { return f.do(r.as, r.method, r.path, other, "Idempotency-Key", r.key) }).want(409, "IDEMPOTENCY_MISMATCH")
	}
	f.do("bo", "POST", "/v1/gates", `{"action":"nothing"}`, "Idempotency-Key", requests[9].key).want(200)
	f.do("ana", "POST", "/v1/tasks", `{"argv":["other"],"targets":["m1"]}`, "Idempotency-Key", requests[9].key).want(201)

	// Everything changes.
	for _, p := range []string{"new", "new2"} {
		f.do("root", "PATCH", "/v1/actors/"+p, `{"authority_level":1,"suspended":true}`).want(200)
	}
	f.do("root", "PATCH", "/v1/actors/bo", `{"authority_level":30,"remove_scopes":["dev"]}`).want(200)
	f.do("root", "POST", "/v1/rules", `{"action":"ext.*","min_level":90}`).want(201)
	f.do("root", "POST", "/v1/rules", `{"action":"task.*","min_level":90}`).want(201)
	f.do("m1", "POST", "/v1/tasks/"+open+"/attempts/1/report", `{"envelope":`+envelope+`}`).want(200)
	f.do("root", "POST", "/v1/conclusions", `{"about":{"task_id":"`+reported+`"},"text":"it does not"}`).want(201)
	f.do("root", "PUT", "/v1/collective/sections/a", `{"heading":"A","text":"y"}`).want(200)
	f.do("root", "PUT", "/v1/collective/sections/gone", `{"heading":"Gone","text":"y"}`).want(200)
	for _, r := range requests {
		if r.status == 202 && r.first.text("approval_id") != "" {
			f.do("di", "POST", "/v1/approvals/"+r.first.text("approval_id")+"/settle", `{"outcome":"refused","reason":"over"}`)
		}
	}
	f.skew.Add(int64(48 * 3600 * 1e9)) // past every expiry
	if err := f.ledger.Sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	again("after everything changed")

	f.restart()
	again("after a restart")
}

// restart serves the same log by a new relay, whose state is folded anew.
func (f *fleet) restart() {
	f.t.Helper()
	state := projections.NewState()
	for r, err := range f.ledger.Log().ReadAll(context.Background(), 0) {
		if err != nil {
			f.t.Fatal(err)
		}
		publish, err := state.Stage([]events.Record{r})
		if err != nil {
			f.t.Fatal(err)
		}
		publish()
	}
	ledger := commands.New(f.ledger.Log(), state, randomness())
	second := New(map[string]*commands.Ledger{"default": ledger}, f.relay.cfg)
	server := httptest.NewServer(second.Handler())
	f.t.Cleanup(func() { second.Drain(); server.Close() })
	f.server.Close()
	f.server, f.client = server, server.Client()
}

// What is answered without recording anything binds no key.
func TestRefusalsBindNoKey(t *testing.T) {
	f := newFleet(t).people()
	key := newKey()
	body := `{"argv":["ls"],"targets":["m3"]}`
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/tasks", body, "Idempotency-Key", key) }).want(422)
	f.register("root", `{"id":"m3","kind":"machine","authority_level":10}`)
	first := f.do("ana", "POST", "/v1/tasks", body, "Idempotency-Key", key).want(201)
	again := f.unchanged(func() answer { return f.do("ana", "POST", "/v1/tasks", body, "Idempotency-Key", key) }).want(201)
	if string(first.body) != string(again.body) {
		t.Errorf("%s, then %s", first.body, again.body)
	}
}

// A denial that was recorded is the answer for ever, whatever the rules are then.
func TestDenialsReplay(t *testing.T) {
	f := newFleet(t).people()
	for _, r := range f.do("root", "GET", "/v1/rules", "").want(200).list("items") {
		if action := member(r, "rule.action"); action == "memory.record" || action == "task.submit.*" {
			f.do("root", "DELETE", "/v1/rules/"+member(r, "rule_id").(string), "").want(200)
		}
	}
	memory, task := newKey(), newKey()
	denied := func(path, as, body, key string) answer {
		return f.do(as, "POST", path, body, "Idempotency-Key", key).want(403, "DENIED").has("decision.decisive.reason_code", "NO_RULE", "decision.verdict", "deny")
	}
	record := `{"record":{"argv":["ls"],` + envelope[1:] + `}`
	a := denied("/v1/memory", "m1", record, memory)
	b := denied("/v1/tasks", "ana", `{"argv":["ls"],"targets":["m1"]}`, task)
	if a.text("receipt.stream") != "gate-"+a.text("gate_id") || b.text("receipt.stream") != "task-"+b.text("task_id") {
		t.Errorf("%s\n%s", a.body, b.body)
	}
	f.do("root", "GET", "/v1/gates/"+a.text("gate_id"), "").want(200).has("verdict", "deny", "actor", "m1", "approval", "<nil>")
	f.do("root", "GET", "/v1/tasks/"+b.text("task_id"), "").want(200).has("status", "settled", "verdict", "refused")

	f.do("root", "POST", "/v1/rules", `{"action":"memory.record","min_level":0}`).want(201)
	f.do("root", "POST", "/v1/rules", `{"action":"task.submit.*","min_level":0}`).want(201)
	f.restart()
	for _, again := range []struct{ first, second answer }{
		{a, f.unchanged(func() answer { return denied("/v1/memory", "m1", record, memory) })},
		{b, f.unchanged(func() answer { return denied("/v1/tasks", "ana", `{"argv":["ls"],"targets":["m1"]}`, task) })},
	} {
		if string(again.first.body) != string(again.second.body) {
			t.Errorf("%s\nthen %s", again.first.body, again.second.body)
		}
	}
}

// One event twice is recorded once, with a key or without.
func TestEventsAreRecordedOnce(t *testing.T) {
	f := newFleet(t).people()
	event := func(i int, data string) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"/a","type":"ext.a","subject":"ext-a","data":%s}`, i, data)
	}
	one := f.do("ana", "POST", "/v1/events", event(1, `{"a":1.0,"b":1e400}`)).want(201)
	again := f.unchanged(func() answer { return f.do("ana", "POST", "/v1/events", event(1, ` {"a": 1.0, "b": 1e400}`)) }).want(201)
	if string(one.body) != string(again.body) {
		t.Errorf("%s, then %s", one.body, again.body)
	}
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/events", event(1, `{"a":2.0,"b":1e400}`)) }).want(409, "EVENT_ID_MISMATCH")
	batch := f.do("ana", "POST", "/v1/events", "["+event(2, "1")+","+event(1, `{"a":1.0,"b":1e400}`)+","+event(3, "1")+"]").want(201)
	for i, id := range []string{"e2", "e1", "e3"} {
		if got := batch.text(fmt.Sprintf("receipts.%d.event_id", i)); got != id {
			t.Errorf("receipt %d is of %s, not %s", i, got, id)
		}
	}
	batch.has("receipts.1.position", fmt.Sprint(one.get("receipt.position")))
}
