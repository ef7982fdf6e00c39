package shell

import (
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxScriptBytes bounds the scripts that are read: the parser goes as deep as
// they nest. A submitted argv is no longer either.
const maxScriptBytes = 32 << 10

// maxSteps bounds the work on a script: one that is nested to cost more is not
// read to its end. An ordinary script of that length takes less than a fifth.
const maxSteps = 500_000

// Masked reports whether the shell form of argv can hide an exit code, so that
// an exit code of 0 does not say that every command in it succeeded: a pipeline
// without pipefail, "|| true" and every other || whose right side can succeed,
// a failure that later commands cover up without "set -e" ("; echo"), "!", "&",
// a command substitution whose code is dropped.
//
// Argv is read for a shell with -c, also behind other programs (env sh -c,
// timeout 5 bash -lc, docker exec app sh -c), and for what ssh, su and runuser give to
// one. Without any the answer is false: there is no shell form to read. A script that does not parse, is longer than
// 32 KiB or nested beyond reason, or is more than one plain command for a shell
// without POSIX syntax (fish, cmd, PowerShell), is true: it cannot be told.
//
// A command whose failure is an answer ([, test, command -v, read) or of no
// interest (echo, date) may be followed by others. Where it is not certain that
// nothing is hidden, the answer is true.
func Masked(argv []string) bool { return masked(argv, 0) }

// maxGiven bounds how deep programs hand a line on (ssh a ssh b ...): each has it read again.
const maxGiven = 8

// masked is Masked for what was handed on so many times.
func masked(argv []string, given int) bool {
	for i := range argv {
		if Is(argv[i]) && shellMasked(argv[i:], given) {
			return true
		}
		if script := givenScript(argv[i:]); script != "" {
			return given == maxGiven || scriptMasked(script, syntax.LangBash, options{}, given+1)
		}
	}
	return false
}

// MaskedScript is Masked for a bare command line, read as bash reads it.
func MaskedScript(script string) bool {
	return scriptMasked(script, syntax.LangBash, options{}, 0)
}

// unknownText stands for a word that only the running shell knows.
const unknownText = "\x00"

// shellMasked is masked for an argv that starts with a shell.
func shellMasked(argv []string, given int) bool {
	lang := syntax.LangBash
	switch ProgramName(argv[0]) {
	case "zsh":
		lang = syntax.LangZsh
	case "ksh", "ksh93", "mksh":
		lang = syntax.LangMirBSDKorn
	case "sh", "bash", "rbash", "dash", "ash", "yash":
	default:
		script, ok := foreignScript(argv[1:])
		return ok && !plainCommand(script)
	}
	var fromText, errexit, pipefail bool
	rest := argv[1:]
	for len(rest) > 0 {
		arg := rest[0]
		if len(arg) == 0 || arg[0] != '-' && arg[0] != '+' {
			break
		}
		rest = rest[1:]
		if arg == "--" || arg == "-" {
			break
		}
		if strings.HasPrefix(arg, "--") {
			if arg == "--rcfile" || arg == "--init-file" {
				rest = rest[min(1, len(rest)):]
			}
			continue
		}
		on := arg[0] == '-'
		for _, letter := range arg[1:] {
			switch letter {
			case 'c':
				fromText = true
			case 'e':
				errexit = on
			case 'o', 'O':
				if len(rest) > 0 {
					switch {
					case letter == 'o' && rest[0] == "errexit":
						errexit = on
					case letter == 'o' && rest[0] == "pipefail":
						pipefail = on
					}
					rest = rest[1:]
				}
			}
		}
	}
	if !fromText || len(rest) == 0 {
		return false
	}
	return scriptMasked(rest[0], lang, options{errexit, pipefail}, given)
}

// foreignScript finds the script among the arguments of a shell without POSIX
// syntax.
func foreignScript(args []string) (script string, ok bool) {
	for i, arg := range args {
		switch lower := strings.ToLower(arg); lower {
		case "-c", "-lc", "-ic", "-ec", "/c", "/k", "/r", "-command", "--command", "--commands", "-commandwithargs", "-cwa":
			return strings.Join(args[i+1:], " "), true
		case "-e", "-ec64", "-enc", "-encodedcommand":
			return unknownText, true
		default:
			if text, ok := strings.CutPrefix(lower, "--command="); ok {
				return text, true
			}
		}
	}
	return "", false
}

// plainCommand reports whether script is a single command in every shell.
func plainCommand(script string) bool {
	return !strings.ContainsAny(script, "|&;(){}!`\r\n"+unknownText) && !strings.HasPrefix(strings.TrimSpace(script), "not ")
}

func scriptMasked(script string, lang syntax.LangVariant, o options, given int) bool {
	if len(script) > maxScriptBytes || strings.Contains(script, unknownText) {
		return true
	}
	file, err := syntax.NewParser(syntax.Variant(lang)).Parse(strings.NewReader(script), "")
	if err != nil {
		return true
	}
	steps := maxSteps
	r := reader{lang: lang, given: given, options: o, functions: map[string]*function{}, steps: &steps}
	return r.list(file.Stmts) || r.tired(0)
}

// reader walks a script in the order in which it runs. Its methods that return
// "hides" report whether a failure inside what they are given can be lost there;
// canFail says whether one can come out of it.
type reader struct {
	lang  syntax.LangVariant
	given int // see masked
	options
	// ignored is true where a failure is tested, and errexit does nothing.
	ignored bool
	// inFunction is true in a function's body: return does nothing elsewhere.
	inFunction bool
	functions  map[string]*function
	steps      *int // what is left of maxSteps, shared by forks
}

// options are those of set -e and set -o pipefail.
type options struct{ errexit, pipefail bool }

// and is what is certain where either of two states may hold.
func (o options) and(p options) options {
	return options{o.errexit && p.errexit, o.pipefail && p.pipefail}
}

// tired takes n steps and reports whether there are none left. Then every answer
// is cut short, and the script counts as masked.
func (r *reader) tired(n int) bool {
	*r.steps -= n
	return *r.steps < 0
}

// function is one that the script declares. Its body is read where it is
// called, once for each state in which it is.
type function struct {
	body  *syntax.Stmt
	calls map[callState]callResult
	// fails is the answer of canFail once it is known; busy guards recursion.
	fails, known, busy bool
}

type callState struct {
	options
	ignored bool
}

type callResult struct {
	hides bool
	after options
}

// strict reports whether a failing command ends the script.
func (r *reader) strict() bool { return r.errexit && !r.ignored }

// fork reads what runs in a process of its own: options set there stay there.
func (r *reader) fork(stmts []*syntax.Stmt) (hides bool) {
	child := *r
	return child.list(stmts)
}

// substitution is the reader of a command substitution, which bash starts
// without errexit.
func (r *reader) substitution() *reader {
	child := *r
	child.errexit = false
	return &child
}

// tested reads what runs where its failure is tested.
func (r *reader) tested(s *syntax.Stmt) (hides bool) {
	saved := r.ignored
	r.ignored = true
	hides = r.stmt(s)
	r.ignored = saved
	return hides
}

func (r *reader) list(stmts []*syntax.Stmt) (hides bool) {
	for i, s := range stmts {
		before := r.options
		if r.stmt(s) {
			return true
		}
		r.settle(s, before)
		if i == len(stmts)-1 || r.passedOn(stmts[i+1:]) {
			continue
		}
		if r.strict() && r.escapes(s) || !r.strict() && r.canFail(s) {
			return true
		}
	}
	return false
}

// branch reads statements that may run or not.
func (r *reader) branch(stmts []*syntax.Stmt) (hides bool) {
	before := r.options
	hides = r.list(stmts)
	r.options = r.options.and(before)
	return hides
}

// settle keeps of the options that s set those that are certain: all of a simple
// command's, and those of the first command in "set -e && cd dir && make".
func (r *reader) settle(s *syntax.Stmt, before options) {
	switch s.Cmd.(type) {
	case *syntax.BinaryCmd, *syntax.IfClause, *syntax.WhileClause, *syntax.ForClause, *syntax.CaseClause:
	default:
		return
	}
	for {
		c, ok := s.Cmd.(*syntax.BinaryCmd)
		if !ok || c.Op != syntax.AndStmt {
			break
		}
		s = c.X
	}
	if name, args := plainCall(s); name == "set" {
		before = before.set(literals(args))
	}
	r.options = r.options.and(before)
}

// passedOn reports whether the code of a command is what the commands behind it
// end with: "exit $?", or "code=$?" with "exit $code" at the end.
func (r *reader) passedOn(behind []*syntax.Stmt) bool {
	name, args := plainCall(behind[0])
	if name == "exit" || name == "return" && r.inFunction {
		return len(args) == 0 || len(args) == 1 && parameter(args[0]) == "?"
	}
	call, ok := behind[0].Cmd.(*syntax.CallExpr)
	if !ok || len(call.Args) > 0 || len(call.Assigns) != 1 || call.Assigns[0].Name == nil || parameter(call.Assigns[0].Value) != "?" {
		return false
	}
	variable := call.Assigns[0].Name.Value
	name, args = plainCall(behind[len(behind)-1])
	if name != "exit" && (name != "return" || !r.inFunction) || len(args) != 1 || parameter(args[0]) != variable {
		return false
	}
	sets := 0
	for i, s := range behind {
		if i < len(behind)-1 && r.calls(s, "exit", "return") {
			return false
		}
		syntax.Walk(s, func(n syntax.Node) bool {
			set := r.tired(1)
			switch n := n.(type) {
			case *syntax.Assign:
				set = set || n.Name != nil && n.Name.Value == variable
			case *syntax.WordIter:
				set = set || n.Name.Value == variable
			case *syntax.CallExpr: // read code, unset code
				set = set || slices.Contains(literals(n.Args), variable)
			}
			if set {
				sets++
			}
			return sets < 2
		})
	}
	return sets == 1
}

func (r *reader) stmt(s *syntax.Stmt) (hides bool) {
	if s.Negated || s.Background || s.Coprocess || s.Disown || r.tired(1) {
		return true
	}
	for _, redir := range s.Redirs {
		if r.drops(redir) {
			return true
		}
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		return r.call(c)
	case *syntax.BinaryCmd:
		return r.binary(c)
	case *syntax.Block:
		return r.list(c.Stmts)
	case *syntax.Subshell:
		return r.fork(c.Stmts)
	case *syntax.IfClause:
		return r.ifClause(c)
	case *syntax.WhileClause:
		_, consumed, hides := r.condition(c.Cond)
		return hides || consumed || r.loop(c.Do)
	case *syntax.ForClause:
		return r.drops(c.Loop) || r.loop(c.Do)
	case *syntax.CaseClause:
		if r.drops(c.Word) {
			return true
		}
		for _, item := range c.Items {
			if r.branch(item.Stmts) {
				return true
			}
		}
		return false
	case *syntax.FuncDecl:
		// The parser counts what follows on the same line (f() { ...; } && g) as
		// part of the body.
		if _, more := c.Body.Cmd.(*syntax.BinaryCmd); more || c.Body.Background || r.tired(len(r.functions)) {
			return true
		}
		for _, name := range append(slices.Clone(c.Names), c.Name) {
			if name != nil {
				// Whoever was judged by an earlier declaration is judged anew.
				for _, f := range r.functions {
					f.calls, f.known = map[callState]callResult{}, false
				}
				r.functions[name.Value] = &function{body: c.Body, calls: map[callState]callResult{}}
			}
		}
		return false
	case *syntax.TimeClause:
		return c.Stmt != nil && r.stmt(c.Stmt)
	case *syntax.DeclClause, *syntax.TestClause, *syntax.ArithmCmd, *syntax.LetClause:
		return r.drops(c)
	case nil: // redirections alone
		return false
	}
	return true // a coprocess, or what a later parser knows and this does not
}

func (r *reader) binary(c *syntax.BinaryCmd) (hides bool) {
	switch c.Op {
	case syntax.AndStmt:
		return r.tested(c.X) || r.stmt(c.Y)
	case syntax.OrStmt:
		before := r.options
		if r.tested(c.X) {
			return true
		}
		r.options = r.options.and(before)
		if !r.answers(c.X) && !r.surelyFails([]*syntax.Stmt{c.Y}, true) {
			return true
		}
		hides = r.stmt(c.Y)
		r.options = r.options.and(before)
		return hides
	}
	return !r.pipefail || r.fork([]*syntax.Stmt{c.X}) || r.fork([]*syntax.Stmt{c.Y})
}

// condition reads what if and while test. consumed is true when the condition
// can fail in a way that means something.
func (r *reader) condition(stmts []*syntax.Stmt) (negated, consumed, hides bool) {
	for i, s := range stmts {
		plain := *s
		if i == len(stmts)-1 {
			negated, plain.Negated = s.Negated, false
		}
		before := r.options
		if r.tested(&plain) {
			return false, false, true
		}
		r.settle(&plain, before)
		consumed = r.canFail(&plain)
		if consumed && i < len(stmts)-1 {
			return false, false, true
		}
	}
	return negated, consumed, false
}

// ifClause lets a condition fail when the branch taken then fails as well.
func (r *reader) ifClause(c *syntax.IfClause) (hides bool) {
	if len(c.Cond) > 0 {
		negated, consumed, hides := r.condition(c.Cond)
		switch {
		case hides:
			return true
		case !consumed:
		case negated && r.surelyFails(c.Then, false):
		case !negated && c.Else != nil && len(c.Else.Cond) == 0 && r.surelyFails(c.Else.Then, true):
		default:
			return true
		}
	}
	return r.branch(c.Then) || c.Else != nil && r.ifClause(c.Else)
}

// loop reads the body of a loop: each turn's code is lost to the next one.
func (r *reader) loop(body []*syntax.Stmt) (hides bool) {
	if r.branch(body) {
		return true
	}
	if len(body) == 0 {
		return false
	}
	last := body[len(body)-1]
	return r.strict() && r.escapes(last) || !r.strict() && r.canFail(last)
}

func (r *reader) call(c *syntax.CallExpr) (hides bool) {
	if len(c.Args) == 0 {
		return r.assigns(c)
	}
	if r.drops(c) {
		return true
	}
	words := literals(c.Args)
	for len(words) > 1 && slices.Contains([]string{"command", "builtin", "exec"}, words[0]) {
		words = words[1:]
	}
	if f := r.functions[words[0]]; f != nil {
		state := callState{r.options, r.ignored}
		result, seen := f.calls[state]
		if !seen {
			// What a recursive call finds: it adds nothing.
			f.calls[state] = callResult{false, r.options}
			outside := r.inFunction
			r.inFunction = true
			result = callResult{r.stmt(f.body), r.options}
			r.inFunction = outside
			f.calls[state] = result
		}
		r.options = result.after
		return result.hides
	}
	switch words[0] {
	case "set":
		r.options = r.options.set(words[1:])
	case "shopt", "setopt", "unsetopt", "emulate":
		// These can also switch the two options off; "set" is what is read here.
		if words[0] != "shopt" || slices.ContainsFunc(words, func(w string) bool { return strings.HasPrefix(w, "-") && strings.Contains(w, "o") }) {
			r.options = options{}
		}
	case "eval":
		script := strings.Join(words[1:], " ")
		if len(script) > maxScriptBytes || strings.Contains(script, unknownText) || r.tired(len(script)) {
			return true
		}
		file, err := syntax.NewParser(syntax.Variant(r.lang)).Parse(strings.NewReader(script), "")
		return err != nil || r.list(file.Stmts)
	case "trap":
		// A handler that exits chooses the code.
		exits := false
		for _, w := range c.Args[1:] {
			syntax.Walk(w, func(n syntax.Node) bool {
				switch n := n.(type) {
				case *syntax.Lit:
					exits = exits || strings.Contains(n.Value, "exit")
				case *syntax.SglQuoted:
					exits = exits || strings.Contains(n.Value, "exit")
				}
				return true
			})
		}
		return exits
	default:
		return masked(words, r.given)
	}
	return false
}

// set follows set -e, set -o pipefail and their opposites.
func (o options) set(args []string) options {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		if len(arg) < 2 || arg[0] != '-' && arg[0] != '+' || arg == "--" {
			break
		}
		on := arg[0] == '-'
		for _, letter := range arg[1:] {
			switch {
			case letter == 'e':
				o.errexit = on
			case letter == 'o' && len(args) > 0:
				switch args[0] {
				case "errexit":
					o.errexit = on
				case "pipefail":
					o.pipefail = on
				}
				args = args[1:]
			}
		}
	}
	return o
}

// assigns reads a command of assignments only, which ends with the code of its
// last command substitution.
func (r *reader) assigns(c *syntax.CallExpr) (hides bool) {
	failing := 0
	for _, stmts := range r.substitutions(c) {
		if r.substitution().list(stmts) {
			return true
		}
		if r.substitution().forkFails(stmts, true) {
			failing++
		}
	}
	return failing > 1
}

// drops reads the command substitutions of a node that does not end with their
// code.
func (r *reader) drops(node syntax.Node) bool {
	for _, stmts := range r.substitutions(node) {
		if r.substitution().list(stmts) || r.substitution().forkFails(stmts, true) {
			return true
		}
	}
	return false
}

// substitutions are the outermost command and process substitutions in node.
func (r *reader) substitutions(node syntax.Node) (list [][]*syntax.Stmt) {
	syntax.Walk(node, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CmdSubst:
			list = append(list, n.Stmts)
			return false
		case *syntax.ProcSubst:
			list = append(list, n.Stmts)
			return false
		}
		return !r.tired(1)
	})
	return list
}
