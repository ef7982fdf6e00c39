package events

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type strictEmbedded struct {
	ID string `json:"id"`
}

// strictEven decodes itself and takes even integers only.
type strictEven int

func (e *strictEven) UnmarshalJSON(b []byte) error {
	n, err := strconv.Atoi(string(b))
	if err != nil || n%2 != 0 {
		return fmt.Errorf("not even:\n%s", b)
	}
	*e = strictEven(n)
	return nil
}

// strictPair decodes itself from a decoder, and its error has a path.
type strictPair struct{ A, B int }

func (p *strictPair) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	var list [2]int
	if err := json.UnmarshalDecode(dec, &list); err != nil {
		return err
	}
	*p = strictPair{list[0], list[1]}
	return nil
}

func (p strictPair) MarshalJSONTo(enc *jsontext.Encoder) error {
	return json.MarshalEncode(enc, [2]int{p.A, p.B})
}

type strictNode struct {
	Name string        `json:"name"`
	Next *strictNode   `json:"next,omitzero"`
	Kids []*strictNode `json:"kids,omitzero"`
}

// strictSample has a field of every sort.
type strictSample struct {
	strictEmbedded
	Exit   *int              `json:"exit"`
	Small  int8              `json:"small,omitzero"`
	Tiny   uint8             `json:"tiny,omitzero"`
	Wide   int64             `json:"wide,omitzero"`
	Size   uint64            `json:"size,omitempty"`
	Float  float64           `json:"float,omitzero"`
	Flag   bool              `json:"flag,omitzero"`
	At     time.Time         `json:"started_at,omitzero"`
	Hash   Hash              `json:"hash,omitzero"`
	Bytes  []byte            `json:"bytes,omitzero"`
	Tags   []string          `json:"tags,omitzero"`
	Env    map[string]string `json:"env,omitzero"`
	Tree   strictNode        `json:"tree,omitzero"`
	Level  Level             `json:"level,omitzero"`
	Rules  []Rule            `json:"rules,omitzero"`
	Even   strictEven        `json:"even,omitzero"`
	Pair   strictPair        `json:"pair,omitzero"`
	Raw    jsontext.Value    `json:"raw,omitzero"`
	Any    any               `json:"any,omitzero"`
	Hidden int               `json:"-"`
	Plain  string            `json:",omitzero"`
}

func nested(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }

// with is a strictSample that is right but for what is added.
func with(more string) string { return `{"id":"a","exit":0,` + more + `}` }

func TestDecodeStrictRefuses(t *testing.T) {
	const malformed, wellFormed = true, false
	type want = []string // path and code of each problem
	tests := []struct {
		name, in  string
		malformed bool
		want      want
	}{
		{"an empty text", ``, malformed, want{" TRUNCATED"}},
		{"only white space", " \n", malformed, want{" TRUNCATED"}},
		{"truncated after a name", `{"id"`, malformed, want{" TRUNCATED"}},
		{"truncated in a name", `{"id":"a","ex`, malformed, want{" TRUNCATED"}},
		{"truncated after a colon", `{"id":"a","exit":`, malformed, want{"/exit TRUNCATED"}},
		{"truncated in a text", `{"id":"a`, malformed, want{"/id TRUNCATED"}},
		{"truncated in an escape", `{"id":"a\`, malformed, want{"/id TRUNCATED"}},
		{"truncated in hexadecimal digits", `{"id":"a\u00`, malformed, want{"/id TRUNCATED"}},
		{"truncated in the second half of a pair", `{"id":"\ud83d\ude`, malformed, want{"/id TRUNCATED"}},
		{"truncated in a number", `{"id":"a","exit":-`, malformed, want{"/exit TRUNCATED"}},
		{"truncated in a fraction", `{"id":"a","exit":1.`, malformed, want{"/exit TRUNCATED"}},
		{"truncated in an exponent", `{"id":"a","exit":1e+`, malformed, want{"/exit TRUNCATED"}},
		{"truncated in a word", `{"id":"a","exit":nul`, malformed, want{"/exit TRUNCATED"}},
		{"truncated in an array", `{"id":"a","tags":["x",`, malformed, want{"/tags/1 TRUNCATED"}},
		{"truncated after an element", `{"id":"a","tags":["x"`, malformed, want{"/tags TRUNCATED"}},
		{"truncated after a comma", `{"id":"a",`, malformed, want{" TRUNCATED"}},
		{"truncated before the last brace", `{"id":"a","exit":0`, malformed, want{" TRUNCATED"}},

		{"not JSON", `hello`, malformed, want{" SYNTAX"}},
		{"a byte order mark", "\ufeff{}", malformed, want{" SYNTAX"}},
		{"a name without quotes", `{id:"a"}`, malformed, want{" SYNTAX"}},
		{"single quotes", `{"id":'a'}`, malformed, want{"/id SYNTAX"}},
		{"a comma too many in an object", `{"id":"a","exit":0,}`, malformed, want{" SYNTAX"}},
		{"a comma too many in an array", with(`"tags":["x",]`), malformed, want{"/tags/1 SYNTAX"}},
		{"no comma in an array", with(`"tags":["x" "y"]`), malformed, want{"/tags SYNTAX"}},
		{"no comma in an object", `{"id":"a" "exit":0}`, malformed, want{" SYNTAX"}},
		{"no colon", `{"id" "a"}`, malformed, want{" SYNTAX"}},
		{"a comment", `{"id":"a",/**/"exit":0}`, malformed, want{" SYNTAX"}},
		{"a capital literal", with(`"flag":True`), malformed, want{"/flag SYNTAX"}},
		{"a broken literal", with(`"flag":trux`), malformed, want{"/flag SYNTAX"}},
		{"NaN", with(`"float":NaN`), malformed, want{"/float SYNTAX"}},
		{"a leading zero", with(`"small":01`), malformed, want{"/small SYNTAX"}},
		{"a leading plus", with(`"small":+1`), malformed, want{"/small SYNTAX"}},
		{"no digit after the point", with(`"float":1.e5`), malformed, want{"/float SYNTAX"}},
		{"no digit in the exponent", with(`"float":1ex`), malformed, want{"/float SYNTAX"}},
		{"a raw control character", "{\"id\":\"a\nb\"}", malformed, want{"/id SYNTAX"}},
		{"an unknown escape", `{"id":"\x41"}`, malformed, want{"/id SYNTAX"}},
		{"a bad hexadecimal digit", `{"id":"\u00g0"}`, malformed, want{"/id SYNTAX"}},

		{"a second value", `{"id":"a","exit":0}{}`, malformed, want{" TRAILING_DATA"}},
		{"a NUL after the value", "{\"id\":\"a\",\"exit\":0}\x00", malformed, want{" TRAILING_DATA"}},

		{"invalid UTF-8 in a text", "{\"id\":\"\xff\",\"exit\":0}", malformed, want{"/id INVALID_UTF8"}},
		{"invalid UTF-8 in a name", with("\"\xc0\xaf\":1"), malformed, want{" INVALID_UTF8"}},
		{"invalid UTF-8 kept verbatim", with("\"raw\":[\"\xed\xa0\x80\"]"), malformed, want{"/raw/0 INVALID_UTF8"}},
		{"the first half of a pair alone", with(`"raw":"\ud83dx"`), malformed, want{"/raw INVALID_UTF8"}},
		{"the first half of a pair and another escape", with(`"raw":"\ud83d\n"`), malformed, want{"/raw INVALID_UTF8"}},
		{"two first halves", with(`"raw":"\ud83d\ud83d"`), malformed, want{"/raw INVALID_UTF8"}},
		{"the second half of a pair alone", with(`"raw":"\ude00"`), malformed, want{"/raw INVALID_UTF8"}},
		{"two second halves", with(`"raw":"\udc00\udc00"`), malformed, want{"/raw INVALID_UTF8"}},
		{"a first half and a character above the second ones", with(`"raw":"\ud83d\ue000"`), malformed, want{"/raw INVALID_UTF8"}},
		{"half a pair in a name", with(`"\ud83d":1`), malformed, want{" INVALID_UTF8"}},

		{"a duplicate field", `{"id":"a","exit":0,"id":"b"}`, malformed, want{"/id DUPLICATE_NAME"}},
		{"a duplicate behind an escape", `{"id":"a","exit":0,"\u0069d":"b"}`, malformed, want{"/id DUPLICATE_NAME"}},
		{"a duplicate key", with(`"env":{"A":"1","B":"2","A":"3"}`), malformed, want{"/env/A DUPLICATE_NAME"}},
		{"a duplicate kept verbatim", with(`"raw":[{"x":{"":1,"":2}}]`), malformed, want{"/raw/0/x/ DUPLICATE_NAME"}},
		{"a duplicate in any", with(`"any":{"/":1,"~":2,"\/":3}`), malformed, want{"/any/~1 DUPLICATE_NAME"}},
		{"a duplicate of an unknown name", with(`"x":1,"x":2`), malformed, want{"/x UNKNOWN_FIELD", "/x DUPLICATE_NAME"}},

		{"an unknown field", with(`"identity":1`), wellFormed, want{"/identity UNKNOWN_FIELD"}},
		{"a field that is not for JSON", with(`"Hidden":1`), wellFormed, want{"/Hidden UNKNOWN_FIELD"}},
		{"an unknown field deep inside", with(`"tree":{"name":"a","kids":[{"name":"b","age":1}]}`), wellFormed, want{"/tree/kids/0/age UNKNOWN_FIELD"}},
		{"an unknown field of a rule", with(`"rules":[{"action":"a","min_level":1,"level":2}]`), wellFormed, want{"/rules/0/level UNKNOWN_FIELD"}},
		{"a case variant", `{"ID":"a","exit":0}`, wellFormed, want{"/ID CASE_VARIANT", "/id REQUIRED"}},
		{"a case variant outside ASCII", with(`"ta\u0067\u017f":[]`), wellFormed, want{"/tagſ CASE_VARIANT"}},
		{"a case variant beside its field", with(`"Exit":1`), wellFormed, want{"/Exit CASE_VARIANT"}},

		{"a missing field", `{"id":"a"}`, wellFormed, want{"/exit REQUIRED"}},
		{"no field at all", `{}`, wellFormed, want{"/id REQUIRED", "/exit REQUIRED"}},
		{"a missing field deep inside", with(`"tree":{"name":"a","next":{}}`), wellFormed, want{"/tree/next/name REQUIRED"}},

		{"null for everything", `null`, wellFormed, want{" NULL_NOT_ALLOWED"}},
		{"null for a text", `{"id":null,"exit":0}`, wellFormed, want{"/id NULL_NOT_ALLOWED"}},
		{"null for an optional field", with(`"small":null`), wellFormed, want{"/small NULL_NOT_ALLOWED"}},
		{"null for a level", with(`"level":null`), wellFormed, want{"/level NULL_NOT_ALLOWED"}},
		{"null for an array", with(`"tags":null`), wellFormed, want{"/tags NULL_NOT_ALLOWED"}},
		{"null in an array", with(`"tags":["a",null]`), wellFormed, want{"/tags/1 NULL_NOT_ALLOWED"}},
		{"null in a map", with(`"env":{"A":null}`), wellFormed, want{"/env/A NULL_NOT_ALLOWED"}},
		{"null for a type that decodes itself", with(`"even":null,"hash":null,"started_at":null`), wellFormed,
			want{"/even NULL_NOT_ALLOWED", "/hash NULL_NOT_ALLOWED", "/started_at NULL_NOT_ALLOWED"}},

		{"an array for an object", `[]`, wellFormed, want{" WRONG_TYPE"}},
		{"an object for an array", with(`"tags":{}`), wellFormed, want{"/tags WRONG_TYPE"}},
		{"a text for a boolean", with(`"flag":"true"`), wellFormed, want{"/flag WRONG_TYPE"}},
		{"a number for a text", `{"id":7,"exit":0}`, wellFormed, want{"/id WRONG_TYPE"}},
		{"a boolean for an integer", `{"id":"a","exit":true}`, wellFormed, want{"/exit WRONG_TYPE"}},
		{"a text for an integer", with(`"small":"many"`), wellFormed, want{"/small WRONG_TYPE"}},
		{"a text for a float", with(`"float":"1"`), wellFormed, want{"/float WRONG_TYPE"}},
		{"a number for a time", with(`"started_at":1`), wellFormed, want{"/started_at WRONG_TYPE"}},
		{"a number for a hash", with(`"hash":1`), wellFormed, want{"/hash WRONG_TYPE"}},
		{"an array of numbers for bytes", with(`"bytes":[1]`), wellFormed, want{"/bytes WRONG_TYPE"}},
		{"a wrong type is still read through", with(`"flag":[{"a":1,"a":2}]`), malformed, want{"/flag WRONG_TYPE", "/flag/0/a DUPLICATE_NAME"}},

		{"a fraction", with(`"small":50.5`), wellFormed, want{"/small NOT_AN_INTEGER"}},
		{"a fraction of zero", with(`"small":50.0`), wellFormed, want{"/small NOT_AN_INTEGER"}},
		{"an exponent", with(`"small":5e1`), wellFormed, want{"/small NOT_AN_INTEGER"}},
		{"an integer in quotes", with(`"small":"50"`), wellFormed, want{"/small NOT_AN_INTEGER"}},
		{"minus zero", with(`"small":-0`), wellFormed, want{"/small NOT_AN_INTEGER"}},
		{"a level in quotes", with(`"level":"60"`), wellFormed, want{"/level NOT_AN_INTEGER"}},
		{"a level with a fraction", with(`"level":50.5`), wellFormed, want{"/level NOT_AN_INTEGER"}},
		{"levels of a rule", with(`"rules":[{"action":"a","min_level":5e1,"matching_exempt_level":101}]`), wellFormed,
			want{"/rules/0/min_level NOT_AN_INTEGER", "/rules/0/matching_exempt_level OUT_OF_RANGE"}},

		{"above the range", with(`"small":128`), wellFormed, want{"/small OUT_OF_RANGE"}},
		{"below the range", with(`"small":-129`), wellFormed, want{"/small OUT_OF_RANGE"}},
		{"above int64", with(`"wide":9223372036854775808`), wellFormed, want{"/wide OUT_OF_RANGE"}},
		{"below int64", with(`"wide":-9223372036854775809`), wellFormed, want{"/wide OUT_OF_RANGE"}},
		{"above uint64", with(`"size":18446744073709551616`), wellFormed, want{"/size OUT_OF_RANGE"}},
		{"above uint8", with(`"tiny":256`), wellFormed, want{"/tiny OUT_OF_RANGE"}},
		{"below zero", with(`"size":-1`), wellFormed, want{"/size OUT_OF_RANGE"}},
		{"far above", with(`"size":1` + strings.Repeat("0", 1000)), wellFormed, want{"/size OUT_OF_RANGE"}},
		{"a level above 100", with(`"level":101`), wellFormed, want{"/level OUT_OF_RANGE"}},
		{"a level below 0", with(`"level":-1`), wellFormed, want{"/level OUT_OF_RANGE"}},
		{"beyond a float", with(`"float":1e400`), wellFormed, want{"/float OUT_OF_RANGE"}},
		{"beyond a float in any", with(`"any":[-1e400]`), wellFormed, want{"/any/0 OUT_OF_RANGE"}},
		{"an integer that a float rounds", with(`"float":9007199254740993`), wellFormed, want{"/float OUT_OF_RANGE"}},
		{"an integer that any rounds", with(`"any":{"n":9007199254740993}`), wellFormed, want{"/any/n OUT_OF_RANGE"}},

		{"too deep", with(`"raw":` + nested(64)), wellFormed, want{"/raw" + strings.Repeat("/0", 63) + " TOO_DEEP"}},
		{"objects too deep", strings.Repeat(`{"tree":`, 65), wellFormed, want{"/tree/tree UNKNOWN_FIELD", strings.Repeat("/tree", 64) + " TOO_DEEP"}},
		{"far too deep", strings.Repeat("[", 1_000_000), wellFormed, want{" WRONG_TYPE", strings.Repeat("/0", 64) + " TOO_DEEP"}},

		{"a time that is none", with(`"started_at":"yesterday"`), wellFormed, want{"/started_at INVALID"}},
		{"a hash that is none", with(`"hash":"abc"`), wellFormed, want{"/hash INVALID"}},
		{"bytes not in base 64", with(`"bytes":"!"`), wellFormed, want{"/bytes INVALID"}},
		{"refused by the type", with(`"even":3`), wellFormed, want{"/even INVALID"}},
		{"refused inside by the type", with(`"pair":[1,"2"]`), wellFormed, want{"/pair/1 INVALID"}},

		{"a type that decodes itself is asked once, about the whole", with(`"pair":{"a":[1,2]},"even":[[3]]`), wellFormed, want{"/pair INVALID", "/even INVALID"}},

		{"everything at once", `{"Id":1,"exit":"5","flag":null,"env":{"A":1},"hash":"x","even":1,"what":{}}`, wellFormed, want{
			"/Id CASE_VARIANT", "/exit NOT_AN_INTEGER", "/flag NULL_NOT_ALLOWED", "/env/A WRONG_TYPE",
			"/hash INVALID", "/even INVALID", "/what UNKNOWN_FIELD", "/id REQUIRED"}},
		{"problems before a syntax error", `{"id":1,"exit":2,"exit":3,]`, malformed, want{"/id WRONG_TYPE", "/exit DUPLICATE_NAME", " SYNTAX"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var v strictSample
			err := DecodeStrict([]byte(tt.in), &v)
			var refused *StrictError
			if !errors.As(err, &refused) {
				t.Fatalf("got %v, want a *StrictError", err)
			}
			var got []string
			for _, p := range refused.Problems {
				got = append(got, p.Path+" "+p.Code)
				if p.Detail == "" || strings.Contains(p.Detail, "\n") || !utf8.ValidString(p.Detail) {
					t.Errorf("detail of %s is %q", p.Code, p.Detail)
				}
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q\nwant %q\n%v", got, tt.want, refused)
			}
			if refused.Malformed != tt.malformed {
				t.Errorf("malformed is %t, want %t", refused.Malformed, tt.malformed)
			}
		})
	}
}

func TestDecodeStrictAccepts(t *testing.T) {
	exit := func(n int) *int { return &n }
	base := func(change func(*strictSample)) strictSample {
		v := strictSample{strictEmbedded: strictEmbedded{"a"}, Exit: exit(0)}
		change(&v)
		return v
	}
	level := func(l Level) *Level { return &l }
	tests := []struct {
		name, in string
		want     strictSample
	}{
		{"white space around", " \r\n\t" + `{ "id" : "a" , "exit" : 0 }` + "\n", base(func(*strictSample) {})},
		{"null for a pointer", `{"id":"a","exit":null}`, base(func(v *strictSample) { v.Exit = nil })},
		{"any order", `{"exit":-7,"id":"a"}`, base(func(v *strictSample) { v.Exit = exit(-7) })},
		{"escapes", `{"id":"\u0061","ex\u0069t":0,"Plain":"\u0000\"\\\/\b\f\n\r\t\uD83D\uDE00é"}`, base(func(v *strictSample) { v.Plain = "\x00\"\\/\b\f\n\r\t😀é" })},
		{"the ends of the ranges", with(`"small":-128,"wide":-9223372036854775808,"size":18446744073709551615`), base(func(v *strictSample) {
			v.Small, v.Wide, v.Size = -128, math.MinInt64, math.MaxUint64
		})},
		{"floats", with(`"float":-1.5e-3,"any":[1e300,0.1,9007199254740992,-0]`), base(func(v *strictSample) {
			v.Float, v.Any = -1.5e-3, []any{1e300, 0.1, 9007199254740992.0, math.Copysign(0, -1)}
		})},
		{"verbatim", with(`"raw": {"b":1.50, "a":[null,9007199254740993,1e999]}`), base(func(v *strictSample) {
			v.Raw = jsontext.Value(`{"b":1.50, "a":[null,9007199254740993,1e999]}`)
		})},
		{"null verbatim and in any", with(`"raw":null,"any":null`), base(func(v *strictSample) { v.Raw = jsontext.Value(`null`) })},
		{"as deep as allowed", with(`"raw":` + nested(63)), base(func(v *strictSample) { v.Raw = jsontext.Value(nested(63)) })},
		{"types that decode themselves", with(`"hash":"` + strings.Repeat("0a", 32) + `","even":4,"pair":[1,2],"bytes":"AQI=","started_at":"2026-03-01T10:42:07.123456Z"`), base(func(v *strictSample) {
			v.Hash, v.Even, v.Pair, v.Bytes = Hash(bytes.Repeat([]byte{10}, 32)), 4, strictPair{1, 2}, []byte{1, 2}
			v.At = time.Date(2026, 3, 1, 10, 42, 7, 123456000, time.UTC)
		})},
		{"levels and rules", with(`"level":100,"rules":[{"action":"a.*","min_level":0,"scope":null}]`), base(func(v *strictSample) {
			v.Level, v.Rules = 100, []Rule{{Action: "a.*", MinLevel: level(0)}}
		})},
		{"maps and lists", with(`"tags":[],"env":{"":"x","A":"a","a":"b"}`), base(func(v *strictSample) {
			v.Tags, v.Env = []string{}, map[string]string{"": "x", "A": "a", "a": "b"}
		})},
		{"a type that holds itself", with(`"tree":{"name":"a","next":null,"kids":[null,{"name":"b"}]}`), base(func(v *strictSample) {
			v.Tree = strictNode{Name: "a", Kids: []*strictNode{nil, {Name: "b"}}}
		})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var got strictSample
			if err := DecodeStrict([]byte(tt.in), &got); err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

func TestDecodeStrictNamesTheRightSpelling(t *testing.T) {
	for in, want := range map[string]string{
		with(`"STARTED_AT":"x"`): `/STARTED_AT: the name "STARTED_AT" is written "started_at"`,
		with(`"startedAt":"x"`):  `/startedAt: there is no field "startedAt": did you mean "started_at"?`,
		with(`"zzz":1`):          `/zzz: there is no field "zzz": the fields are id, exit, small, tiny,`,
		with(`"level":101`):      `/level: found 101: an integer from 0 to 100 is expected`,
		with(`"small":-129`):     `/small: found -129: an integer from -128 to 127 is expected`,
		with("\"a\\nb\":1"):      `"/a\nb": there is no field "a\nb"`,
		`{"id":"a","exit":0}{`:   `malformed JSON: byte 19 is '{': the text must end after its one value`,
	} {
		err := DecodeStrict([]byte(in), new(strictSample))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v\nwant %s", in, err, want)
		}
	}
}

func TestDecodeStrictBoundsItsAnswer(t *testing.T) {
	var refused *StrictError
	var in bytes.Buffer
	in.WriteString(`{"id":"a","exit":0,"tags":[`)
	for i := range 1000 {
		fmt.Fprintf(&in, "%d,", i)
	}
	in.WriteString(`"x"],"id":"b"}`)
	if err := DecodeStrict(in.Bytes(), new(strictSample)); !errors.As(err, &refused) {
		t.Fatal(err)
	}
	if len(refused.Problems) != MaxProblems+1 {
		t.Fatalf("%d problems are listed", len(refused.Problems))
	}
	last := refused.Problems[MaxProblems]
	if last.Code != CodeMoreProblems || last.Detail != "951 more problems are not listed" {
		t.Errorf("the last entry is %+v", last)
	}
	if !refused.Malformed {
		t.Error("a duplicate beyond the limit is not counted as malformed")
	}

	in.Reset()
	for i := range 60 {
		fmt.Fprintf(&in, `,"x%d":0`, i)
	}
	err := DecodeStrict([]byte(`{"id":"a","exit":0`+in.String()+`}`), new(strictSample))
	if !errors.As(err, &refused) || refused.Problems[MaxProblems].Detail != "10 more problems are not listed" {
		t.Errorf("60 unknown fields: %v", err)
	}
	if got := err.Error(); strings.Count(got, "there is no field") != 3 || !strings.HasSuffix(got, "; and at least 48 more") {
		t.Errorf("60 unknown fields: %s", got)
	}

	// Long names and values are cut, between characters.
	long := strings.Repeat("é", 100_000)
	err = DecodeStrict([]byte(with(`"x`+long+`":1,"flag":"`+long+`","env":{"`+long+`":{"`+long+`":1}}`)), new(strictSample))
	if !errors.As(err, &refused) || len(refused.Problems) != 3 {
		t.Fatal(err)
	}
	for _, p := range refused.Problems {
		if len(p.Path) > 512 || len(p.Detail) > 300 || strings.Contains(p.Path+p.Detail, "\uFFFD") {
			t.Errorf("%+v", p)
		}
	}
	if !strings.HasSuffix(refused.Problems[0].Path, "é…") {
		t.Errorf("path %q", refused.Problems[0].Path)
	}
}

// Many members are looked up in a map and few one by one: both find what repeats.
func TestDecodeStrictFindsDuplicatesAmongMany(t *testing.T) {
	for n := 1; n <= 3*fewNames; n++ {
		for at := range n {
			var in bytes.Buffer
			for i := range n {
				fmt.Fprintf(&in, `"k%d":{"k":1},`, i)
			}
			text := fmt.Sprintf(`{%s"k%d":2}`, in.String(), at)
			var refused *StrictError
			err := DecodeStrict([]byte(text), new(jsontext.Value))
			if !errors.As(err, &refused) || len(refused.Problems) != 1 || refused.Problems[0].Path != fmt.Sprintf("/k%d", at) {
				t.Fatalf("%d names, the %d. twice: %v", n, at, err)
			}
		}
	}
}

func TestDecodeStrictPanicsForTypesThatNoJSONFits(t *testing.T) {
	type twice struct {
		strictEmbedded
		Other string `json:"id"`
	}
	type quoted struct {
		A int `json:"a,string"`
	}
	type self struct{ *self }
	for _, v := range []any{
		nil, strictSample{}, (*strictSample)(nil), new(chan int), new(float32), new(fmt.Stringer),
		new(map[int]string), new(map[Hash]string), new([2]int), new(time.Duration), new(twice), new(quoted), new(self),
		new(struct{ F func() }), new(struct {
			M map[string]int `json:",embed"`
		}),
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%T is taken", v)
				}
			}()
			_ = DecodeStrict([]byte(`{}`), v)
		}()
	}
}

func TestDecodeStrictConcurrently(t *testing.T) {
	type fresh struct { // a type that no other test has met
		Sample *strictSample `json:"sample"`
		Next   *fresh        `json:"next"`
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				var v fresh
				if err := DecodeStrict([]byte(`{"sample":{"id":"a","exit":1},"next":{"sample":null,"next":null}}`), &v); err != nil || v.Sample.ID != "a" || v.Next == nil {
					t.Errorf("%+v, %v", v, err)
				}
				if err := DecodeStrict([]byte(`{"sample":{"id":"a"},"next":{"sample":null,"next":null}}`), &v); err == nil {
					t.Error("a missing field is not noticed")
				}
			}
		})
	}
	wg.Wait()
}

func seedsOfStrict(f *testing.F) {
	for _, s := range []string{
		cloudEventBody, with(`"raw":{"a":[1,2.5,"x",null,true],"b":{}},"any":{"n":1e2}`), with(`"tree":{"name":"a","kids":[{"name":"b"}]}`),
		with(`"hash":"abc","even":3,"pair":[1],"started_at":"2026-03-01T10:42:07.123456789+02:00"`), with(`"rules":[{"action":"a","min_level":50}],"level":7`),
		`{"id":"\ud83d\ude00\ud83d","exit":-0}`, "{\"id\":\"\xff\"}", `{"a":1,"a":2}`, `[[[[`, `[1,]`, `01`, `-`, `1e5`, `"\u12`, `nul`, ` `, nested(65),
		`{"A":9007199254740993,"B":1e-400}`,
	} {
		f.Add([]byte(s))
	}
}

// Whatever DecodeStrict takes comes back from its own encoding as the same value.
func FuzzDecodeStrict(f *testing.F) {
	seedsOfStrict(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var v strictSample
		err := DecodeStrict(data, &v)
		if err != nil {
			var refused *StrictError
			if !errors.As(err, &refused) || len(refused.Problems) == 0 || len(refused.Problems) > MaxProblems+1 {
				t.Fatalf("refused with %#v", err)
			}
			if _, err := json.Marshal(refused.Problems); err != nil {
				t.Fatalf("the problems are not JSON: %v", err)
			}
			for _, p := range refused.Problems {
				if !strings.HasSuffix(p.Path, "…") && !jsontext.Pointer(p.Path).IsValid() {
					t.Fatalf("%q is no JSON pointer", p.Path)
				}
			}
			return
		}
		first, err := json.Marshal(v, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		var again strictSample
		if err := DecodeStrict(first, &again); err != nil {
			t.Fatalf("%s is taken, its encoding %s is not: %v", data, first, err)
		}
		second, err := json.Marshal(again, json.Deterministic(true))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(first, second) {
			t.Fatalf("%s\nbecame %s", first, second)
		}
	})
}

// What the walk calls JSON is what jsontext calls JSON.
func FuzzDecodeStrictKnowsJSON(f *testing.F) {
	seedsOfStrict(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		var v jsontext.Value
		err := DecodeStrict(data, &v)
		var refused *StrictError
		if errors.As(err, &refused) && !refused.Malformed && refused.Problems[0].Code == CodeTooDeep {
			return
		}
		if want := jsontext.Value(data).IsValid(); (err == nil) != want {
			t.Fatalf("valid is %t, got %v", want, err)
		}
		if refused != nil && !refused.Malformed {
			t.Fatalf("not malformed: %v", err)
		}
		if err == nil && !bytes.Equal(v, bytes.Trim(data, " \t\r\n")) {
			t.Fatalf("%q became %q", data, v)
		}
	})
}

// leaves maps the path of each value to what it is, numbers as exact fractions.
func leaves(t *testing.T, data []byte) map[jsontext.Pointer]string {
	m := make(map[jsontext.Pointer]string)
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	for {
		token, err := dec.ReadToken()
		if err == io.EOF {
			return m
		}
		if err != nil {
			t.Fatal(err)
		}
		value := token.String()
		if token.Kind() == '0' {
			digits, exponent, _ := strings.Cut(strings.ToLower(value), "e")
			minus := ""
			if strings.HasPrefix(exponent, "-") {
				minus = "-"
			}
			exponent = strings.TrimLeft(exponent, "+-0")
			switch {
			case exponent == "", strings.Trim(digits, "-0.") == "":
				value = digits
			case len(exponent) > 4:
				continue // big.Rat would write it out
			default:
				value = digits + "e" + minus + exponent
			}
			r, ok := new(big.Rat).SetString(value)
			if !ok {
				t.Fatalf("%s is no number", value)
			}
			value = r.String()
		}
		m[dec.StackPointer()] += token.Kind().String() + value
	}
}

// cloudEvent has the shape of what an append over HTTP decodes.
type cloudEvent struct {
	SpecVersion string         `json:"specversion"`
	ID          string         `json:"id"`
	Source      string         `json:"source"`
	Type        string         `json:"type"`
	Subject     string         `json:"subject"`
	Time        time.Time      `json:"time,omitzero"`
	ContentType string         `json:"datacontenttype,omitzero"`
	Expected    *int64         `json:"expectedrevision,omitzero"`
	Data        jsontext.Value `json:"data"`
}

const cloudEventBody = `{"specversion":"1.0","id":"0192f3c4-7a31-7d10-9c55-0b3f7b1d2a44","source":"/agents/build-07","type":"ext.build.finished","subject":"ext-build-0192f3c4","time":"2026-03-01T10:42:07.123456Z","datacontenttype":"application/json","expectedrevision":41,"data":{"repo":"fleet/ledger","commit":"9f2c1b7e0a4d5c6b7a8990112233445566778899","outcome":"exited","exit_code":0,"elapsed_ms":48211,"tags":["nightly","linux","amd64"],"stdout":{"bytes":18211,"sha256":"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08","tail":"ok  fleetledger/events 2.1s\nok  fleetledger/gate"},"masked":false}}`

func BenchmarkDecodeStrict(b *testing.B) {
	data := []byte(cloudEventBody)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		var v cloudEvent
		if err := DecodeStrict(data, &v); err != nil {
			b.Fatal(err)
		}
	}
}

// What DecodeStrict costs over json.Unmarshal is the walk.
func BenchmarkDecodeStrictWalk(b *testing.B) {
	data := []byte(cloudEventBody)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	s := shapeOf(reflect.TypeFor[cloudEvent]())
	for b.Loop() {
		if err := strictProblems(data, s, false); err != nil {
			b.Fatal(err)
		}
	}
}
