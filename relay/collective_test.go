package relay

import (
	"fmt"
	"strings"
	"testing"

	"fleetledger/projections"
)

func TestCollective(t *testing.T) {
	f := newFleet(t).people()
	json := []string{"Accept", "application/json"}
	f.do("bo", "GET", "/v1/collective", "").want(404, "MEMORY_NO_COLLECTIVE").has("fleet", "default", "stream", "collective", "from", "1", "to", fmt.Sprint(f.ledger.Log().Durable()))
	// A conclusion about nothing is in the same stream and makes no document.
	f.do("bo", "POST", "/v1/conclusions", `{"about":null,"text":"disks fill up"}`).want(201)
	f.do("bo", "GET", "/v1/collective", "", json...).want(404, "MEMORY_NO_COLLECTIVE")

	record := f.ran(f.submit("ana", "ls", "m1")).text("receipt.event_id")
	first := f.do("cy", "PUT", "/v1/collective/sections/flaky", `{"heading":"Flaky","text":"two of them\n## and more\n","measured_at":"2026-03-01","how":"ran it","evidence":["`+record+`"],"revision":0}`).want(200).
		has("section.slug", "flaky", "section.by", "cy", "section.measured_at", "2026-03-01", "section.how", "ran it", "section.evidence", "["+record+"]",
			"section.revision", "2", "section.retired", "false", "receipt.stream", "collective", "receipt.revision", "2")
	if tag := first.header.Get("ETag"); tag != `"2"` {
		t.Errorf("the ETag is %s", tag)
	}
	f.do("cy", "PUT", "/v1/collective/sections/bare", `{"heading":"Bare","text":"x"}`).want(200).
		has("section.measured_at", "<nil>", "section.how", "<nil>", "section.evidence", "[]")
	f.unchanged(func() answer {
		return f.do("cy", "PUT", "/v1/collective/sections/bare", `{"heading":"Bare","text":"x"}`)
	}).want(200).
		has("receipt", "<nil>", "section.revision", "3")

	// Markdown unless JSON is asked for; it reads back as what it was made of.
	markdown := f.do("bo", "GET", "/v1/collective", "").want(200)
	if got := markdown.header.Get("Content-Type"); got != "text/markdown; charset=utf-8" {
		t.Errorf("the content type is %s", got)
	}
	read, err := projections.ReadMarkdown(string(markdown.body))
	if err != nil || len(read) != 2 || read[0].Text != "two of them\n## and more\n" || *read[0].Revision != 2 || read[1].Slug != "bare" {
		t.Errorf("read back: %+v, %v", read, err)
	}
	if i := strings.Index(string(markdown.body), "- [Bare](#bare)"); i < 0 || i > strings.Index(string(markdown.body), "## ") {
		t.Errorf("the list of sections does not lead:\n%s", markdown.body)
	}
	f.do("bo", "GET", "/v1/collective", "", json...).want(200).
		has("sections.0.text", "two of them\n## and more\n", "sections.1.slug", "bare", "sections.2", "<nil>", "scope.stream", "collective", "scope.fleet", "default")
	for accept, want := range map[string]string{
		"":                                "text/markdown; charset=utf-8",
		"*/*":                             "text/markdown; charset=utf-8",
		"application/*":                   "application/json",
		"text/html":                       "text/markdown; charset=utf-8",
		"application/json;q=0.5, */*":     "text/markdown; charset=utf-8",
		"application/json, */*;q=0.1":     "application/json",
		"text/markdown, application/json": "text/markdown; charset=utf-8",
		"text/*;q=0.2, application/json":  "application/json",
		"application/json;q=0":            "text/markdown; charset=utf-8",
	} {
		if got := f.do("bo", "GET", "/v1/collective", "", "Accept", accept).want(200).header.Get("Content-Type"); got != want {
			t.Errorf("Accept %q is answered %s, not %s", accept, got, want)
		}
	}

	// Two edit one section; the second is told what stands there.
	f.do("di", "PUT", "/v1/collective/sections/flaky", `{"heading":"Flaky","text":"three"}`, "If-Match", `"2"`).want(200).has("section.revision", "4")
	f.unchanged(func() answer {
		return f.do("cy", "PUT", "/v1/collective/sections/flaky", `{"heading":"Flaky","text":"mine"}`, "If-Match", `"2"`)
	}).want(409, "SECTION_CHANGED").has("expected", "2", "actual", "4", "text", "three", "heading", "Flaky", "by", "di", "slug", "flaky", "retired", "false")
	f.do("cy", "PUT", "/v1/collective/sections/flaky", `{"heading":"Flaky","text":"three, and mine","revision":4}`).want(200).has("section.revision", "5")
	section := f.do("bo", "GET", "/v1/collective/sections/flaky", "").want(200).
		has("section.text", "three, and mine", "history.0.revision", "5", "history.2.revision", "2", "history.2.by", "cy", "history.3", "<nil>")
	f.do("bo", "GET", fmt.Sprintf("/v1/collective/sections/flaky?at=%v", section.get("history.1.position")), "").want(200).
		has("section.text", "three", "section.revision", "4", "history.0.revision", "4", "history.2", "<nil>")

	// Below level 50 it waits; the same request with the approval is let in.
	body := `{"heading":"Flaky","text":"by ana","revision":5}`
	waiting := f.do("ana", "PUT", "/v1/collective/sections/flaky", body).want(202).has("actions", "[collective.revise]", "required_level", "50")
	f.do("cy", "POST", "/v1/approvals/"+waiting.text("approval_id")+"/settle", `{"outcome":"granted","reason":"ok"}`).want(200)
	f.do("ana", "PUT", "/v1/collective/sections/flaky", body, "Approval-Id", waiting.text("approval_id")).want(200).has("section.by", "ana")

	// An empty document is one.
	f.do("cy", "DELETE", "/v1/collective/sections/flaky", "", "If-Match", `"2"`).want(409, "SECTION_CHANGED")
	for _, slug := range []string{"flaky", "bare"} {
		f.do("cy", "DELETE", "/v1/collective/sections/"+slug, "").want(200).has("slug", slug, "receipt.stream", "collective")
	}
	f.do("bo", "GET", "/v1/collective", "", json...).want(200).has("sections", "[]")
	if got := string(f.do("bo", "GET", "/v1/collective", "").want(200).body); strings.Contains(got, "## ") {
		t.Errorf("got %s", got)
	}
	f.do("bo", "GET", "/v1/collective/sections/flaky", "").want(200).has("section.retired", "true", "section.text", "by ana", "history.0.retired", "true", "history.0.heading", "<nil>")
	f.do("bo", "GET", "/v1/collective?at=1", "").want(404, "MEMORY_NO_COLLECTIVE").has("to", "1")
}
