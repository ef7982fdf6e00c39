package audit

import (
	"iter"
	"runtime"
	"sync"

	"fleetledger/events"
)

// checked is an event, or the error in its place, with all that can be told of it
// without those before it.
type checked struct {
	stored events.Stored
	err    error // the event cannot be read

	rec     events.Record // with its event, if it is one
	payload error         // the payload is not what the header commits to
}

func (c *checked) check(decode bool) {
	if c.err == nil {
		c.rec, c.err = c.stored.Record()
	}
	if c.err != nil {
		return
	}
	c.payload = c.rec.Verify()
	if decode && c.payload == nil {
		c.rec = events.WithEvent(c.rec)
	}
}

// Bounds of what one worker checks at a time.
const (
	partRecords = 256
	partBytes   = 1 << 20
)

// part is some events in a row.
type part struct {
	items []checked
	bytes []byte        // of all of them
	done  chan struct{} // has one value once they are checked
}

func (p *part) add(s events.Stored, err error) {
	from := len(p.bytes)
	p.bytes = append(append(p.bytes, s.Leaf...), s.Payload...)
	middle, end := from+len(s.Leaf), len(p.bytes)
	s.Leaf = p.bytes[from:middle:middle]
	if s.Payload != nil {
		s.Payload = p.bytes[middle:end:end]
	}
	p.items = append(p.items, checked{stored: s, err: err})
}

// ahead yields the events of src in order, each checked by one of several workers
// while those before it are still looked at. What is yielded lasts until a later part
// is read; src is left when it returns.
func ahead(src iter.Seq2[events.Stored, error], decode bool) iter.Seq[*checked] {
	return func(yield func(*checked) bool) {
		workers := runtime.GOMAXPROCS(0)
		stop := make(chan struct{})
		free, inOrder, work := make(chan *part, 4*workers), make(chan *part, 2*workers), make(chan *part, 2*workers)
		for range cap(free) {
			free <- &part{items: make([]checked, 0, partRecords), done: make(chan struct{}, 1)}
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
				if (len(p.items) == partRecords || len(p.bytes) > partBytes) && !send() {
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
					for i := range p.items {
						p.items[i].check(decode)
					}
					p.done <- struct{}{}
				}
			})
		}
		for p := range inOrder {
			<-p.done
			for i := range p.items {
				if !yield(&p.items[i]) {
					return
				}
			}
			p.items, p.bytes = p.items[:0], p.bytes[:0]
			free <- p
		}
	}
}
