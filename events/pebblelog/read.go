package pebblelog

import (
	"context"
	"errors"
	"fmt"
	"iter"

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
	durable := l.Durable()
	return func(yield func(events.Record, error) bool) {
		next := after + 1
		l.read(ctx, yield, func(limit int, portion []events.Record) ([]events.Record, bool, error) {
			portion, err := l.readPositions(next, durable, limit, portion)
			next += events.Position(len(portion))
			return portion, len(portion) == 0 || next > durable, err
		})
	}
}

// ReadStream implements events.Log.
func (l *Log) ReadStream(ctx context.Context, s events.Stream, after events.Revision) iter.Seq2[events.Record, error] {
	durable := l.Durable()
	return func(yield func(events.Record, error) bool) {
		next := after + 1
		l.read(ctx, yield, func(limit int, portion []events.Record) ([]events.Record, bool, error) {
			portion, end, err := l.readRevisions(s, next, durable, limit, portion)
			next += events.Revision(len(portion))
			return portion, end, err
		})
	}
}

// read yields portion after portion. more appends at most limit records to the
// empty portion it is given, and says whether they are the last.
func (l *Log) read(ctx context.Context, yield func(events.Record, error) bool,
	more func(limit int, portion []events.Record) ([]events.Record, bool, error)) {
	var portion []events.Record
	for limit := firstPortion; ; limit = min(4*limit, fullPortion) {
		var end bool
		err := ctx.Err()
		if err == nil {
			clear(portion)
			portion, end, err = more(limit, portion[:0])
		}
		for _, rec := range portion {
			if err := ctx.Err(); err != nil {
				yield(events.Record{}, err)
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
		if err != nil {
			yield(events.Record{}, err)
			return
		}
		if end {
			return
		}
	}
}

// readPositions appends the records from position next on, up to durable or the
// limits of a portion.
func (l *Log) readPositions(next, durable events.Position, limit int, out []events.Record) ([]events.Record, error) {
	done, err := l.use()
	if err != nil {
		return out, err
	}
	defer done()
	if next > durable || next == 0 {
		return out, nil
	}
	r, err := newRecordReader(l.db, true)
	if err != nil {
		return out, err
	}
	defer r.close()
	for bytes := 0; next <= durable && len(out) < limit && bytes < maxPortionBytes; next++ {
		rec, err := r.read(next)
		if err != nil {
			return out, err
		}
		out = append(out, rec)
		bytes += len(rec.Leaf) + len(rec.Payload)
	}
	return out, nil
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
// commitment: that is Record.Verify.
func (r *recordReader) read(p events.Position) (events.Record, error) {
	var rec events.Record
	v, err := at(r.headers, headerKey(r.key[:0], p))
	if err != nil {
		return rec, &events.CorruptError{Position: p, Detail: "header: " + err.Error()}
	}
	rec.Leaf = append([]byte(nil), v...)
	if rec.Header, err = events.ParseHeader(rec.Leaf); err != nil {
		return rec, &events.CorruptError{Position: p, Detail: err.Error()}
	}
	if rec.Header.Position != p {
		return rec, &events.CorruptError{Position: p, Detail: fmt.Sprintf("the header is that of position %d", rec.Header.Position)}
	}
	rec.LeafHash = events.LeafHash(rec.Leaf)
	if r.payloads == nil {
		return rec, nil
	}
	v, err = at(r.payloads, payloadKey(r.key[:0], p))
	switch {
	case err != nil:
		return rec, &events.CorruptError{Position: p, Detail: "payload: " + err.Error()}
	case len(v) == 0:
		rec.Erased = true
	case len(v) < events.SaltBytes:
		return rec, &events.CorruptError{Position: p, Detail: fmt.Sprintf("payload: %d bytes are too few for its salt", len(v))}
	default:
		rec.Salt = [events.SaltBytes]byte(v)
		rec.Payload = append([]byte{}, v[events.SaltBytes:]...)
	}
	return rec, nil
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
