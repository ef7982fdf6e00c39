package runner

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"fleetledger/events"
	"fleetledger/events/shell"
)

// Policy is what this machine permits. The zero Policy permits nothing.
//
// A program is permitted when an entry of the allow-list is exactly argv[0]. A
// bare name is looked up in the absolute directories of the agent's own PATH,
// whatever PATH the command is given; it is never found in the working
// directory. A relative path ("./gradlew"), permitted only as written, is taken
// from the working directory and must lie under an allowed root. What a
// launcher (env, nice, timeout, ...) starts must be permitted as well, by the same
// rules: so none runs a bare name where the command brings a PATH along, and none
// leaves the roots (env -C). A shell, or a name that leads to one, runs only if the
// list names the shell.
type Policy struct {
	allow []string
	roots []string // absolute and free of symbolic links; the first is the default
}

// NewPolicy permits the programs of allow in working directories under roots.
// Without roots, the agent's own working directory is the only one.
func NewPolicy(allow, roots []string) (Policy, error) {
	for _, name := range allow {
		if name == "" {
			return Policy{}, errors.New("the allow-list has an empty name: give --allow the name or the absolute path of a program")
		}
	}
	if len(roots) == 0 {
		wd, err := os.Getwd()
		if err != nil {
			return Policy{}, fmt.Errorf("find the agent's working directory: %w: start the agent with --root DIR", err)
		}
		roots = []string{wd}
	}
	p := Policy{allow: slices.Clone(allow)}
	for _, root := range roots {
		real, err := realDir(root)
		if err != nil {
			return Policy{}, fmt.Errorf("root %s: %w: create it, or start the agent with another --root", root, err)
		}
		p.roots = append(p.roots, real)
	}
	return p, nil
}

func realDir(dir string) (string, error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(abs)
	if err != nil {
		return "", reason(err)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", reason(err)
	}
	if !info.IsDir() {
		return "", errors.New("not a directory")
	}
	return real, nil
}

// reason takes the path off an error that is about to be told beside that path.
func reason(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// A stop is why nothing was run.
type stop struct {
	outcome events.Outcome
	reason  string
}

func refused(format string, args ...any) *stop {
	return &stop{events.RefusedByAgent, fmt.Sprintf(format, args...)}
}

func notStarted(format string, args ...any) *stop {
	return &stop{events.NotStarted, fmt.Sprintf(format, args...)}
}

// plan is a command that the policy permits, ready to be executed.
type plan struct {
	path string // the program
	argv []string
	dir  string
	env  []string
}

func (p Policy) plan(c Command) (plan, *stop) {
	if len(c.Argv) == 0 {
		return plan{}, notStarted("the command is empty: name a program to run")
	}
	ownPath := false
	for name := range c.Env {
		ownPath = ownPath || matches("PATH", name)
	}
	if _, s := p.permits(c.Argv, ownPath); s != nil {
		return plan{}, s
	}
	dir, s := p.workdir(c.Cwd)
	if s != nil {
		return plan{}, s
	}
	if s := p.launches(c.Argv, dir); s != nil {
		return plan{}, s
	}
	path, s := p.program(c.Argv[0], dir)
	if s != nil {
		return plan{}, s
	}
	env, s := environment(c, dir)
	if s != nil {
		return plan{}, s
	}
	return plan{path: path, argv: c.Argv, dir: dir, env: env}, nil
}

// Permits reports whether the list permits the program that argv names and those
// that it launches, and if not which it does not permit. why is empty if the list does
// not name that; else it says why it is not permitted all the same.
func (p Policy) Permits(argv []string) (program, why string, ok bool) {
	program, s := p.permits(argv, false)
	switch {
	case s == nil:
		return "", "", true
	case slices.Contains(p.allow, program):
		why = s.reason
	}
	return program, why, false
}

// permits decides on the program that argv names and on those it launches, and
// names the one it refuses. ownPath says that the command has a PATH of its own:
// what is launched by a bare name would be looked for there.
func (p Policy) permits(argv []string, ownPath bool) (program string, s *stop) {
	how := (*stop)(nil) // what is wrong with how name is launched
	for {
		name := argv[0]
		if !slices.Contains(p.allow, name) {
			what := "a program"
			if shell.Is(name) {
				what = "a shell"
			}
			return name, refused("%s is %s that this machine does not allow: start the agent with --allow %s", shown(name), what, shown(name))
		}
		if how != nil {
			return name, how
		}
		l, readable := launched(argv)
		if !readable {
			return name, refused("the options of %s hide which program it starts: name that program directly, or use only options of %s that do not choose it", shown(name), shown(name))
		}
		if len(l.argv) == 0 {
			return "", nil
		}
		for _, v := range l.sets {
			if loadsCode(v) {
				how = refused("%s sets %s, which makes a program load other code: set it where the agent is started and name it in env_from", shown(name), shown(v))
			}
			ownPath = ownPath || matches("PATH", v)
		}
		if ownPath && !l.applets && bare(l.argv[0]) {
			how = refused("%s would look for %s in a PATH that the command brings along: name that program directly, or by its absolute path", shown(name), shown(l.argv[0]))
		}
		argv = l.argv
	}
}

// launches holds what argv launches to the rules for what is started directly: where
// it runs, and what file it is. What cannot be started tells its launcher so.
func (p Policy) launches(argv []string, dir string) *stop {
	for {
		l, readable := launched(argv)
		if !readable || len(l.argv) == 0 {
			return nil
		}
		if l.dir != "" {
			if !filepath.IsAbs(l.dir) {
				l.dir = filepath.Join(dir, l.dir)
			}
			var s *stop
			if dir, s = p.workdir(l.dir); s != nil {
				if s.outcome == events.RefusedByAgent {
					return s
				}
				return nil
			}
		}
		if _, s := p.program(l.argv[0], dir); s != nil && s.outcome == events.RefusedByAgent {
			return s
		}
		argv = l.argv
	}
}

// workdir is the directory that the command starts in: asked for, or the first
// root. A relative one is taken from the first root.
func (p Policy) workdir(asked string) (string, *stop) {
	if len(p.roots) == 0 {
		return "", refused("this machine allows no working directory: start the agent with --root DIR")
	}
	if asked == "" {
		asked = p.roots[0]
	}
	dir := asked
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(p.roots[0], dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		// Whether a directory outside the roots exists is nobody's business.
		if !p.within(existing(dir)) {
			return "", outside(asked)
		}
		return "", notStarted("working directory %s: %v: create it on this machine, or name another", shown(asked), reason(err))
	}
	if !p.within(real) {
		return "", outside(asked)
	}
	info, err := os.Stat(real)
	if err != nil {
		return "", notStarted("working directory %s: %v", shown(asked), reason(err))
	}
	if !info.IsDir() {
		return "", notStarted("working directory %s is not a directory: name one", shown(asked))
	}
	return real, nil
}

func outside(asked string) *stop {
	return refused("working directory %s is not under an allowed root, or a symbolic link leads out of it: start the agent with --root %s", shown(asked), shown(asked))
}

// existing is the real path of dir's nearest ancestor that there is.
func existing(dir string) string {
	for {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			return real
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return dir
		}
		dir = parent
	}
}

// within reports whether real, a path free of symbolic links, is a root or lies
// under one. Files are compared, not spellings: on some systems D:\work and
// d:\WORK are one place.
func (p Policy) within(real string) bool {
	var roots []fs.FileInfo
	for _, root := range p.roots {
		// A root that is gone since the start permits nothing.
		if info, err := os.Stat(root); err == nil {
			roots = append(roots, info)
		}
	}
	for dir := real; ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil {
			for _, root := range roots {
				if os.SameFile(info, root) {
					return true
				}
			}
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

// program finds the file of a permitted program.
func (p Policy) program(name, dir string) (string, *stop) {
	var path string
	var err error
	relative := !filepath.IsAbs(name) && !bare(name)
	switch {
	case filepath.IsAbs(name):
		path, err = exec.LookPath(name)
	case relative:
		path, err = exec.LookPath(filepath.Join(dir, name))
	default:
		path, err = onPath(name)
	}
	if err != nil {
		if ee, ok := errors.AsType[*exec.Error](err); ok {
			err = reason(ee.Err)
		}
		return "", notStarted("%s is allowed and cannot be started: %v: install it on this machine, or start the agent with a PATH that has it", shown(name), err)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		// Windows has programs behind links that only it can follow.
		real = path
	}
	if relative && (err != nil || !p.within(filepath.Dir(real))) {
		return "", refused("%s lies outside the allowed roots, or a symbolic link leads out of them: start the agent with --allow and its absolute path", shown(name))
	}
	if shell.Is(real) && !shell.Is(name) && !p.names(real) {
		return "", refused("%s leads to %s, a shell: start the agent with --allow %s", shown(name), shown(real), shell.ProgramName(real))
	}
	// Windows hands a batch file to cmd, which reads the arguments as script.
	if ext := strings.ToLower(filepath.Ext(path)); runtime.GOOS == "windows" && (ext == ".bat" || ext == ".cmd") && !p.names("cmd") {
		return "", refused("%s is a batch file, which the shell cmd runs: start the agent with --allow cmd", shown(name))
	}
	return path, nil
}

// bare reports whether name is looked up in PATH.
func bare(name string) bool { return filepath.Base(name) == name }

// names reports whether the list names the program at path, by any spelling.
func (p Policy) names(path string) bool {
	return slices.ContainsFunc(p.allow, func(entry string) bool {
		return entry == path || shell.ProgramName(entry) == shell.ProgramName(path)
	})
}

// onPath finds a bare name in the absolute directories of the agent's PATH. An
// empty or relative entry would mean the working directory.
func onPath(name string) (string, error) {
	err := error(exec.ErrNotFound)
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if !filepath.IsAbs(dir) {
			continue
		}
		path, e := exec.LookPath(filepath.Join(dir, name))
		if e == nil {
			return path, nil
		}
		if !errors.Is(e, fs.ErrNotExist) && !errors.Is(e, exec.ErrNotFound) {
			err = e
		}
	}
	return "", err
}

// maxShown bounds what a reason repeats of one text, in bytes: an envelope with it has
// to be taken by every relay.
const maxShown = 256

// shown is s as a reason may carry it: its beginning, quoted if a terminal or a
// shell could take it for something else.
func shown(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(`._-+/\:@,=`, r)
	}
	more := ""
	if len(s) > maxShown {
		s, more = strings.ToValidUTF8(s[:maxShown], ""), "..."
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s + more
	}
	return strconv.QuoteToASCII(s) + more
}
