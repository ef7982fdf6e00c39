package relay

import (
	"fmt"
	"strings"
	"testing"

	"fleetledger/events"
)

// cloudEventForms are members that an event may have, or not: then the problem.
var cloudEventForms = map[string]string{
	``:                    "",
	`,"data":null`:        "",
	`,"data":[1,{"a":2}]`: "",
	`,"data":"text","datacontenttype":"text/plain; charset=utf-8"`: "",
	`,"data_base64":"aGk="`:                             "",
	`,"time":"2026-01-02T03:04:05.123456789+01:00"`:     "",
	`,"dataschema":"https://example.com/schema"`:        "",
	`,"traceparent":"00-ab","priority":7,"urgent":true`: "",
	`,"correlationid":"c","causationid":"d"`:            "",
	`,"data":1,"data_base64":"aGk="`:                    "/data_base64 INVALID",
	`,"data_base64":"not base 64"`:                      "/data_base64 INVALID",
	`,"data_base64":"aGk"`:                              "/data_base64 INVALID",
	`,"time":"yesterday"`:                               "/time INVALID",
	`,"time":null`:                                      "/time NULL_NOT_ALLOWED",
	`,"dataschema":"schema"`:                            "/dataschema INVALID",
	`,"datacontenttype":"text"`:                         "",
	`,"datacontenttype":"text/"`:                        "/datacontenttype INVALID",
	`,"expectedrevision":-1`:                            "/expectedrevision INVALID",
	`,"expectedrevision":"1"`:                           "/expectedrevision INVALID",
	`,"expectedrevision":1.0`:                           "/expectedrevision INVALID",
	`,"expectedrevision":null`:                          "/expectedrevision NULL_NOT_ALLOWED",
	`,"position":1`:                                     "/position RESERVED",
	`,"revision":1`:                                     "/revision RESERVED",
	`,"actor":"root"`:                                   "/actor RESERVED",
	`,"Data":1`:                                         "/Data CASE_VARIANT",
	`,"expectedRevision":1`:                             "/expectedRevision CASE_VARIANT",
	`,"myExtension":1`:                                  "/myExtension UNKNOWN_FIELD",
	`,"my_extension":1`:                                 "/my_extension UNKNOWN_FIELD",
	`,"a23456789012345678901":1`:                        "/a23456789012345678901 UNKNOWN_FIELD",
	`,"ext":{"a":1}`:                                    "/ext WRONG_TYPE",
	`,"ext":null`:                                       "/ext WRONG_TYPE",
	`,"ext":1.5`:                                        "/ext WRONG_TYPE",
	`,"ext":1,"ext":2`:                                  "/ext DUPLICATE_NAME",
	`,"ext":1,"Data":2`:                                 "/Data CASE_VARIANT",
	`,"data":{"a":1,"a":2}`:                             "/data/a DUPLICATE_NAME",
}

func TestCloudEventForms(t *testing.T) {
	f := newFleet(t).people()
	const core = `"specversion":"1.0","id":"%s","source":"/a","type":"ext.a","subject":"ext-a"`
	n := 0
	for more, problem := range cloudEventForms {
		n++
		one := "{" + fmt.Sprintf(core, fmt.Sprint("e", n)) + more + "}"
		batch := "[{" + fmt.Sprintf(core, fmt.Sprint("f", n)) + "},{" + fmt.Sprintf(core, fmt.Sprint("g", n)) + more + "}]"
		for body, prefix := range map[string]string{one: "", batch: "/1"} {
			if problem == "" {
				f.do("ana", "POST", "/v1/events", body).want(201)
				continue
			}
			path, code, _ := strings.Cut(problem, " ")
			f.unchanged(func() answer { return f.do("ana", "POST", "/v1/events", body) }).want(400).has("problems.0.path", prefix+path, "problems.0.code", code)
		}
	}
	for body, path := range map[string]string{
		`{"specversion":"0.3","id":"x","source":"/a","type":"ext.a","subject":"ext-a"}`:  "/specversion",
		`{"id":"x","source":"/a","type":"ext.a","subject":"ext-a"}`:                      "/specversion",
		`{"specversion":"1.0","id":"","source":"/a","type":"ext.a","subject":"ext-a"}`:   "/id",
		`{"specversion":"1.0","id":"x","source":"","type":"ext.a","subject":"ext-a"}`:    "/source",
		`{"specversion":"1.0","id":"x","source":"%zz","type":"ext.a","subject":"ext-a"}`: "/source",
		`{"specversion":"1.0","id":"x","source":"/a","type":"ext.a"}`:                    "/subject",
		`{"specversion":"1.0","id":"x","source":"/a","subject":"ext-a"}`:                 "/type",
		`{"specversion":1.0,"id":"x","source":"/a","type":"ext.a","subject":"ext-a"}`:    "/specversion",
		`{"SpecVersion":"1.0","id":"x","source":"/a","type":"ext.a","subject":"ext-a"}`:  "/SpecVersion",
	} {
		f.unchanged(func() answer { return f.do("ana", "POST", "/v1/events", body) }).want(400).has("problems.0.path", path)
	}
	f.unchanged(func() answer {
		return f.do("ana", "POST", "/v1/events", `{"specversion":"1.0","id":"sp ace","source":"/a","type":"ext.a","subject":"ext-a"}`)
	}).want(422, "INVALID").has("problems.0.path", "/id")
}

// An event comes back as it was sent, and as a CloudEvent where asked for.
func TestEventsAreReadBack(t *testing.T) {
	f := newFleet(t).people()
	body := `{"specversion":"1.0","id":"a/b","source":"/s","type":"ext.Thing","subject":"ext-a","time":"2026-01-02T03:04:05Z","data":{"big":9007199254740993},
		"dataschema":"urn:x","datacontenttype":"application/json","correlationid":"c1","causationid":"c0","region":"eu","n":3}`
	a := f.do("ana", "POST", "/v1/events", body, "Content-Type", cloudEventType).want(201)
	e := f.do("bo", "GET", "/v1/events/a%2Fb", "").want(200).has("id", "a/b", "stream", "ext-a", "revision", "1", "type", "ext.Thing", "actor", "ana", "schema", "1",
		"source", "/s", "source_time", "2026-01-02T03:04:05Z", "dataschema", "urn:x", "datacontenttype", "application/json", "correlation_id", "c1", "causation_id", "c0",
		"extensions.region", "eu", "extensions.n", "3", "permit.decision.verdict", "allow", "permit.decision.action", "ext.Thing", "leaf_hash", a.text("receipt.leaf_hash"))
	if !strings.Contains(string(e.body), `"data":{"big":9007199254740993}`) {
		t.Errorf("%s", e.body)
	}
	c := f.do("bo", "GET", "/v1/events/a%2Fb", "", "Accept", "text/html;q=0.1, "+cloudEventType).want(200).has("specversion", "1.0", "id", "a/b", "source", "/s", "type", "ext.Thing",
		"subject", "ext-a", "time", "2026-01-02T03:04:05Z", "position", fmt.Sprint(a.get("receipt.position")), "revision", "1", "actor", "ana", "region", "eu", "n", "3", "correlationid", "c1", "dataschema", "urn:x")
	if c.header.Get("Content-Type") != cloudEventType {
		t.Errorf("%v", c.header)
	}
	f.do("ana", "POST", "/v1/events", `[{"specversion":"1.0","id":"b","source":"/s","type":"ext.b","subject":"ext-a","data_base64":"aGk="}]`, "Content-Type", cloudEventBatchType).want(201).has("receipts.0.event_id", "b")
	list := f.do("bo", "GET", "/v1/events?stream=ext-a&limit=1", "", "Accept", cloudEventBatchType).want(200).has("0.id", "a/b", "1", "<nil>")
	link := list.header.Get("Link")
	if list.header.Get("Content-Type") != cloudEventBatchType || !strings.HasPrefix(link, "</v1/events?") || !strings.HasSuffix(link, `>; rel="next"`) {
		t.Errorf("%v", list.header)
	}
	next, _, _ := strings.Cut(strings.TrimPrefix(link, "<"), ">")
	last := f.do("bo", "GET", next, "", "Accept", cloudEventBatchType).want(200).has("0.id", "b", "0.data_base64", "aGk=", "0.data", "<nil>", "0.revision", "2")
	if last.header.Get("Link") != "" {
		t.Errorf("%v", last.header)
	}
	f.do("bo", "GET", "/v1/events?stream=authority&limit=1", "", "Accept", cloudEventBatchType).want(200).has("0.type", "fleet.founded", "0.source", "/fleets/default", "0.data.fleet", "default")
	f.do("bo", "GET", "/v1/events?stream=authority&limit=1", "").want(200).has("items.0.data.fleet", "default", "items.0.permit", "<nil>", "items.0.source", "<nil>")
}

func TestExpectedRevision(t *testing.T) {
	f := newFleet(t).people()
	send := func(id string, expected int) answer {
		return f.do("ana", "POST", "/v1/events", fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"/a","type":"ext.a","subject":"ext-a","expectedrevision":%d}`, id, expected))
	}
	send("a", 1).want(409, "REVISION_CONFLICT").has("expected", "1", "actual", "0", "stream", "ext-a")
	send("a", 0).want(201)
	send("b", 0).want(409).has("actual", "1")
	send("b", 1).want(201).has("receipt.revision", "2")
	// One event of a batch that does not fit keeps all out.
	f.unchanged(func() answer {
		return f.do("ana", "POST", "/v1/events", `[{"specversion":"1.0","id":"c","source":"/a","type":"ext.a","subject":"ext-c"},{"specversion":"1.0","id":"d","source":"/a","type":"ext.a","subject":"ext-a","expectedrevision":9}]`)
	}).want(409)
}

// A rule may stop an agent's event; with the grant it is recorded.
func TestEventsPassTheGate(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"ext.deploy.*","min_level":50}`).want(201)
	body := `[{"specversion":"1.0","id":"a","source":"/a","type":"ext.deploy.done","subject":"ext-a"},{"specversion":"1.0","id":"b","source":"/a","type":"ext.b","subject":"ext-a"}]`
	stopped := f.do("ana", "POST", "/v1/events", body).want(202).has("decision.action", "ext.deploy.done", "actions", "[ext.deploy.done]")
	f.do("ana", "GET", "/v1/events/b", "").want(404)
	f.do("cy", "POST", "/v1/approvals/"+stopped.text("approval_id")+"/settle", `{"outcome":"granted","reason":"x"}`).want(200)
	key := newKey()
	a := f.do("ana", "POST", "/v1/events", body, "Approval-Id", stopped.text("approval_id"), "Idempotency-Key", key).want(201).has("receipts.0.event_id", "a", "receipts.1.event_id", "b", "receipts.2", "<nil>")
	again := f.unchanged(func() answer {
		return f.do("ana", "POST", "/v1/events", body, "Approval-Id", stopped.text("approval_id"), "Idempotency-Key", key)
	}).want(201)
	if string(a.body) != string(again.body) {
		t.Errorf("%s, then %s", a.body, again.body)
	}
	f.do("ana", "GET", "/v1/events/a", "").want(200).has("permit.approval_id", stopped.text("approval_id"))

	for _, r := range f.do("root", "GET", "/v1/rules?limit=1000", "").list("items") {
		if strings.HasPrefix(member(r, "rule.action").(string), "ext.") {
			f.do("root", "DELETE", "/v1/rules/"+member(r, "rule_id").(string), "").want(200)
		}
	}
	f.do("ana", "POST", "/v1/events", strings.ReplaceAll(strings.ReplaceAll(body, `"a",`, `"c",`), `"b",`, `"d",`)).want(403, "DENIED").has("decision.action", "ext.deploy.done")
}

func TestErasedEventIsToldAsSuch(t *testing.T) {
	h := events.Header{Intent: events.Intent{ID: "e", Type: "ext.a", Stream: "ext-a"}, Place: events.Place{Position: 7}}
	e, err := eventOut(events.Record{Header: h, Erased: true})
	if err != nil || !e.Erased || e.Data != nil || e.Permit != nil {
		t.Errorf("%+v %v", e, err)
	}
}
