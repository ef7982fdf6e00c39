package relay

import (
	"fmt"
	"strings"
	"testing"
)

func TestConsolidations(t *testing.T) {
	f := newFleet(t).people()
	remember := func(command string, exit int) string {
		argv := `["` + strings.Join(strings.Fields(command), `","`) + `"]`
		return f.do("m1", "POST", "/v1/memory", `{"record":{"argv":`+argv+`,`+strings.Replace(envelope, `"exit_code":0`, fmt.Sprintf(`"exit_code":%d`, exit), 1)[1:]+`}`).want(201).text("record_id")
	}
	a, b := remember("make test", 1), remember("make test", 0)
	c := remember("make deploy", 0)
	task := f.submit("ana", "ls", "m1")
	reported := f.ran(task).text("receipt.event_id")
	before := f.ledger.Log().Durable()

	said := f.do("ana", "POST", "/v1/consolidations", `{"text":"fails at first only","records":["`+a+`","`+b+`"]}`).want(201).
		has("consolidation.text", "fails at first only", "consolidation.records", "["+a+" "+b+"]", "consolidation.forgets", "<nil>", "consolidation.by", "ana", "receipt.stream", "machine-m1")
	f.do("bo", "GET", "/v1/consolidations/"+said.text("consolidation_id"), "").want(200).has("records", "["+a+" "+b+"]")
	f.do("bo", "GET", fmt.Sprintf("/v1/consolidations/%s?at=%d", said.text("consolidation_id"), before), "").want(404, "CONSOLIDATION_NOT_FOUND")
	f.do("bo", "GET", "/v1/memory?argv=make+test", "").want(200).
		has("items.0.consolidations.0.text", "fails at first only", "items.1.consolidations.0.records", "["+a+" "+b+"]", "scope.forgotten", "<nil>")
	f.do("bo", "GET", "/v1/tried?q=make+test", "").want(200).has("answers.0.consolidations.0.text", "fails at first only", "answers.0.consolidations.0.by", "ana", "answers.0.runs", "2", "in_place_of_forgotten", "[]")
	f.do("bo", "GET", "/v1/consolidations?record="+a, "").want(200).has("items.0.text", "fails at first only", "items.1", "<nil>", "scope.record", a)
	f.do("bo", "GET", "/v1/consolidations?record="+c, "").want(200).has("items", "[]")

	// ana forgets for herself: nobody else's views change, nor what was asked of then,
	// and whoever asks for all is given all. MEMORY_NOT_HERE is about the ledger.
	mine := f.do("ana", "POST", "/v1/consolidations", `{"text":"done with m1","forgets":{"machine":"m1"}}`).want(201).has("consolidation.forgets", "map[cited:false for_all:false machine:m1]")
	f.do("ana", "GET", "/v1/memory?machine=m1", "").want(200).has("items", "[]", "scope.forgotten", "left_out")
	f.do("ana", "GET", "/v1/tried?q=make", "").want(200).has("answers", "[]", "in_place_of_forgotten.0.text", "fails at first only", "scope.forgotten", "left_out")
	f.do("ana", "GET", "/v1/memory?machine=m1&include_forgotten=true", "").want(200).has("items.0.record_id", reported, "items.3.record_id", a, "scope.forgotten", "included")
	f.do("ana", "GET", "/v1/tried?q=make+test&include_forgotten=true", "").want(200).has("answers.0.runs", "2", "scope.forgotten", "included")
	f.do("ana", "GET", fmt.Sprintf("/v1/memory?machine=m1&at=%d", before), "").want(200).has("items.0.record_id", reported, "scope.forgotten", "<nil>")
	f.do("bo", "GET", "/v1/memory?machine=m1&include_forgotten=false", "").want(200).has("items.3.record_id", a, "scope.forgotten", "<nil>")
	f.do("ana", "GET", "/v1/memory?include_forgotten=yes", "").want(400, "PARAMETER_INVALID")
	const count = `{"query":"SELECT count(*), (SELECT count(*) FROM series), (SELECT count(*) FROM main.runs) FROM runs"`
	f.do("ana", "POST", "/v1/sql", count+`}`).want(200).has("rows", "[[0 0 4]]", "forgotten", "left_out")
	f.do("ana", "POST", "/v1/sql", count+`,"include_forgotten":true}`).want(200).has("rows", "[[4 3 4]]", "forgotten", "included")
	f.do("bo", "POST", "/v1/sql", count+`}`).want(200).has("rows", "[[4 3 4]]", "forgotten", "<nil>")
	f.do("ana", "GET", "/v1/tasks/"+task, "").want(200).has("legs.0.attempts.0.exit_code", "0")
	d := remember("make test", 0)
	f.do("ana", "GET", "/v1/memory?machine=m1", "").want(200).has("items.0.record_id", d, "items.1", "<nil>")
	f.do("bo", "POST", "/v1/consolidations", `{"text":"x","recalls":"`+mine.text("consolidation_id")+`"}`).want(403, "NOT_YOUR_FORGETTING")
	f.do("ana", "POST", "/v1/consolidations", `{"text":"needed","recalls":"`+mine.text("consolidation_id")+`"}`).want(201)
	f.do("ana", "GET", "/v1/memory?machine=m1", "").want(200).has("items.4.record_id", a, "scope.forgotten", "<nil>")

	// For all it takes a captain, or one's grant.
	body := `{"text":"it was a bad day","records":["` + c + `"],"forgets":{"cited":true,"for_all":true}}`
	waiting := f.do("ana", "POST", "/v1/consolidations", body).want(202).has("actions", "[collective.revise]")
	f.do("cy", "POST", "/v1/approvals/"+waiting.text("approval_id")+"/settle", `{"outcome":"granted","reason":"ok"}`).want(200)
	f.do("ana", "POST", "/v1/consolidations", body, "Approval-Id", waiting.text("approval_id")).want(201)
	f.do("bo", "GET", "/v1/tried?q=make+deploy", "").want(200).has("answers", "[]", "in_place_of_forgotten.0.text", "it was a bad day", "scope.forgotten", "left_out")

	for _, x := range []struct {
		body   string
		status int
		code   string
	}{
		{`{"text":"x"}`, 422, "INVALID"},
		{`{"records":["` + a + `"]}`, 400, "INVALID_FIELDS"},
		{`{"text":"x","records":["nothing"]}`, 404, "RECORD_NOT_FOUND"},
		{`{"text":"x","records":null}`, 400, "INVALID_FIELDS"},
		{`{"text":"x","records":["` + a + `"],"forgets":null}`, 400, "INVALID_FIELDS"},
		{`{"text":"x","forgets":{}}`, 422, "INVALID"},
		{`{"text":"x","forgets":{"machine":"m1","before":"yesterday"}}`, 400, "INVALID_FIELDS"},
		{`{"text":"x","forgets":{"machine":"m1","before":null}}`, 400, "INVALID_FIELDS"},
		{`{"text":"x","recalls":"nothing"}`, 404, "CONSOLIDATION_NOT_FOUND"},
	} {
		f.unchanged(func() answer { return f.do("ana", "POST", "/v1/consolidations", x.body) }).want(x.status, x.code)
	}

	// A conclusion says what stands in its place.
	first := f.do("bo", "POST", "/v1/conclusions", `{"about":{"record_id":"`+a+`"},"text":"flaky"}`).want(201).text("conclusion_id")
	second := f.do("ana", "POST", "/v1/conclusions", `{"about":{"record_id":"`+a+`"},"text":"mended","supersedes":"`+first+`"}`).want(201).text("conclusion_id")
	f.do("bo", "GET", "/v1/conclusions?about="+a, "").want(200).has("items.0.superseded_by", "<nil>", "items.1.superseded_by", second, "items.1.text", "flaky")
}
