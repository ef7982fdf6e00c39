// Package relay is the server: HTTP in, JSON out. Each handler decodes, calls one
// method of a commands.Ledger and encodes what came of it; nothing is decided
// here. Who asks is known from the bearer token, which names fleet and actor, or from
// the signature of a paired device.
//
// The way of a request, and the file of each step:
//
//	route.go     a path and method to its handler; the query's parameters
//	identity.go  the token: which fleet, which actor
//	signature.go the same of a device, and what it signed (see events/devicekey)
//	body.go      the body, held to its Go type; Idempotency-Key, Approval-Id
//	actors.go …  one file per noun: the handlers and the shapes they answer with
//	receipt.go   what was recorded, as it is answered; 202 for what waits
//	problem.go   the one table from errors to status and code (RFC 9457)
//
// Answers to changes are built from the recorded events alone, so the same key and
// body gives the same answer for ever: the log is where answers are kept.
//
// routes.go lists every path. The OpenAPI document (document.go) is made of the
// same list and of the handlers' own types.
package relay
