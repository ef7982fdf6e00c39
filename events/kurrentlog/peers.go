package kurrentlog

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"fleetledger/events"
)

// Peers is where a relay takes appends from other relays of its fleets, and who it is
// to them: a TLS key made for this process. Relays tell each other their keys on the
// channels of their fleets, which whoever may write in the cluster may write; nobody
// else is spoken to. Methods may be called concurrently.
type Peers struct {
	key       string
	addresses []string
	cert      tls.Certificate
	server    *http.Server
	ended     chan struct{}

	mu   sync.Mutex
	logs map[string]*Log // by fleet; guarded by mu
}

const (
	// maxPeerConns bounds the connections of peers, those not yet known included.
	maxPeerConns = 128
	// maxPeerAddresses bounds how many addresses of a peer are tried.
	maxPeerAddresses = 8
	// maxHandedBytes bounds what is handed over at once: a batch, and what it relies on.
	maxHandedBytes = 4 << 20
	// peerLife is how long a peer is known that was not heard again.
	peerLife = time.Minute
)

// ListenPeers takes appends at an address, a host and a port, which may be 0. Others
// are told the host as it is named; of an unspecified one, the addresses of this
// machine.
func ListenPeers(address string, logger *slog.Logger) (*Peers, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	cert, key, err := newIdentity()
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Peers{key: key, cert: cert, ended: make(chan struct{}), logs: map[string]*Log{}}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	for _, h := range announced(host) {
		p.addresses = append(p.addresses, net.JoinHostPort(h, port))
	}
	p.server = &http.Server{
		Handler: p, TLSConfig: p.tls(p.knows), TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){}, // HTTP/1.1 is enough
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 8 << 10, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(p.ended)
		_ = p.server.ServeTLS(netutil.LimitListener(listener, maxPeerConns), "", "") // ends with Close
	}()
	return p, nil
}

// Close ends it: what was handed over and is not done is not waited for.
func (p *Peers) Close() error {
	err := p.server.Close()
	<-p.ended
	return err
}

// newIdentity makes a certificate for this process, and the name of its key.
func newIdentity() (tls.Certificate, string, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fleetledger relay"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC), // whoever is heard counts, not this
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: parsed}, keyOf(parsed), nil
}

// keyOf names a certificate's key: SHA-256, in hex.
func keyOf(c *x509.Certificate) string {
	h := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(h[:])
}

// tls is how peers speak: each proves that it has its key, and knows the other's.
func (p *Peers) tls(knows func(key string) bool) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{p.cert}, SessionTicketsDisabled: true,
		// No name and no authority vouches for a peer; its key does, see VerifyConnection.
		ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || !knows(keyOf(s.PeerCertificates[0])) {
				return errors.New("no relay of these fleets has this key")
			}
			return nil
		},
	}
}

// announced are the hosts by which others may reach a host that is listened on.
func announced(host string) []string {
	ip := net.ParseIP(host)
	if host != "" && (ip == nil || !ip.IsUnspecified()) {
		return []string{host}
	}
	var hosts []string
	addresses, _ := net.InterfaceAddrs() // none if they are not to be had
	for _, a := range addresses {
		if n, ok := a.(*net.IPNet); ok && n.IP.IsGlobalUnicast() && len(hosts) < maxPeerAddresses {
			hosts = append(hosts, n.IP.String())
		}
	}
	if len(hosts) == 0 {
		return []string{"127.0.0.1"}
	}
	return hosts
}

// String is how others reach it: KEY@HOST:PORT,HOST:PORT.
func (p *Peers) String() string { return p.key + "@" + strings.Join(p.addresses, ",") }

// parsePeer is the inverse of String.
func parsePeer(s string) (key string, addresses []string, err error) {
	key, list, ok := strings.Cut(s, "@")
	if b, err := hex.DecodeString(key); !ok || err != nil || len(b) != sha256.Size {
		return "", nil, fmt.Errorf("%.40q is no relay", s)
	}
	addresses = strings.SplitN(list, ",", maxPeerAddresses+1)
	for _, a := range addresses {
		if _, _, err := net.SplitHostPort(a); err != nil || len(a) > 300 {
			return "", nil, fmt.Errorf("%.40q is no relay", s)
		}
	}
	return key, addresses[:min(len(addresses), maxPeerAddresses)], nil
}

func (p *Peers) add(l *Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.logs[l.opts.Fleet] = l
}

func (p *Peers) remove(l *Log) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.logs, l.opts.Fleet)
}

func (p *Peers) log(fleet string) *Log {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.logs[fleet]
}

// knows reports whether a relay of any fleet here has this key.
func (p *Peers) knows(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.logs {
		if l.admitted.has(key) {
			return true
		}
	}
	return false
}

// ServeHTTP answers a peer: GET /FLEET whether appends of that fleet are taken, POST
// /FLEET what became of those in the body.
func (p *Peers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l := p.log(strings.TrimPrefix(r.URL.Path, "/"))
	switch {
	case l == nil:
		http.Error(w, "no such fleet", http.StatusNotFound)
	case !l.admitted.has(keyOf(r.TLS.PeerCertificates[0])):
		http.Error(w, "no relay of this fleet has this key", http.StatusForbidden)
	case r.Method == http.MethodGet:
	case r.Method != http.MethodPost:
		http.Error(w, "GET or POST", http.StatusMethodNotAllowed)
	default:
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxHandedBytes))
		if err != nil {
			return // it is gone, or sends what nobody does
		}
		appends, err := decodeHanded(body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		written, err := l.takeHanded(r.Context(), appends)
		if err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write(written) // if it is gone, it looks in the stream
	}
}

// takeHanded appends what another relay has decided. written has a byte for each, 1 if
// it was written now.
func (l *Log) takeHanded(ctx context.Context, appends []events.Append) (written []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.opts.Patience)
	defer cancel()
	requests := make([]*request, len(appends))
	for i, a := range appends {
		if requests[i], err = l.newRequest(a); err != nil {
			return nil, err
		}
		requests[i].foreign = true
	}
	if !l.queue.push(requests...) {
		return nil, events.ErrClosed
	}
	l.taken.Add(uint64(len(requests)))
	written = make([]byte, len(requests))
	for i, r := range requests {
		select {
		case <-r.done:
			if r.err == nil && !r.out.Duplicate {
				written[i] = 1
			}
			continue
		case <-ctx.Done():
			err = ctx.Err()
		case <-l.life.Done():
			err = context.Cause(l.life)
		}
		for _, r := range requests[i:] {
			r.given.Store(true)
		}
		return nil, err
	}
	return written, nil
}

// admitted are the peers that were heard of lately, by their keys.
type admitted struct {
	mu    sync.Mutex
	until map[string]time.Time // guarded by mu
}

func (a *admitted) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for k, t := range a.until {
		if now.After(t) {
			delete(a.until, k)
		}
	}
	a.until[key] = now.Add(peerLife)
}

func (a *admitted) has(key string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return time.Now().Before(a.until[key])
}
