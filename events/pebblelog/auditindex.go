package pebblelog

import (
	"errors"
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// MaxIndexProblems bounds Audit.Index.
const MaxIndexProblems = 100

// indexSums tells whether the indexes say what the headers say, without looking
// up any entry: each entry is hashed and added up, once as the headers would have
// it and once as it is stored. Only if the sums differ, entries are compared one
// by one. The hash is seeded anew each time, so nobody can prepare two sets of
// entries with one sum.
type indexSums struct {
	seed    maphash.Seed
	streams atomic.Uint64
	ids     atomic.Uint64
	keys    uint64
	tiles   uint64

	key  events.Hash // of the append that is being added
	bind binding
}

func newIndexSums() *indexSums { return &indexSums{seed: maphash.MakeSeed()} }

func (s *indexSums) hash(key, value []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(s.seed)
	h.Write(key)
	h.Write(value)
	return h.Sum64()
}

// add takes a header; it may be called concurrently, and in any order.
func (s *indexSums) add(rec *events.Record) {
	h := &rec.Header
	var buf [1 + events.MaxNameBytes + 1 + 8]byte
	var value [streamValueLen]byte
	putStreamValue(value[:], h.Position, rec.LeafHash)
	s.streams.Add(s.hash(streamKey(buf[:0], h.Stream, h.Revision), value[:]))
	putPosition(value[:], h.Position)
	s.ids.Add(s.hash(idKey(buf[:0], h.ID), value[:8]))
}

// addKey takes the header at the next position.
func (s *indexSums) addKey(h *events.Header) {
	if h.Key == s.key {
		s.bind.last = h.Position
		return
	}
	s.endAppend()
	s.key, s.bind = h.Key, binding{first: h.Position, last: h.Position, request: h.Request}
}

// addTile takes a tile that the headers so far have filled.
func (s *indexSums) addTile(t seal.Tile) {
	s.tiles += s.hash(tileKey(nil, t.Level, t.N), t.AppendTo(nil))
}

// endAppend adds the key that the last events were appended with. A key is
// bound once, so its events are neighbours.
func (s *indexSums) endAppend() {
	if s.key.IsZero() {
		return
	}
	var value [bindingValueLen]byte
	s.bind.put(value[:])
	s.keys += s.hash(bindingKey(nil, s.key), value[:])
	s.key = events.Hash{}
}

// checkIndexes compares the stored indexes, and the tiles of the tree, with the
// headers. lost says that some could not be read: then there is no tree.
func (a *auditor) checkIndexes(want *indexSums, lost bool) error {
	want.endAppend()
	agree := true
	for space, sum := range map[byte]uint64{streamSpace: want.streams.Load(), idSpace: want.ids.Load(), keySpace: want.keys} {
		var got uint64
		err := a.eachEntry(space, func(key, value []byte) error {
			got += want.hash(key, value)
			return nil
		})
		agree = agree && err == nil && got == sum
	}
	if !lost {
		var got, stored uint64
		err := a.eachEntry(tileSpace, func(key, value []byte) error {
			got += want.hash(key, value)
			stored++
			return nil
		})
		// A log that no start has given tiles yet has none.
		if err != nil || stored > 0 && got != want.tiles {
			if err := a.checkTiles(); err != nil {
				return err
			}
		}
	}
	if agree {
		return nil
	}
	if err := a.checkEntries(); err != nil {
		return err
	}
	return a.checkHeaders()
}

// eachEntry calls f with every key and value of an index.
func (a *auditor) eachEntry(space byte, f func(key, value []byte) error) error {
	it, err := a.db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: spaceEnd(space)})
	if err != nil {
		return err
	}
	defer it.Close()
	for valid := it.First(); valid; valid = it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if err := f(it.Key(), v); err != nil {
			return err
		}
	}
	return it.Error()
}

var errEnough = errors.New("enough index problems were found")

// report adds an index problem.
func (a *auditor) report(p events.Position, format string, args ...any) error {
	if len(a.out.Index) == MaxIndexProblems {
		return errEnough
	}
	a.out.Index = append(a.out.Index, &events.CorruptError{Position: p, Detail: "index: " + fmt.Sprintf(format, args...)})
	return nil
}

// checkEntries compares every entry with the header that it points to.
func (a *auditor) checkEntries() error {
	r, err := newRecordReader(a.db, false)
	if err != nil {
		return err
	}
	defer r.close()
	check := func(p events.Position, what string, fits func(events.Record) bool) error {
		if rec, err := r.read(p); err != nil || !fits(rec) {
			return a.report(p, "%s points here, wrongly", what)
		}
		return nil
	}
	for _, space := range []byte{streamSpace, idSpace, keySpace} {
		err := a.eachEntry(space, func(key, value []byte) error {
			switch space {
			case streamSpace:
				s, revision, err := parseStreamKey(key)
				p, leaf, err2 := parseStreamValue(value)
				if err := errors.Join(err, err2); err != nil {
					return a.report(p, "%v", err)
				}
				return check(p, fmt.Sprintf("revision %d of stream %s", revision, s), func(rec events.Record) bool {
					return rec.Header.Stream == s && rec.Header.Revision == revision && rec.LeafHash == leaf
				})
			case idSpace:
				p, err := parseIDValue(value)
				if err != nil {
					return a.report(p, "%v", err)
				}
				return check(p, fmt.Sprintf("event id %s", key[1:]), func(rec events.Record) bool { return rec.Header.ID == string(key[1:]) })
			default:
				b, err := parseBinding(value)
				if err != nil {
					return a.report(b.first, "%v", err)
				}
				fits := func(rec events.Record) bool {
					return string(rec.Header.Key[:]) == string(key[1:]) && rec.Header.Request == b.request
				}
				what := fmt.Sprintf("idempotency key %x", key[1:])
				return errors.Join(check(b.first, what, fits), check(b.last, what, fits))
			}
		})
		switch {
		case errors.Is(err, errEnough):
			return nil
		case err != nil:
			if a.report(0, "%c cannot be read to its end: %v", space, err) != nil {
				return nil
			}
		}
	}
	return nil
}

// checkHeaders looks up every header's entries.
func (a *auditor) checkHeaders() error {
	r, err := newRecordReader(a.db, false)
	if err != nil {
		return err
	}
	defer r.close()
	has := func(p events.Position, key []byte, what string) error {
		_, found, err := a.db.Get(key)
		if err == nil && !found {
			err = errMissing
		}
		if err != nil {
			return a.report(p, "%s: %v", what, err)
		}
		return nil
	}
	for p := events.Position(1); p <= events.Position(a.out.Size); p++ {
		rec, err := r.read(p)
		if err != nil {
			continue // reported with its position
		}
		h := &rec.Header
		err = errors.Join(
			has(p, streamKey(nil, h.Stream, h.Revision), fmt.Sprintf("revision %d of stream %s", h.Revision, h.Stream)),
			has(p, idKey(nil, h.ID), fmt.Sprintf("event id %s", h.ID)))
		if !h.Key.IsZero() {
			err = errors.Join(err, has(p, bindingKey(nil, h.Key), fmt.Sprintf("idempotency key %s", h.Key)))
		}
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}
