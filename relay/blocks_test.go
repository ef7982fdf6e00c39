package relay

import (
	"fmt"
	"strings"
	"testing"

	"fleetledger/events"
)

func TestBlocks(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"memory.accept.mood","min_level":50}`).want(201)
	before := f.ledger.Log().Durable()
	root := f.do("ana", "POST", "/v1/blocks", `{"fields":{"focus":"cafe\u0301","mood":"calm"}}`).want(201).
		has("hash", "cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac", "block.fields", "map[focus:café mood:calm]", "block.parents", "[]", "block.ancestors", "[]",
			"block.published_by", "ana", "block.origin", "<nil>", "receipt.revision", "1").text("hash")
	f.unchanged(func() answer {
		return f.do("cy", "POST", "/v1/blocks", `{"fields":{"focus":"café","mood":"calm"},"parents":[]}`)
	}).want(200).
		has("hash", root, "receipt", "<nil>", "block.published_by", "ana")
	child := f.do("cy", "POST", "/v1/blocks", `{"fields":{"issue":"no beans"},"parents":["`+root+`"]}`).want(201).
		has("block.parents", "["+root+"]", "block.ancestors", "["+root+"]").text("hash")

	// ana's level is tested: mood is absent, not null, from whatever is stored.
	taken := f.do("bo", "POST", "/v1/blocks/"+root+"/accept", "").want(200).
		has("hash", root, "fields", "map[focus:café]", "stored_hash", events.BlockHash(map[string]string{"focus": "café"}, nil).String(), "own_thought", "false",
			"decisions.0.field", "focus", "decisions.0.accepted", "true", "decisions.1.accepted", "false", "decisions.1.reason_code", "BELOW_MINIMUM", "decisions.1.narrowed", "false",
			"decisions.1.decision.actor", "ana", "by", "bo", "receipt.stream", "block-"+root)
	stored := f.do("bo", "GET", "/v1/events/"+taken.text("receipt.event_id"), "").want(200)
	if fields, ok := stored.get("data.fields").(map[string]any); !ok || len(fields) != 1 || strings.Contains(string(stored.body), "calm") {
		t.Errorf("stored %s", stored.body)
	}
	f.do("bo", "POST", "/v1/blocks/"+child+"/accept", `{"narrow":{"min_levels":{"issue":99},"refuse":["mood"]}}`).want(200).
		has("fields", "map[]", "stored_hash", "<nil>", "decisions.0.narrowed", "true", "narrowed", "map[min_levels:map[issue:99] refuse:[mood]]")
	f.do("ana", "POST", "/v1/blocks/"+child+"/accept", `{}`).want(200).has("own_thought", "true", "own", "["+root+"]", "stored_hash", child, "parents", "["+root+"]")

	f.do("cy", "GET", "/v1/blocks/"+child, "").want(200).
		has("fields", "map[issue:no beans]", "acceptances.0.by", "ana", "acceptances.1.by", "bo", "acceptances_total", "2", "scope.stream", "block-"+child)
	f.do("cy", "GET", fmt.Sprintf("/v1/blocks/%s?at=%d", child, before+1), "").want(404, "BLOCK_NOT_FOUND")
	f.do("cy", "GET", fmt.Sprintf("/v1/blocks/%s?at=%d", root, before+1), "").want(200).has("acceptances", "[]", "scope.to", fmt.Sprint(before+1))

	for _, c := range []struct {
		path, body string
		status     int
		code       string
	}{
		{"/v1/blocks", `{}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks", `{"fields":{}}`, 422, "INVALID"},
		{"/v1/blocks", `{"fields":{"mood":null}}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks", `{"fields":{"mood":""}}`, 422, "INVALID"},
		{"/v1/blocks", `{"fields":{"mood":7}}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks", `{"fields":{"Mood":"x"}}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks", `{"fields":{"colour":"x"}}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks", `{"fields":{"mood":"x"},"parents":null}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks", `{"fields":{"mood":"x"},"parents":["x"]}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks", `{"fields":{"mood":"x"},"parents":[""]}`, 422, "INVALID"},
		{"/v1/blocks", `{"fields":{"mood":"x"},"parents":["` + strings.Repeat("a", 64) + `"]}`, 422, "PARENT_NOT_HERE"},
		{"/v1/blocks", `{"fields":{"mood":"` + strings.Repeat("x", 4097) + `"}}`, 413, "FIELD_TOO_LARGE"},
		{"/v1/blocks/" + root + "/accept", `{"narrow":null}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks/" + root + "/accept", `{"narrow":{"min_levels":{"mood":50.5}}}`, 400, "INVALID_FIELDS"},
		{"/v1/blocks/" + root + "/accept", `{"narrow":{"refuse":["colour"]}}`, 422, "INVALID"},
		{"/v1/blocks/" + strings.Repeat("a", 64) + "/accept", ``, 404, "BLOCK_NOT_FOUND"},
		{"/v1/blocks/nothing/accept", ``, 404, "BLOCK_NOT_FOUND"},
		{"/v1/blocks/import", `{"format":"fleetledger-blocks/1","blocks":[]}`, 422, "INVALID"},
		{"/v1/blocks/import", `{"format":"x","blocks":[]}`, 422, "INVALID"},
	} {
		f.unchanged(func() answer { return f.do("ana", "POST", c.path, c.body) }).want(c.status, c.code)
	}

	// To another fleet and back.
	file := f.do("cy", "GET", "/v1/blocks/"+child+"/export", "").want(200).has("format", "fleetledger-blocks/1", "blocks.0.hash", root, "blocks.1.hash", child, "blocks.1.origin.by", "cy", "blocks.1.origin.fleet", "default")
	body := string(file.body)
	for _, change := range [][2]string{{"no beans", "beans"}, {`"issue"`, `"intent"`}, {`"parents":["` + root + `"]`, `"parents":[]`}, {`"ancestors":["` + root + `"]`, `"ancestors":[]`}} {
		f.do("other:root", "POST", "/v1/blocks/import", strings.Replace(body, change[0], change[1], 1)).want(422, "BLOCK_TAMPERED")
	}
	f.do("other:root", "GET", "/v1/blocks/"+root, "").want(404, "BLOCK_NOT_FOUND")
	f.do("other:root", "POST", "/v1/blocks/import", body).want(200).has("imported", "["+root+" "+child+"]", "here", "[]", "receipt.stream", "block-"+root)
	f.do("other:root", "POST", "/v1/blocks/import", body).want(200).has("imported", "[]", "here", "["+root+" "+child+"]", "receipt", "<nil>")
	f.do("other:root", "GET", "/v1/blocks/"+child, "").want(200).has("published_by", "root", "origin.by", "cy", "origin.fleet", "default")
	answer := f.do("other:root", "POST", "/v1/blocks", `{"fields":{"commitment":"I buy some"},"parents":["`+child+`"]}`).want(201).text("hash")
	back := f.do("other:root", "GET", "/v1/blocks/"+answer+"/export", "").want(200)
	f.do("bo", "POST", "/v1/blocks/import", string(back.body)).want(200).has("imported", "["+answer+"]", "here", "["+root+" "+child+"]")
	f.do("ana", "POST", "/v1/blocks/"+answer+"/accept", "").want(200).has("own_thought", "true", "own", "["+root+"]")
	f.do("bo", "POST", "/v1/blocks/"+answer+"/accept", "").want(200).has("own_thought", "false")
}
