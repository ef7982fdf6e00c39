package runner

import (
	"crypto/sha256"
	"hash"
	"io"
	"os"
	"unicode/utf8"

	"fleetledger/events"
	"fleetledger/events/secrets"
)

// TailBytes is how much of an output's end is told, as text.
const TailBytes = 4096

// keptBytes is how much is kept to find secrets in: one that the tail would cut
// is known by its beginning, or by the name before it.
const keptBytes = TailBytes + 512

// capture is an output stream as it passes: counted and hashed in full, its
// last keptBytes kept.
type capture struct {
	sum  hash.Hash
	size int64
	ring [keptBytes]byte // the byte at offset n of the stream is at n % keptBytes
}

func newCapture() *capture { return &capture{sum: sha256.New()} }

// Write never fails.
func (c *capture) Write(b []byte) (int, error) {
	c.sum.Write(b)
	n := len(b)
	if over := n - keptBytes; over > 0 {
		c.size += int64(over)
		b = b[over:]
	}
	for len(b) > 0 {
		k := copy(c.ring[c.size%keptBytes:], b)
		c.size += int64(k)
		b = b[k:]
	}
	return n, nil
}

// output is the stream so far, with the secrets in its tail masked. The tail is
// valid UTF-8 of at most TailBytes: each run of broken bytes reads as one U+FFFD,
// and a character that the cut would have halved is left out.
func (c *capture) output() events.Output {
	out := events.Output{Bytes: c.size}
	c.sum.Sum(out.SHA256[:0])
	kept := c.ring[:min(c.size, keptBytes)]
	if c.size > keptBytes {
		at := c.size % keptBytes
		kept = append(c.ring[at:len(c.ring):len(c.ring)], c.ring[:at]...)
		for range utf8.UTFMax - 1 {
			if utf8.RuneStart(kept[0]) {
				break
			}
			kept = kept[1:]
		}
	}
	out.Tail, out.Truncated = secrets.MaskTail(string(kept), TailBytes)
	out.Truncated = out.Truncated || c.size > TailBytes
	return out
}

// stream is a pipe that a command writes to and a capture reads.
type stream struct {
	*capture
	r, w *os.File
	done chan struct{} // closed when nothing more is read
}

func newStream() (*stream, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	return &stream{capture: newCapture(), r: r, w: w, done: make(chan struct{})}, nil
}

// read starts reading. The command has its own copy of the writing end by then.
func (s *stream) read() {
	s.w.Close()
	go func() {
		defer close(s.done)
		// The only error is that of a pipe that close shut: the attempt is over.
		_, _ = io.Copy(s.capture, s.r)
	}()
}

// close ends reading, even while somebody still holds the writing end.
func (s *stream) close() {
	s.r.Close()
	<-s.done
}

// drop gives the pipe up before read was called.
func (s *stream) drop() {
	s.r.Close()
	s.w.Close()
}
