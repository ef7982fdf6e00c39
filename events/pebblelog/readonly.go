package pebblelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
)

// readOnlyFS is a file system on which nothing can be changed.
type readOnlyFS struct{ vfs.FS }

var errReadOnly = errors.New("opened for reading only")

func (readOnlyFS) Create(string, vfs.DiskWriteCategory) (vfs.File, error) { return nil, errReadOnly }
func (readOnlyFS) Link(string, string) error                              { return errReadOnly }
func (readOnlyFS) Remove(string) error                                    { return errReadOnly }
func (readOnlyFS) RemoveAll(string) error                                 { return errReadOnly }
func (readOnlyFS) Rename(string, string) error                            { return errReadOnly }
func (readOnlyFS) MkdirAll(string, os.FileMode) error                     { return errReadOnly }

func (readOnlyFS) OpenReadWrite(string, vfs.DiskWriteCategory, ...vfs.OpenOption) (vfs.File, error) {
	return nil, errReadOnly
}

func (readOnlyFS) ReuseForWrite(string, string, vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, errReadOnly
}

func (f readOnlyFS) Unwrap() vfs.FS { return f.FS }

// Lock locks what can be locked without making a file. A copy without its lock
// file, or on a medium that cannot be written, is not in use by anyone.
func (f readOnlyFS) Lock(name string) (io.Closer, error) {
	if _, err := f.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return notLocked{}, nil
	}
	c, err := f.FS.Lock(name)
	switch {
	case errors.Is(err, syscall.EROFS):
		return notLocked{}, nil
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf("%w; also to read, one has to be able to write that file, so that nobody else writes meanwhile: read a copy, or have it made writable", err)
	case err != nil:
		return nil, lockError(name, err)
	}
	return c, nil
}

type notLocked struct{}

func (notLocked) Close() error { return nil }

// lockError says why the lock file could not be locked.
func lockError(name string, err error) error {
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.EROFS) {
		return fmt.Errorf("lock %s: %w", name, err)
	}
	return fmt.Errorf("%w: %s (%w); stop that one first", events.ErrLocked, name, err)
}
