package shell

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestMaskedArgv(t *testing.T) {
	for _, row := range []struct {
		want bool
		argv []string
	}{
		{false, nil},
		{false, []string{"go", "test", "./..."}},
		{false, []string{"go", "test", "|", "tail"}}, // no shell reads this
		{false, []string{"sh"}},
		{false, []string{"sh", "-c"}},
		{false, []string{"sh", "build.sh"}},
		{false, []string{"sh", "build.sh", "-c", "a | b"}},
		{false, []string{"sh", "-c", "go test ./..."}},
		{true, []string{"sh", "-c", "go test ./... | tail"}},
		{true, []string{"/bin/bash", "-lc", "go test | tail"}},
		{true, []string{"bash", "-l", "-x", "-c", "go test | tail"}},
		{true, []string{"bash", "--norc", "--rcfile", "x", "-c", "go test | tail"}},
		{true, []string{"bash", "-c", "--", "go test | tail"}},
		{false, []string{"bash", "-o", "pipefail", "-c", "go test | tail"}},
		{false, []string{"bash", "-eo", "pipefail", "-c", "go test | tail; go vet"}},
		{true, []string{"bash", "-o", "pipefail", "-c", "go test; go vet"}},
		{false, []string{"bash", "-ec", "go test; go vet"}},
		{true, []string{"bash", "-e", "+e", "-c", "go test; go vet"}},
		{true, []string{"env", "A=1", "sh", "-c", "go test || true"}},
		{true, []string{"timeout", "9", "bash", "-c", "go test; echo done"}},
		{true, []string{"docker", "exec", "app", "sh", "-c", "a | b"}},
		{false, []string{"docker", "exec", "app", "sh", "-c", "a && b"}},
		{true, []string{`C:\Program Files\Git\bin\BASH.EXE`, "-c", "a | b"}},
		{true, []string{"zsh", "-c", "a | b"}},
		{true, []string{"ksh", "-c", "a; b"}},
		{true, []string{"-bash", "-c", "a; b"}},

		// Programs that give a line to a shell.
		{true, []string{"ssh", "host", "go test | tail"}},
		{true, []string{"ssh", "host", "go", "test", "|", "tail"}},
		{true, []string{"ssh", "-p", "22", "-vi", "key", "-oBatchMode=yes", "me@host", "-t", "cd x; go test; echo done"}},
		{true, []string{"ssh", "host", "--", "go test || true"}},
		{true, []string{"ssh", "--", "host", "go test || true"}},
		{true, []string{"sudo", "timeout", "9", "/usr/bin/ssh", "host", "bash -c 'go test | tail'"}},
		{false, []string{"ssh", "host", "set -o pipefail; go test | tail"}},
		{false, []string{"ssh", "host", "cd x && go test"}},
		{false, []string{"ssh", "-L", "1|2", "host", "go", "test"}},
		{false, []string{"ssh", "-o", "ProxyCommand=a | b", "host", "go test"}},
		{false, []string{"ssh", "host"}},
		{false, []string{"ssh"}},
		{false, []string{"ssh", "-p"}},
		{false, []string{"apt-get", "install", "ssh", "rsync"}},
		{true, []string{"su", "-", "ana", "-c", "go test | tail"}},
		{true, []string{"su", "ana", "-lc", "go test; echo done"}},
		{true, []string{"sudo", "runuser", "--command=go test | tail", "ana"}},
		{false, []string{"su", "ana", "--command", "go test"}},
		{false, []string{"su", "-c"}},

		// Other shells: only what is plain is certain.
		{false, []string{"fish", "-c", "go test ./..."}},
		{true, []string{"fish", "-c", "go test; or true"}},
		{true, []string{"fish", "--command=go test | tail"}},
		{true, []string{"fish", "-c", "not go test"}},
		{false, []string{"cmd", "/c", "go", "test"}},
		{true, []string{"cmd.exe", "/C", "go test & echo done"}},
		{false, []string{"powershell", "-NoProfile", "-Command", "go test ./..."}},
		{true, []string{"pwsh", "-Command", "go test; exit 0"}},
		{true, []string{"pwsh", "-EncodedCommand", "ZQBjAGgAbwA="}},
		{false, []string{"pwsh", "-File", "build.ps1"}},
	} {
		if got := Masked(row.argv); got != row.want {
			t.Errorf("%q: %t", row.argv, got)
		}
	}
}

func TestMaskedScript(t *testing.T) {
	for _, row := range []struct {
		want   bool
		script string
	}{
		// Plain and conjoined commands end with the first failure.
		{false, ""},
		{false, "# nothing"},
		{false, "go test ./..."},
		{false, "cd dir && go vet ./... && go test ./..."},
		{false, "(cd dir && go test)"},
		{false, "{ cd dir && go test; }"},
		{false, "time go test"},
		{false, "exec go test"},
		{false, "GOOS=linux go vet > out 2>&1"},
		{false, "> file"},

		// Pipelines.
		{true, "go test | tail -5"},
		{true, "go test |& tail -5"},
		{true, "echo a | cat"},
		{true, "cd dir && go test | tail"},
		{true, "time go test | tail"},
		{true, "(go test | tail)"},
		{false, "set -o pipefail; go test | tail"},
		{false, "set -o pipefail && go test | tail"},
		{false, "set -euo pipefail\ngo test | tail\ngo vet"},
		{true, "set -o pipefail; set +o pipefail; go test | tail"},
		{true, "(set -o pipefail); go test | tail"},
		{true, "set -o pipefail; (go test || true) | tail"},
		{true, "set -e; go test | tail"},
		{true, "set -o pipefail; shopt -uo pipefail; go test | tail"},

		// Alternatives.
		{true, "go test || true"},
		{true, "go test || :"},
		{true, "go test || echo failed"},
		{true, "echo a || true"},
		{true, "go test || go vet"},
		{true, "go test && go vet || true"},
		{true, "set -e; go test || true"},
		{true, "go test || exit 0"},
		{true, "go test || exit 256"},
		{true, "go test || exit $code"},
		{true, "go test || { echo failed; exit $?; }"},
		{true, "go test || { exit 0; exit 1; }"},
		{true, "go test || ! true"},
		{true, "go test || exit 1 &"},
		{false, "go test || exit 1"},
		{false, "go test || exit"},
		{false, "go test || exit $?"},
		{false, "go test || false"},
		{false, "go test || { echo failed >&2; exit 1; }"},
		{false, "go test || (echo failed; exit 2)"},
		{false, "go test || exit 1; echo done"},
		{true, "go test || false; echo done"},
		{false, "[ -d dir ] || mkdir dir"},
		{false, "[[ -d dir && -w dir ]] || mkdir dir"},
		{false, "command -v go >/dev/null || exit 3"},
		{true, "go test || [ -f x ] || true"},
		{false, "die() { echo \"$@\" >&2; exit 1; }\ngo test || die broken"},
		{true, "warn() { echo \"$@\" >&2; }\ngo test || warn broken"},
		{true, "die() { echo x; exit $?; }; go test || die"},
		{true, "f() { f; }; go test || f"},

		// Later commands cover up a failure.
		{true, "go test; echo done"},
		{true, "go test\necho done"},
		{true, "go test; echo \"exit: $?\""},
		{true, "go vet; go test"},
		{true, "cd dir; go test"},
		{true, "go test; exit 0"},
		{true, "{ go test; }; echo done"},
		{true, "(go test); echo done"},
		{true, "go test && echo passed; echo done"},
		{true, "x=$(go test); echo $x"},
		{false, "echo start; go test"},
		{false, "x=1; export y=2; go test"},
		{false, "[ -f x ] && echo there; go test"},
		{false, "set -e; go test; echo done"},
		{false, "set -o errexit\ngo test\necho done"},
		{true, "set -e; set +e; go test; echo done"},
		{true, "set -e; go vet && go test; echo done"},
		{true, "set -e; { go vet && go test; }; echo done"},
		{false, "set -e; [ -f x ] && go test; echo done"},
		{false, "set -e; (go vet && go test); echo done"},
		{true, "set -e; { go vet; go test; } || exit 1"},
		{true, "set -e; time { go vet && go test; }; echo done"},
		{true, "set -e; set +e && echo loose; go test; echo done"},
		{false, "set -e && cd dir; go test; echo done"},
		{true, "set -e; (go vet; go test) || exit 1"},
		{true, "set -e; x=$(go vet; go test)"},
		{false, "cd dir && set -o pipefail && go test | tail"},
		{true, "cd dir && set -o pipefail; go test | tail"},
		{true, "[ -n \"$CI\" ] && set -e; go test; echo done"},
		{true, "if [ -n \"$CI\" ]; then set -e; fi; go test; echo done"},
		{true, "if [ -n \"$CI\" ]; then set -e; else go vet; go test; fi"},
		{true, "set -e; if [ -n \"$X\" ]; then set +e; fi; go test; echo done"},
		{true, "off() { set +e; }; set -e; off; set -e; off; go test; echo done"},
		{true, "while [ -n \"$CI\" ] || set -e; do go vet; break; done"},
		{true, "[ -n \"$CI\" ] || set -e && { go vet; go test; }"},
		{true, "x=$(set -o pipefail; true | while true; do set -e; go vet; break; done; date)"},
		{false, "on() { set -e; }; on; go test; echo done"},
		{true, "(exit 1; echo); echo done"},
		{true, "(set -e; go test; echo); echo done"},
		{false, "go test; exit $?"},
		{false, "go test; exit"},
		{false, "go test; code=$?; echo \"exit: $code\"; exit $code"},
		{false, "go test\nrc=$?\ndate\nexit \"$rc\""},
		{true, "go test\nrc=$?\nrm log\nexit \"$rc\""},
		{true, "go test; code=$?; code=0; exit $code"},
		{true, "go test; code=$?; exit $other"},
		{true, "go test; code=$?; [ -f x ] && exit 0; exit $code"},
		{true, "go test; code=$?; read code; exit $code"},
		{true, "go test; code=$?; for code in 0; do :; done; exit $code"},
		{true, "go test; code=$?; echo $code"},

		// Negation and background.
		{true, "! go test"},
		{true, "go test &"},
		{true, "go test & wait"},
		{true, "cd dir && ! go test"},
		{true, "coproc go test"},

		// Conditions and loops.
		{false, "if [ -f x ]; then go test; fi"},
		{false, "if [ -f x ]; then go test; else go vet; fi"},
		{true, "if [ -f x ]; then go test | tail; fi"},
		{true, "if [ -f x ]; then go test; fi; echo done"},
		{true, "if go test; then echo passed; fi"},
		{true, "if go test; then echo passed; else echo failed; fi"},
		{false, "if go test; then echo passed; else echo failed; exit 1; fi"},
		{false, "if ! go test; then echo failed; exit 1; fi"},
		{true, "if ! go test; then echo failed; fi"},
		{true, "if ! go test; then exit $?; fi"},
		{true, "if go vet; go test; then exit 1; fi"},
		{true, "if [ -f x ]; then :; elif go test; then :; fi"},
		{false, "case $x in a) go test;; *) go vet;; esac"},
		{true, "case $x in a) go test;; esac; echo done"},
		{true, "for d in a b; do go test $d; done"},
		{false, "for d in a b; do go test $d || exit 1; done"},
		{false, "set -e; for d in a b; do go test $d; done"},
		{false, "for d in a b; do echo $d; done; go test"},
		{true, "set -e; for d in a b; do go vet $d && go test $d; done"},
		{true, "while go test; do :; done"},
		{true, "until curl localhost; do sleep 1; done"},
		{false, "while true; do sleep 1; break; done; go test"},
		{false, "while read -r x; do echo $x; done < file"},

		// Functions are read where they are called.
		{false, "f() { go test | tail; }"},
		{true, "f() { go test | tail; }; f"},
		{false, "f() { go test | tail; }; set -o pipefail; f"},
		{true, "f() { go test; echo done; }; f"},
		{false, "f() { go test; echo done; }; set -e; f"},
		{true, "f() { go test; echo done; }; set -e; f && go vet"},
		{true, "f() { go test; }; f; echo done"},
		{false, "f() { go vet || return 1; go test || return; }; f"},
		{true, "go vet || return 1; go test"},
		{true, "go vet; return $?; go test"},
		{true, "(go vet || return 1); go test"},
		{true, "f() { go vet; } && go test"}, // the parser is not to be trusted here
		{true, "f() { go test || return 1; echo ok; }; f; echo done"},
		{false, "log() { echo \"$@\"; }; log start; go test"},
		{true, "log() { echo; }; log() { go test; }; log; go test"},
		{true, "set -e; f() { go vet && go test; }; f; echo done"},

		// Substitutions.
		{true, "echo $(go test)"},
		{true, "echo \"`go test`\""},
		{true, "export x=$(go test)"},
		{true, "diff <(go test) want"},
		{true, "x=$(go test | tail)"},
		{true, "x=$(go test) y=$(go vet)"},
		{true, "x=$(go test) go vet"},
		{true, "for x in $(go list); do echo $x; done"},
		{true, "[ \"$(go vet)\" = ok ]"},
		{true, "cat <<EOF\n$(go test)\nEOF"},
		{false, "cat <<'EOF'\n$(go test)\nEOF"},
		{false, "x=$(go test)"},
		{false, "echo \"at $(date)\"; go test"},
		{false, "git commit -m \"$(cat <<'EOF'\na | b\nEOF\n)\""},

		// Shells in shells.
		{true, "bash -c 'go test | tail'"},
		{true, "timeout 9 bash -c \"go test; echo done\""},
		{true, "bash -c \"$script\""},
		{false, "bash -c 'go test'"},
		{false, "bash -o pipefail -c 'go test | tail'"},
		{true, "set -o pipefail; bash -c 'go test | tail'"},
		{true, "command bash -c 'a; b'"},
		{true, "eval 'go test | tail'"},
		{true, "eval $x"},
		{false, "eval 'go test'"},
		{true, "trap 'exit 0' EXIT; go test"},
		{false, "trap 'rm -rf \"$tmp\"' EXIT; go test"},

		// What cannot be read cannot be told.
		{true, "go test 'unclosed"},
		{true, "if then"},
		{true, "if ($x) { go test }"},
		{true, "go test " + strings.Repeat("x", maxScriptBytes)},
		{true, "go test \x00"},
	} {
		if got := MaskedScript(row.script); got != row.want {
			t.Errorf("%.80q: %t", row.script, got)
		}
	}
}

// Nesting is bounded by the size of a script: it costs time and stack, not the
// process.
func TestMaskedDeepScripts(t *testing.T) {
	fill := func(open, middle, end string) string {
		n := (maxScriptBytes - len(middle)) / (len(open) + len(end))
		return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
	}
	for _, script := range []string{
		fill("( ", "a", ")"),
		fill("{ ", "a;", "};"),
		fill("$( ", "a", ")"),
		fill("x=$( ", "a", ")"),
		fill("echo $(echo ", "a", ")"),
		fill("[ a ]||", "a", ""),
		fill("a&&", "a", ""),
		fill("set -o pipefail;a|", "a", ""),
		fill("if [ a ]; then ", "a", "; fi"),
		fill("f(){ g;g;};g(){ f;f;};", "f", ""),
		fill("while [ a ]; do ", "a", "; done"),
		fill("(", "a", ""),
		fill("${a:-", "a", "}"),
		fill("$((", "1", "))"),
		fill("eval ", "a", ""),
	} {
		began := time.Now()
		MaskedScript(script)
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%.30q...: took %s", script, took)
		}
	}
}

func FuzzMaskedScript(f *testing.F) {
	for _, seed := range []string{
		"a | b", "set -eo pipefail; a | b && c || exit 1", "f() { a; }; f || { f; return 1; }",
		"if ! a; then b; elif [[ -f c ]]; then d; else exit 2; fi", "for x in $(a); do eval 'b'; done",
		"case $x in (a|b) c;; esac", "x=$(<f) y=`a`; trap \"exit $x\" 0; bash -ec \"a;b\"", "a <<E\n$(b)\nE\n",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, script string) {
		masked := MaskedScript(script)
		for _, shell := range []string{"bash", "zsh", "ksh", "fish"} {
			got := Masked([]string{"env", shell, "-c", "--", script})
			if shell == "bash" && got != masked {
				t.Errorf("bash -c %q: %t, as a script %t", script, got, masked)
			}
		}
		// A pipe behind it can always hide something.
		if !strings.Contains(script, "pipefail") && !MaskedScript("{ "+script+"\n} | tail") {
			t.Errorf("%q | tail hides nothing", script)
		}
	})
}

// However often a line is handed on, it is read in good time.
func TestMaskedHandedOn(t *testing.T) {
	for n, want := range map[int]bool{1: false, 8: false, 9: true, 3000: true} {
		argv := append(slices.Repeat([]string{"ssh", "host"}, n), "make")
		if got := Masked(argv); got != want {
			t.Errorf("%d times: %t", n, got)
		}
	}
	if !Masked(append(slices.Repeat([]string{"ssh", "host"}, 3), "make | tail")) {
		t.Error("what the last of them hides is not told")
	}
}
