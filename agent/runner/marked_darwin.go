package runner

import (
	"bytes"

	"golang.org/x/sys/unix"
)

// processEnvironment reads the environment that a process was started with, and
// its arguments before it; nil if the system does not tell.
func processEnvironment(pid int) [][]byte {
	b, err := unix.SysctlRaw("kern.procargs2", pid)
	if err != nil {
		return nil
	}
	return bytes.Split(b, []byte{0})
}
