package relay

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events/devicekey"
	"fleetledger/projections"
)

// device is a paired device that signs as a test tells it to.
type device struct {
	f    *fleet
	name string
	key  ed25519.PrivateKey
	n    atomic.Int64 // signatures made
}

func newDeviceKey(t *testing.T) (public string, private ed25519.PrivateKey) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return devicekey.PublicKey(pub), key
}

// pair makes m1 and pairs a device of it.
func (f *fleet) pair() *device {
	f.t.Helper()
	code := f.do("root", "POST", "/v1/pairings", `{"id":"m1","kind":"machine","authority_level":10}`).want(201).text("code")
	return f.redeem(code)
}

func (f *fleet) redeem(code string) *device {
	f.t.Helper()
	public, key := newDeviceKey(f.t)
	a := f.do("", "POST", "/v1/pairings/redeem", `{"code":"`+code+`","public_key":"`+public+`"}`).want(201)
	d := &device{f: f, name: a.text("device"), key: key}
	d.n.Store(time.Now().UnixNano())
	return d
}

// sign returns the headers of a request, its claims changed by change.
func (d *device) sign(method, path, body string, change ...func(*devicekey.Claims)) []string {
	d.f.t.Helper()
	c := devicekey.Claims{
		Method: method, Host: strings.TrimPrefix(d.f.server.URL, "http://"), Path: path, Body: devicekey.BodyHash([]byte(body)),
		IssuedAt: d.f.ledger.Log().Now().Unix(), ID: fmt.Sprintf("%032d", d.n.Add(1)), Nonce: d.f.relay.signatures["default"].nonce,
	}
	for _, f := range change {
		f(&c)
	}
	signature, err := devicekey.Sign(d.key, d.name, c)
	if err != nil {
		d.f.t.Fatal(err)
	}
	return []string{"Authorization", "DPoP " + d.name, "DPoP", signature}
}

func (d *device) do(method, path, body string, change ...func(*devicekey.Claims)) answer {
	d.f.t.Helper()
	return d.f.do("", method, path, body, d.sign(method, path, body, change...)...)
}

func TestPairing(t *testing.T) {
	f := newFleet(t).people()
	public, key := newDeviceKey(t)
	made := f.do("di", "POST", "/v1/pairings", `{"id":"m9","authority_level":10,"scopes":[],"expires_s":60}`, "Idempotency-Key", "01939f5e-7a1b-7c3d-8e4f-0123456789ab").want(201).
		has("machine", "m9", "actor.kind", "machine", "actor.authority_level", "10", "receipt.stream", "tokens")
	code := made.text("code")
	again := f.unchanged(func() answer {
		return f.do("di", "POST", "/v1/pairings", `{"id":"m9","authority_level":10,"scopes":[],"expires_s":60}`, "Idempotency-Key", "01939f5e-7a1b-7c3d-8e4f-0123456789ab")
	}).want(201).has("code", "<nil>")
	if again.text("pairing_id") != made.text("pairing_id") || again.text("expires_at") != made.text("expires_at") {
		t.Errorf("made %s, again %s", made.body, again.body)
	}
	f.do("root", "GET", "/v1/actors/m9", "").want(200).has("kind", "machine", "authority_level", "10", "registered_by", "di",
		"tokens.0.use", "pairing", "tokens.0.token_id", made.text("pairing_id"), "tokens.0.expires_at", made.text("expires_at"), "tokens.1", "<nil>")
	// The code alone is nobody.
	f.tokens["code"] = code
	f.do("code", "GET", "/v1/actors", "").want(401, "TOKEN_UNKNOWN")

	body := `{"code":"` + code + `","public_key":"` + public + `"}`
	f.unchanged(func() answer {
		return f.do("", "POST", "/v1/pairings/redeem", strings.Replace(body, public, public[1:], 1))
	}).want(422, "INVALID").has("problems.0.path", "/public_key")
	redeemed := f.do("", "POST", "/v1/pairings/redeem", body, "Idempotency-Key", "01939f5e-7a1b-7c3d-8e4f-0123456789ac").want(201).
		has("fleet", "default", "machine", "m9", "device", "default~m9~"+made.text("pairing_id"), "receipt.stream", "tokens")
	f.unchanged(func() answer { return f.do("", "POST", "/v1/pairings/redeem", body) }).want(401, "PAIRING_INVALID")
	// Who repeats the request is answered as before.
	repeated := f.unchanged(func() answer {
		return f.do("", "POST", "/v1/pairings/redeem", body, "Idempotency-Key", "01939f5e-7a1b-7c3d-8e4f-0123456789ac")
	}).want(201)
	if string(repeated.body) != string(redeemed.body) {
		t.Errorf("redeemed %s, repeated %s", redeemed.body, repeated.body)
	}
	d := &device{f: f, name: redeemed.text("device"), key: key}
	d.do("GET", "/v1/actors/m9?min_position=3", "").want(200).has("tokens.0.use", "device", "tokens.0.public_key", public, "tokens.0.expires_at", "<nil>")
	f.do("root", "GET", "/v1/actors/m9?at="+fmt.Sprint(int(redeemed.get("receipt.position").(float64))-1), "").want(200).has("tokens.0.use", "pairing")

	// Another device of it; the first stays until its token is revoked.
	second := d.do("POST", "/v1/pairings", `{"id":"m9"}`).want(201)
	d2 := f.redeem(second.text("code"))
	d.do("GET", "/v1/rules", "").want(200)
	d2.do("DELETE", "/v1/actors/m9/tokens/"+made.text("pairing_id"), "").want(200)
	d.do("GET", "/v1/rules", "").want(401, "SIGNATURE_INVALID")
	d2.do("GET", "/v1/rules", "").want(200)
	f.do("root", "PATCH", "/v1/actors/m9", `{"suspended":true}`).want(200)
	d2.do("GET", "/v1/rules", "").want(403, "ACTOR_NOT_ACTIVE")

	var log strings.Builder
	for r, err := range f.ledger.Log().ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		log.Write(r.Payload)
	}
	if _, _, secret := commands.SplitToken(code); strings.Contains(log.String(), secret) {
		t.Error("the log holds the pairing code")
	}
}

func TestPairingRefusals(t *testing.T) {
	f := newFleet(t).people()
	for _, c := range []struct{ as, body, code string }{
		{"ana", `{"id":"m9"}`, ""}, // needs an approval
		{"di", `{"id":"ana"}`, "ACTOR_EXISTS"},
		{"di", `{"id":"m1","authority_level":5}`, "ACTOR_EXISTS"},
		{"di", `{"id":"M9"}`, "INVALID"},
		{"di", `{"id":"m9","authority_level":99}`, "ABOVE_OWN_LEVEL"},
		{"di", `{"id":"m9","authority_level":null}`, "INVALID_FIELDS"},
		{"di", `{"id":"m9","expires_s":0}`, "INVALID"},
		{"di", `{"id":"m9","expires_s":604801}`, "INVALID"},
		{"di", `{"id":"m9","kind":"human"}`, "INVALID_FIELDS"},
		{"di", `{"id":"m9","machine":"m9"}`, "INVALID_FIELDS"},
		{"di", `{"id":"m9","scopes":["a","b"]}`, "INVALID"},
	} {
		if c.code == "" {
			f.do(c.as, "POST", "/v1/pairings", c.body).want(202)
			continue
		}
		if a := f.unchanged(func() answer { return f.do(c.as, "POST", "/v1/pairings", c.body) }); a.status < 400 || a.text("code") != c.code {
			t.Errorf("%s: %d %s", c.body, a.status, a.body)
		}
	}
	public, _ := newDeviceKey(t)
	code := f.do("di", "POST", "/v1/pairings", `{"id":"m9","expires_s":60}`).want(201).text("code")
	redeem := func(code string) answer {
		return f.unchanged(func() answer {
			return f.do("", "POST", "/v1/pairings/redeem", `{"code":"`+code+`","public_key":"`+public+`"}`)
		})
	}
	head := f.do("root", "GET", "/v1/limits", "").want(200).header.Get("Ledger-Position")
	for _, bad := range []string{"", "x", "default~m9~", strings.Replace(code, "m9", "m1", 1), strings.Replace(code, "default", "other", 1), strings.Replace(code, "default", "none", 1), f.tokens["root"]} {
		if a := redeem(bad).want(401, "PAIRING_INVALID"); a.header.Get("Ledger-Position") != head || a.header.Get("WWW-Authenticate") == "" {
			t.Errorf("%q: %v", bad, a.header)
		}
	}
	f.unchanged(func() answer { return f.do("", "POST", "/v1/pairings/redeem", `{"code":"x"`) }).want(400, "MALFORMED_JSON")
	f.unchanged(func() answer {
		return f.do("", "POST", "/v1/pairings/redeem", `{"code":"`+strings.Repeat("x", 5000)+`","public_key":"x"}`)
	}).want(413, "BODY_TOO_LARGE")
	// A code that is revoked, of a machine that is suspended, or expired.
	revoked := f.do("di", "POST", "/v1/pairings", `{"id":"m8"}`).want(201)
	f.do("di", "DELETE", "/v1/actors/m8/tokens/"+revoked.text("pairing_id"), "").want(200)
	redeem(revoked.text("code")).want(401, "PAIRING_INVALID")
	f.do("di", "PATCH", "/v1/actors/m9", `{"suspended":true}`).want(200)
	redeem(code).want(401, "PAIRING_INVALID")
	f.do("di", "PATCH", "/v1/actors/m9", `{"suspended":false}`).want(200)
	f.skew.Store(int64(61 * time.Second))
	redeem(code).want(401, "PAIRING_INVALID")
}

// A machine with a scope gets its rule, as when it is registered.
func TestPairedMachineHasItsRule(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "POST", "/v1/pairings", `{"id":"m9","scopes":["ops"]}`).want(201)
	f.do("ana", "POST", "/v1/gates", `{"action":"task.submit.m9"}`).want(200).has("decisive.reason_code", "OUT_OF_SCOPE")
}

func TestPairingCodeWorksOnce(t *testing.T) {
	f := newFleet(t)
	code := f.do("root", "POST", "/v1/pairings", `{"id":"m1"}`).want(201).text("code")
	var redeemed atomic.Int64
	var all sync.WaitGroup
	for range 20 {
		public, _ := newDeviceKey(t)
		all.Go(func() {
			a := f.do("", "POST", "/v1/pairings/redeem", `{"code":"`+code+`","public_key":"`+public+`"}`)
			if a.status == 201 {
				redeemed.Add(1)
			} else if a.text("code") != "PAIRING_INVALID" {
				t.Errorf("%d %s", a.status, a.body)
			}
		})
	}
	all.Wait()
	if redeemed.Load() != 1 {
		t.Errorf("redeemed %d times", redeemed.Load())
	}
}

func TestSignedRequests(t *testing.T) {
	f := newFleet(t, func(c *Config) { c.Hosts = []string{"Relay.Example:443"} }).people()
	d := f.redeem(f.do("root", "POST", "/v1/pairings", `{"id":"m9"}`).want(201).text("code"))
	gate := `{"action":"ext.probe"}`
	d.do("POST", "/v1/gates", gate).want(200).has("verdict", "allow")
	d.do("GET", "/v1/events?limit=2&stream=tokens", "").want(200)
	d.do("GET", "/v1/rules", "", func(c *devicekey.Claims) { c.Host = "relay.example" }).want(200)
	d.do("GET", "/v1/rules", "", func(c *devicekey.Claims) { c.Nonce = "" }).want(200) // just started, but just paired too

	unchanged := func(a func() answer) answer { t.Helper(); return f.unchanged(a) }
	for _, c := range []struct {
		name, code, claim string
		change            func(*devicekey.Claims)
	}{
		{"method", "SIGNATURE_INVALID", "htm", func(c *devicekey.Claims) { c.Method = "PUT" }},
		{"host", "SIGNATURE_INVALID", "host", func(c *devicekey.Claims) { c.Host = "elsewhere:7070" }},
		{"path", "SIGNATURE_INVALID", "path", func(c *devicekey.Claims) { c.Path = "/v1/gates?x=1" }},
		{"body", "SIGNATURE_INVALID", "body", func(c *devicekey.Claims) { c.Body = devicekey.BodyHash([]byte("{}")) }},
		{"no body", "SIGNATURE_INVALID", "body", func(c *devicekey.Claims) { c.Body = "" }},
		{"old", "SIGNATURE_EXPIRED", "", func(c *devicekey.Claims) { c.IssuedAt -= 62 }},
		{"early", "SIGNATURE_EXPIRED", "", func(c *devicekey.Claims) { c.IssuedAt += 33 }},
		{"short jti", "SIGNATURE_INVALID", "", func(c *devicekey.Claims) { c.ID = "short" }},
	} {
		a := unchanged(func() answer { return d.do("POST", "/v1/gates", gate, c.change) }).want(401, c.code)
		if c.claim != a.text("claim") {
			t.Errorf("%s: claim %q", c.name, a.text("claim"))
		}
		if c.code == "SIGNATURE_EXPIRED" && (a.text("nonce") == "" || a.text("server_time") == "") {
			t.Errorf("%s: %s", c.name, a.body)
		}
		if !strings.HasPrefix(a.header.Get("WWW-Authenticate"), "DPoP") {
			t.Errorf("%s: WWW-Authenticate is %q", c.name, a.header.Get("WWW-Authenticate"))
		}
	}
	// A body where none is read is not what was signed.
	f.do("", "GET", "/v1/rules", "", d.sign("GET", "/v1/rules", "surprise")...).want(401, "SIGNATURE_INVALID")

	headers := d.sign("POST", "/v1/gates", gate)
	f.do("", "POST", "/v1/gates", gate, headers...).want(200)
	unchanged(func() answer { return f.do("", "POST", "/v1/gates", gate, headers...) }).want(401, "SIGNATURE_REPLAYED")
	// It is kept for as long as it could be shown again, and longer than a turn.
	f.skew.Add(int64(55 * time.Second))
	for range 3 {
		d.do("GET", "/v1/rules", "").want(200)
	}
	unchanged(func() answer { return f.do("", "POST", "/v1/gates", gate, headers...) }).want(401, "SIGNATURE_REPLAYED")
	f.skew.Add(int64(55 * time.Second))
	unchanged(func() answer { return f.do("", "POST", "/v1/gates", gate, headers...) }).want(401, "SIGNATURE_EXPIRED")
	d.do("GET", "/v1/rules", "", func(c *devicekey.Claims) { c.Nonce = "" }).want(200) // the start is long past

	unsigned := []string{"Authorization", "DPoP " + d.name}
	f.do("", "GET", "/v1/rules", "", unsigned...).want(401, "SIGNATURE_REQUIRED")
	f.do("", "GET", "/v1/nothing", "", unsigned...).want(401, "SIGNATURE_REQUIRED")
	f.do("", "GET", "/v1/rules", "", "Authorization", "Bearer "+d.name).want(401, "SIGNATURE_REQUIRED")
	f.do("", "GET", "/v1/rules", "", append(unsigned, "DPoP", "x.y.z")...).want(401, "SIGNATURE_INVALID")
	f.do("", "GET", "/v1/rules", "", append(d.sign("GET", "/v1/rules", ""), "DPoP", "second")...).want(401, "SIGNATURE_INVALID")
	other := &device{f: f, name: d.name}
	_, other.key = newDeviceKey(t)
	other.do("GET", "/v1/rules", "").want(401, "SIGNATURE_INVALID")
	stranger := &device{f: f, name: "default~m9~nothing", key: d.key}
	stranger.do("GET", "/v1/rules", "").want(401, "SIGNATURE_INVALID")
	// m1 has a bearer token, which goes on working.
	f.do("m1", "GET", "/v1/rules", "").want(200)
}

// What was signed for a relay is refused by the one that is started after it.
func TestSignaturesOverARestart(t *testing.T) {
	f := newFleet(t)
	d := f.pair()
	// The first that a device ever signs needs no nonce: nobody saw one before.
	d.do("GET", "/v1/rules", "", func(c *devicekey.Claims) { c.Nonce = "" }).want(200)
	early := d.sign("POST", "/v1/gates", `{"action":"ext.a"}`, func(c *devicekey.Claims) { c.IssuedAt += 29 })
	f.do("", "POST", "/v1/gates", `{"action":"ext.a"}`, early...).want(200)
	f.relay.signatures["default"] = newSignatures(f.ledger.Log()) // as New does
	f.skew.Add(int64(5 * time.Second))
	f.unchanged(func() answer { return f.do("", "POST", "/v1/gates", `{"action":"ext.a"}`, early...) }).want(401, "SIGNATURE_EXPIRED")
	d.do("GET", "/v1/rules", "", func(c *devicekey.Claims) { c.Nonce = "" }).want(401, "SIGNATURE_EXPIRED")
	d.do("POST", "/v1/gates", `{"action":"ext.a"}`).want(200)
}

// A device's own stream ends with it.
func TestSignedStream(t *testing.T) {
	f := newFleet(t)
	d := f.pair()
	req, err := http.NewRequestWithContext(t.Context(), "GET", f.server.URL+"/v1/machines/m1/offers", nil)
	if err != nil {
		t.Fatal(err)
	}
	headers := d.sign("GET", "/v1/machines/m1/offers", "")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := f.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != 200 {
		t.Fatalf("status %d", resp.StatusCode)
	}
	_, _, id := commands.SplitToken(d.name)
	f.do("root", "DELETE", "/v1/actors/m1/tokens/"+id, "").want(200)
	f.relay.streams.endStale()
	b := make([]byte, 1<<10)
	for {
		if _, err := resp.Body.Read(b); err != nil {
			return
		}
	}
}

// What one device signs is bounded, and in nobody else's way.
func TestSignaturesAreBounded(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s := newSignatures(newFleet(t).ledger.Log())
	s.started, s.turned = now.Add(-time.Hour), now.Add(-time.Hour)
	admit := func(device string, i int, at time.Time) error {
		return s.admit(projections.Token{ID: device}, devicekey.Claims{ID: fmt.Sprintf("%016d", i), IssuedAt: at.Unix()}, at)
	}
	for i := range maxSignatures {
		if err := admit("a", i, now); err != nil {
			t.Fatal(err)
		}
	}
	if p, ok := admit("a", maxSignatures, now).(*problem); !ok || p.status != 429 || p.facts["retry_after_s"] == nil {
		t.Errorf("over the bound: %v", p)
	}
	if err := admit("b", 1, now); err != nil {
		t.Error(err)
	}
	if p, ok := admit("b", 1, now.Add(signatureLife/2)).(*problem); !ok || p.code != "SIGNATURE_REPLAYED" {
		t.Errorf("shown again: %v", p)
	}
	if err := admit("a", maxSignatures, now.Add(signatureLife)); err != nil {
		t.Error(err)
	}
	if err := admit("a", maxSignatures+1, now.Add(3*signatureLife)); err != nil || len(s.young.seen)+len(s.old.seen) > 2 {
		t.Errorf("%v; %d ids are kept", err, len(s.young.seen)+len(s.old.seen))
	}
}
