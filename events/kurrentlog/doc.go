// Package kurrentlog keeps a log in a KurrentDB (EventStoreDB) cluster, for a fleet
// with more than one relay.
//
//	replica, err := pebblelog.OpenReplica("data/default", pebblelog.Options{Fleet: "default", Fold: state})
//	l, err := kurrentlog.Open(ctx, replica, kurrentlog.Options{Connection: "kurrentdb://a:2113,b:2113", Fleet: "default", Fold: state})
//
// # The stream
//
// A fleet is one stream, fleetledger-FLEET, and our streams are inside it: a position
// is its revision + 1, so positions are dense, an append of several events is atomic,
// and keys and expectations are exact. An event there has
//
//	id        the first 16 bytes of its leaf hash: the server takes two events for
//	          one exactly when they are the same bytes at the same place
//	type      the kind
//	data      the payload
//	metadata  {"left":N,"salt":"hex","header":LEAF}
//
// where LEAF is the header's exact bytes, the Merkle leaf; N how many events of the
// same append come after this one; the salt is empty if the payload was erased.
//
// # One append
//
// One goroutine takes the waiting appends as a batch, checks each against the
// replica and all before it in the batch, stages the fold, and sends the batch,
// expecting exactly the head that the replica holds. Then:
//
//	written      the replica stores it, the fold is published, callers are answered;
//	conflict     another relay was first: what it wrote is read and applied, and the
//	             appends are checked again. Only their places change: a caller hears of
//	             it only if something that it expected has moved;
//	anything else  it may have been written or may yet be. What is in the stream after
//	             the expected head tells: our own events there mean that it was. If
//	             they are not there, it is sent again, expecting the same head, so that
//	             at most one of the two is written.
//
// A crash between the write and the answer loses nothing: whoever asks again, at any
// relay, is answered by the key.
//
// # Handing over
//
// A relay may hand its appends to the one that has the duty; see forward.go. It has
// checked that they stand at what it holds, and answers its callers when their events
// come in the stream, not before, so that nothing rests on what the other says.
//
// # Beside the log
//
// In fleetledger-FLEET:relays the relays tell each other what need not be kept (Say and
// Heard); in fleetledger-FLEET:NAME lie values that all of them read and one at a time
// replaces (Shelf).
//
// # The client
//
// The client stays closed after one failed discovery, ignores contexts while it
// discovers, hides early errors behind an end of file, and panics on messages it does
// not know. All of that stays in client.go: each call has a deadline of its own, runs
// where a panic is caught, and gets a new client after any error that does not come
// from the stream itself.
package kurrentlog
