package kurrentstub

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	grpcmeta "google.golang.org/grpc/metadata"
)

// Faults are what a cluster does wrong, each as the share of calls, 0 to 1, that it
// befalls. What was done is the same for the same seed and the same order of calls.
type Faults struct {
	Seed uint64
	// DropAfterWrite writes an append, then resets every connection of its node.
	DropAfterWrite float64
	// Reset resets every connection of the node before a write, a read, or an event of
	// a subscription.
	Reset float64
	// Stall leaves a call without an answer: before an append is written, after it, on
	// a read, or in the middle of a subscription. It lasts StallFor, 0 for a second, or
	// until the client gives up.
	Stall    float64
	StallFor time.Duration
	// NotLeader refuses an append and names the leader.
	NotLeader float64
	// Early answers an append before it was sent: the client sees the end of the
	// stream and no reason.
	Early float64
	// Unknown begins the answer to a read with a message that the client has no case for.
	Unknown float64
	// Lag answers a read as a node does that is three events behind.
	Lag float64
}

// Misbehave makes the cluster do f from now on; the zero Faults makes it behave.
func (c *Cluster) Misbehave(f Faults) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if f == (Faults{}) {
		c.faults = nil
		return
	}
	if f.StallFor == 0 {
		f.StallFor = time.Second
	}
	c.faults = &chaos{Faults: f, dice: rand.New(rand.NewPCG(f.Seed, 0)), done: map[string]int{}}
}

// RefuseDiscovery fails gossip, and every other call, for a while, as nodes do that
// are starting, and ends the connections there are.
func (c *Cluster) RefuseDiscovery(d time.Duration) {
	c.mu.Lock()
	c.refuse = time.Now().Add(d)
	c.mu.Unlock()
	c.ResetConnections()
}

// Done counts the faults so far, by their names, since Misbehave.
func (c *Cluster) Done() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[string]int{}
	if c.faults != nil {
		for k, n := range c.faults.done {
			out[k] = n
		}
	}
	return out
}

type chaos struct {
	Faults
	dice *rand.Rand
	done map[string]int
}

type op int

const (
	opAppend op = iota
	opRead
	opSubscription
)

type fault string

const (
	faultDrop       fault = "drop after write"
	faultReset      fault = "reset"
	faultStall      fault = "stall"
	faultStallAfter fault = "stall after write"
	faultNotLeader  fault = "not leader"
	faultEarly      fault = "early error"
	faultUnknown    fault = "unknown message"
	faultLag        fault = "lag"
)

// fault draws what befalls a call; "" is nothing.
func (c *Cluster) fault(o op) fault {
	c.mu.Lock()
	defer c.mu.Unlock()
	f := c.faults
	if f == nil {
		return ""
	}
	type chance struct {
		share float64
		fault fault
	}
	var chances []chance
	switch o {
	case opAppend:
		chances = []chance{{f.DropAfterWrite, faultDrop}, {f.Reset, faultReset}, {f.Stall / 2, faultStall},
			{f.Stall / 2, faultStallAfter}, {f.NotLeader, faultNotLeader}, {f.Early, faultEarly}}
	case opRead:
		chances = []chance{{f.Reset, faultReset}, {f.Stall, faultStall}, {f.Unknown, faultUnknown}, {f.Lag, faultLag}}
	case opSubscription: // per event, of which there are many
		chances = []chance{{f.Reset / 10, faultReset}, {f.Stall / 10, faultStall}}
	}
	drawn := f.dice.Float64()
	for _, ch := range chances {
		if drawn -= ch.share; drawn < 0 {
			f.done[string(ch.fault)]++
			return ch.fault
		}
	}
	return ""
}

// stall waits as long as a stalled call takes.
func (c *Cluster) stall(ctx context.Context) {
	c.mu.Lock()
	d := time.Second
	if c.faults != nil {
		d = c.faults.StallFor
	}
	c.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// SetMetadata sets the metadata of a stream, as an administrator does.
func (c *Cluster) SetMetadata(name string, metadata []byte) {
	p := proposal{stream: "$$" + name, revision: anyway, events: []event{{id: uuid.New(), system: map[string]string{"type": "$metadata"}, data: metadata}}}
	_, _ = c.write(p, func(grpcmeta.MD) {}) // only a tombstone would refuse it
}

// Forget removes the first n events of a stream for ever, as a scavenge does.
func (c *Cluster) Forget(name string, n uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[name]; s != nil {
		s.scavenged = n
	}
}
