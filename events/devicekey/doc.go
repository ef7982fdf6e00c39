// Package devicekey signs requests with the key of a paired device, and reads
// such signatures. It is the manner of DPoP (RFC 9449), with a hash of the body
// and without an access token.
//
// # Pairing
//
// A device makes an Ed25519 key pair and redeems a pairing code for it:
//
//	POST /v1/pairings/redeem
//	{"code": "default~m1~7h4k…", "public_key": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
//
// public_key is the raw key, 32 bytes, in base64url without padding (the "x" of
// RFC 8037). The answer names the device, FLEET~ACTOR~ID, in "device".
//
// # A signed request
//
// A request carries two headers:
//
//	Authorization: DPoP default~m1~019c2a…
//	DPoP: eyJhbGciOiJFZERTQSIs….eyJodG0iOiJQT1NU….c2lnbmF0dXJl…
//
// The second is a JWS in compact serialization (RFC 7515), alg EdDSA (RFC 8037).
// Its protected header has exactly these members:
//
//	alg  "EdDSA"
//	typ  "fleetledger-request+jwt"
//	kid  the device, as Authorization names it
//
// Its payload is a JSON object with exactly these:
//
//	htm    the method, in capitals
//	host   the host, and the port unless it is the scheme's own, in small letters
//	path   the path and query as they are sent, beginning with "/v1/", "/log/", …:
//	       what stands before that in the URL of a relay behind a proxy is left out
//	body   the SHA-256 of the body's bytes, of none if there is none, in base64url
//	       without padding
//	iat    when it was signed, an integer of seconds since 1970 (RFC 7519)
//	jti    16 to 64 visible ASCII characters that this device has not used before
//	nonce  what the relay last asked for, see below; may be left out
//
// # How the relay reads it
//
// It is refused with status 401 and one of these codes:
//
//	SIGNATURE_REQUIRED  a device is named and the header DPoP is absent
//	SIGNATURE_INVALID   it is not of this form, is of another key or of a device that
//	                    is not paired, or signs another request; "claim" says which
//	                    member differs
//	SIGNATURE_EXPIRED   iat is more than 60 s before, or 30 s after, the relay's time;
//	                    or it may have been signed before the relay started, and has
//	                    no nonce to show that it was not
//	SIGNATURE_REPLAYED  jti was used before
//
// SIGNATURE_EXPIRED has the members "server_time", the relay's time (RFC 3339), and
// "nonce": sign again by that clock, with that nonce, and keep both for the
// requests that follow. Nothing was done, so any request may be sent again.
//
// A relay remembers each jti for as long as its signature could be shown again. It
// forgets them when it ends, and so takes, for its first 30 s, only what carries
// the nonce that it chose when it started: what was signed for an earlier one stays
// refused.
//
// What a signature does not cover is the headers; those that matter are
// Idempotency-Key and Approval-Id, which name nothing that their actor may not
// name anyway. TLS is what protects them.
//
// example_test.go has a request signed with a fixed key, byte for byte.
package devicekey
