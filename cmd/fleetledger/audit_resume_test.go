package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"fleetledger/commands/audit"
	"fleetledger/events"
)

// TestResume: an audit goes on where another ended, from a server and from a directory,
// and only if the log begins like the one that was audited.
func TestResume(t *testing.T) {
	dir := t.TempDir()
	data, fork, early := filepath.Join(dir, "data"), filepath.Join(dir, "fork"), filepath.Join(dir, "early")
	file := filepath.Join(dir, "established")
	command := func(t *testing.T, ctx context.Context, args ...string) (string, string, int) {
		t.Helper()
		var out, told bytes.Buffer
		code := run(ctx, args, nil, &out, &told)
		if code == exitMisuse {
			t.Fatalf("%q: %s", args, told.String())
		}
		return out.String(), told.String(), code
	}
	at := func(server string) []string {
		return []string{"--server", server, "--token-file", filepath.Join(data, rootTokenName)}
	}
	auditOf := func(t *testing.T, args ...string) (r audit.Report) {
		t.Helper()
		out, told, code := command(t, t.Context(), append([]string{"audit", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &r); err != nil || r.OK != (code == 0) {
			t.Fatalf("%q: exit code %d, %v: %s%s", args, code, err, out, told)
		}
		return r
	}
	found := func(r audit.Report, kind string, p events.Position) bool {
		return !r.OK && slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.Kind == kind && (f.Position == p || p == 0) })
	}

	_, stop := startServer(t, data)
	stop()
	for _, to := range []string{fork, early} {
		if err := os.CopyFS(to, os.DirFS(data)); err != nil {
			t.Fatal(err)
		}
	}
	forked, stopForked := startServer(t, fork)
	notes(t, fork, forked, "otherwise", 700)
	address, stop := startServer(t, data)
	notes(t, data, address, "yesterday", 300)

	first := auditOf(t, append(at(address), "--save", file)...)
	if !first.OK || first.RestsOn != nil {
		t.Fatalf("the first: %+v", first)
	}
	n := first.To
	kept, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	resume := func(server string, more ...string) []string {
		return slices.Concat(at(server), []string{"--resume", file}, more)
	}
	if r := auditOf(t, resume(address)...); !r.OK || r.Events != 0 || r.RestsOn.Position != n {
		t.Errorf("with nothing new: %+v", r)
	}
	notes(t, data, address, "today", 400)
	command(t, t.Context(), append([]string{"events", "erase", "yesterday-7", "--reason", "leaked"}, at(address)...)...)
	honest := auditOf(t, resume(address, "--checkpoint", checkpointOf(t, command, at(address)))...)
	if !honest.OK || honest.From != n+1 || honest.Events < 401 || honest.Events > 410 || honest.DecisionsRederived < 400 || honest.CheckpointsVerified != 2 {
		t.Errorf("resumed: %+v", honest)
	}

	// What a server tells otherwise.
	for what, c := range map[string]struct {
		server string
		liar   liar
		kind   string
		at     events.Position
	}{
		"another history": {forked, liar{}, audit.Checkpoint, 1},
		"a tile from before": {address, liar{change: func(path string, b []byte) []byte {
			if strings.Contains(path, "/log/tile/0/000") && len(b) == 256*32 {
				b = bytes.Clone(b)
				b[40] ^= 1
			}
			return b
		}}, audit.Checkpoint, 1},
		"a payload": {address, liar{change: func(path string, b []byte) []byte {
			if strings.Contains(path, "/v1/payloads?after=512") {
				return bytes.Replace(b, []byte("today"), []byte("todaz"), 1)
			}
			return b
		}}, audit.Payload, 513},
		"a node": {address, liar{change: func(path string, b []byte) []byte {
			if strings.Contains(path, "/log/tile/1/000") {
				b = bytes.Clone(b)
				b[32+5] ^= 1
			}
			return b
		}}, findingTile, 257},
		"an erased payload that is there": {address, liar{change: func(path string, b []byte) []byte {
			if strings.Contains(path, "/v1/payloads?after=0&") {
				return bytes.ReplaceAll(b, []byte(`"erased":true`), []byte(`"salt":"00000000000000000000000000000000","payload":"{}"`))
			}
			return b
		}}, audit.Payload, 0},
	} {
		if r := auditOf(t, resume(c.liar.serve(t, c.server))...); !found(r, c.kind, c.at) {
			t.Errorf("%s: %+v", what, r)
		}
	}

	// The same from a directory, and one of the other.
	stop()
	stopForked()
	inDir := func(dir string, more ...string) []string {
		return append([]string{"--data", dir, "--resume", file}, more...)
	}
	if r := auditOf(t, inDir(data, "--save", file)...); !r.OK || r.From != n+1 || r.To < honest.To || r.RestsOn.Position != n {
		t.Errorf("in a directory: %+v", r)
	}
	if r := auditOf(t, inDir(data)...); !r.OK || r.Events != 0 || r.RestsOn.Audits != 2 {
		t.Errorf("in a directory, with nothing new: %+v", r)
	}
	// One that is broken off leaves what it had by then, between two appends.
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	half := filepath.Join(dir, "half")
	if _, told, code := command(t, ended, "audit", "--data", data, "--save", half); code != exitFailed || !strings.Contains(told, "go on with --resume") {
		t.Errorf("broken off: exit code %d: %s", code, told)
	}
	if r := auditOf(t, "--data", data, "--resume", half); !r.OK || r.From < 2 || r.From > n || r.To < honest.To {
		t.Errorf("from what was saved: %+v", r)
	}

	if err := os.WriteFile(file, kept, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := auditOf(t, inDir(fork)...); !found(r, audit.Checkpoint, 1) {
		t.Errorf("another history in a directory: %+v", r)
	}
	r := auditOf(t, inDir(early)...)
	if !found(r, audit.Checkpoint, 0) || r.Findings[0].Position > n {
		t.Errorf("a shorter log in a directory: %+v", r)
	}

	// What is not sound in a directory besides its log leaves nothing to go on from.
	bad := filepath.Join(dir, "bad")
	if err := os.CopyFS(bad, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(bad, "fleets", "default", "anchor")); err != nil {
		t.Fatal(err)
	}
	if r := auditOf(t, "--data", bad, "--save", filepath.Join(dir, "no")); !found(r, audit.Anchor, 1) {
		t.Errorf("without an anchor: %+v", r)
	}

	// A file that does not fit is an error, and never an audit of everything.
	for what, c := range map[string]struct {
		file []byte
		args []string
		says string
	}{
		"damaged":                  {append(bytes.Clone(kept[:200]), kept[201:]...), nil, "it is damaged"},
		"another file":             {[]byte("hello\n"), nil, "no audit has written it"},
		"of another version":       {bytes.Replace(kept, []byte("audit/1"), []byte("audit/9"), 1), nil, "damaged"},
		"a checkpoint before it":   {kept, []string{"--checkpoint", filepath.Join(early, "fleets", "default", "checkpoint")}, "cannot be compared"},
		"a file that is not there": {nil, nil, "an audit leaves such a file with --save"},
	} {
		name := filepath.Join(dir, "odd")
		if c.file != nil {
			if err := os.WriteFile(name, c.file, 0o600); err != nil {
				t.Fatal(err)
			}
		} else if err := os.Remove(name); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		out, told, code := command(t, t.Context(), slices.Concat([]string{"audit", "--data", data, "--resume", name, "--save", filepath.Join(dir, "no")}, c.args)...)
		if code != exitFailed || out != "" || !strings.Contains(told, c.says) {
			t.Errorf("%s: exit code %d: %s%s", what, code, out, told)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "no")); !os.IsNotExist(err) {
		t.Errorf("a failed audit saved something: %v", err)
	}
}

func checkpointOf(t *testing.T, command func(*testing.T, context.Context, ...string) (string, string, int), at []string) string {
	t.Helper()
	text, told, code := command(t, t.Context(), append([]string{"checkpoint"}, at...)...)
	name := filepath.Join(t.TempDir(), "checkpoint")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil || code != 0 {
		t.Fatal(told, err)
	}
	return name
}
