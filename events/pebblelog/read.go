package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
)

// Readers take the log in portions and hold nothing of Pebble in between: a slow
// one keeps no files from being removed and Close from no work.
const (
	firstPortion    = 16
	fullPortion     = 512
	maxPortionBytes = 1 << 20
)

// ReadAll implements events.Log.
func (l *Log) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Record, error] {
	return readPositions(ctx, l, after, l.tail.read, func(r *recordReader, p events.Position) (events.Record, int, error) {
		rec, err := r.read(p)
		return rec, len(rec.Leaf) + len(rec.Payload), err
	})
}

// ReadStored implements events.StoredReader.
func (l *Log) ReadStored(ctx context.Context, after events.Position) iter.Seq2[events.Stored, error] {
	return readPositions(ctx, l, after, nil, func(r *recordReader, p events.Position) (s events.Stored, size int, err error) {
		s, r.buf, err = r.stored(p, r.buf)
		return s, len(s.Leaf) + len(s.Payload), err
	})
}

// ReadStream implements events.Log.
func (l *Log) ReadStream(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Record, error] {
	durable := l.Durable()
	return func(yield func(events.Record, error) bool) {
		next := after + 1
		readPortions(ctx, yield, func(limit int, portion []events.Record) ([]events.Record, bool, error) {
			portion, end, err := l.readRevisions(s, next, durable, limit, portion)
			next += events.Revision(len(portion))
			return portion, end, err
		})
	}
}

// readPortions yields portion after portion. more appends at most limit values to the
// empty portion it is given, and says whether they are the last.
func readPortions[T any](ctx context.Context, yield func(T, error) bool, more func(limit int, portion []T) ([]T, bool, error)) {
	var (
		portion []T
		none    T
	)
	for limit := firstPortion; ; limit = min(4*limit, fullPortion) {
		var end bool
		err := ctx.Err()
		if err == nil {
			clear(portion)
			portion, end, err = more(limit, portion[:0])
		}
		for _, v := range portion {
			if err := ctx.Err(); err != nil {
				yield(none, err)
				return
			}
			if !yield(v, nil) {
				return
			}
		}
		if err != nil {
			yield(none, err)
			return
		}
		if end {
			return
		}
	}
}

// readPositions yields what read makes of each position after one, as far as they
// are durable now. read returns the number of bytes too. atHand, unless nil, is asked
// first, for those from next to last: it appends as many as it has in memory.
func readPositions[T any](ctx context.Context, l *Log, after events.Position,
	atHand func(next, last events.Position, limit int, portion []T) []T,
	read func(*recordReader, events.Position) (T, int, error)) iter.Seq2[T, error] {
	durable := l.Durable()
	return func(yield func(T, error) bool) {
		next := after + 1
		var buf []byte
		readPortions(ctx, yield, func(limit int, portion []T) ([]T, bool, error) {
			done, err := l.use()
			if err != nil {
				return portion, false, err
			}
			defer done()
			if next > durable || next == 0 {
				return portion, true, nil
			}
			if atHand != nil {
				if portion = atHand(next, durable, limit, portion); len(portion) > 0 {
					next += events.Position(len(portion))
					return portion, next > durable, nil
				}
			}
			r, err := newRecordReader(l.db, true)
			if err != nil {
				return portion, false, err
			}
			defer r.close()
			r.buf = buf[:0]
			defer func() { buf = r.buf }()
			for bytes := 0; next <= durable && len(portion) < limit && bytes < maxPortionBytes; next++ {
				v, size, err := read(r, next)
				if err != nil {
					return portion, false, err
				}
				portion = append(portion, v)
				bytes += size
			}
			return portion, next > durable, nil
		})
	}
}

// readRevisions appends the records of s from revision next on, and says whether
// nothing durable comes after them.
func (l *Log) readRevisions(s events.Stream, next events.Revision, durable events.Position, limit int, out []events.Record) (_ []events.Record, end bool, err error) {
	done, err := l.use()
	if err != nil {
		return out, false, err
	}
	defer done()
	if next == 0 {
		return out, true, nil // it was after the last there can be
	}
	index, err := l.db.NewIter(&pebble.IterOptions{LowerBound: streamKey(nil, s, next), UpperBound: streamEnd(nil, s)})
	if err != nil {
		return out, false, err
	}
	defer index.Close()
	r, err := newRecordReader(l.db, true)
	if err != nil {
		return out, false, err
	}
	defer r.close()
	valid := index.First()
	for bytes := 0; valid; valid = index.Next() {
		if len(out) == limit || bytes >= maxPortionBytes {
			return out, false, nil
		}
		_, revision, err := parseStreamKey(index.Key())
		if err != nil {
			return out, false, err
		}
		v, err := index.ValueAndErr()
		if err != nil {
			return out, false, err
		}
		position, leaf, err := parseStreamValue(v)
		if err != nil {
			return out, false, err
		}
		if position > durable {
			return out, true, nil
		}
		rec, err := r.read(position)
		if err != nil {
			return out, false, err
		}
		if revision != next || rec.Header.Stream != s || rec.Header.Revision != revision || rec.LeafHash != leaf {
			return out, false, &events.CorruptError{Position: position, Detail: fmt.Sprintf(
				"is revision %d of %s, the index has it as revision %d of %s where %d is due", rec.Header.Revision, rec.Header.Stream, revision, s, next)}
		}
		out = append(out, rec)
		bytes += len(rec.Leaf) + len(rec.Payload)
		next++
	}
	return out, true, index.Error()
}

// recordReader reads records by position, best in ascending order.
type recordReader struct {
	headers  *iterator
	payloads *iterator // nil when nobody asks for payloads
	key      [positionKeyLen]byte
	buf      []byte // for the bytes of a portion of events
}

func newRecordReader(db *database, payloads bool) (*recordReader, error) {
	headers, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{headerSpace}, UpperBound: spaceEnd(headerSpace)})
	if err != nil {
		return nil, err
	}
	r := &recordReader{headers: headers}
	if payloads {
		r.payloads, err = db.NewIter(&pebble.IterOptions{LowerBound: []byte{payloadSpace}, UpperBound: spaceEnd(payloadSpace)})
		if err != nil {
			return nil, errors.Join(err, headers.Close())
		}
	}
	return r, nil
}

func (r *recordReader) close() {
	_ = r.headers.Close() // their errors were returned before
	if r.payloads != nil {
		_ = r.payloads.Close()
	}
}

// read returns the record at p. Every way in which it is not what was written
// is an *events.CorruptError, but that the payload is not checked against its
// commitment: that is Record.Verify. What could be read is returned with an error.
func (r *recordReader) read(p events.Position) (events.Record, error) {
	s, _, wrong := r.stored(p, nil)
	if s.Leaf == nil {
		return events.Record{}, wrong
	}
	rec, err := s.Record()
	if err != nil {
		return events.Record{Leaf: s.Leaf}, err
	}
	return rec, wrong
}

// stored returns the event at p as it is kept, its bytes at the end of buf, which it
// returns too. If only the payload cannot be read, the leaf is returned with the error.
func (r *recordReader) stored(p events.Position, buf []byte) (events.Stored, []byte, error) {
	s, err := r.view(p)
	buf = slices.Grow(buf, len(s.Leaf)+len(s.Payload))
	from := len(buf)
	buf = append(append(buf, s.Leaf...), s.Payload...)
	middle, end := from+len(s.Leaf), len(buf)
	if s.Leaf != nil {
		s.Leaf = buf[from:middle:middle]
	}
	if s.Payload != nil {
		s.Payload = buf[middle:end:end]
	}
	return s, buf, err
}

// view is stored without a copy: the bytes are the database's, until r moves.
func (r *recordReader) view(p events.Position) (events.Stored, error) {
	s := events.Stored{Position: p}
	var err error
	if s.Leaf, err = at(r.headers, headerKey(r.key[:0], p)); err != nil {
		return s, &events.CorruptError{Position: p, Detail: "header: " + said(err)}
	}
	if r.payloads == nil {
		return s, nil
	}
	payload, err := at(r.payloads, payloadKey(r.key[:0], p))
	switch {
	case err != nil:
		return s, &events.CorruptError{Position: p, Detail: "payload: " + said(err)}
	case len(payload) == 0:
		s.Erased = true
	case len(payload) < events.SaltBytes:
		return s, &events.CorruptError{Position: p, Detail: fmt.Sprintf("payload: %d bytes are too few for its salt", len(payload))}
	default:
		s.Salt, s.Payload = [events.SaltBytes]byte(payload), payload[events.SaltBytes:]
	}
	return s, nil
}

// from yields the events from position p on, in order, up to the first that cannot be
// read. The bytes of one are the database's, until the next is asked for.
func (r *recordReader) from(p events.Position) iter.Seq2[events.Stored, error] {
	return func(yield func(events.Stored, error) bool) {
		for valid := r.headers.SeekGE(headerKey(nil, p)); valid; valid = r.headers.Next() {
			s, err := r.view(p)
			if !yield(s, err) || err != nil {
				return
			}
			p++
		}
		if err := r.headers.Error(); err != nil {
			yield(events.Stored{}, err)
		}
	}
}

var errMissing = errors.New("missing")

// at returns the value of exactly this key, errMissing if there is none. It is
// valid until it moves.
func at(it *iterator, key []byte) ([]byte, error) {
	is := func() bool { return it.Valid() && string(it.Key()) == string(key) }
	// Most readers go on from where they are.
	if !is() && (!it.Valid() || !it.Next() || !is()) && !it.SeekGE(key) {
		if err := it.Error(); err != nil {
			return nil, err
		}
		return nil, errMissing
	}
	if !is() {
		return nil, errMissing
	}
	return it.ValueAndErr()
}

// FindID implements events.Log.
func (l *Log) FindID(ctx context.Context, id string) (events.Position, error) {
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	durable := l.Durable()
	v, found, err := l.get(idKey(nil, id))
	if err != nil || !found {
		return 0, err
	}
	p, err := parseIDValue(v)
	if err != nil || p > durable {
		return 0, err
	}
	return p, nil
}

// FindKey implements events.Log.
func (l *Log) FindKey(ctx context.Context, key events.Hash) (events.Appended, events.Hash, error) {
	if err := ctx.Err(); err != nil {
		return events.Appended{}, events.Hash{}, err
	}
	durable := l.Durable()
	v, found, err := l.get(bindingKey(nil, key))
	if err != nil || !found {
		return events.Appended{}, events.Hash{}, err
	}
	b, err := parseBinding(v)
	if err != nil || b.last > durable {
		return events.Appended{}, events.Hash{}, err
	}
	return events.Appended{First: b.first, Last: b.last, Duplicate: true}, b.request, nil
}

// get returns a copy of the value of this key.
func (l *Log) get(key []byte) ([]byte, bool, error) {
	done, err := l.use()
	if err != nil {
		return nil, false, err
	}
	defer done()
	p, err := l.newProber()
	if err != nil {
		return nil, false, err
	}
	defer p.close()
	v, found, err := p.get(key)
	if err != nil || !found {
		return nil, false, err
	}
	return append([]byte(nil), v...), true, nil
}
