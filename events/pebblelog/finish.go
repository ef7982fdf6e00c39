package pebblelog

import "fmt"

// sync waits until the WAL of each group is on disk, in order.
func (l *Log) sync() {
	defer close(l.toFinish)
	for g := range l.toSync {
		if len(g.wrote) > 0 {
			if err := g.batch.SyncWait(); err != nil {
				l.fail(fmt.Errorf("sync Pebble's WAL: %w", err))
				return
			}
		}
		l.toFinish <- g // never blocks: there are no more groups than it has slots
	}
}

// finish is the finisher: it makes durable groups visible and answers.
func (l *Log) finish() {
	groups := make([]*group, 0, pipelineDepth)
	for g := range l.toFinish {
		// One anchor covers every group whose WAL was synced meanwhile.
		groups = append(groups[:0], g)
		for more := true; more; {
			select {
			case g, ok := <-l.toFinish:
				if more = ok; ok {
					groups = append(groups, g)
				}
			default:
				more = false
			}
		}
		if l.failedErr() != nil {
			return // nothing is acknowledged any more
		}
		newest := groups[len(groups)-1]
		if uint64(newest.last) > l.anchor.head.Size {
			if err := l.anchor.advance(uint64(newest.last), newest.tree.Root); err != nil {
				l.fail(fmt.Errorf("write the anchor: %w", err))
				return
			}
		}
		// A crash from here on loses no event: only their callers do not know yet.
		for _, g := range groups {
			l.answer(g)
			g.reset()
			l.free <- g
		}
	}
}

// answer publishes what g wrote and answers everyone in it. Those who lost or
// repeated are answered here too: what they lost to lies in this group or an
// earlier one.
func (l *Log) answer(g *group) {
	if l.opts.Fold != nil && len(g.wrote) > 0 {
		l.folding.Lock()
		for _, r := range g.wrote {
			if r.publish != nil {
				r.publish()
			}
		}
		l.folding.Unlock()
	}
	n := 0
	for _, r := range g.wrote {
		n += len(r.recs)
		l.tail.add(r.recs, r.bytes)
		for _, p := range r.a.Erase {
			l.tail.erase(p)
		}
	}
	if n > 0 {
		l.commits.Add(len(g.wrote), n)
	}
	// Whoever sees an event as durable can have it proved.
	tree := g.tree // the group is filled again
	l.tree.Store(&tree)
	l.durable.Store(uint64(g.last))
	l.waiters.wake(g.last)
	for _, r := range g.requests {
		r.done <- struct{}{}
	}
}
