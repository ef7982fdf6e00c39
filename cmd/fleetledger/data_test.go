package main

import (
	"os"
	"path/filepath"
	"testing"
)

// What could not be written leaves no half of it, which may be a key.
func TestWriteDurablyLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "taken")
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := writeDurably(name, []byte("secret"), 0o600); err == nil {
		t.Fatal("a file took the place of a directory")
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("%v is there, %v", entries, err)
	}
}
