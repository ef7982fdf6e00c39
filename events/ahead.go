package events

import (
	"iter"
	"runtime"
	"sync"
)

// Checked is an event, or the error in its place, with all that can be told of it
// without those before it.
type Checked struct {
	Stored Stored
	// Err says why the event cannot be read. If its header can be, Record has that.
	Err error
	// Record is the event, if it can be read.
	Record Record
	// Payload says how the payload is not the one that the header commits to.
	Payload error
}

// CheckOptions say what is done with an event besides making a record of it.
type CheckOptions struct {
	// Verify compares payloads with their headers.
	Verify bool
	// Decode has the record's event decoded once for all who ask, if its payload is
	// what it was; it wants Verify.
	Decode bool
	// Also, unless nil, is called with every event. It may be called concurrently, and
	// in any order.
	Also func(*Checked)
}

// Check looks at s.
func (o CheckOptions) Check(s Stored, err error) Checked {
	c := Checked{Stored: s, Err: err}
	o.check(&c, &Header{})
	return c
}

// check looks at c. was is the header before it, or the zero Header.
func (o CheckOptions) check(c *Checked, was *Header) {
	if c.Stored.Leaf != nil {
		var err error
		if c.Record, err = c.Stored.recordAfter(was); c.Err == nil {
			c.Err = err
		}
	}
	if c.Err == nil && o.Verify {
		if c.Payload = c.Record.Verify(); c.Payload == nil && o.Decode {
			c.Record = WithEvent(c.Record)
		}
	}
	if o.Also != nil {
		o.Also(c)
	}
}

// Bounds of what one worker checks at a time: little enough to be in a core's cache
// still when the next looks at it.
const (
	partEvents = 256
	partBytes  = 256 << 10
)

// part is some events in a row.
type part struct {
	items []Checked
	bytes []byte        // of all of them
	done  chan struct{} // has one value once they are checked
}

func (p *part) add(s Stored, err error) {
	from := len(p.bytes)
	p.bytes = append(append(p.bytes, s.Leaf...), s.Payload...)
	middle, end := from+len(s.Leaf), len(p.bytes)
	if s.Leaf != nil {
		s.Leaf = p.bytes[from:middle:middle]
	}
	if s.Payload != nil {
		s.Payload = p.bytes[middle:end:end]
	}
	p.items = append(p.items, Checked{Stored: s, Err: err})
}

// CheckAhead yields what CheckPartsAhead does one by one. What an event points to is
// overwritten once a later one is asked for.
func CheckAhead(src iter.Seq2[Stored, error], o CheckOptions) iter.Seq[*Checked] {
	return func(yield func(*Checked) bool) {
		for items := range CheckPartsAhead(src, o) {
			for i := range items {
				if !yield(&items[i]) {
					return
				}
			}
		}
	}
}

// CheckPartsAhead yields the events of src in order, some at a time, each checked by one
// of several workers while those before it are still looked at, so that reading, checking
// and whatever the caller does have a core each. What events point to is overwritten once
// later ones are asked for; src is left when it returns.
func CheckPartsAhead(src iter.Seq2[Stored, error], o CheckOptions) iter.Seq[[]Checked] {
	return func(yield func([]Checked) bool) {
		workers := runtime.GOMAXPROCS(0)
		stop := make(chan struct{})
		free, inOrder, work := make(chan *part, 4*workers), make(chan *part, 2*workers), make(chan *part, 2*workers)
		for range cap(free) {
			free <- &part{items: make([]Checked, 0, partEvents), done: make(chan struct{}, 1)}
		}
		var running sync.WaitGroup
		defer running.Wait()
		defer close(stop)
		running.Go(func() {
			defer close(inOrder)
			defer close(work)
			var p *part
			send := func() bool {
				for _, to := range []chan *part{work, inOrder} {
					select {
					case to <- p:
					case <-stop:
						return false
					}
				}
				p = nil
				return true
			}
			for s, err := range src {
				if p == nil {
					select {
					case p = <-free:
					case <-stop:
						return
					}
				}
				p.add(s, err)
				if (len(p.items) == partEvents || len(p.bytes) > partBytes) && !send() {
					return
				}
			}
			if p != nil {
				send()
			}
		})
		for range workers {
			running.Go(func() {
				for p := range work {
					was := &Header{}
					for i := range p.items {
						o.check(&p.items[i], was)
						was = &p.items[i].Record.Header
					}
					p.done <- struct{}{}
				}
			})
		}
		for p := range inOrder {
			<-p.done
			if !yield(p.items) {
				return
			}
			p.items, p.bytes = p.items[:0], p.bytes[:0]
			free <- p
		}
	}
}
