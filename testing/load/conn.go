package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httputil"
	"strconv"
	"time"
)

// Target is a server under measurement.
type Target struct {
	Addr string // host:port
	// Token is the bearer token sent with every request; empty sends none.
	Token string
}

func (t Target) appendToken(b []byte) []byte {
	if t.Token == "" {
		return b
	}
	return append(b, "Authorization: Bearer "+t.Token+"\r\n"...)
}

// conn is one client's connection: just enough of HTTP/1.1 with keep-alive to
// cost much less than the server's side of it.
type conn struct {
	net  net.Conn
	in   *bufio.Reader
	body []byte // of the last answer
}

// answer is what the generator reads of a response.
type answer struct {
	status   int
	position uint64 // of the Ledger-Position header
	body     []byte // valid until the next exchange
}

func dial(ctx context.Context, t Target) (*conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", t.Addr)
	if err != nil {
		return nil, err
	}
	return &conn{net: c, in: bufio.NewReaderSize(c, 16<<10)}, nil
}

func (c *conn) close() { _ = c.net.Close() } // nothing is on its way any more

// exchange sends a request and reads its answer.
func (c *conn) exchange(request []byte) (answer, error) {
	if _, err := c.net.Write(request); err != nil {
		return answer{}, err
	}
	var a answer
	line, err := c.line()
	if err != nil {
		return a, err
	}
	// "HTTP/1.1 201 Created"
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return a, fmt.Errorf("the server answered %q, which is not HTTP/1.1", line)
	}
	if a.status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return a, fmt.Errorf("the server answered with the status line %q", line)
	}
	length, chunked := -1, false
	for {
		if line, err = c.line(); err != nil {
			return a, err
		}
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case is(name, "content-length"):
			length, err = strconv.Atoi(string(value))
		case is(name, "ledger-position"):
			a.position, err = strconv.ParseUint(string(value), 10, 64)
		case is(name, "transfer-encoding"):
			chunked = true
		}
		if err != nil {
			return a, fmt.Errorf("header %q: %w", line, err)
		}
	}
	switch {
	case chunked:
		err = c.readChunks()
	case length >= 0:
		c.body = append(c.body[:0], make([]byte, length)...)
		_, err = io.ReadFull(c.in, c.body)
	default:
		err = errors.New("the answer has no length")
	}
	a.body = c.body
	return a, err
}

func (c *conn) readChunks() error {
	body := bytes.NewBuffer(c.body[:0])
	if _, err := body.ReadFrom(httputil.NewChunkedReader(c.in)); err != nil {
		return err
	}
	c.body = body.Bytes()
	if line, err := c.line(); err != nil || len(line) != 0 { // where trailers would be
		return errors.Join(err, fmt.Errorf("%q after the last chunk", line))
	}
	return nil
}

// line reads a line of the head, valid until the next read.
func (c *conn) line() ([]byte, error) {
	b, err := c.in.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(b, "\r\n"), nil
}

// is compares a header's name with one in lower case.
func is(name []byte, lower string) bool {
	return len(name) == len(lower) && bytes.EqualFold(name, []byte(lower))
}

// readPosition asks how long the server's log is.
func readPosition(ctx context.Context, t Target) (uint64, error) {
	c, err := dial(ctx, t)
	if err != nil {
		return 0, err
	}
	defer c.close()
	if err := c.net.SetDeadline(time.Now().Add(answerTimeout)); err != nil {
		return 0, err
	}
	request := t.appendToken([]byte("GET /v1/limits HTTP/1.1\r\nHost: " + t.Addr + "\r\n"))
	a, err := c.exchange(append(request, "\r\n"...))
	switch {
	case err != nil:
		return 0, err
	case a.status != 200:
		return 0, fmt.Errorf("GET /v1/limits answered %d: %s", a.status, a.body)
	}
	return a.position, nil
}
