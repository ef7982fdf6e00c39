package main

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

func TestConnectionBound(t *testing.T) {
	for _, c := range []struct {
		files  uint64
		fleets int
		want   int
	}{
		{0, 1, maxConnections},
		{1 << 20, 1, maxConnections},
		{20_000, 1, 18_900},
		{20_000, 3, 16_700},
		{4096, 1, 2996},
		{1024, 1, 512},
		{4096, 10, 2048},
		{1, 1, 1},
	} {
		if got := connectionBound(c.files, c.fleets); got != c.want {
			t.Errorf("%d open files and %d fleets: %d connections, want %d", c.files, c.fleets, got, c.want)
		}
	}
}

// A flood of connections keeps new ones waiting, and ends none that is there.
func TestFloodOfConnections(t *testing.T) {
	const bound = 3
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer // written to by Accept alone, read once Serve has returned
	l := newBoundedListener(inner, bound, slog.New(slog.NewTextHandler(&said, nil)))
	server := &http.Server{Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()

	asks := func() *http.Client { return &http.Client{Transport: &http.Transport{MaxConnsPerHost: 1}} }
	get := func(c *http.Client, timeout time.Duration) error {
		c.Timeout = timeout
		resp, err := c.Get("http://" + inner.Addr().String())
		if err != nil {
			return err
		}
		return resp.Body.Close()
	}
	const soon = 30 * time.Second
	first := asks()
	if err := get(first, soon); err != nil {
		t.Fatal(err)
	}
	var flood []net.Conn
	for range 3 * bound {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		flood = append(flood, c)
	}
	late := asks()
	if err := get(late, 100*time.Millisecond); err == nil {
		t.Error("more connections are served than the bound")
	}
	for range 3 { // the connection that was there goes on
		if err := get(first, soon); err != nil {
			t.Error(err)
		}
	}
	for _, c := range flood {
		_ = c.Close()
	}
	if err := get(late, soon); err != nil { // waits its turn
		t.Error(err)
	}
	first.CloseIdleConnections()
	late.CloseIdleConnections()
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if n := strings.Count(said.String(), "all connections that this process can serve are taken"); n != 1 {
		t.Errorf("it was said %d times: %s", n, said.String())
	}
	for range cap(l.open) { // each connection gave its place back once
		select {
		case l.open <- struct{}{}:
		case <-time.After(soon):
			t.Fatal("a connection that ended has its place still")
		}
	}
}

func TestBoundedListenerEnds(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := newBoundedListener(inner, 1, slog.New(slog.DiscardHandler))
	client, err := net.Dial("tcp", inner.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ended := make(chan error)
	go func() {
		_, err := l.Accept() // there is no place
		ended <- err
	}()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// The address that is told is one that clients can be given.
func TestAddress(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	for _, c := range []struct {
		flags serveFlags
		want  string
	}{
		{serveFlags{listen: ":0"}, "http://localhost:" + port},
		{serveFlags{listen: "[::1]:0"}, "http://[::1]:" + port},
		{serveFlags{listen: "ledger.example:0", tlsCert: "cert.pem"}, "https://ledger.example:" + port},
	} {
		if got := c.flags.address(l); got != c.want {
			t.Errorf("listening on %s is told as %s, not %s", c.flags.listen, got, c.want)
		}
	}
}
