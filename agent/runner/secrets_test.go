package runner

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"fleetledger/events"
)

// leaked is put together here, so that no scanner takes this file for a leak.
const leaked = "ghp_" + "q7ZtR2mXw9KbL4vNc8Yd" + "J3hFs6GpUa1TeQ5i"

func TestOutputIsMasked(t *testing.T) {
	t.Parallel()
	text := "before\n" + leaked + "\nafter\n"
	p, c := self(t, "raw", hex.EncodeToString([]byte(text)))
	e := Run(background(), p, c)
	wantExit(t, e, 0)
	if e.Stdout.Tail != "before\n[secret:github-pat]\nafter\n" {
		t.Errorf("tail %q", e.Stdout.Tail)
	}
	if e.Stdout.Bytes != int64(len(text)) || e.Stdout.SHA256 != sha256.Sum256([]byte(text)) || e.Stdout.Truncated {
		t.Errorf("size and hash are not those of what was printed: %+v", e.Stdout)
	}
}

// Wherever the cut falls, no part of a secret is in the tail.
func TestSecretAcrossTheCut(t *testing.T) {
	for after := TailBytes - len(leaked) - 2; after <= TailBytes+2; after++ {
		text := strings.Repeat("line of output\n", 400) + leaked + strings.Repeat(".", after)
		c := newCapture()
		_, _ = c.Write([]byte(text))
		out := c.output()
		if i := strings.IndexByte(out.Tail, '.'); i > 0 && !strings.HasSuffix(out.Tail[:i], "[secret:github-pat]") {
			t.Fatalf("%d bytes after the secret: the tail begins %.60q", after, out.Tail)
		}
		if len(out.Tail) > TailBytes || !out.Truncated || out.Bytes != int64(len(text)) || out.SHA256 != sha256.Sum256([]byte(text)) {
			t.Fatalf("%d bytes after the secret: tail of %d, %+v", after, len(out.Tail), out)
		}
	}
}

// A private key is longer than what is kept before the tail: its end alone gives
// it away.
func TestPrivateKeyAcrossTheCut(t *testing.T) {
	line := "MIIEvQ" + strings.Repeat("q7ZtR2mXw9", 5) + "w9KbL4vN\n"
	key := "-----BEGIN " + "PRIVATE KEY-----\n" + strings.Repeat(line, 60) + "-----END " + "PRIVATE KEY-----\n"
	c := newCapture()
	_, _ = c.Write([]byte(key + strings.Repeat("x\n", 1500)))
	if tail := c.output().Tail; strings.Contains(tail, "q7ZtR2mX") || !strings.Contains(tail, "[secret:private-key-end]") {
		t.Errorf("the tail begins %.100q", tail)
	}
}

func TestMemoryHoldsNoSecret(t *testing.T) {
	dir := t.TempDir()
	rec := record("t1")
	rec.Argv = []string{"gh", "--token", leaked}
	rec.Tags = []string{"t=" + leaked}
	rec.Stdout.Tail, rec.Stderr.Tail, rec.Cwd, rec.Reason = leaked, "x "+leaked, "/srv/"+leaked, "no "+leaked
	if s := NewMemory(dir).Append(rec); !s.Written {
		t.Fatalf("not written: %+v", s)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "memory.jsonl"))
	if err != nil || strings.Contains(string(raw), leaked[4:]) {
		t.Fatalf("%v: %s", err, raw)
	}
	got := written(t, filepath.Join(dir, "memory.jsonl"))[0]
	if !slices.Equal(got.Argv, []string{"gh", "--token", "[secret:github-pat]"}) || got.Stderr.Tail != "x [secret:github-pat]" || got.Stdout.SHA256 != rec.Stdout.SHA256 {
		t.Errorf("remembered %+v", got)
	}
	if rec.Argv[2] != leaked || rec.Tags[0] != "t="+leaked {
		t.Error("the caller's record was changed")
	}
}

// Why a command was refused may repeat its words.
func TestReasonIsMasked(t *testing.T) {
	p, _ := self(t, "exit")
	e := Run(background(), p, Command{Argv: []string{"/" + leaked}})
	if e.Outcome != events.RefusedByAgent || strings.Contains(e.Reason, leaked[4:]) {
		t.Errorf("%s: %s", e.Outcome, e.Reason)
	}
}
