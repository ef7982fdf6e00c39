package events

import (
	"math/bits"
	"sync/atomic"
)

// Committing is a Log that counts what it commits.
type Committing interface {
	// Commits returns what was committed for callers of this log since it was opened.
	Commits() CommitCounts
}

// commitSizes are how many sizes of groups are told apart: up to 1, 2, 4, ... 1024
// events.
const commitSizes = 11

// CommitCounts is what a log has committed. An append is what one caller had recorded;
// a group is what went to the disk, or to the cluster, together.
type CommitCounts struct {
	Appends, Events uint64
	// Groups[i] counts groups of at most 1<<i events that are too large for
	// Groups[i-1].
	Groups [commitSizes]uint64
}

// CommitCounter counts commits; the zero value is ready. Methods may be called
// concurrently.
type CommitCounter struct {
	appends, events atomic.Uint64
	groups          [commitSizes]atomic.Uint64
}

// Add counts a group of appends that hold so many events together, at least one.
func (c *CommitCounter) Add(appends, events int) {
	c.appends.Add(uint64(appends))
	c.events.Add(uint64(events))
	c.groups[min(bits.Len(uint(events-1)), commitSizes-1)].Add(1)
}

// Counts returns the counts so far.
func (c *CommitCounter) Counts() CommitCounts {
	out := CommitCounts{Appends: c.appends.Load(), Events: c.events.Load()}
	for i := range c.groups {
		out.Groups[i] = c.groups[i].Load()
	}
	return out
}
