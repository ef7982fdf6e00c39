package kurrentlog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Options says how a log is opened.
type Options struct {
	// Connection names the cluster; see ParseConnection.
	Connection string
	// Fleet is the fleet whose log this is: a valid id.
	Fleet string
	// Fold, unless nil, is kept in step with the log. It holds what the replica held
	// when it was opened, and nobody else stages on it.
	Fold events.Fold
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
	// Logger is told what the operator should know; nil means slog.Default().
	Logger *slog.Logger
	// Peers, unless nil, takes appends from other relays, and lets this one hand its own
	// over; see Follow.
	Peers *Peers
	// Deadline is how long one call to the cluster may take; 0 means 5 s.
	Deadline time.Duration
	// Patience is how long an append waits for a cluster that is out of reach; 0 means
	// 20 s.
	Patience time.Duration
	// Poll is how often the stream is looked at when nothing seems to happen: a
	// subscription may be stuck. 0 means 1 s.
	Poll time.Duration
}

func (o Options) withDefaults() (Options, error) {
	if !events.ValidID(o.Fleet) {
		return o, fmt.Errorf("fleet %q is not a valid id", o.Fleet)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{{&o.Deadline, 5 * time.Second}, {&o.Patience, 20 * time.Second}, {&o.Poll, time.Second}} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	return o, nil
}

// Replica is the relay's own copy of the log. All that is read is read from it.
type Replica interface {
	seal.Store
	events.StoredReader
	ReadStream(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Record, error]
	ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Record, error]
	Heads(ctx context.Context, after events.Stream, at events.Position) iter.Seq2[events.StreamHead, error]
	Scrub(ctx context.Context) error
	Durable() events.Position
	Wait(ctx context.Context, p events.Position) error
	FindID(ctx context.Context, id string) (events.Position, error)
	FindKey(ctx context.Context, key events.Hash) (events.Appended, events.Hash, error)
	// Now is no earlier than the time of the last event.
	Now() time.Time
	// Head is the newest event of a stream; Room an error if nothing more fits.
	Head(s events.Stream) (events.Revision, events.Hash, error)
	Room() error
	// Store adds appends that follow, and returns once they are durable and published.
	Store(appends []events.Placed) error
	Close() error
}

// Log is an events.Log in a cluster, as one relay sees it.
type Log struct {
	opts    Options
	cluster *cluster
	replica Replica
	clock   *events.Clock

	queue   queue
	tail    chan []events.Record // whole appends, as the subscription brings them
	channel channel
	// applied is how many events the replica holds; only the committer writes it.
	applied atomic.Uint64
	commits events.CommitCounter

	// awaited are the requests whose events are answered for when they come in the
	// stream: those that are being settled, and those that another relay was given. unseen
	// are those of the latter that it says are written, onTheirWay how many batches it
	// has not answered. Only the committer uses them.
	awaited    map[own][]*request
	unseen     []*request
	onTheirWay int
	back       chan handed

	leader   atomic.Pointer[leader] // nil for none
	admitted admitted
	taken    atomic.Uint64 // how many appends other relays have handed over

	// life ends, with the reason, when the log is closed or has failed.
	life    context.Context
	end     context.CancelCauseFunc
	work    sync.WaitGroup
	stopped chan struct{} // closed when the committer has ended

	closing  sync.Once
	closeErr error
}

var (
	_ events.Log        = (*Log)(nil)
	_ events.Degraded   = (*Log)(nil)
	_ events.Committing = (*Log)(nil)
	_ events.Bounded    = (*Log)(nil)
	_ seal.Store        = (*Log)(nil)
)

// ForeignError says that the replica and the stream are not one log.
type ForeignError struct {
	Stream   string
	Position events.Position
	Detail   string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("the stream %s is not the one that this replica was made from, at position %d: %s; nothing was changed", e.Stream, e.Position, e.Detail)
}

// TruncatedError says that events of the stream were, or will be, removed.
type TruncatedError struct{ Stream, Detail string }

func (e *TruncatedError) Error() string {
	return fmt.Sprintf("the stream %s is truncated: %s; a ledger keeps every event: remove that setting, and restore a backup if events are gone", e.Stream, e.Detail)
}

// Open opens the log of a fleet in a cluster. It first brings the replica, which Close
// closes, up to the head of the stream. A truncated stream is a
// *TruncatedError, another one than the replica's a *ForeignError.
func Open(ctx context.Context, replica Replica, opts Options) (*Log, error) {
	l, err := connect(opts)
	if err != nil {
		return nil, err
	}
	l.replica = replica
	l.clock = events.NewClock(replica.Now(), l.opts.Now)
	l.applied.Store(uint64(replica.Durable()))
	if err := l.join(ctx); err != nil {
		l.cluster.close()
		return nil, fmt.Errorf("%s: %w", Redact(opts.Connection), err)
	}
	l.work.Go(l.commit)
	l.work.Go(l.follow)
	if opts.Peers != nil {
		opts.Peers.add(l)
	}
	return l, nil
}

// connect makes a log without a replica, at which nothing works yet.
func connect(opts Options) (*Log, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	connection, err := ParseConnection(opts.Connection)
	if err != nil {
		return nil, err
	}
	l := &Log{
		opts:    opts,
		cluster: newCluster(connection.cfg, connection.Stream(opts.Fleet), opts.Deadline, opts.Logger),
		queue:   queue{ready: make(chan struct{}, 1)},
		tail:    make(chan []events.Record, tailAppends),
		stopped: make(chan struct{}),
		awaited: map[own][]*request{}, back: make(chan handed), admitted: admitted{until: map[string]time.Time{}},
	}
	l.life, l.end = context.WithCancelCause(context.Background())
	return l, nil
}

// join checks the stream and brings the replica up to its head.
func (l *Log) join(ctx context.Context) error {
	if err := l.retry(ctx, l.checkWhole); err != nil {
		return err
	}
	if err := l.retry(ctx, l.checkSame); err != nil {
		return err
	}
	for end := false; !end; { // page by page: there may be many
		err := l.retry(ctx, func(ctx context.Context) (err error) {
			end, err = l.catchUpPage(ctx)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// retry calls f until it ends well, or with an error that trying again does not
// change, for as long as an append would wait.
func (l *Log) retry(ctx context.Context, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Patience)
	defer cancel()
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := f(ctx)
		if err == nil || isFinal(err) {
			return err
		}
		if isRefused(err) {
			return fmt.Errorf("%w: it refuses these credentials: %w", events.ErrUnavailable, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", events.ErrUnavailable, err)
		case <-time.After(pause):
		}
	}
}

// Pauses between calls that fail.
const (
	minPause = 10 * time.Millisecond
	maxPause = time.Second
)

// Replica is the replica that the log was opened with.
func (l *Log) Replica() Replica { return l.replica }

// fail ends the log: nothing more is acknowledged.
func (l *Log) fail(err error) {
	err = fmt.Errorf("%w: %w", events.ErrFailed, err)
	if l.life.Err() == nil {
		l.opts.Logger.Error("the log takes no more appends", "stream", l.cluster.stream, "error", err)
	}
	l.end(err)
}

// Durable implements events.Log: it is how far this relay has applied the stream.
func (l *Log) Durable() events.Position { return l.replica.Durable() }

// Now implements events.Log.
func (l *Log) Now() time.Time { return l.clock.Now() }

// Wait implements events.Log.
func (l *Log) Wait(ctx context.Context, p events.Position) error {
	if l.Durable() >= p {
		return nil
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.life, func() { cancel(context.Cause(l.life)) })()
	err := l.replica.Wait(ctx, p)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// ReadStream implements events.Log.
func (l *Log) ReadStream(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Record, error] {
	return l.replica.ReadStream(ctx, s, after)
}

// ReadAll implements events.Log.
func (l *Log) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Record, error] {
	return l.replica.ReadAll(ctx, after)
}

// ReadStored implements events.StoredReader.
func (l *Log) ReadStored(ctx context.Context, after events.Position) iter.Seq2[events.Stored, error] {
	return l.replica.ReadStored(ctx, after)
}

// Heads implements events.Log.
func (l *Log) Heads(ctx context.Context, after events.Stream, at events.Position) iter.Seq2[events.StreamHead, error] {
	return l.replica.Heads(ctx, after, at)
}

// Scrub implements events.Log, for what was erased before the log was moved into the
// cluster.
func (l *Log) Scrub(ctx context.Context) error { return l.replica.Scrub(ctx) }

// AppendBytes implements events.Bounded.
func (l *Log) AppendBytes() int { return MaxBatchBytes }

// Commits implements events.Committing. What was found to be in the cluster after its
// answer was lost is not counted.
func (l *Log) Commits() events.CommitCounts { return l.commits.Counts() }

// Degraded implements events.Degraded.
func (l *Log) Degraded() error {
	if err := context.Cause(l.life); err != nil && !errors.Is(err, events.ErrClosed) {
		return err
	}
	return nil
}

// FindID implements events.Log.
func (l *Log) FindID(ctx context.Context, id string) (events.Position, error) {
	return l.replica.FindID(ctx, id)
}

// FindKey implements events.Log.
func (l *Log) FindKey(ctx context.Context, key events.Hash) (events.Appended, events.Hash, error) {
	return l.replica.FindKey(ctx, key)
}

// Tree implements seal.Store.
func (l *Log) Tree() seal.View { return l.replica.Tree() }

// FullTile implements seal.Store.
func (l *Log) FullTile(level int, n uint64) ([]byte, error) { return l.replica.FullTile(level, n) }

// Close implements events.Log. It closes the replica too. When the log failed, it
// returns why.
func (l *Log) Close() error {
	l.closing.Do(func() {
		if l.opts.Peers != nil {
			l.opts.Peers.remove(l)
			l.Follow("")
		}
		l.queue.close()
		select {
		case <-l.stopped:
		case <-time.After(l.opts.Patience):
			// The cluster is out of reach. What it may have written shows at the next start.
		}
		l.end(events.ErrClosed)
		l.work.Wait()
		l.cluster.close()
		l.closeErr = l.replica.Close()
		if cause := context.Cause(l.life); !errors.Is(cause, events.ErrClosed) {
			l.closeErr = errors.Join(cause, l.closeErr)
		}
	})
	return l.closeErr
}
