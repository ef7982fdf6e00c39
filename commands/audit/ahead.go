package audit

import (
	"bytes"
	"iter"
	"runtime"
	"sync"

	"fleetledger/events"
)

// checked is a record, or the error in its place, with all that can be told of it
// without those before it.
type checked struct {
	rec events.Record // with its event, if it is one
	err error

	header  error // what is wrong with the header by itself
	encodes bool  // the header encodes to the leaf
	leaf    events.Hash
	payload error // the payload is not what the header commits to
}

func (c *checked) check(decode bool) {
	if c.err != nil {
		return
	}
	h := &c.rec.Header
	c.header = h.Check()
	// A header has one form, so this says that the leaf holds this very header.
	c.encodes = bytes.Equal(h.Encode(), c.rec.Leaf)
	c.leaf = events.LeafHash(c.rec.Leaf)
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

// part is some records in a row. done is closed when they are checked.
type part struct {
	items []checked
	done  chan struct{}
}

// ahead yields the records of src in order, each checked by one of several workers
// while those before it are still looked at. src is left when it returns.
func ahead(src iter.Seq2[events.Record, error], decode bool) iter.Seq[*checked] {
	return func(yield func(*checked) bool) {
		workers := runtime.GOMAXPROCS(0)
		stop := make(chan struct{})
		inOrder, work := make(chan *part, 2*workers), make(chan *part, 2*workers)
		var running sync.WaitGroup
		defer running.Wait()
		defer close(stop)
		running.Go(func() {
			defer close(inOrder)
			defer close(work)
			p, size := &part{done: make(chan struct{})}, 0
			send := func() bool {
				for _, to := range []chan *part{work, inOrder} {
					select {
					case to <- p:
					case <-stop:
						return false
					}
				}
				p, size = &part{items: make([]checked, 0, partRecords), done: make(chan struct{})}, 0
				return true
			}
			for r, err := range src {
				p.items = append(p.items, checked{rec: r, err: err})
				size += len(r.Payload)
				if (len(p.items) == partRecords || size > partBytes) && !send() {
					return
				}
			}
			if len(p.items) > 0 {
				send()
			}
		})
		for range workers {
			running.Go(func() {
				for p := range work {
					for i := range p.items {
						p.items[i].check(decode)
					}
					close(p.done)
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
		}
	}
}
