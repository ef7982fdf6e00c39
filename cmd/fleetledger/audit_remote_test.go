package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"fleetledger/agent"
	"fleetledger/commands/audit"
	"fleetledger/events"
)

// startServer serves a data directory until the test ends or stop is called.
func startServer(t *testing.T, data string) (address string, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	read, write := io.Pipe()
	ended := make(chan int, 1)
	var told bytes.Buffer
	go func() {
		ended <- run(ctx, []string{"serve", "--data", data, "--listen", "127.0.0.1:0"}, nil, write, &told)
		write.Close()
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	address, ok := strings.CutPrefix(strings.TrimSpace(line), "listening on ")
	if err != nil || !ok {
		cancel()
		t.Fatalf("serve: %q, %v, exit code %d: %s", line, err, <-ended, told.String())
	}
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if code := <-ended; code != 0 {
				t.Errorf("serve ended with exit code %d: %s", code, told.String())
			}
		}
	}
	t.Cleanup(stop)
	return address, stop
}

// note appends so many events of one's own.
func notes(t *testing.T, data, address, text string, n int) {
	t.Helper()
	token, err := os.ReadFile(filepath.Join(data, rootTokenName))
	if err != nil {
		t.Fatal(err)
	}
	c, err := agent.NewClient(address, strings.TrimSpace(string(token)))
	if err != nil {
		t.Fatal(err)
	}
	var batch []map[string]any
	for i := range n {
		batch = append(batch, map[string]any{"specversion": "1.0", "id": fmt.Sprintf("%s-%d", text, i), "source": "test", "type": "ext.note.taken",
			"subject": "ext-notes", "data": map[string]any{"text": text}})
	}
	if _, err := c.Do(t.Context(), agent.Request{Method: http.MethodPost, Path: "/v1/events", Body: batch, ContentType: "application/cloudevents-batch+json"}); err != nil {
		t.Fatal(err)
	}
}

// liar is a server between an auditor and an honest one.
type liar struct {
	change func(path string, body []byte) []byte
	before func(path string) // is called when something is asked for
	stall  string            // what is asked for here is never answered
	cut    string            // the connection breaks in the middle of this
}

func (l liar) serve(t *testing.T, honest string) string {
	t.Helper()
	u, err := url.Parse(honest)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(u)
	proxy.ErrorLog = log.New(io.Discard, "", 0)
	proxy.ModifyResponse = func(resp *http.Response) error {
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			return err
		}
		resp.Body.Close()
		if l.change != nil && resp.StatusCode == http.StatusOK {
			body = l.change(resp.Request.URL.RequestURI(), body)
		}
		resp.Body = io.NopCloser(bytes.NewReader(body))
		resp.ContentLength = int64(len(body))
		resp.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.before != nil {
			l.before(r.URL.RequestURI())
		}
		switch {
		case l.stall != "" && strings.Contains(r.URL.RequestURI(), l.stall):
			<-r.Context().Done()
		case l.cut != "" && strings.Contains(r.URL.RequestURI(), l.cut):
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("half of it"))
		default:
			proxy.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// TestServerThatLies: an auditor who has a key, and a checkpoint of yesterday, names
// what a server tells otherwise than it was recorded.
func TestServerThatLies(t *testing.T) {
	data, fork := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "fork")
	_, stop := startServer(t, data)
	stop()
	if err := os.CopyFS(fork, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	address, _ := startServer(t, data)
	forked, _ := startServer(t, fork)
	token := []string{"--token-file", filepath.Join(data, rootTokenName)}
	ask := func(server string, args ...string) (string, int) {
		t.Helper()
		var out, told bytes.Buffer
		code := run(t.Context(), slices.Concat(args, []string{"--server", server}, token), nil, &out, &told)
		if code == exitMisuse {
			t.Fatalf("%q: %s", args, told.String())
		}
		return out.String() + told.String(), code
	}
	kept := func(name, server string) string {
		t.Helper()
		text, code := ask(server, "checkpoint")
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil || code != 0 {
			t.Fatal(text, err)
		}
		return name
	}
	notes(t, data, address, "yesterday", 200)
	notes(t, fork, forked, "otherwise", 200)
	early := kept("early", address)
	earlyText, err := os.ReadFile(early)
	if err != nil {
		t.Fatal(err)
	}
	notes(t, data, address, "today", 400)
	notes(t, fork, forked, "otherwise", 400)
	late := kept("late", address)
	key, _ := ask(address, "checkpoint", "--key")
	key = strings.TrimSpace(key)

	in := func(part string, change func([]byte) []byte) liar {
		return liar{change: func(path string, body []byte) []byte {
			if strings.Contains(path, part) {
				return change(bytes.Clone(body))
			}
			return body
		}}
	}
	flip := func(at int) func([]byte) []byte {
		return func(b []byte) []byte { b[at] ^= 1; return b }
	}
	replace := func(old, new string) func([]byte) []byte {
		return func(b []byte) []byte {
			if !bytes.Contains(b, []byte(old)) {
				t.Errorf("there is no %q to change", old)
			}
			return bytes.Replace(b, []byte(old), []byte(new), 1)
		}
	}
	for what, c := range map[string]struct {
		server   string
		liar     liar
		against  string
		kind     string // of the finding; none if it is honest
		position events.Position
	}{
		"honest":            {address, liar{}, early, "", 0},
		"honest, no growth": {address, liar{}, late, "", 0},
		"a payload": {address, in("/v1/payloads?after=256", func(b []byte) []byte {
			return bytes.Replace(b, []byte("today"), []byte("todaz"), 1)
		}), early, audit.Payload, 257},
		"a payload for another": {address, in("/v1/payloads?after=256", replace(`{"position":257`, `{"position":258`)), early, audit.Unreadable, 257},
		"erased, says it": {address, in("/v1/payloads?after=256", func(b []byte) []byte {
			_, rest, _ := bytes.Cut(b, []byte("\n"))
			return append([]byte(`{"position":257,"erased":true}`+"\n"), rest...)
		}), early, audit.Payload, 257},
		"a leaf":        {address, in("/log/tile/entries/001", replace(`"position":259,`, `"position":269,`)), early, audit.Position, 269},
		"a leaf's hash": {address, in("/log/tile/0/001", flip(2*32+5)), early, findingTile, 259},
		"a node":        {address, in("/log/tile/1/000", flip(32+5)), early, findingTile, 257},
		"a shorter log": {address, in("/log/checkpoint", func([]byte) []byte { return earlyText }), late, audit.Checkpoint, 225},
		"another root": {address, in("/log/checkpoint", func(b []byte) []byte {
			lines := strings.Split(string(b), "\n")
			lines[2] = "A" + lines[2][1:]
			if lines[2] == strings.Split(string(b), "\n")[2] {
				lines[2] = "B" + lines[2][1:]
			}
			return []byte(strings.Join(lines, "\n"))
		}), early, audit.Checkpoint, 1},
		"another history":    {forked, liar{}, early, audit.Checkpoint, 1},
		"no answer":          {address, liar{stall: "/v1/payloads?after=256"}, early, audit.Unreadable, 257},
		"half an answer":     {address, liar{cut: "/log/tile/entries/001"}, early, audit.Unreadable, 257},
		"half a bundle":      {address, in("/log/tile/entries/001", func(b []byte) []byte { return b[:len(b)/2] }), early, audit.Unreadable, 0},
		"more than a bundle": {address, in("/log/tile/entries/001", func(b []byte) []byte { return append(b, 0, 0) }), early, audit.Unreadable, 512},
		"no payloads":        {address, in("/v1/payloads?after=512", func([]byte) []byte { return nil }), early, audit.Unreadable, 513},
	} {
		t.Run(what, func(t *testing.T) {
			timeout := "1m"
			if c.liar.stall != "" || c.liar.cut != "" {
				if testing.Short() {
					t.Skip("it waits for the client to give up")
				}
				timeout = "5s" // which a busy server needs for no other answer
			}
			text, code := ask(c.liar.serve(t, c.server), "audit", "--json", "--key", key, "--checkpoint", c.against, "--timeout", timeout)
			var report audit.Report
			if err := json.Unmarshal([]byte(text), &report); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
			if c.kind == "" {
				if !report.OK || code != 0 || report.CheckpointsVerified != 2 || report.Events < 600 || report.DecisionsRederived < 600 {
					t.Errorf("exit code %d: %s", code, text)
				}
				return
			}
			found := slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
				return f.Kind == c.kind && (f.Position == c.position || c.position == 0 && f.Position > 257)
			})
			if report.OK || code != exitFailed || !found {
				t.Errorf("exit code %d, no %s at %d: %s", code, c.kind, c.position, text)
			}
		})
	}
}

// TestErasedWhileItIsRead: a payload that is erased after its header was read is told
// of by an event behind what is audited. One that no such event tells of is found all
// the same.
func TestErasedWhileItIsRead(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	address, _ := startServer(t, data)
	notes(t, data, address, "note", 300)
	token := []string{"--token-file", filepath.Join(data, rootTokenName)}
	ask := func(t *testing.T, server string, args ...string) string {
		var out, told bytes.Buffer
		if code := run(t.Context(), slices.Concat(args, []string{"--server", server}, token), nil, &out, &told); code == exitMisuse || out.Len() == 0 {
			t.Errorf("%q: %s", args, told.String())
		}
		return out.String()
	}
	key := strings.TrimSpace(ask(t, address, "checkpoint", "--key"))
	const read = "/v1/payloads?after=256"
	var first []byte // the checkpoint that the audit begins with
	for i, c := range []struct {
		what   string
		more   int // events that come after the erasure
		change func(path string, body []byte) []byte
		found  bool
	}{
		{"erased", 0, nil, false},
		{"erased, and more came", 600, nil, false},
		{"another payload is withheld too", 0, func(path string, body []byte) []byte {
			if !strings.Contains(path, read) {
				return body
			}
			_, rest, _ := bytes.Cut(body, []byte("\n"))
			return append([]byte(`{"position":257,"erased":true}`+"\n"), rest...)
		}, true},
		{"the event that tells of it says something else", 0, func(_ string, body []byte) []byte {
			return bytes.ReplaceAll(body, []byte("it was leaked 3"), []byte("it was leaked 4"))
		}, true},
		{"the server has no newer checkpoint", 0, func(path string, body []byte) []byte {
			if path != "/log/checkpoint" {
				return body
			}
			if first == nil {
				first = body
			}
			return first
		}, true},
		{"the server has another newer checkpoint", 0, func(path string, body []byte) []byte {
			if path != "/log/checkpoint" || first == nil {
				first = body
				return body
			}
			lines := bytes.SplitAfter(body, []byte("\n"))
			lines[2] = []byte(events.SumHash("another").String()[:43] + "=\n")
			return bytes.Join(lines, nil)
		}, true},
	} {
		t.Run(c.what, func(t *testing.T) {
			first = nil
			id, erased := fmt.Sprintf("note-%d", 250+i), false
			server := liar{change: c.change, before: func(path string) {
				if strings.Contains(path, read) && !erased {
					erased = true
					ask(t, address, "events", "erase", id, "--reason", fmt.Sprintf("it was leaked %d", i))
					if c.more > 0 {
						notes(t, data, address, "more", c.more)
					}
				}
			}}.serve(t, address)
			var report audit.Report
			if text := ask(t, server, "audit", "--json", "--key", key); json.Unmarshal([]byte(text), &report) != nil {
				t.Fatal(text)
			}
			found := slices.ContainsFunc(report.Findings, func(f audit.Finding) bool {
				return f.Kind == audit.Payload || f.Kind == audit.Checkpoint
			})
			if !erased || report.Erased < i+1 || report.OK == c.found || found != c.found {
				t.Errorf("erased meanwhile: %t, got %+v", erased, report)
			}
		})
	}
}
