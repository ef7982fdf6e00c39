package service

import (
	"bytes"
	"encoding/binary"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
)

func example() Service {
	return Service{
		Machine: "m1", Program: "/opt/fleet ledger/fleetledger",
		Args:  []string{"agent", "--machine", "m1", "--allow", `a"b\c`, "--root", "/srv/100% $HOME/<x> & 'y'", ""},
		State: "/var/lib/state", Path: "/usr/bin:/bin", Stop: 50 * time.Second,
	}
}

func system() Service {
	s := example()
	s.System, s.User = true, "build"
	return s
}

func TestSystemd(t *testing.T) {
	unit := string(example().Systemd())
	for _, line := range []string{
		`ExecStart="/opt/fleet ledger/fleetledger" "agent" "--machine" "m1" "--allow" "a\"b\\c" "--root" "/srv/100%% $$HOME/<x> & 'y'" ""`,
		`Environment="PATH=/usr/bin:/bin"`, "NoNewPrivileges=yes", "Restart=always", "TimeoutStopSec=50", "WantedBy=default.target",
	} {
		if !slices.Contains(strings.Split(unit, "\n"), line) {
			t.Errorf("no line %s in\n%s", line, unit)
		}
	}
	if strings.Contains(unit, "User=") || strings.Contains(unit, "StateDirectory=") {
		t.Errorf("a user's own service names a user:\n%s", unit)
	}
	unit = string(system().Systemd())
	for _, line := range []string{"User=build", "StateDirectory=fleetledger-agent/m1", "WantedBy=multi-user.target"} {
		if !strings.Contains(unit, "\n"+line+"\n") {
			t.Errorf("no line %s in\n%s", line, unit)
		}
	}
}

// systemd itself reads the unit without a word.
func TestSystemdTakesIt(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("no systemd here")
	}
	s := system()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	s.Program, s.User = program, "daemon"
	file := filepath.Join(t.TempDir(), s.Name()+".service")
	if err := os.WriteFile(file, s.Systemd(), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(analyze, "verify", "--man=no", file).CombinedOutput()
	if err != nil || bytes.Contains(out, []byte(s.Name())) {
		t.Errorf("%v: %s", err, out)
	}
}

// texts are the texts of an XML document's elements of this name.
func texts(t *testing.T, document []byte, name string) (list []string) {
	t.Helper()
	d := xml.NewDecoder(bytes.NewReader(document))
	d.CharsetReader = func(_ string, r io.Reader) (io.Reader, error) { return r, nil }
	in := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		switch x := token.(type) {
		case xml.StartElement:
			if in = x.Name.Local; in == name {
				list = append(list, "")
			}
		case xml.EndElement:
			in = ""
		case xml.CharData:
			if in == name {
				list[len(list)-1] += string(x)
			}
		}
	}
}

func TestLaunchd(t *testing.T) {
	s := system()
	got := texts(t, s.Launchd(), "string")
	want := append(append([]string{"fleetledger.agent.m1", s.Program}, s.Args...), s.Path, "build", "/var/lib/state/agent.log")
	if filepath.Separator == '/' && !slices.Equal(got, want) {
		t.Errorf("it says %q, not %q", got, want)
	}
	if got := texts(t, example().Launchd(), "string"); slices.Contains(got, "build") {
		t.Errorf("a user's own agent names a user: %q", got)
	}
	if keys := texts(t, s.Launchd(), "key"); !slices.Contains(keys, "KeepAlive") || !slices.Contains(keys, "UserName") {
		t.Errorf("keys %q", keys)
	}
}

func TestTask(t *testing.T) {
	raw := system().Task()
	if !bytes.HasPrefix(raw, []byte{0xff, 0xfe}) || len(raw)%2 != 0 {
		t.Fatal("it is not UTF-16 with its mark")
	}
	var units []uint16
	for i := 2; i < len(raw); i += 2 {
		units = append(units, binary.LittleEndian.Uint16(raw[i:]))
	}
	text := []byte(string(utf16.Decode(units)))
	if got := texts(t, text, "Arguments"); len(got) != 1 || got[0] != `agent --machine m1 --allow "a\"b\c" --root "/srv/100% $HOME/<x> & 'y'" ""` {
		t.Errorf("arguments %q", got)
	}
	if got := texts(t, text, "RunLevel"); !slices.Equal(got, []string{"LeastPrivilege"}) {
		t.Errorf("run level %q", got)
	}
	if got := texts(t, text, "UserId"); !slices.Equal(got, []string{"build"}) {
		t.Errorf("user %q", got)
	}
}

// splitWindows reads a command line as CommandLineToArgvW does.
func splitWindows(line string) (args []string) {
	var b strings.Builder
	quoted, begun := false, false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\':
			n := 0
			for i < len(line) && line[i] == '\\' {
				n++
				i++
			}
			if i < len(line) && line[i] == '"' {
				b.WriteString(strings.Repeat(`\`, n/2))
				if n%2 == 1 {
					b.WriteByte('"')
				} else {
					i--
				}
			} else {
				b.WriteString(strings.Repeat(`\`, n))
				i--
			}
			begun = true
		case c == '"':
			quoted, begun = !quoted, true
		case (c == ' ' || c == '\t') && !quoted:
			if begun {
				args = append(args, b.String())
			}
			b.Reset()
			begun = false
		default:
			b.WriteByte(c)
			begun = true
		}
	}
	if begun {
		args = append(args, b.String())
	}
	return args
}

func TestWindowsWords(t *testing.T) {
	want := []string{"a", "", `a b`, `a"b`, `a\b`, `a\\`, `a b\`, `a\"b`, `\\host\d x\`, `"`, `\`, `é "ü"`}
	var line []string
	for _, w := range want {
		line = append(line, windowsWord(w))
	}
	if got := splitWindows(strings.Join(line, " ")); !slices.Equal(got, want) {
		t.Errorf("%q reads as %q", line, got)
	}
}

func TestCheck(t *testing.T) {
	if err := system().Check(); filepath.Separator == '/' && err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Service){
		"no user":          func(s *Service) { s.User = "" },
		"root":             func(s *Service) { s.User = "root" },
		"a line break":     func(s *Service) { s.Args[1] = "a\nExecStartPre=/bin/x" },
		"a relative path":  func(s *Service) { s.Program = "fleetledger" },
		"a relative state": func(s *Service) { s.State = "state" },
	} {
		s := system()
		if change(&s); s.Check() == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
