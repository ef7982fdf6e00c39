// Package pebblelog keeps a log in one directory, in Pebble.
//
//	l, err := pebblelog.Open("data/default", pebblelog.Options{Fleet: "default"})
//	done, err := l.Append(ctx, events.Append{Drafts: drafts})
//
// # The directory
//
//	format      one line that says which layout this is
//	pebble/     everything else
//	snapshots/  the fold at some positions, so that a start need not read what is before
//	anchor      how far the log was acknowledged, and its Merkle root there
//	replica     there if this is a relay's replica of a log that a cluster keeps
//
// # Keys
//
// All numbers are eight bytes, big endian. A stream's name never holds a zero
// byte, so no name's keys lie among another's.
//
//	h position             -> the header's exact bytes, the Merkle leaf
//	p position             -> salt (16 bytes), payload; an empty value: erased
//	s stream 00 revision   -> position, leaf hash
//	i event id             -> position
//	k idempotency key (32) -> first position, last position, request hash
//	t level (1) n          -> a full tile of the Merkle tree, 256 hashes
//	m log                  -> log id (16 bytes), fleet
//	e position             -> nothing; its payload was erased, and files may still hold it
//
// Headers and payloads are the log; s, i, k and t follow from the headers. A tile
// is in the batch of the leaf that fills it: a crash leaves both or neither. Tiles
// that are not full yet are in memory, made again at start.
//
// # One append
//
// Callers encode what does not depend on the place, and look up whether the key
// and the ids are taken. Then, each step in a goroutine of its own:
//
//	commit  takes the waiting appends as one group, checks each against all
//	        before it, places what stands, applies one Pebble batch;
//	sync    waits until the batch's WAL is on disk;
//	finish  syncs the anchor, publishes the folds and the durable position, and
//	        answers everyone in the group, winners and losers alike.
//
// The newest records stay in memory, as they were appended, for the many who follow
// the log: see tail.
//
// This order is the safety of the log. A power loss between the first two
// steps loses events that nobody was told about; between the others it
// loses nothing. The anchor never runs ahead of the WAL, so a log that is
// shorter than its anchor has lost acknowledged events, and Open says so.
//
// # The anchor
//
// Two slots of 4,096 bytes, written with zeros when the file is made; record
// number g is written to slot g mod 2, so that a torn write leaves the record
// before it. Layout of a record, numbers big endian, the rest of the slot zero:
//
//	 0   8 bytes   "FLANCHOR"
//	 8   4 bytes   format, 1
//	12   4 bytes   zero
//	16  16 bytes   log id
//	32   8 bytes   generation, g
//	40   8 bytes   size: the number of events
//	48  32 bytes   Merkle root of the events 1 to size, RFC 6962
//	80  32 bytes   SHA-256 of bytes 0 to 79
//
// It is there because Pebble opens a log whose last WAL was cut or changed with
// events missing and no error. What no local file can show is the whole
// directory rolled back to an older copy.
package pebblelog
