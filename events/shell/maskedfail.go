package shell

import (
	"slices"
	"strconv"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// answering commands fail to say no.
var answering = []string{"[", "test", "type", "which", "hash", "read", "getopts", "let"}

// harmless commands end with 0, or their failure is of no interest.
var harmless = []string{
	":", "true", "echo", "printf", "pwd", "date", "sleep", "set", "shopt", "setopt", "unsetopt",
	"unset", "export", "readonly", "local", "declare", "typeset", "alias", "unalias", "umask",
	"trap", "shift", "break", "continue", "exit", "times",
}

// informing commands are harmless inside a substitution, where they make text.
var informing = []string{"cat", "basename", "dirname", "whoami", "hostname", "uname", "nproc", "seq", "mktemp", "id"}

// answers reports whether s only asks something.
func (r *reader) answers(s *syntax.Stmt) bool {
	if r.tired(1) {
		return false
	}
	switch c := s.Cmd.(type) {
	case *syntax.TestClause, *syntax.ArithmCmd, *syntax.LetClause:
		return true
	case *syntax.CallExpr:
		return len(c.Args) > 0 && answeringCall(c)
	case *syntax.BinaryCmd:
		return (c.Op == syntax.AndStmt || c.Op == syntax.OrStmt) && r.answers(c.X) && r.answers(c.Y)
	case *syntax.Block:
		return len(c.Stmts) == 1 && r.answers(c.Stmts[0])
	case *syntax.Subshell:
		return len(c.Stmts) == 1 && r.answers(c.Stmts[0])
	}
	return false
}

func answeringCall(c *syntax.CallExpr) bool {
	name := literal(c.Args[0])
	if name == "command" && len(c.Args) > 1 {
		flag := literal(c.Args[1])
		return flag == "-v" || flag == "-V"
	}
	return slices.Contains(answering, name)
}

// canFail reports whether s can end with a code other than 0 that means
// something.
func (r *reader) canFail(s *syntax.Stmt) bool { return r.fails(s, false) }

// fails is canFail; text is true inside a substitution.
func (r *reader) fails(s *syntax.Stmt, text bool) bool {
	if r.tired(1) {
		return true
	}
	switch c := s.Cmd.(type) {
	case *syntax.CallExpr:
		if len(c.Args) == 0 {
			return slices.ContainsFunc(r.substitutions(c), func(stmts []*syntax.Stmt) bool { return r.substitution().forkFails(stmts, true) })
		}
		name := literal(c.Args[0])
		if f := r.functions[name]; f != nil {
			return r.functionFails(f)
		}
		if name == "return" {
			return !r.inFunction
		}
		return !answeringCall(c) && !slices.Contains(harmless, name) && !(text && slices.Contains(informing, name))
	case *syntax.BinaryCmd:
		switch c.Op {
		case syntax.AndStmt:
			return r.fails(c.X, text) || r.fails(c.Y, text)
		case syntax.OrStmt:
			return r.fails(c.Y, text)
		}
		return r.forkFails([]*syntax.Stmt{c.X}, text) || r.forkFails([]*syntax.Stmt{c.Y}, text)
	case *syntax.Block:
		return r.lastFails(c.Stmts, text)
	case *syntax.Subshell:
		return r.forkFails(c.Stmts, text)
	case *syntax.IfClause:
		for branch := c; branch != nil; branch = branch.Else {
			if r.lastFails(branch.Then, text) {
				return true
			}
		}
		return false
	case *syntax.WhileClause:
		return r.lastFails(c.Do, text)
	case *syntax.ForClause:
		return r.lastFails(c.Do, text)
	case *syntax.CaseClause:
		return slices.ContainsFunc(c.Items, func(item *syntax.CaseItem) bool { return r.lastFails(item.Stmts, text) })
	case *syntax.TimeClause:
		return c.Stmt != nil && r.fails(c.Stmt, text)
	case nil, *syntax.FuncDecl, *syntax.DeclClause, *syntax.TestClause, *syntax.ArithmCmd, *syntax.LetClause:
		return false
	}
	return true
}

func (r *reader) lastFails(stmts []*syntax.Stmt, text bool) bool {
	return len(stmts) > 0 && r.fails(stmts[len(stmts)-1], text)
}

// forkFails is lastFails for what runs in a process of its own, which exit and
// set -e end early.
func (r *reader) forkFails(stmts []*syntax.Stmt, text bool) bool {
	return r.strict() || r.lastFails(stmts, text) || slices.ContainsFunc(stmts, func(s *syntax.Stmt) bool {
		return r.calls(s, "exit", "return", "set")
	})
}

func (r *reader) functionFails(f *function) bool {
	if f.busy {
		return true
	}
	if !f.known {
		f.busy = true
		inside := *r
		inside.inFunction = true
		f.fails = inside.canFail(f.body) || r.calls(f.body, "return")
		f.busy, f.known = false, true
	}
	return f.fails
}

// escapes reports whether s can fail without errexit noticing: on the left of
// &&, where a failure is taken for an answer.
func (r *reader) escapes(s *syntax.Stmt) bool {
	if r.tired(1) {
		return true
	}
	last := func(stmts []*syntax.Stmt) bool { return len(stmts) > 0 && r.escapes(stmts[len(stmts)-1]) }
	switch c := s.Cmd.(type) {
	case *syntax.BinaryCmd:
		switch c.Op {
		case syntax.AndStmt:
			return r.canFail(c.X) || r.escapes(c.Y)
		case syntax.OrStmt:
			return r.escapes(c.Y)
		}
	case *syntax.Block:
		return last(c.Stmts)
	case *syntax.IfClause:
		for branch := c; branch != nil; branch = branch.Else {
			if last(branch.Then) {
				return true
			}
		}
	case *syntax.CaseClause:
		return slices.ContainsFunc(c.Items, func(item *syntax.CaseItem) bool { return last(item.Stmts) })
	case *syntax.TimeClause:
		return c.Stmt != nil && r.escapes(c.Stmt)
	case *syntax.CallExpr:
		if len(c.Args) > 0 {
			if f := r.functions[literal(c.Args[0])]; f != nil && !f.busy {
				f.busy = true
				defer func() { f.busy = false }()
				return r.escapes(f.body)
			}
		}
	}
	return false
}

// surelyFails reports whether stmts, run because something failed, always end
// with a code other than 0. first is true where $? is still the code of that
// failure.
func (r *reader) surelyFails(stmts []*syntax.Stmt, first bool) bool {
	if len(stmts) == 0 {
		return false
	}
	for _, s := range stmts[:len(stmts)-1] {
		if r.calls(s, "exit", "return") {
			return false
		}
	}
	s := stmts[len(stmts)-1]
	if s.Negated || s.Background || s.Coprocess || s.Disown {
		return false
	}
	first = first && len(stmts) == 1
	switch c := s.Cmd.(type) {
	case *syntax.Block:
		return r.surelyFails(c.Stmts, first)
	case *syntax.Subshell:
		return r.surelyFails(c.Stmts, first)
	}
	name, args := plainCall(s)
	if f := r.functions[name]; f != nil {
		if f.busy {
			return false
		}
		f.busy = true
		defer func() { f.busy = false }()
		return r.surelyFails([]*syntax.Stmt{f.body}, first)
	}
	switch name {
	case "false":
		return true
	case "exit", "return":
		if len(args) == 0 || parameter(args[0]) == "?" {
			return first
		}
		code, err := strconv.ParseUint(literal(args[0]), 10, 32)
		return err == nil && code%256 != 0
	}
	return false
}

// calls reports whether one of names is called anywhere in s.
func (r *reader) calls(s *syntax.Stmt, names ...string) (found bool) {
	syntax.Walk(s, func(n syntax.Node) bool {
		if c, ok := n.(*syntax.CallExpr); ok && len(c.Args) > 0 && slices.Contains(names, literal(c.Args[0])) || r.tired(1) {
			found = true
		}
		return !found
	})
	return found
}

// plainCall is the name and the arguments of a simple command.
func plainCall(s *syntax.Stmt) (name string, args []*syntax.Word) {
	c, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || len(c.Args) == 0 || s.Negated || s.Background {
		return "", nil
	}
	return literal(c.Args[0]), c.Args[1:]
}

// parameter is the name in a word that is $name, ${name} or either in quotes.
func parameter(w *syntax.Word) string {
	if w == nil || len(w.Parts) != 1 {
		return ""
	}
	part := w.Parts[0]
	if q, ok := part.(*syntax.DblQuoted); ok && len(q.Parts) == 1 {
		part = q.Parts[0]
	}
	p, ok := part.(*syntax.ParamExp)
	if !ok || p.Param == nil || p.Index != nil || p.Exp != nil || p.Repl != nil || p.Slice != nil || p.Length || p.Excl {
		return ""
	}
	return p.Param.Value
}

// literal is the text of a word that needs no expansion, and unknownText of
// every other.
func literal(w *syntax.Word) string {
	var b strings.Builder
	for _, part := range w.Parts {
		switch part := part.(type) {
		case *syntax.Lit:
			b.WriteString(unescape(part.Value, ""))
		case *syntax.SglQuoted:
			if part.Dollar && strings.Contains(part.Value, `\`) {
				return unknownText
			}
			b.WriteString(part.Value)
		case *syntax.DblQuoted:
			for _, inner := range part.Parts {
				lit, ok := inner.(*syntax.Lit)
				if !ok {
					return unknownText
				}
				b.WriteString(unescape(lit.Value, "$`\"\\\n"))
			}
		default:
			return unknownText
		}
	}
	return b.String()
}

func literals(words []*syntax.Word) []string {
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = literal(w)
	}
	return list
}

// unescape takes off the backslashes of a literal: before every character, or
// only before those of special.
func unescape(s, special string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) && (special == "" || strings.IndexByte(special, s[i+1]) >= 0) {
			i++
			if s[i] == '\n' {
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
