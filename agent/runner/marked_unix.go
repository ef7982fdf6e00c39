//go:build unix

package runner

import (
	"bytes"
	"os"
	"syscall"
)

// EndMarked kills every process that was started under the mark, by whomever, and
// returns how many there were. It finds them by their environment, so also those
// that have left the command's process group and session; one that has taken the
// mark out of its environment is not found, and on systems that do not tell other
// processes' environments (the BSDs) none is.
func EndMarked(mark string) (ended int) {
	entry := []byte(markName + "=" + mark)
	found := map[int]bool{}
	// Stopped processes start no others, so this comes to an end; the bound is for
	// what is not ours to stop.
	for range 16 {
		more := false
		for pid := range processes() {
			if found[pid] || pid == os.Getpid() {
				continue
			}
			for _, e := range processEnvironment(pid) {
				if bytes.Equal(e, entry) {
					_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
					found[pid], more = true, true
					break
				}
			}
		}
		if !more {
			break
		}
	}
	for pid := range found {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	return len(found)
}
