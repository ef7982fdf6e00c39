package relay

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"slices"
	"sync"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/devicekey"
	"fleetledger/projections"
)

// signed knows the actor of a device by the signature of the request. What is said
// of the body is held to it once it is read (checkBody).
func (c *call) signed(ledger *commands.Ledger, device, id string) (projections.Token, error) {
	signature := c.r.Header[devicekey.Header]
	if len(signature) == 0 {
		return projections.Token{}, signatureRequired()
	}
	if len(signature) > 1 {
		return projections.Token{}, signatureInvalid("there is more than one header DPoP")
	}
	var known projections.Token
	ok := false
	if ledger != nil {
		known, _, ok = ledger.State().TokenByID(id)
	}
	fleet, actor, _ := commands.SplitToken(device)
	if !ok || !known.Device() || known.Actor != actor {
		return known, signatureInvalid("no such device is paired on this relay: pair it with a new code")
	}
	claims, err := devicekey.Verify(known.Key, device, signature[0])
	if err != nil {
		return known, signatureInvalid(err.Error())
	}
	asked := devicekey.Claims{Method: c.r.Method, Host: devicekey.Host(c.r.Host), Path: devicekey.Path(c.r.URL)}
	if c.op != nil && c.op.in == nil {
		asked.Body = devicekey.BodyHash(nil) // whatever came is not read
	}
	if host := devicekey.Host(claims.Host); slices.ContainsFunc(c.cfg.Hosts, func(h string) bool { return devicekey.Host(h) == host }) {
		asked.Host = host
	}
	if claim := claims.Differs(asked); claim != "" {
		return known, signatureOther(claim)
	}
	c.claims = &claims
	return known, c.signatures[fleet].admit(known, claims, ledger.Log().Now())
}

// checkBody holds the body to what the device has signed.
func (c *call) checkBody(raw []byte) error {
	if c.claims != nil && devicekey.BodyHash(raw) != c.claims.Body {
		return signatureOther("body")
	}
	return nil
}

func signatureProblem(code, format string, args ...any) *problem {
	p := unauthorized(code, fmt.Sprintf(format, args...))
	p.header[1] = devicekey.Scheme + ` algs="EdDSA"`
	return p
}

func signatureRequired() *problem {
	return signatureProblem("SIGNATURE_REQUIRED", "a device signs each request: it needs the header DPoP with the signature, beside Authorization: DPoP DEVICE")
}

func signatureInvalid(why string) *problem {
	return signatureProblem("SIGNATURE_INVALID", "the signature does not hold: %s", why)
}

func signatureOther(claim string) *problem {
	return signatureInvalid("it is that of another request: "+claim+" differs").with("claim", claim)
}

// signatures are those that a fleet's devices have shown and could show again.
// What is kept is bounded: an id for as long as its signature is new enough, and
// so many.
type signatures struct {
	// started is when the fleet was first served, and head the newest position then:
	// what a device of that time may have signed before must carry the nonce, which
	// was chosen then. One that was paired since has signed nothing before.
	started time.Time
	head    events.Position
	nonce   string

	mu sync.Mutex
	// Ids are kept in two generations. Each collects for as long as a signature can
	// be shown, and is kept for as long again.
	turned     time.Time
	young, old generation
}

type generation struct {
	seen map[[16]byte]struct{}
	// each counts the ids of a device.
	each map[string]int
}

func newGeneration() generation {
	return generation{seen: map[[16]byte]struct{}{}, each: map[string]int{}}
}

const (
	// signatureLife is how long after its first showing a signature could be shown
	// again.
	signatureLife = devicekey.MaxAge + devicekey.MaxAhead
	// Within signatureLife a device may sign so many requests, and all of a fleet's
	// so many.
	maxSignatures    = 50_000
	maxAllSignatures = 500_000
)

func newSignatures(log events.Log) *signatures {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	now := log.Now()
	return &signatures{started: now, head: log.Durable(), nonce: base64.RawURLEncoding.EncodeToString(b[:]), turned: now, young: newGeneration(), old: newGeneration()}
}

// admit takes a signature, once. The times are those of the fleet's log, which do
// not run backwards over a restart: a request that recorded something cannot be
// shown again even if the wall clock was set back meanwhile.
func (s *signatures) admit(known projections.Token, c devicekey.Claims, now time.Time) error {
	device := known.ID
	issued := time.Unix(c.IssuedAt, 0)
	fresh := known.IssuedAt > s.head || c.Nonce != "" && subtle.ConstantTimeCompare([]byte(c.Nonce), []byte(s.nonce)) == 1
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case issued.Before(now.Add(-devicekey.MaxAge)):
		return s.expired(now, "it was signed more than %v ago", devicekey.MaxAge)
	case issued.After(now.Add(devicekey.MaxAhead)):
		return s.expired(now, "it was signed more than %v in the future", devicekey.MaxAhead)
	case !fresh && !issued.After(s.started.Add(devicekey.MaxAhead)):
		return s.expired(now, "the relay has started since, as far as it can tell")
	}
	if now.Sub(s.turned) >= signatureLife {
		s.old, s.young, s.turned = s.young, newGeneration(), now
	}
	sum := sha256.Sum256([]byte(device + " " + c.ID))
	id := [16]byte(sum[:16])
	_, young := s.young.seen[id]
	_, old := s.old.seen[id]
	if young || old {
		return signatureProblem("SIGNATURE_REPLAYED", "this signature was shown before: sign each request anew, with another jti")
	}
	if s.young.each[device] >= maxSignatures || len(s.young.seen) >= maxAllSignatures {
		wait := max(1, int((signatureLife - now.Sub(s.turned)).Seconds()))
		return &problem{status: 429, code: "SIGNATURES_LIMITED",
			detail: fmt.Sprintf("more requests were signed within %v than the relay can tell apart", signatureLife),
			facts:  facts{"limit": maxSignatures, "retry_after_s": wait}}
	}
	s.young.seen[id] = struct{}{}
	s.young.each[device]++
	return nil
}

func (s *signatures) expired(now time.Time, format string, args ...any) error {
	return signatureProblem("SIGNATURE_EXPIRED", "the signature is not of now: "+format+"; sign again by the relay's time and with its nonce", args...).
		with("server_time", now).with("nonce", s.nonce)
}

// signingGuide says in the OpenAPI document how requests are signed.
const signingGuide = `Authorization: DPoP DEVICE, and DPoP: a JWS in compact form, alg EdDSA, typ "` + devicekey.Type + `", kid DEVICE, over ` +
	`{"htm": method, "host": host and port, "path": path with query from /v1 on, "body": SHA-256 of the body in base64url, "iat": seconds since 1970, "jti": 16 to 64 characters never used before, "nonce": as the relay last asked, if it did}. ` +
	`Refusals are 401: SIGNATURE_REQUIRED, SIGNATURE_INVALID, SIGNATURE_EXPIRED (with server_time and nonce: sign again by them), SIGNATURE_REPLAYED.`
