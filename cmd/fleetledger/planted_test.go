package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/events/pebblelog"
)

// planted is a secret in the text that gives it away, and the part that may be nowhere.
type planted struct{ text, secret string }

// plant makes one of each kind for a way in, so that one that is found names the way.
// They are put together here, so that no tool takes this file for a leak.
func plant(way string) []planted {
	n := 0
	made := func(length int, alphabet string) string {
		var b strings.Builder
		for ; b.Len() < length; n++ {
			for _, c := range sha256.Sum256(fmt.Append(nil, way, n)) {
				b.WriteByte(alphabet[int(c)%len(alphabet)])
			}
		}
		return b.String()[:length]
	}
	const letters, digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "0123456789"
	var list []planted
	add := func(before, secret, after string) { list = append(list, planted{before + secret + after, secret}) }
	add("", "AKIA"+made(16, letters[:26]+"234567"), "")
	add("", "ghp_"+made(36, letters+digits), "")
	add(`curl -H "Authorization: Bearer `, made(40, letters+digits), `" https://example.org`)
	add("authorization: Bearer ", made(40, letters+digits), "")
	add("Bearer ", made(40, letters+digits), "")
	add("password=", made(23, letters+digits)+"7", "") // of letters alone it could be a word
	add(`{"api_key": "`, made(31, letters+digits)+"7", `"}`)
	add("postgres://app:", made(20, letters+digits), "@db.example.org/app")
	line := made(64, letters+digits)
	add("-----BEGIN RSA "+"PRIVATE KEY-----\n", line, "\n"+made(64, letters+digits)+"\n"+made(40, letters+digits)+"==\n-----END RSA "+"PRIVATE KEY-----")
	return list
}

// A planted secret is nowhere: whatever way it comes in, it is refused or masked, and no
// file of the server, of a machine, of a backup or of what was logged or exported has it.
func TestPlantedSecretIsNowhere(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("it runs a real server and sh")
	}
	p := newPlantation(t)
	p.serve()
	for name, args := range map[string][]string{
		"m1": {"--kind", "machine", "--level", "10"}, "ana": {"--kind", "human", "--level", "60"},
	} {
		p.must("actors", append([]string{"register", name, "--save-token", name + ".token"}, args...)...)
	}
	agent := p.start("agent.log", "taking offers", "agent", "--machine", "m1", "--token-file", "m1.token", "--allow", "cat", "--allow", "sh", "--state", "state", "--root", ".")

	p.commands()
	p.requests()
	p.imports()

	// What is there is read in every way.
	p.export("events.jsonl", "events", "tail", "--json", "--after", "0")
	p.export("memory.json", "memory", "list", "--json", "--limit", "1000")
	p.export("collective.md", "collective", "show")
	p.export("tasks.json", "task", "list", "--json", "--limit", "1000")
	if p.task != "" {
		p.export("task.evidence", "evidence", "export", p.task)
	}
	p.must("backup", "backup")
	p.stop(agent)
	p.nowhere("while it is served")
	p.stop(p.server)
	p.nowhere("stopped")
	p.nowhereInPayloads()
	if p.masks() == 0 {
		t.Error("nothing was masked: the ways in led nowhere")
	}
}

type plantation struct {
	*testing.T
	dir, program, listen string
	server               *exec.Cmd
	task                 string
	secrets              []struct{ way, secret string }
}

func newPlantation(t *testing.T) *plantation {
	p := &plantation{T: t, dir: t.TempDir()}
	var err error
	if p.program, err = exec.LookPath("fleetledger"); err != nil { // TestMain has put it there
		t.Fatal(err)
	}
	if p.listen, err = freeAddress(); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *plantation) path(name ...string) string {
	return filepath.Join(append([]string{p.dir}, name...)...)
}

func (p *plantation) command(args ...string) *exec.Cmd {
	cmd := exec.Command(p.program, args...)
	cmd.Dir = p.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.dir, "FLEETLEDGER_URL=http://" + p.listen, "GORACE=atexit_sleep_ms=0"}
	return cmd
}

// start runs the program in the background until the file that it logs to says ready.
func (p *plantation) start(log, ready string, args ...string) *exec.Cmd {
	p.Helper()
	f, err := os.Create(p.path(log))
	if err != nil {
		p.Fatal(err)
	}
	cmd := p.command(args...)
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		p.Fatal(err)
	}
	_ = f.Close()
	p.Cleanup(func() { _ = cmd.Process.Kill() })
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		if b, _ := os.ReadFile(p.path(log)); bytes.Contains(b, []byte(ready)) {
			return cmd
		} else if time.Now().After(deadline) {
			p.Fatalf("%v: %s", args, b)
		}
	}
}

func (p *plantation) serve() {
	p.server = p.start("serve.log", "listening on", "serve", "--data", "data", "--listen", p.listen)
}

func (p *plantation) stop(cmd *exec.Cmd) {
	_ = cmd.Process.Signal(os.Interrupt)
	if err := cmd.Wait(); err != nil {
		p.Error(err)
	}
}

// run runs a command as root and returns all that it printed.
func (p *plantation) run(name string, args ...string) (string, error) {
	cmd := p.command(append([]string{name, "--data", "data"}, args...)...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (p *plantation) must(name string, args ...string) string {
	p.Helper()
	out, err := p.run(name, args...)
	if err != nil {
		p.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return out
}

func (p *plantation) export(file, name string, args ...string) {
	p.Helper()
	p.write(file, p.must(name, args...))
}

func (p *plantation) write(file, text string) {
	p.Helper()
	if err := os.MkdirAll(filepath.Dir(p.path(file)), 0o700); err != nil {
		p.Fatal(err)
	}
	if err := os.WriteFile(p.path(file), []byte(text), 0o600); err != nil {
		p.Fatal(err)
	}
}

// by plants secrets of each kind by one way in.
func (p *plantation) by(way string, enter func(text string)) {
	p.Helper()
	for _, s := range plant(way) {
		p.secrets = append(p.secrets, struct{ way, secret string }{way, s.secret})
		enter(s.text)
	}
}

// sources are what the secrets are read from; only there may they be.
const sources = "sources"

// A needle is a form in which a file can have a secret.
type needle struct {
	way  string
	form []byte
}

const needleBegin = 8

// needles are the forms of all secrets, by how they begin: as it is without its first
// letters, for an index keeps of a word what differs from the one before it, in
// hexadecimal, and in base64, wherever in a group of three bytes it begins. They are in
// lower case.
func (p *plantation) needles() map[[needleBegin]byte][]needle {
	all := map[[needleBegin]byte][]needle{}
	for _, s := range p.secrets {
		list := []string{s.secret[8:], hex.EncodeToString([]byte(s.secret))}
		for skip := range 3 {
			list = append(list, base64.StdEncoding.EncodeToString([]byte(s.secret[skip:skip+(len(s.secret)-skip)/3*3])))
		}
		for _, form := range list {
			form := []byte(strings.ToLower(form))
			begin := [needleBegin]byte(form)
			all[begin] = append(all[begin], needle{s.way, form})
		}
	}
	return all
}

// nowhere looks at the bytes of every file but the sources.
func (p *plantation) nowhere(when string) {
	p.Helper()
	files, needles := 0, p.needles()
	err := filepath.WalkDir(p.dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && d.Name() == sources {
			if d != nil && d.Name() == sources {
				return filepath.SkipDir
			}
			return err
		}
		if !d.Type().IsRegular() {
			return nil
		}
		b, err := os.ReadFile(path)
		if os.IsNotExist(err) {
			return nil // the server has removed it
		}
		if err != nil {
			return err
		}
		files++
		p.holdsNone(when+": "+strings.TrimPrefix(path, p.dir), b, needles)
		return nil
	})
	if err != nil {
		p.Fatal(err)
	}
	if files < 20 {
		p.Errorf("%s: only %d files were looked at", when, files)
	}
}

func (p *plantation) holdsNone(what string, b []byte, needles map[[needleBegin]byte][]needle) {
	p.Helper()
	b = bytes.ToLower(b)
	told := map[string]bool{}
	for i := 0; i+needleBegin <= len(b); i++ {
		for _, n := range needles[[needleBegin]byte(b[i:])] {
			if bytes.HasPrefix(b[i:], n.form) && !told[n.way] {
				told[n.way] = true
				p.Errorf("%s has the secret of %s: %q", what, n.way, b[max(0, i-60):min(len(b), i+len(n.form)+20)])
			}
		}
	}
}

// nowhereInPayloads reads every record, for tables on disk can be compressed.
func (p *plantation) nowhereInPayloads() {
	p.Helper()
	log, err := pebblelog.OpenReadOnly(fleetDir(p.path("data"), defaultFleet), pebblelog.Options{Fleet: defaultFleet, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.Fatal(err)
	}
	defer log.Close()
	n, needles := 0, p.needles()
	for rec, err := range log.ReadAll(p.Context(), 0) {
		if err != nil {
			p.Fatal(err)
		}
		n++
		p.holdsNone(fmt.Sprintf("position %d (%s)", rec.Header.Position, rec.Header.Type), slices.Concat(rec.Leaf, rec.Payload), needles)
	}
	if n < 100 {
		p.Errorf("only %d events were recorded: the ways in led nowhere", n)
	}
}

// masks counts the marks in the log.
func (p *plantation) masks() int {
	b, err := os.ReadFile(p.path("events.jsonl"))
	if err != nil {
		p.Fatal(err)
	}
	return bytes.Count(b, []byte("[secret:"))
}
