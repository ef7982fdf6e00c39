package events

import (
	"sync"
	"time"
)

// Clock is the ledger's time: max(wall clock, last time + monotonic time
// since). It never runs backwards, and a wall clock that once jumped ahead does
// not stand still afterwards, so expiries keep coming. Methods may be called
// concurrently.
type Clock struct {
	now func() time.Time // carries a monotonic reading, like time.Now

	mu   sync.Mutex
	last time.Time // the last time given, UTC, whole microseconds
	at   time.Time // now() at that moment
}

// NewClock returns a clock that runs on from last, the time of the newest event
// of a log. now is time.Now, or a stand-in in tests.
func NewClock(last time.Time, now func() time.Time) *Clock {
	return &Clock{now: now, last: last.UTC().Truncate(time.Microsecond), at: now()}
}

// Now returns the ledger's time in UTC and whole microseconds.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.now()
	t := n.UTC().Truncate(time.Microsecond)
	if elapsed := n.Sub(c.at); elapsed >= 0 {
		if run := c.last.Add(elapsed.Truncate(time.Microsecond)); run.After(t) {
			t = run
		}
	}
	if t.Before(c.last) {
		t = c.last
	}
	// The monotonic reading is measured from the last advance only: truncated
	// remainders would otherwise be lost one microsecond at a time.
	if t.After(c.last) {
		c.last, c.at = t, n
	}
	return t
}

// Reach says that an event has time t, given by another clock: this one gives no
// earlier time from now on.
func (c *Clock) Reach(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t = t.UTC().Truncate(time.Microsecond); t.After(c.last) {
		c.last, c.at = t, c.now()
	}
}

// Lead is how far the ledger's time runs ahead of the wall clock.
func (c *Clock) Lead() time.Duration {
	t := c.Now()
	return max(0, t.Sub(c.now()))
}
