package relay

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/devicekey"
	"fleetledger/projections"
)

// operation is one method of one path: what its handler may read and what the
// document says of it.
type operation struct {
	method, path string
	// rest names what the * at the end of path stands for.
	rest string
	// id names it for client generators; summary and about are for people.
	id, summary, about, tag string
	query                   []param
	// status is that of success; 0 means 200.
	status int
	// nowOnly is true if it takes no position in the past.
	nowOnly bool
	// waits is true if it may be answered 202, waiting for an approval.
	waits bool
	// already is true if it is answered 200 when what it makes is there already.
	already bool
	// open is true for what needs no token.
	open bool
	// bodyless is true if the body may be left out, which is then {}.
	bodyless bool
	// media are the content types of the body; none means application/json.
	media []string
	// view is true for what is answered from the fleet's view: it waits until the view
	// has folded what was recorded when the request came.
	view bool
	// text is a media type that the answer has too, as text.
	text string
	// conditional is true if it takes the header If-Match.
	conditional bool

	in, out reflect.Type // nil for none
}

// call is one request on its way through its handler.
type call struct {
	*Relay
	op    *operation
	w     http.ResponseWriter
	r     *http.Request
	wrote bool
	// status is that of the answer, 0 until there is one.
	status int

	fleet  string
	ledger *commands.Ledger
	token  projections.Token
	// claims are what a device has signed, nil for a bearer token.
	claims *devicekey.Claims

	// folded is the position of the view that the answer is from, 0 if it is from none.
	folded events.Position
	// viewLate is true once the view was waited for in vain.
	viewLate bool

	// body is released once the request is answered; nil if it was not read.
	body *bytes.Buffer
	// reading is true once the body is read: who waited for 100 Continue sends it.
	reading bool

	query url.Values
	// at is the position that the caller asks about, 0 for none; asOf the one that
	// the answer is as of.
	at, asOf events.Position

	caller commands.Caller // of a changing command
}

// read registers a handler that changes nothing.
func read[Out any](s *Relay, op operation, f func(*call) (Out, error)) {
	op.out = reflect.TypeFor[Out]()
	s.handle(&op, func(c *call) error {
		out, err := f(c)
		if err != nil {
			return err
		}
		c.reply(c.success(out), out)
		return nil
	})
}

// write registers a handler that takes a body.
func write[In, Out any](s *Relay, op operation, f func(*call, In) (Out, error)) {
	op.in, op.out = reflect.TypeFor[In](), reflect.TypeFor[Out]()
	s.handle(&op, func(c *call) error {
		var in In
		if err := c.readBody(&in); err != nil {
			return err
		}
		out, err := f(c, in)
		if err != nil {
			return err
		}
		c.reply(c.success(out), out)
		return nil
	})
}

func (s *Relay) handle(op *operation, serve func(*call) error) {
	s.doc.add(op)
	s.router.MethodFunc(op.method, op.path, func(w http.ResponseWriter, r *http.Request) {
		c := &call{Relay: s, op: op, w: w, r: r}
		defer s.metrics.answered(c, time.Now())
		defer c.releaseBody()
		defer c.recover()
		err := c.enter()
		if err == nil {
			err = serve(c)
		}
		if err != nil {
			c.fail(err)
		}
	})
}

func (c *call) releaseBody() {
	if c.body != nil {
		release(c.body)
	}
}

// recover answers for a handler that panicked. One that meant to abort does.
func (c *call) recover() {
	switch v := recover(); v {
	case nil:
	case http.ErrAbortHandler:
		panic(v)
	default:
		c.fail(fmt.Errorf("panic: %v", v))
	}
}

// enter does what comes before every handler.
func (c *call) enter() error {
	if c.op.open {
		// Whoever shows a token is told the position of its fleet all the same.
		_ = c.authenticate()
		return nil
	}
	if err := c.authenticate(); err != nil {
		return err
	}
	if err := c.parseQuery(); err != nil {
		return err
	}
	if c.op.method != http.MethodGet && !c.op.view {
		return nil
	}
	if err := c.awaitPosition(); err != nil {
		return err
	}
	if c.op.view {
		if err := c.awaitView(); err != nil {
			return err
		}
	}
	return c.parseAt()
}

func (c *call) ctx() context.Context { return c.r.Context() }

// path is a variable part of the path.
func (c *call) path(name string) string {
	v := chi.URLParam(c.r, name)
	if c.r.URL.RawPath == "" {
		return v
	}
	if u, err := url.PathUnescape(v); err == nil {
		return u
	}
	return v
}

// newRouteContext is for asking the router what it would do.
func newRouteContext() *chi.Context { return chi.NewRouteContext() }

// param is a parameter of a query.
type param struct {
	name, about string
	integer     bool
	least, most int // of an integer; most 0 is no bound
	repeated    bool
	values      []string // if it takes these only
}

const (
	defaultLimit = 50
	maxLimit     = 1000
)

var (
	limitParam       = param{name: "limit", integer: true, least: 1, most: maxLimit, about: "At most so many items; 50 if absent."}
	cursorParam      = param{name: "cursor", about: "The next_cursor of the page before."}
	atParam          = param{name: "at", integer: true, least: 1, about: "Answer as the ledger knew it at this position."}
	minPositionParam = param{name: "min_position", integer: true, about: "Wait until this position can be read, for a few seconds; then 503 POSITION_NOT_REACHED."}

	forgottenParam = param{name: "include_forgotten", about: "With true, also runs that the caller, or everybody, has forgotten.", values: []string{"true", "false"}}

	readParams = []param{atParam, minPositionParam}
	listParams = []param{limitParam, cursorParam, atParam, minPositionParam}
)

func with(more []param, params ...param) []param { return append(params, more...) }

// parseQuery holds the query to the parameters that the operation takes.
func (c *call) parseQuery() error {
	if c.r.URL.RawQuery == "" {
		return nil
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		return malformed("QUERY_MALFORMED", "the query cannot be read: %v", err)
	}
	for name, values := range q {
		i := slices.IndexFunc(c.op.query, func(p param) bool { return p.name == name })
		if i < 0 {
			known := make([]string, len(c.op.query))
			for i, p := range c.op.query {
				known[i] = p.name
			}
			return malformed("UNKNOWN_PARAMETER", "this path takes no parameter %+q", name).
				with("parameter", strings.ToValidUTF8(name, "\uFFFD")).with("known", known)
		}
		p := c.op.query[i]
		if len(values) > 1 && !p.repeated {
			return malformed("PARAMETER_REPEATED", "the parameter %s is given %d times: give it once", name, len(values)).with("parameter", name)
		}
		for _, v := range values {
			if !utf8.ValidString(v) {
				return parameterInvalid(name, "is not UTF-8")
			}
			if v != "" && p.values != nil && !slices.Contains(p.values, v) {
				return parameterInvalid(name, fmt.Sprintf("is %+q, none of %v", v, p.values))
			}
		}
	}
	c.query = q
	return nil
}

func parameterInvalid(name, why string) *problem {
	return malformed("PARAMETER_INVALID", "the parameter %s %s", name, why).with("parameter", name)
}

// q is a parameter of the query, empty if it is absent.
func (c *call) q(name string) string {
	if !slices.ContainsFunc(c.op.query, func(p param) bool { return p.name == name }) {
		panic("bug: " + c.op.path + " reads the parameter " + name + " without taking it")
	}
	return c.query.Get(name)
}

// digits reads a number from 0 on, in the one form that it has: without sign and
// without zeros before it.
func digits(s string, bits int) (uint64, error) {
	n, err := strconv.ParseUint(s, 10, bits)
	if err == nil && len(s) > 1 && s[0] == '0' {
		return 0, strconv.ErrSyntax
	}
	return n, err
}

// position is a parameter that is a position; ok is false if it is absent.
func (c *call) position(name string) (p events.Position, ok bool, err error) {
	if !c.query.Has(name) {
		return 0, false, nil
	}
	n, err := digits(c.query.Get(name), 64)
	if err != nil {
		return 0, false, parameterInvalid(name, fmt.Sprintf("is %+q: a position is an integer in digits", c.query.Get(name)))
	}
	return events.Position(n), true, nil
}

// awaitPosition waits for min_position.
func (c *call) awaitPosition() error {
	p, ok, err := c.position("min_position")
	if err != nil || !ok {
		return err
	}
	ctx, cancel := context.WithTimeout(c.ctx(), c.cfg.PositionPatience)
	defer cancel()
	err = c.ledger.Log().Wait(ctx, p)
	if errors.Is(err, context.DeadlineExceeded) && c.ctx().Err() == nil {
		return &problem{status: http.StatusServiceUnavailable, code: "POSITION_NOT_REACHED",
			detail: fmt.Sprintf("position %d cannot be read yet; ask again", p),
			facts:  facts{"min_position": p, "position": c.ledger.Log().Durable(), "retry_after_s": 1}}
	}
	return err
}

func (c *call) parseAt() error {
	p, ok, err := c.position("at")
	switch {
	case c.op.nowOnly && c.query.Has("at"):
		return malformed("AT_NOT_SUPPORTED", "this question is answered as of now only; GET /v1/memory takes at")
	case err != nil:
		return err
	case !ok && c.op.view:
		c.asOf = c.folded
		return nil
	case !ok:
		c.asOf = c.ledger.State().Position()
		return nil
	case p == 0:
		return parameterInvalid("at", "is 0: positions start at 1")
	}
	if head := c.ledger.Log().Durable(); p > head {
		return &problem{status: http.StatusUnprocessableEntity, code: "AT_PAST_HEAD",
			detail: fmt.Sprintf("position %d is not recorded yet: the newest is %d", p, head), facts: facts{"at": p, "head": head}}
	}
	c.at, c.asOf = p, p
	return nil
}

// authority is the authority that the answer is as of.
func (c *call) authority() (*projections.Authority, error) {
	if c.at == 0 {
		return c.ledger.State().Authority(), nil
	}
	return projections.LoadAuthority(c.ctx(), c.ledger.Log(), c.at)
}

// page is the part of a list that the caller asks for.
func (c *call) page() (projections.Page, error) {
	p := projections.Page{At: c.asOf}
	var err error
	if p.Limit, err = c.limit(); err != nil {
		return p, err
	}
	if c.query.Has("cursor") {
		raw, err := base64.RawURLEncoding.DecodeString(c.query.Get("cursor"))
		if err != nil || len(raw) != 8 || binary.BigEndian.Uint64(raw) == 0 {
			return p, malformed("CURSOR_INVALID", "the cursor is not one that this path gave out; leave it out to start again")
		}
		p.After = events.Position(binary.BigEndian.Uint64(raw))
	}
	return p, nil
}

func (c *call) limit() (int, error) {
	if !c.query.Has("limit") {
		return defaultLimit, nil
	}
	n, err := digits(c.query.Get("limit"), 32)
	if err != nil || n < 1 || n > maxLimit {
		return 0, malformed("LIMIT_OUT_OF_RANGE", "limit is %+q: it is an integer from 1 to %d", c.query.Get("limit"), maxLimit).with("limit", maxLimit)
	}
	return int(n), nil
}

// cursor is the next_cursor after the entry at a position; nil if there is no
// next page.
func cursor(more bool, last events.Position) *string {
	if !more {
		return nil
	}
	s := base64.RawURLEncoding.EncodeToString(binary.BigEndian.AppendUint64(nil, uint64(last)))
	return &s
}

// list is the answer of a list.
type list[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor" doc:"For the next page; null on the last."`
	Scope      scope   `json:"scope"`
}

// scope says what a list was looked for in, so that an empty one is never
// ambiguous.
type scope struct {
	Fleet string `json:"fleet"`
	// From and To are the first and last position covered.
	From events.Position `json:"from" doc:"The first position covered."`
	To   events.Position `json:"to" doc:"The last position covered."`

	Query   string `json:"q,omitzero"`
	Status  string `json:"status,omitzero"`
	Machine string `json:"machine,omitzero"`
	Command string `json:"command,omitzero"`
	Cwd     string `json:"cwd,omitzero"`
	Repo    string `json:"repo,omitzero"`
	About   string `json:"about,omitzero"`
	Record  string `json:"record,omitzero"`

	PublishedBy string `json:"published_by,omitzero"`
	AcceptedBy  string `json:"accepted_by,omitzero"`
	Parent      string `json:"parent,omitzero"`

	Output string `json:"output,omitzero" doc:"Of memory: what the relay keeps of outputs. With hash_only their tails stay on the machines, in the state directories of their agents."`
	// Forgotten says what became of what the caller, or everybody, has forgotten.
	Forgotten string        `json:"forgotten,omitzero" enum:"left_out,included" doc:"Of memory: whether runs that were forgotten are left out; absent if none were. include_forgotten=true includes them."`
	Stream    events.Stream `json:"stream,omitzero"`
	Type      events.Kind   `json:"type,omitzero"`
}

func (c *call) scope() scope { return scope{Fleet: c.fleet, From: 1, To: c.asOf} }

// success is the status of an answer that tells of success.
func (c *call) success(out any) int {
	if o, ok := out.(interface{ httpStatus() int }); ok {
		return o.httpStatus()
	}
	if c.op.status != 0 {
		return c.op.status
	}
	return http.StatusOK
}

func (c *call) reply(status int, out any) { c.send(status, "application/json", out) }

// buffers are reused for bodies, both ways.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func release(b *bytes.Buffer) {
	const keep = 1 << 20 // a larger one is rare, and not worth keeping
	if b.Cap() <= keep {
		b.Reset()
		buffers.Put(b)
	}
}

// jsonOut is how answers are written: times in UTC with microseconds, the same
// value always as the same bytes.
var jsonOut = json.JoinOptions(
	json.Deterministic(true),
	json.WithMarshalers(json.MarshalToFunc(func(e *jsontext.Encoder, t time.Time) error {
		return e.WriteToken(jsontext.String(timeText(t)))
	})),
)

func timeText(t time.Time) string { return t.UTC().Format(events.TimeLayout) }

// send writes a whole answer.
func (c *call) send(status int, contentType string, out any) {
	b := buffers.Get().(*bytes.Buffer)
	defer release(b)
	if a, ok := out.(interface{ appendTo(b []byte) []byte }); ok {
		b.Write(a.appendTo(b.AvailableBuffer()))
	} else if err := json.MarshalWrite(b, out, jsonOut); err != nil {
		c.cfg.Logger.Error("an answer does not encode", "method", c.r.Method, "path", c.op.path, "error", err)
		b.Reset()
		b.WriteString(`{"type":"about:blank","title":"Internal Server Error","status":500,"code":"INTERNAL","detail":"the relay failed; the operator finds the cause in its log"}`)
		status, contentType = http.StatusInternalServerError, "application/problem+json"
	}
	b.WriteByte('\n')
	c.sendBytes(status, contentType, b.Bytes())
}

func (c *call) sendBytes(status int, contentType string, body []byte) {
	c.headers(contentType)
	c.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	c.status = status
	c.w.WriteHeader(status)
	// An error means that the client is gone: there is nobody to tell.
	_, _ = c.w.Write(body)
}

var (
	noStore = []string{"no-store"}
	noSniff = []string{"nosniff"}
)

// standardFleet is the one whose position is told to whom nobody knows: /readyz tells
// it to everybody.
const standardFleet = "default"

// headers sets what every answer carries. The position is read last, so that it
// covers what the answer tells of; what a view answers is as of the view's.
func (c *call) headers(contentType string) {
	c.wrote, c.status = true, http.StatusOK
	h := c.w.Header()
	h.Set("Content-Type", contentType)
	// Canonical names and shared values: this is done for every answer.
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = noStore
	}
	h["X-Content-Type-Options"] = noSniff
	ledger, position := c.ledger, c.folded
	if ledger == nil {
		ledger = c.fleets[standardFleet]
	}
	if position == 0 && ledger != nil {
		position = ledger.Log().Durable()
	}
	h.Set("Ledger-Position", strconv.FormatUint(uint64(position), 10))
}
