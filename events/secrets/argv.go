package secrets

import "strings"

// WordFinding is a secret in a word of a command: argv[Word][Start:End].
type WordFinding struct {
	Finding
	Word int
}

// FindInArgv returns the secrets in a command, word by word: those that a word
// shows alone, and those that the words before it give away, as in curl -u.
func FindInArgv(argv []string) []WordFinding {
	line, at := commandLine(argv)
	together := Find(line)
	var found []WordFinding
	for w, word := range argv {
		here := Find(word)
		for _, f := range together {
			from, to := max(f.Start-at[w], 0), min(f.End-at[w], len(word))
			if from < to && !isMark(word[from:to]) {
				here = append(here, Finding{f.Rule, from, to})
			}
		}
		for _, f := range disjoint(here) {
			found = append(found, WordFinding{f, w})
		}
	}
	return found
}

// MaskArgv returns argv with its secrets masked, and how many they are. It does
// not change argv.
func MaskArgv(argv []string) (masked []string, n int) {
	for round := 1; ; round++ {
		found := FindInArgv(argv)
		if len(found) == 0 {
			return argv, n
		}
		n += len(found)
		argv = append([]string(nil), argv...)
		for i := len(found) - 1; i >= 0; i-- {
			f := found[i]
			w := argv[f.Word]
			if round > patience {
				f.Start, f.End = 0, len(w)
			}
			argv[f.Word] = w[:f.Start] + mark(f.Rule) + w[f.End:]
		}
	}
}

// commandLine is argv as one line, much as a shell would take it, and where in
// it each word begins.
func commandLine(argv []string) (line string, at []int) {
	var b strings.Builder
	for i, w := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		quote := ""
		if strings.ContainsAny(w, " \t\r\n") {
			quote = `"`
			if strings.Contains(w, `"`) {
				quote = `'`
			}
		}
		b.WriteString(quote)
		at = append(at, b.Len())
		b.WriteString(w)
		b.WriteString(quote)
	}
	return b.String(), at
}
