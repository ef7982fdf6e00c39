package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"fleetledger/testing/kurrentstub"
)

// relayProcess is a relay of a cluster, as a process.
type relayProcess struct {
	dir, name, engine string
	out               string // the file with what it printed
	cmd               *exec.Cmd
	url               atomic.Pointer[string]
}

func (r *relayProcess) start(t *testing.T) {
	t.Helper()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	r.out = filepath.Join(t.TempDir(), "out")
	f, err := os.Create(r.out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r.cmd = exec.Command(me)
	// By this name the test binary is the program; see TestMain.
	r.cmd.Args = []string{"fleetledger", "serve", "--data", r.dir, "--listen", "127.0.0.1:0", "--relay", r.name}
	r.cmd.Env = append(os.Environ(), envEngine+"="+r.engine)
	r.cmd.Stdout, r.cmd.Stderr = f, f
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	listening := regexp.MustCompile(`(?m)^listening on (\S+)$`)
	for limit := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		b, err := os.ReadFile(r.out)
		if err != nil {
			t.Fatal(err)
		}
		if m := listening.FindSubmatch(b); m != nil {
			url := string(m[1])
			r.url.Store(&url)
			return
		}
		if time.Now().After(limit) {
			r.kill()
			t.Fatalf("relay %s does not listen:\n%s", r.name, b)
		}
	}
}

func (r *relayProcess) kill() {
	_ = r.cmd.Process.Kill() // it may have ended
	_ = r.cmd.Wait()
}

// command runs the program as a client of the relay, and returns its stdout.
func (r *relayProcess) command(t *testing.T, tokenFile string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(r.cmd.Path)
	cmd.Args = append([]string{"fleetledger"}, append(args, "--server", *r.url.Load(), "--token-file", tokenFile)...)
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return string(failed.Stderr), err
	}
	return string(out), err
}

// ask sends a request to a relay; an answer that tells nothing is an error.
func (r *relayProcess) ask(ctx context.Context, token, method, path, key string, body []byte) (status int, answer []byte, err error) {
	return r.send(ctx, token, method, path, "application/cloudevents+json", key, body)
}

func (r *relayProcess) send(ctx context.Context, token, method, path, media, key string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, *r.url.Load()+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
		req.Header.Set("Content-Type", media)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		return 0, nil, err
	}
	if resp.StatusCode >= 500 {
		return 0, nil, fmt.Errorf("%d: %s", resp.StatusCode, answer)
	}
	return resp.StatusCode, answer, nil
}

// TestRelaysUnderLoad has two, then three relays on a cluster that misbehaves, with
// writers that send a request again, at any relay, until it is answered. The relay that
// has the duty is killed in the middle, and comes back. Nothing acknowledged is lost or
// there twice, each contested revision has one winner, and every relay's log and
// projections are the same.
func TestRelaysUnderLoad(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("it takes long, and kills")
	}
	lasts := 5 * time.Second
	if os.Getenv("FLEETLEDGER_LONG") != "" {
		lasts = 20 * time.Second
	}
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) { relaysUnderLoad(t, n, lasts) })
	}
}

func relaysUnderLoad(t *testing.T, n int, lasts time.Duration) {
	c, err := kurrentstub.Start(kurrentstub.Options{Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Stop()
	dir := t.TempDir()
	var relays []*relayProcess
	for i := range n {
		r := &relayProcess{dir: filepath.Join(dir, fmt.Sprint(i)), name: fmt.Sprint("relay-", i), engine: c.ConnectionString()}
		r.start(t)
		defer func() { r.kill() }()
		relays = append(relays, r)
	}
	secret, err := os.ReadFile(rootTokenFile(relays[0].dir, defaultFleet))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimSpace(string(secret))
	c.Misbehave(kurrentstub.Faults{Seed: uint64(n), DropAfterWrite: 0.02, Reset: 0.02, Stall: 0.01, StallFor: 500 * time.Millisecond,
		NotLeader: 0.02, Early: 0.02, Unknown: 0.02, Lag: 0.02})

	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var (
		mu       sync.Mutex
		acked    = map[string]uint64{} // position by event id
		wins     = map[int]int{}       // by contested revision
		repeated atomic.Int64
		writers  sync.WaitGroup
	)
	// record sends one event until it is answered; won is false for a conflict.
	record := func(writer int, id, stream string, expected int) (won bool, err error) {
		body := fmt.Appendf(nil, `{"specversion":"1.0","id":%q,"source":"test","type":"ext.load","subject":%q,"expectedrevision":%d,"data":{"n":%d}}`,
			id, stream, expected, writer)
		for try := 0; ; try++ {
			status, answer, err := relays[(writer+try)%n].ask(t.Context(), token, "POST", "/v1/events", uuid.NewSHA1(uuid.Nil, []byte(id)).String(), body)
			switch {
			case err != nil && try < 200:
				repeated.Add(1)
				time.Sleep(20 * time.Millisecond) // the relay may be dead
				continue
			case err != nil:
				return false, err
			case status == http.StatusConflict && bytes.Contains(answer, []byte("REVISION_CONFLICT")):
				return false, nil
			case status >= 400:
				return false, fmt.Errorf("%d: %s", status, answer)
			}
			var out struct {
				Receipt struct {
					Position uint64 `json:"position"`
				} `json:"receipt"`
			}
			if err := json.Unmarshal(answer, &out); err != nil {
				return false, err
			}
			mu.Lock()
			defer mu.Unlock()
			acked[id] = out.Receipt.Position
			return true, nil
		}
	}
	for w := range 3 * n {
		writers.Go(func() { // a stream of its own
			for i := 0; ctx.Err() == nil; i++ {
				if won, err := record(w, fmt.Sprintf("own-%d-%d", w, i), fmt.Sprint("ext-own-", w), i); err != nil || !won {
					t.Errorf("writer %d, event %d of its own stream: won %t, %v", w, i, won, err)
					return
				}
			}
		})
	}
	for w := range n {
		writers.Go(func() { // a stream that all want
			for i := 0; ctx.Err() == nil; i++ {
				won, err := record(w, fmt.Sprintf("contested-%d-%d", w, i), "ext-contested", i)
				if err != nil {
					t.Error(err)
					return
				}
				if won {
					mu.Lock()
					wins[i]++
					mu.Unlock()
				}
			}
		})
	}
	time.Sleep(lasts / 3)
	relays[0].kill()
	time.Sleep(lasts / 3)
	relays[0].start(t)
	writers.Wait()
	met := c.Done()
	c.Misbehave(kurrentstub.Faults{})
	if t.Failed() {
		return
	}

	// Whoever writes last has every relay wait for it.
	if _, err := record(0, "the-last", "ext-last", 0); err != nil {
		t.Fatal(err)
	}
	rounds := 0
	for i, wins := range wins {
		if rounds = max(rounds, i+1); wins != 1 {
			t.Errorf("revision %d of the contested stream has %d winners", i, wins)
		}
	}
	if len(wins) != rounds {
		t.Errorf("%d of %d revisions of the contested stream have a winner that was told so", len(wins), rounds)
	}
	logs := map[string]bool{}
	for _, r := range relays {
		ids, text := r.readAll(t, token, acked["the-last"])
		for id, p := range acked {
			if len(ids[id]) != 1 || ids[id][0] != p {
				t.Errorf("%s: event %s was acknowledged at %d, and is at %v", r.name, id, p, ids[id])
			}
		}
		logs[text] = true
		if out, err := r.command(t, rootTokenFile(relays[0].dir, defaultFleet), "audit"); err != nil || !strings.HasPrefix(out, "ok") {
			t.Errorf("%s: audit: %v\n%s", r.name, err, out)
		}
	}
	if len(logs) != 1 {
		t.Errorf("the relays hold %d different logs", len(logs))
	}
	t.Logf("%d relays for %s: %d events acknowledged, %d contested revisions, %d requests repeated; met %v", n, lasts, len(acked), rounds, repeated.Load(), met)
}

// readAll reads a relay's whole log, up to a position at least: where each id lies, and
// all of it as text.
func (r *relayProcess) readAll(t *testing.T, token string, upTo uint64) (ids map[string][]uint64, text string) {
	t.Helper()
	ids = map[string][]uint64{}
	var all strings.Builder
	for after := uint64(0); after < upTo; {
		status, answer, err := r.ask(t.Context(), token, "GET", fmt.Sprintf("/v1/events?after=%d&limit=1000&min_position=%d", after, upTo), "", nil)
		if err != nil || status != http.StatusOK {
			t.Fatalf("%s: read after %d: %d %s, %v", r.name, after, status, answer, err)
		}
		var page struct {
			Items []struct {
				Position uint64 `json:"position"`
				ID       string `json:"id"`
				Leaf     string `json:"leaf_hash"`
			} `json:"items"`
		}
		if err := json.Unmarshal(answer, &page); err != nil {
			t.Fatal(err)
		}
		if len(page.Items) == 0 {
			t.Fatal(errors.New("the log ends before what was acknowledged"))
		}
		for _, e := range page.Items {
			if e.Position != after+1 {
				t.Fatalf("%s: position %d comes after %d", r.name, e.Position, after)
			}
			after = e.Position
			ids[e.ID] = append(ids[e.ID], e.Position)
			if after <= upTo {
				fmt.Fprintln(&all, e.Position, e.ID, e.Leaf)
			}
		}
	}
	return ids, all.String()
}
