package pebblelog

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// badFrom is a file that cannot be read from an offset on.
type badFrom struct {
	vfs.File
	off int64
}

var errBad = errors.New("bad sector")

func (f badFrom) ReadAt(p []byte, off int64) (int, error) {
	if n := f.off - off; n < int64(len(p)) {
		m, _ := f.File.ReadAt(p[:max(n, 0)], off)
		return m, errBad
	}
	return f.File.ReadAt(p, off)
}

func TestReadAhead(t *testing.T) {
	const size, bad = 5*readAheadBytes/2 + 7, 2 * readAheadBytes
	all := make([]byte, size)
	for i := range all {
		all[i] = byte(i * 7 >> 3)
	}
	mem := vfs.NewMem()
	w, err := mem.Create("table", vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = w.Write(bytes.Clone(all))
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	fsys := &pebbleFS{FS: mem}
	file, err := fsys.Open("table", vfs.SequentialReadsOption)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	ahead, ok := file.(*readAhead)
	if !ok {
		t.Fatalf("a file to be read in order is a %T", file)
	}
	spoilt := &readAhead{File: badFrom{ahead.File, bad}}
	for _, row := range []struct {
		off    int64
		length int
	}{
		{0, 10}, {10, 4096}, {4106, 4096}, // in order
		{100_000, 4096}, {90_000, 4096}, {0, 1}, // in none
		{readAheadBytes - 1, 2}, {1000, 2 * readAheadBytes}, // across what is read at once, and more than that
		{bad - 5000, 5000}, {bad - 10, 11}, {bad + 1, 10}, // around what cannot be read
		{size - 10, 10}, {size - 10, 11}, {size, 1}, {size + 100, 1}, // around the end
		{50, 4096},
	} {
		for _, f := range []*readAhead{ahead, spoilt} {
			got, want := make([]byte, row.length), make([]byte, row.length)
			wantN, wantErr := f.File.ReadAt(want, row.off)
			n, err := f.ReadAt(got, row.off)
			if n != wantN || !errors.Is(err, wantErr) || !bytes.Equal(got[:n], want[:wantN]) || err == nil && !bytes.Equal(got, all[row.off:row.off+int64(n)]) {
				t.Errorf("%d bytes at %d of %T: %d bytes, %v, want %d, %v", row.length, row.off, f.File, n, err, wantN, wantErr)
			}
			if errors.Is(err, io.EOF) && row.off+int64(row.length) <= size {
				t.Errorf("%d bytes at %d: the end came too early", row.length, row.off)
			}
		}
	}
	plain, err := fsys.Open("table")
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, ok := plain.(*readAhead); ok {
		t.Error("a file that is read here and there is read ahead")
	}
}
