package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"fleetledger/events"
	"fleetledger/projections"
)

// Store keeps small values by name. Methods may be called concurrently.
type Store interface {
	// Get returns a value and its version: nil and 0 if there is none.
	Get(ctx context.Context, name string) (value []byte, version uint64, err error)
	// Put replaces the value of which this is the version, and returns the new one. It
	// is an *events.ConflictError if somebody else has replaced it meanwhile.
	Put(ctx context.Context, name string, value []byte, version uint64) (uint64, error)
	Remove(ctx context.Context, name string) error
}

// Files is the Store in a directory, for one process at a time. It needs no versions.
// A value that is not what was put under its name, whole, is an error.
func Files(dir string) Store { return files{dir} }

// CopyCursors copies the cursors of the subscriptions in a log from one store to
// another. Nothing is delivered meanwhile.
func CopyCursors(ctx context.Context, log events.Log, from, to Store) error {
	subs, err := projections.LoadSubscriptions(ctx, log, 0)
	if err != nil {
		return err
	}
	for _, sub := range subs.List {
		name := cursorName(sub)
		value, _, err := from.Get(ctx, name)
		if err != nil {
			return fmt.Errorf("cursor %s: %w", name, err)
		}
		if value == nil {
			continue
		}
		_, version, err := to.Get(ctx, name)
		if err == nil {
			_, err = to.Put(ctx, name, value, version)
		}
		if err != nil {
			return fmt.Errorf("cursor %s: %w", name, err)
		}
	}
	return nil
}

type files struct{ dir string }

func (d files) path(name string) string { return filepath.Join(d.dir, name+".json") }

func (d files) Get(_ context.Context, name string) ([]byte, uint64, error) {
	b, err := os.ReadFile(d.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	// A cursor that was changed to a later place would leave events out, and nobody
	// would miss them.
	value, sum, _ := bytes.Cut(b, []byte("\n"))
	if len(sum) > 0 && string(sum) != sumLine(name, value) { // files of before have none
		return nil, 0, &badCursorError{d.path(name) + " is damaged, or another's: remove it, and everything is delivered anew"}
	}
	return value, 0, nil
}

// sumLine is the second line of a file, over its name and the first.
func sumLine(name string, value []byte) string {
	return events.SumHash(name+"\n"+string(value)).String() + "\n"
}

// Put writes the file, whole or not at all.
func (d files) Put(_ context.Context, name string, value []byte, _ uint64) (uint64, error) {
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return 0, err
	}
	at := d.path(name)
	f, err := os.OpenFile(at+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return 0, err
	}
	_, err = f.WriteString(string(value) + "\n" + sumLine(name, value))
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return 0, err
	}
	return 0, os.Rename(at+".new", at)
}

func (d files) Remove(_ context.Context, name string) error {
	if err := os.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// memory is a Store that ends with the process.
type memory struct {
	mu     sync.Mutex
	values map[string][]byte // guarded by mu
}

func (m *memory) Get(_ context.Context, name string) ([]byte, uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.values[name], 0, nil
}

func (m *memory) Put(_ context.Context, name string, value []byte, _ uint64) (uint64, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.values[name] = value
	return 0, nil
}

func (m *memory) Remove(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.values, name)
	return nil
}
