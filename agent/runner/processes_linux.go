package runner

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
)

// processes reads the process table from /proc (proc(5)). What cannot be read
// has just ended, or is not ours.
func processes() map[int]process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	table := map[int]process{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(filepath.Join("/proc", name, "stat"))
		if err != nil {
			continue
		}
		// The second field is a name in parentheses and may hold any byte.
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) < 20 {
			continue
		}
		parent, err1 := strconv.Atoi(string(f[1]))
		group, err2 := strconv.Atoi(string(f[2]))
		started, err3 := strconv.ParseInt(string(f[19]), 10, 64)
		if err1 == nil && err2 == nil && err3 == nil {
			table[pid] = process{pid: pid, parent: parent, group: group, started: started}
		}
	}
	return table
}
