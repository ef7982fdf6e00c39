package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/seal"
)

type facts map[string]any

// problem is a request that was not carried out, as it is answered (RFC 9457).
type problem struct {
	status int
	code   string // stable, in upper snake case
	detail string // one sentence for a person
	facts  facts  // further members
	header [2]string
}

func (p *problem) Error() string { return p.detail }

// problemReply is the document that a problem is answered with.
type problemReply struct {
	Type   string `json:"type" doc:"About:blank: the code says what kind of problem it is." example:"about:blank"`
	Title  string `json:"title" doc:"The status in words."`
	Status int    `json:"status"`
	Code   string `json:"code" doc:"What it is, stable, for programs." example:"TASK_NOT_FOUND"`
	Detail string `json:"detail" doc:"What it is, why, and what to do, for people."`
	Facts  facts  `json:",embed" hidden:"true"`
}

func notFound(code, format string, args ...any) *problem {
	return &problem{status: http.StatusNotFound, code: code, detail: fmt.Sprintf(format, args...)}
}

func malformed(code, format string, args ...any) *problem {
	return &problem{status: http.StatusBadRequest, code: code, detail: fmt.Sprintf(format, args...)}
}

// with adds a fact and returns p.
func (p *problem) with(name string, value any) *problem {
	if p.facts == nil {
		p.facts = facts{}
	}
	p.facts[name] = value
	return p
}

// invalidFields refuses a body for what its members are.
func invalidFields(problems ...events.Problem) error {
	return malformed("INVALID_FIELDS", "the body is JSON, but not as this path takes it").with("problems", problems)
}

// impossible refuses a body whose values cannot be, as the commands do.
func impossible(problems ...events.Problem) error {
	return &problem{status: http.StatusUnprocessableEntity, code: "INVALID", detail: "the command has values that cannot be", facts: facts{"problems": problems}}
}

// classStatus is the status of each class of refusals.
var classStatus = map[commands.Class]int{
	commands.Malformed:   http.StatusBadRequest,
	commands.Forbidden:   http.StatusForbidden,
	commands.Unknown:     http.StatusUnauthorized,
	commands.NotFound:    http.StatusNotFound,
	commands.Conflict:    http.StatusConflict,
	commands.TooLarge:    http.StatusRequestEntityTooLarge,
	commands.Impossible:  http.StatusUnprocessableEntity,
	commands.TooMany:     http.StatusTooManyRequests,
	commands.Unavailable: http.StatusServiceUnavailable,
}

// failures are the other errors whose cause is worth telling. The first that an
// error is decides.
var failures = []struct {
	is         error
	status     int
	code       string
	detail     string
	retryAfter int // s
}{
	{events.ErrTooLarge, http.StatusRequestEntityTooLarge, "APPEND_TOO_LARGE", "all of it together is more than one append can hold; send it in parts", 0},
	{events.ErrNoSpace, http.StatusInsufficientStorage, "NO_SPACE", "the relay has too little disk space left to record anything; nothing was recorded", 30},
	{seal.ErrNotOnDuty, http.StatusServiceUnavailable, "NOT_ON_DUTY", "another relay has the duty of signing, and has not signed this yet; it does every second", 1},
	{events.ErrUnavailable, http.StatusServiceUnavailable, "LOG_UNAVAILABLE", "the cluster that keeps the log is out of reach; whether this was recorded shows when it is sent again with the same Idempotency-Key", 5},
	{events.ErrFailed, http.StatusServiceUnavailable, "LOG_FAILED", "the relay's storage failed and takes nothing more until it is started again; the operator finds the cause in its log", 30},
	{events.ErrClosed, http.StatusServiceUnavailable, "LOG_CLOSED", "the relay is stopping", 2},
	{syscall.ENOSPC, http.StatusInsufficientStorage, "NO_SPACE", "the relay's disk is full; whether this was recorded shows when it is sent again with the same Idempotency-Key", 30},
	{context.DeadlineExceeded, http.StatusServiceUnavailable, "TIMED_OUT", "the relay did not finish this in time; whether it was recorded shows when it is sent again with the same Idempotency-Key", 1},
	{context.Canceled, http.StatusServiceUnavailable, "CANCELLED", "the request was given up before it was finished; whether it was recorded shows when it is sent again with the same Idempotency-Key", 1},
}

// problemOf turns an error into what is answered; nil if it is the relay's own
// trouble, whose details are not the caller's.
func problemOf(err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	if r, ok := errors.AsType[*commands.Refusal](err); ok {
		return &problem{status: classStatus[r.Class], code: r.Code, detail: r.Detail, facts: r.Facts}
	}
	if s, ok := errors.AsType[*events.StrictError](err); ok {
		p := malformed("INVALID_FIELDS", "the body is JSON, but not as this path takes it")
		if s.Malformed {
			p = malformed("MALFORMED_JSON", "the body is not one JSON value (RFC 8259) in UTF-8 with unique names")
		}
		return p.with("problems", s.Problems)
	}
	if r, ok := errors.AsType[*events.ReadOnlyError](err); ok {
		return readOnly(r)
	}
	if e, ok := errors.AsType[*commands.ContradictedError](err); ok {
		return contradicted(e)
	}
	if e, ok := errors.AsType[*events.TooLargeError](err); ok {
		return &problem{status: http.StatusRequestEntityTooLarge, code: "APPEND_TOO_LARGE",
			detail: fmt.Sprintf("all of it takes %d bytes in the log, what was decided about it included, and one append holds %d; send it in parts", e.Bytes, e.Limit),
			facts:  facts{"limit": e.Limit, "actual": e.Bytes}}
	}
	for _, f := range failures {
		if errors.Is(err, f.is) {
			p := &problem{status: f.status, code: f.code, detail: f.detail}
			if f.retryAfter > 0 {
				p.with("retry_after_s", f.retryAfter)
			}
			return p
		}
	}
	return nil
}

// readOnly refuses what would be recorded in a log that is open for reading only.
// What is wrong with the log in detail is the operator's.
func readOnly(r *events.ReadOnlyError) *problem {
	p := &problem{status: http.StatusServiceUnavailable, code: "READ_ONLY", facts: facts{"retry_after_s": 60}}
	if r.Lost == 0 {
		p.detail = "the relay serves this fleet for reading only; the operator starts it without --read-only to record again"
		return p
	}
	p.detail = fmt.Sprintf("the log of this fleet is damaged from position %d on and served for reading only; nothing is recorded until the operator restores a backup: fleetledger restore BACKUP --data DIR", r.Lost)
	return p.with("first_lost_position", r.Lost)
}

// contradicted refuses what would be recorded in a log that a witness knows otherwise.
func contradicted(e *commands.ContradictedError) *problem {
	return (&problem{status: http.StatusServiceUnavailable, code: "WITNESS_CONTRADICTS", detail: e.Error() +
		"; nothing is recorded until the operator brings the newest copy back, or starts the relay without this witness and gives up what it has seen"}).
		with("witness", e.Witness).with("witnessed_size", e.Known).with("size", e.Size).with("retry_after_s", 60)
}

// fail answers with err. What waits for an approval comes as an error too.
func (c *call) fail(err error) {
	if w, ok := errors.AsType[*waiting](err); ok {
		c.reply(http.StatusAccepted, w.reply)
		return
	}
	p := problemOf(err)
	if p == nil {
		c.cfg.Logger.Error("a request failed", "method", c.r.Method, "path", c.op.path, "fleet", c.fleet, "actor", c.token.Actor, "error", err)
		p = &problem{status: http.StatusInternalServerError, code: "INTERNAL", detail: "the relay failed; the operator finds the cause in its log"}
	}
	if c.wrote {
		return // an event stream: its end is the answer
	}
	h := c.w.Header()
	if p.header[0] != "" {
		h.Set(p.header[0], p.header[1])
	}
	if p.status == http.StatusUnauthorized && h["Www-Authenticate"] == nil {
		h.Set("WWW-Authenticate", "Bearer")
	}
	if seconds, ok := p.facts["retry_after_s"].(int); ok {
		h.Set("Retry-After", strconv.Itoa(seconds))
	}
	discard := c.replyFirst()
	c.send(p.status, "application/problem+json", p.reply())
	discard()
}

// maxDiscard bounds what is read of a body only to be thrown away.
const maxDiscard = 8 << 20

// replyFirst has the answer sent before what is left of the body has come, which may
// be never. What it returns reads that rest, within reason: a client that still sends
// when the connection is closed never sees the answer.
func (c *call) replyFirst() (discard func()) {
	if c.r.Body == nil || c.r.ContentLength == 0 || c.r.Header.Get("Expect") != "" && !c.reading {
		return func() {} // who waits for 100 Continue sends nothing
	}
	rc := http.NewResponseController(c.w)
	// Whatever fails here, the answer stands.
	_ = rc.EnableFullDuplex()
	return func() {
		_ = rc.Flush()
		_, _ = io.CopyN(io.Discard, c.r.Body, maxDiscard)
	}
}

func (p *problem) reply() problemReply {
	return problemReply{Type: "about:blank", Title: http.StatusText(p.status), Status: p.status, Code: p.code, Detail: p.detail, Facts: p.facts}
}

func (s *Relay) pathNotFound(w http.ResponseWriter, r *http.Request) {
	s.refusePath(w, r, &problem{status: http.StatusNotFound, code: "PATH_NOT_FOUND",
		detail: fmt.Sprintf("there is nothing at %+q; GET /openapi.json lists every path", r.URL.Path)})
}

func (s *Relay) methodNotAllowed(w http.ResponseWriter, r *http.Request) {
	path := r.URL.Path
	if r.URL.RawPath != "" {
		path = r.URL.RawPath
	}
	var allowed []string
	list := ""
	for _, m := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		method := m
		if m == "HEAD" {
			method = "GET"
		}
		if s.router.Match(newRouteContext(), method, path) {
			allowed = append(allowed, m)
			if list != "" {
				list += ", "
			}
			list += m
		}
	}
	if allowed == nil { // chi asks for a method that it does not know anywhere
		s.pathNotFound(w, r)
		return
	}
	s.refusePath(w, r, &problem{status: http.StatusMethodNotAllowed, code: "METHOD_NOT_ALLOWED",
		detail: fmt.Sprintf("%+q is not a method of this path; it has %s", r.Method, list),
		facts:  facts{"allowed": allowed}, header: [2]string{"Allow", list}})
}

// refusePath answers for a path without a handler, to whom it is to be told.
func (s *Relay) refusePath(w http.ResponseWriter, r *http.Request, p *problem) {
	c := &call{Relay: s, w: w, r: r}
	defer s.metrics.answered(c, time.Now())
	err := c.authenticate()
	if err == nil {
		err = p
	}
	c.fail(err)
}
