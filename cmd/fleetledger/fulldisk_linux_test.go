package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"fleetledger/agent"
	"fleetledger/testing/load"
)

// smallDisk mounts a file system of this many MiB and returns where.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	err := syscall.Mount("fleetledger-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=0755", mib))
	if err != nil {
		t.Skipf("NOT TESTED, what happens on a full disk: no file system can be mounted here: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// ballast fills the disk up to what is to be left free, in bytes.
func ballast(t *testing.T, dir string, left uint64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 64<<10); ; {
		var disk syscall.Statfs_t
		if err := syscall.Statfs(dir, &disk); err != nil {
			t.Fatal(err)
		}
		if disk.Bavail*uint64(disk.Bsize) <= left {
			return
		}
		if _, err := f.Write(chunk); errors.Is(err, syscall.ENOSPC) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// TestFullDisk fills a real file system under a real server. Below the mark appends
// are answered 507 and nothing fails; reads go on; with space again appends do. A
// server that is killed while nothing at all is free loses nothing, does not start
// for appends there, and can be read.
func TestFullDisk(t *testing.T) {
	if testing.Short() {
		t.Skip("it runs real servers and mounts a file system")
	}
	disk := smallDisk(t, 340)
	data := filepath.Join(disk, "data")
	t.Setenv("TMPDIR", t.TempDir())              // a server that only reads is killed, and leaves its view there
	program, err := exec.LookPath("fleetledger") // TestMain has put it there
	if err != nil {
		t.Fatal(err)
	}
	address, err := freeAddress()
	if err != nil {
		t.Fatal(err)
	}
	start := func(flags ...string) *load.Process {
		t.Helper()
		p, err := load.Start(t.Context(), program, append([]string{"serve", "--data", data, "--listen", address}, flags...)...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	server := start()
	defer func() { server.Kill() }()
	token, err := os.ReadFile(rootTokenFile(data, defaultFleet))
	if err != nil {
		t.Fatal(err)
	}
	c, err := agent.NewClient("http://"+address, strings.TrimSpace(string(token)))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	event := func(key string) error {
		n++
		_, err := c.Do(t.Context(), agent.Request{Method: http.MethodPost, Path: "/v1/events", ContentType: "application/cloudevents+json", Key: key, Once: true,
			Body: map[string]any{"specversion": "1.0", "id": fmt.Sprint("disk-", n), "source": "/test", "type": "ext.disk.filled", "subject": "ext-disk", "data": map[string]any{"n": n}}})
		return err
	}
	// refused fails the test unless appends come to be answered so; the last look at
	// the disk is good for a moment.
	refused := func(status int, code string) {
		t.Helper()
		for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
			err := event(agent.NewKey())
			p, _ := errors.AsType[*agent.Problem](err)
			if p != nil && p.Status == status && p.Code == code {
				return
			}
			if err != nil || time.Now().After(end) {
				t.Fatalf("an append: %v", err)
			}
		}
	}
	recorded := func() uint64 {
		t.Helper()
		resp, err := c.Get(t.Context(), "/v1/events", map[string][]string{"type": {"ext.disk.filled"}, "limit": {"1000"}})
		if err != nil {
			t.Fatalf("a read: %v", err)
		}
		var page struct {
			Items []struct{} `json:"items"`
		}
		if err := resp.Decode(&page); err != nil {
			t.Fatal(err)
		}
		return uint64(len(page.Items))
	}
	for range 10 {
		if err := event(agent.NewKey()); err != nil {
			t.Fatal(err)
		}
	}

	ballast(t, disk, 160<<20) // below the mark
	refused(507, "NO_SPACE")
	there := recorded()
	ballast(t, disk, 0)
	key := agent.NewKey()
	for range 5 {
		if p, _ := errors.AsType[*agent.Problem](event(key)); p == nil || p.Status != 507 {
			t.Fatalf("an append on a full disk: %v", p)
		}
		n-- // the same request
	}
	if got := recorded(); got != there {
		t.Fatalf("%d events are read on a full disk, %d were there", got, there)
	}

	// Killed and started again while nothing at all is free.
	server.Kill()
	bounded, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := exec.CommandContext(bounded, program, "serve", "--data", data, "--listen", address).CombinedOutput(); err == nil || !strings.Contains(string(out), "no space left") {
		t.Errorf("a start on a full disk: %v: %s", err, out)
	}
	server = start("--read-only")
	if got := recorded(); got != there {
		t.Fatalf("%d events are read, %d were there", got, there)
	}
	refused(503, "READ_ONLY")
	server.Kill()

	if err := os.Truncate(filepath.Join(disk, "ballast"), 0); err != nil {
		t.Fatal(err)
	}
	server = start()
	if err := event(key); err != nil {
		t.Fatalf("with space again, the append that was refused: %v", err)
	}
	if got := recorded(); got != there+1 {
		t.Fatalf("%d events, %d were there and one was added", got, there)
	}
	// And without a restart.
	ballast(t, disk, 160<<20)
	refused(507, "NO_SPACE")
	there = recorded()
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		err := event(agent.NewKey())
		if err == nil {
			break
		}
		if p, _ := errors.AsType[*agent.Problem](err); p == nil || p.Status != 507 || time.Now().After(end) {
			t.Fatalf("with space again: %v", err)
		}
	}
	if got := recorded(); got != there+1 {
		t.Fatalf("%d events, %d were there and one was added", got, there)
	}
	if err := server.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if code := run(t.Context(), []string{"audit", "--data", data}, strings.NewReader(""), io.Discard, io.Discard); code != exitDone {
		t.Errorf("the audit ends with %d", code)
	}
}
