//go:build unix

package runner

import (
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// tree is a running command and all that it started. It is a process group of
// its own; descendants that moved to another group (timeout, an interactive
// shell) are looked for when the tree is ended. One whose parents have all
// exited before, a daemon, is not found. Methods may be called concurrently.
type tree struct {
	group int // the command's process id

	mu     sync.Mutex
	strays map[int]process // guarded by mu: descendants in other groups, by id
}

// process is an entry of the system's process table.
type process struct {
	pid, parent, group int
	started            int64 // tells apart two processes that had one id in turn
}

func startTree(cmd *exec.Cmd) (*tree, error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := start(cmd); err != nil {
		return nil, err
	}
	return &tree{group: cmd.Process.Pid, strays: map[int]process{}}, nil
}

// terminate asks everything in the tree to end. Strays are remembered: once the
// process between is gone, nothing else shows whose they are.
func (t *tree) terminate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.find()
	t.signal(syscall.SIGTERM)
}

// kill ends everything in the tree. The group's id stays the group's as long as
// it has a member, so it may be called after the command was waited for.
func (t *tree) kill() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.strays) == 0 && syscall.Kill(-t.group, 0) == syscall.ESRCH {
		return
	}
	// Stopped processes start no others, so this comes to an end; the bound is
	// for a tree that is not ours to stop.
	for range 16 {
		t.signal(syscall.SIGSTOP)
		if t.find() == 0 {
			break
		}
	}
	t.signal(syscall.SIGKILL)
}

// signal sends s to the group and the strays; those that are gone do not mind.
func (t *tree) signal(s syscall.Signal) {
	_ = syscall.Kill(-t.group, s)
	for pid := range t.strays {
		_ = syscall.Kill(pid, s)
	}
}

// find brings strays up to date and returns how many are new.
func (t *tree) find() int {
	table := processes()
	for pid, p := range t.strays {
		if now, ok := table[pid]; !ok || now.started != p.started {
			delete(t.strays, pid)
		}
	}
	found := 0
	for again := true; again; {
		again = false
		for pid, p := range table {
			if _, known := t.strays[pid]; known || p.group == t.group {
				continue
			}
			_, ofStray := t.strays[p.parent]
			if parent, ok := table[p.parent]; ofStray || ok && parent.group == t.group {
				t.strays[pid] = p
				found++
				again = true
			}
		}
	}
	return found
}

func (t *tree) close() {}

// exitCode is the command's own, or 128 + the number of the signal that ended it.
func exitCode(s *os.ProcessState) int {
	if ws, ok := s.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return s.ExitCode()
}
