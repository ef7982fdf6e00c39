package pebblelog

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
)

// prober asks Pebble whether keys exist, at the price of a look into the bloom
// filters if they do not. It sees the database as it was when it was made.
type prober struct {
	iter *iterator
	saw  uint64                                // at least this many groups
	key  [1 + events.MaxNameBytes + 1 + 8]byte // to build keys in
}

func (l *Log) newProber() (*prober, error) {
	saw := l.applied.Load()
	iter, err := l.db.NewIter(&pebble.IterOptions{UseL6Filters: true})
	if err != nil {
		return nil, err
	}
	return &prober{iter: iter, saw: saw}, nil
}

// Making a prober costs as much as using it, so callers share a few. One that
// has missed this many groups is not used again: the committer remembers what
// came since, but not for ever.
const (
	probersKept   = 16
	maxProberMiss = 16
)

// takeProber returns a prober that is nearly up to date. The caller is between
// use and done.
func (l *Log) takeProber() (*prober, error) {
	for {
		select {
		case p := <-l.probers:
			if l.applied.Load()-p.saw <= maxProberMiss {
				return p, nil
			}
			p.close()
		default:
			return l.newProber()
		}
	}
}

// putProber keeps p for the next caller.
func (l *Log) putProber(p *prober) {
	select {
	case l.probers <- p:
	default:
		p.close()
	}
}

// dropProbers lets go of what idle probers keep Pebble from removing.
func (l *Log) dropProbers() {
	for {
		select {
		case p := <-l.probers:
			p.close()
		default:
			return
		}
	}
}

// get returns the value of exactly this key; it is valid until the next call.
func (p *prober) get(key []byte) ([]byte, bool, error) {
	if !p.iter.SeekPrefixGE(key) {
		return nil, false, p.iter.Error()
	}
	v, err := p.iter.ValueAndErr()
	return v, err == nil, err
}

// head looks up the newest event of s.
func (p *prober) head(s events.Stream) (head, error) {
	// Most streams that are asked for are new: the bloom filters know.
	if _, found, err := p.get(streamKey(p.key[:0], s, 1)); err != nil || !found {
		return head{}, err
	}
	if !p.iter.SeekLT(streamEnd(p.key[:0], s)) {
		return head{}, cmp.Or(p.iter.Error(), errors.New("its first event is there, its last is not"))
	}
	name, revision, err := parseStreamKey(p.iter.Key())
	if err != nil {
		return head{}, err
	}
	if name != s {
		return head{}, fmt.Errorf("its last entry is that of stream %s", name)
	}
	v, err := p.iter.ValueAndErr()
	if err != nil {
		return head{}, err
	}
	_, leaf, err := parseStreamValue(v)
	return head{revision: revision, leaf: leaf}, err
}

func (p *prober) close() { _ = p.iter.Close() } // its errors were returned before
