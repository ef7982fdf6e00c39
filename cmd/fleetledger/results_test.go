package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

// full takes so many bytes, and then no more.
type full struct{ room int }

var errFull = errors.New("no space left on device")

func (f *full) Write(p []byte) (int, error) {
	n := min(len(p), f.room)
	f.room -= n
	if n < len(p) {
		return n, errFull
	}
	return n, nil
}

// What could not be written is told, and is no success.
func TestOutputNotWhole(t *testing.T) {
	for _, args := range []string{"version", "version --json", "--help", "audit --help", "help"} {
		for _, room := range []int{0, 5} {
			var told bytes.Buffer
			code := run(t.Context(), strings.Fields(args), strings.NewReader(""), &full{room}, &told)
			if code != exitFailed || !strings.Contains(told.String(), errFull.Error()) {
				t.Errorf("%s with room for %d bytes: exit code %d, told %q", args, room, code, told.String())
			}
		}
	}
}
