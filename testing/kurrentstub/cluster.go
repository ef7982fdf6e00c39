package kurrentstub

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/gossip"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/serverfeatures"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// DefaultMaxAppendBytes is the server's limit on one append, as older versions have
// it.
const DefaultMaxAppendBytes = 1 << 20

// Options says what a cluster is like.
type Options struct {
	// Nodes is how many there are; 0 means one, which is reached without gossip.
	Nodes int
	// Listen is the address of a single node; empty means a free port of 127.0.0.1.
	Listen string
	// MaxAppendBytes is the limit on one append; 0 means DefaultMaxAppendBytes.
	MaxAppendBytes int
	// User and Password, unless empty, are asked for on every call. The client sends
	// them over TLS only.
	User, Password string
	// TLS, unless nil, is what the nodes serve with.
	TLS *tls.Config
}

// Cluster is a running cluster.
type Cluster struct {
	opts  Options
	nodes []*node

	mu      sync.Mutex
	leader  int                // guarded by mu; index in nodes
	streams map[string]*stream // guarded by mu
	commit  uint64             // guarded by mu; the log position of the last event
	grown   chan struct{}      // guarded by mu; closed, and replaced, at every append
	faults  *chaos             // guarded by mu; nil while it behaves
	refuse  time.Time          // guarded by mu; discovery fails until then
	appends int                // guarded by mu; how many were written
}

// node is one server of a cluster.
type node struct {
	streams.UnimplementedStreamsServer
	c        *Cluster
	index    int
	listener net.Listener
	server   *grpc.Server
	wrapped  *connections
}

// Start starts a cluster whose first node leads.
func Start(opts Options) (*Cluster, error) {
	if opts.Nodes == 0 {
		opts.Nodes = 1
	}
	if opts.Listen == "" {
		opts.Listen = "127.0.0.1:0"
	}
	if opts.MaxAppendBytes == 0 {
		opts.MaxAppendBytes = DefaultMaxAppendBytes
	}
	c := &Cluster{opts: opts, streams: map[string]*stream{}, grown: make(chan struct{})}
	for i := range opts.Nodes {
		l, err := net.Listen("tcp", opts.Listen)
		if err != nil {
			c.Stop()
			return nil, err
		}
		n := &node{c: c, index: i, listener: l, wrapped: &connections{Listener: l, open: map[net.Conn]bool{}}}
		c.nodes = append(c.nodes, n)
		serve := []grpc.ServerOption{
			grpc.MaxRecvMsgSize(64 << 20),
			grpc.UnaryInterceptor(n.unary), grpc.StreamInterceptor(n.stream),
		}
		if opts.TLS != nil {
			serve = append(serve, grpc.Creds(credentials.NewTLS(opts.TLS)))
		}
		n.server = grpc.NewServer(serve...)
		streams.RegisterStreamsServer(n.server, n)
		gossip.RegisterGossipServer(n.server, gossiper{c: c})
		serverfeatures.RegisterServerFeaturesServer(n.server, features{})
		go func() { _ = n.server.Serve(n.wrapped) }() // ends with Stop
	}
	return c, nil
}

// Stop ends the cluster. Calls under way fail.
func (c *Cluster) Stop() {
	for _, n := range c.nodes {
		if n.server != nil {
			n.server.Stop()
		}
	}
}

// ConnectionString is how a client reaches the cluster.
func (c *Cluster) ConnectionString() string {
	var hosts []string
	for _, n := range c.nodes {
		hosts = append(hosts, n.listener.Addr().String())
	}
	user := ""
	if c.opts.User != "" {
		user = c.opts.User + ":" + c.opts.Password + "@"
	}
	query := "?keepAliveInterval=-1"
	if c.opts.TLS == nil {
		query += "&tls=false"
	}
	return "esdb://" + user + strings.Join(hosts, ",") + query
}

// Elect makes another node the leader, and ends every connection to the old one.
func (c *Cluster) Elect(i int) {
	c.mu.Lock()
	old := c.nodes[c.leader]
	c.leader = i
	c.mu.Unlock()
	old.wrapped.reset()
}

// ResetConnections ends every connection there is.
func (c *Cluster) ResetConnections() {
	for _, n := range c.nodes {
		n.wrapped.reset()
	}
}

// Appends is how many appends were written so far.
func (c *Cluster) Appends() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.appends
}

// unary and stream let in whoever has the credentials.
func (n *node) unary(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	if err := n.c.allowed(ctx); err != nil {
		return nil, err
	}
	return next(ctx, req)
}

func (n *node) stream(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if err := n.c.allowed(ss.Context()); err != nil {
		return err
	}
	return next(srv, ss)
}

func (c *Cluster) allowed(ctx context.Context) error {
	if c.refuses() {
		return status.Error(codes.Unavailable, "the server is not ready")
	}
	method, _ := grpc.Method(ctx)
	if c.opts.User == "" || !strings.Contains(method, "streams.Streams") {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	want := "Basic " + base64.StdEncoding.EncodeToString([]byte(c.opts.User+":"+c.opts.Password))
	if got := md.Get("authorization"); len(got) != 1 || got[0] != want {
		return status.Error(codes.Unauthenticated, "wrong or missing credentials")
	}
	return nil
}

// gossiper tells who is in the cluster.
type gossiper struct {
	gossip.UnimplementedGossipServer
	c *Cluster
}

func (g gossiper) Read(context.Context, *shared.Empty) (*gossip.ClusterInfo, error) {
	c := g.c
	c.mu.Lock()
	defer c.mu.Unlock()
	info := &gossip.ClusterInfo{}
	for i, n := range c.nodes {
		at := n.listener.Addr().(*net.TCPAddr)
		state := gossip.MemberInfo_Follower
		if i == c.leader {
			state = gossip.MemberInfo_Leader
		}
		info.Members = append(info.Members, &gossip.MemberInfo{
			State: state, IsAlive: true,
			HttpEndPoint: &gossip.EndPoint{Address: at.IP.String(), Port: uint32(at.Port)},
		})
	}
	return info, nil
}

// refuses reports whether every call fails at present.
func (c *Cluster) refuses() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Before(c.refuse)
}

type features struct {
	serverfeatures.UnimplementedServerFeaturesServer
}

func (features) GetSupportedMethods(context.Context, *shared.Empty) (*serverfeatures.SupportedMethods, error) {
	return &serverfeatures.SupportedMethods{EventStoreServerVersion: "24.10.0", Methods: []*serverfeatures.SupportedMethod{
		{ServiceName: "event_store.client.streams.streams", MethodName: "append"},
		{ServiceName: "event_store.client.streams.streams", MethodName: "read"},
	}}, nil
}

// notLeader is the answer of a node that does not lead to what only a leader does.
func (c *Cluster) notLeader(ss grpc.ServerStream, leader int) error {
	at := c.nodes[leader].listener.Addr().(*net.TCPAddr)
	ss.SetTrailer(metadata.Pairs("exception", "not-leader",
		"leader-endpoint-host", at.IP.String(), "leader-endpoint-port", fmt.Sprint(at.Port)))
	return status.Error(codes.NotFound, "Leader info available")
}

// connections are those that a listener has taken.
type connections struct {
	net.Listener
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (c *connections) Accept() (net.Conn, error) {
	conn, err := c.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open[conn] = true
	return &tracked{conn, c}, nil
}

// reset ends all of them.
func (c *connections) reset() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.open {
		if t, ok := conn.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // a reset, not an orderly end
		}
		_ = conn.Close()
	}
	clear(c.open)
}

type tracked struct {
	net.Conn
	of *connections
}

func (t *tracked) Close() error {
	t.of.mu.Lock()
	delete(t.of.open, t.Conn)
	t.of.mu.Unlock()
	return t.Conn.Close()
}
