package relay

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

// A relay that keeps hashes only keeps no tail, wherever one looks: whatever agents
// send, whatever is imported, in every answer, stream and file, and in the log.
func TestHashOnly(t *testing.T) {
	f := newFleet(t).people()
	const printed = "a line that stays on the machine"
	sha := strings.Repeat("ab", 32)
	output := fmt.Sprintf(`{"bytes":4096,"sha256":%q,"tail":"%s\n","truncated":false}`, sha, printed)
	said := strings.Replace(envelope, `"stdout":{"bytes":3,"tail":"ok\n"}`, `"stdout":`+output+`,"stderr":`+output, 1)
	if !strings.Contains(said, printed) {
		t.Fatal("the envelope has another form")
	}
	f.do("root", "PATCH", "/v1/settings", `{"output":"hash_only"}`).want(200)
	head := f.ledger.Log().Durable()

	silent := func(a answer) answer {
		t.Helper()
		text := string(a.body)
		if strings.Contains(text, printed) || strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(printed))) {
			t.Errorf("%s tells the tail: %s", a.what, text)
		}
		return a
	}
	task := f.submit("ana", "make", "m1")
	f.do("m1", "POST", "/v1/tasks/"+task+"/claim", `{"machine":"m1"}`).want(200)
	report := "/v1/tasks/" + task + "/attempts/1/report"
	first := silent(f.do("m1", "POST", report, `{"envelope":`+said+`}`).want(200))
	f.unchanged(func() answer { return f.do("m1", "POST", report, `{"envelope":`+said+`}`) }).want(200).has("receipt.event_id", first.text("receipt.event_id"))
	silent(f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["ls"],`+said[1:]+`}`).want(201))
	silent(f.do("bo", "POST", "/v1/memory", `{"imported_from":"atuin","record":{"argv":["ls"],`+said[1:]+`}`).want(201))
	f.do("bo", "POST", "/v1/conclusions", `{"about":{"task_id":"`+task+`"},"text":"fine"}`).want(201)

	for _, path := range []string{
		"/v1/memory", "/v1/memory?machine=m1&argv=ls", "/v1/tried?q=ls", "/v1/tried?q=make", "/v1/conclusions", "/v1/tasks", "/v1/tasks/" + task, "/v1/tasks/" + task + "/history",
		"/v1/tasks/" + task + "/evidence", "/v1/events?limit=1000", "/v1/events/" + first.text("receipt.event_id"), "/v1/approvals", "/log/tile/entries/000.p/" + fmt.Sprint(f.ledger.Log().Durable()),
	} {
		a := silent(f.do("bo", "GET", path, ""))
		if a.status >= 400 && !strings.HasPrefix(path, "/log/") {
			a.want(200)
		}
	}
	f.do("bo", "GET", "/v1/memory?machine=m1&limit=1", "").want(200).
		has("items.0.stdout.bytes", "4096", "items.0.stdout.sha256", sha, "items.0.stdout.tail", "", "items.0.stdout.truncated", "true", "scope.output", "hash_only")
	f.do("bo", "GET", "/v1/tried?q=make", "").want(200).has("answers.0.last.stdout_tail", "", "scope.output", "hash_only")
	silent(f.do("bo", "GET", "/v1/events?limit=1000", "", "Accept", "application/cloudevents-batch+json").want(200))
	stream := f.follow("bo", fmt.Sprintf("/v1/events/stream?after=%d", head))
	for range f.ledger.Log().Durable() - head {
		e, ok := stream.next()
		raw, err := json.Marshal(e.data)
		if !ok || err != nil || strings.Contains(string(raw), printed) {
			t.Fatalf("the stream says %s (%v, %v)", raw, ok, err)
		}
	}
	kept := 0
	for r, err := range f.ledger.Log().ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(r.Payload), printed) {
			t.Errorf("position %d keeps the tail: %s", r.Header.Position, r.Payload)
		}
		if strings.Contains(string(r.Payload), sha) {
			kept++
		}
	}
	if kept != 3 {
		t.Errorf("%d of 3 runs keep their hashes", kept)
	}

	// Set back, tails are kept from now on. Who reports again what was kept without is
	// still known.
	f.do("root", "PATCH", "/v1/settings", `{"output":"tails"}`).want(200)
	f.unchanged(func() answer { return f.do("m1", "POST", report, `{"envelope":`+said+`}`) }).want(200).has("receipt.event_id", first.text("receipt.event_id"))
	other := strings.Replace(said, sha, strings.Repeat("cd", 32), 1)
	f.do("m1", "POST", report, `{"envelope":`+other+`}`).want(409, "ALREADY_REPORTED")
	f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["ls"],`+said[1:]+`}`).want(201)
	f.do("bo", "GET", "/v1/memory?limit=1", "").want(200).has("items.0.stdout.tail", printed+"\n", "scope.output", "tails")
	// And the other way round.
	second := f.submit("ana", "make", "m1")
	f.do("m1", "POST", "/v1/tasks/"+second+"/claim", `{"machine":"m1"}`).want(200)
	report = "/v1/tasks/" + second + "/attempts/1/report"
	f.do("m1", "POST", report, `{"envelope":`+said+`}`).want(200)
	f.do("root", "PATCH", "/v1/settings", `{"output":"hash_only"}`).want(200)
	f.unchanged(func() answer { return f.do("m1", "POST", report, `{"envelope":`+said+`}`) }).want(200)

	// Of a machine that sent nothing, it is said where its memory lives.
	f.do("bo", "GET", "/v1/memory?machine=m2", "").want(404, "MEMORY_NOT_HERE").has("machine", "m2", "where", "on the machine, in the state directory of its agent")
	f.do("bo", "GET", "/v1/tried?q=ls&machine=m2", "").want(404, "MEMORY_NOT_HERE")
}

// Two spellings of one place are one place: of directories and repositories alike.
func TestPlaces(t *testing.T) {
	f := newFleet(t).people()
	for i, place := range []string{`d:\\docu2`, `D:\\Docu2\\`, "/home/caf\u00e9", "/home/cafe\u0301", "/home/CAFE"} {
		f.do("m1", "POST", "/v1/memory", fmt.Sprintf(`{"record":{"argv":["ls","%d"],"cwd":"%s","repo":"%s",`, i, place, place)+envelope[1:]+`}`).want(201)
	}
	for query, count := range map[string]int{"D%3A%5CDOCU2": 2, "d%3A%2Fdocu2": 2, "%2Fhome%2Fcafe%CC%81": 2, "%2Fhome%2Fcaf%C3%A9%2F": 2, "%2Fhome%2FCAFE": 1, "%2Fhome": 0} {
		for _, path := range []string{"/v1/memory?cwd=", "/v1/memory?repo=", "/v1/memory?machine=m1&cwd="} {
			if got := len(f.do("bo", "GET", path+query, "").want(200).list("items")); got != count {
				t.Errorf("%s%s: %d runs, not %d", path, query, got, count)
			}
		}
		if got := len(f.do("bo", "GET", "/v1/tried?q=ls&repo="+query, "").want(200).list("answers")); got != count {
			t.Errorf("tried in %s: %d answers, not %d", query, got, count)
		}
	}
	f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["ls","0"],"cwd":"d:/DOCU2","repo":"D:/docu2/",`+envelope[1:]+`}`).want(201)
	f.do("bo", "GET", "/v1/tried?q=ls+0", "").want(200).has("answers.0.runs", "2", "answers.1", "<nil>")
	f.do("bo", "GET", "/v1/memory?cwd=d:/docu2&argv=ls+0", "").want(200).has("items.1.cwd", `d:\docu2`, "items.2", "<nil>", "scope.cwd", "d:/docu2")
}

// What is imported is recorded once in the fleet, whoever imports it, and does not come back
// once it is erased.
func TestImportedOnce(t *testing.T) {
	f := newFleet(t).people()
	const id, other = "01939f5e-7a1b-8c3d-8e4f-0123456789ab", "01939f5e-7a1b-8c3d-8e4f-0123456789ac"
	record := strings.Replace(envelope, `"exit_code":0`, `"exit_code":0,"argv":["make"]`, 1)
	body := func(id string) string {
		return `{"record":` + record + `,"imported_from":"atuin","imported_id":"` + id + `"}`
	}
	a := f.do("ana", "POST", "/v1/memory", body(id)).want(201).has("record_id", id, "receipt.event_id", id)
	again := func(by string) {
		t.Helper()
		f.unchanged(func() answer {
			return f.do(by, "POST", "/v1/memory", body(id)).want(409, "ALREADY_IMPORTED").has("event_id", id, "by", "ana", "position", fmt.Sprint(a.get("receipt.position")))
		})
	}
	again("root")
	again("ana")
	f.do("root", "POST", "/v1/events/"+id+"/erase", `{"reason":"leaked"}`).want(200)
	again("root")

	said := `{"about":null,"text":"it was slow","imported_id":"` + other + `"}`
	f.do("ana", "POST", "/v1/conclusions", said).want(201).has("conclusion_id", other)
	f.unchanged(func() answer { return f.do("root", "POST", "/v1/conclusions", said).want(409, "ALREADY_IMPORTED") })
	// An event of another kind keeps nobody from importing.
	if got := f.do("ana", "POST", "/v1/memory", body(other)).want(201).text("record_id"); got == other || got == "" {
		t.Errorf("the record's id is %q", got)
	}

	for _, bad := range []string{body("x"), body(strings.ReplaceAll(id, "-", "")), strings.Replace(body("01939f5e-7a1b-8c3d-8e4f-0123456789ad"), `"imported_from":"atuin",`, "", 1)} {
		f.unchanged(func() answer { return f.do("m1", "POST", "/v1/memory", bad).want(422, "INVALID") })
	}
	f.unchanged(func() answer {
		return f.do("ana", "POST", "/v1/conclusions", `{"about":null,"text":"x","imported_id":"x"}`).want(422, "INVALID")
	})
}
