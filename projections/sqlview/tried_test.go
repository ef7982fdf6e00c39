package sqlview

import (
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/text/unicode/norm"
)

// pasted are commands as people paste them, and as they were run.
var pasted = []struct {
	query string
	argv  []string
}{
	{`go test ./...`, []string{"go", "test", "./..."}},
	{`go test -run 'TestA|TestB' -count=1 ./events/...`, []string{"go", "test", "-run", "TestA|TestB", "-count=1", "./events/..."}},
	{`git commit -m "it's done: \"really\""`, []string{"git", "commit", "-m", `it's done: "really"`}},
	{`cat a.log | grep -v "x*" > out.txt`, []string{"bash", "-c", `cat a.log | grep -v "x*" > out.txt`}},
	{"for f in *; do\n  echo \"$f\"\ndone", []string{"sh", "-c", "for f in *; do\n  echo \"$f\"\ndone"}},
	{`curl -H 'A: b' "http://localhost:7070/v1/tried?q=a%20b"`, []string{"curl", "-H", "A: b", "http://localhost:7070/v1/tried?q=a%20b"}},
	{`echo 日本語のテスト`, []string{"echo", "日本語のテスト"}},
	{`echo 🚀👩‍💻 done`, []string{"echo", "🚀👩‍💻", "done"}},
	{"cat caf\u00e9.txt", []string{"cat", "cafe\u0301.txt"}},
	{"cat re\u0301sume\u0301", []string{"cat", "r\u00e9sum\u00e9"}},
	{`NEAR(a b) AND "c" OR NOT (d*) ^e {f} : g`, []string{"sh", "-c", `NEAR(a b) AND "c" OR NOT (d*) ^e {f} : g`}},
	{`"unbalanced`, []string{"sh", "-c", `"unbalanced`}},
	{`-- '' ""`, []string{"--", "", ""}},
	{`***`, []string{"***"}},
	{`.\build.ps1 -Path C:\Temp\x`, []string{`.\build.ps1`, "-Path", `C:\Temp\x`}},
}

func TestPastedCommandComesFirst(t *testing.T) {
	l := newLedger(t)
	year := l.now.AddDate(-1, 0, 0)
	for _, p := range pasted {
		l.ran(1, p.argv, at(year))
	}
	// Newer ones that hold the same words, in the same order and in another.
	for _, p := range pasted {
		l.now = l.now.Add(time.Second)
		l.ran(0, append([]string{"sudo"}, p.argv...))
		l.ran(0, []string{"echo", "later", strings.Join(p.argv, " ")})
	}
	v := l.view()
	for _, p := range pasted {
		for _, q := range []string{p.query, norm.NFD.String(p.query), "  " + p.query + "\n"} {
			got := tried(t, v, Query{Text: q})
			if len(got) == 0 || got[0].WhyMatched != MatchedCommand || !got[0].LastAt.Equal(year) {
				t.Errorf("%q: got %+v", q, got)
			}
			for _, a := range got[1:] {
				if a.WhyMatched == MatchedCommand {
					t.Errorf("%q: %q is not the same command", q, a.Command)
				}
			}
		}
	}
}

// A line given to a shell is the same command as that line, whichever of them was run and
// whichever is asked for.
func TestTriedThroughAShell(t *testing.T) {
	l := newLedger(t)
	for _, argv := range [][]string{{"make", "a b"}, {"sh", "-c", "make 'a b'"}, {"bash", "-lc", "make 'a b'"}, {"make", "a b", "c"}, {"sh", "make 'a b'"}} {
		l.now = l.now.Add(time.Second)
		l.ran(0, argv)
	}
	v := l.view()
	for _, q := range []string{`make 'a b'`, `make "a b"`, `bash -c "make 'a b'"`, `bash -lc "make 'a b'"`, `sh -c 'make "a b"'`, `zsh  -c make\ \"a\ b\"`, `sh -c "bash -c 'make \"a b\"'"`} {
		var got []string
		for _, a := range tried(t, v, Query{Text: q}) {
			if a.WhyMatched == MatchedCommand {
				got = append(got, a.Command)
			}
		}
		slices.Sort(got)
		if want := []string{`bash -lc 'make '\''a b'\'''`, `make 'a b'`, `sh -c 'make '\''a b'\'''`}; !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", q, got, want)
		}
	}
}

func TestRanksOfTried(t *testing.T) {
	l := newLedger(t)
	run := func(argv ...string) {
		l.now = l.now.Add(time.Second)
		l.ran(0, argv)
	}
	run("go", "vet", "./...")
	run("go", "build", "-vet", "./...")
	run("make", "go", "vet")
	run("echo", "修复错误日志")
	run("echo", "错误")
	run("echo", "GO_VET")
	v := l.view()
	for q, want := range map[string][]string{
		"go vet ./...": {"go vet ./... same_command", "echo GO_VET same_phrase", "make go vet same_phrase", "go build -vet ./... same_words"},
		"vet make":     {"make go vet same_words"},
		"错误":           {"echo 错误 same_phrase", "echo 修复错误日志 same_substring"},
		"echo 日志":      {"echo 修复错误日志 same_substring"},
		"nothing":      nil,
		"|":            nil,
	} {
		var got []string
		for _, a := range tried(t, v, Query{Text: q}) {
			got = append(got, a.Command+" "+a.WhyMatched)
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("%q:\n%s\nwant\n%s", q, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		// Page by page it is the same.
		var paged []string
		cursor := ""
		for range 10 {
			found, err := v.Tried(t.Context(), Query{Text: q, Limit: 1, Cursor: cursor})
			if err != nil {
				t.Fatal(err)
			}
			for _, a := range found.Answers {
				paged = append(paged, a.Command+" "+a.WhyMatched)
				cursor = a.Cursor
			}
			if !found.More {
				break
			}
		}
		if strings.Join(got, "\n") != strings.Join(paged, "\n") {
			t.Errorf("%q: page by page\n%s\nat once\n%s", q, strings.Join(paged, "\n"), strings.Join(got, "\n"))
		}
	}
}

func TestOnePlace(t *testing.T) {
	l := newLedger(t)
	for _, repo := range []string{`d:\docu2`, `D:\Docu2`, `D:/docu2/`} {
		l.ran(0, []string{"npm", "test"}, in(repo))
	}
	l.ran(0, []string{"npm", "test"}, in("/srv/Docu2"))
	l.ran(0, []string{"npm", "test"}, in("/srv/docu2"))
	v := l.view()
	if got := tried(t, v, Query{Text: "npm test"}); len(got) != 3 {
		t.Errorf("got %+v", got)
	}
	for _, repo := range []string{`d:\docu2`, `D:\DOCU2\`} {
		if got := tried(t, v, Query{Text: "test", Repo: repo, Machine: "m1"}); len(got) != 1 || got[0].Runs != 3 {
			t.Errorf("%s: got %+v", repo, got)
		}
	}
}

func FuzzTried(f *testing.F) {
	for _, p := range pasted {
		f.Add(p.query)
	}
	f.Fuzz(func(t *testing.T, q string) {
		q = strings.ToValidUTF8(q, "\uFFFD") // neither a record nor a request says anything else
		l := newLedger(t)
		l.ran(0, []string{"sh", "-c", q})
		v := l.view()
		got := tried(t, v, Query{Text: q})
		if commandForm(q) != "" && (len(got) != 1 || got[0].WhyMatched != MatchedCommand) {
			t.Errorf("%q: got %+v", q, got)
		}
	})
}
