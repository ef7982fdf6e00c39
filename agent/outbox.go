package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// unreported is an attempt that ended and that no relay has answered for yet.
type unreported struct {
	TaskID   string          `json:"task_id"`
	Attempt  int             `json:"attempt"`
	Envelope events.Envelope `json:"envelope"`
	// Key is the report's Idempotency-Key: the same after a restart, so that a
	// report whose answer was lost is not made twice.
	Key string `json:"key"`
}

// outbox keeps unreported attempts, oldest first, each in a file of its own named
// by its key. Methods may be called concurrently.
type outbox struct {
	dir string
	log *slog.Logger
	// added has a value after put.
	added chan struct{}

	mu      sync.Mutex
	waiting []unreported // guarded by mu
}

// openOutbox makes the directory if need be and reads what an earlier run left.
func openOutbox(dir string, log *slog.Logger) (*outbox, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	o := &outbox{dir: dir, log: log, added: make(chan struct{}, 1)}
	files, err := os.ReadDir(dir) // sorted by name, and so by the time of the key
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := filepath.Join(dir, f.Name())
		if strings.HasSuffix(f.Name(), ".new") {
			// A crash left it half written: nobody was told that it is kept.
			if err := os.Remove(name); err != nil {
				return nil, err
			}
			continue
		}
		if !strings.HasSuffix(f.Name(), ".json") {
			continue
		}
		b, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		var u unreported
		if err := json.Unmarshal(b, &u); err != nil || u.Key+".json" != f.Name() {
			log.Error("a kept report cannot be read and is left where it is", "file", name, "error", err)
			continue
		}
		o.waiting = append(o.waiting, u)
	}
	if len(o.waiting) > 0 {
		o.added <- struct{}{}
	}
	return o, nil
}

// put keeps u until it is removed. If the disk does not take it, it is kept as
// long as the agent runs.
func (o *outbox) put(u unreported) {
	if err := o.write(u); err != nil {
		o.log.Error("a finished attempt could not be kept on disk: it is reported unless the agent ends first",
			"task", u.TaskID, "attempt", u.Attempt, "error", err)
	}
	o.mu.Lock()
	o.waiting = append(o.waiting, u)
	o.mu.Unlock()
	select {
	case o.added <- struct{}{}:
	default:
	}
}

func (o *outbox) file(u unreported) string { return filepath.Join(o.dir, u.Key+".json") }

func (o *outbox) write(u unreported) error {
	b, err := json.Marshal(u)
	if err != nil {
		return err
	}
	name := o.file(u)
	f, err := os.OpenFile(name+".new", os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(name+".new", name); err != nil {
		return err
	}
	return syncDir(o.dir)
}

// syncDir makes the names in dir durable. Windows has no such call: there a
// rename is as durable as the file system makes it.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// list is what waits, oldest first.
func (o *outbox) list() []unreported {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.waiting)
}

// remove forgets u: a relay has answered for it. If its file stays, the next
// start reports it again, under the same key, and gets the same answer.
func (o *outbox) remove(u unreported) {
	o.mu.Lock()
	o.waiting = slices.DeleteFunc(o.waiting, func(w unreported) bool { return w.Key == u.Key })
	o.mu.Unlock()
	if err := os.Remove(o.file(u)); err != nil && !errors.Is(err, os.ErrNotExist) {
		o.log.Warn("a report that was answered could not be removed from the outbox", "file", o.file(u), "error", err)
	}
}
