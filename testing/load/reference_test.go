package load

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// stored reads back what a closed reference recorded.
func stored(t *testing.T, dir string) []string {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{ReadOnly: true, Logger: quietLogger{}})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	iter, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer iter.Close()
	var list []string
	for iter.First(); iter.Valid(); iter.Next() {
		if got := binary.BigEndian.Uint64(iter.Key()); got != uint64(len(list)+1) {
			t.Fatalf("position %d after %d", got, len(list))
		}
		list = append(list, string(iter.Value()))
	}
	return list
}

// The generator on the reference: everything acknowledged is on the disk.
func TestReference(t *testing.T) {
	for _, o := range []Options{
		{Clients: 1, Batch: 1, Duration: 200 * time.Millisecond},
		{Clients: 4, Batch: 1, Warmup: 20 * time.Millisecond, Duration: 200 * time.Millisecond},
		{Clients: 4, Batch: 100, Duration: 200 * time.Millisecond},
	} {
		t.Run(fmt.Sprintf("%d clients, %d a request", o.Clients, o.Batch), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ref")
			ref, err := OpenReference(dir)
			if err != nil {
				t.Fatal(err)
			}
			srv := httptest.NewServer(ref.Handler())
			r, err := Append(t.Context(), Target{Addr: srv.Listener.Addr().String()}, o)
			srv.Close()
			if closeErr := ref.Close(); err != nil || closeErr != nil {
				t.Fatal(err, closeErr)
			}
			list := stored(t, dir)
			if len(list) != r.Acknowledged {
				t.Errorf("%d events acknowledged, %d stored", r.Acknowledged, len(list))
			}
			for _, v := range list {
				if len(v) != EventBytes || !strings.HasPrefix(v, idBefore) {
					t.Fatalf("stored %q", v)
				}
			}
		})
	}
}

func TestReferenceRefuses(t *testing.T) {
	ref, err := OpenReference(filepath.Join(t.TempDir(), "ref"))
	if err != nil {
		t.Fatal(err)
	}
	defer ref.Close()
	const one, many = "application/cloudevents+json", "application/cloudevents-batch+json"
	const good = `{"specversion":"1.0","id":"1","source":"/s","type":"t","subject":"s","data":1}`
	for _, c := range []struct {
		kind, body string
		want       int
	}{
		{one, good, 201},
		{one + "; charset=utf-8", good, 201},
		{one, `{"specversion":"1.0","id":"1","source":"/s","type":"t"}`, 400},
		{one, good[1:], 400},
		{one, good + "x", 400},
		{many, "[" + good + ", " + good + "]", 201},
		{many, "[" + good, 400},
		{many, good, 400},
		{many, `[{"id":"1"}]`, 400},
		{many, `[{"id":1}]`, 400},
		{"application/json", good, 400},
	} {
		req := httptest.NewRequest("POST", "/v1/events", strings.NewReader(c.body))
		req.Header.Set("Content-Type", c.kind)
		w := httptest.NewRecorder()
		ref.Handler().ServeHTTP(w, req)
		if w.Code != c.want {
			t.Errorf("%s %s: %d %s, want %d", c.kind, c.body, w.Code, w.Body, c.want)
		}
	}
	req := httptest.NewRequest("POST", "/v1/events", io.MultiReader(strings.NewReader(good))) // of unknown length
	w := httptest.NewRecorder()
	ref.Handler().ServeHTTP(w, req)
	if w.Code != 400 {
		t.Errorf("a body of unknown length: %d", w.Code)
	}
}

func TestReferenceNeedsAnEmptyDirectory(t *testing.T) {
	dir := t.TempDir()
	ref, err := OpenReference(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := ref.Close(); err != nil {
		t.Fatal(err)
	}
	if ref, err := OpenReference(dir); err == nil {
		ref.Close()
		t.Error("opened over what was there")
	}
}

func TestServeReference(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	dir := filepath.Join(t.TempDir(), "ref")
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeReference(ctx, dir, "127.0.0.1:0", in) }()
	var url string
	if _, err := fmt.Fscanf(out, "listening on %s\n", &url); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Get(url + "/v1/limits")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	if resp.StatusCode != 200 || resp.Header.Get("Ledger-Position") != "0" {
		t.Errorf("%s, Ledger-Position %q", resp.Status, resp.Header.Get("Ledger-Position"))
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if list := stored(t, dir); len(list) != 0 {
		t.Errorf("%d events stored", len(list))
	}
	if err := ServeReference(t.Context(), dir+"/2", "127.0.0.1:99999", io.Discard); err == nil {
		t.Error("listened on port 99999")
	}
}

// The tests' own program stands for a server, see TestMain.
func TestProcess(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	start := func(ctx context.Context, mode string) (*Process, error) {
		t.Setenv(modeVariable, mode)
		return Start(ctx, self, filepath.Join(t.TempDir(), "ref"))
	}

	t.Run("serves", func(t *testing.T) {
		p, err := start(t.Context(), "serve")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := readPosition(t.Context(), Target{Addr: p.Addr}); err != nil {
			t.Error(err)
		}
		p.Kill()
		if _, err := readPosition(t.Context(), Target{Addr: p.Addr}); err == nil {
			t.Error("the process still serves after Kill")
		}
	})
	t.Run("explains", func(t *testing.T) {
		p, err := start(t.Context(), "leave")
		if err != nil {
			t.Fatal(err)
		}
		_, lost := readPosition(t.Context(), Target{Addr: p.Addr})
		err = p.Explain(lost)
		if lost == nil || !errors.Is(err, lost) || !strings.Contains(err.Error(), "ended by itself: exit status 1; ") || !strings.HasSuffix(err.Error(), " no disk") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("ends with the context", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p, err := start(ctx, "serve")
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		<-p.exited
	})
	for mode, want := range map[string]string{
		"fail":  "ended before it listened; \nsaid: no disk",
		"other": `printed "hello", not where it listens`,
	} {
		t.Run(mode, func(t *testing.T) {
			_, err := start(t.Context(), mode)
			for part := range strings.Lines(want) {
				if err == nil || !strings.Contains(err.Error(), strings.TrimSpace(part)) {
					t.Errorf("got %v, want an error with %q", err, part)
				}
			}
		})
	}
	if _, err := Start(t.Context(), self+"-missing"); err == nil {
		t.Error("started a program that is not there")
	}
}

const modeVariable = "LOAD_TEST_MODE"

// play is what the tests' program does as a child of itself.
func play(mode string) int {
	switch mode {
	case "serve":
		if err := ServeReference(context.Background(), os.Args[1], "127.0.0.1:0", os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	case "leave":
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		fmt.Fprintln(os.Stderr, "welcome")
		fmt.Printf("listening on http://%s\n", l.Addr())
		_, _ = l.Accept()
		fmt.Fprintln(os.Stderr, "no disk")
	case "fail":
		fmt.Fprintln(os.Stderr, "no disk")
	case "other":
		fmt.Println("hello")
		select {}
	}
	return 1
}

func TestTail(t *testing.T) {
	var tl tail
	for i := range 3 {
		fmt.Fprint(&tl, strings.Repeat(fmt.Sprint(i), tailBytes-10))
	}
	if s := tl.String(); len(s) != tailBytes || !strings.HasPrefix(s, "1111111111"+"2") {
		t.Errorf("kept %d bytes: %.20s...", len(s), s)
	}
}
