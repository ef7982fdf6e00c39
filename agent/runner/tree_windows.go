package runner

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"unsafe"

	"golang.org/x/sys/windows"
)

// tree is a running command and all that it started: a job object, which no
// process leaves and which ends with its last handle, so also when the agent
// dies. Methods may be called concurrently.
type tree struct{ job windows.Handle }

func startTree(cmd *exec.Cmd) (*tree, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return nil, fmt.Errorf("create a job object: %w", err)
	}
	t := &tree{job: job}
	info := windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION{
		BasicLimitInformation: windows.JOBOBJECT_BASIC_LIMIT_INFORMATION{
			LimitFlags: windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE,
		},
	}
	if _, err := windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&info)), uint32(unsafe.Sizeof(info))); err != nil {
		t.close()
		return nil, fmt.Errorf("limit a job object: %w", err)
	}
	// Suspended, so that it starts nothing before it is in the job.
	cmd.SysProcAttr = &syscall.SysProcAttr{CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		t.close()
		return nil, err
	}
	if err := t.adopt(cmd.Process); err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		t.close()
		return nil, err
	}
	return t, nil
}

// adopt puts a suspended process in the job and lets it run.
func (t *tree) adopt(p *os.Process) error {
	var assigned error
	if err := p.WithHandle(func(h uintptr) {
		assigned = windows.AssignProcessToJobObject(t.job, windows.Handle(h))
	}); err != nil {
		return err
	}
	if assigned != nil {
		return fmt.Errorf("assign to a job object: %w", assigned)
	}
	snapshot, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer windows.CloseHandle(snapshot)
	resumed := 0
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(snapshot, &entry); err == nil; err = windows.Thread32Next(snapshot, &entry) {
		if entry.OwnerProcessID != uint32(p.Pid) {
			continue
		}
		thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, entry.ThreadID)
		if err != nil {
			return fmt.Errorf("open the first thread: %w", err)
		}
		_, err = windows.ResumeThread(thread)
		windows.CloseHandle(thread)
		if err != nil {
			return fmt.Errorf("resume the first thread: %w", err)
		}
		resumed++
	}
	if resumed == 0 {
		return fmt.Errorf("resume process %d: it has no thread", p.Pid)
	}
	return nil
}

// terminate ends the tree: Windows has no way to ask that every program hears.
func (t *tree) terminate() { t.kill() }

// kill ends everything in the tree.
func (t *tree) kill() {
	// An empty job is ended already.
	_ = windows.TerminateJobObject(t.job, 1)
}

func (t *tree) close() { windows.CloseHandle(t.job) }

func exitCode(s *os.ProcessState) int { return s.ExitCode() }
