package foreign_test

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// patience bounds every wait; nothing is measured by it.
const patience = 30 * time.Second

// program builds one, in the module of dir.
func program(t *testing.T, dir, pkg string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), filepath.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", bin, pkg)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return bin
}

// process is a program that runs in the background.
type process struct {
	cmd    *exec.Cmd
	stderr *bytes.Buffer // to be read when it has ended
	ended  chan error
}

// start starts a program and waits for a line of its stdout, or of its stderr, that
// matches ready.
func start(t *testing.T, ready string, fromStderr bool, name string, args ...string) (*process, string) {
	t.Helper()
	p := &process{cmd: exec.CommandContext(t.Context(), name, args...), stderr: &bytes.Buffer{}, ended: make(chan error, 1)}
	r, w := io.Pipe()
	if p.cmd.Stdout, p.cmd.Stderr = w, p.stderr; fromStderr {
		p.cmd.Stdout, p.cmd.Stderr = io.Discard, io.MultiWriter(w, p.stderr)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		err := p.cmd.Wait()
		w.Close()
		p.ended <- err
	}()
	t.Cleanup(func() { p.stop(t) })
	found := make(chan string, 1)
	go func() {
		defer close(found)
		for s := bufio.NewScanner(r); s.Scan(); {
			if m := regexp.MustCompile(ready).FindStringSubmatch(s.Text()); m != nil {
				found <- m[len(m)-1]
				break
			}
		}
		_, _ = io.Copy(io.Discard, r)
	}()
	select {
	case got, ok := <-found:
		if !ok {
			t.Fatalf("%s ended before it was ready:\n%s", name, p.stderr)
		}
		return p, got
	case <-time.After(patience):
		t.Fatalf("%s is not ready", name)
		return nil, ""
	}
}

// stop ends the program as its user would, and returns what it wrote to stderr.
func (p *process) stop(t *testing.T) string {
	if p.ended == nil {
		return p.stderr.String()
	}
	_ = p.cmd.Process.Signal(syscall.SIGINT) // it may have ended
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
		t.Errorf("%v does not end", p.cmd.Args)
	}
	p.ended = nil
	return p.stderr.String()
}

// litewitness is torchwood's witness, with its key in an agent.
type litewitness struct {
	bin, ctl, db, socket, fingerprint, address string
	key                                        string // by which its cosignatures are verified
	running                                    *process
}

const witnessName = "witness.test/lite"

func newLitewitness(t *testing.T) *litewitness {
	t.Helper()
	dir, err := os.MkdirTemp("", "lw") // the path of a socket is short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	w := &litewitness{
		bin: program(t, ".", "filippo.io/torchwood/cmd/litewitness"), ctl: program(t, ".", "filippo.io/torchwood/cmd/witnessctl"),
		db: filepath.Join(dir, "w.db"), socket: filepath.Join(dir, "agent"),
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := torchwood.NewCosignatureSigner(witnessName, private)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.NewPublicKey(private.Public())
	if err != nil {
		t.Fatal(err)
	}
	w.key, w.fingerprint = signer.Verifier().String(), ssh.FingerprintSHA256(public)
	ring := agent.NewKeyring()
	if err := ring.Add(agent.AddedKey{PrivateKey: private}); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", w.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_ = agent.ServeAgent(ring, conn) // until the witness ends
			}()
		}
	}()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w.address = free.Addr().String()
	free.Close()
	return w
}

// trust adds a log, as the witness's operator does.
func (w *litewitness) trust(t *testing.T, origin, key string) {
	t.Helper()
	for _, args := range [][]string{{"add-log", "-db", w.db, "-origin", origin}, {"add-key", "-db", w.db, "-origin", origin, "-key", key}} {
		if out, err := exec.CommandContext(t.Context(), w.ctl, args...).CombinedOutput(); err != nil {
			t.Fatalf("witnessctl %q: %v\n%s", args, err, out)
		}
	}
}

func (w *litewitness) start(t *testing.T) {
	t.Helper()
	w.running, _ = start(t, "msg=listening", true, w.bin,
		"-db", w.db, "-ssh-agent", w.socket, "-name", witnessName, "-key", w.fingerprint, "-listen", w.address)
}

// ledger is the program, with one data directory.
type ledger struct {
	bin, data, address string
	flags              []string // of serve
	running            *process
}

func (l *ledger) start(t *testing.T) {
	t.Helper()
	l.running, l.address = start(t, "^listening on (.*)", false, l.bin, append([]string{"serve", "--data", l.data, "--listen", "127.0.0.1:0", "--origin-host", "ledger.test"}, l.flags...)...)
}

// run runs a command against the server, and returns its output and its errors.
func (l *ledger) run(t *testing.T, args ...string) (out, told string, ok bool) {
	t.Helper()
	args = append(args, "--server", l.address, "--token-file", filepath.Join(l.data, "root.token"))
	return l.offline(t, args...)
}

func (l *ledger) offline(t *testing.T, args ...string) (out, told string, ok bool) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), l.bin, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
		t.Fatal(err)
	}
	return stdout.String(), stderr.String(), err == nil
}

func (l *ledger) must(t *testing.T, args ...string) string {
	t.Helper()
	out, told, ok := l.run(t, args...)
	if !ok {
		t.Fatalf("%q: %s%s", args, out, told)
	}
	return out
}

// note records an event, and waits until it is witnessed, and that is recorded.
func (l *ledger) note(t *testing.T, text string) {
	t.Helper()
	position := l.append(t, text)
	got := ""
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		out, told, ok := l.run(t, "checkpoint", "--witnessed")
		got = out + told
		if !ok {
			continue
		}
		if size, err := strconv.Atoi(strings.Split(out, "\n")[1]); err == nil && size >= position {
			return
		}
	}
	t.Fatalf("position %d is not witnessed:\n%s", position, got)
}

func (l *ledger) append(t *testing.T, text string) (position int) {
	t.Helper()
	out := l.must(t, "events", "append", "--type", "ext.note.taken", "--stream", "ext-notes", "--data", fmt.Sprintf("{%q:%q}", "text", text), "--json")
	m := regexp.MustCompile(`"position":\s*(\d+)`).FindStringSubmatch(out)
	if m == nil {
		t.Fatalf("no receipt: %s", out)
	}
	position, _ = strconv.Atoi(m[1])
	return position
}

func (l *ledger) ready(t *testing.T) (int, string) {
	t.Helper()
	resp, err := http.Get(l.address + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// TestLitewitness has torchwood's own witness, unmodified, cosign the log of a real
// server: what it has seen is recorded and can be audited, and a data directory that
// was rolled back takes nothing more.
func TestLitewitness(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("an ssh-agent listens on a unix socket")
	}
	l := &ledger{bin: program(t, "../..", "./cmd/fleetledger"), data: filepath.Join(t.TempDir(), "data")}
	l.start(t)
	key := strings.TrimSpace(l.must(t, "checkpoint", "--key"))
	l.running.stop(t)

	w := newLitewitness(t)
	w.trust(t, "ledger.test/default", key)
	w.start(t)
	l.flags = []string{"--witness", w.key + "@http://" + w.address, "--witness-every", "1s"}
	l.start(t)
	l.note(t, "one")
	if out := l.must(t, "events", "tail", "--type", "checkpoint.witnessed"); !strings.Contains(out, "checkpoint.witnessed") {
		t.Errorf("no event tells of it:\n%s", out)
	}
	cosigned := filepath.Join(t.TempDir(), "cosigned")
	if err := os.WriteFile(cosigned, []byte(l.must(t, "checkpoint", "--witnessed")), 0o644); err != nil {
		t.Fatal(err)
	}
	told := regexp.MustCompile(`witness ` + witnessName + ` cosigned \d+ events at 20`)
	if out := l.must(t, "audit", "--key", key, "--witness", w.key); !strings.HasPrefix(out, "ok") || !told.MatchString(out) {
		t.Errorf("the audit over HTTP: %s", out)
	}
	if out, err, ok := l.offline(t, "checkpoint", "verify", cosigned, "--key", key, "--witness", w.key); !ok || !strings.Contains(out, "witness "+witnessName+" cosigned it at 20") {
		t.Errorf("the checkpoint: %s%s", out, err)
	}

	// A witness that is down holds up nothing, and is asked again when it is back.
	w.running.stop(t)
	l.append(t, "unseen")
	if code, body := l.ready(t); code != http.StatusOK {
		t.Errorf("without its witness it answers %d %s", code, body)
	}
	w.start(t)
	l.note(t, "two")

	// The copy that is put back later.
	l.running.stop(t)
	old, newest := l.data+".old", l.data+".newest"
	if err := os.CopyFS(old, os.DirFS(l.data)); err != nil {
		t.Fatal(err)
	}
	l.start(t)
	l.note(t, "three")
	l.running.stop(t)
	if out, err, ok := l.offline(t, "audit", "--data", l.data, "--key", key, "--witness", w.key, "--checkpoint", cosigned); !ok || !told.MatchString(out) {
		t.Errorf("the audit of the directory: %s%s", out, err)
	}
	if err := errors.Join(os.Rename(l.data, newest), os.Rename(old, l.data)); err != nil {
		t.Fatal(err)
	}
	l.start(t)
	_, refused, ok := l.run(t, "events", "append", "--type", "ext.note.taken", "--stream", "ext-notes", "--data", "{}")
	if ok || !regexp.MustCompile(`witness `+witnessName+` has cosigned \d+ events of this log, and \d+ are here: this is an older copy of it`).MatchString(refused) {
		t.Errorf("an append to the older copy: %t %s", ok, refused)
	}
	if out := l.must(t, "events", "tail", "--type", "ext.note.taken"); strings.Count(out, "ext.note.taken") != 3 {
		t.Errorf("what is read of it: %s", out)
	}
	if code, body := l.ready(t); code != http.StatusServiceUnavailable || !strings.Contains(body, `"code":"WITNESS_CONTRADICTS"`) || !strings.Contains(body, `"state":"contradicts"`) {
		t.Errorf("is it ready? %d %s", code, body)
	}
	if told := l.running.stop(t); !strings.Contains(told, "fleet default is served for reading only") {
		t.Errorf("the operator is told %s", told)
	}

	// The newest one is taken again.
	if err := errors.Join(os.Rename(l.data, old), os.Rename(newest, l.data)); err != nil {
		t.Fatal(err)
	}
	l.start(t)
	l.note(t, "four")
	if code, body := l.ready(t); code != http.StatusOK || !strings.Contains(body, `"state":"agrees"`) {
		t.Errorf("is it ready? %d %s", code, body)
	}
}
