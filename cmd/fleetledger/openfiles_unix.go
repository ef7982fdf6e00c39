//go:build unix

package main

import "golang.org/x/sys/unix"

// openFiles is how many files this process may have open; 0 is as many as it likes.
func openFiles() uint64 {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return 0
	}
	return uint64(limit.Cur)
}
