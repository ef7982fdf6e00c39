package histories

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxLineBytes bounds the memory that one line takes.
const maxLineBytes = 64 << 20

// maxDocumentBytes bounds a file that is read as a whole.
const maxDocumentBytes = 16 << 20

// The reasons of an Unreadable.
const (
	ReasonTorn       = "the last line was cut off"
	ReasonMalformed  = "the line is no JSON"
	ReasonLong       = "the line is longer than 64 MiB"
	ReasonFile       = "the file cannot be read"
	ReasonLinked     = "a link to a folder, which is not followed: import that by itself"
	ReasonCompressed = "the file is compressed: unpack it beside"
	ReasonLargeFile  = "the file is larger than 16 MiB"
	ReasonUnknown    = "the line is neither a task nor a conclusion"
	ReasonNoText     = "the conclusion says nothing"
)

// lenient reads what others wrote: duplicate names, bytes that are no UTF-8 and
// lone surrogates, which become U+FFFD.
var lenient = json.JoinOptions(jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))

// maybe is a member that has its type, or is passed over.
type maybe[T any] struct {
	v  T
	ok bool
}

// UnmarshalJSONFrom implements json.UnmarshalerFrom.
func (m *maybe[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	*m = maybe[T]{}
	if raw.Kind() == jsontext.KindNull {
		return nil
	}
	var v T
	if json.Unmarshal(raw, &v, lenient) == nil {
		*m = maybe[T]{v, true}
	}
	return nil
}

// decode reads raw into v and reports whether it has that form.
func decode(raw []byte, v any) bool { return json.Unmarshal(raw, v, lenient) == nil }

// instant reads a time: RFC 3339, or a count of seconds, milliseconds,
// microseconds or nanoseconds since 1970, told apart by size.
func instant(raw jsontext.Value) time.Time {
	var s string
	if decode(raw, &s) {
		return clock(s)
	}
	n, err := strconv.ParseFloat(string(bytes.TrimSpace(raw)), 64)
	if err != nil || !(n > 0 && n < 1e21) {
		return time.Time{}
	}
	// Seconds until the year 5138; a finer unit has a larger number.
	for n >= 1e11 {
		n /= 1e3
	}
	return time.Unix(0, int64(n*1e9))
}

// clock reads a time as text; without a zone it is UTC.
func clock(s string) time.Time {
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999"} {
		if t, err := time.Parse(layout, s); err == nil && t.Year() >= 1970 && t.Year() < 9999 {
			return t
		}
	}
	return time.Time{}
}

// history is a file to be read.
type history struct {
	path string
	size int64
}

func (h history) base() string { return clean(filepath.Base(h.path)) }

// find lists the files of which a history consists: path itself, or those below
// it that want takes, in the order of their paths. A link to a file is that file;
// one to a folder is followed at path only, for below it could lead back. What is
// left out though its name is that of a history is said.
func (r *reading) find(path string, want func(path string) bool) ([]history, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []history{{path, info.Size()}}, nil
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return nil, err
	}
	var list []history
	leftOut := ""
	skip := func(p, reason string) error {
		leftOut = clean(filepath.Base(p)) + ": " + reason
		return r.emit(Item{Kind: Unreadable, File: clean(filepath.Base(p)), Reason: reason})
	}
	err = filepath.WalkDir(path, func(p string, d fs.DirEntry, err error) error {
		isLink := d != nil && d.Type()&fs.ModeSymlink != 0
		switch {
		case r.ctx.Err() != nil:
			return r.ctx.Err()
		case err != nil && p == path:
			return err
		case err != nil:
			return skip(p, ReasonFile)
		case !d.Type().IsRegular() && !isLink:
			return nil
		case compressed(p) && want(strings.TrimSuffix(p, filepath.Ext(p))):
			return skip(p, ReasonCompressed)
		}
		info, err := os.Stat(p)
		switch {
		case err == nil && info.IsDir():
			return skip(p, ReasonLinked)
		case !want(p):
		case err != nil:
			return skip(p, ReasonFile)
		case info.Mode().IsRegular():
			list = append(list, history{p, info.Size()})
		}
		return nil
	})
	if err == nil && len(list) == 0 {
		if leftOut == "" {
			leftOut = fmt.Sprintf("there is no file of the name that %s gives them", r.tool)
		}
		err = fmt.Errorf("%s: %w: %s", path, ErrNothing, leftOut)
	}
	return list, err
}

// compressed reports whether a file goes by a name of compressed ones.
func compressed(path string) bool {
	return slices.Contains([]string{".gz", ".zst", ".xz", ".bz2"}, strings.ToLower(filepath.Ext(path)))
}

func isJSONLines(path string) bool { return strings.EqualFold(filepath.Ext(path), ".jsonl") }

// plan says which files will be read, for the progress.
func (r *reading) plan(files []history) {
	r.progress.Files = len(files)
	for _, h := range files {
		r.progress.Total += h.size
	}
}

// wholes gives the text of each file to take.
func (r *reading) wholes(files []history, take func(h history, text string) error) error {
	for _, h := range files {
		if err := r.ctx.Err(); err != nil {
			return err
		}
		r.progress.File = h.base()
		text, reason := wholeText(h)
		err := error(nil)
		if reason != "" {
			err = r.emit(Item{Kind: Unreadable, File: h.base(), Reason: reason})
		} else {
			err = take(h, text)
		}
		if err != nil {
			return err
		}
		r.progress.Bytes += h.size
		r.progress.Done++
		r.tell()
	}
	return nil
}

// wholeText is the text of a file, or the reason why there is none.
func wholeText(h history) (text, reason string) {
	f, err := os.Open(h.path)
	if err != nil {
		return "", ReasonFile
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDocumentBytes+1))
	switch {
	case err != nil:
		return "", ReasonFile
	case len(b) > maxDocumentBytes:
		return "", ReasonLargeFile
	}
	return clean(string(b)), ""
}

// each gives every JSON value in the files to take, one at a time, with the file
// and the line it lies in. start is told of each file before its first value. What
// files there are was said by plan.
func (r *reading) each(files []history, start func(h history), take func(h history, line int, raw jsontext.Value) error) error {
	for _, h := range files {
		r.progress.File = h.base()
		if start != nil {
			start(h)
		}
		before := r.progress.Bytes
		if err := r.file(h, take); err != nil {
			return err
		}
		r.progress.Bytes = before + h.size
		r.progress.Done++
		r.tell()
	}
	return nil
}

func (r *reading) tell() {
	if r.Progress != nil {
		r.Progress(r.progress)
	}
}

func (r *reading) file(h history, take func(h history, line int, raw jsontext.Value) error) error {
	unreadable := func(line int, reason string) error {
		return r.emit(Item{Kind: Unreadable, File: h.base(), Line: line, Reason: reason})
	}
	f, err := os.Open(h.path)
	if err != nil {
		return unreadable(0, ReasonFile)
	}
	defer f.Close()
	in := bufio.NewReaderSize(f, 256<<10)
	var buf []byte
	for n := 1; ; n++ {
		line, size, err := readLine(in, buf[:0])
		if err != nil && !errors.Is(err, io.EOF) {
			return unreadable(n, ReasonFile)
		}
		last := err != nil
		if cap(line) <= 1<<20 { // one giant must not be held to the end
			buf = line
		} else {
			buf = nil
		}
		r.progress.Bytes += size
		if n%256 == 0 || size > 1<<20 {
			if err := r.ctx.Err(); err != nil {
				return err
			}
			r.tell()
		}
		if n == 1 {
			line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
		}
		if size > maxLineBytes {
			if err := unreadable(n, ReasonLong); err != nil {
				return err
			}
		} else if err := r.values(line, func(raw jsontext.Value) error { return take(h, n, raw) }, func() error {
			if last {
				return unreadable(n, ReasonTorn)
			}
			return unreadable(n, ReasonMalformed)
		}); err != nil {
			return err
		}
		if last {
			return r.ctx.Err()
		}
	}
}

// values gives each JSON value of a line to take: there can be several, when two
// writers met. After one that cannot be read the rest of the line is not trusted.
func (r *reading) values(line []byte, take func(raw jsontext.Value) error, bad func() error) error {
	dec := jsontext.NewDecoder(bytes.NewReader(line), lenient)
	for {
		raw, err := dec.ReadValue()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return bad()
		}
		if raw.Kind() != jsontext.KindBeginObject {
			if err := bad(); err != nil {
				return err
			}
			continue
		}
		if err := take(raw); err != nil {
			return err
		}
	}
}

// readLine appends the next line to buf, up to maxLineBytes of it, and returns
// it with its full size. At the end of the file the error is io.EOF.
func readLine(in *bufio.Reader, buf []byte) (line []byte, size int64, err error) {
	for {
		part, err := in.ReadSlice('\n')
		size += int64(len(part))
		if size <= maxLineBytes {
			buf = append(buf, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return buf, size, err
		}
	}
}
