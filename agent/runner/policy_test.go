package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"fleetledger/events"
	"fleetledger/events/shell"
)

func TestOnlyTheListRuns(t *testing.T) {
	t.Parallel()
	p, err := NewPolicy([]string{"go", "env", "timeout", "nice", "sudo", "xargs", "busybox", "/opt/tool"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		argv   string
		reason string // "" is permitted
	}{
		{"go test ./...", ""},
		{"/opt/tool", ""},
		{"make", "start the agent with --allow make"},
		{"/usr/bin/go", "start the agent with --allow /usr/bin/go"},
		{"./go", "start the agent with --allow ./go"},
		{"../go", "start the agent with --allow ../go"},
		{"GO", "start the agent with --allow GO"},
		{"tool", "start the agent with --allow tool"},
		{"/opt/../opt/tool", "start the agent with --allow /opt/../opt/tool"},
		{"sh -c id", "sh is a shell that this machine does not allow: start the agent with --allow sh"},
		{"go\x1b[2J", `--allow "go\x1b[2J"`},

		// What a launcher starts is asked for as well.
		{"env", ""},
		{"env GOOS=linux go vet", ""},
		{"env -i -u HOME --chdir=/tmp -- A=1 go vet", ""},
		{"env make", "--allow make"},
		{"env A=1 sh -c id", "sh is a shell"},
		{"env -uHOME bash", "bash is a shell"},
		{"env -S sh", "hide which program"},
		{"env --split-string=sh", "hide which program"},
		{"env -vS sh", "hide which program"},
		{"env nice -n 5 timeout -k 1 9 go vet", ""},
		{"env nice -5 timeout -k 1 9 sh", "sh is a shell"},
		{"timeout 9 make", "--allow make"},
		{"sudo -s", "hide which program"},
		{"sudo -u root A=1 make", "--allow make"},
		{"xargs -0 -n 1 make", "--allow make"},
		{"xargs --replace make go", "hide which program"},
		{"busybox sh", "sh is a shell"},
		{"nice -n", ""},

		// Where a launcher finds it, and what that loads, is not the command's to say.
		{"env PATH=/tmp go vet", "env would look for go in a PATH"},
		{"env PATH=/tmp nice go vet", "env would look for nice in a PATH"},
		{"env PATH=/tmp /opt/tool", ""},
		{"env PATH=/tmp /opt/tool nice go", ""},
		{"nice env PATH=/tmp", ""},
		{"env PATHS=/tmp go vet", ""},
		{"env PATH=/tmp LD_AUDIT=x make", "start the agent with --allow make"},
		{"sudo PATH=/tmp go vet", "sudo would look for go in a PATH"},
		{"nice env LD_PRELOAD=x.so go vet", "env sets LD_PRELOAD"},
		{"env DYLD_INSERT_LIBRARIES=x /opt/tool", "env sets DYLD_INSERT_LIBRARIES"},
		{"sudo -R /tmp go vet", "hide which program"},
	} {
		_, s := p.permits(strings.Fields(row.argv), false)
		switch {
		case row.reason == "" && s != nil:
			t.Errorf("%q: %s", row.argv, s.reason)
		case row.reason != "" && (s == nil || s.outcome != events.RefusedByAgent || !strings.Contains(s.reason, row.reason)):
			t.Errorf("%q: %+v, want %q", row.argv, s, row.reason)
		}
	}
	e := Run(background(), Policy{}, Command{Argv: []string{"go"}})
	if e.Outcome != events.RefusedByAgent {
		t.Errorf("the zero policy: %+v", e)
	}
}

// A PATH that a command brings along is for what its program starts, not for who
// launches a program that the list permits.
func TestALauncherWithTheCommandsPATH(t *testing.T) {
	t.Parallel()
	p, err := NewPolicy([]string{"go", "nice", "busybox", "/opt/tool"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for argv, reason := range map[string]string{
		"go vet":         "",
		"nice /opt/tool": "",
		"busybox go":     "",
		"nice go vet":    "nice would look for go in a PATH that the command brings along: name that program directly, or by its absolute path",
		"busybox nice go": "nice would look for go in a PATH that the command brings along: " +
			"name that program directly, or by its absolute path",
	} {
		_, s := p.permits(strings.Fields(argv), true)
		if s == nil && reason != "" || s != nil && s.reason != reason {
			t.Errorf("%q: %+v, want %q", argv, s, reason)
		}
	}
	_, s := p.plan(Command{Argv: []string{"nice", "go", "vet"}, Env: map[string]string{"PATH": t.TempDir()}})
	if s == nil || s.outcome != events.RefusedByAgent {
		t.Errorf("a task that sets PATH for a launcher: %+v", s)
	}
}

// Whoever asks for the list alone is told whether it names the program.
func TestPermits(t *testing.T) {
	t.Parallel()
	p, err := NewPolicy([]string{"go", "env"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		argv, program, why string
	}{
		{"env go vet", "", ""},
		{"make", "make", ""},
		{"env make", "make", ""},
		{"env -S go", "env", "the options of env hide"},
		{"env PATH=/tmp go", "go", "env would look for go"},
		{"env LD_PRELOAD=x go", "go", "env sets LD_PRELOAD"},
	} {
		program, why, ok := p.Permits(strings.Fields(row.argv))
		if program != row.program || !strings.HasPrefix(why, row.why) || (why == "") != (row.why == "") || ok != (program == "") {
			t.Errorf("%q: %q, %q, %t", row.argv, program, why, ok)
		}
	}
}

// What is launched runs under the roots, as what is started directly does.
func TestLaunchedUnderTheRoots(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root, outside := filepath.Join(base, "root"), filepath.Join(base, "outside")
	for _, dir := range []string{filepath.Join(root, "sub"), outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p, err := NewPolicy([]string{"env", "nice", "sudo", "go", "./tool"}, []string{root})
	if err != nil {
		t.Fatal(err)
	}
	for argv, refused := range map[string]bool{
		"env go":                                    false,
		"env -C sub go":                             false,
		"env -C .. --chdir=" + root + "/sub go":     false, // the last counts
		"env -C nowhere go":                         false, // env says so
		"env -C " + outside + " go":                 true,
		"env -iC" + outside + " go":                 true,
		"env --chdir " + outside + " go":            true,
		"env -C ../outside go":                      true,
		"nice env -C sub env -C ../../outside go":   true,
		"sudo -D " + outside + " go":                true,
		"sudo --chdir=" + outside + " -u root nice": true,
		"env -C sub ./tool":                         false,
		"env -C sub -u A":                           false,
	} {
		s := p.launches(strings.Fields(argv), root)
		if (s != nil) != refused {
			t.Errorf("%q: %+v, want refused %t", argv, s, refused)
		}
	}
	tool := filepath.Join(outside, "tool")
	if err := os.WriteFile(tool, []byte("#!/bin/true\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(tool, filepath.Join(root, "tool")); err != nil {
		t.Skip("no symbolic links here")
	}
	if s := p.launches([]string{"nice", "./tool"}, root); s == nil || !strings.Contains(s.reason, "lies outside the allowed roots") {
		t.Errorf("a link that leads out, launched: %+v", s)
	}
}

// However long a name, the reason stays short: a relay has to take the report.
func TestReasonsAreShort(t *testing.T) {
	t.Parallel()
	p, err := NewPolicy([]string{"go"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	long := strings.Repeat("\U0001F600", 8000)
	for _, c := range []Command{{Argv: []string{long}}, {Argv: []string{"go"}, Cwd: long}, {Argv: []string{"go"}, EnvFrom: []string{long}}} {
		if e := Run(background(), p, c); e.Outcome == events.Exited || len(e.Reason) > 4096 {
			t.Errorf("%s with a reason of %d bytes", e.Outcome, len(e.Reason))
		}
	}
	if got, want := shown(strings.Repeat("a", 300)), strings.Repeat("a", 256)+"..."; got != want {
		t.Errorf("got %s", got)
	}
	if got := shown(strings.Repeat("a", 255) + "\u00e9"); got != strings.Repeat("a", 255)+"..." {
		t.Errorf("a letter is cut: %s", got)
	}
}

func TestWorkingDirectory(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	root, second, other := filepath.Join(base, "root"), filepath.Join(base, "second"), filepath.Join(base, "rootless")
	for _, dir := range []string{filepath.Join(root, "sub"), second, other} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exe := executable(t)
	p, err := NewPolicy([]string{exe}, []string{root, second})
	if err != nil {
		t.Fatal(err)
	}
	type row struct {
		name, cwd string
		outcome   events.Outcome
		dir       string
	}
	rows := []row{
		{"none is the first root", "", events.Exited, root},
		{"relative to the first root", "sub", events.Exited, filepath.Join(root, "sub")},
		{"absolute", second, events.Exited, second},
		{"there and back", filepath.Join(root, "sub", "..", "..", "second"), events.Exited, second},
		{"above", "..", events.RefusedByAgent, ""},
		{"a name that begins like a root", other, events.RefusedByAgent, ""},
		{"outside", base, events.RefusedByAgent, ""},
		{"outside and missing", filepath.Join(base, "nowhere"), events.RefusedByAgent, ""},
		{"inside and missing", "nowhere/deep", events.NotStarted, ""},
	}
	if err := os.Symlink(other, filepath.Join(root, "out")); err == nil {
		if err := os.Symlink(filepath.Join(root, "sub"), filepath.Join(root, "in")); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(root, filepath.Join(base, "alias")); err != nil {
			t.Fatal(err)
		}
		rows = append(rows,
			row{"a link that leads out", "out", events.RefusedByAgent, ""},
			row{"missing behind a link that leads out", "out/nowhere", events.RefusedByAgent, ""},
			row{"a link that stays", "in", events.Exited, filepath.Join(root, "sub")},
			row{"a link to a root", filepath.Join(base, "alias", "sub"), events.Exited, filepath.Join(root, "sub")})
	} else if runtime.GOOS != "windows" {
		t.Fatal(err)
	}
	for _, row := range rows {
		c := Command{Argv: []string{exe}, Cwd: row.cwd, Env: as("pwd")}
		e := Run(background(), p, c)
		if e.Outcome != row.outcome {
			t.Errorf("%s: %s, %s; want %s", row.name, e.Outcome, e.Reason, row.outcome)
			continue
		}
		if row.outcome == events.RefusedByAgent && !strings.Contains(e.Reason, "--root") {
			t.Errorf("%s: the reason %q does not say what to change", row.name, e.Reason)
		}
		if row.dir != "" {
			want, err := filepath.EvalSymlinks(row.dir)
			if err != nil {
				t.Fatal(err)
			}
			if e.Cwd != want || e.Stdout.Tail != want {
				t.Errorf("%s: ran in %s, says %s; want %s", row.name, e.Stdout.Tail, e.Cwd, want)
			}
		}
	}

	if err := os.RemoveAll(second); err != nil {
		t.Fatal(err)
	}
	if _, s := p.workdir(second); s == nil || s.outcome != events.RefusedByAgent {
		t.Errorf("a root that is gone: %+v", s)
	}
}

func TestBadPolicies(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][2][]string{
		"empty name":     {{"go", ""}, nil},
		"missing root":   {{"go"}, {filepath.Join(t.TempDir(), "nowhere")}},
		"root is a file": {{"go"}, {file}},
	} {
		if _, err := NewPolicy(args[0], args[1]); err == nil || !strings.Contains(err.Error(), "--") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestBareNameComesFromThePathAlone(t *testing.T) {
	base := t.TempDir()
	bin, root := filepath.Join(base, "bin"), filepath.Join(base, "root")
	for _, dir := range []string{bin, root, filepath.Join(root, "sub")} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install(t, bin, "onpath")
	install(t, root, "here")
	install(t, base, "above")
	install(t, filepath.Join(root, "sub"), "below")
	t.Chdir(root)
	t.Setenv("PATH", strings.Join([]string{"", ".", bin, "sub"}, string(filepath.ListSeparator)))
	names := []string{"onpath", "here", "./here", "../here", "../above", "./onpath", "below"}
	p, err := NewPolicy(names, []string{root})
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range []struct {
		argv0, cwd string
		want       events.Outcome
	}{
		{"onpath", "", events.Exited},
		{"here", "", events.NotStarted},
		{"below", "", events.NotStarted},
		{"./here", "", events.Exited},
		{"../here", "sub", events.Exited},
		{"./here", "sub", events.NotStarted},
		{"../above", "", events.RefusedByAgent},
		{"./onpath", "", events.NotStarted},
	} {
		// The command's own PATH has no say in what is started.
		c := Command{Argv: []string{row.argv0}, Cwd: row.cwd, Env: as("argv0")}
		c.Env["PATH"] = root
		e := Run(background(), p, c)
		if e.Outcome != row.want {
			t.Errorf("%s in %q: %s, %s; want %s", row.argv0, row.cwd, e.Outcome, e.Reason, row.want)
		}
		if e.Outcome == events.Exited && e.Stdout.Tail != row.argv0 {
			t.Errorf("%s was started as %q", row.argv0, e.Stdout.Tail)
		}
	}
}

func TestLinksOfPrograms(t *testing.T) {
	base := t.TempDir()
	bin, root := filepath.Join(base, "bin"), filepath.Join(base, "root")
	for _, dir := range []string{bin, root} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	sh, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no sh here")
	}
	program := install(t, base, "program")
	for link, to := range map[string]string{
		filepath.Join(bin, "go"):       sh,
		filepath.Join(bin, "tool"):     program,
		filepath.Join(root, "outward"): program,
	} {
		if err := os.Symlink(to, link); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	t.Setenv("PATH", bin)
	real, err := filepath.EvalSymlinks(sh)
	if err != nil {
		t.Fatal(err)
	}
	run := func(argv0 string, allow ...string) events.Envelope {
		p, err := NewPolicy(allow, []string{root})
		if err != nil {
			t.Fatal(err)
		}
		return Run(background(), p, Command{Argv: []string{argv0, "-c", "exit 4"}, Env: as("argv0")})
	}
	wantExit(t, run("tool", "tool"), 0)
	wantExit(t, run("go", "go", shell.ProgramName(real)), 4)
	if e := run("go", "go"); e.Outcome != events.RefusedByAgent || !strings.Contains(e.Reason, "a shell: start the agent with --allow "+shell.ProgramName(real)) {
		t.Errorf("a name that leads to a shell: %+v", e)
	}
	if e := run("./outward", "./outward"); e.Outcome != events.RefusedByAgent || !strings.Contains(e.Reason, "symbolic link") {
		t.Errorf("a program that a link leads to outside the root: %+v", e)
	}
}

func TestShellRunsWhenNamed(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("no sh here")
	}
	p, err := NewPolicy([]string{"sh"}, []string{t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	e := Run(background(), p, Command{Argv: []string{"sh", "-c", "false | true"}})
	wantExit(t, e, 0)
	if !e.Masked {
		t.Error("exit 0 of a pipeline is not reported as masked")
	}
	wantExit(t, Run(background(), p, Command{Argv: []string{"sh", "-c", "exit 3"}}), 3)
}
