package pebblelog

import (
	"errors"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleFS is the file system that Pebble sees.
//
// It gives Pebble a new file for every WAL: a recycled one would keep the bytes
// of erased payloads.
//
// And it stands between Pebble and errors that Pebble does not survive. When a
// WAL cannot be made, written or closed, or a directory not be synced, Pebble
// panics in a way that ends the whole program, with every request in it
// unanswered. Such an error makes the database stuck and never reaches Pebble.
//
// All that is for the database's own directory: a copy that cannot be written, for
// one, is no trouble of the database's.
type pebbleFS struct {
	vfs.FS
	dir    string
	logger *pebbleLogger
}

// flushRetry is how long a flush waits after another has failed.
const flushRetry = 100 * time.Millisecond

func (f *pebbleFS) Unwrap() vfs.FS { return f.FS }

func (f *pebbleFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if f.logger.isStuck() {
		select {} // what goes on in a database that was given up changes nothing more
	}
	if strings.HasSuffix(name, ".sst") && f.logger.flushFails() {
		time.Sleep(flushRetry) // Pebble itself would try again at once, and again
	}
	file, err := f.FS.Create(name, c)
	if err == nil && strings.HasPrefix(f.FS.PathBase(name), "MANIFEST-") {
		// Pebble next names the manifest as the current one, and syncs the directory
		// after both: a power loss in between may keep the name and lose the file, and
		// nothing would open the database again.
		if err := syncDir(f.FS, f.FS.PathDir(name)); err != nil {
			return nil, errors.Join(err, file.Close())
		}
	}
	if !isWAL(name) || !f.inside(name) {
		return file, err
	}
	f.must("make", name, err)
	return &watchedFile{File: file, fs: f, name: name}, nil
}

func (f *pebbleFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f.must("remove", oldname, f.Remove(oldname))
	return f.Create(newname, c)
}

// OpenDir is for syncing directories, as Pebble does after it made a WAL.
func (f *pebbleFS) OpenDir(name string) (vfs.File, error) {
	dir, err := f.FS.OpenDir(name)
	if err != nil || name != f.dir {
		return dir, err
	}
	return &watchedFile{File: dir, fs: f, name: name}, nil
}

// inside reports whether the file lies in the database's directory.
func (f *pebbleFS) inside(name string) bool { return f.FS.PathDir(name) == f.dir }

func isWAL(name string) bool { return strings.HasSuffix(name, ".log") }

// must does not return if there is an error.
func (f *pebbleFS) must(what, name string, err error) {
	if err != nil {
		f.logger.Fatalf("%s %s: %w", what, name, err)
	}
}

// watchedFile is a WAL or a directory.
type watchedFile struct {
	vfs.File
	fs   *pebbleFS
	name string
}

func (w *watchedFile) Write(p []byte) (int, error) {
	n, err := w.File.Write(p)
	w.fs.must("write", w.name, err)
	return n, nil
}

func (w *watchedFile) Sync() error {
	w.fs.must("sync", w.name, w.File.Sync())
	return nil
}

func (w *watchedFile) SyncData() error {
	w.fs.must("sync", w.name, w.File.SyncData())
	return nil
}

func (w *watchedFile) Close() error {
	w.fs.must("close", w.name, w.File.Close())
	return nil
}
