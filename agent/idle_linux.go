package agent

import (
	"bufio"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// giveBack gives the pages of this program's file back to the system, which keeps
// them in its cache: starting has touched most of the program, waiting needs little
// of it. What is needed again is mapped again, at the price of a minor fault.
// Pages that are not the file's any more (relocations) are left alone. It is worth
// doing, not worth failing for.
func giveBack() {
	self, err := os.Readlink("/proc/self/exe")
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	var from, to uintptr // the mapping being read, from 0 if it is not one of the file's
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		line := lines.Text()
		var first, end uintptr
		var perms string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &first, &end, &perms); n == 3 {
			from, to = 0, 0
			if (perms == "r--p" || perms == "r-xp") && strings.HasSuffix(line, " "+self) {
				from, to = first, end
			}
			continue
		}
		var kb int
		if n, _ := fmt.Sscanf(line, "Anonymous: %d kB", &kb); n == 1 && kb == 0 && from != 0 {
			_, _, _ = unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
			from = 0
		}
	}
}
