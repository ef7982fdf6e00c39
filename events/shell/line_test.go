package shell

import (
	"slices"
	"strings"
	"testing"

	"mvdan.cc/sh/v3/syntax"
)

func TestLine(t *testing.T) {
	sh := func(line string) []string { return []string{"sh", "-c", line} }
	for _, c := range []struct {
		line   string
		argv   []string
		masked bool
	}{
		{"go test ./...", []string{"go", "test", "./..."}, false},
		{"  go   test\t./...  ", []string{"go", "test", "./..."}, false},
		{`git commit -m "it's done"`, []string{"git", "commit", "-m", "it's done"}, false},
		{`git commit -m 'a $b *'`, []string{"git", "commit", "-m", "a $b *"}, false},
		{`grep a\ b\* file`, []string{"grep", "a b*", "file"}, false},
		{"git show HEAD@{1}", []string{"git", "show", "HEAD@{1}"}, false},
		{"# look\ngit status", []string{"git", "status"}, false},
		{`echo ""`, []string{"echo", ""}, false},
		{"ls 日本語 é", []string{"ls", "日本語", "é"}, false},
		{`bash -c "go test | tail"`, []string{"bash", "-c", "go test | tail"}, true},
		{"go test ./... 2>&1", sh("go test ./... 2>&1"), false},
		{"go test ./... | tail", sh("go test ./... | tail"), true},
		{"cd x && go test", sh("cd x && go test"), false},
		{"CI=1 go test", sh("CI=1 go test"), false},
		{"ls *.go", sh("ls *.go"), false},
		{"ls a{b,c}", sh("ls a{b,c}"), false},
		{"ls ~/x", sh("ls ~/x"), false},
		{"echo $HOME", sh("echo $HOME"), false},
		{`echo "$HOME"`, sh(`echo "$HOME"`), false},
		{`"" x`, sh(`"" x`), false},
		{"sleep 9 &", sh("sleep 9 &"), true},
		{"export A=b", sh("export A=b"), false},
		{"", sh(""), false},
		{"for", sh("for"), true},
	} {
		argv, masked := Line(c.line)
		if !slices.Equal(argv, c.argv) || masked != c.masked {
			t.Errorf("%q: %q, masked %t; want %q, %t", c.line, argv, masked, c.argv, c.masked)
		}
	}
}

// What becomes words must come back as the same words when it is typed again.
func FuzzLine(f *testing.F) {
	f.Add("go test ./...")
	f.Add(`a 'b' "c\"" d\ e {f,g} [h] ~`)
	f.Fuzz(func(t *testing.T, line string) {
		argv, _ := Line(line)
		if len(argv) == 3 && argv[0] == "sh" && argv[1] == "-c" && argv[2] == line {
			return
		}
		quoted := make([]string, len(argv))
		for i, w := range argv {
			q, err := syntax.Quote(w, syntax.LangBash)
			if err != nil {
				return // a byte that no shell line can hold
			}
			quoted[i] = q
		}
		if strings.Contains(strings.Join(quoted, ""), "$'") {
			return // a form of quoting that Line leaves to the shell
		}
		if again, _ := Line(strings.Join(quoted, " ")); !slices.Equal(again, argv) {
			t.Errorf("%q is %q, and that %q", line, argv, again)
		}
	})
}
