package runner

import (
	"slices"
	"strings"

	"fleetledger/events/shell"
)

// launcher describes a program whose purpose is to start another one: the
// options before the other program's name.
type launcher struct {
	flags  string   // short options without a value
	values string   // short options with a value, attached or as the next argument
	long   []string // long options without a value
	// longValues are long options with a value, after "=" or as the next argument.
	longValues []string
	chdir      []string // those of all these whose value is the directory to start it in
	assigns    bool     // NAME=VALUE arguments come before the program
	operands   int      // arguments that come before the program, such as a duration
	digits     bool     // -10 is an option (nice)
	applets    bool     // it has the programs in itself, and looks for none
}

// launchers leaves out every option that changes which program is started in a
// way not read here (env -S, sudo -s, sudo -R): an option that is not listed makes
// the command unreadable, which a Policy refuses.
var launchers = map[string]launcher{
	"env": {flags: "iv0", values: "uC", assigns: true, chdir: []string{"C", "chdir"},
		long:       []string{"ignore-environment", "null", "debug", "default-signal", "ignore-signal", "block-signal"},
		longValues: []string{"unset", "chdir"}},
	"nice":    {values: "n", longValues: []string{"adjustment"}, digits: true},
	"ionice":  {flags: "t", values: "cn", long: []string{"ignore"}, longValues: []string{"class", "classdata"}},
	"nohup":   {},
	"setsid":  {flags: "cfw", long: []string{"ctty", "fork", "wait"}},
	"time":    {flags: "apvql", values: "of", long: []string{"append", "portability", "verbose", "quiet"}, longValues: []string{"output", "format"}},
	"timeout": {flags: "vfp", values: "ks", long: []string{"foreground", "preserve-status", "verbose"}, longValues: []string{"kill-after", "signal"}, operands: 1},
	"stdbuf":  {values: "ioe", longValues: []string{"input", "output", "error"}},
	"sudo":    {flags: "AbEHknPS", values: "ugpCDT", assigns: true, chdir: []string{"D", "chdir"}, long: []string{"preserve-env", "non-interactive", "set-home", "stdin", "background"}, longValues: []string{"user", "group", "chdir", "prompt"}},
	"doas":    {flags: "nL", values: "uC"},
	"xargs": {flags: "0rtxpo", values: "nILPdaEsR",
		long:       []string{"null", "no-run-if-empty", "verbose", "exit", "interactive", "open-tty"},
		longValues: []string{"max-args", "max-procs", "delimiter", "arg-file", "max-chars"}},
	"busybox": {applets: true},
	"toybox":  {applets: true},
}

// launch is what a launcher starts.
type launch struct {
	argv    []string // empty if it starts nothing (a bare env)
	dir     string   // the directory that it starts it in, as written; empty is its own
	sets    []string // names of variables that it sets for it
	applets bool
}

// launched reads the command that argv's program starts, if that is a launcher.
// readable is false when the options do not say for certain what is started.
func launched(argv []string) (l launch, readable bool) {
	known, ok := launchers[shell.ProgramName(argv[0])]
	if !ok {
		return launch{}, true
	}
	l.applets = known.applets
	rest := argv[1:]
	for len(rest) > 0 {
		arg := rest[0]
		if arg == "--" {
			rest = rest[1:]
			break
		}
		if len(arg) < 2 || arg[0] != '-' {
			break
		}
		used, dir, ok := known.option(rest)
		if !ok {
			return launch{}, false
		}
		if dir != "" {
			l.dir = dir
		}
		rest = rest[min(used, len(rest)):]
	}
	if known.assigns {
		for len(rest) > 0 && strings.Contains(rest[0], "=") {
			name, _, _ := strings.Cut(rest[0], "=")
			l.sets = append(l.sets, name)
			rest = rest[1:]
		}
	}
	l.argv = rest[min(known.operands, len(rest)):]
	return l, true
}

// option says how many arguments the option at args[0] takes up, and the directory
// that it names, if it does.
func (l launcher) option(args []string) (used int, dir string, ok bool) {
	arg, next := args[0], ""
	if len(args) > 1 {
		next = args[1]
	}
	value := func(name, value string, used int) (int, string, bool) {
		if !slices.Contains(l.chdir, name) {
			value = ""
		}
		return used, value, true
	}
	if name, isLong := strings.CutPrefix(arg, "--"); isLong {
		name, given, attached := strings.Cut(name, "=")
		switch {
		case slices.Contains(l.longValues, name) && !attached:
			return value(name, next, 2)
		case slices.Contains(l.longValues, name):
			return value(name, given, 1)
		case slices.Contains(l.long, name):
			return 1, "", true
		}
		return 0, "", false
	}
	if l.digits && strings.Trim(arg[1:], "0123456789") == "" {
		return 1, "", true
	}
	for i := 1; i < len(arg); i++ {
		switch {
		case strings.IndexByte(l.values, arg[i]) >= 0:
			if i == len(arg)-1 {
				return value(arg[i:], next, 2)
			}
			return value(arg[i:i+1], arg[i+1:], 1)
		case strings.IndexByte(l.flags, arg[i]) < 0:
			return 0, "", false
		}
	}
	return 1, "", true
}
