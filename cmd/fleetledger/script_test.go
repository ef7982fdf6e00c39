package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rogpeppe/go-internal/testscript"

	"fleetledger/testing/kurrentstub"
	"fleetledger/testing/witnessstub"
)

func TestMain(m *testing.M) {
	// In a script's processes this is the program itself.
	testscript.Main(m, map[string]func(){"fleetledger": func() {
		go endWithParent(os.Getppid())
		main()
	}})
}

// endWithParent ends this process when the test that started it is gone: a test
// that is killed cannot clean up.
func endWithParent(parent int) {
	for os.Getppid() == parent {
		time.Sleep(200 * time.Millisecond)
	}
	os.Exit(exitFailed)
}

// TestScript runs the program as its users do: real processes, a server on a free
// port, files in a directory of their own; with -short, one script of them. Besides
// testscript's commands there are
//
//	relay [FLAG...]          start `fleetledger serve` on $WORK/data and wait until it
//	                         listens; it keeps its port when it is started again
//	agent MACHINE [FLAG...]  start an agent with MACHINE.token and wait for its offers
//	pairedagent MACHINE [FLAG...]
//	                         the same without a token
//	service MACHINE UNIT     start what a unit of systemd starts, and wait for its offers
//	term relay|MACHINE       send SIGTERM; it must end with exit code 0
//	kill9 relay|MACHINE      send SIGKILL
//	asked MACHINE            send SIGTERM and do not wait
//	ended MACHINE            wait until it has ended with exit code 0
//	alive FILE yes|no        wait until the process whose id the file holds is, or is not, there
//	settled TASK VERDICT     wait until the task is settled; it must be with this verdict
//	await FILE REGEXP        wait until the file matches
//	until REGEXP COMMAND...  run the command until its stdout matches
//	capture NAME REGEXP      set NAME to the first group of the match in the last stdout
//	flip DIR TEXT            change one byte of TEXT where it lies in a file under DIR
//	peer NAME [FLAG...]      start a relay on $WORK/NAME and on $CLUSTER; $NAME is its address
//	witness NAME FILE        start a witness of the log whose verifier key the file has, as
//	                         $NAME, for serve, and $NAME_KEY; or have it know another key
//	cluster                  start an empty KurrentDB cluster, a stub, that $CLUSTER names
//	mode FILE PERM           check the file's permissions
//	certificate              write cert.pem and key.pem for 127.0.0.1
//	misuse ARG...            run fleetledger; it must end with exit code 2 and no stdout
func TestScript(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts use sh and SIGTERM")
	}
	p := scripts("")
	p.Dir = "testdata/script"
	testscript.Run(t, p)
}

// TestScriptOnACluster runs some of the scripts again, each with an empty cluster for
// its log: a stub, and a real one too if FLEETLEDGER_TEST_KURRENTDB names it.
func TestScriptOnACluster(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the scripts use sh and SIGTERM")
	}
	for _, real := range []string{"", os.Getenv("FLEETLEDGER_TEST_KURRENTDB")} {
		name := "stub"
		if real != "" {
			name = "cluster"
		}
		t.Run(name, func(t *testing.T) {
			for _, script := range []string{"journey", "governance", "pairing"} {
				t.Run(script, func(t *testing.T) {
					engine := real + "?"
					if strings.Contains(real, "?") {
						engine = real + "&"
					}
					if engine += "streamPrefix=test-" + uuid.NewString(); real == "" {
						c, err := kurrentstub.Start(kurrentstub.Options{Nodes: 3})
						if err != nil {
							t.Fatal(err)
						}
						t.Cleanup(c.Stop)
						engine = c.ConnectionString()
					}
					p := scripts(engine)
					p.Files = []string{"testdata/script/" + script + ".txtar"}
					testscript.Run(t, p)
				})
			}
		})
		if os.Getenv("FLEETLEDGER_TEST_KURRENTDB") == "" {
			break
		}
	}
}

// scripts is how scripts are run, with an engine for their logs.
func scripts(engine string) testscript.Params {
	return testscript.Params{
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("XDG_STATE_HOME", "")
			// Else each process of a -race build waits for a second at its end.
			env.Setenv("GORACE", "atexit_sleep_ms=0")
			env.Setenv(envEngine, engine)
			h := &script{processes: map[string]*process{}, witnesses: map[string]*witnessstub.Witness{}, port: "0"}
			env.Values[scriptKey{}] = h
			env.Defer(h.killAll)
			return nil
		},
		Cmds: map[string]func(ts *testscript.TestScript, neg bool, args []string){
			"relay": cmdRelay, "agent": cmdAgent, "pairedagent": cmdPairedAgent, "service": cmdService, "term": cmdTerm, "kill9": cmdKill9,
			"asked": cmdAsked, "ended": cmdEnded, "alive": cmdAlive, "settled": cmdSettled, "misuse": cmdMisuse, "certificate": cmdCertificate, "await": cmdAwait, "capture": cmdCapture, "flip": cmdFlip, "mode": cmdMode,
			"until":   cmdUntil,
			"cluster": cmdCluster, "peer": cmdPeer, "witness": cmdWitness,
		},
	}
}

// patience is how long a script waits for what must come.
const patience = 30 * time.Second

type scriptKey struct{}

// script is what one script has running.
type script struct {
	processes map[string]*process
	witnesses map[string]*witnessstub.Witness
	port      string
}

type process struct {
	cmd    *exec.Cmd
	ended  chan struct{} // closed when it has ended
	output string        // the file that has its stderr
}

func scriptOf(ts *testscript.TestScript) *script { return ts.Value(scriptKey{}).(*script) }

// start runs the program in the background and waits until the file name, its
// stdout or stderr, matches ready.
func (h *script) start(ts *testscript.TestScript, name, ready string, onStdout bool, args []string) {
	if h.processes[name] != nil {
		ts.Fatalf("%s runs already", name)
	}
	path, err := exec.LookPath("fleetledger") // testscript has put it there
	ts.Check(err)
	open := func(name string) *os.File {
		f, err := os.Create(ts.MkAbs(name))
		ts.Check(err)
		return f
	}
	stdout, stderr := open(name+".stdout"), open(name+".stderr")
	defer stdout.Close()
	defer stderr.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir = ts.MkAbs(".")
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "FLEETLEDGER_URL", "SSL_CERT_FILE", envEngine, "GORACE", "GOCOVERDIR", "SYSTEMROOT"} {
		cmd.Env = append(cmd.Env, name+"="+ts.Getenv(name))
	}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	ts.Check(cmd.Start())
	p := &process{cmd: cmd, ended: make(chan struct{}), output: stderr.Name()}
	go func() {
		_ = cmd.Wait() // cmd.ProcessState tells
		close(p.ended)
	}()
	h.processes[name] = p
	watched := stderr.Name()
	if onStdout {
		watched = stdout.Name()
	}
	if err := await(watched, ready, p.ended); err != nil {
		told, _ := os.ReadFile(p.output)
		ts.Fatalf("%s: %v\n%s", name, err, told)
	}
}

// end sends sig and waits for the end.
func (h *script) end(ts *testscript.TestScript, name string, sig os.Signal) *os.ProcessState {
	p := h.processes[name]
	if p == nil {
		ts.Fatalf("%s does not run", name)
	}
	delete(h.processes, name)
	ts.Check(p.cmd.Process.Signal(sig))
	select {
	case <-p.ended:
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.ended
		told, _ := os.ReadFile(p.output)
		ts.Fatalf("%s did not end\n%s", name, told)
	}
	return p.cmd.ProcessState
}

func (h *script) killAll() {
	for _, p := range h.processes {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.ended
	}
}

func cmdRelay(ts *testscript.TestScript, _ bool, args []string) {
	h := scriptOf(ts)
	data := ts.MkAbs("data")
	h.start(ts, "relay", `listening on https?://127\.0\.0\.1:\d+\n`, true,
		append([]string{"serve", "--data", data, "--listen", "127.0.0.1:" + h.port}, args...))
	address := strings.TrimSpace(strings.TrimPrefix(ts.ReadFile("relay.stdout"), "listening on "))
	u, err := url.Parse(address)
	ts.Check(err)
	h.port = u.Port()
	ts.Setenv("FLEETLEDGER_URL", address)
}

func cmdPeer(ts *testscript.TestScript, _ bool, args []string) {
	name := args[0]
	scriptOf(ts).start(ts, name, `listening on http://127\.0\.0\.1:\d+\n`, true,
		append([]string{"serve", "--data", ts.MkAbs(name), "--listen", "127.0.0.1:0", "--engine", ts.Getenv("CLUSTER"), "--relay", name}, args[1:]...))
	ts.Setenv(name, strings.TrimSpace(strings.TrimPrefix(ts.ReadFile(name+".stdout"), "listening on ")))
}

func cmdCluster(ts *testscript.TestScript, _ bool, _ []string) {
	c, err := kurrentstub.Start(kurrentstub.Options{Nodes: 3})
	ts.Check(err)
	ts.Defer(c.Stop)
	ts.Setenv("CLUSTER", c.ConnectionString())
}

func cmdWitness(ts *testscript.TestScript, _ bool, args []string) {
	h, name, key := scriptOf(ts), args[0], strings.TrimSpace(ts.ReadFile(args[1]))
	w := h.witnesses[name]
	if w != nil {
		w.Trust(key)
		return
	}
	w = witnessstub.Offline(name + ".test")
	w.Trust(key)
	h.witnesses[name] = w
	s := httptest.NewServer(w)
	ts.Defer(s.Close)
	ts.Setenv(name, w.Key()+"@"+s.URL)
	ts.Setenv(name+"_KEY", w.Key())
}

func cmdAgent(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: agent MACHINE [FLAG...]")
	}
	machine := args[0]
	startAgent(ts, machine, append([]string{"--machine", machine, "--token-file", machine + ".token"}, args[1:]...))
}

func cmdPairedAgent(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: pairedagent MACHINE [FLAG...]")
	}
	startAgent(ts, args[0], args[1:])
}

func cmdService(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: service MACHINE UNIT")
	}
	_, line, _ := strings.Cut(ts.ReadFile(args[1]), "\nExecStart=")
	line, _, _ = strings.Cut(line, "\n")
	var words []string
	for i, part := range strings.Split(line, `"`) { // none of them holds a quote here
		if i%2 == 1 {
			words = append(words, part)
		}
	}
	scriptOf(ts).start(ts, args[0], `msg="taking offers"`, false, words[1:])
}

func startAgent(ts *testscript.TestScript, machine string, args []string) {
	scriptOf(ts).start(ts, machine, `msg="taking offers"`, false, append([]string{"agent", "--state", ts.MkAbs(machine + ".state")}, args...))
}

func cmdTerm(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: term NAME")
	}
	began := time.Now()
	state := scriptOf(ts).end(ts, args[0], syscall.SIGTERM)
	if state.ExitCode() != 0 {
		told, _ := os.ReadFile(ts.MkAbs(args[0] + ".stderr"))
		ts.Fatalf("%s ended with %v\n%s", args[0], state, told)
	}
	if d := time.Since(began); d > 15*time.Second {
		ts.Fatalf("%s took %v to end", args[0], d)
	}
}

func cmdKill9(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 1 {
		ts.Fatalf("usage: kill9 NAME")
	}
	scriptOf(ts).end(ts, args[0], os.Kill)
}

func cmdAsked(ts *testscript.TestScript, _ bool, args []string) {
	p := scriptOf(ts).processes[args[0]]
	if p == nil {
		ts.Fatalf("%s does not run", args[0])
	}
	ts.Check(p.cmd.Process.Signal(syscall.SIGTERM))
}

func cmdEnded(ts *testscript.TestScript, _ bool, args []string) {
	h := scriptOf(ts)
	p := h.processes[args[0]]
	select {
	case <-p.ended:
		delete(h.processes, args[0])
	case <-time.After(patience):
		ts.Fatalf("%s did not end", args[0])
	}
	if code := p.cmd.ProcessState.ExitCode(); code != 0 {
		ts.Fatalf("%s ended with %v", args[0], p.cmd.ProcessState)
	}
}

func cmdAlive(ts *testscript.TestScript, _ bool, args []string) {
	want := args[1] == "yes"
	poll(ts, fmt.Sprintf("the process in %s is not there: %v", args[0], want), func() bool {
		// ps tells one that is only waited for from one that runs.
		out, _ := exec.Command("ps", "-o", "stat=", "-p", strings.TrimSpace(ts.ReadFile(args[0]))).Output()
		state := strings.TrimSpace(string(out))
		return (state != "" && !strings.HasPrefix(state, "Z")) == want
	})
}

func cmdSettled(ts *testscript.TestScript, _ bool, args []string) {
	poll(ts, args[0]+" is not settled", func() bool {
		ts.Check(ts.Exec("fleetledger", "task", "show", args[0], "--json", "--token-file", ts.MkAbs("data/root.token")))
		return strings.Contains(ts.ReadFile("stdout"), `"status":"settled"`)
	})
	if out := ts.ReadFile("stdout"); !strings.Contains(out, `"verdict":"`+args[1]+`"`) {
		ts.Fatalf("it is not %s: %s", args[1], out)
	}
}

// poll waits for what no file tells of.
func poll(ts *testscript.TestScript, otherwise string, ready func() bool) {
	for deadline := time.Now().Add(patience); !ready(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			ts.Fatalf("%s", otherwise)
		}
	}
}

func cmdAwait(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: await FILE REGEXP")
	}
	ts.Check(await(ts.MkAbs(args[0]), args[1], nil))
}

// await polls a file that another process writes: there is nothing to wait on.
func await(file, pattern string, ended <-chan struct{}) error {
	re, err := regexp.Compile("(?m)" + pattern)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		b, err := os.ReadFile(file)
		if err == nil && re.Match(b) {
			return nil
		}
		select {
		case <-tick.C:
		case <-ended:
			return errors.New("it ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("%s never matched %s:\n%s", file, pattern, b)
		}
	}
}

func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until REGEXP COMMAND...")
	}
	re, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for limit := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		ts.Check(ts.Exec(args[1], args[2:]...))
		switch out := ts.ReadFile("stdout"); {
		case re.MatchString(out):
			return
		case time.Now().After(limit):
			ts.Fatalf("it never printed %s, but:\n%s", args[0], out)
		}
	}
}

func cmdCapture(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: capture NAME REGEXP")
	}
	re, err := regexp.Compile("(?m)" + args[1])
	ts.Check(err)
	m := re.FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("stdout has no match for %s", args[1])
	}
	ts.Setenv(args[0], m[1])
}

func cmdFlip(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: flip DIR TEXT")
	}
	flipped := ""
	err := filepath.WalkDir(ts.MkAbs(args[0]), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		i := bytes.Index(b, []byte(args[1]))
		if i < 0 {
			return nil
		}
		b[i] ^= 1
		flipped = path
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return err
		}
		return fs.SkipAll
	})
	ts.Check(err)
	if flipped == "" {
		ts.Fatalf("%s holds no %q", args[0], args[1])
	}
	ts.Logf("changed a byte of %s", flipped)
}

func cmdMisuse(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec("fleetledger", args...)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != exitMisuse {
		ts.Fatalf("ended with %v, not with exit code %d", err, exitMisuse)
	}
	if out := ts.ReadFile("stdout"); out != "" {
		ts.Fatalf("stdout: %s", out)
	}
}

func cmdCertificate(ts *testscript.TestScript, _ bool, _ []string) {
	public, private, err := ed25519.GenerateKey(nil)
	ts.Check(err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	ts.Check(err)
	key, err := x509.MarshalPKCS8PrivateKey(private)
	ts.Check(err)
	for name, block := range map[string]*pem.Block{"cert.pem": {Type: "CERTIFICATE", Bytes: cert}, "key.pem": {Type: "PRIVATE KEY", Bytes: key}} {
		ts.Check(os.WriteFile(ts.MkAbs(name), pem.EncodeToMemory(block), 0o600))
	}
}

func cmdMode(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) != 2 {
		ts.Fatalf("usage: mode FILE PERM")
	}
	info, err := os.Stat(ts.MkAbs(args[0]))
	ts.Check(err)
	if got := fmt.Sprintf("%04o", info.Mode().Perm()); got != args[1] {
		ts.Fatalf("%s has mode %s, not %s", args[0], got, args[1])
	}
}
