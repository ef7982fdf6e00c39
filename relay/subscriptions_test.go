package relay

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

func TestSubscriptions(t *testing.T) {
	f := newFleet(t).people()
	ctx, stop := context.WithCancel(context.Background())
	ran := make(chan error, 1)
	go func() { ran <- f.relay.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ran; err != nil {
			t.Error(err)
		}
	}()
	var calls, refuse atomic.Int64
	refuse.Store(http.StatusForbidden)
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		calls.Add(1)
		if s := refuse.Load(); s != 0 {
			w.WriteHeader(int(s))
		}
	}))
	t.Cleanup(hook.Close)
	body := func(name, more string) string {
		return `{"name":"` + name + `","destination":{"kind":"webhook","url":"` + hook.URL + `"}` + more + `}`
	}

	// Nothing but what was asked is in the log, and in these words.
	f.do("root", "GET", "/v1/subscriptions", "").want(200).has("items", "[]")
	made := f.do("root", "POST", "/v1/subscriptions", body("out", `,"types":["ext.*"]`), "Idempotency-Key", "0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51").want(201).
		has("name", "out", "types", "[ext.*]", "streams", "[]", "receipt.stream", "subscriptions")
	if !strings.HasPrefix(made.text("public_key"), "whpk_") {
		t.Errorf("public_key %s", made.text("public_key"))
	}
	f.unchanged(func() answer {
		return f.do("root", "POST", "/v1/subscriptions", body("out", `,"types":["ext.*"]`), "Idempotency-Key", "0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51")
	}).want(201).has("receipt.position", number(made, "receipt.position"))
	f.unchanged(func() answer { return f.do("root", "POST", "/v1/subscriptions", body("out", "")) }).want(409, "SUBSCRIPTION_EXISTS")
	for more, path := range map[string]string{
		`{"name":"Out","destination":{"kind":"webhook","url":"http://h/"}}`:                                                                  "/name",
		`{"name":"o","destination":{"kind":"ftp","url":"http://h/"}}`:                                                                        "/destination/kind",
		`{"name":"o","destination":{"kind":"webhook","url":"nats://h/"}}`:                                                                    "/destination/url",
		`{"name":"o","destination":{"kind":"webhook","url":"http://me:secret@h/"}}`:                                                          "/destination/url",
		`{"name":"o","destination":{"kind":"nats","url":"nats://h:4222"}}`:                                                                   "/destination/subject",
		`{"name":"o","destination":{"kind":"nats","url":"nats://h:4222","subject":"a.*"}}`:                                                   "/destination/subject",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/","subject":"a"}}`:                                                      "/destination/subject",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/","credential_env":"a-b"}}`:                                             "/destination/credential_env",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/","credential_env":"Fleetledger_engine"}}`:                              "/destination/credential_env",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/"},"types":["a b"]}`:                                                    "/types/0",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/"},"types":["ext.*.done"]}`:                                             "/types/0",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/"},"types":["x","ext.**"]}`:                                             "/types/1",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/"},"streams":[""]}`:                                                     "/streams/0",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/"},"after":99999}`:                                                      "/after",
		`{"name":"o","destination":{"kind":"webhook","url":"http://h/?token=` + "ghp_" + "q7ZtR2mXw9KbL4vNc8Yd" + "J3hFs6GpUa1TeQ5i" + `"}}`: "/destination/url",
	} {
		f.unchanged(func() answer { return f.do("root", "POST", "/v1/subscriptions", more) }).want(422, "INVALID").has("problems.0.path", path)
	}
	// A captain asks for approval, and it names what would be done.
	f.do("cy", "POST", "/v1/subscriptions", body("mine", "")).want(202).has("actions", "[fleet.configure]", "required_level", "90")

	f.do("ana", "POST", "/v1/events", `{"specversion":"1.0","id":"e1","source":"/x","type":"ext.a","subject":"ext-a","data":1}`).want(201)
	status := func() answer { return f.do("ana", "GET", "/v1/subscriptions/out", "").want(200) }
	until(t, func() bool { return status().text("status") == "failing" })
	stuck := status()
	if !strings.Contains(stuck.text("failing"), "403") || number(stuck, "delivered") != "0" || stuck.get("retry_at") == nil {
		t.Errorf("%s", stuck.body)
	}
	f.do("root", "POST", "/v1/subscriptions/out/park", `{"position":`+number(stuck, "stuck")+`}`).want(200).has("receipt.stream", "subscriptions")
	until(t, func() bool { s := status(); return number(s, "parked") == "1" && s.text("status") == "active" })
	status().has("stuck", "<nil>")
	f.do("ana", "GET", "/v1/subscriptions/out/parked", "").want(200).has("items.0.event_id", "e1", "items.0.position", number(stuck, "stuck"), "items.1", "<nil>")

	refuse.Store(0)
	f.do("root", "POST", "/v1/subscriptions/out/replay", "").want(200)
	until(t, func() bool { return number(status(), "parked") == "0" && number(status(), "delivered") == "1" })
	f.unchanged(func() answer { return f.do("root", "POST", "/v1/subscriptions/out/replay", `{"after":99999}`) }).want(422, "INVALID")

	f.expectLogged("an event was parked")
	f.unchanged(func() answer { return f.do("root", "PATCH", "/v1/subscriptions/out", `{"paused":false}`) }).want(200).has("receipt", "<nil>")
	f.do("root", "PATCH", "/v1/subscriptions/out", `{"paused":true}`).want(200)
	status().has("status", "paused")
	f.do("root", "DELETE", "/v1/subscriptions/out", "").want(200)
	f.do("root", "GET", "/v1/subscriptions/out", "").want(404, "SUBSCRIPTION_NOT_FOUND")
	for _, r := range []string{"DELETE /v1/subscriptions/out", "POST /v1/subscriptions/out/replay", "GET /v1/subscriptions/out/parked"} {
		method, path, _ := strings.Cut(r, " ")
		f.unchanged(func() answer { return f.do("root", method, path, "") }).want(404, "SUBSCRIPTION_NOT_FOUND")
	}
	f.do("root", "GET", "/v1/subscriptions?at=1", "").want(400, "AT_NOT_SUPPORTED")
}

func number(a answer, path string) string { return fmt.Sprint(a.get(path)) }

// until waits for a condition that a delivery brings about.
func until(t *testing.T, holds func() bool) {
	t.Helper()
	for limit := time.Now().Add(20 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("not within 20 s")
		}
	}
}
