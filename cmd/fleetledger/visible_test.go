package main

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"plain text, Grüße, 日本語, 👍": "plain text, Grüße, 日本語, 👍",
		"\x1b[31mred\x1b[0m":        `\x1b[31mred\x1b[0m`,
		"\u009b2J":                  `\x9b2J`,
		"a\x9bb":                    `a\x9bb`, // C1 as a bare byte
		"one\ntwo\r\tthree\x7f\a":   `one\ntwo\r\tthree\x7f\x07`,
		"safe\u202etxt.exe":         `safe\u202etxt.exe`,
		"\u2066\u2069\u200b\u200d":  `\u2066\u2069\u200b\u200d`,
		"\u2028\u2029\ufeff":        `\u2028\u2029\ufeff`,
		"\U000e0041":                `\U000e0041`, // a tag character
		"broken \xff\xc3":           `broken \xff\xc3`,
		"kept \ufffd":               "kept \ufffd",
		"":                          "",
	} {
		if got := visible(in); got != want {
			t.Errorf("%q: shown as %q, want %q", in, got, want)
		}
	}
}

// JSON keeps its value and loses what a terminal could act upon.
func TestVisibleJSON(t *testing.T) {
	const value = "a\u009b31m\u202e\u007f\U000e0041\u2028 end"
	raw, err := json.Marshal(map[string]string{"tail": value})
	if err != nil {
		t.Fatal(err)
	}
	got := visibleJSON(raw)
	if strings.ContainsAny(got, "\u009b\u202e\u007f\U000e0041\u2028") {
		t.Errorf("still live: %q", got)
	}
	var back map[string]string
	if err := json.Unmarshal([]byte(got), &back); err != nil || back["tail"] != value {
		t.Errorf("%s reads back as %q, %v", got, back["tail"], err)
	}
}

// Whatever is printed for people goes through visible.
func TestPrinter(t *testing.T) {
	type named string
	var b strings.Builder
	p := printer{&b}
	p.f("%s %s %d %v\n", "\x1b[1m", named("\x1b[2m"), 7, errQuiet)
	p.block("  ", "first\x1b]0;title\a\r\nsecond\tx\n")
	p.table([][]string{{"A", "B"}, {"x\ty", "\x1b[3m"}})
	for line := range strings.SplitSeq(b.String(), "\n") {
		if visible(line) != line {
			t.Errorf("live: %q", line)
		}
	}
	if want := "  | first\\x1b]0;title\\x07\n  | second    x\n"; !strings.Contains(b.String(), want) {
		t.Errorf("the block is %q", b.String())
	}
}
