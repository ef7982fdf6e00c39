package relay

import (
	"fmt"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

// all reads a list to its end in pages of n.
func (f *fleet) all(path string, n int) (items []any) {
	f.t.Helper()
	cursor := ""
	for {
		u := fmt.Sprintf("%s%slimit=%d", path, map[bool]string{true: "&", false: "?"}[strings.Contains(path, "?")], n)
		if cursor != "" {
			u += "&cursor=" + url.QueryEscape(cursor)
		}
		a := f.do("root", "GET", u, "").want(200)
		page := a.list("items")
		if len(page) > n {
			f.t.Fatalf("%s: a page of %d", path, len(page))
		}
		items = append(items, page...)
		if cursor = a.text("next_cursor"); cursor == "" {
			return items
		}
		if len(items) > 10_000 {
			f.t.Fatalf("%s: no end", path)
		}
	}
}

// A list in pages is the whole list, whatever the size of a page.
func TestPages(t *testing.T) {
	f := newFleet(t).people()
	for i := range 7 {
		f.submit("ana", fmt.Sprint("cmd", i), "m1")
		f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202)
		f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["ls","`+fmt.Sprint(i)+`"],`+envelope[1:]+`}`).want(201)
		f.do("bo", "POST", "/v1/conclusions", `{"about":null,"text":"c`+fmt.Sprint(i)+`"}`).want(201)
		f.do("ana", "POST", "/v1/consolidations", `{"text":"x","forgets":{"machine":"m`+fmt.Sprint(i%3)+`","before":"2020-01-01T00:00:00Z"}}`).want(201)
		f.do([]string{"ana", "bo"}[i%2], "POST", "/v1/blocks", `{"fields":{"focus":"`+fmt.Sprint(i)+`"}}`).want(201)
		f.do("ana", "POST", "/v1/events", fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"/a","type":"ext.k%d","subject":"ext-s%d"}`, i, i%2, i%3)).want(201)
	}
	before := f.ledger.Log().Durable()
	for path, count := range map[string]int{
		"/v1/actors": 8, "/v1/rules": 21, "/v1/tasks": 14, "/v1/tasks?status=open": 7, "/v1/tasks?machine=m2": 7, "/v1/approvals": 7, "/v1/approvals?status=pending": 7,
		"/v1/approvals?status=granted": 0, "/v1/memory": 7, "/v1/memory?argv=ls+3": 1, "/v1/conclusions": 7, "/v1/consolidations": 7, "/v1/consolidations?machine=m1": 2, "/v1/blocks": 7, "/v1/blocks?published_by=bo": 3, "/v1/blocks?accepted_by=bo": 0, "/v1/events": int(before),
		"/v1/events?stream=ext-s0": 3, "/v1/events?type=ext.k0": 4, "/v1/events?stream=ext-s0&type=ext.k0": 2, "/v1/events?after=30": int(before) - 30, "/v1/events?after=99999": 0,
		"/v1/events?stream=nothing": 0,
	} {
		whole := f.all(path, 1000)
		if len(whole) != count {
			t.Errorf("%s: %d items, not %d", path, len(whole), count)
		}
		for _, n := range []int{1, 2, 3, 7} {
			if got := f.all(path, n); fmt.Sprint(got) != fmt.Sprint(whole) {
				t.Errorf("%s in pages of %d is\n%v, not\n%v", path, n, got, whole)
			}
		}
	}
	if after := f.ledger.Log().Durable(); after != before {
		t.Errorf("reading recorded %d events", after-before)
	}
}

// Lists as of a position are what they were then.
func TestListsAsOfThen(t *testing.T) {
	f := newFleet(t).people()
	f.ran(f.submit("ana", "ls", "m1"))
	f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m2"]}`).want(202)
	f.do("bo", "POST", "/v1/conclusions", `{"about":null,"text":"c"}`).want(201)
	paths := []string{"/v1/actors", "/v1/actors/cy", "/v1/rules", "/v1/tasks", "/v1/tasks?status=open", "/v1/approvals", "/v1/approvals?status=pending", "/v1/memory", "/v1/conclusions",
		"/v1/collective", "/v1/collective/sections/a", "/v1/consolidations", "/v1/blocks", "/v1/blocks?published_by=ana"}
	f.do("cy", "PUT", "/v1/collective/sections/a", `{"heading":"A","text":"x"}`).want(200)
	then := map[string]string{}
	head := f.ledger.Log().Durable()
	for _, p := range paths {
		then[p] = string(f.do("cy", "GET", p, "").want(200).body)
	}
	at := func(path string) string {
		sep := "?"
		if strings.Contains(path, "?") {
			sep = "&"
		}
		return string(f.do("cy", "GET", fmt.Sprintf("%s%sat=%d", path, sep, head), "").want(200).body)
	}
	for _, p := range paths {
		if got := at(p); got != then[p] {
			t.Errorf("%s at the head is\n%s, not\n%s", p, got, then[p])
		}
	}
	pending := f.do("cy", "GET", "/v1/approvals", "").text("items.0.approval_id")
	f.do("cy", "POST", "/v1/approvals/"+pending+"/settle", `{"outcome":"granted","reason":"x"}`).want(200)
	f.register("root", `{"id":"late","kind":"human","authority_level":10}`)
	f.do("root", "POST", "/v1/rules", `{"action":"task.submit.*","min_level":60}`).want(201)
	f.do("root", "PATCH", "/v1/actors/cy", `{"authority_level":55,"remove_scopes":["ops"]}`).want(200)
	f.do("cy", "POST", "/v1/actors/cy/tokens", "").want(201)
	f.ran(f.submit("root", "ls", "m1"))
	f.do("bo", "POST", "/v1/conclusions", `{"about":null,"text":"d"}`).want(201)
	f.do("root", "PUT", "/v1/collective/sections/a", `{"heading":"A","text":"y"}`).want(200)
	for _, p := range paths {
		if got := at(p); got != then[p] {
			t.Errorf("%s as of then is\n%s, not\n%s", p, got, then[p])
		}
		if now := string(f.do("cy", "GET", p, "").want(200).body); now == then[p] && p != "/v1/approvals?status=pending" {
			t.Errorf("%s did not change", p)
		}
	}
}

func TestMinPosition(t *testing.T) {
	impatient := newFleet(t, func(c *Config) { c.PositionPatience = time.Millisecond })
	impatient.do("root", "GET", "/v1/tasks?min_position=99999", "").want(503, "POSITION_NOT_REACHED").has("min_position", "99999")
	f := newFleet(t).people()
	next := f.ledger.Log().Durable() + 1
	done := make(chan answer)
	go func() {
		done <- f.do("bo", "GET", fmt.Sprintf("/v1/events?after=%d&min_position=%d", next-1, next), "")
	}()
	f.do("ana", "POST", "/v1/events", `{"specversion":"1.0","id":"e1","source":"/a","type":"ext.a","subject":"ext-a"}`).want(201)
	(<-done).want(200).has("items.0.id", "e1", "scope.from", fmt.Sprint(next), "scope.to", fmt.Sprint(next))
	f.do("bo", "GET", "/v1/tasks?min_position=1", "").want(200)
}

func TestHeadIsGet(t *testing.T) {
	f := newFleet(t).people()
	for _, path := range []string{"/v1/tasks", "/v1/actors/ana", "/v1/events/stream", "/healthz", "/openapi.json"} {
		a := f.unchanged(func() answer { return f.do("root", "HEAD", path, "") })
		if a.status != 200 || len(a.body) != 0 || a.header.Get("Content-Type") == "" {
			t.Errorf("%s: %d %v %s", path, a.status, a.header, a.body)
		}
	}
	f.do("root", "HEAD", "/v1/tasks/none", "").want(404)
}

// A page looks at so many events and no more; the next one goes on there.
func TestFilteredPagesAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("records 10,000 events")
	}
	f := newFleet(t)
	body := func(from, n int, kind string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			fmt.Fprintf(&b, `{"specversion":"1.0","id":"e%d","source":"/a","type":"ext.%s","subject":"ext-a"}`, from+i, kind)
		}
		return "[" + b.String() + "]"
	}
	for i := range maxScan/100 + 1 {
		f.do("root", "POST", "/v1/events", body(i*100, 100, "many")).want(201)
	}
	f.do("root", "POST", "/v1/events", body(20_000, 1, "few")).want(201)
	a := f.do("root", "GET", "/v1/events?type=ext.few", "").want(200).has("items", "[]", "scope.from", "1", "scope.to", fmt.Sprint(float64(maxScan)))
	f.do("root", "GET", "/v1/events?type=ext.few&cursor="+a.text("next_cursor"), "").want(200).has("items.0.id", "e20000", "next_cursor", "<nil>")
	if got := f.all("/v1/events?type=ext.few&stream=ext-a", 50); len(got) != 1 {
		t.Errorf("%v", got)
	}
}

func TestRevisionAt(t *testing.T) {
	f := newFleet(t)
	var positions []events.Position
	for i := range 20 {
		stream := map[bool]string{true: "ext-a", false: "ext-b"}[i%3 == 0]
		a := f.do("root", "POST", "/v1/events", fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"/a","type":"ext.a","subject":%q}`, i, stream)).want(201)
		if stream == "ext-a" {
			positions = append(positions, events.Position(a.get("receipt.position").(float64)))
		}
	}
	c := &call{Relay: f.relay, ledger: f.ledger, r: httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)}
	for at := events.Position(0); at <= f.ledger.Log().Durable()+2; at++ {
		want := events.Revision(0)
		for _, p := range positions {
			if p <= at {
				want++
			}
		}
		if got, err := c.revisionAt("ext-a", at); err != nil || got != want {
			t.Errorf("at %d the stream has revision %d, not %d: %v", at, got, want, err)
		}
	}
}
