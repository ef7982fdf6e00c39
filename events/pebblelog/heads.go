package pebblelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
)

const (
	// headsPortion is how many heads are read while something of Pebble is held.
	headsPortion = 1024
	// stepsToHead is how many entries of a stream are walked through before its end
	// is sought: most streams have fewer.
	stepsToHead = 16
)

// Heads implements events.Log. It walks through the index of streams: one short
// walk or a few seeks for each stream.
func (l *Log) Heads(ctx context.Context, after events.Stream, at events.Position) iter.Seq2[events.StreamHead, error] {
	durable := l.Durable()
	return func(yield func(events.StreamHead, error) bool) {
		if at > durable {
			yield(events.StreamHead{}, fmt.Errorf("position %d is past the end of the log, %d", at, durable))
			return
		}
		portion := make([]events.StreamHead, 0, headsPortion)
		for {
			var end bool
			err := ctx.Err()
			if err == nil {
				portion, end, err = l.readHeads(after, at, portion[:0])
			}
			for _, h := range portion {
				if !yield(h, nil) {
					return
				}
			}
			if err != nil {
				yield(events.StreamHead{}, err)
				return
			}
			if end {
				return
			}
			after = portion[len(portion)-1].Stream
		}
	}
}

// readHeads appends a portion of heads, and says whether they are the last.
func (l *Log) readHeads(after events.Stream, at events.Position, out []events.StreamHead) (_ []events.StreamHead, end bool, err error) {
	done, err := l.use()
	if err != nil {
		return out, false, err
	}
	defer done()
	it, err := l.db.NewIter(&pebble.IterOptions{LowerBound: streamEnd(nil, after), UpperBound: spaceEnd(streamSpace)})
	if err != nil {
		return out, false, err
	}
	defer it.Close()
	w := headWalk{it: it, at: at}
	for w.valid = it.First(); w.valid; {
		if len(out) == headsPortion {
			return out, false, nil
		}
		h, err := w.next()
		if err != nil {
			return out, false, err
		}
		if h.Revision > 0 {
			out = append(out, h)
		}
	}
	return out, true, it.Error()
}

// headWalk stands on the first entry of a stream, or behind the last one.
type headWalk struct {
	it    *iterator
	at    events.Position
	valid bool
}

// next returns the newest event of the stream up to at, of revision 0 if there is
// none, and goes on to the next stream.
func (w *headWalk) next() (events.StreamHead, error) {
	stream, revision, err := parseStreamKey(w.it.Key())
	if err != nil {
		return events.StreamHead{}, err
	}
	head := events.StreamHead{Stream: stream}
	prefix := streamKey(nil, stream, 0)[:1+len(stream)+1]
	for range stepsToHead {
		before, err := w.take(&head, revision)
		if err != nil {
			return head, err
		}
		if !before {
			w.valid = w.it.SeekGE(streamEnd(nil, stream))
			return head, nil
		}
		revision++
		if w.valid = w.it.Next(); !w.valid || !bytes.HasPrefix(w.it.Key(), prefix) {
			return head, w.it.Error()
		}
	}
	// A long one: the end, or by halves the last that lies at or before at.
	if !w.it.SeekLT(streamEnd(nil, stream)) {
		return head, errors.Join(w.it.Error(), fmt.Errorf("the end of stream %s is not there", stream))
	}
	_, last, err := parseStreamKey(w.it.Key())
	if err != nil {
		return head, err
	}
	before, err := w.take(&head, last)
	for low, high := head.Revision, last; err == nil && !before && high-low > 1; {
		middle := low + (high-low)/2
		if !w.it.SeekGE(streamKey(nil, stream, middle)) {
			return head, errors.Join(w.it.Error(), fmt.Errorf("revision %d of stream %s is not there", middle, stream))
		}
		var early bool
		if early, err = w.take(&head, middle); early {
			low = middle
		} else {
			high = middle
		}
	}
	if err != nil {
		return head, err
	}
	w.valid = w.it.SeekGE(streamEnd(nil, stream))
	return head, w.it.Error()
}

// take makes the entry that the walk stands on the head, if it lies at or before
// at, and says whether it does. It is that of a revision.
func (w *headWalk) take(head *events.StreamHead, revision events.Revision) (bool, error) {
	stream, is, err := parseStreamKey(w.it.Key())
	if err != nil {
		return false, err
	}
	v, err := w.it.ValueAndErr()
	if err != nil {
		return false, err
	}
	position, leaf, err := parseStreamValue(v)
	if err != nil {
		return false, err
	}
	if stream != head.Stream || is != revision {
		return false, &events.CorruptError{Position: position, Detail: fmt.Sprintf(
			"the index has revision %d of stream %s where revision %d of %s is due", is, stream, revision, head.Stream)}
	}
	if position > w.at {
		return false, nil
	}
	head.Revision, head.LeafHash = revision, leaf
	return true, nil
}
