package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
)

// Client talks to one relay as one actor. Methods may be called concurrently.
//
// A request is tried again, a bounded number of times, when it may be: after a
// failed connection or a 502, 503 or 504 if it is a GET or carries its
// Idempotency-Key, and after a 429 or 503, which say that nothing was done,
// always. A Retry-After that is longer than maxRetryWait is not waited for: the
// caller gets the Problem.
type Client struct {
	base   *url.URL
	token  string
	signer *signer // of a device, which has no token; nil for a token
	http   *http.Client
}

const (
	maxTries     = 4
	maxRetryWait = 5 * time.Second
	// tryTimeout bounds one try of a request, not a stream.
	tryTimeout = 30 * time.Second
	// maxBody bounds what an answer may take in memory.
	maxBody = 64 << 20
)

// NewClient returns a client for the relay at base, an http or https URL, with a
// bearer token.
func NewClient(base, token string) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("%q is not the address of a relay: it looks like http://127.0.0.1:7070", base)
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("the token holds a byte that no token has: give it as it was shown, on one line")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.DialContext = (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	return &Client{
		base: u, token: token,
		http: &http.Client{
			Transport: transport,
			// A relay redirects nowhere; following would hand the token on.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
}

// NewDeviceClient returns a client for the relay at base that signs each request
// with the key of a paired device.
func NewDeviceClient(base string, d Device) (*Client, error) {
	c, err := NewClient(base, "")
	if err != nil {
		return nil, err
	}
	c.signer = &signer{device: d}
	return c, nil
}

// Address is the relay's URL.
func (c *Client) Address() string { return c.base.String() }

// Request is one request of the API.
type Request struct {
	Method string
	// Path begins with a slash; its variable parts must be escaped, see Path.
	Path  string
	Query url.Values
	// Body is sent as JSON; nil sends nothing. A jsontext.Value is sent as it is.
	Body any
	// ContentType is that of the body; empty is application/json.
	ContentType string
	// Accept is the media type of the answer; empty is application/json.
	Accept string
	// Key is the Idempotency-Key; a POST without one is given a new one.
	Key string
	// ApprovalID names a granted approval that the request spends.
	ApprovalID string
	// Once is true for a request that is not to be tried again.
	Once bool
}

// repeatable reports whether the request, made twice, is as good as made once: a
// GET changes nothing, and what carries its key is carried out once.
func (r Request) repeatable() bool { return r.Method == http.MethodGet || r.Key != "" }

// Response is the answer to a request that was carried out, or that waits for an
// approval (status 202).
type Response struct {
	Status int
	Header http.Header
	Body   jsontext.Value
}

// Decode reads the body into v. Members that v does not have are ignored, so
// that a newer relay can say more.
func (r *Response) Decode(v any) error {
	if err := json.Unmarshal(r.Body, v); err != nil {
		return fmt.Errorf("the relay's answer is not what was expected: %w; client and relay may be of different versions", err)
	}
	return nil
}

// now is the relay's time as its answer tells it, to the second, or this
// machine's.
func (r *Response) now() time.Time {
	if t, err := http.ParseTime(r.Header.Get("Date")); err == nil {
		return t
	}
	return time.Now()
}

// Path joins segments to a path, each escaped.
func Path(segments ...string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// NewKey returns a new Idempotency-Key.
func NewKey() string { return uuid.Must(uuid.NewV7()).String() }

// Get reads path.
func (c *Client) Get(ctx context.Context, path string, query url.Values) (*Response, error) {
	return c.Do(ctx, Request{Method: http.MethodGet, Path: path, Query: query})
}

// Post sends body to path under a new Idempotency-Key.
func (c *Client) Post(ctx context.Context, path string, body any) (*Response, error) {
	return c.Do(ctx, Request{Method: http.MethodPost, Path: path, Body: body})
}

// Do makes a request. An answer of 400 or more is a *Problem; any other error
// means that no answer came, and says so as an *UnreachableError.
func (c *Client) Do(ctx context.Context, r Request) (*Response, error) {
	body, err := encodeBody(r.Body)
	if err != nil {
		return nil, err
	}
	if r.Method == http.MethodPost && r.Key == "" {
		r.Key = NewKey()
	}
	for try := 1; ; try++ {
		resp, err := c.once(ctx, r, body)
		if err == nil || r.Once || try == maxTries || ctx.Err() != nil {
			return resp, err
		}
		wait, again := retry(r, err, try)
		if !again {
			return nil, err
		}
		if pause(ctx, wait) != nil {
			return nil, err
		}
	}
}

func encodeBody(body any) ([]byte, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case jsontext.Value:
		return b, nil
	}
	return json.Marshal(body, json.Deterministic(true))
}

func (c *Client) once(ctx context.Context, r Request, body []byte) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	resp, err := c.send(ctx, r, body, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return nil, c.unreachable(err)
	}
	if len(got) > maxBody {
		return nil, fmt.Errorf("the relay's answer has more than %d bytes: ask for less at once", maxBody)
	}
	return &Response{Status: resp.StatusCode, Header: resp.Header, Body: got}, nil
}

func (c *Client) request(ctx context.Context, r Request, body []byte) (*http.Request, error) {
	target := c.base.String() + r.Path
	if len(r.Query) > 0 {
		target += "?" + r.Query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	switch {
	case c.signer != nil:
		if err := c.signer.sign(req, c.base, body); err != nil {
			return nil, err
		}
	case c.token != "":
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	req.Header.Set("Accept", "application/json")
	if r.Accept != "" {
		req.Header.Set("Accept", r.Accept)
	}
	if body != nil {
		contentType := r.ContentType
		if contentType == "" {
			contentType = "application/json"
		}
		req.Header.Set("Content-Type", contentType)
	}
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	if r.ApprovalID != "" {
		req.Header.Set("Approval-Id", r.ApprovalID)
	}
	return req, nil
}

// UnreachableError says that a relay did not answer.
type UnreachableError struct {
	Address string
	err     error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("no answer from the relay at %s: %v", e.Address, e.err)
}

func (e *UnreachableError) Unwrap() error { return e.err }

func (c *Client) unreachable(err error) error {
	// *url.Error repeats the method and the whole URL.
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err
	}
	return &UnreachableError{Address: c.Address(), err: err}
}

// retry decides whether a failed try is made again, and after how long.
func retry(r Request, err error, try int) (time.Duration, bool) {
	repeatable := r.repeatable()
	p, ok := errors.AsType[*Problem](err)
	if !ok {
		op, isOp := errors.AsType[*net.OpError](err)
		unsent := isOp && op.Op == "dial"
		return backoff(try), repeatable || unsent
	}
	switch p.Status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		if !repeatable {
			return 0, false
		}
	default:
		return 0, false
	}
	if wait := p.retryAfter(); wait > 0 {
		return wait, wait <= maxRetryWait
	}
	return backoff(try), true
}

// retryAfter is how long the relay asked to wait, 0 if it did not say.
func (p *Problem) retryAfter() time.Duration {
	var seconds int
	if p.Fact("retry_after_s", &seconds) && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return 0
}

// addRetryAfter keeps the header where the document does not say it.
func (p *Problem) addRetryAfter(h http.Header) {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || p.retryAfter() > 0 {
		return
	}
	if p.Facts == nil {
		p.Facts = map[string]jsontext.Value{}
	}
	p.Facts["retry_after_s"] = jsontext.Value(strconv.Itoa(seconds))
}

// backoff is the wait before the try after this one: 100 ms doubled each time,
// at most maxRetryWait, of which a random half is taken off, so that clients that
// lost one relay together do not come back together.
func backoff(try int) time.Duration {
	d := maxRetryWait
	if try < 7 {
		d = min(d, 100*time.Millisecond<<(try-1))
	}
	return d/2 + rand.N(d/2)
}

// pause waits for d, or returns ctx's error if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
