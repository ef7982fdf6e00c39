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
	if l.until == nil {
		l.until = map[leaseKey]time.Time{}
	}
	l.until[leaseKey{task, attempt}] = until
}

func (l *leases) end(task string, attempt int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.until, leaseKey{task, attempt})
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
