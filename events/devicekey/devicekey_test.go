package devicekey

import (
	"crypto/ed25519"
	"encoding/base64"
	"net/url"
	"strings"
	"testing"
)

func TestVerifyRefuses(t *testing.T) {
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	const device = "default~m1~d"
	// signed is a JWS of any header and payload.
	signed := func(header, payload string) string {
		text := base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString([]byte(payload))
		return text + "." + base64.RawURLEncoding.EncodeToString(ed25519.Sign(key, []byte(text)))
	}
	const header = `{"alg":"EdDSA","kid":"default~m1~d","typ":"fleetledger-request+jwt"}`
	const payload = `{"htm":"GET","host":"h","path":"/v1/rules","body":"b","iat":1767323045,"jti":"0123456789abcdef"}`
	good := signed(header, payload)
	if c, err := Verify(public, device, good); err != nil || c.Path != "/v1/rules" {
		t.Fatalf("%+v %v", c, err)
	}
	parts := strings.Split(good, ".")
	for name, signature := range map[string]string{
		"nothing":             "",
		"no JWS":              "abc",
		"another signature":   parts[0] + "." + parts[1] + "." + base64.RawURLEncoding.EncodeToString(make([]byte, 64)),
		"another payload":     parts[0] + "." + base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(payload, "GET", "PUT", 1))) + "." + parts[2],
		"alg none":            signed(strings.Replace(header, "EdDSA", "none", 1), payload),
		"alg HS256":           signed(strings.Replace(header, "EdDSA", "HS256", 1), payload),
		"another type":        signed(strings.Replace(header, "fleetledger-request+jwt", "dpop+jwt", 1), payload),
		"another device":      signed(strings.Replace(header, "~m1~", "~m2~", 1), payload),
		"a critical header":   signed(strings.Replace(header, `{`, `{"crit":["x"],"x":1,`, 1), payload),
		"an unknown claim":    signed(header, strings.Replace(payload, `{`, `{"sub":"x",`, 1)),
		"a claim twice":       signed(header, strings.Replace(payload, `{`, `{"jti":"0123456789abcdeg",`, 1)),
		"a fraction":          signed(header, strings.Replace(payload, `1767323045`, `1767323045.5`, 1)),
		"a short jti":         signed(header, strings.Replace(payload, `0123456789abcdef`, `0123`, 1)),
		"a jti with blanks":   signed(header, strings.Replace(payload, `0123456789abcdef`, `0123456789 abcdef`, 1)),
		"no JSON":             signed(header, `x`),
		"too large":           signed(header, strings.Replace(payload, "/v1/rules", "/"+strings.Repeat("x", MaxSignatureBytes), 1)),
		"JSON serialization":  `{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`,
		"two of them at once": good + "," + good,
	} {
		if c, err := Verify(public, device, signature); err == nil {
			t.Errorf("%s: verified as %+v", name, c)
		}
	}
}

func TestHost(t *testing.T) {
	for in, want := range map[string]string{
		"Ledger.Example": "ledger.example", "ledger.example:443": "ledger.example", "ledger.example:80": "ledger.example",
		"ledger.example:7070": "ledger.example:7070", "[::1]:7070": "[::1]:7070", "[::1]:443": "[::1]", "": "",
	} {
		if got := Host(in); got != want {
			t.Errorf("%s: %s, not %s", in, got, want)
		}
	}
}

func TestPath(t *testing.T) {
	for _, text := range []string{"/v1/rules", "/v1/tried?q=go%20test&limit=3", "/v1/actors/a%2Fb", "/v1/memory?argv=a+b", "/v1/rules?"} {
		u, err := url.Parse("http://h" + text)
		if err != nil {
			t.Fatal(err)
		}
		if got := Path(u); got != text {
			t.Errorf("%s reads as %s", text, got)
		}
	}
}
