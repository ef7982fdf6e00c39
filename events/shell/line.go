package shell

import (
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// maxPlainWords bounds the plain commands that become words, so that one with
// thousands of arguments stays the one line that it was.
const maxPlainWords = 256

// Line is the argv of a line that somebody typed into a shell, and whether
// its exit code can hide another one. One plain command is its words: go test
// ./... typed into a shell is the same command as go test ./... run without one.
// Everything that needs a shell (pipes, lists, redirections, assignments,
// variables, patterns, ~), and what cannot be read, is sh -c LINE.
func Line(line string) (argv []string, masked bool) {
	masked = MaskedScript(line)
	if words := plainWords(line); words != nil {
		return words, masked
	}
	return []string{"sh", "-c", line}, masked
}

// plainWords are the words of a line that is one plain command, else nil.
func plainWords(line string) []string {
	if len(line) > maxScriptBytes || strings.Contains(line, unknownText) {
		return nil
	}
	file, err := syntax.NewParser(syntax.Variant(syntax.LangBash)).Parse(strings.NewReader(line), "")
	if err != nil || len(file.Stmts) != 1 {
		return nil
	}
	s := file.Stmts[0]
	call, ok := s.Cmd.(*syntax.CallExpr)
	if !ok || s.Negated || s.Background || s.Coprocess || s.Disown || len(s.Redirs) > 0 ||
		len(call.Assigns) > 0 || len(call.Args) == 0 || len(call.Args) > maxPlainWords {
		return nil
	}
	for _, w := range call.Args {
		if expands(w) {
			return nil
		}
	}
	words := literals(call.Args)
	if words[0] == "" {
		return nil
	}
	return words
}

// expands reports whether a shell makes anything else of a word than its text.
func expands(w *syntax.Word) bool {
	if literal(w) == unknownText {
		return true
	}
	for i, part := range w.Parts {
		lit, ok := part.(*syntax.Lit)
		if !ok {
			continue
		}
		bare := unquoted(lit.Value)
		if i == 0 && strings.HasPrefix(bare, "~") || strings.ContainsAny(bare, "*?[") {
			return true
		}
		// {a,b} and {1..3}; a brace alone, as in HEAD@{1}, stands for itself. A part
		// between the braces can be quoted: then the comma is looked for no further.
		if strings.Contains(bare, "{") && (len(w.Parts) > 1 || strings.Contains(bare, ",") || strings.Contains(bare, "..")) {
			return true
		}
	}
	return false
}

// unquoted is a literal without the characters that a backslash quotes.
func unquoted(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' {
			i++
			b.WriteByte('.')
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
