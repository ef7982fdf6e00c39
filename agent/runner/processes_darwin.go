package runner

import "golang.org/x/sys/unix"

// processes reads the process table.
func processes() map[int]process {
	list, err := unix.SysctlKinfoProcSlice("kern.proc.all")
	if err != nil {
		return nil
	}
	table := map[int]process{}
	for _, p := range list {
		table[int(p.Proc.P_pid)] = process{
			pid:     int(p.Proc.P_pid),
			parent:  int(p.Eproc.Ppid),
			group:   int(p.Eproc.Pgid),
			started: p.Proc.P_starttime.Nano(),
		}
	}
	return table
}
