package runner

import (
	"os"
	"os/exec"
	"os/signal"
)

// start wires cmd and starts it.
func (c Attached) start(cmd *exec.Cmd) (*wires, error) {
	w := &wires{stdout: newCapture(), stderr: newCapture()}
	var later []func()
	cmd.Stdin = c.Stdin
	stdout, err := w.pipe(c.Stdout, w.stdout, &later)
	if err != nil {
		return nil, err
	}
	stderr, err := w.pipe(c.Stderr, w.stderr, &later)
	if err != nil {
		w.close()
		return nil, err
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	// Ctrl-C reaches every program of the console: it is left to the command.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	w.atEnd(func() { signal.Stop(interrupts) })
	if err := cmd.Start(); err != nil {
		w.close()
		return nil, err
	}
	for _, f := range later {
		f()
	}
	return w, nil
}
