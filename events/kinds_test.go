package events

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

var update = flag.Bool("update", false, "write golden files that are missing")

// fill sets every field of v to a value that differs from its zero, the same at
// each run, so that a field that is dropped or renamed shows.
func fill(v reflect.Value, name string) {
	switch v.Interface().(type) {
	case time.Time:
		v.Set(reflect.ValueOf(time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)))
		return
	case jsontext.Value:
		v.Set(reflect.ValueOf(jsontext.Value(`{"any":["thing",1]}`)))
		return
	case Hash:
		v.Set(reflect.ValueOf(SumHash(name)))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		fill(p.Elem(), name)
		v.Set(p)
	case reflect.Slice:
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, name)
		v.Set(reflect.Append(v, e))
	case reflect.Map:
		m := reflect.MakeMap(v.Type())
		e := reflect.New(v.Type().Elem()).Elem()
		fill(e, name)
		m.SetMapIndex(reflect.ValueOf("k"), e)
		v.Set(m)
	case reflect.String:
		v.SetString(name)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int64:
		v.SetInt(7)
	case reflect.Uint64:
		v.SetUint(9)
	default:
		panic("bug: no filling for " + v.Type().String())
	}
}

// TestGolden holds each kind to the shape it was first written with. A golden
// file is a promise: it is added with its kind and never edited.
func TestGolden(t *testing.T) {
	for _, k := range append(Kinds(), extKind) {
		t.Run(string(k), func(t *testing.T) {
			e := reflect.New(reflect.TypeOf(Zero(k))).Elem()
			fill(e, string(k))
			got, err := Encode(e.Interface().(Event))
			if err != nil {
				t.Fatal(err)
			}
			pretty := jsontext.Value(bytes.Clone(got))
			if err := pretty.Indent(); err != nil {
				t.Fatal(err)
			}
			pretty = append(pretty, '\n')
			file := filepath.Join("testdata", "golden", string(k)+".json")
			want, err := os.ReadFile(file)
			if os.IsNotExist(err) && *update {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, pretty, 0o644); err != nil {
					t.Fatal(err)
				}
				want = pretty
			} else if err != nil {
				t.Fatalf("%v: run go test ./events -run Golden -update for a new kind", err)
			}
			if !bytes.Equal(want, pretty) {
				t.Errorf("the shape of %s changed:\n got %s\nwant %s", k, pretty, want)
			}
			back, err := Decode(Record{Header: Header{Intent: Intent{Type: k, Schema: Schema}}, Payload: want})
			if err != nil {
				t.Fatal(err)
			}
			again, err := Encode(back)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, got) {
				t.Errorf("decoded and encoded again:\n got %s\nwant %s", again, got)
			}
		})
	}
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		k := Kind(filepath.Base(f[:len(f)-len(".json")]))
		if !Known(k) && k != extKind {
			t.Errorf("%s: no kind of this name is declared any more", f)
		}
	}
}

func TestDecodeRefuses(t *testing.T) {
	rec := func(k Kind, schema int, payload string) Record {
		return Record{Header: Header{Intent: Intent{Type: k, Schema: schema}, Place: Place{Position: 3}}, Payload: []byte(payload)}
	}
	erased := rec("task.opened", Schema, "")
	erased.Payload, erased.Erased = nil, true
	for name, r := range map[string]Record{
		"unknown kind":   rec("task.paused", Schema, `{}`),
		"erased":         erased,
		"newer schema":   rec("task.opened", Schema+1, `{}`),
		"unknown member": rec("task.opened", Schema, `{"colour":"red"}`),
		"duplicate name": rec("task.opened", Schema, `{"approval_id":"a","approval_id":"b"}`),
		"not JSON":       rec("task.opened", Schema, `{`),
	} {
		if e, err := Decode(r); err == nil {
			t.Errorf("%s: decoded as %+v", name, e)
		}
	}
}

// A rule that an older program wrote decodes to one that is malformed, never to
// one that allows more, and never to an error that stops a replay.
func TestRuleDecodesLeniently(t *testing.T) {
	level := func(n Level) *Level { return &n }
	for _, c := range []struct {
		in   string
		want Rule
	}{
		{`{"action":"a","min_level":50}`, Rule{Action: "a", MinLevel: level(50)}},
		{`{"action":"a"}`, Rule{Action: "a"}},
		{`{"action":"a","min_level":null}`, Rule{Action: "a", MinLevel: level(Unusable)}},
		{`{"action":"a","min_level":50.5}`, Rule{Action: "a", MinLevel: level(Unusable)}},
		{`{"action":"a","min_level":"50"}`, Rule{Action: "a", MinLevel: level(Unusable)}},
		{`{"action":"a","min_level":5e1}`, Rule{Action: "a", MinLevel: level(Unusable)}},
		{`{"action":"a","min_level":-0}`, Rule{Action: "a", MinLevel: level(Unusable)}},
		{`{"action":"a","min_level":50,"matching_exempt_level":null}`, Rule{Action: "a", MinLevel: level(50)}},
		{`{"action":"a","min_level":50,"matching_exempt_level":101}`, Rule{Action: "a", MinLevel: level(50), MatchingExemptLevel: level(Unusable)}},
		{`{"action":7,"min_level":50}`, Rule{MinLevel: level(50)}},
		{`[]`, Rule{}},
	} {
		var got Rule
		if err := json.Unmarshal([]byte(c.in), &got); err != nil {
			t.Errorf("%s: %v", c.in, err)
		} else if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: got %+v, want %+v", c.in, got, c.want)
		}
	}
}

func TestParseLevel(t *testing.T) {
	for token, want := range map[string]Level{
		"0": 0, "49": 49, "50": 50, "100": 100,
		"101": Unusable, "-1": Unusable, "-0": Unusable, "50.5": Unusable, "50.0": Unusable, "5e1": Unusable,
		`"50"`: Unusable, "null": Unusable, "true": Unusable, "": Unusable, "007": Unusable, "00": Unusable, "+5": Unusable, "256": Unusable, "356": Unusable,
	} {
		got, ok := ParseLevel([]byte(token))
		if got != want || ok != (want != Unusable) {
			t.Errorf("%s: got %d %v, want %d", token, got, ok, want)
		}
	}
}
