// Package memlog keeps a log in memory: for tests, and as the model that every
// other engine is checked against. It is written to be read, not to be fast.
//
// Nothing survives the process, so "durable" here means appended.
package memlog

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Options says what a log is opened with.
type Options struct {
	// Fleet is the fleet whose log this is: a valid id.
	Fleet string
	// Fold, unless nil, is kept in step with the log.
	Fold events.Fold
	// Now is the wall clock; nil means time.Now.
	Now func() time.Time
}

// Log is an events.Log in memory.
type Log struct {
	fleet string
	fold  events.Fold
	clock *events.Clock

	commits events.CommitCounter

	mu       sync.Mutex
	records  []events.Record // records[i] is at position i+1; readers keep it, so it is copied to erase
	streams  map[events.Stream][]events.Position
	ids      map[string]events.Position
	keys     map[events.Hash]binding
	tree     seal.Tree
	tiles    map[tileName][]byte
	advanced chan struct{} // closed, and replaced, at every append and at Close
	closed   bool
}

var (
	_ events.Log = (*Log)(nil)
	_ seal.Store = (*Log)(nil)
)

type tileName struct {
	level int
	n     uint64
}

// binding is what an idempotency key is bound to.
type binding struct {
	first, last events.Position
	request     events.Hash
}

// New returns an empty log.
func New(opts Options) (*Log, error) {
	if !events.ValidID(opts.Fleet) {
		return nil, fmt.Errorf("fleet %q is not a valid id", opts.Fleet)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	return &Log{
		fleet:    opts.Fleet,
		fold:     opts.Fold,
		clock:    events.NewClock(time.Time{}, opts.Now),
		streams:  make(map[events.Stream][]events.Position),
		ids:      make(map[string]events.Position),
		keys:     make(map[events.Hash]binding),
		tiles:    make(map[tileName][]byte),
		advanced: make(chan struct{}),
	}, nil
}

// Append implements events.Log.
func (l *Log) Append(ctx context.Context, a events.Append) (events.Appended, error) {
	if err := a.Check(); err != nil {
		return events.Appended{}, err
	}
	if err := ctx.Err(); err != nil {
		return events.Appended{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return events.Appended{}, events.ErrClosed
	}
	if err := a.CheckErase(events.Position(len(l.records))); err != nil {
		return events.Appended{}, err
	}

	if !a.Key.IsZero() {
		if b, ok := l.keys[a.Key]; ok {
			if b.request != a.Request {
				return events.Appended{}, &events.KeyMismatchError{First: b.first}
			}
			return events.Appended{First: b.first, Last: b.last, Duplicate: true}, nil
		}
	}
	for _, d := range a.Drafts {
		if p, ok := l.ids[d.Intent.ID]; ok {
			return events.Appended{}, &events.DuplicateIDError{ID: d.Intent.ID, Position: p}
		}
	}
	for _, e := range a.Expect {
		if actual := events.Revision(len(l.streams[e.Stream])); actual != e.Revision {
			return events.Appended{}, &events.ConflictError{Stream: e.Stream, Expected: e.Revision, Actual: actual}
		}
	}
	now := l.clock.Now()
	if !a.Before.IsZero() && !now.Before(a.Before) {
		return events.Appended{}, events.ErrTooLate
	}

	recs := l.place(a.Drafts, now)
	publish := func() {}
	if l.fold != nil {
		var err error
		if publish, err = l.fold.Stage(recs); err != nil {
			return events.Appended{}, err
		}
	}
	for _, r := range recs {
		l.records = append(l.records, r)
		l.streams[r.Header.Stream] = append(l.streams[r.Header.Stream], r.Header.Position)
		l.ids[r.Header.ID] = r.Header.Position
		l.tree.Append(r.LeafHash, func(t seal.Tile) { l.tiles[tileName{t.Level, t.N}] = t.AppendTo(nil) })
	}
	if len(a.Erase) > 0 {
		l.records = slices.Clone(l.records)
	}
	for _, p := range a.Erase {
		r := &l.records[p-1]
		r.Salt, r.Payload, r.Erased = [events.SaltBytes]byte{}, nil, true
	}
	done := events.Appended{First: recs[0].Header.Position, Last: recs[len(recs)-1].Header.Position, Records: recs}
	if !a.Key.IsZero() {
		l.keys[a.Key] = binding{first: done.First, last: done.Last, request: a.Request}
	}
	publish()
	l.commits.Add(1, len(recs))
	l.wake()
	return done, nil
}

// Commits implements events.Committing.
func (l *Log) Commits() events.CommitCounts { return l.commits.Counts() }

// place makes the records of drafts as they would follow what is in the log.
func (l *Log) place(drafts []events.Draft, now time.Time) []events.Record {
	recs := make([]events.Record, len(drafts))
	heads := make(map[events.Stream]*events.Record) // of streams written by these drafts
	for i, d := range drafts {
		s := d.Intent.Stream
		head := heads[s]
		if of := l.streams[s]; head == nil && len(of) > 0 {
			head = &l.records[of[len(of)-1]-1]
		}
		place := events.Place{
			Version:  events.FormatVersion,
			Fleet:    l.fleet,
			Position: events.Position(len(l.records) + 1 + i),
			Revision: 1,
			Time:     now,
		}
		if head != nil {
			place.Revision = head.Header.Revision + 1
			place.Prev = head.LeafHash
		}
		recs[i] = d.Place(place)
		heads[s] = &recs[i]
	}
	return recs
}

// ReadStream implements events.Log.
func (l *Log) ReadStream(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Record, error] {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := l.streams[s]
	of = of[min(uint64(after), uint64(len(of))):]
	records := l.records
	return func(yield func(events.Record, error) bool) {
		if !l.readable(ctx, yield) {
			return
		}
		for i, p := range of {
			if i > 0 && !l.readable(ctx, yield) || !yield(records[p-1], nil) {
				return
			}
		}
	}
}

// ReadAll implements events.Log.
func (l *Log) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Record, error] {
	l.mu.Lock()
	defer l.mu.Unlock()
	records := l.records[min(uint64(after), uint64(len(l.records))):]
	return func(yield func(events.Record, error) bool) {
		if !l.readable(ctx, yield) {
			return
		}
		for i, r := range records {
			if i > 0 && !l.readable(ctx, yield) || !yield(r, nil) {
				return
			}
		}
	}
}

// readable reports whether a reader may go on, and tells it if not.
func (l *Log) readable(ctx context.Context, yield func(events.Record, error) bool) bool {
	err := ctx.Err()
	if err == nil {
		l.mu.Lock()
		if l.closed {
			err = events.ErrClosed
		}
		l.mu.Unlock()
	}
	if err != nil {
		yield(events.Record{}, err)
	}
	return err == nil
}

// Durable implements events.Log.
func (l *Log) Durable() events.Position {
	l.mu.Lock()
	defer l.mu.Unlock()
	return events.Position(len(l.records))
}

// Wait implements events.Log.
func (l *Log) Wait(ctx context.Context, p events.Position) error {
	for {
		l.mu.Lock()
		durable, closed, advanced := events.Position(len(l.records)), l.closed, l.advanced
		l.mu.Unlock()
		switch {
		case durable >= p:
			return nil
		case closed:
			return events.ErrClosed
		}
		select {
		case <-advanced:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake wakes everyone in Wait. l.mu is held.
func (l *Log) wake() {
	close(l.advanced)
	l.advanced = make(chan struct{})
}

// FindID implements events.Log.
func (l *Log) FindID(ctx context.Context, id string) (events.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, events.ErrClosed
	}
	return l.ids[id], nil
}

// FindKey implements events.Log.
func (l *Log) FindKey(ctx context.Context, key events.Hash) (events.Appended, events.Hash, error) {
	if err := ctx.Err(); err != nil {
		return events.Appended{}, events.Hash{}, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return events.Appended{}, events.Hash{}, events.ErrClosed
	}
	b, ok := l.keys[key]
	return events.Appended{First: b.first, Last: b.last, Duplicate: ok}, b.request, nil
}

// Tree implements seal.Store.
func (l *Log) Tree() seal.View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tree.View()
}

// FullTile implements seal.Store.
func (l *Log) FullTile(level int, n uint64) ([]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return nil, events.ErrClosed
	}
	b, ok := l.tiles[tileName{level, n}]
	if !ok {
		t := seal.Tile{Level: level, N: n}
		return nil, &events.CorruptError{Position: t.First(), Detail: t.String() + " is missing"}
	}
	return b, nil
}

// Heads implements events.Log.
func (l *Log) Heads(ctx context.Context, after events.Stream, at events.Position) iter.Seq2[events.StreamHead, error] {
	l.mu.Lock()
	defer l.mu.Unlock()
	records := l.records
	var heads []events.StreamHead
	for s, of := range l.streams {
		// The revisions up to that position.
		n, _ := slices.BinarySearch(of, at+1)
		if s <= after || n == 0 {
			continue
		}
		r := records[of[n-1]-1]
		heads = append(heads, events.StreamHead{Stream: s, Revision: r.Header.Revision, LeafHash: r.LeafHash})
	}
	slices.SortFunc(heads, func(a, b events.StreamHead) int { return cmp.Compare(a.Stream, b.Stream) })
	return func(yield func(events.StreamHead, error) bool) {
		if at > events.Position(len(records)) {
			yield(events.StreamHead{}, fmt.Errorf("position %d is past the end of the log, %d", at, len(records)))
			return
		}
		for _, h := range heads {
			if err := ctx.Err(); err != nil {
				yield(events.StreamHead{}, err)
				return
			}
			if !yield(h, nil) {
				return
			}
		}
	}
}

// Scrub implements events.Log.
func (l *Log) Scrub(ctx context.Context) error { return ctx.Err() }

// Now implements events.Log.
func (l *Log) Now() time.Time { return l.clock.Now() }

// Close implements events.Log.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		l.wake()
	}
	return nil
}
