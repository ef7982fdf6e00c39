package relay

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// contract lists what is to be there, as the contract has it.
var contract = strings.Fields(`
POST/v1/actors GET/v1/actors GET/v1/actors/{id} PATCH/v1/actors/{id} POST/v1/actors/{id}/tokens DELETE/v1/actors/{id}/tokens/{token_id}
POST/v1/pairings POST/v1/pairings/redeem
POST/v1/rules GET/v1/rules DELETE/v1/rules/{id}
POST/v1/gates GET/v1/gates/{id} POST/v1/gates/{id}/spend POST/v1/gates/simulate
GET/v1/approvals GET/v1/approvals/stream GET/v1/approvals/{id} POST/v1/approvals/settle POST/v1/approvals/{id}/settle POST/v1/approvals/{id}/withdraw
POST/v1/tasks GET/v1/tasks GET/v1/tasks/{id} GET/v1/tasks/{id}/history GET/v1/tasks/{id}/evidence POST/v1/tasks/{id}/cancel POST/v1/tasks/{id}/claim
POST/v1/tasks/{id}/attempts/{n}/heartbeat POST/v1/tasks/{id}/attempts/{n}/report GET/v1/machines/{id}/offers
POST/v1/memory GET/v1/memory GET/v1/tried POST/v1/conclusions GET/v1/conclusions POST/v1/consolidations GET/v1/consolidations GET/v1/consolidations/{id} POST/v1/sql GET/v1/view POST/v1/view/rebuild
POST/v1/blocks GET/v1/blocks POST/v1/blocks/import GET/v1/blocks/{hash} GET/v1/blocks/{hash}/export POST/v1/blocks/{hash}/accept
GET/v1/collective GET/v1/collective/sections/{slug} PUT/v1/collective/sections/{slug} DELETE/v1/collective/sections/{slug}
POST/v1/events GET/v1/events GET/v1/events/{id} POST/v1/events/{id}/erase GET/v1/events/stream
POST/v1/subscriptions GET/v1/subscriptions GET/v1/subscriptions/{name} PATCH/v1/subscriptions/{name} DELETE/v1/subscriptions/{name}
GET/v1/subscriptions/{name}/parked POST/v1/subscriptions/{name}/replay POST/v1/subscriptions/{name}/park
GET/log/checkpoint GET/log/witnessed GET/log/tile/{tile} GET/v1/proofs/{position} GET/v1/payloads GET/v1/keys POST/v1/keys POST/v1/keys/{key}/retire
POST/v1/audit GET/v1/audit/{id} GET/v1/backup GET/v1/limits GET/v1/settings PATCH/v1/settings GET/healthz GET/readyz GET/metrics GET/openapi.json GET/docs`)

func TestDocumentListsThePaths(t *testing.T) {
	f := newFleet(t)
	if f.api.doc["openapi"] != "3.1.0" || member(f.api.doc, "info.version") != "test" {
		t.Errorf("openapi %v, version %v", f.api.doc["openapi"], member(f.api.doc, "info.version"))
	}
	var listed []string
	for path, item := range f.api.doc["paths"].(map[string]any) {
		for method, op := range item.(map[string]any) {
			listed = append(listed, strings.ToUpper(method)+path)
			params, _ := op.(map[string]any)["parameters"].([]any)
			names := []string{}
			for _, p := range params {
				names = append(names, member(p, "name").(string))
			}
			if method == "post" && !slices.Contains(names, "Idempotency-Key") {
				t.Errorf("POST %s: the document does not name Idempotency-Key", path)
			}
			for part := range strings.SplitSeq(path, "/") {
				if name, ok := strings.CutPrefix(part, "{"); ok && !slices.Contains(names, strings.TrimSuffix(name, "}")) {
					t.Errorf("%s %s: the document does not name %s", method, path, part)
				}
			}
		}
	}
	slices.Sort(listed)
	want := slices.Sorted(slices.Values(contract))
	if !slices.Equal(listed, want) {
		t.Errorf("the document lists\n%v, not\n%v", listed, want)
	}
}

func TestDocumentSchemas(t *testing.T) {
	f := newFleet(t)
	for path, want := range map[string]string{
		"RegisterBody.required":                      "[id kind]",
		"RegisterBody.properties.authority_level":    "integer",
		"SettleBody.required":                        "[outcome reason]",
		"TaskReply.properties.argv.type":             "array",
		"AskGateReply.properties.decisive.anyOf":     "EvaluatED",
		"CloudEvent.properties.expectedrevision":     "integer",
		"CloudEvent.additionalProperties":            "true",
		"ReportBody.properties.envelope.$ref":        "EnvelopeBody",
		"EnvelopeBody.properties.exit_code":          "null",
		"ProblemReply.required":                      "[type title status code detail]",
		"EventReply.properties.data.description":     "payload",
		"ListTaskReply.properties.items.items.$ref":  "TaskReply",
		"ChangeActorReply.properties.receipt.anyOf":  "null",
		"RecordBody.properties.argv.items":           "string",
		"RecordBody.properties.outcome.enum":         "exited",
		"SubmitBody.properties.parts.items.items":    "string",
		"Permit.properties.decision.$ref":            "Decision",
		"AuditReply.properties.report.anyOf.0.$ref":  "Report",
		"WaitingReply.properties.expires_at.format":  "date-time",
		"ActorReply.properties.parent.type":          "null",
		"ListActorReply.properties.next_cursor.type": "null",
		"CollectiveReply.required":                   "[scope sections]",
		"ReviseSectionBody.required":                 "[heading text]",
		"RetireSectionReply.required":                "[slug receipt]",
		"PublishBlockBody.required":                  "[fields]",
		"BlockFields.properties.mood.type":           "string",
		"BlockReply.properties.fields.anyOf":         "null",
		"FileBlock.required":                         "[hash fields parents ancestors origin]",
		"TaskReply.properties.verdict.enum":          "failed <nil>]",
		"SettingsBody.properties.output.type":        "string",
		"SimulateBody.properties.limit.type":         "integer",
		"SqlBody.properties.limit.type":              "[integer null]",
		"TaskReply.properties.settled_at.type":       "string",
		"RuleBody.properties.scope.type":             "[string null]",
	} {
		if got := fmt.Sprint(member(f.api.doc, "components.schemas."+path)); !strings.Contains(strings.ToLower(got), strings.ToLower(want)) {
			t.Errorf("%s is %s: no %s", path, got, want)
		}
	}
	for _, name := range []string{"SettingsBody", "SettingsPatch", "SimulateBody"} {
		if s := fmt.Sprint(member(f.api.doc, "components.schemas."+name)); strings.Contains(s, "null") {
			t.Errorf("%s takes null: %s", name, s)
		}
	}
	if strings.Contains(fmt.Sprint(f.api.doc), "[array null]") {
		t.Error("the document says that a list may be null")
	}
}

func TestDocs(t *testing.T) {
	f := newFleet(t)
	a := f.do("root", "GET", "/docs", "").want(200)
	for _, part := range []string{"POST /v1/tasks/{id}/attempts/{n}/report", "NOT_SUPPORTED", "EnvelopeBody"} {
		if !strings.Contains(string(a.body), part) {
			t.Errorf("the page does not tell of %s", part)
		}
	}
	if strings.Contains(string(a.body), "https://") || strings.Contains(string(a.body), "<script") {
		t.Error("the page needs something from elsewhere")
	}
}

func TestWhatIsNotThereYet(t *testing.T) {
	f := newFleet(t).people()
	for _, r := range []string{
		"GET /v1/gates/simulate", "GET /v1/blocks/import", "GET /v1/sql/x",
		"GET /v1/pairings/x",
		"GET /log", "GET /log/", "GET /log/entries", "GET /v1/proofs", "GET /", "GET /v1", "GET /v1/tasks/", "GET /v1//tasks", "DELETE /v1/everything", "BREW /v1/everything",
	} {
		method, path, _ := strings.Cut(r, " ")
		f.unchanged(func() answer { return f.do("root", method, path, "{}") }).want(404, "PATH_NOT_FOUND")
	}
}

func TestWrongMethod(t *testing.T) {
	f := newFleet(t)
	for r, allow := range map[string]string{
		"PUT /v1/tasks":               "GET, HEAD, POST",
		"DELETE /v1/tasks":            "GET, HEAD, POST",
		"GET /v1/rules/x":             "DELETE",
		"POST /v1/collective":         "GET, HEAD",
		"POST /v1/events/x":           "GET, HEAD",
		"OPTIONS /v1/actors/x":        "GET, HEAD, PATCH",
		"GET /v1/tasks/x/claim":       "POST",
		"POST /healthz":               "GET, HEAD",
		"BREW /v1/tasks":              "GET, HEAD, POST",
		"POST /v1/machines/m1/offers": "GET, HEAD",
	} {
		method, path, _ := strings.Cut(r, " ")
		a := f.do("root", method, path, "").want(405, "METHOD_NOT_ALLOWED")
		if got := a.header.Get("Allow"); got != allow {
			t.Errorf("%s: Allow is %q, not %q", r, got, allow)
		}
	}
}
