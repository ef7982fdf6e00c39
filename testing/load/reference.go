package load

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json" // part of what the reference is: see Reference
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/go-chi/chi/v5"
)

// Reference is the bare ceiling: the least that records events durably behind
// the same path. A chi handler decodes each event with encoding/json; one
// committer takes the requests that wait, writes position -> event for all of
// them in one Pebble batch, commits it synced, and answers. It knows no callers,
// conditions, retries or proofs.
type Reference struct {
	db    *pebble.DB
	queue chan *write
	done  chan struct{} // closed when the committer ended
	last  atomic.Uint64 // the newest durable position
}

// write is one request on its way to the committer.
type write struct {
	values [][]byte
	first  uint64 // position of the first; set by the committer
	done   chan error
}

// maxGroup is how many requests are committed together at most.
const maxGroup = 1000

// OpenReference opens a reference with an empty directory.
func OpenReference(dir string) (*Reference, error) {
	db, err := pebble.Open(dir, &pebble.Options{
		// The engine's own settings, so that the difference is not in these.
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                64 << 20,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       20,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 2 },
		ErrorIfExists:               true,
		Logger:                      quietLogger{},
	})
	if err != nil {
		return nil, fmt.Errorf("open the reference in %s: %w", dir, err)
	}
	r := &Reference{db: db, queue: make(chan *write, maxGroup), done: make(chan struct{})}
	go r.commit()
	return r, nil
}

// Close closes the reference; its handler must not be in use any more.
func (r *Reference) Close() error {
	close(r.queue)
	<-r.done
	return r.db.Close()
}

// Handler serves POST /v1/events, a bare fleet's paths and, for the length of the
// log, GET /v1/limits.
func (r *Reference) Handler() http.Handler {
	router := chi.NewRouter()
	router.Post("/v1/events", r.post)
	f := &referenceFleet{Reference: r, offers: map[string]chan string{}}
	router.Get("/v1/machines/{id}/offers", f.follow)
	router.Post("/v1/tasks", f.submit)
	router.Post("/v1/tasks/{id}/claim", f.record)
	router.Post("/v1/tasks/{id}/attempts/{n}/report", f.record)
	router.Get("/v1/limits", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Ledger-Position", strconv.FormatUint(r.last.Load(), 10))
		_, _ = io.WriteString(w, "{}\n") // a reader that went away does not matter
	})
	return router
}

// event is the part of a CloudEvent that the reference looks at.
type event struct {
	SpecVersion string          `json:"specversion"`
	ID          string          `json:"id"`
	Source      string          `json:"source"`
	Type        string          `json:"type"`
	Subject     string          `json:"subject"`
	Time        string          `json:"time"`
	ContentType string          `json:"datacontenttype"`
	Data        json.RawMessage `json:"data"`
}

func (e *event) check() error {
	if e.SpecVersion != "1.0" || e.ID == "" || e.Source == "" || e.Type == "" || e.Subject == "" {
		return errors.New("not a CloudEvent 1.0 with a subject")
	}
	return nil
}

func (r *Reference) post(w http.ResponseWriter, req *http.Request) {
	body, err := readBody(req)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	wr := &write{done: make(chan error, 1)}
	kind, _, _ := mime.ParseMediaType(req.Header.Get("Content-Type"))
	switch kind {
	case "application/cloudevents+json":
		var e event
		err = errors.Join(json.Unmarshal(body, &e), e.check())
		wr.values = [][]byte{body}
	case "application/cloudevents-batch+json":
		wr.values, err = decodeBatch(body)
	default:
		err = fmt.Errorf("Content-Type %q is not that of CloudEvents in JSON", kind)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.queue <- wr
	if err := <-wr.done; err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	_, _ = w.Write(wr.receipts(kind)) // a reader that went away does not matter
}

// maxBody bounds a request, as the product does.
const maxBody = 1 << 20

func readBody(req *http.Request) ([]byte, error) {
	if n := req.ContentLength; n < 0 || n > maxBody {
		return nil, fmt.Errorf("Content-Length must be 0 to %d", maxBody)
	}
	body := make([]byte, req.ContentLength)
	_, err := io.ReadFull(req.Body, body)
	return body, err
}

// decodeBatch decodes an array of events and returns the bytes of each.
func decodeBatch(body []byte) ([][]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(body))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return nil, errors.Join(err, errors.New("a batch is an array"))
	}
	var values [][]byte
	for dec.More() {
		begin := dec.InputOffset()
		var e event
		if err := dec.Decode(&e); err != nil {
			return nil, err
		}
		if err := e.check(); err != nil {
			return nil, err
		}
		values = append(values, bytes.TrimLeft(body[begin:dec.InputOffset()], ", \t\r\n"))
	}
	_, err := dec.Token()
	return values, err
}

func (w *write) receipts(kind string) []byte {
	b := make([]byte, 0, 64+32*len(w.values))
	if kind == "application/cloudevents+json" {
		return fmt.Appendf(b, `{"receipt":{"position":%d}}`+"\n", w.first)
	}
	b = append(b, `{"receipts":[`...)
	for i := range w.values {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"position":`...)
		b = strconv.AppendUint(b, w.first+uint64(i), 10)
		b = append(b, '}')
	}
	return append(b, "]}\n"...)
}

// commit is the committer: it alone writes.
func (r *Reference) commit() {
	defer close(r.done)
	batch := r.db.NewBatch()
	defer func() { _ = batch.Close() }() // it holds nothing uncommitted
	group := make([]*write, 0, maxGroup)
	last := uint64(0)
	for w := range r.queue {
		group = r.waiting(append(group[:0], w))
		batch.Reset()
		var err error
		for _, w := range group {
			w.first = last + 1
			for _, v := range w.values {
				last++
				err = errors.Join(err, batch.Set(binary.BigEndian.AppendUint64(nil, last), v, nil))
			}
		}
		if err == nil {
			err = batch.Commit(pebble.Sync)
		}
		if err == nil {
			r.last.Store(last)
		}
		for _, w := range group {
			w.done <- err
		}
	}
}

// waiting adds to group the writes that wait now.
func (r *Reference) waiting(group []*write) []*write {
	for len(group) < maxGroup {
		select {
		case w, ok := <-r.queue:
			if !ok {
				return group
			}
			group = append(group, w)
		default:
			return group
		}
	}
	return group
}

// quietLogger leaves out what Pebble tells of its work.
type quietLogger struct{}

func (quietLogger) Infof(string, ...any) {}

func (quietLogger) Errorf(format string, args ...any) { log.Printf("Pebble: "+format, args...) }

// Fatalf ends the process: past it Pebble would acknowledge what is not on disk.
func (quietLogger) Fatalf(format string, args ...any) { log.Fatalf("Pebble: "+format, args...) }

// ServeReference serves a reference with an empty directory until ctx ends. Once
// ready it prints, like the product, "listening on http://HOST:PORT".
func ServeReference(ctx context.Context, dir, listen string, stdout io.Writer) error {
	ref, err := OpenReference(dir)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return errors.Join(err, ref.Close())
	}
	server := &http.Server{Handler: ref.Handler(), ReadHeaderTimeout: 10 * time.Second}
	stopped := make(chan error, 1)
	go func() { stopped <- server.Serve(listener) }()
	_, err = fmt.Fprintf(stdout, "listening on http://%s\n", listener.Addr())
	select {
	case <-ctx.Done():
		err = errors.Join(err, server.Shutdown(context.WithoutCancel(ctx)))
		<-stopped
	case served := <-stopped:
		err = errors.Join(err, served)
	}
	return errors.Join(err, ref.Close())
}
