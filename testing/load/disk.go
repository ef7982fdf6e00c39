package load

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// syncWrites is how many writes SyncLatency makes.
const syncWrites = 101

// SyncLatency is the median time of a 4 KiB write at the end of a file in dir and
// its sync: what the disk under a measurement is like.
func SyncLatency(dir string) (median time.Duration, err error) {
	f, err := os.Create(filepath.Join(dir, "sync-latency"))
	if err != nil {
		return 0, err
	}
	defer func() {
		if err = errors.Join(err, f.Close(), os.Remove(f.Name())); err != nil {
			err = fmt.Errorf("measure the disk: %w", err)
		}
	}()
	block := make([]byte, 4<<10)
	for i := range block {
		block[i] = byte(i)
	}
	took := make([]time.Duration, syncWrites)
	for i := range took {
		begun := time.Now()
		if _, err := f.Write(block); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took[i] = time.Since(begun)
	}
	slices.Sort(took)
	return took[len(took)/2], nil
}
