// Package witnessstub is a witness of C2SP tlog-witness for tests: it checks and
// remembers as a real one does, on a real connection, and can be told to misbehave.
package witnessstub

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

// Witness is a running witness. Methods may be called concurrently.
type Witness struct {
	// URL is its submission prefix.
	URL    string
	signer *torchwood.CosignatureSigner

	mu    sync.Mutex
	logs  map[string]*log // by origin
	fault http.HandlerFunc
	asked int
}

// log is what a witness remembers of a log.
type log struct {
	keys []note.Verifier
	head tlog.Tree
}

// New starts a witness of this name, whose key is always the same, and stops it with
// the test.
func New(t testing.TB, name string) *Witness {
	w := Offline(name)
	s := httptest.NewServer(w)
	t.Cleanup(s.Close)
	w.URL = s.URL
	return w
}

// Offline is a witness of this name that listens nowhere, unless somebody serves it.
func Offline(name string) *Witness {
	seed := sha256.Sum256([]byte(name))
	signer, err := torchwood.NewCosignatureSigner(name, ed25519.NewKeyFromSeed(seed[:]))
	if err != nil {
		panic(fmt.Sprintf("%q is no name of a witness: %v", name, err))
	}
	return &Witness{signer: signer, logs: map[string]*log{}}
}

// Key is the text by which the witness's cosignatures are verified.
func (w *Witness) Key() string { return w.signer.Verifier().String() }

// Trust has the witness cosign the log of this verifier key.
func (w *Witness) Trust(key string) {
	v, err := note.NewVerifier(key)
	if err != nil {
		panic(fmt.Sprintf("%q is no key of a log: %v", key, err))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l := w.logs[v.Name()]
	if l == nil {
		l = &log{}
		w.logs[v.Name()] = l
	}
	l.keys = append(l.keys, v)
}

// Known is how many events of a log the witness has cosigned.
func (w *Witness) Known(origin string) int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l := w.logs[origin]; l != nil {
		return l.head.N
	}
	return 0
}

// Forget has the witness know nothing of a log but its keys.
func (w *Witness) Forget(origin string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.logs[origin].head = tlog.Tree{}
}

// Asked is how often it was asked.
func (w *Witness) Asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.asked
}

// Misbehave has f answer from now on; nil ends that.
func (w *Witness) Misbehave(f http.HandlerFunc) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault = f
}

// Cosign returns the line that cosigns a checkpoint, whatever it is.
func (w *Witness) Cosign(signed []byte) []byte {
	text, _, _ := bytes.Cut(signed, []byte("\n\n"))
	line, err := w.line(string(text) + "\n")
	if err != nil {
		panic(fmt.Sprintf("it cannot be signed: %v", err))
	}
	return line
}

func (w *Witness) line(text string) ([]byte, error) {
	n, err := note.Sign(&note.Note{Text: text}, w.signer)
	if err != nil {
		return nil, err
	}
	_, line, _ := bytes.Cut(n, []byte("\n\n"))
	return line, nil
}

// ServeHTTP answers as C2SP tlog-witness says.
func (w *Witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	w.asked++
	fault := w.fault
	w.mu.Unlock()
	if fault != nil {
		fault(rw, r)
		return
	}
	w.Honest(rw, r)
}

// Honest answers as ServeHTTP does without Misbehave.
func (w *Witness) Honest(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/add-checkpoint" {
		http.Error(rw, "not found", http.StatusNotFound)
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	status, answer := w.add(body)
	if status == http.StatusConflict {
		rw.Header().Set("Content-Type", "text/x.tlog.size")
	}
	rw.WriteHeader(status)
	_, _ = rw.Write(answer)
}

// add is add-checkpoint. w.mu is held.
func (w *Witness) add(body []byte) (status int, answer []byte) {
	refuse := func(status int, format string, args ...any) (int, []byte) {
		return status, fmt.Appendf(nil, format+"\n", args...)
	}
	head, signed, ok := strings.Cut(string(body), "\n\n")
	lines := strings.Split(head, "\n")
	size, isOld := strings.CutPrefix(lines[0], "old ")
	old, err := strconv.ParseInt(size, 10, 64)
	if !ok || !isOld || err != nil || old < 0 || len(lines) > 64 {
		return refuse(http.StatusBadRequest, "malformed")
	}
	var proof tlog.TreeProof
	for _, line := range lines[1:] {
		h, err := tlog.ParseHash(line)
		if err != nil {
			return refuse(http.StatusBadRequest, "malformed proof")
		}
		proof = append(proof, h)
	}
	origin, _, _ := strings.Cut(signed, "\n")
	l := w.logs[origin]
	if l == nil {
		return refuse(http.StatusNotFound, "unknown log")
	}
	n, err := note.Open([]byte(signed), note.VerifierList(l.keys...))
	if err != nil {
		return refuse(http.StatusForbidden, "invalid signature")
	}
	c, err := torchwood.ParseCheckpoint(n.Text)
	switch {
	case err != nil || old > c.N:
		return refuse(http.StatusBadRequest, "malformed checkpoint")
	case old != l.head.N, old == c.N && c.N > 0 && c.Hash != l.head.Hash:
		return refuse(http.StatusConflict, "%d", l.head.N)
	case old > 0:
		if tlog.CheckTree(proof, c.N, c.Hash, old, l.head.Hash) != nil {
			return refuse(http.StatusUnprocessableEntity, "bad consistency proof")
		}
	case len(proof) > 0:
		return refuse(http.StatusUnprocessableEntity, "a proof from nothing")
	}
	line, err := w.line(n.Text)
	if err != nil {
		return refuse(http.StatusInternalServerError, "%v", err)
	}
	l.head = c.Tree
	return http.StatusOK, line
}
