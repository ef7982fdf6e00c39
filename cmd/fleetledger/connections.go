package main

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

// Bounds of the connections that are served at once. The store may have storeFiles
// files open for each fleet, as Pebble and SQLite do, and must never fail to open one
// because of a flood of connections.
const (
	storeFiles     = 1100
	maxConnections = 1 << 16
)

// connectionBound is how many connections may be open at once, event streams among
// them, if the process may have so many files open; 0 is as many as it likes.
func connectionBound(files uint64, fleets int) int {
	store := uint64(storeFiles * fleets)
	switch {
	case files == 0 || files > maxConnections+store:
		return maxConnections
	case files > 2*store:
		return int(files - store)
	}
	return max(1, int(files/2))
}

// boundedListener accepts connections while fewer than its bound are open. Others wait
// in the system's queue, and those that are open are not touched: without a bound
// every one of them, and the store, would fail once the process has no file left.
type boundedListener struct {
	net.Listener
	open   chan struct{} // has an element for each open connection
	closed chan struct{}
	close  func()
	logger *slog.Logger
	told   time.Time // when it was last said that they are all taken; only Accept uses it
}

func newBoundedListener(l net.Listener, bound int, logger *slog.Logger) *boundedListener {
	b := &boundedListener{Listener: l, open: make(chan struct{}, bound), closed: make(chan struct{}), logger: logger}
	b.close = sync.OnceFunc(func() { close(b.closed) })
	return b
}

// tellEvery is how often it is said that all connections are taken.
const tellEvery = time.Minute

// Accept is called by one goroutine.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	default:
		if now := time.Now(); now.Sub(l.told) >= tellEvery {
			l.told = now
			l.logger.Warn("all connections that this process can serve are taken: new ones wait until one ends; a higher limit of open files (ulimit -n) allows more", "connections", cap(l.open))
		}
		select {
		case l.open <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &boundedConn{c, sync.OnceFunc(func() { <-l.open })}, nil
}

func (l *boundedListener) Close() error {
	l.close()
	return l.Listener.Close()
}

type boundedConn struct {
	net.Conn
	ended func()
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.ended()
	return err
}
