package load

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fleetledger/agent"
)

// forgetful is a relay of which only /v1/events is there. What it does with an
// event is up to a test.
func forgetful(t *testing.T, keep func(id string, next int) (listed []string, position int)) *Soak {
	var lines []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/events", func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		_, rest, _ := strings.Cut(string(b), `"name":"`)
		name, _, _ := strings.Cut(rest, `"`)
		listed, position := keep(name, len(lines)+1)
		for _, id := range listed {
			lines = append(lines, fmt.Sprintf(`{"position":%d,"id":%q,"type":"ext.soak.done","stream":"ext-soak","data":{"name":%q}}`, len(lines)+1, id, name))
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"receipt":{"position":%d,"event_id":%q}}`, position, name)
	})
	mux.HandleFunc("GET /v1/events", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"items":[%s]}`, strings.Join(lines, ","))
	})
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	c, err := agent.NewClient(srv.URL, "token")
	if err != nil {
		t.Fatal(err)
	}
	return &Soak{Root: c, Worker: c, acked: map[string]uint64{}}
}

// never is a source whose numbers are as high as can be, so that nothing is made
// again on purpose.
type never struct{}

func (never) Uint64() uint64 { return ^uint64(0) }

func TestSoakFindsWhatIsWrong(t *testing.T) {
	type findings struct{ missing, doubled bool }
	nothing := findings{}
	for name, c := range map[string]struct {
		keep func(id string, next int) ([]string, int)
		want findings
	}{
		"kept":              {func(id string, next int) ([]string, int) { return []string{id}, next }, nothing},
		"lost":              {func(id string, next int) ([]string, int) { return nil, next }, findings{missing: true}},
		"elsewhere":         {func(id string, next int) ([]string, int) { return []string{id}, next + 5 }, findings{missing: true}},
		"recorded twice":    {func(id string, next int) ([]string, int) { return []string{id, id + "-again"}, next }, findings{doubled: true}},
		"one id, two times": {func(id string, next int) ([]string, int) { return []string{id, id}, next + 1 }, findings{doubled: true}},
	} {
		t.Run(name, func(t *testing.T) {
			s := forgetful(t, c.keep)
			random := rand.New(never{})
			for i := range 3 {
				if err := s.event(t.Context(), random, fmt.Sprintf("e%d", i)); err != nil {
					t.Fatal(err)
				}
			}
			got, err := s.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if len(got.Missing) > 0 != c.want.missing || len(got.Doubled) > 0 != c.want.doubled || got.OK() != (c.want == nothing) {
				t.Errorf("%+v", got)
			}
		})
	}
}
