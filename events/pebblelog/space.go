package pebblelog

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// space watches the free disk space. Pebble cannot go on from a full disk, so
// the log stops before. Only the committer uses it.
type space struct {
	fs  vfs.FS
	dir string
	min uint64
	// failing reports whether Pebble finds no space: then there is none, whatever the
	// disk says.
	failing func() bool

	looked  time.Time
	written int // bytes since then
	low     bool
}

// spaceInterval is how long a look at the disk is good for, unless much is
// written meanwhile.
const spaceInterval = 500 * time.Millisecond

// wrote counts bytes given to Pebble.
func (s *space) wrote(bytes int) { s.written += bytes }

// isLow reports whether too little is free. now is any steady clock's time.
func (s *space) isLow(now time.Time) bool {
	if s.failing() {
		s.looked = time.Time{} // it is looked at anew once that is over
		return true
	}
	if now.Sub(s.looked) < spaceInterval && uint64(s.written) < s.min/16 {
		return s.low
	}
	// A disk that cannot be asked is not known to be full. If it is, Pebble will
	// fail, and the log with it, without a false acknowledgement.
	usage, err := s.fs.GetDiskUsage(s.dir)
	s.looked, s.written, s.low = now, 0, err == nil && usage.AvailBytes < s.min
	return s.low
}
