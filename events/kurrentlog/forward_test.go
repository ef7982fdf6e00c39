package kurrentlog_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/testing/kurrentstub"
	"fleetledger/testing/logtest"
)

func listenPeers(t testing.TB) *kurrentlog.Peers {
	t.Helper()
	p, err := kurrentlog.ListenPeers("127.0.0.1:0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() }) // it may be closed
	return p
}

// introduce has relays follow the first one, and waits until they do.
func introduce(t testing.TB, first *kurrentlog.Log, others ...*kurrentlog.Log) {
	t.Helper()
	first.Follow("")
	for _, l := range others {
		first.Admit(l.Peer())
	}
	for _, l := range others {
		for limit := time.Now().Add(10 * time.Second); l.FollowedAt() == ""; time.Sleep(2 * time.Millisecond) {
			l.Follow(first.Peer())
			if time.Now().After(limit) {
				t.Fatal("a relay does not reach the one that it follows")
			}
		}
	}
}

// TestHandOver has a relay hand its appends to another: all that Append promises is as
// it is without.
func TestHandOver(t *testing.T) {
	c := start(t, kurrentstub.Options{Nodes: 3})
	dir := t.TempDir()
	a := mustOpen(t, c, filepath.Join(dir, "a"), kurrentlog.Options{Peers: listenPeers(t), Fold: &orderly{t: t}})
	defer mustClose(t, a)
	b := mustOpen(t, c, filepath.Join(dir, "b"), kurrentlog.Options{Peers: listenPeers(t), Fold: &orderly{t: t}})
	defer mustClose(t, b)
	introduce(t, a, b)

	first := keyed(one("s", "e1"), "1")
	done, err := b.Append(t.Context(), first)
	if err != nil || done.First != 1 || len(done.Records) != 1 || b.Durable() < 1 {
		t.Fatalf("%+v, %v", done, err)
	}
	if a.Taken() != 1 {
		t.Fatalf("%d appends were handed over", a.Taken())
	}
	if again, err := b.Append(t.Context(), first); err != nil || !again.Duplicate || again.First != 1 {
		t.Errorf("a retry: %+v, %v", again, err)
	}
	other := keyed(one("s", "e2"), "1")
	other.Request = events.SumHash("another")
	other.Drafts[0].Intent.Request = other.Request
	if _, err := b.Append(t.Context(), other); !errors.As(err, new(*events.KeyMismatchError)) {
		t.Errorf("a key for something else: %v", err)
	}
	if _, err := b.Append(t.Context(), one("s", "e1")); !errors.As(err, new(*events.DuplicateIDError)) {
		t.Errorf("an id that is there: %v", err)
	}
	for _, revision := range []events.Revision{0, 2} { // behind, and ahead
		x := one("s", fmt.Sprint("x", revision))
		x.Expect = []events.Expectation{{Stream: "s", Revision: revision}}
		_, err := b.Append(t.Context(), x)
		if conflict, ok := errors.AsType[*events.ConflictError](err); !ok || conflict.Actual != 1 {
			t.Errorf("expecting revision %d: %v", revision, err)
		}
	}
	late := one("s", "late")
	late.Before = time.Now().Add(-time.Hour)
	if _, err := b.Append(t.Context(), late); !errors.Is(err, events.ErrTooLate) {
		t.Errorf("too late: %v", err)
	}

	// What the other relay knows, and this one not yet, is not decided anew without need.
	before := a.Taken()
	var wg sync.WaitGroup
	for w := range 8 {
		for _, l := range []*kurrentlog.Log{a, b} {
			wg.Go(func() {
				s := events.Stream(fmt.Sprintf("own-%s-%d", l.Peer()[:4], w))
				for i := range 20 {
					x := one(s, fmt.Sprintf("%s-%d", s, i))
					x.Expect = []events.Expectation{{Stream: s, Revision: events.Revision(i)}}
					if done, err := l.Append(t.Context(), x); err != nil || l.Durable() < done.Last {
						t.Errorf("%s, revision %d: %+v, %v", s, i, done, err)
						return
					}
				}
			})
		}
	}
	wg.Wait()
	if n := a.Taken() - before; n < 100 {
		t.Errorf("%d of 160 appends were handed over", n)
	}
	if err := a.Wait(t.Context(), b.Durable()); err != nil {
		t.Fatal(err)
	}
	if n := len(logtest.CheckWhole(t, b)); n != 321 || len(logtest.CheckWhole(t, a)) != n {
		t.Errorf("%d events", n)
	}

	// It stops, and goes on here.
	b.Follow("")
	before = a.Taken()
	if _, err := b.Append(t.Context(), one("s", "alone")); err != nil || a.Taken() != before {
		t.Errorf("without the other relay: %v", err)
	}
}

// TestHandedInVain has the other relay lie, hang, refuse and die: its callers are
// answered all the same, and each event is there once.
func TestHandedInVain(t *testing.T) {
	refused := errors.New("no")
	for name, answer := range map[string]func() error{
		"lies": func() error { return nil }, "refuses": func() error { return refused }, "hangs": nil,
	} {
		t.Run(name, func(t *testing.T) {
			c := start(t, kurrentstub.Options{})
			l := mustOpen(t, c, filepath.Join(t.TempDir(), "a"), kurrentlog.Options{Peers: listenPeers(t), Deadline: 300 * time.Millisecond})
			defer mustClose(t, l)
			p := listenPeers(t)
			defer kurrentlog.Swallow(p, fleet, l.Peer(), answer)()
			for limit := time.Now().Add(10 * time.Second); l.FollowedAt() == ""; time.Sleep(2 * time.Millisecond) {
				if l.Follow(p.String()); time.Now().After(limit) {
					t.Fatal("it is not reached")
				}
			}
			var wg sync.WaitGroup
			for i := range 5 {
				wg.Go(func() {
					a := keyed(one("s", fmt.Sprint("e", i)), fmt.Sprint(i))
					if _, err := l.Append(t.Context(), a); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := len(logtest.CheckWhole(t, l)); n != 5 {
				t.Errorf("%d events", n)
			}
			// Dead, it costs nothing.
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			l.Follow(p.String())
			if _, err := l.Append(t.Context(), one("s", "last")); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestStrangersHandNothingOver has a relay met by those whose key it was not told.
func TestStrangersHandNothingOver(t *testing.T) {
	c := start(t, kurrentstub.Options{})
	dir := t.TempDir()
	a := mustOpen(t, c, filepath.Join(dir, "a"), kurrentlog.Options{Peers: listenPeers(t)})
	defer mustClose(t, a)
	b := mustOpen(t, c, filepath.Join(dir, "b"), kurrentlog.Options{Peers: listenPeers(t)})
	defer mustClose(t, b)
	key, address, _ := strings.Cut(a.Peer(), "@")
	refuses := func(what string, certs ...tls.Certificate) {
		t.Helper()
		conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, Certificates: certs})
		if err == nil {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = fmt.Fprintf(conn, "GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", fleet)
			_, err = io.ReadFull(conn, make([]byte, 12))
		}
		if err == nil {
			t.Errorf("%s is answered", what)
		}
	}
	refuses("nobody")
	plain, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	_ = plain.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = fmt.Fprintf(plain, "GET /%s HTTP/1.1\r\nHost: x\r\n\r\n", fleet)
	if got, _ := io.ReadAll(plain); strings.Contains(string(got), "200 OK") {
		t.Errorf("in the clear it answers %s", got)
	}

	follow := func(peer string) string {
		for range 50 {
			b.Follow(peer)
			time.Sleep(5 * time.Millisecond)
		}
		return b.FollowedAt()
	}
	if at := follow(a.Peer()); at != "" {
		t.Error("a relay that was not heard of is answered")
	}
	a.Admit(b.Peer())
	if at := follow(strings.Replace(a.Peer(), key, strings.Repeat("0", len(key)), 1)); at != "" {
		t.Error("a relay hands over to one that has another key than it was told")
	}
	for _, bad := range []string{"", "x", "@", key, key + "@", key + "@nowhere", strings.Repeat("ab", 32) + "@" + address} {
		if at := follow(bad); at != "" {
			t.Errorf("%q is followed", bad)
		}
	}
	if at := follow(b.Peer()); at != "" {
		t.Error("a relay hands over to itself")
	}
	if at := follow(a.Peer()); at == "" {
		t.Error("a relay that was heard of is not answered")
	}
	if _, err := b.Append(t.Context(), one("s", "e")); err != nil || a.Taken() != 1 {
		t.Errorf("%v, %d handed over", err, a.Taken())
	}
}
