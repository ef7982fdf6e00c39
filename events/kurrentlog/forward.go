package kurrentlog

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"fleetledger/events"
)

// Relays that append at the same time are in each other's way: of those that expect the
// same head one wins, and the others read, check and send again. So they hand what they
// have decided to the one that has the duty, which writes it with its own.
//
// That is speed and nothing else. Whoever hands over believes no answer: its callers are
// answered when their events come in the stream, as they are after an append of its
// own whose outcome is not known. What does not come, it appends by itself. That both
// relays try is no harm: each expects the head that it has seen, and in what it has seen
// an id is there once.

const (
	// maxHanded is how many batches are on their way to the other relay: while one is
	// written there, the next is sent.
	maxHanded = 2
	// handedLook is how soon the stream is looked at for what the other relay has
	// written and the subscription has not brought.
	handedLook = 25 * time.Millisecond
	// probeTime is how long a relay may take to answer whether it takes appends.
	probeTime = 2 * time.Second
)

// leader is the relay that appends are handed to.
type leader struct {
	peer      string
	addresses []string
	client    *http.Client

	mu      sync.Mutex
	url     string // guarded by mu; where it was reached, "" while it is not
	probing bool   // guarded by mu
}

// Peer is how other relays reach this one, "" if it takes no appends of theirs.
func (l *Log) Peer() string {
	if l.opts.Peers == nil {
		return ""
	}
	return l.opts.Peers.String()
}

// Admit lets a relay hand over appends for the next minute. What is no relay's Peer
// is passed over.
func (l *Log) Admit(peer string) {
	if key, _, err := parsePeer(peer); err == nil {
		l.admitted.add(key)
	}
}

// Follow names the relay that appends are handed to from now on, by its Peer; "" has
// them appended here. It is called again and again while that relay is heard: after it
// could not be reached, it is tried again with the next call.
func (l *Log) Follow(peer string) {
	if l.opts.Peers == nil {
		return
	}
	key, addresses, err := parsePeer(peer)
	now := l.leader.Load()
	switch {
	case err != nil || key == l.opts.Peers.key:
		now = nil
	case now == nil || now.peer != peer:
		transport := &http.Transport{
			TLSClientConfig: l.opts.Peers.tls(func(k string) bool { return k == key }), DialContext: (&net.Dialer{Timeout: probeTime}).DialContext,
			TLSHandshakeTimeout: probeTime, MaxIdleConnsPerHost: maxHanded, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: 8 << 10,
		}
		now = &leader{peer: peer, addresses: addresses, client: &http.Client{
			Transport: transport,
			// What is handed over goes to nobody else.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}}
	}
	if old := l.leader.Swap(now); old != nil {
		l.leave(old)
	}
	if now == nil {
		return
	}
	now.mu.Lock()
	defer now.mu.Unlock()
	if now.url == "" && !now.probing && l.life.Err() == nil {
		now.probing = true
		go func() {
			now.probe(l.life, l.opts.Fleet)
			l.leave(now)
			l.queue.signal()
		}()
	}
}

// leave closes the connections to a relay that is followed no more.
func (l *Log) leave(p *leader) {
	if l.leader.Load() != p {
		p.client.CloseIdleConnections()
	}
}

// probe looks for an address at which the relay takes appends of a fleet.
func (p *leader) probe(ctx context.Context, fleet string) {
	found := ""
	for _, a := range p.addresses {
		ctx, cancel := context.WithTimeout(ctx, probeTime)
		url := "https://" + a + "/" + fleet
		_, err := p.ask(ctx, http.MethodGet, url, nil, 0)
		cancel()
		if err == nil {
			found = url
			break
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.url, p.probing = found, false
}

// ask sends a request; its answer has exactly size bytes.
func (p *leader) ask(ctx context.Context, method, url string, body []byte, size int) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, int64(size)+300))
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s: %q", resp.Status, answer)
	case len(answer) != size:
		return nil, fmt.Errorf("it answers %d bytes where %d are due", len(answer), size)
	}
	return answer, nil
}

// at is where appends are handed to, "" if they are not.
func (p *leader) at() string {
	if p == nil {
		return ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.url
}

// lost notes that it does not answer as it should.
func (p *leader) lost() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.url = ""
}

// handed is what became of a batch that another relay was given.
type handed struct {
	batch   []*request
	written []byte // 1 for each that it says it has written
	err     error
}

// handOver sends the other relay what of a batch stands here. The rest is returned: it
// is refused here, or waits for what is not here yet. Called by the committer.
func (l *Log) handOver(p *leader, at string, batch []*request) (rest []*request) {
	var sent []*request
	for _, r := range batch {
		switch {
		case r.given.Load():
		case l.stands(r):
			r.handed = true
			sent = append(sent, r)
		default:
			rest = append(rest, r)
		}
	}
	if len(sent) == 0 {
		return rest
	}
	l.await(sent)
	l.onTheirWay++
	body := encodeHanded(sent)
	l.work.Go(func() {
		ctx, cancel := context.WithTimeout(l.life, l.opts.Deadline)
		defer cancel()
		h := handed{batch: sent}
		if h.written, h.err = p.ask(ctx, http.MethodPost, at, body, len(sent)); h.err != nil {
			p.lost()
		}
		l.leave(p)
		select {
		case l.back <- h:
		case <-l.life.Done():
		}
	})
	return rest
}

// stands reports whether what r expects is as it is here. Then it is recorded now or
// later, or, as revisions never go back, never will be, wherever that is tried.
func (l *Log) stands(r *request) bool {
	for _, e := range r.a.Expect {
		revision, _, err := l.replica.Head(e.Stream)
		if err != nil || revision != e.Revision {
			return false
		}
	}
	return true
}

// takeBack takes what another relay has answered. Called by the committer.
func (l *Log) takeBack(h handed) {
	l.onTheirWay--
	if h.err != nil && l.life.Err() == nil {
		l.opts.Logger.Info("the relay on duty takes no appends; they are appended here", "stream", l.cluster.stream, "error", h.err)
	}
	var rest []*request
	for i, r := range h.batch {
		switch {
		case r.answered:
		case r.given.Load():
			l.forget(r)
		case h.err == nil && h.written[i] == 1:
			r.due = time.Now().Add(l.opts.Deadline)
			l.unseen = append(l.unseen, r)
		default:
			rest = append(rest, r)
		}
	}
	if len(rest) > 0 {
		l.settle(rest, true)
	}
}

// lookForHanded looks in the stream for what another relay says it has written, and
// appends what does not come. Called by the committer.
func (l *Log) lookForHanded() {
	gone := func(r *request) bool {
		if !r.answered && r.given.Load() {
			l.forget(r)
			return true
		}
		return r.answered
	}
	l.unseen = slices.DeleteFunc(l.unseen, gone)
	if len(l.unseen) == 0 {
		return
	}
	if err := l.catchUp(l.life); isFinal(err) {
		l.fail(err)
		return
	}
	var late []*request
	now := time.Now()
	l.unseen = slices.DeleteFunc(l.unseen, func(r *request) bool {
		if !gone(r) && now.After(r.due) {
			late = append(late, r)
			return true
		}
		return r.answered || r.given.Load()
	})
	if len(late) > 0 {
		l.opts.Logger.Info("what the relay on duty says it has written is not there; it is appended here", "stream", l.cluster.stream, "appends", len(late))
		l.settle(late, true)
	}
}

// unknown is what the caller is told of an error that only this relay has: what another
// was given may be written there.
func (r *request) unknown(err error) error {
	if !r.handed {
		return err
	}
	return fmt.Errorf("%w: the relay on duty was given it, and here: %w", events.ErrUnavailable, err)
}
