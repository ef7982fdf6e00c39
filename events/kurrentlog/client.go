package kurrentlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"fleetledger/events"
)

// Schemes of a connection string. The client knows the old names only.
const (
	Scheme         = "kurrentdb"
	schemeDiscover = "kurrentdb+discover"
)

// Connection is a connection string as it was read.
type Connection struct {
	cfg *esdb.Configuration
	// prefix begins the names of the streams.
	prefix string
	text   string
}

func (c Connection) String() string { return Redact(c.text) }

// Stream is the name of the stream that holds a fleet.
func (c Connection) Stream(fleet string) string { return c.prefix + "-" + fleet }

// prefixOption is the option of a connection string that is ours.
const prefixOption = "streamPrefix"

// ParseConnection reads a connection string: kurrentdb://[user:password@]host:port,...
// with the client's options (tls, tlsCAFile, ...), or kurrentdb+discover://name.
// esdb:// is taken for kurrentdb://. The option streamPrefix, "fleetledger" if it is
// not there, begins the names of the streams.
func ParseConnection(s string) (Connection, error) {
	none := Connection{}
	scheme, rest, ok := strings.Cut(s, "://")
	switch scheme {
	case Scheme, "esdb":
		scheme = "esdb"
	case schemeDiscover, "esdb+discover":
		scheme = "esdb+discover"
	default:
		ok = false
	}
	if !ok {
		return none, fmt.Errorf("it looks like kurrentdb://host:2113,host:2113?tlsCAFile=ca.pem, not like %q", Redact(s))
	}
	hosts, query, _ := strings.Cut(rest, "?")
	options, err := url.ParseQuery(query)
	if err != nil {
		return none, fmt.Errorf("its options cannot be read: %w", err)
	}
	prefix := "fleetledger"
	if options.Has(prefixOption) {
		if prefix = options.Get(prefixOption); !events.ValidID(prefix) {
			return none, fmt.Errorf("%s %q: a-z, 0-9 and . _ - after the first character, at most 64", prefixOption, prefix)
		}
		options.Del(prefixOption)
	}
	cfg, err := esdb.ParseConnectionString(scheme + "://" + hosts + "?" + options.Encode())
	if err != nil {
		return none, errors.New(strings.ReplaceAll(err.Error(), hosts, "...")) // it may quote a password
	}
	// The client starts over when these have passed, and so do we: without them a call
	// would wait for nodes that are gone longer than its deadline.
	lower := strings.ToLower(query)
	if !strings.Contains(lower, "maxdiscoverattempts=") {
		cfg.MaxDiscoverAttempts = 2
	}
	if !strings.Contains(lower, "gossiptimeout=") {
		cfg.GossipTimeout = 3
	}
	return Connection{cfg, prefix, s}, nil
}

// Redact is a connection string without its password, to be shown.
func Redact(s string) string {
	scheme, rest, ok := strings.Cut(s, "://")
	if user, host, has := strings.Cut(rest, "@"); ok && has {
		name, _, _ := strings.Cut(user, ":")
		return scheme + "://" + url.PathEscape(name) + ":***@" + host
	}
	return s
}

// cluster makes the client's calls for one stream. Methods may be called
// concurrently.
type cluster struct {
	cfg      *esdb.Configuration
	stream   string
	deadline time.Duration
	logger   *slog.Logger

	mu  sync.Mutex
	now *handle // guarded by mu; nil until one is needed
}

// handle is a client, and who uses it.
type handle struct {
	client *esdb.Client
	// ready is closed when the first discovery ended, with err. Nobody else uses the
	// client before: when a discovery fails, it leaves whoever waits for it waiting.
	ready chan struct{}
	err   error

	users   int  // guarded by the cluster's mu
	retired bool // guarded by the cluster's mu
}

func newCluster(cfg *esdb.Configuration, stream string, deadline time.Duration, logger *slog.Logger) *cluster {
	cfg.Logger = func(level esdb.LogLevel, format string, args ...any) {
		logger.Debug("KurrentDB client: " + fmt.Sprintf(format, args...))
	}
	return &cluster{cfg: cfg, stream: stream, deadline: deadline, logger: logger}
}

// take returns the present client for one user, or a new one.
func (c *cluster) take() (h *handle, first bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == nil {
		client, err := esdb.NewClient(c.cfg)
		if err != nil {
			return nil, false, err
		}
		c.now, first = &handle{client: client, ready: make(chan struct{})}, true
	}
	c.now.users++
	return c.now, first, nil
}

func (c *cluster) done(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	h.users--
	h.closeIfUnused()
}

// retire sees to it that nobody takes h any more.
func (c *cluster) retire(h *handle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now == h {
		c.now = nil
	}
	if !h.retired {
		h.retired = true
		h.closeIfUnused()
	}
}

// closeIfUnused closes the client when nobody is in it: it panics on whoever is.
func (h *handle) closeIfUnused() {
	if h.retired && h.users == 0 {
		_ = h.client.Close() // it has no error to return
	}
}

func (c *cluster) close() {
	c.mu.Lock()
	h := c.now
	c.mu.Unlock()
	if h != nil {
		c.retire(h)
	}
}

// panicked is what became of a panic in the client.
type panicked struct{ value any }

func (p panicked) Error() string { return fmt.Sprintf("panic in the client: %v", p.value) }

// protect runs f and turns a panic into an error.
func protect[T any](f func() (T, error)) (out T, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = panicked{v}
		}
	}()
	return f()
}

// call runs f with a client, and returns by the deadline even if f does not.
func call[T any](ctx context.Context, c *cluster, f func(context.Context, *esdb.Client) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, c.deadline)
	type result struct {
		out T
		err error
	}
	var none T
	h, first, err := c.take()
	if err != nil {
		cancel()
		return none, err
	}
	ended := make(chan result, 1)
	go func() {
		defer cancel()
		defer c.done(h)
		if first {
			h.err = c.discover(ctx, h.client)
			close(h.ready)
		}
		select {
		case <-h.ready:
		case <-ctx.Done():
			ended <- result{err: ctx.Err()}
			return
		}
		if h.err != nil {
			ended <- result{err: h.err}
			return
		}
		out, err := protect(func() (T, error) { return f(ctx, h.client) })
		ended <- result{out, err}
	}()
	var r result
	select {
	case r = <-ended:
	case <-ctx.Done():
		select {
		case r = <-ended:
		default:
			r.err = ctx.Err()
		}
	}
	if r.err != nil && !ofStream(r.err) {
		c.retire(h)
	}
	return r.out, r.err
}

// discover has the client find its node: the read does not matter.
func (c *cluster) discover(ctx context.Context, client *esdb.Client) error {
	r, err := protect(func() (*esdb.ReadStream, error) {
		return client.ReadStream(ctx, c.stream, esdb.ReadStreamOptions{From: esdb.Start{}}, 1)
	})
	if err == nil {
		r.Close()
	}
	return err
}

// codeOf is the client's code of an error, which may be wrapped.
func codeOf(err error) (esdb.ErrorCode, bool) {
	var e *esdb.Error
	if errors.As(err, &e) {
		return e.Code(), true
	}
	return 0, false
}

func hasCode(err error, code esdb.ErrorCode) bool {
	c, ok := codeOf(err)
	return ok && c == code
}

// ofStream reports whether err tells of the stream, so that the client is well.
func ofStream(err error) bool {
	code, ok := codeOf(err)
	if !ok {
		return false
	}
	switch code {
	case esdb.ErrorCodeWrongExpectedVersion, esdb.ErrorCodeResourceNotFound, esdb.ErrorCodeStreamDeleted, esdb.ErrorCodeAccessDenied,
		esdb.ErrorCodeNotLeader: // the client goes to the leader by itself
		return true
	}
	return tooLarge(err)
}

// isRefused reports whether the server does not let this user do what it asks.
func isRefused(err error) bool {
	return hasCode(err, esdb.ErrorCodeAccessDenied) || hasCode(err, esdb.ErrorCodeUnauthenticated)
}

// tooLarge reports whether the server refused an append for its size.
func tooLarge(err error) bool {
	var e *esdb.Error
	return errors.As(err, &e) && e.Err() != nil && status.Code(e.Err()) == codes.InvalidArgument
}

// errWrongHead says that the stream was not at the expected head.
var errWrongHead = errors.New("the stream has another head")

// append writes events after the first size events of the log's stream.
func (c *cluster) append(ctx context.Context, size uint64, batch []esdb.EventData) error {
	return c.appendTo(ctx, c.stream, size, batch)
}

// appendTo writes events after the first size events that were ever in a stream.
// errWrongHead says that nothing was written; any other error leaves it open.
func (c *cluster) appendTo(ctx context.Context, stream string, size uint64, batch []esdb.EventData) error {
	_, err := call(ctx, c, func(ctx context.Context, client *esdb.Client) (struct{}, error) {
		opts := esdb.AppendToStreamOptions{ExpectedRevision: esdb.NoStream{}, Deadline: &c.deadline}
		if size > 0 {
			opts.ExpectedRevision = esdb.Revision(size - 1)
		}
		r, err := client.AppendToStream(ctx, stream, opts, batch...)
		if err == nil && r.NextExpectedVersion != size+uint64(len(batch))-1 {
			err = fmt.Errorf("the server says that the stream ends at revision %d after an append that ends at %d", r.NextExpectedVersion, size+uint64(len(batch))-1)
		}
		return struct{}{}, err
	})
	if hasCode(err, esdb.ErrorCodeWrongExpectedVersion) {
		return errWrongHead
	}
	return err
}

// A page of a read has at most this much, but for the rest of an append.
const (
	pageEvents = 2000
	pageBytes  = 8 << 20
)

// read returns events from a revision on, and whether they are all there are.
func (c *cluster) read(ctx context.Context, from uint64) (page []*esdb.RecordedEvent, end bool, err error) {
	return c.readPage(ctx, c.stream, esdb.ReadStreamOptions{From: esdb.Revision(from), Direction: esdb.Forwards}, pageEvents)
}

// newest returns the last event of a stream, nil if there is none.
func (c *cluster) newest(ctx context.Context, stream string) (*esdb.RecordedEvent, error) {
	return c.one(ctx, stream, esdb.ReadStreamOptions{From: esdb.End{}, Direction: esdb.Backwards})
}

// at returns the first event of the stream from a revision on, nil if there is none.
func (c *cluster) at(ctx context.Context, revision uint64) (*esdb.RecordedEvent, error) {
	return c.one(ctx, c.stream, esdb.ReadStreamOptions{From: esdb.Revision(revision), Direction: esdb.Forwards})
}

func (c *cluster) one(ctx context.Context, stream string, opts esdb.ReadStreamOptions) (*esdb.RecordedEvent, error) {
	out, _, err := c.readPage(ctx, stream, opts, 1)
	if err != nil || len(out) == 0 {
		return nil, err
	}
	return out[0], nil
}

// readPage returns at most count events of a stream, and whether they are all.
func (c *cluster) readPage(ctx context.Context, stream string, opts esdb.ReadStreamOptions, count uint64) ([]*esdb.RecordedEvent, bool, error) {
	type page struct {
		events []*esdb.RecordedEvent
		end    bool
	}
	p, err := call(ctx, c, func(ctx context.Context, client *esdb.Client) (p page, err error) {
		r, err := client.ReadStream(ctx, stream, opts, count)
		if err != nil {
			return p, err
		}
		defer r.Close()
		for bytes := 0; ; {
			e, err := protect(r.Recv)
			var unknown panicked
			switch {
			case errors.As(err, &unknown):
				continue // a message that the client has no case for; it is past it now
			case errors.Is(err, io.EOF):
				p.end = uint64(len(p.events)) < count
				return p, nil
			case err != nil && len(p.events) > 0 && !ofStream(err):
				return p, nil // what came is in order; the rest is read next
			case err != nil:
				return p, err
			case e.Event == nil:
				return p, fmt.Errorf("stream %s has a link whose event is gone", stream)
			}
			p.events = append(p.events, e.Event)
			// What is cut off in the middle of an append is read again with the rest.
			if bytes += len(e.Event.Data) + len(e.Event.UserMetadata); bytes > pageBytes && endsAppend(e.Event) {
				return p, nil
			}
		}
	})
	if hasCode(err, esdb.ErrorCodeResourceNotFound) {
		return nil, true, nil
	}
	return p.events, p.end, err
}

// endsAppend reports whether an event is the last of its append.
func endsAppend(e *esdb.RecordedEvent) bool {
	return strings.HasPrefix(string(e.UserMetadata[:min(len(e.UserMetadata), len(leftPart)+2)]), leftPart+"0,")
}

// subscribe calls f with the events of the stream after its first size events, until
// f returns false, ctx ends, or the subscription does.
func (c *cluster) subscribe(ctx context.Context, size uint64, f func(*esdb.RecordedEvent) bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // and so whatever call has given up
	opts := esdb.SubscribeToStreamOptions{From: esdb.Start{}}
	if size > 0 {
		opts.From = esdb.Revision(size - 1)
	}
	// It outlives the call that makes it. When the client is retired, it ends.
	sub, err := call(ctx, c, func(_ context.Context, client *esdb.Client) (*esdb.Subscription, error) {
		return client.SubscribeToStream(ctx, c.stream, opts)
	})
	if err != nil {
		return err
	}
	defer sub.Close()
	for {
		e, err := protect(func() (*esdb.SubscriptionEvent, error) { return sub.Recv(), nil })
		if err != nil {
			return err
		}
		switch {
		case e.SubscriptionDropped != nil:
			return e.SubscriptionDropped.Error
		case e.EventAppeared == nil || e.EventAppeared.Event == nil:
		case !f(e.EventAppeared.Event):
			return nil
		}
	}
}

// say appends one message to a stream, whatever is in it.
func (c *cluster) say(ctx context.Context, stream string, e esdb.EventData) error {
	_, err := call(ctx, c, func(ctx context.Context, client *esdb.Client) (*esdb.WriteResult, error) {
		return client.AppendToStream(ctx, stream, esdb.AppendToStreamOptions{ExpectedRevision: esdb.Any{}, Deadline: &c.deadline}, e)
	})
	return err
}

// limit has a stream keep its last events only.
func (c *cluster) limit(ctx context.Context, stream string, kept int) error {
	return c.say(ctx, "$$"+stream, esdb.EventData{
		EventType: "$metadata", ContentType: esdb.ContentTypeJson, Data: fmt.Appendf(nil, `{"$maxCount":%d}`, kept)})
}
