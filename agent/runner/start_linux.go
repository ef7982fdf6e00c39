package runner

import (
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// start starts cmd so that it is killed when this program ends, however that
// does: also by SIGKILL (prctl(2), PR_SET_PDEATHSIG). What cmd starts is not.
func start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	started := make(chan error)
	go func() {
		// The signal comes when the thread that started cmd ends, so that one stays
		// as long as cmd runs.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		for err == nil {
			// WNOWAIT leaves it to be waited for by whoever started it.
			if err = unix.Waitid(unix.P_PID, cmd.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err == nil || err != unix.EINTR {
				break
			}
			err = nil
		}
	}()
	return <-started
}
