package sqlview

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"fleetledger/events"
)

// failureIs is the version of the way in which failureIn names a failure. It is kept
// with every name: those of two versions are not compared.
const failureIs = 3

// maxFailure bounds a failure's name, in bytes.
const maxFailure = 200

// failureIn names what went wrong in a command's output, so that the same error has
// the same name whichever command met it: the line that tells of it, without what
// differs from run to run (numbers, times, addresses, ids, folders). Lines in which
// task runners say that what they ran has failed are passed over. It is empty if the
// output does not tell. Of a command that has failed for certain the last line tells,
// if no other does.
func failureIn(stderr, stdout string, certain bool) string {
	last := ""
	for _, text := range []string{stderr, stdout} {
		line, names := tellingLine(text)
		if names {
			return normalFailure(line)
		}
		if last == "" && hasWord(line) {
			last = line
		}
	}
	if !certain {
		return ""
	}
	return normalFailure(last)
}

// wholeLines is the tail of an output without the line that it was cut in, if it has
// others: where that falls differs from run to run.
func wholeLines(o *events.Output) string {
	if !o.Truncated || o.Bytes <= int64(len(o.Tail)) {
		return o.Tail
	}
	if _, rest, ok := strings.Cut(o.Tail, "\n"); ok && strings.TrimSpace(rest) != "" {
		return rest
	}
	return o.Tail
}

// hasWord reports whether a line says anything: brackets and rulers do not.
func hasWord(line string) bool {
	letters := 0
	for _, r := range line {
		if !unicode.IsLetter(r) {
			letters = 0
			continue
		}
		if letters++; letters == 3 || unicode.In(r, spaceless...) {
			return true
		}
	}
	return false
}

// tellingLine is the first line that names an error; after a Python traceback the
// line that ends it; else, naming none, the last line that is no task runner's.
func tellingLine(text string) (line string, names bool) {
	last, inTraceback := "", false
	for raw := range strings.Lines(text) {
		line := strings.TrimSpace(withoutEscapes(raw))
		switch {
		case line == "":
			continue
		case strings.HasPrefix(line, "Traceback (most recent call last)"):
			inTraceback = true
			continue
		case inTraceback && (strings.HasPrefix(raw, " ") || strings.HasPrefix(raw, "\t")):
			continue
		case wrapper(line):
			continue
		}
		if inTraceback || namesError(line) {
			return line, true
		}
		last = line
	}
	return last, false
}

// errorWords are parts of lines, in lower case, that tell of an error.
var errorWords = []string{"error", "fatal", "panic", "exception", "failed", "failure", "fail:", "cannot ", "can't ", "could not", "couldn't", "undefined", "no such",
	"not found", "denied", "refused", "unexpected", "invalid", "assert", "segmentation fault", "timed out", "timeout", "unable to", "unknown ", "missing ", "killed", "out of memory", "conflict"}

func namesError(line string) bool {
	lower := strings.ToLower(line)
	for _, w := range errorWords {
		if strings.Contains(lower, w) {
			// "0 errors" and "no failures" tell of none.
			i := strings.Index(lower, w)
			if before := strings.TrimRight(lower[:i], " "); strings.HasSuffix(before, " 0") || before == "0" || strings.HasSuffix(before, " no") || before == "no" {
				continue
			}
			return true
		}
	}
	return false
}

// wrapperStarts and wrapperParts know the lines of task runners which say only that
// something failed.
var wrapperStarts = []string{"make: ***", "gmake: ***", "make: leaving", "make: entering", "ninja: build stopped", "ninja: error: rebuilding", "npm err!", "npm error", "npm warn", "yarn run", "info visit https",
	"error command failed with exit code", "lerna err!", "exit status ", "process exited", "process completed with exit code", "##[error]process completed", "error: process completed with exit code",
	"failure: build failed", "build failed", "* try:", "* what went wrong", "* where:", "> run with --", "error: recipe ", "error: test failed, to rerun", "error: could not compile", "task: failed to run task",
	"error: script ", "bazel: failed", "failed: build did not complete", "error: build did not complete", "error: invocationerror", "nox > command", "rake aborted!", "pre-commit hook", "command failed", "fail\t", "--- fail", "fail ", "ok  \t", "error: command failed", "script exited with", "child process exited", "[info]", "[error] -> [help", "[error] re-run", "[error] to see the full", "[error] for more information", "warning: build failed", "note: run with `rust_backtrace"}

var wrapperParts = []string{"] error 1", "] error 2", "err_pnpm", "elifecycle", "errno 1", "[help 1]"}

func wrapper(line string) bool {
	lower := strings.ToLower(line)
	if rest, ok := strings.CutPrefix(strings.TrimPrefix(lower, "g"), "make["); ok {
		if _, after, ok := strings.Cut(rest, "]"); ok {
			lower = "make" + after
		}
	}
	if lower == "fail" {
		return true
	}
	for _, s := range wrapperStarts {
		if strings.HasPrefix(lower, s) {
			return true
		}
	}
	for _, s := range wrapperParts {
		// A number that only begins so is another: Python's [Errno 13] tells a lot.
		if _, after, ok := strings.Cut(lower, s); ok && (after == "" || after[0] < '0' || after[0] > '9') {
			return true
		}
	}
	return false
}

// withoutEscapes is a line without the escape sequences that colour it.
func withoutEscapes(s string) string {
	if !strings.Contains(s, "\x1b") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != 0x1b {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == '[' { // CSI: up to its final byte
			for i += 2; i < len(s) && (s[i] < 0x40 || s[i] > 0x7e); i++ {
			}
		} else {
			i++
		}
	}
	return b.String()
}

// normalFailure replaces what differs from run to run: words with digits by #, and
// paths by their last part.
func normalFailure(line string) string {
	var b strings.Builder
	for i, w := range strings.Fields(line) {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(normalWord(w))
		if b.Len() > maxFailure {
			break
		}
	}
	out := b.String()
	if len(out) > maxFailure {
		out = out[:maxFailure]
		for !utf8.ValidString(out) {
			out = out[:len(out)-1]
		}
	}
	return out
}

func normalWord(w string) string {
	if i := strings.LastIndexAny(w, `/\`); i >= 0 && i+1 < len(w) && !strings.Contains(w, "://") {
		// What stands before the path, a quote or a bracket, stays.
		lead := w[:len(w)-len(strings.TrimLeft(w, "\"'`([{<"))]
		w = lead + w[i+1:]
	}
	var b strings.Builder
	digits := false
	for i := 0; i < len(w); {
		r, n := utf8.DecodeRuneInString(w[i:])
		// A run of letters and digits that has a digit, and hex, is one #.
		if r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r)) {
			j := i
			has, hex := false, true
			for j < len(w) && w[j] < utf8.RuneSelf && (unicode.IsLetter(rune(w[j])) || unicode.IsDigit(rune(w[j]))) {
				has = has || w[j] >= '0' && w[j] <= '9'
				hex = hex && (w[j] >= '0' && w[j] <= '9' || w[j]|0x20 >= 'a' && w[j]|0x20 <= 'f')
				j++
			}
			run := w[i:j]
			switch {
			case has && (hex || allDigitsButUnit(run)):
				if !digits {
					b.WriteByte('#')
				}
				digits = true
			default:
				b.WriteString(run)
				digits = false
			}
			i = j
			continue
		}
		if digits && strings.ContainsRune(":.-,", r) && i+n < len(w) && w[i+n] >= '0' && w[i+n] <= '9' {
			i += n // 12:30:05, 1.5, 2026-03-01: one #
			continue
		}
		digits = false
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		}
		i += n
	}
	return b.String()
}

// allDigitsButUnit reports whether a run is a number with a unit, like 12ms, or one
// like 0x1f.
func allDigitsButUnit(s string) bool {
	if strings.HasPrefix(s, "0x") || strings.HasPrefix(s, "0X") {
		return true
	}
	i := 0
	for i < len(s) && s[i] >= '0' && s[i] <= '9' {
		i++
	}
	return i > 0 && len(s)-i <= 2
}
