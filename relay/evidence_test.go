package relay

import (
	"bytes"
	"strings"
	"testing"

	"fleetledger/commands/evidence"
	"fleetledger/events"
)

// key is the verifier key that the log names.
func (f *fleet) key() string {
	f.t.Helper()
	return f.do("root", "GET", "/v1/events?stream=ledger&type=key.added", "").want(200).text("items.0.data.verifier_key")
}

// A task that waited for a person, under a rule that somebody wrote with leave of
// another, and what came of it: the file alone shows all of it.
func TestEvidenceVerifies(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"task.submit.m1","min_level":50,"why":"m1 is precious"}`).want(201)
	f.do("root", "PATCH", "/v1/settings", `{"heartbeat_s":7}`).want(200)
	// Below the level of rule.write: another person lets it in.
	rule := `{"action":"deploy.prod","min_level":40}`
	id := f.do("cy", "POST", "/v1/rules", rule).want(202).text("approval_id")
	f.do("root", "POST", "/v1/approvals/"+id+"/settle", `{"outcome":"granted","reason":"yes"}`).want(200)
	f.do("cy", "POST", "/v1/rules", rule, "Approval-Id", id).want(201)

	task := f.submit("ana", "ls", "m1")
	path := "/v1/tasks/" + task + "/evidence"
	check := func(status, verdict string) evidence.Report {
		t.Helper()
		a := f.do("ana", "GET", path, "").want(200)
		if got := a.header.Get("Content-Type"); got != "application/jsonl" {
			t.Errorf("content type %q", got)
		}
		r, err := evidence.Verify(a.body, nil, f.key())
		if err != nil {
			t.Fatal(err)
		}
		if !r.OK || r.Status != status || string(r.Verdict) != verdict || r.Proved != r.Events || r.Events != bytes.Count(a.body, []byte("\n"))-1 {
			t.Fatalf("want %s %s, got %+v", status, verdict, r)
		}
		return r
	}
	check("awaiting_approval", "")
	approval := f.do("ana", "GET", "/v1/tasks/"+task, "").want(200).text("approval_id")
	f.do("cy", "POST", "/v1/approvals/"+approval+"/settle", `{"outcome":"granted","reason":"go"}`).want(200)
	check("open", "")
	f.ran(task)
	f.do("ana", "POST", "/v1/conclusions", `{"about":{"task_id":"`+task+`"},"text":"fine"}`).want(201)
	f.notes(300)
	r := check("settled", "succeeded")
	if r.Size < 300 || r.TaskID != task || r.Origin != "relay.test/default" || r.DecisionsRederived < 10 {
		t.Errorf("got %+v", r)
	}
	var gates int
	for _, s := range r.Streams {
		if strings.HasPrefix(string(s.Stream), "gate-") {
			gates++
		}
	}
	if gates != 1 {
		t.Errorf("the one gate that the file's events were let in by is not in it: %+v", r.Streams)
	}
	var precious bool
	for _, rule := range r.Rules {
		precious = precious || rule.Rule.Why == "m1 is precious"
	}
	if !precious {
		t.Errorf("the rules in force are %+v", r.Rules)
	}

	// What comes later in the log is no part of it, but for the first change of
	// authority, before which none can be missing.
	f.register("root", `{"id":"late","kind":"human","authority_level":10}`)
	f.register("root", `{"id":"later","kind":"human","authority_level":10}`)
	if later := check("settled", "succeeded"); later.Events != r.Events+1 || later.CompleteTo != 0 {
		t.Errorf("%d events, then %d, complete to %d", r.Events, later.Events, later.CompleteTo)
	}

	// A root shows that nothing of the task is missing, and an erasure is told.
	reported := f.do("root", "GET", "/v1/events?type=task.reported", "").want(200).list("items")
	f.do("root", "POST", "/v1/events/"+member(reported[0], "id").(string)+"/erase", `{"reason":"leaked"}`).want(200)
	if err := f.ledger.RootHeads(t.Context()); err != nil {
		t.Fatal(err)
	}
	whole := check("settled", "succeeded")
	if whole.CompleteTo == 0 || whole.CompleteTo != f.ledger.State().Rooted().At || whole.Erased != 1 || len(whole.Erasures) != 1 || whole.Erasures[0].By != "root" {
		t.Errorf("got %+v", whole)
	}
}

func TestEvidenceIsRefused(t *testing.T) {
	f := newFleet(t).people()
	task := f.submit("ana", "ls", "m1")
	f.do("ana", "GET", "/v1/tasks/x/evidence", "").want(404, "TASK_NOT_FOUND")
	f.do("other:root", "GET", "/v1/tasks/"+task+"/evidence", "").want(404, "TASK_NOT_FOUND")
	f.do("", "GET", "/v1/tasks/"+task+"/evidence", "").want(401)
	bare := newFleet(t, func(c *Config) { c.Seals = nil }).people()
	bare.do("ana", "GET", "/v1/tasks/"+bare.submit("ana", "ls", "m1")+"/evidence", "").want(404, "LOG_NOT_SEALED")
}

// More settings than a file holds.
func TestEvidenceHasALimit(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes a log of 20,000 settings")
	}
	f := newFleet(t).people()
	for n := 0; n <= evidence.MaxEvents; n += events.MaxAppendEvents {
		var drafts []events.Draft
		for range events.MaxAppendEvents {
			drafts = append(drafts, events.NewDraft(events.Intent{ID: newKey(), Stream: events.SettingsStream, Type: "settings.changed", Schema: 1, Actor: "root"},
				[events.SaltBytes]byte{}, []byte(`{"settings":{}}`)))
		}
		if _, err := f.ledger.Log().Append(t.Context(), events.Append{Drafts: drafts}); err != nil {
			t.Fatal(err)
		}
	}
	task := f.submit("ana", "ls", "m1")
	f.do("ana", "GET", "/v1/tasks/"+task+"/evidence", "").want(422, "EVIDENCE_TOO_LARGE").has("max_events", "20000")
	// No gate let these settings in, so that no audit of this log is ok.
	if err := f.ledger.Log().Close(); err != nil {
		t.Fatal(err)
	}
}
