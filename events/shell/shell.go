// Package shell reads the shell form of commands: what runs one, and whether it can
// hide an exit code. The machine that runs a command says so in its report, and the
// ledger looks again: an agent of another make may not have.
package shell

import (
	"slices"
	"strings"
)

// shells are the programs that run a script given as text.
var shells = []string{
	"sh", "bash", "rbash", "dash", "ash", "zsh", "ksh", "ksh93", "mksh", "yash",
	"fish", "csh", "tcsh", "nu", "elvish", "xonsh", "cmd", "powershell", "pwsh",
}

// ProgramName is the bare name of a program: no directory, no Windows
// extension, no dash of a login shell. Both separators count on every system,
// because argv may come from another machine's history.
func ProgramName(argv0 string) string {
	name := argv0[strings.LastIndexAny(argv0, `/\`)+1:]
	if dot := strings.LastIndexByte(name, '.'); dot > 0 {
		switch ext := strings.ToLower(name[dot:]); ext {
		case ".exe", ".com", ".cmd", ".bat":
			name = strings.ToLower(name[:dot])
		}
	}
	return strings.TrimPrefix(name, "-")
}

// Is reports whether argv0 names a shell.
func Is(argv0 string) bool { return slices.Contains(shells, ProgramName(argv0)) }
