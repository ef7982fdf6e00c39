// Package bus connects the log to other systems through Watermill: the log as a
// Publisher and a Subscriber, and deliveries of its events to webhooks and to NATS
// JetStream.
//
//	b := bus.New(bus.Config{Ledger: ledger, Dir: "subscriptions"})
//	go b.Run(ctx)
//
// The log stays the source. A delivery has a cursor of its own, kept in a file, and
// reads the log from there a page at a time; it is woken when there is more. So a
// destination that is away costs its own lag and nothing else: no append waits for
// it, and nothing piles up in memory.
//
// Events are delivered in the order of the log and at least once: the cursor is
// written after they were taken, so after a crash the last ones, those of a second, come
// again, under the same id. An event that its destination refuses for what it is, again and
// again, is parked: put aside, visibly, and passed over.
//
// Of several relays the one that has the duty delivers. Their cursors lie in a Store that
// they share, with what is parked and what was asked for; who takes over writes each
// before it delivers, so that who delivered before cannot write it any more, and reads
// on from there. The holder of the duty stops before another may take over, see
// commands.Ledger.HoldsDuty.
package bus
