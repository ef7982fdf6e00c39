package runner

import (
	"errors"
	"os"
	"time"
)

// ErrHeld says that another process has a lock.
var ErrHeld = errors.New("another process holds it")

// Lock opens a file, makes it if need be, and takes its lock, waiting at most wait;
// then it is ErrHeld. Closing the file gives the lock back, and so does the end of
// the process.
func Lock(name string, wait time.Duration) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(2 * time.Millisecond) {
		held, err := tryLock(f)
		if err == nil && !held {
			return f, nil
		}
		if err == nil && time.Now().After(deadline) {
			err = ErrHeld
		}
		if err != nil {
			f.Close()
			return nil, err
		}
	}
}
