package pebblelog

import (
	"context"
	"sync"
	"sync/atomic"

	"fleetledger/events"
)

// request is an append on its way. Its caller fills it in, then only the
// committer changes it, then the finisher, and then the caller reads it.
type request struct {
	a     events.Append
	bytes int // about what it adds to a batch
	// recs are the records without their places. Until a record is placed, its
	// Leaf is a zero byte and the encoded intent, with room for the place: the
	// leaf hash is then the SHA-256 of one piece of memory.
	recs []events.Record

	// What the caller found in Pebble when it held at least probed groups.
	probed uint64
	bound  *binding          // what the key was bound to
	taken  []events.Position // of the ids that were taken, 0 for the others; nil if none was

	state   atomic.Int32
	placed  bool   // recs have their places: they are a replica's
	publish func() // the fold's; nil if there is no fold
	out     events.Appended
	err     error
	done    chan struct{} // has one slot
}

// States of a request.
const (
	waiting int32 = iota
	underWay
	abandoned
)

// placeBytes bounds the encoded place but for the fleet's name.
const placeBytes = 208

// intentBytes bounds the encoded intent but for its names.
const intentBytes = 160 + 3*64

func (l *Log) newRequest(a events.Append) *request {
	r := &request{a: a, recs: make([]events.Record, len(a.Drafts)), done: make(chan struct{}, 1)}
	room := 0
	for i := range a.Drafts {
		room += l.leafRoom(&a.Drafts[i].Intent)
	}
	buf := make([]byte, 0, room)
	for i := range a.Drafts {
		d, rec := &a.Drafts[i], &r.recs[i]
		rec.Header.Intent, rec.Salt, rec.Payload = d.Intent, d.Salt, d.Payload
		begin := len(buf)
		buf = d.Intent.AppendTo(append(buf, 0))
		end := begin + l.leafRoom(&d.Intent)
		rec.Leaf = buf[begin:len(buf):end]
		buf = buf[:end]
		// Header, payload, and what the index entries take.
		r.bytes += end - begin + len(d.Payload) + len(d.Intent.Stream) + len(d.Intent.ID) + 160
	}
	r.bytes += 48 * len(a.Erase)
	return r
}

// leafRoom bounds the size of a leaf with a zero byte before it.
func (l *Log) leafRoom(n *events.Intent) int {
	return 1 + intentBytes + len(n.ID) + len(n.Stream) + len(n.Type) + len(n.Actor) +
		len(n.Correlation) + len(n.Causation) + placeBytes + len(l.opts.Fleet)
}

// Append implements events.Log.
func (l *Log) Append(ctx context.Context, a events.Append) (events.Appended, error) {
	if err := a.Check(); err != nil {
		return events.Appended{}, err
	}
	if err := ctx.Err(); err != nil {
		return events.Appended{}, err
	}
	if err := l.failedErr(); err != nil {
		return events.Appended{}, err
	}
	if err := a.CheckErase(l.Durable()); err != nil {
		return events.Appended{}, err
	}
	r := l.newRequest(a)
	if err := l.probe(r); err != nil {
		return events.Appended{}, err
	}
	if !l.queue.push(r) {
		return events.Appended{}, events.ErrClosed
	}
	if len(a.Erase) > 0 {
		defer l.signalScrub() // also if nobody waits for the answer any more
	}
	select {
	case <-r.done:
		return r.out, r.err
	case <-ctx.Done():
		// If the committer has not seen it yet, it never will.
		r.state.CompareAndSwap(waiting, abandoned)
		return events.Appended{}, ctx.Err()
	case <-l.failed:
		select {
		case <-r.done:
			return r.out, r.err
		default:
			return events.Appended{}, l.failedErr()
		}
	}
}

// probe looks in Pebble for r's key and ids. What it finds is true for ever;
// what it does not find, the committer checks against what came since.
func (l *Log) probe(r *request) error {
	done, err := l.use()
	if err != nil {
		return err
	}
	defer done()
	p, err := l.takeProber()
	if err != nil {
		return err
	}
	r.probed = p.saw
	if err := r.look(p); err != nil {
		p.close()
		return err
	}
	l.putProber(p)
	return nil
}

func (r *request) look(p *prober) error {
	if !r.a.Key.IsZero() && r.bound == nil {
		v, found, err := p.get(bindingKey(p.key[:0], r.a.Key))
		if err != nil {
			return err
		}
		if found {
			b, err := parseBinding(v)
			if err != nil {
				return err
			}
			r.bound = &b
			return nil // nothing else is looked at
		}
	}
	for i := range r.a.Drafts {
		v, found, err := p.get(idKey(p.key[:0], r.a.Drafts[i].Intent.ID))
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		position, err := parseIDValue(v)
		if err != nil {
			return err
		}
		if r.taken == nil {
			r.taken = make([]events.Position, len(r.a.Drafts))
		}
		r.taken[i] = position
	}
	return nil
}

// queue is the appends that wait for the committer.
type queue struct {
	mu      sync.Mutex
	waiting []*request    // guarded by mu
	closed  bool          // guarded by mu
	ready   chan struct{} // has one slot: something changed
}

// push adds requests, or reports that the queue is closed.
func (q *queue) push(r ...*request) bool {
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return false
	}
	first := len(q.waiting) == 0
	q.waiting = append(q.waiting, r...)
	q.mu.Unlock()
	if first {
		q.signal()
	}
	return true
}

func (q *queue) signal() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	q.signal()
}

// swap returns what waits, and lets empty be filled next. closed is true when
// nothing will come after it.
func (q *queue) swap(empty []*request) (waiting []*request, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	waiting, q.waiting = q.waiting, empty
	return waiting, q.closed
}
