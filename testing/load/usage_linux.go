package load

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// usage reads what a process has used, from proc(5).
func usage(pid int) (Usage, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Usage{}, err
	}
	// The second field is a name in parentheses, which may hold anything.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	var numbers [3]int64
	for i, n := range []int{14, 15, 24} { // utime, stime, rss: counted as proc(5) does
		if numbers[i], err = strconv.ParseInt(string(fields[n-3]), 10, 64); err != nil {
			return Usage{}, fmt.Errorf("field %d of /proc/%d/stat: %w", n, pid, err)
		}
	}
	const tick = time.Second / 100 // USER_HZ, the same on every Linux that Go runs on
	return Usage{CPU: time.Duration(numbers[0]+numbers[1]) * tick, ResidentBytes: numbers[2] * int64(os.Getpagesize())}, nil
}
