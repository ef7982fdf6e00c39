package commands

import (
	"sync"
	"time"

	"fleetledger/projections"
)

// Limits that no setting changes.
const (
	MaxTargets  = 250
	MaxAttempts = 100
)

// leases knows until when each open attempt is heard of. Heartbeats are not
// events: a restart renews every open lease.
type leases struct {
	mu    sync.Mutex
	until map[leaseKey]time.Time
}

type leaseKey struct {
	task    string
	attempt int
}

func (l *leases) set(task string, attempt int, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.put(leaseKey{task, attempt}, until)
}

// extend is set, unless the lease is known to be longer.
func (l *leases) extend(k leaseKey, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if until.After(l.until[k]) {
		l.put(k, until)
	}
}

// adopt is set, unless the lease is known.
func (l *leases) adopt(k leaseKey, until time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.until[k]; !ok {
		l.put(k, until)
	}
}

// put is called with mu held.
func (l *leases) put(k leaseKey, until time.Time) {
	if l.until == nil {
		l.until = map[leaseKey]time.Time{}
	}
	l.until[k] = until
}

func (l *leases) end(task string, attempt int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, leaseKey{task, attempt})
}

// held reports whether an attempt was heard of in time.
func (l *leases) held(k leaseKey, now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now.Before(l.until[k])
}

// lapsed lists the attempts that were not heard of in time.
func (l *leases) lapsed(now time.Time) []leaseKey {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []leaseKey
	for k, t := range l.until {
		if !now.Before(t) {
			out = append(out, k)
		}
	}
	return out
}

func (l *leases) renewAll(open []*projections.Task, until time.Time) {
	for _, t := range open {
		for _, leg := range t.Legs {
			if leg.Status == projections.LegClaimed {
				l.set(t.ID, leg.Attempts[len(leg.Attempts)-1].Number, until)
			}
		}
	}
}
