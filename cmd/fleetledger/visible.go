package main

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible is s with everything that a terminal could act upon, or a reader could
// not see, written out: control characters (ESC and the C1 set among them),
// bidirectional and invisible format characters, line and paragraph separators,
// bytes that are no UTF-8. What comes from a machine or another actor is shown
// through it, always.
func visible(s string) string {
	plain := true
	for i, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD") {
			plain = false
			break
		}
	}
	if plain {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(s[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case unicode.IsPrint(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	return b.String()
}

// visibleJSON writes the same for the text of a JSON value, as escapes that leave
// the value what it is. JSON has none of these characters outside of strings.
func visibleJSON(raw []byte) string {
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case unicode.IsPrint(r) || r < ' ': // white space; strings hold no raw controls
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+r>>10, 0xdc00+r&0x3ff)
		}
	}
	return b.String()
}

// printer writes for people. Formats are the program's own; every text among
// their arguments is made visible, so that none can be forgotten.
type printer struct{ w io.Writer }

func (p printer) f(format string, args ...any) {
	safe := make([]any, len(args))
	for i, arg := range args {
		safe[i] = safeArg(arg)
	}
	// What cannot be written is told at the end: see results.
	_, _ = fmt.Fprintf(p.w, format, safe...)
}

func safeArg(arg any) any {
	switch v := arg.(type) {
	case nil:
		return arg
	case error:
		return visible(v.Error())
	case fmt.Stringer:
		return visible(v.String())
	}
	switch v := reflect.ValueOf(arg); v.Kind() {
	case reflect.String:
		return visible(v.String())
	case reflect.Int, reflect.Int64, reflect.Uint64, reflect.Bool, reflect.Float64:
		return arg
	}
	panic(fmt.Sprintf("bug: a %T is printed", arg))
}

// block writes text of several lines, each behind a fence, so that it cannot be
// taken for anything but what it is.
func (p printer) block(indent, text string) {
	text = strings.TrimSuffix(text, "\n")
	for line := range strings.SplitSeq(text, "\n") {
		p.f("%s| %s\n", indent, strings.ReplaceAll(strings.TrimSuffix(line, "\r"), "\t", "    "))
	}
}
