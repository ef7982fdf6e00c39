// Package events is the ground of the ledger: what an event is, how its bytes
// look, and what a log promises.
//
// An event is a header and a payload. The header is one line of JSON in one
// canonical form (Header); its bytes are the event's Merkle leaf (RFC 6962), so
// moving a log copies bytes and keeps its root. The header commits to the
// payload through a salt that lies with the payload (Commit): erasing both leaves
// nothing to guess from and every hash intact.
//
//	{"id":"0193…","stream":"authority","type":"rule.written","schema":1,
//	 "actor":"root","correlation":"","causation":"","key":"","request":"",
//	 "size":63,"commitment":"5f…","version":1,"fleet":"default","position":7,
//	 "revision":7,"time":"2026-11-30T10:00:00.000001Z","prev":"9a…"}
//
// (one line in truth). The payload is the JSON of one of the structs listed in
// kinds.go, or, for kinds under "ext.", an agent's own event (Ext).
//
// A Log keeps one fleet's events; memlog, pebblelog and the engines after them
// all pass the same suite, testing/logtest. What callers send is held to
// DecodeStrict; what the log holds is read with Decode.
package events
