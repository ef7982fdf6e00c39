package shell

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The judge is bash itself: in a script that hides nothing, a command that
// fails makes the script fail.
func TestMaskedAgainstBash(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash here")
	}
	// c is the command whose failure counts; it says so on the third output.
	const prelude = "FUNCNEST=20\n" + `c() { [ "$1" = 0 ] || echo F >&3; return "$1"; }` + "\n"
	rapid.Check(t, func(t *rapid.T) {
		script := scriptList(t, 3)
		if MaskedScript(script) {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		out, err := exec.CommandContext(ctx, bash, "--norc", "-c", "exec 3>&1 >/dev/null 2>&1\n"+prelude+script).Output()
		failed := strings.Contains(string(out), "F")
		if _, exited := errors.AsType[*exec.ExitError](err); err != nil && !exited {
			t.Fatal(err)
		}
		if failed && err == nil {
			t.Fatalf("exit 0 although a command failed, and nothing is said to be hidden:\n%s", script)
		}
	})
}

// scriptList draws a list of statements, nested at most depth deep.
func scriptList(t *rapid.T, depth int) string {
	n := rapid.IntRange(1, 3).Draw(t, "statements")
	list := make([]string, n)
	for i := range list {
		list[i] = scriptStatement(t, depth)
	}
	return strings.Join(list, "\n")
}

func scriptStatement(t *rapid.T, depth int) string {
	simple := []string{
		"c 0", "c 1", "c 1", "c 3", "echo a", "[ -n x ]", "[ -z x ]", "true", "false", ":",
		"set -e", "set -e", "set +e", "set -o pipefail", "set -eo pipefail", "set +o pipefail",
		"exit 0", "[ -n x ] && exit 0", "exit 1", "exit", "exit $?", "return 1", "x=1", "x=$?", "exit $x", "f", "g", "break",
	}
	if depth == 0 || rapid.IntRange(0, 2).Draw(t, "simple") == 0 {
		return rapid.SampledFrom(simple).Draw(t, "command")
	}
	list := func() string { return scriptList(t, depth-1) }
	one := func() string { return scriptStatement(t, depth-1) }
	switch rapid.IntRange(0, 14).Draw(t, "form") {
	case 0:
		return "x=$(" + list() + "\n)"
	case 1:
		return "(" + list() + "\n)"
	case 2:
		return "{ " + list() + "\n}"
	case 3, 4:
		return one() + " && " + one()
	case 5, 6:
		return one() + " || " + one()
	case 7:
		return one() + " | " + one()
	case 8:
		return "if " + one() + "; then " + list() + "\nfi"
	case 9:
		return "if " + one() + "; then " + list() + "\nelse " + list() + "\nfi"
	case 10:
		return "if ! " + one() + "; then " + list() + "\nfi"
	case 11:
		return "for i in 1 2; do " + list() + "\ndone"
	case 12:
		return rapid.SampledFrom([]string{"f", "g"}).Draw(t, "name") + "() {\n" + list() + "\n}"
	case 13:
		return "case $x in 1) " + list() + "\n;; *) " + list() + "\n;; esac"
	default:
		return "while " + one() + "; do " + list() + "\nbreak\ndone"
	}
}
