package kurrentlog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"fleetledger/events"
)

// Shelf keeps small values beside the log, each under a name, where every relay of the
// fleet finds them. A value is the newest event of a stream of its own, and its
// version how many were ever written there. Nothing that the log promises rests on it.
// Methods may be called concurrently.
type Shelf struct {
	l *Log

	mu      sync.Mutex
	limited map[string]bool // whose streams' length was set; guarded by mu
	// unknown are the events put by each name of which nobody knows whether they were
	// written, with the version that their caller had seen; guarded by mu.
	unknown map[string]map[[16]byte]uint64
}

// NewShelf returns the shelf of a log. It ends with the log.
func NewShelf(l *Log) *Shelf {
	return &Shelf{l: l, limited: map[string]bool{}, unknown: map[string]map[[16]byte]uint64{}}
}

// OpenShelf opens the shelf of a log that is not open here. Close closes it.
func OpenShelf(opts Options) (*Shelf, error) {
	l, err := connect(opts)
	if err != nil {
		return nil, err
	}
	return NewShelf(l), nil
}

// Close ends a shelf that OpenShelf has opened.
func (s *Shelf) Close() {
	s.l.end(events.ErrClosed)
	s.l.cluster.close()
}

// shelfKept is how many versions of a value are kept, for people: only the newest
// counts.
const shelfKept = 10

// shelfTries is how often a value is sent before its writer is told of the trouble.
const shelfTries = 3

// stream is that of a name; a colon is in no fleet's id.
func (s *Shelf) stream(name string) string { return s.l.cluster.stream + ":" + name }

// Get returns the value of a name and its version: nil and 0 if it has none. A node
// that lags may return an older one, which Put then refuses to replace.
func (s *Shelf) Get(ctx context.Context, name string) (value []byte, version uint64, err error) {
	last, err := s.newest(ctx, name)
	if err != nil || last == nil {
		return nil, 0, err
	}
	return last.Data, last.EventNumber + 1, nil
}

// Put replaces the value of a name, of which the caller has seen this version, and
// returns the new one. If somebody else has replaced it since, it is an
// *events.ConflictError and nothing is changed; after any other error it may be
// replaced or not, and putting again is safe.
func (s *Shelf) Put(ctx context.Context, name string, value []byte, version uint64) (uint64, error) {
	if len(value) > MaxBatchBytes {
		return 0, fmt.Errorf("%w: %s has %d bytes, at most %d are kept", events.ErrTooLarge, name, len(value), MaxBatchBytes)
	}
	if err := s.limit(ctx, name); err != nil {
		return 0, err
	}
	e := esdb.EventData{EventType: "relay.kept", ContentType: esdb.ContentTypeJson, Data: value}
	_, _ = rand.Read(e.EventID[:]) // never fails
	seen := version
	err := s.put(ctx, name, e, version)
	if errors.Is(err, errWrongHead) {
		last, failed := s.newest(ctx, name)
		if failed != nil {
			return 0, failed
		}
		conflict := &events.ConflictError{Stream: events.Stream(s.stream(name)), Expected: events.Revision(version)}
		if last != nil {
			conflict.Actual = events.Revision(last.EventNumber + 1)
		}
		// What was put before upon the same version may have arrived after all. Upon another
		// one says nothing: what others have put may lie between, and a node that lags has
		// not told the caller of it.
		if last == nil || !s.arrived(name, last.EventID, seen) {
			return 0, conflict
		}
		version = last.EventNumber + 1
		if err = s.put(ctx, name, e, version); errors.Is(err, errWrongHead) {
			return 0, conflict
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if s.unknown[name] == nil {
			s.unknown[name] = map[[16]byte]uint64{}
		}
		s.unknown[name][e.EventID] = seen
		return 0, err
	}
	delete(s.unknown, name)
	return version + 1, nil
}

// arrived reports whether an event is one that was put upon this version, and of which
// nobody knew whether it was written.
func (s *Shelf) arrived(name string, id [16]byte, version uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	upon, ok := s.unknown[name][id]
	return ok && upon == version
}

// Remove removes the value of a name.
func (s *Shelf) Remove(ctx context.Context, name string) error {
	ctx, cancel := s.l.living(ctx)
	defer cancel()
	_, err := call(ctx, s.l.cluster, func(ctx context.Context, client *esdb.Client) (*esdb.DeleteResult, error) {
		return client.DeleteStream(ctx, s.stream(name), esdb.DeleteStreamOptions{ExpectedRevision: esdb.Any{}})
	})
	if hasCode(err, esdb.ErrorCodeResourceNotFound) {
		return nil
	}
	return s.unavailable(err)
}

func (s *Shelf) newest(ctx context.Context, name string) (*esdb.RecordedEvent, error) {
	ctx, cancel := s.l.living(ctx)
	defer cancel()
	last, err := s.l.cluster.newest(ctx, s.stream(name))
	return last, s.unavailable(err)
}

func (s *Shelf) put(ctx context.Context, name string, e esdb.EventData, version uint64) error {
	ctx, cancel := s.l.living(ctx)
	defer cancel()
	// The same event at the same place is written once, however often it is sent.
	var err error
	for range shelfTries {
		err = s.l.cluster.appendTo(ctx, s.stream(name), version, []esdb.EventData{e})
		if err == nil || errors.Is(err, errWrongHead) {
			return err
		}
	}
	return s.unavailable(err)
}

// limit sets the length of a name's stream, once.
func (s *Shelf) limit(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.limited[name] {
		return nil
	}
	ctx, cancel := s.l.living(ctx)
	defer cancel()
	if err := s.l.cluster.limit(ctx, s.stream(name), shelfKept); err != nil {
		return s.unavailable(err)
	}
	s.limited[name] = true
	return nil
}

// unavailable is what a caller is told of an error of the cluster.
func (s *Shelf) unavailable(err error) error {
	if err == nil {
		return nil
	}
	if s.l.life.Err() != nil {
		return context.Cause(s.l.life)
	}
	return fmt.Errorf("%w: %w", events.ErrUnavailable, err)
}
