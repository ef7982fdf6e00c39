package pebblelog

import (
	"crypto/sha256"
	"fmt"
	"runtime"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// A group holds at most this much, unless one append alone is more.
const (
	maxGroupEvents = 1000
	maxGroupBytes  = 4 << 20
)

// group is what goes to the disk together.
type group struct {
	// requests are all that were taken, in the order they were decided.
	requests []*request
	wrote    []*request // those that stood
	batch    *pebble.Batch
	tiles    []seal.Tile // those that it fills
	// The log after this group.
	last events.Position
	tree seal.View
}

// reset makes g fit to be filled again.
func (g *group) reset() {
	clear(g.requests)
	clear(g.wrote)
	clear(g.tiles)
	g.requests, g.wrote, g.tiles = g.requests[:0], g.wrote[:0], g.tiles[:0]
	g.batch.Reset()
}

// commit is the committer: it alone decides what is in the log, and where.
func (l *Log) commit() {
	defer close(l.toSync)
	var backlog []*request // taken from the queue, not yet in a group
	for {
		var g *group
		select {
		case g = <-l.free:
		case <-l.failed:
			return
		}
		var open bool
		if backlog, open = l.fill(g, backlog); !open {
			return
		}
		relyFirst(g.requests)
		l.decide(g)
		if len(g.wrote) > 0 {
			l.write(g)
			l.space.wrote(g.batch.Len())
			err := l.logger.protect(func() error { return l.db.ApplyNoSyncWait(g.batch, pebble.Sync) })
			if err != nil {
				l.fail(fmt.Errorf("write to Pebble: %w", err))
				return
			}
			l.staged.group++
			l.applied.Store(l.staged.group)
			l.written.Store(uint64(g.last))
		}
		l.toSync <- g // never blocks: there are no more groups than it has slots
	}
}

// fill moves waiting requests into g, and waits for one if there is none. It
// returns what is left over, and false when the log is closed and nothing is
// left.
func (l *Log) fill(g *group, backlog []*request) (rest []*request, open bool) {
	n, bytes := 0, 0
	for {
		for i, r := range backlog {
			if n > 0 && (n+len(r.recs) > maxGroupEvents || bytes+r.bytes > maxGroupBytes) {
				return backlog[i:], true
			}
			if r.state.CompareAndSwap(waiting, underWay) {
				g.requests = append(g.requests, r)
				n += len(r.recs)
				bytes += r.bytes
			}
		}
		clear(backlog)
		// Callers who can run now, run first: most were answered a moment ago and
		// are about to append again. It costs a lone caller nothing and makes
		// groups as large as a timer would.
		runtime.Gosched()
		var closed bool
		backlog, closed = l.queue.swap(backlog[:0])
		switch {
		case len(backlog) > 0:
		case n > 0:
			return nil, true
		case closed:
			return nil, false
		default:
			l.dropProbers()
			select {
			case <-l.queue.ready:
			case <-l.failed:
				return nil, false
			}
		}
	}
}

// relyFirst moves appends that write a stream behind those of the group that only
// rely on its revision, as far as that goes: otherwise each change of authority
// would refuse every decision beside it. Nothing in a group was answered yet, so
// any order is as good as the one they came in.
func relyFirst(requests []*request) {
	var relied map[events.Stream]int // how many requests to come rely on it
	for _, r := range requests {
		r.eachRelied(func(s events.Stream) {
			if relied == nil {
				relied = make(map[events.Stream]int)
			}
			relied[s]++
		})
	}
	if len(relied) == 0 {
		return
	}
	for i, placed := 0, 0; i < len(requests); i++ {
		r := requests[i]
		if r.writesAny(relied) {
			continue
		}
		freed := false
		r.eachRelied(func(s events.Stream) {
			if relied[s]--; relied[s] == 0 {
				delete(relied, s)
				freed = true
			}
		})
		copy(requests[placed+1:i+1], requests[placed:i])
		requests[placed] = r
		placed++
		if freed {
			i = placed - 1 // some that were passed over may go now, in their order
		}
	}
	// What is left relies on one another in a circle; it keeps its order.
}

// eachRelied calls f with every stream that r expects a revision of and does
// not write.
func (r *request) eachRelied(f func(events.Stream)) {
	for _, e := range r.a.Expect {
		if !r.writes(e.Stream) {
			f(e.Stream)
		}
	}
}

func (r *request) writes(s events.Stream) bool {
	for i := range r.a.Drafts {
		if r.a.Drafts[i].Intent.Stream == s {
			return true
		}
	}
	return false
}

func (r *request) writesAny(streams map[events.Stream]int) bool {
	for i := range r.a.Drafts {
		if streams[r.a.Drafts[i].Intent.Stream] > 0 {
			return true
		}
	}
	return false
}

// turn is what deciding one group needs.
type turn struct {
	l    *Log
	fill func(seal.Tile) // takes a tile that the group fills
	now  time.Time       // the ledger's time, one for the group
	low  bool            // the disk is nearly full
	look *prober         // made when first needed; sees all earlier groups
	undo []undoHead
}

// undoHead is what a stream's head was before a request.
type undoHead struct {
	stream events.Stream
	was    head
}

// decide checks every request of g against all before it and places those that
// stand.
func (l *Log) decide(g *group) {
	st := &l.staged
	st.heads.turn(st.group)
	st.ids.turn(st.group)
	st.keys.turn(st.group)

	fill := func(tile seal.Tile) { g.tiles = append(g.tiles, tile) }
	t := turn{l: l, fill: fill, now: l.clock.Now(), low: l.space.isLow(time.Now())}
	defer t.close()
	for _, r := range g.requests {
		if r.err = t.decide(r); r.err == nil && !r.out.Duplicate {
			g.wrote = append(g.wrote, r)
		}
	}
	if len(g.wrote) > 0 {
		st.view = st.tree.View()
	}
	g.last, g.tree = st.last, st.view
}

func (t *turn) close() {
	if t.look != nil {
		t.look.close()
	}
}

// prober sees everything up to the group before this one.
func (t *turn) prober() (*prober, error) {
	var err error
	if t.look == nil {
		t.look, err = t.l.newProber()
	}
	return t.look, err
}

// decide stages r, or says why it does not stand. The order of checks is the
// contract of events.Log. An error of Pebble's is r's alone: others may not meet
// what cannot be read.
func (t *turn) decide(r *request) error {
	if r.placed {
		return t.follow(r)
	}
	st := &t.l.staged
	if r.probed < max(st.ids.floor, st.keys.floor) {
		// So much was written since the caller looked that it is not all
		// remembered.
		p, err := t.prober()
		if err != nil {
			return err
		}
		if err := r.look(p); err != nil {
			return err
		}
	}
	if answered, err := t.checkNames(r); answered {
		return err
	}
	for _, e := range r.a.Expect {
		h, err := t.head(e.Stream)
		if err != nil {
			return err
		}
		if h.revision != e.Revision {
			return &events.ConflictError{Stream: e.Stream, Expected: e.Revision, Actual: h.revision}
		}
	}
	if !r.a.Before.IsZero() && !t.now.Before(r.a.Before) {
		return events.ErrTooLate
	}
	if t.low {
		return fmt.Errorf("%w: %s needs %d MiB free", events.ErrNoSpace, t.l.dir, t.l.opts.MinFreeBytes>>20)
	}
	return t.place(r)
}

// checkNames answers r if its key or one of its ids was used before.
func (t *turn) checkNames(r *request) (answered bool, err error) {
	st := &t.l.staged
	if !r.a.Key.IsZero() {
		if r.bound == nil {
			if b, ok := st.keys.get(r.a.Key); ok {
				r.bound = &b
			}
		}
		switch b := r.bound; {
		case b == nil:
		case b.request != r.a.Request:
			return true, &events.KeyMismatchError{First: b.first}
		default:
			r.out = events.Appended{First: b.first, Last: b.last, Duplicate: true}
			return true, nil
		}
	}
	for i := range r.a.Drafts {
		id := r.a.Drafts[i].Intent.ID
		var position events.Position
		if r.taken != nil {
			position = r.taken[i]
		}
		if position == 0 {
			position, _ = st.ids.get(id)
		}
		if position != 0 {
			return true, &events.DuplicateIDError{ID: id, Position: position}
		}
	}
	return false, nil
}

// place completes r's records, has the fold stage them, and makes them part of
// what is staged.
func (t *turn) place(r *request) error {
	st := &t.l.staged
	t.undo = t.undo[:0]
	place := events.Place{Version: events.FormatVersion, Fleet: t.l.opts.Fleet, Position: st.last, Time: t.now}
	for i := range r.recs {
		rec := &r.recs[i]
		stream := rec.Header.Stream
		h, err := t.head(stream)
		if err != nil {
			t.takeBack()
			return err
		}
		t.undo = append(t.undo, undoHead{stream, h})
		place.Position++
		place.Revision = h.revision + 1
		place.Prev = h.leaf
		rec.Header.Place = place
		summed := place.AppendTo(rec.Leaf) // begins with the zero byte of a leaf hash
		rec.LeafHash = sha256.Sum256(summed)
		rec.Leaf = summed[1:]
		st.heads.put(stream, head{revision: place.Revision, leaf: rec.LeafHash})
	}
	if fold := t.l.opts.Fold; fold != nil {
		var err error
		t.l.folding.Lock()
		r.publish, err = fold.Stage(r.recs)
		t.l.folding.Unlock()
		if err != nil {
			t.takeBack()
			return err
		}
	}

	first := st.last + 1
	st.last = place.Position
	for i := range r.recs {
		st.tree.Append(r.recs[i].LeafHash, t.fill)
		st.ids.put(r.recs[i].Header.ID, r.recs[i].Header.Position)
	}
	if !r.a.Key.IsZero() {
		st.keys.put(r.a.Key, binding{first: first, last: st.last, request: r.a.Request})
	}
	r.out = events.Appended{First: first, Last: st.last, Records: r.recs}
	return nil
}

// takeBack gives every stream the head it had before the request.
func (t *turn) takeBack() {
	heads := &t.l.staged.heads
	for i := len(t.undo) - 1; i >= 0; i-- {
		heads.put(t.undo[i].stream, t.undo[i].was)
	}
}

// head is the newest event of s among everything accepted; revision 0 if there
// is none.
func (t *turn) head(s events.Stream) (head, error) {
	heads := &t.l.staged.heads
	if h, ok := heads.get(s); ok {
		return h, nil
	}
	p, err := t.prober()
	if err != nil {
		return head{}, err
	}
	h, err := p.head(s)
	if err != nil {
		return head{}, fmt.Errorf("look up the head of stream %s: %w", s, err)
	}
	heads.put(s, h)
	return h, nil
}

// write puts what stood into the group's batch. Keys of one kind come together
// and mostly in order, which Pebble's memtable takes fastest.
func (l *Log) write(g *group) {
	b := g.batch
	for _, r := range g.wrote {
		for i := range r.recs {
			op := b.SetDeferred(positionKeyLen, len(r.recs[i].Leaf))
			headerKey(op.Key[:0], r.recs[i].Header.Position)
			copy(op.Value, r.recs[i].Leaf)
			_ = op.Finish() // cannot fail: the batch has no index
		}
	}
	for _, r := range g.wrote {
		for i := range r.recs {
			rec := &r.recs[i]
			if rec.Erased { // in a replica; an empty value says so
				_ = b.Set(payloadKey(nil, rec.Header.Position), nil, nil)
				continue
			}
			op := b.SetDeferred(positionKeyLen, events.SaltBytes+len(rec.Payload))
			payloadKey(op.Key[:0], rec.Header.Position)
			copy(op.Value, rec.Salt[:])
			copy(op.Value[events.SaltBytes:], rec.Payload)
			_ = op.Finish()
		}
	}
	for _, r := range g.wrote {
		for i := range r.recs {
			h := &r.recs[i].Header
			op := b.SetDeferred(streamKeyLen(h.Stream), streamValueLen)
			streamKey(op.Key[:0], h.Stream, h.Revision)
			putStreamValue(op.Value, h.Position, r.recs[i].LeafHash)
			_ = op.Finish()
		}
	}
	for _, r := range g.wrote {
		for i := range r.recs {
			h := &r.recs[i].Header
			op := b.SetDeferred(1+len(h.ID), 8)
			idKey(op.Key[:0], h.ID)
			putPosition(op.Value, h.Position)
			_ = op.Finish()
		}
	}
	for _, r := range g.wrote {
		if r.a.Key.IsZero() {
			continue
		}
		op := b.SetDeferred(1+len(r.a.Key), bindingValueLen)
		bindingKey(op.Key[:0], r.a.Key)
		binding{first: r.out.First, last: r.out.Last, request: r.a.Request}.put(op.Value)
		_ = op.Finish()
	}
	// In the same batch as the event that tells of it: split, a crash in between
	// would leave one without the other.
	for _, r := range g.wrote {
		for _, p := range r.a.Erase {
			op := b.SetDeferred(positionKeyLen, 0)
			payloadKey(op.Key[:0], p)
			_ = op.Finish()
			op = b.SetDeferred(positionKeyLen, 0)
			erasedKey(op.Key[:0], p)
			_ = op.Finish()
		}
	}
	// In the same batch as the leaves that fill them: split, a crash in between
	// would leave a tree that lags behind its log.
	for _, t := range g.tiles {
		op := b.SetDeferred(tileKeyLen, seal.TileBytes)
		tileKey(op.Key[:0], t.Level, t.N)
		t.AppendTo(op.Value[:0])
		_ = op.Finish()
	}
}
