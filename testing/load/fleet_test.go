package load

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"time"
)

// A fleet on the reference: every task settled, every offer arrived once.
func TestFleetOnReference(t *testing.T) {
	ref, err := OpenReference(filepath.Join(t.TempDir(), "ref"))
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(ref.Handler())
	defer func() {
		srv.Close()
		if err := ref.Close(); err != nil {
			t.Error(err)
		}
	}()
	f, err := NewFleet(t.Context(), Target{Addr: srv.Listener.Addr().String()}, 120)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Connect(); err != nil {
		t.Fatal(err)
	}
	settled, err := f.Settle(16, 50*time.Millisecond, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if settled.Count == 0 || settled.PerSecond <= 0 || settled.MaxMS < settled.P99ms || settled.P99ms < settled.P50ms {
		t.Errorf("settled: %+v", settled)
	}
	offers, err := f.Offers(500 * time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if offers.Count != 60 {
		t.Errorf("120 agents at one offer a second had %d in half a second", offers.Count)
	}
}

// An offer that comes twice, or was made to nobody, fails the measurement.
func TestFleetSeesWrongOffers(t *testing.T) {
	for name, offered := range map[string][]string{"twice": {"7", "7"}, "another task's": {"8"}} {
		t.Run(name, func(t *testing.T) {
			offers := make(chan string, 2)
			mux := http.NewServeMux()
			mux.HandleFunc("GET /v1/machines/bench-1/offers", func(w http.ResponseWriter, r *http.Request) {
				for {
					_ = http.NewResponseController(w).Flush()
					select {
					case id := <-offers:
						fmt.Fprintf(w, "data: {\"task_id\":%q}\n\n", id)
					case <-r.Context().Done():
						return
					}
				}
			})
			mux.HandleFunc("POST /v1/tasks", func(w http.ResponseWriter, r *http.Request) {
				for _, id := range offered {
					offers <- id
				}
				w.WriteHeader(http.StatusCreated)
				fmt.Fprint(w, `{"task_id":"7"}`)
			})
			srv := httptest.NewServer(mux)
			defer srv.Close()
			fleet, err := NewFleet(t.Context(), Target{Addr: srv.Listener.Addr().String()}, 1)
			if err != nil {
				t.Fatal(err)
			}
			defer fleet.Close()
			if err := fleet.Connect(); err != nil {
				t.Fatal(err)
			}
			if got, err := fleet.Offers(500 * time.Millisecond); err == nil {
				t.Errorf("measured %+v", got)
			}
		})
	}
}
