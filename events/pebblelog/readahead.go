package pebblelog

import (
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Open opens a file for reading.
func (f *pebbleFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err == nil && slices.Contains(opts, vfs.SequentialReadsOption) {
		file = &readAhead{File: file}
	}
	return file, err
}

// readAheadBytes is what is read at once of a file that is read in order.
const readAheadBytes = 64 << 10

// readAhead is a file that is read in order: a table, of which Pebble asks for one block
// of a few KiB after the other. Only one goroutine at a time may call ReadAt, as Pebble
// has it with files that it opens so.
type readAhead struct {
	vfs.File
	buf  []byte // what is at from
	from int64
}

func (f *readAhead) ReadAt(p []byte, off int64) (int, error) {
	if off < f.from || off+int64(len(p)) > f.from+int64(len(f.buf)) {
		if f.buf == nil {
			f.buf = make([]byte, readAheadBytes)
		}
		// What cannot be read is found out by whoever asks for just that.
		n, _ := f.File.ReadAt(f.buf[:cap(f.buf)], off)
		if f.buf, f.from = f.buf[:n], off; n < len(p) {
			return f.File.ReadAt(p, off)
		}
	}
	return copy(p, f.buf[off-f.from:]), nil
}
