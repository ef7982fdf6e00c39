package events

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"
)

func TestCanonicalRefuses(t *testing.T) {
	for in, want := range map[string]string{
		``:                                      " TRUNCATED",
		`{"a":1`:                                " TRUNCATED",
		`{"a":1}}`:                              " TRAILING_DATA",
		`{"a":1,"\u0061":1}`:                    "/a DUPLICATE_NAME",
		`["\ud800"]`:                            "/0 INVALID_UTF8",
		"[\"\x80\"]":                            "/0 INVALID_UTF8",
		nested(65):                              strings.Repeat("/0", 64) + " TOO_DEEP",
		`{"n":9007199254740993}`:                "/n OUT_OF_RANGE",
		`[9223372036854775807]`:                 "/0 OUT_OF_RANGE",
		`[18446744073709551615]`:                "/0 OUT_OF_RANGE",
		`[9007199254740993.0]`:                  "/0 OUT_OF_RANGE",
		`[9007199254740993e0]`:                  "/0 OUT_OF_RANGE",
		`1e400`:                                 " OUT_OF_RANGE",
		`-1e400`:                                " OUT_OF_RANGE",
		`1e-400`:                                " OUT_OF_RANGE",
		`1e-99999999999999999999`:               " OUT_OF_RANGE",
		`1e99999999999999999999`:                " OUT_OF_RANGE",
		`0.10000000000000001`:                   " OUT_OF_RANGE",
		`333333333.33333329`:                    " OUT_OF_RANGE", // RFC 8785 3.2.2 writes 333333333.3333333
		`[1,2,` + `295147905179352825856` + `]`: "/2 OUT_OF_RANGE",
	} {
		_, err := Canonical([]byte(in))
		var refused *StrictError
		if !errors.As(err, &refused) {
			t.Errorf("%s: got %v, want %s", in, err, want)
			continue
		}
		if got := refused.Problems[0].Path + " " + refused.Problems[0].Code; got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// The examples of RFC 8785, sections 3.2.2 (but for the number that changes its
// value), 3.2.3 and appendix B.
func TestCanonicalOfRFC8785(t *testing.T) {
	tests := []struct{ in, want string }{
		{`{
  "numbers": [333333333.3333333, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
  "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
  "literals": [null, true, false]
}`, `{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}`},
		{`{
  "\u20ac": "Euro Sign",
  "\r": "Carriage Return",
  "\ufb33": "Hebrew Letter Dalet With Dagesh",
  "1": "One",
  "\ud83d\ude00": "Emoji: Grinning Face",
  "\u0080": "Control",
  "\u00f6": "Latin Small Letter O With Diaeresis"
}`, "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\",\"\u00f6\":\"Latin Small Letter O With Diaeresis\",\"\u20ac\":\"Euro Sign\",\"\U0001f600\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}"},
	}
	for _, tt := range tests {
		got, err := Canonical([]byte(tt.in))
		if err != nil || string(got) != tt.want {
			t.Errorf("got  %s, %v\nwant %s", got, err, tt.want)
		}
	}
	for bits, want := range map[uint64]string{
		0x0000000000000000: "0",
		0x8000000000000000: "0",
		0x0000000000000001: "5e-324",
		0x8000000000000001: "-5e-324",
		0x7fefffffffffffff: "1.7976931348623157e+308",
		0xffefffffffffffff: "-1.7976931348623157e+308",
		0x4340000000000000: "9007199254740992",
		0xc340000000000000: "-9007199254740992",
		0x4430000000000000: "295147905179352830000",
		0x44b52d02c7e14af5: "9.999999999999997e+22",
		0x44b52d02c7e14af6: "1e+23",
		0x44b52d02c7e14af7: "1.0000000000000001e+23",
		0x444b1ae4d6e2ef4e: "999999999999999700000",
		0x444b1ae4d6e2ef4f: "999999999999999900000",
		0x444b1ae4d6e2ef50: "1e+21",
		0x3eb0c6f7a0b5ed8c: "9.999999999999997e-7",
		0x3eb0c6f7a0b5ed8d: "0.000001",
		0x41b3de4355555553: "333333333.3333332",
		0x41b3de4355555554: "333333333.33333325",
		0x41b3de4355555555: "333333333.3333333",
		0x41b3de4355555556: "333333333.3333334",
		0x41b3de4355555557: "333333333.33333343",
		0xbecbf647612f3696: "-0.0000033333333333333333",
		0x43143ff3c1cb0959: "1424953923781206.2",
	} {
		f := math.Float64frombits(bits)
		for _, in := range []string{want, strconv.FormatFloat(f, 'e', -1, 64), strconv.FormatFloat(f, 'f', -1, 64)} {
			got, err := Canonical([]byte(in))
			if err != nil || string(got) != want {
				t.Errorf("%s: got %s, %v, want %s", in, got, err, want)
			}
		}
	}
}

// Two numbers have one canonical form exactly if they are the same decimal
// number, or at least one of them has none.
func TestCanonicalNeverMergesNumbers(t *testing.T) {
	digits := rapid.StringMatching(`-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,24})?([eE][+-]?[0-9]{1,2})?`)
	rapid.Check(t, func(t *rapid.T) {
		a := digits.Draw(t, "a")
		b := digits.Draw(t, "b")
		if rapid.Bool().Draw(t, "near") {
			// The neighbourhood of a, where rounding merges.
			f, err := strconv.ParseFloat(a, 64)
			if err != nil {
				t.Skip()
			}
			b = strconv.FormatFloat(f, byte(rapid.SampledFrom([]rune("ef")).Draw(t, "verb")), rapid.IntRange(-1, 20).Draw(t, "precision"), 64)
		}
		x, errA := Canonical([]byte(a))
		y, errB := Canonical([]byte(b))
		if errA != nil || errB != nil {
			return
		}
		p, okA := new(big.Rat).SetString(a)
		q, okB := new(big.Rat).SetString(b)
		if !okA || !okB {
			t.Fatalf("%s or %s is no number", a, b)
		}
		if (p.Cmp(q) == 0) != bytes.Equal(x, y) {
			t.Fatalf("%s is %s and %s is %s", a, x, b, y)
		}
		if r, ok := new(big.Rat).SetString(string(x)); !ok || r.Cmp(p) != 0 {
			t.Fatalf("%s became %s", a, x)
		}
	})
}

// drawJSON draws a value as Go data; numbers are their shortest text.
func drawJSON(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return rapid.OneOf(rapid.Float64(), rapid.Map(rapid.Int32(), func(n int32) float64 { return float64(n) })).Draw(t, "number")
	case 3:
		return rapid.String().Draw(t, "text")
	case 4:
		list := make([]any, rapid.IntRange(0, 4).Draw(t, "length"))
		for i := range list {
			list[i] = drawJSON(t, depth-1)
		}
		return list
	default:
		object := make(map[string]any)
		for range rapid.IntRange(0, 5).Draw(t, "length") {
			object[rapid.String().Draw(t, "name")] = drawJSON(t, depth-1)
		}
		return object
	}
}

// writeJSON writes v with drawn white space, member order and spellings.
func writeJSON(t *rapid.T, w *strings.Builder, v any) {
	space := rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r "})
	text := func(s string) {
		w.WriteByte('"')
		for _, r := range s {
			switch {
			case r < ' ' || r == '"' || r == '\\' || r < 0x10000 && rapid.IntRange(0, 5).Draw(t, "escaped") == 0:
				fmt.Fprintf(w, rapid.SampledFrom([]string{`\u%04x`, `\u%04X`}).Draw(t, "case"), r)
			default:
				w.WriteRune(r)
			}
		}
		w.WriteByte('"')
	}
	w.WriteString(space.Draw(t, "space"))
	switch v := v.(type) {
	case nil:
		w.WriteString("null")
	case bool:
		w.WriteString(strconv.FormatBool(v))
	case float64:
		w.WriteString(strconv.FormatFloat(v, byte(rapid.SampledFrom([]rune("efE")).Draw(t, "verb")), -1, 64))
	case string:
		text(v)
	case []any:
		w.WriteByte('[')
		for i, e := range v {
			if i > 0 {
				w.WriteByte(',')
			}
			writeJSON(t, w, e)
		}
		w.WriteByte(']')
	case map[string]any:
		w.WriteByte('{')
		names := slices.Sorted(maps.Keys(v))
		for i, name := range rapid.Permutation(names).Draw(t, "order") {
			if i > 0 {
				w.WriteByte(',')
			}
			w.WriteString(space.Draw(t, "space"))
			text(name)
			w.WriteString(space.Draw(t, "space"))
			w.WriteByte(':')
			writeJSON(t, w, v[name])
		}
		w.WriteByte('}')
	}
	w.WriteString(space.Draw(t, "space"))
}

// However a value is written, its canonical form and hash are the same; another
// value has another.
func TestCanonicalIsOneForm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := drawJSON(t, 3)
		var one, two, three strings.Builder
		writeJSON(t, &one, v)
		writeJSON(t, &two, v)
		a, err := Canonical([]byte(one.String()))
		if err != nil {
			t.Fatalf("%s: %v", one.String(), err)
		}
		hashA, _ := CanonicalHash([]byte(one.String()))
		hashB, err := CanonicalHash([]byte(two.String()))
		if err != nil || hashA != hashB {
			t.Fatalf("%s and %s differ: %v", one.String(), two.String(), err)
		}
		again, err := Canonical(a)
		if err != nil || !bytes.Equal(a, again) {
			t.Fatalf("%s became %s, %v", a, again, err)
		}
		// Equal under JSON: what json decodes either to is equal, -0 aside.
		other := drawJSON(t, 3)
		writeJSON(t, &three, other)
		c, err := Canonical([]byte(three.String()))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Equal(a, c) != reflect.DeepEqual(decodeAny(t, a), decodeAny(t, c)) {
			t.Fatalf("%s and %s", a, c)
		}
	})
}

func decodeAny(t *rapid.T, data []byte) (v any) {
	if err := json.Unmarshal(data, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCanonicalLeavesItsInputAlone(t *testing.T) {
	in := []byte(` {"b":1.0,"a":2} `)
	if _, err := Canonical(in); err != nil || string(in) != ` {"b":1.0,"a":2} ` {
		t.Errorf("input became %s, %v", in, err)
	}
}

// A canonical form is canonical, and the same value as its input.
func FuzzCanonical(f *testing.F) {
	seedsOfStrict(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		form, err := Canonical(data)
		if err != nil {
			var refused *StrictError
			if !errors.As(err, &refused) {
				t.Fatalf("refused with %#v", err)
			}
			return
		}
		again, err := Canonical(form)
		if err != nil || !bytes.Equal(form, again) {
			t.Fatalf("%s became %s, %v", form, again, err)
		}
		if got, want := leaves(t, form), leaves(t, data); !maps.Equal(got, want) {
			t.Fatalf("%v became %v", want, got)
		}
	})
}

func BenchmarkCanonicalHash(b *testing.B) {
	data := []byte(cloudEventBody)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := CanonicalHash(data); err != nil {
			b.Fatal(err)
		}
	}
}
