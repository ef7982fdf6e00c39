package relay

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

func TestSettings(t *testing.T) {
	f := newFleet(t).people()
	f.do("ana", "GET", "/v1/settings", "").want(200).has("output", "tails", "heartbeat_s", "10", "revision", "0")
	before := f.ledger.Log().Durable()
	for body, code := range map[string]string{
		`{}`:                           "INVALID",
		`{"output":"all"}`:             "INVALID",
		`{"heartbeat_s":0}`:            "INVALID",
		`{"heartbeat_s":null}`:         "INVALID_FIELDS",
		`{"heartbeat_s":"5"}`:          "INVALID_FIELDS",
		`{"heartbeat_s":5e0}`:          "INVALID_FIELDS",
		`{"separation_of_duties":1}`:   "INVALID_FIELDS",
		`{"Output":"tails"}`:           "INVALID_FIELDS",
		`{"grace_s":1,"grace_s":2}`:    "MALFORMED_JSON",
		`{"denials_per_minute":-1}`:    "INVALID",
		`{"approval_expires_s":1e400}`: "INVALID_FIELDS",
	} {
		status := 400
		if code == "INVALID" {
			status = 422
		}
		f.unchanged(func() answer { return f.do("root", "PATCH", "/v1/settings", body) }).want(status, code)
	}
	f.do("di", "PATCH", "/v1/settings", `{"grace_s":1}`).want(202).has("decision.action", "fleet.configure")
	key := []string{"Idempotency-Key", "01939f5e-7a1b-7c3d-8e4f-0123456789ab"}
	one := f.do("root", "PATCH", "/v1/settings", `{"heartbeat_s":3,"separation_of_duties":true}`, key...).want(200)
	two := f.do("root", "PATCH", "/v1/settings", `{"heartbeat_s":3,"separation_of_duties":true}`, key...).want(200)
	if string(one.body) != string(two.body) {
		t.Errorf("repeated: %s, then %s", one.body, two.body)
	}
	f.unchanged(func() answer { return f.do("root", "PATCH", "/v1/settings", `{"heartbeat_s":3}`) }).want(200).has("receipt", "<nil>")
	f.do("ana", "GET", "/v1/settings", "").has("heartbeat_s", "3", "separation_of_duties", "true", "grace_s", "5", "revision", "1")
	f.do("ana", "GET", fmt.Sprintf("/v1/settings?at=%d", before), "").has("heartbeat_s", "10")
}

func TestSimulate(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"deploy.prod","min_level":50}`).want(201)
	for _, who := range []string{"ana", "cy", "di"} {
		f.do(who, "POST", "/v1/gates", `{"action":"deploy.prod"}`).want(200)
	}
	for body, want := range map[string]struct {
		status int
		code   string
	}{
		`{}`:                                      {400, "INVALID_FIELDS"},
		`{"actor":"cy"}`:                          {400, "INVALID_FIELDS"},
		`{"action":"deploy.prod","actor":"xx"}`:   {404, "ACTOR_NOT_FOUND"},
		`{"action":"*","actor":"ana"}`:            {422, "INVALID"},
		`{"history":true,"rules":[{"action":7}]}`: {422, "RULE_MALFORMED"},
		`{"history":true,"rules":null}`:           {400, "INVALID_FIELDS"},
		`{"history":true,"limit":0}`:              {400, "LIMIT_OUT_OF_RANGE"},
		`{"history":true,"rulez":[]}`:             {400, "INVALID_FIELDS"},
	} {
		f.unchanged(func() answer { return f.do("ana", "POST", "/v1/gates/simulate", body) }).want(want.status, want.code)
		f.unchanged(func() answer {
			return f.do("ana", "POST", "/v1/gates/simulate", body, "Accept", "text/event-stream")
		}).want(want.status, want.code)
	}
	one := `{"action":"deploy.prod","actor":"cy","rules":[{"action":"deploy.prod","min_level":70}]}`
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/gates/simulate", one) }).want(200).
		has("one.in_force.verdict", "allow", "one.proposed.verdict", "needs_approval", "one.differs", "true", "history", "<nil>")
	f.unchanged(func() answer {
		return f.do("ana", "POST", "/v1/gates/simulate", `{"action":"deploy.prod"}`)
	}).want(200).has("one.in_force.actor", "ana", "one.in_force.verdict", "needs_approval")
	// A list of one rule denies whatever else was ever decided.
	all := f.unchanged(func() answer {
		return f.do("ana", "POST", "/v1/gates/simulate", `{"history":true,"limit":2,"rules":[{"action":"deploy.prod","min_level":50}]}`)
	}).want(200)
	if all.list("history.differences"); len(all.list("history.differences")) != 2 || all.get("history.differ").(float64) < 5 {
		t.Errorf("got %s", all.body)
	}
	// The list goes on where it ended.
	listed := 0
	for after := "0"; after != "<nil>"; {
		a := f.do("ana", "POST", "/v1/gates/simulate", fmt.Sprintf(`{"history":true,"limit":2,"after":%s,"rules":[{"action":"deploy.prod","min_level":50}]}`, after)).want(200)
		listed += len(a.list("history.differences"))
		after = fmt.Sprint(a.get("history.next_after"))
	}
	if fmt.Sprint(all.get("history.differ")) != fmt.Sprint(listed) {
		t.Errorf("%d differences were listed: %s", listed, all.body)
	}
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/gates/simulate", `{"history":true}`) }).want(200).has("history.differ", "0")

	req, err := http.NewRequestWithContext(t.Context(), "POST", f.server.URL+"/v1/gates/simulate", strings.NewReader(`{"history":true}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.tokens["ana"])
	req.Header.Set("Accept", "text/event-stream")
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	r := newReader(t, resp)
	if e, ok := r.next(); !ok || e.name != "result" || member(e.data, "history.differ") != 0.0 {
		t.Errorf("got %+v %t", e, ok)
	}
}

func TestFollowApprovals(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/rules", `{"action":"deploy.prod","min_level":50}`).want(201)
	ask := func() string {
		return f.do("ana", "POST", "/v1/gates", `{"action":"deploy.prod","request_approval":true}`).want(200).text("approval_id")
	}
	first := ask()
	r := f.follow("cy", "/v1/approvals/stream")
	want := func(r *reader, name, id string) sent {
		t.Helper()
		e, ok := r.next()
		if !ok || e.name != name || e.data["approval_id"] != id {
			t.Fatalf("got %+v %t, want %s %s", e, ok, name, id)
		}
		return e
	}
	e := want(r, "requested", first)
	if e.data["may_settle"] != true || e.data["why"] == "" {
		t.Errorf("got %+v", e.data)
	}
	second := ask()
	want(r, "requested", second)
	f.do("cy", "POST", "/v1/approvals/"+first+"/settle", `{"outcome":"granted","reason":"ok"}`).want(200)
	e = want(r, "granted", first)
	f.do("ana", "POST", "/v1/approvals/"+second+"/withdraw", `{}`).want(200)
	want(r, "withdrawn", second)
	want(f.follow("di", "/v1/approvals/stream", "Last-Event-ID", e.id), "withdrawn", second)
	if n := f.ledger.Log().Durable(); f.ledger.Log().Durable() != n {
		t.Error("following records something")
	}
}

// caseActor is the actor of a worked case.
type caseActor struct {
	Level   int  `json:"level"`
	InScope bool `json:"in_scope"`
}

// Every worked case of the authority model that rules and actors can express is
// asked over HTTP and answered right.
func TestWorkedCasesOverHTTP(t *testing.T) {
	raw, err := os.ReadFile("../commands/gate/testdata/authority.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases struct {
		EvaluateAll []struct {
			Rules []jsontext.Value `json:"rules"`
			Actor caseActor        `json:"actor"`
			Want  struct {
				Verdict       string `json:"verdict"`
				Evaluated     int    `json:"evaluated"`
				DecisiveIndex *int   `json:"decisive_index"`
			} `json:"want"`
		} `json:"evaluate_all"`
		Evaluate []struct {
			Rule  jsontext.Value `json:"rule"`
			Actor caseActor      `json:"actor"`
			Want  struct {
				Verdict string `json:"verdict"`
				Exempt  bool   `json:"exempt"`
				Reason  string `json:"reason_code"`
			} `json:"want"`
		} `json:"evaluate"`
		Malformed []struct {
			Rule jsontext.Value `json:"rule"`
		} `json:"malformed_rules"`
		Unusable []struct {
			Actor struct {
				Level jsontext.Value `json:"level"`
			} `json:"actor"`
		} `json:"unusable_levels"`
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases.Evaluate) < 50 || len(cases.EvaluateAll) < 30 || len(cases.Malformed) < 10 || len(cases.Unusable) < 6 {
		t.Fatal("the worked cases are not all there")
	}
	f := newFleet(t)
	actors := map[string]bool{}
	// actor registers, once, an actor of this level, in both scopes or in none.
	actor := func(level int, inScope bool) string {
		id := fmt.Sprintf("l%d-%t", level, inScope)
		if !actors[id] {
			scopes := ""
			if inScope {
				scopes = `,"scopes":["org","team-a"]`
			}
			f.register("root", fmt.Sprintf(`{"id":%q,"kind":"human","authority_level":%d%s}`, id, level, scopes))
			actors[id] = true
		}
		return id
	}
	// write writes a case's rule for an action of its own.
	write := func(rule jsontext.Value, action string) string {
		var m map[string]jsontext.Value
		if err := json.Unmarshal(rule, &m); err != nil {
			t.Fatal(err)
		}
		m["action"] = jsontext.Value(fmt.Sprintf("%q", action))
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return f.do("root", "POST", "/v1/rules", string(b)).want(201).text("rule_id")
	}
	for i, c := range cases.Evaluate {
		action := fmt.Sprintf("one.c%d", i)
		write(c.Rule, action)
		a := f.do(actor(c.Actor.Level, c.Actor.InScope), "POST", "/v1/gates", fmt.Sprintf(`{"action":%q}`, action)).want(200)
		if a.text("verdict") != c.Want.Verdict || a.text("evaluated.0.reason_code") != c.Want.Reason || a.get("evaluated.0.exempt") != c.Want.Exempt {
			t.Errorf("evaluate %d: %s", i, a.body)
		}
	}
	for i, c := range cases.EvaluateAll {
		action := fmt.Sprintf("all.c%d", i)
		var ids []string
		for _, r := range c.Rules {
			ids = append(ids, write(r, action))
		}
		a := f.do(actor(c.Actor.Level, c.Actor.InScope), "POST", "/v1/gates", fmt.Sprintf(`{"action":%q}`, action)).want(200)
		decisive := ""
		if c.Want.DecisiveIndex != nil {
			decisive = ids[*c.Want.DecisiveIndex]
		}
		if a.text("verdict") != c.Want.Verdict || len(a.list("evaluated")) != c.Want.Evaluated || a.text("decisive.rule_id") != decisive {
			t.Errorf("evaluate_all %d: %s", i, a.body)
		}
	}
	for _, c := range cases.Malformed {
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/rules", string(c.Rule)) }).want(422, "RULE_MALFORMED")
	}
	for _, c := range cases.Unusable {
		a := f.unchanged(func() answer {
			return f.do("root", "POST", "/v1/actors", fmt.Sprintf(`{"id":"zz","kind":"human","authority_level":%s}`, c.Actor.Level))
		})
		if a.status != 400 && a.status != 422 {
			t.Errorf("level %s: status %d", c.Actor.Level, a.status)
		}
	}
}

// A thousand pending approvals of one agent are in nobody else's way.
func TestThousandPendingOfOneAgent(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "PATCH", "/v1/settings", `{"approvals_per_minute":100000,"fleet_approvals_per_minute":100000}`).want(200)
	f.do("root", "POST", "/v1/rules", `{"action":"deploy.prod","min_level":50}`).want(201)
	n := 1000
	if testing.Short() {
		n = 200
		f.do("root", "PATCH", "/v1/settings", `{"approvals_pending":200}`).want(200)
	}
	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			for range n / 8 {
				f.do("ana", "POST", "/v1/gates", `{"action":"deploy.prod","request_approval":true}`).want(200)
			}
		})
	}
	clients.Wait()
	f.do("ana", "POST", "/v1/gates", `{"action":"deploy.prod","request_approval":true}`).want(429, "APPROVALS_PENDING_LIMITED")
	f.do("bo", "POST", "/v1/gates", `{"action":"deploy.prod","request_approval":true}`).want(200)
	start := time.Now()
	a := f.do("cy", "GET", "/v1/approvals?status=pending&limit=1000", "").want(200)
	t.Logf("%d pending are listed in %s", len(a.list("items")), time.Since(start))
	if len(a.list("items")) != min(n+1, 1000) {
		t.Errorf("%d of %d are listed", len(a.list("items")), n+1)
	}
}

// Limits are settings: what is over a lowered one is refused with it, what is
// under a raised one is taken.
func TestLimitsAreSettable(t *testing.T) {
	f := newFleet(t).people()
	event := func(n int) string {
		return fmt.Sprintf(`{"specversion":"1.0","id":"x%d","source":"/a","type":"ext.a","subject":"ext-a","data":%q}`, n, strings.Repeat("x", n))
	}
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/events", event(70_000)) }).want(413, "PAYLOAD_TOO_LARGE").has("limit", "65536")
	f.do("root", "PATCH", "/v1/settings", `{"payload_bytes":100000,"argv_items":2,"batch_events":1,"batch_bytes":131072,"tail_bytes":10}`).want(200)
	f.do("ana", "GET", "/v1/limits", "").want(200).has("payload_bytes", "100000", "argv_items", "2", "batch_events", "1", "body_bytes", "131072", "tail_bytes", "10")
	f.do("ana", "POST", "/v1/events", event(70_000)).want(201)
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/tasks", `{"argv":["a","b","c"],"targets":["m1"]}`) }).want(413, "ARGV_TOO_LARGE").has("limit", "2")
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/events", "["+event(1)+","+event(2)+"]") }).want(413, "BATCH_TOO_LARGE").has("limit", "1")
	f.unchanged(func() answer { return f.do("ana", "POST", "/v1/events", event(140_000)) }).want(413, "BODY_TOO_LARGE").has("limit", "131072")
	f.unchanged(func() answer { return f.do("root", "PATCH", "/v1/settings", `{"batch_events":1001}`) }).want(422, "INVALID")
}

// The worked cases of bands, of who may approve, and of derived actors, over HTTP.
func TestWorkedCasesOfApproversOverHTTP(t *testing.T) {
	raw, err := os.ReadFile("../commands/gate/testdata/authority.json")
	if err != nil {
		t.Fatal(err)
	}
	type who struct {
		ID    string `json:"id"`
		Level int    `json:"level"`
	}
	var cases struct {
		Bands []struct {
			Level    int `json:"level"`
			Required int `json:"required_approver_level"`
		} `json:"bands"`
		MayApprove []struct {
			Approver who `json:"approver"`
			Subject  who `json:"subject"`
			Want     struct {
				OK       bool `json:"ok"`
				Required int  `json:"required"`
			} `json:"want"`
		} `json:"may_approve"`
		Derive []struct {
			Parent who `json:"parent"`
			Child  struct {
				Level *int `json:"level"`
				Cap   *int `json:"cap"`
			} `json:"child"`
			Want struct {
				Level  int  `json:"level"`
				Capped bool `json:"capped"`
			} `json:"want"`
		} `json:"derive"`
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases.Bands) != 101 || len(cases.MayApprove) < 40 || len(cases.Derive) < 30 {
		t.Fatal("the worked cases are not all there")
	}
	f := newFleet(t)
	// Whoever is outside the scope asks; whoever is inside may do it.
	f.do("root", "POST", "/v1/rules", `{"action":"worked.case","min_level":0,"scope":"in"}`).want(201)
	ask := func(id string) string {
		return f.do(id, "POST", "/v1/gates", `{"action":"worked.case","request_approval":true}`).want(200).text("approval_id")
	}
	register := func(id string, level int, scopes string) string {
		f.register("root", fmt.Sprintf(`{"id":%q,"kind":"human","authority_level":%d%s}`, id, level, scopes))
		return id
	}
	for _, c := range cases.Bands {
		approval := ask(register(fmt.Sprintf("band%d", c.Level), c.Level, ""))
		f.do("root", "GET", "/v1/approvals/"+approval, "").want(200).has("required_level", fmt.Sprint(c.Required))
	}
	for i, c := range cases.MayApprove {
		subject := register(fmt.Sprintf("subject%d", i), c.Subject.Level, "")
		approver := subject
		if c.Approver.ID != c.Subject.ID {
			approver = register(fmt.Sprintf("approver%d", i), c.Approver.Level, `,"scopes":["in"]`)
		}
		approval := ask(subject)
		f.do("root", "GET", "/v1/approvals/"+approval, "").want(200).has("required_level", fmt.Sprint(c.Want.Required))
		a := f.do(approver, "POST", "/v1/approvals/"+approval+"/settle", `{"outcome":"granted","reason":"worked"}`)
		if c.Want.OK {
			a.want(200)
		} else {
			a.want(403, "APPROVER_NOT_ENTITLED")
		}
	}
	for i, c := range cases.Derive {
		parent := register(fmt.Sprintf("parent%d", i), c.Parent.Level, "")
		body := fmt.Sprintf(`{"id":"child%d","kind":"agent","parent":%q`, i, parent)
		if c.Child.Level != nil {
			body += fmt.Sprintf(`,"authority_level":%d`, *c.Child.Level)
		}
		if c.Child.Cap != nil {
			body += fmt.Sprintf(`,"cap":%d`, *c.Child.Cap)
		}
		f.do(parent, "POST", "/v1/actors", body+"}").want(201).
			has("actor.authority_level", fmt.Sprint(c.Want.Level), "capped", fmt.Sprint(c.Want.Capped))
	}
}

// Fifty clients settle one approval at once, half granting and half refusing, while
// its time runs out: one event is recorded, and everyone else is told of it.
func TestFiftySettleWhileItExpires(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "PATCH", "/v1/settings", `{"approval_expires_s":1}`).want(200)
	f.do("root", "POST", "/v1/rules", `{"action":"deploy.prod","min_level":50}`).want(201)
	outcomes := map[string]int{}
	rounds := 30
	if testing.Short() {
		rounds = 10
	}
	for round := range rounds {
		asked := f.do("ana", "POST", "/v1/gates", `{"action":"deploy.prod","request_approval":true}`).want(200)
		id := asked.text("approval_id")
		before := f.ledger.Log().Durable()
		answers := make([]answer, 50)
		start := make(chan struct{})
		var clients sync.WaitGroup
		for i := range answers {
			clients.Go(func() {
				<-start
				who, outcome := "cy", "granted"
				if i%2 == 0 {
					who, outcome = "di", "refused"
				}
				answers[i] = f.do(who, "POST", "/v1/approvals/"+id+"/settle", fmt.Sprintf(`{"outcome":%q,"reason":"race"}`, outcome))
			})
		}
		clients.Go(func() {
			<-start
			time.Sleep(time.Duration(round) * 40 * time.Microsecond) // sooner or later: either may win
			f.skew.Add(int64(2 * time.Second))
			if err := f.ledger.Sweep(t.Context()); err != nil {
				t.Error(err)
			}
		})
		close(start)
		clients.Wait()
		if n := f.ledger.Log().Durable() - before; n != 1 {
			t.Fatalf("round %d: %d events were recorded", round, n)
		}
		ended := f.do("ana", "GET", "/v1/approvals/"+id, "").want(200).text("status")
		outcomes[ended]++
		won := 0
		for _, a := range answers {
			if a.status == http.StatusOK {
				won++
				a.has("outcome", ended)
				continue
			}
			a.want(409, "APPROVAL_ENDED").has("outcome", ended)
		}
		if want := map[bool]int{true: 0, false: 1}[ended == "expired"]; won != want {
			t.Errorf("round %d: %d were told that they settled it, it is %s", round, won, ended)
		}
		f.skew.Add(int64(2 * time.Second))
	}
	t.Logf("ended as %v", outcomes)
}
