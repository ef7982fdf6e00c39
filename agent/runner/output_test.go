package runner

import (
	"bytes"
	"crypto/sha256"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestTail(t *testing.T) {
	full := strings.Repeat("x", TailBytes)
	for _, row := range []struct {
		name, in, tail string
		truncated      bool
	}{
		{"nothing", "", "", false},
		{"little", "héllo\n", "héllo\n", false},
		{"exactly full", full, full, false},
		{"one more", "y" + full, full, true},
		{"cut in a character of two", "é" + full[1:], full[1:], true},
		{"cut in a character of four", "\U0001F600" + full[3:], full[3:], true},
		{"cut before a character", "yé" + full[2:], "é" + full[2:], true},
		{"halved at the end", "a\xf0\x9f", "a\uFFFD", false},
		{"broken at the cut", "yyyy\x80\x80\x80\x80" + full[4:], "y\uFFFD" + full[4:], true},
		{"grows when repaired", strings.Repeat("a\xff", TailBytes/2), strings.Repeat("a\uFFFD", TailBytes/4), true},
		{"grows to a halved U+FFFD", "\xff" + full[1:], full[1:], true},
	} {
		c := newCapture()
		_, _ = c.Write([]byte(row.in))
		out := c.output()
		if out.Tail != row.tail || out.Truncated != row.truncated {
			t.Errorf("%s: %d bytes %.20q..., truncated %t; want %d bytes %.20q..., %t",
				row.name, len(out.Tail), out.Tail, out.Truncated, len(row.tail), row.tail, row.truncated)
		}
	}
}

// However an output arrives, it is counted and hashed in full, and its tail is
// the end of it.
func TestCaptureInPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCapture()
		var all []byte
		for _, size := range rapid.SliceOfN(rapid.IntRange(0, 3*TailBytes), 0, 6).Draw(t, "sizes") {
			unit := rapid.SliceOfN(rapid.Byte(), 1, 7).Draw(t, "unit")
			piece := bytes.Repeat(unit, size/len(unit))
			all = append(all, piece...)
			if n, err := c.Write(piece); n != len(piece) || err != nil {
				t.Fatalf("wrote %d of %d: %v", n, len(piece), err)
			}
		}
		out := c.output()
		if out.Bytes != int64(len(all)) || out.SHA256 != sha256.Sum256(all) {
			t.Fatalf("%d bytes %s, want %d", out.Bytes, out.SHA256, len(all))
		}
		if !utf8.ValidString(out.Tail) || len(out.Tail) > TailBytes {
			t.Fatalf("tail of %d bytes, valid %t", len(out.Tail), utf8.ValidString(out.Tail))
		}
		if !strings.HasSuffix(strings.ToValidUTF8(string(all), "\uFFFD"), out.Tail) && len(all) <= TailBytes {
			t.Fatal("the tail is not the end of the output")
		}
		if utf8.Valid(all) && (!strings.HasSuffix(string(all), out.Tail) || len(all) > TailBytes && len(out.Tail) <= TailBytes-utf8.UTFMax) {
			t.Fatal("the tail of a text is not its end")
		}
		if !out.Truncated && len(all) > TailBytes {
			t.Fatal("bytes were left out and it is not said")
		}
	})
}
