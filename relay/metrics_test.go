package relay

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

// metricsOf are the samples that an actor is shown, by name and labels.
func (f *fleet) metricsOf(as string) map[string]float64 {
	f.t.Helper()
	a := f.do(as, "GET", "/metrics", "", "Accept-Encoding", "identity").want(200)
	if media := a.header.Get("Content-Type"); !strings.HasPrefix(media, "text/plain; version=0.0.4") {
		f.t.Errorf("the metrics are %s", media)
	}
	out := map[string]float64{}
	for line := range strings.Lines(string(a.body)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		name, text, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if text == "" {
			name, text, _ = strings.Cut(name, " ")
		} else {
			name += "}"
		}
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			f.t.Errorf("%q: %v", line, err)
		}
		if _, twice := out[name]; twice {
			f.t.Errorf("%s is there twice", name)
		}
		out[name] = value
	}
	return out
}

func TestMetrics(t *testing.T) {
	f := newFleet(t).people()
	f.do("", "GET", "/metrics", "").want(401, "TOKEN_MISSING")
	f.do("root", "POST", "/metrics", "").want(405)
	before := f.metricsOf("ana")
	if before["fleetledger_tasks_open{fleet=\"default\",status=\"open\"}"] != 0 || before[`fleetledger_build_info{version="test"}`] != 1 || before["go_goroutines"] == 0 {
		t.Errorf("%v", before)
	}
	if _, there := before[`fleetledger_audit_findings{fleet="default"}`]; there {
		t.Error("findings of an audit that there was not")
	}

	// What is open, and what was appended.
	f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m1"]}`).want(201)
	f.do("root", "POST", "/v1/rules", `{"action":"task.submit.m1","min_level":50}`).want(201)
	f.do("ana", "POST", "/v1/tasks", `{"argv":["ls"],"targets":["m1"]}`).want(202)
	for i := range 3 {
		f.do("ana", "POST", "/v1/events", fmt.Sprintf(`[{"specversion":"1.0","id":"a%d","source":"/a","type":"ext.a","subject":"ext-a"},{"specversion":"1.0","id":"b%d","source":"/a","type":"ext.a","subject":"ext-a"}]`, i, i)).want(201)
	}
	f.do("root", "POST", "/v1/subscriptions", `{"name":"out","destination":{"kind":"webhook","url":"http://127.0.0.1:1/"},"after":0}`).want(201)
	stream, end := context.WithCancel(t.Context())
	defer end()
	req, err := http.NewRequestWithContext(stream, "GET", f.server.URL+"/v1/events/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+f.tokens["ana"])
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	audit := f.do("root", "POST", "/v1/audit", "").want(201).text("audit_id")
	for f.do("root", "GET", "/v1/audit/"+audit, "").want(200).text("status") == "running" {
		time.Sleep(time.Millisecond)
	}

	// Nothing that a caller chooses is a label: neither a path, nor a method, nor an id.
	for _, path := range []string{"/v1/no/such/path-of-mine", "/v1/actors/whoever-it-is", "/v1/tasks/whatever-it-is"} {
		f.do("ana", "GET", path, "").want(404)
	}
	f.do("ana", "BREW", "/v1/tasks", "").want(405)
	f.do("", "GET", "/v1/tasks", "").want(401)
	f.do("other:root", "GET", "/v1/tasks", "").want(200)

	head := float64(f.ledger.Log().Durable())
	got := f.metricsOf("bo")
	for name, want := range map[string]float64{
		`fleetledger_tasks_open{fleet="default",status="open"}`:                                                        1,
		`fleetledger_tasks_open{fleet="default",status="awaiting_approval"}`:                                           1,
		`fleetledger_approvals_pending{fleet="default"}`:                                                               1,
		`fleetledger_event_streams_open{fleet="default"}`:                                                              1,
		`fleetledger_log_position{fleet="default"}`:                                                                    head,
		`fleetledger_log_writable{fleet="default"}`:                                                                    1,
		`fleetledger_state_drifted{fleet="default"}`:                                                                   0,
		`fleetledger_duty_held{fleet="default"}`:                                                                       1,
		`fleetledger_audit_findings{fleet="default"}`:                                                                  0,
		`fleetledger_audit_position{fleet="default"}`:                                                                  head,
		`fleetledger_subscription_lag_events{fleet="default",subscription="out"}`:                                      head,
		`fleetledger_subscription_parked_events{fleet="default",subscription="out"}`:                                   0,
		`fleetledger_view_faulty{fleet="default"}`:                                                                     0,
		`fleetledger_http_requests_total{fleet="default",method="POST",route="/v1/events",status="201"}`:               3,
		`fleetledger_http_requests_total{fleet="default",method="POST",route="/v1/tasks",status="201"}`:                1,
		`fleetledger_http_requests_total{fleet="default",method="POST",route="/v1/tasks",status="202"}`:                1,
		`fleetledger_http_requests_total{fleet="default",method="",route="none",status="404"}`:                         1,
		`fleetledger_http_requests_total{fleet="default",method="",route="none",status="405"}`:                         2,
		`fleetledger_http_requests_total{fleet="default",method="GET",route="/v1/actors/{id}",status="404"}`:           1,
		`fleetledger_http_requests_total{fleet="",method="GET",route="/v1/tasks",status="401"}`:                        1,
		`fleetledger_http_request_duration_seconds_count{fleet="default",method="POST",route="/v1/events"}`:            3,
		`fleetledger_http_request_duration_seconds_bucket{fleet="default",method="POST",route="/v1/events",le="+Inf"}`: 3,
	} {
		if v, there := got[name]; !there || v != want {
			t.Errorf("%s is %v (%t), not %v", name, v, there, want)
		}
	}
	// Each append was one group of this engine.
	const commits = `fleetledger_commit_events_`
	if n, sum := got[commits+`count{fleet="default"}`], got[commits+`sum{fleet="default"}`]; n != got[`fleetledger_appends_total{fleet="default"}`] || sum != head ||
		n == 0 || got[commits+`bucket{fleet="default",le="1024"}`] != n {
		t.Errorf("%v commits of %v events", n, sum)
	}
	if lag := got[`fleetledger_view_lag_events{fleet="default"}`]; lag > head || got[`fleetledger_view_position{fleet="default"}`]+lag < head {
		t.Errorf("the view lags %v of %v events", lag, head)
	}
	known := regexp.MustCompile(`^(|none|/[a-z0-9._*/{}-]+)$`)
	for name := range got {
		if strings.Contains(name, `fleet="other"`) {
			t.Errorf("default is shown %s", name)
		}
		if m := regexp.MustCompile(`route="([^"]*)"`).FindStringSubmatch(name); m != nil && !known.MatchString(m[1]) {
			t.Errorf("a route is %q", m[1])
		}
		for _, chosen := range []string{"mine", "whoever", "whatever", "BREW", "ana", "ext-a"} {
			if strings.Contains(name, chosen) && !strings.HasPrefix(name, "go_") {
				t.Errorf("%s is a caller's choice", name)
			}
		}
	}
	if other := f.metricsOf("other:root"); other[`fleetledger_http_requests_total{fleet="other",method="GET",route="/v1/tasks",status="200"}`] != 1 ||
		other[`fleetledger_tasks_open{fleet="other",status="open"}`] != 0 {
		t.Errorf("other is shown %v", other)
	}

	// As Prometheus would have them.
	problems, err := promlint.New(bytes.NewReader(f.do("bo", "GET", "/metrics", "", "Accept-Encoding", "identity").want(200).body)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func BenchmarkMetricsOfARequest(b *testing.B) {
	s := &Relay{}
	s.metrics = newMetrics(s)
	c := &call{Relay: s, op: &operation{method: "POST", path: "/v1/events"}, status: 201}
	for b.Loop() {
		s.metrics.answered(c, time.Now())
	}
}
