package runner

import (
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
)

// passed names the variables of the agent's environment that every command
// gets: they say where things lie and how text reads. What often holds a secret
// (proxies, tokens, cloud settings) is not here; a command asks for it by name
// (EnvFrom). A name that ends in "*" is a prefix. On Windows letter case does
// not count.
var passed = func() []string {
	names := []string{
		"PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "LC_*", "TZ", "TMPDIR",
		"XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_DATA_DIRS",
		"XDG_RUNTIME_DIR", "XDG_STATE_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR",
		"GOROOT", "GOPATH", "GOCACHE", "GOMODCACHE", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME",
	}
	if runtime.GOOS == "windows" {
		names = append(names,
			"SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "PATHEXT", "TEMP", "TMP", "OS",
			"USERNAME", "USERDOMAIN", "USERPROFILE", "HOMEDRIVE", "HOMEPATH", "APPDATA", "LOCALAPPDATA",
			"ALLUSERSPROFILE", "PROGRAMDATA", "PROGRAMFILES", "PROGRAMFILES(X86)", "PROGRAMW6432",
			"COMMONPROGRAMFILES", "COMMONPROGRAMFILES(X86)", "COMMONPROGRAMW6432", "PUBLIC",
			"COMPUTERNAME", "NUMBER_OF_PROCESSORS", "PROCESSOR_ARCHITECTURE", "PROCESSOR_IDENTIFIER")
	}
	return names
}()

// ownPrefix begins the agent's own variables, among them its token.
const ownPrefix = "FLEETLEDGER_"

// baseEnvironment is the part of the agent's environment that every command gets.
func baseEnvironment() []string {
	var env []string
	for _, entry := range os.Environ() {
		name, _, _ := strings.Cut(entry, "=")
		if slices.ContainsFunc(passed, func(p string) bool { return matches(p, name) }) {
			env = append(env, entry)
		}
	}
	return env
}

func matches(pattern, name string) bool {
	if runtime.GOOS == "windows" {
		name = strings.ToUpper(name)
	}
	if prefix, ok := strings.CutSuffix(pattern, "*"); ok {
		return strings.HasPrefix(name, prefix)
	}
	return name == pattern
}

// environment is what c runs with: the passed variables, PWD, then c.EnvFrom,
// then c.Env, a later one winning, and the mark.
func environment(c Command, dir string) ([]string, *stop) {
	env := append(baseEnvironment(), "PWD="+dir)
	for _, name := range c.EnvFrom {
		if strings.HasPrefix(strings.ToUpper(name), ownPrefix) {
			return nil, refused("env_from names %s, and variables that begin with %s are the agent's own: give the value another name in the agent's environment", shown(name), ownPrefix)
		}
		value, ok := os.LookupEnv(name)
		if !ok {
			return nil, notStarted("env_from names %s, which this machine's agent does not have: set it where the agent is started", shown(name))
		}
		env = append(env, name+"="+value)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Env)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			return nil, notStarted("env has %s, which cannot name a variable", shown(name))
		}
		if loadsCode(name) {
			return nil, refused("env sets %s, which makes a program load other code: set it where the agent is started and name it in env_from", shown(name))
		}
		env = append(env, name+"="+c.Env[name])
	}
	if c.Mark != "" { // last, so that nothing above stands for it
		env = append(env, markName+"="+c.Mark)
	}
	return env, nil
}

// loadsCode reports whether a variable makes any program load other code, which the
// allow-list did not permit. The machine's owner may still grant one through EnvFrom.
func loadsCode(name string) bool {
	return strings.HasPrefix(name, "LD_") || strings.HasPrefix(name, "DYLD_")
}
