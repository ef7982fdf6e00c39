package load

import (
	"encoding/json" // as in Reference
	"fmt"
	"net/http"
	"sync"

	"github.com/go-chi/chi/v5"
)

// referenceFleet is the least that hands tasks to waiting agents durably: what a
// request says is committed as it came, its answer written, and an offer passed
// to the streams of the machines that it names. It knows no callers, leases or
// verdicts, keeps nothing of a task, and offers nothing again.
type referenceFleet struct {
	*Reference

	mu     sync.Mutex
	offers map[string]chan string // by machine; guarded by mu
}

// referenceBacklog is how many offers wait for a stream at most.
const referenceBacklog = 1 << 10

func (f *referenceFleet) stream(machine string) chan string {
	f.mu.Lock()
	defer f.mu.Unlock()
	c := f.offers[machine]
	if c == nil {
		c = make(chan string, referenceBacklog)
		f.offers[machine] = c
	}
	return c
}

func (f *referenceFleet) follow(w http.ResponseWriter, r *http.Request) {
	offers := f.stream(chi.URLParam(r, "id"))
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	_, err := fmt.Fprint(w, "retry: 1000\n\n")
	for err == nil {
		if err = rc.Flush(); err != nil {
			return
		}
		select {
		case id := <-offers:
			_, err = fmt.Fprintf(w, "event: offer\ndata: {\"task_id\":%q,\"argv\":[\"echo\",\"ok\"]}\n\n", id)
		case <-r.Context().Done():
			return
		}
	}
}

// store commits a body and returns its position.
func (f *referenceFleet) store(r *http.Request, into any) (uint64, error) {
	body, err := readBody(r)
	if err != nil {
		return 0, err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return 0, err
	}
	wr := &write{values: [][]byte{body}, done: make(chan error, 1)}
	f.queue <- wr
	err = <-wr.done
	return wr.first, err
}

func (f *referenceFleet) submit(w http.ResponseWriter, r *http.Request) {
	var task struct {
		Targets []string `json:"targets"`
	}
	position, err := f.store(r, &task)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	id := fmt.Sprint(position)
	for _, m := range task.Targets {
		select {
		case f.stream(m) <- id:
		default:
			http.Error(w, m+" has too many offers", http.StatusServiceUnavailable)
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"task_id":%q}`, id)
}

// record takes claims and reports.
func (f *referenceFleet) record(w http.ResponseWriter, r *http.Request) {
	var body struct{}
	position, err := f.store(r, &body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"receipt":{"position":%d}}`, position)
}
