package load

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
)

// EventBytes is the size of one event as it is sent, the whole CloudEvent.
const EventBytes = 512

// idDigits is the part of an event's id that differs within a measurement: the
// first 12 hex digits, the place of the time in a UUIDv7. So ids are as long as
// users' are and come in about the same order.
const idDigits = 12

// requests makes one client's requests. Everything but the ids is written once:
// the generator shares the machine with the server it measures.
type requests struct {
	bytes []byte // head and body
	ids   []int  // where each event's idDigits start in bytes
	seq   *atomic.Uint64
}

// newRequests prepares a client's requests of batch events each. seq numbers the
// events of all clients of a measurement.
func newRequests(t Target, client, batch int, seq *atomic.Uint64) *requests {
	r := &requests{seq: seq}
	size, contentType := EventBytes, "application/cloudevents+json"
	if batch > 1 {
		size, contentType = batch*(EventBytes+1)+1, "application/cloudevents-batch+json"
	}
	b := make([]byte, 0, size+512)
	b = append(b, "POST /v1/events HTTP/1.1\r\nHost: "+t.Addr+"\r\n"...)
	b = t.appendToken(b)
	b = append(b, "Content-Type: "+contentType+"\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(size), 10)
	b = append(b, "\r\n\r\n"...)

	random := rand.New(rand.NewPCG(uint64(client), EventBytes))
	for i := range batch {
		switch {
		case batch > 1 && i == 0:
			b = append(b, '[')
		case i > 0:
			b = append(b, ',')
		}
		r.ids = append(r.ids, len(b)+len(idBefore))
		b = appendEvent(b, client, random)
	}
	if batch > 1 {
		b = append(b, ']')
	}
	r.bytes = b
	return r
}

const idBefore = `{"specversion":"1.0","id":"`

// appendEvent appends an event of exactly EventBytes, whose id is still to be
// numbered. Its text is padded with letters at random, which compress as little
// as text does.
func appendEvent(b []byte, client int, random *rand.Rand) []byte {
	begin := len(b)
	b = append(b, idBefore...)
	b = fmt.Appendf(b, `00000000-0000-7000-8000-%012x","source":"/bench","type":"ext.bench.appended",`, client)
	b = fmt.Appendf(b, `"subject":"ext-bench-%d","time":"2026-01-01T00:00:00Z","datacontenttype":"application/json",`, client)
	b = fmt.Appendf(b, `"data":{"client":%d,"text":"`, client)
	const end = `"}}`
	for len(b)-begin < EventBytes-len(end) {
		b = append(b, 'a'+byte(random.IntN(26)))
	}
	return append(b, end...)
}

// next returns the bytes of the next request, its events numbered anew. They are
// valid until the next call.
func (r *requests) next() []byte {
	last := r.seq.Add(uint64(len(r.ids)))
	for i, at := range r.ids {
		putID(r.bytes[at:], last-uint64(len(r.ids)-1-i))
	}
	return r.bytes
}

// putID writes n in idDigits hex digits over the start of a UUID, leaving out
// the dash after the eighth.
func putID(uuid []byte, n uint64) {
	const digits = "0123456789abcdef"
	for i := idDigits - 1; i >= 0; i-- {
		at := i
		if i >= 8 {
			at++
		}
		uuid[at] = digits[n&15]
		n >>= 4
	}
}
