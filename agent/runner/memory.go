package runner

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
	"fleetledger/events/secrets"
)

// MaxMemoryBytes is the size from which on the memory file is rotated.
const MaxMemoryBytes = 16 << 20

// The reasons for which a record was not written.
const (
	DiskFull      = "DISK_FULL"
	ReadOnly      = "READ_ONLY"      // the directory or the file cannot be written to
	NoDirectory   = "NO_DIRECTORY"   // the state directory is not there
	MemoryBusy    = "BUSY"           // another process held the memory for lockWait
	RecordInvalid = "RECORD_INVALID" // it has no JSON form
	IOError       = "IO_ERROR"
)

// lockWait is how long Append waits for other processes.
const lockWait = 5 * time.Second

// Memory is what this machine remembers: DIR/memory.jsonl, one
// events.MemoryRecord a line, newest last, and DIR/memory.1.jsonl, the
// generation before. Methods may be called concurrently, also by several
// processes on one directory (DIR/memory.lock keeps them apart).
type Memory struct {
	dir   string
	limit int64
	wait  time.Duration

	mu sync.Mutex // held while appending
}

// NewMemory returns the memory in the state directory dir, which must exist
// when records are appended.
func NewMemory(dir string) *Memory {
	return &Memory{dir: dir, limit: MaxMemoryBytes, wait: lockWait}
}

// Append remembers a finished attempt. With Written true the record is on
// stable storage. It never fails its caller: whatever goes wrong is the reason
// code of the status. The stored record carries the status that it has by being
// there, no conclusion, and marks in place of secrets.
func (m *Memory) Append(rec events.MemoryRecord) events.MemoryStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	status, err := m.append(rec)
	if err != nil {
		return events.MemoryStatus{ReasonCode: reasonCode(err)}
	}
	return status
}

func (m *Memory) append(rec events.MemoryRecord) (events.MemoryStatus, error) {
	status := events.MemoryStatus{Written: true, File: filepath.Join(m.dir, "memory.jsonl")}
	lock, err := Lock(filepath.Join(m.dir, "memory.lock"), m.wait)
	if err != nil {
		return status, err
	}
	defer lock.Close() // which unlocks
	info, err := os.Stat(status.File)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return status, err
	}
	status.Rotated = err == nil && info.Size() >= m.limit
	line, err := recordLine(rec, status)
	if err != nil {
		return status, err
	}
	if status.Rotated {
		// A crash behind this line leaves no newest generation: the next append
		// starts one, and what was remembered is in the older one.
		if err := os.Rename(status.File, filepath.Join(m.dir, "memory.1.jsonl")); err != nil {
			return status, err
		}
	}
	return status, m.write(status.File, line)
}

// recordLine is the record as it is stored.
func recordLine(rec events.MemoryRecord, status events.MemoryStatus) ([]byte, error) {
	rec = secrets.MaskRecord(rec)
	rec.Memory, rec.Conclusion = status, nil
	// argv may hold bytes that are no UTF-8, and is worth remembering then too.
	line, err := json.Marshal(rec, jsontext.AllowInvalidUTF8(true))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	return append(line, '\n'), nil
}

// write appends line to the file and makes it durable. The lock is held.
func (m *Memory) write(name string, line []byte) (err error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if size > 0 {
		// A crash may have torn the last line: it stays a line of its own.
		var last [1]byte
		if _, err := f.ReadAt(last[:], size-1); err != nil {
			return err
		}
		if last[0] != '\n' {
			line = append([]byte{'\n'}, line...)
		}
	}
	if _, err := f.WriteAt(line, size); err != nil {
		// Half a record helps nobody; if it stays, the next append heals it.
		_ = f.Truncate(size)
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	if size == 0 {
		return syncDir(m.dir)
	}
	return nil
}

var errRecord = errors.New("encode a record")

func reasonCode(err error) string {
	switch {
	case errors.Is(err, ErrHeld):
		return MemoryBusy
	case errors.Is(err, errRecord):
		return RecordInvalid
	case isDiskFull(err):
		return DiskFull
	case isNoDirectory(err):
		return NoDirectory
	case isReadOnly(err), errors.Is(err, fs.ErrPermission):
		return ReadOnly
	}
	return IOError
}
