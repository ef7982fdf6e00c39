package bus

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
)

// What is erased while a destination does not take it is not sent to it any more, and
// what destinations said of it, which may repeat it, is neither shown nor in any file:
// of one that is stuck at it, one that has parked it, and one that is paused.
func TestErasedIsNotRepeated(t *testing.T) {
	f := newFixture(t)
	ctx := context.Background()
	var takes atomic.Bool
	taken := make(chan string, 100)
	destination := func(refusal int) events.Destination {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			b, _ := io.ReadAll(req.Body)
			if refusal == http.StatusServiceUnavailable && takes.Load() {
				taken <- string(b)
				return
			}
			w.WriteHeader(refusal)
			_, _ = w.Write(b[bytes.Index(b, []byte(`"data`)):]) // as validators do
		}))
		t.Cleanup(s.Close)
		return webhook(s.URL)
	}
	f.subscribe(events.Subscription{Name: "stuck", Destination: destination(http.StatusServiceUnavailable), Types: []string{"ext.*"}})
	f.subscribe(events.Subscription{Name: "parks", Destination: destination(http.StatusUnprocessableEntity), Types: []string{"ext.*"}})
	f.subscribe(events.Subscription{Name: "paused", Destination: destination(http.StatusUnprocessableEntity), Types: []string{"ext.*"}})
	ids := f.record("ext.a", "ext-a", 770077, 1)
	for _, name := range []string{"parks", "paused"} {
		f.await(name+" has it parked", func() bool { p := f.status(name).Parked; return len(p) == 1 && strings.Contains(p[0].Reason, "770077") })
	}
	f.await("the other is stuck", func() bool { return strings.Contains(f.status("stuck").Failing, "770077") })
	f.ok(f.ChangeSubscription(ctx, root, commands.ChangeSubscription{Name: "paused", Paused: true}))

	f.ok(f.ErasePayload(ctx, root, commands.ErasePayload{EventID: ids[0], Reason: "leaked"}))
	if err := f.bus.Forget(ctx); err != nil {
		t.Fatal(err)
	}
	held := func(when string) {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(f.dir, "*"))
		if err != nil || len(files) < 4 {
			t.Fatal(files, err)
		}
		for _, name := range files {
			if b, err := os.ReadFile(name); err != nil || bytes.Contains(b, []byte("770077")) {
				t.Errorf("%s: %s: %s (%v)", when, name, b, err)
			}
		}
		for _, name := range []string{"parks", "paused"} {
			if p := f.status(name).Parked; len(p) != 1 || p[0].EventID != ids[0] || p[0].Reason != withheld {
				t.Errorf("%s: %s has parked %+v", when, name, p)
			}
		}
		if s := f.status("stuck"); strings.Contains(s.Failing, "770077") || s.Stuck == 0 {
			t.Errorf("%s: stuck: %+v", when, s)
		}
	}
	held("after the erasure")

	takes.Store(true)
	f.bus.mu.Lock()
	f.bus.running["stuck"].wake()
	f.bus.mu.Unlock()
	got := <-taken
	if strings.Contains(got, "770077") || !strings.Contains(got, `"erased":true`) || !strings.Contains(got, ids[0]) {
		t.Errorf("sent after the erasure: %s", got)
	}

	// What a crash has left is taken out at the next start.
	f.stop()
	names, err := filepath.Glob(filepath.Join(f.dir, "parks-*.json"))
	if err != nil || len(names) != 1 {
		t.Fatal(names, err)
	}
	store, name := Files(f.dir), strings.TrimSuffix(filepath.Base(names[0]), ".json")
	b, _, err := store.Get(ctx, name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Put(ctx, name, bytes.Replace(b, []byte(withheld), []byte("data: 770077"), 1), 0); err != nil {
		t.Fatal(err)
	}
	f.start()
	f.await("it is taken out", func() bool {
		b, err := os.ReadFile(names[0])
		return err == nil && !bytes.Contains(b, []byte("770077"))
	})
}
