package pebblelog

import (
	"slices"
	"sync"

	"fleetledger/events"
)

// maxTailBytes bounds what is kept of the newest records, about.
const maxTailBytes = 8 << 20

// tail is the newest records, as they were appended. Most readers follow the log
// closely: views, snapshots, event streams, whoever waits for an offer. They would
// each look up, parse and hash what was at hand a moment ago.
type tail struct {
	limit  int // in bytes
	mu     sync.RWMutex
	chunks []tailChunk // guarded by mu; one for each append, their records follow one another
	bytes  int         // guarded by mu; of all chunks
}

// tailChunk is the records of an append. They are shared with readers: nobody
// changes them.
type tailChunk struct {
	recs  []events.Record
	bytes int
}

func (c tailChunk) first() events.Position { return c.recs[0].Header.Position }

// add takes the records that follow the newest.
func (t *tail) add(recs []events.Record, bytes int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.chunks = append(t.chunks, tailChunk{recs, bytes})
	t.bytes += bytes
	drop := 0
	for ; t.bytes > t.limit; drop++ {
		t.bytes -= t.chunks[drop].bytes
	}
	clear(t.chunks[:drop])
	t.chunks = t.chunks[drop:]
}

// find is the chunk that has p; ok is false if there is none.
func (t *tail) find(p events.Position) (i int, ok bool) {
	i, exact := slices.BinarySearchFunc(t.chunks, p, func(c tailChunk, p events.Position) int {
		if c.first() <= p {
			return -1
		}
		return 1
	})
	if exact || i == 0 {
		return 0, false
	}
	i--
	return i, p < t.chunks[i].first()+events.Position(len(t.chunks[i].recs))
}

// erase forgets the payload of p. Whoever has read it keeps it.
func (t *tail) erase(p events.Position) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i, ok := t.find(p)
	if !ok {
		return
	}
	recs := slices.Clone(t.chunks[i].recs)
	old := &recs[p-t.chunks[i].first()]
	*old = events.Record{Header: old.Header, Leaf: old.Leaf, LeafHash: old.LeafHash, Erased: true}
	t.chunks[i].recs = recs
}

// read appends the records from position next on, up to last or limit of them, as
// far as they are kept. It appends none if that of next is not.
func (t *tail) read(next, last events.Position, limit int, out []events.Record) []events.Record {
	t.mu.RLock()
	defer t.mu.RUnlock()
	i, ok := t.find(next)
	if !ok {
		return out
	}
	newest := t.chunks[len(t.chunks)-1]
	out = slices.Grow(out, min(limit, int(min(last, newest.first()+events.Position(len(newest.recs))-1)-next)+1))
	for _, c := range t.chunks[i:] {
		for _, rec := range c.recs[max(next, c.first())-c.first():] {
			if rec.Header.Position > last || len(out) == limit {
				return out
			}
			out = append(out, rec)
		}
	}
	return out
}
