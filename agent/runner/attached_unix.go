//go:build unix

package runner

import (
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

func isTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// start wires cmd and starts it.
func (c Attached) start(cmd *exec.Cmd) (*wires, error) {
	w := &wires{stdout: newCapture(), stderr: newCapture()}
	var later []func() // once it has started
	s := &signals{}
	err := c.wire(cmd, w, s, &later)
	if err == nil {
		s.listen()
		w.atEnd(s.stop)
		err = start(cmd)
	}
	if err != nil {
		w.close()
		return nil, err
	}
	for _, f := range later {
		f()
	}
	s.forward(cmd.Process.Pid)
	return w, nil
}

func (c Attached) wire(cmd *exec.Cmd, w *wires, s *signals, later *[]func()) (err error) {
	cmd.Stdin = c.Stdin
	if isTerminal(c.Stdin) && isTerminal(c.Stdout) && !inBackground(c.Stdin) {
		var own *os.File
		if own, err = c.ownTerminal(w, s, later); err != nil {
			return err
		}
		cmd.Stdin, cmd.Stdout = own, own
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
		s.group = true
		if isTerminal(c.Stderr) {
			cmd.Stderr = own
			return nil
		}
	} else if cmd.Stdout, err = c.output(w, s, c.Stdout, w.stdout, later); err != nil {
		return err
	}
	cmd.Stderr, err = c.output(w, s, c.Stderr, w.stderr, later)
	return err
}

// ownTerminal gives the command a terminal like this program's, and makes this one
// a mere wire: keys, Ctrl-C among them, mean what the command's terminal makes of
// them.
func (c Attached) ownTerminal(w *wires, s *signals, later *[]func()) (*os.File, error) {
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	w.atEnd(func() { master.Close(); slave.Close() })
	in := int(c.Stdin.Fd())
	before, err := term.GetState(in)
	if err != nil {
		return nil, err
	}
	// What the user has set (stty) holds there too; a failure leaves the usual.
	_ = term.Restore(int(slave.Fd()), before)
	s.sizes = append(s.sizes, func() { _ = pty.InheritSize(c.Stdin, master) })
	*later = append(*later, func() {
		slave.Close()
		if _, err := term.MakeRaw(in); err == nil {
			w.atEnd(func() { _ = term.Restore(in, before) })
		}
		// It may wait for a key when the command has ended: this program ends with it.
		go func() { _, _ = io.Copy(master, c.Stdin) }()
		w.pass(master, c.Stdout, w.stdout)
	})
	return slave, nil
}

// output makes an output of the kind that this program has: a terminal or none.
func (c Attached) output(w *wires, s *signals, to *os.File, kept *capture, later *[]func()) (*os.File, error) {
	if !isTerminal(to) {
		return w.pipe(to, kept, later)
	}
	master, slave, err := pty.Open()
	if err != nil {
		return nil, err
	}
	w.atEnd(func() { master.Close(); slave.Close() })
	// The real terminal does to the bytes what a terminal does.
	if _, err := term.MakeRaw(int(slave.Fd())); err != nil {
		return nil, err
	}
	s.sizes = append(s.sizes, func() { _ = pty.InheritSize(to, master) })
	*later = append(*later, func() {
		slave.Close()
		w.pass(master, to, kept)
	})
	return slave, nil
}

// signals are those that this program gets while a command runs in its place.
type signals struct {
	// group is true if the command leads a process group of its own.
	group bool
	// sizes make the command's terminals as large as this program's.
	sizes []func()
	got   chan os.Signal
	over  chan struct{}
}

func (s *signals) listen() {
	for _, f := range s.sizes {
		f()
	}
	s.got, s.over = make(chan os.Signal, 32), make(chan struct{})
	// SIGPIPE is taken so that a reader that went away is an error of the write, and
	// does not end this program before it has recorded the run.
	list := []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGCONT, syscall.SIGWINCH, syscall.SIGPIPE}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		list = append(list, syscall.SIGHUP)
	}
	signal.Notify(s.got, list...)
}

func (s *signals) forward(pid int) {
	to := pid
	if s.group {
		to = -pid
	}
	go func() {
		for {
			select {
			case <-s.over:
				return
			case got := <-s.got:
				switch got {
				case syscall.SIGPIPE:
				case syscall.SIGWINCH:
					for _, f := range s.sizes {
						f()
					}
				case syscall.SIGINT, syscall.SIGQUIT:
					if s.group || !inForeground() {
						_ = syscall.Kill(to, got.(syscall.Signal)) // it may have ended
					}
				default:
					_ = syscall.Kill(to, got.(syscall.Signal))
				}
			}
		}
	}()
}

func (s *signals) stop() {
	signal.Stop(s.got)
	close(s.over)
}

// inBackground reports whether the terminal is this program's and has another in
// front (a shell's COMMAND &): whoever changes its mode then is stopped.
func inBackground(terminal *os.File) bool {
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group != unix.Getpgrp()
}

// inForeground reports whether the terminal sends its signals to this program's
// process group: then the command has got them itself.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
