package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
	"fleetledger/events/secrets"
)

// Remember sends a finished run that no task asked for. With the same key it is
// recorded once. It is tried once. A record that would wait for an approval is
// refused, as a *Problem.
func (c *Client) Remember(ctx context.Context, r events.MemoryRecord, key string) error {
	resp, err := c.Do(ctx, Request{
		Method: http.MethodPost, Path: Path("v1", "memory"), Key: key, Once: true,
		Body: struct {
			Record events.MemoryRecord `json:"record"`
		}{r},
	})
	if err == nil && resp.Status == http.StatusAccepted {
		return &Problem{Status: http.StatusConflict, Code: "WAITS_FOR_APPROVAL",
			Detail: "a rule has every record of this machine wait for an approval, which a program cannot: fleetledger memory record FILE --approval ID"}
	}
	return err
}

// unsent is a record that no relay has answered for yet.
type unsent struct {
	// Actor is whose record it is: only its own token or device sends it. It is empty
	// for one made before the machine had either, which the next sends as its own.
	Actor  string              `json:"actor"`
	Record events.MemoryRecord `json:"record"`
	// Key is the Idempotency-Key: however many programs send the record, and however
	// often, it is recorded once.
	Key string `json:"key"`
}

// Records are the finished runs that a machine has to send, each in a file of its
// own in the folder runs/ of its state directory. Several programs may work on one
// directory.
type Records struct {
	dir string
	log *slog.Logger
}

// MaxRecords is how many finished runs wait to be sent at most, give or take those that
// programs keep at the same moment.
const MaxRecords = 10_000

// FullError says that MaxRecords runs wait to be sent. What was kept before stays: it was
// said that it will be sent. The machine's own memory has the new one.
type FullError struct {
	Waiting int
	Dir     string
}

func (e *FullError) Error() string {
	return fmt.Sprintf("%d runs wait in %s to be sent already, which is the most that are kept", e.Waiting, e.Dir)
}

// NewRecords returns those of the state directory dir.
func NewRecords(dir string, log *slog.Logger) *Records {
	return &Records{dir: filepath.Join(dir, "runs"), log: log}
}

// Full returns a *FullError if there is no room for one more.
func (r *Records) Full() error {
	keys, err := r.keys()
	if err == nil && len(keys) >= MaxRecords {
		err = &FullError{len(keys), r.dir}
	}
	return err
}

// Put keeps a record until a relay has answered for it, and returns its key. The
// record is kept as it is sent: without secrets, in UTF-8. If durable is true it
// outlives a loss of power; one that is sent at once need not. Without room for it the
// error is a *FullError.
func (r *Records) Put(actor string, rec events.MemoryRecord, durable bool) (key string, err error) {
	rec = secrets.MaskRecord(rec)
	argv := make([]string, len(rec.Argv))
	for i, w := range rec.Argv {
		argv[i] = strings.ToValidUTF8(w, "\uFFFD")
	}
	rec.Argv, rec.Cwd = argv, strings.ToValidUTF8(rec.Cwd, "\uFFFD")
	u := unsent{Actor: actor, Record: rec, Key: NewKey()}
	b, err := json.Marshal(u)
	if err != nil {
		return "", err
	}
	if err := r.Full(); err != nil {
		return "", err
	}
	if err := os.MkdirAll(r.dir, 0o700); err != nil {
		return "", err
	}
	return u.Key, writeFile(filepath.Join(r.dir, u.Key+".json"), b, durable)
}

// Send sends at most limit of the actor's records, oldest first; first those with
// these keys. What a relay has answered for, with yes or no, is removed. It stops at
// the first that gets no answer, with that error, and tells how many wait.
func (r *Records) Send(ctx context.Context, c *Client, actor string, limit int, first ...string) (waiting int, err error) {
	keys, err := r.keys()
	if err != nil {
		return 0, err
	}
	sent := 0
	for _, key := range append(first, keys...) {
		if sent == limit {
			break
		}
		u, err := r.read(key)
		if errors.Is(err, fs.ErrNotExist) {
			continue // sent by another program, or just now
		}
		if err != nil {
			r.log.Error("a kept record cannot be read and is left where it is", "file", r.file(key), "error", err)
			continue
		}
		if u.Actor != actor && u.Actor != "" {
			continue
		}
		if u.Record.Machine == "" {
			u.Record.Machine = actor
		}
		err = c.Remember(ctx, u.Record, u.Key)
		p, refused := errors.AsType[*Problem](err)
		switch {
		case err == nil:
			sent++
		case refused && final(p):
			r.log.Error("the relay does not take this record; the machine's memory has it", "code", p.Code, "error", err)
		default:
			left, _ := r.keys() // the error told is the first one
			return len(left), err
		}
		if err := os.Remove(r.file(key)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			r.log.Warn("a record that was answered could not be removed", "file", r.file(key), "error", err)
		}
	}
	left, err := r.keys()
	return len(left), err
}

func (r *Records) file(key string) string { return filepath.Join(r.dir, key+".json") }

// keys are those of the records kept, oldest first.
func (r *Records) keys() ([]string, error) {
	files, err := os.ReadDir(r.dir) // sorted by name, and so by the time of the key
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	removeLeft(r.dir, files)
	var keys []string
	for _, f := range files {
		if key, ok := strings.CutSuffix(f.Name(), ".json"); ok {
			keys = append(keys, key)
		}
	}
	return keys, err
}

func (r *Records) read(key string) (unsent, error) {
	var u unsent
	b, err := os.ReadFile(r.file(key))
	if err == nil {
		err = json.Unmarshal(b, &u)
	}
	if err == nil && u.Key != key {
		err = errors.New("it is not what its name says")
	}
	return u, err
}
