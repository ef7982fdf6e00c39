package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// processEnvironment reads the environment that a process was started with; nil if that
// cannot be told: it is another user's, or has ended.
func processEnvironment(pid int) [][]byte {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "environ"))
	if err != nil {
		return nil
	}
	return bytes.Split(b, []byte{0})
}
