package events

import (
	"reflect"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// strictMembers has fields whose types do not judge their own values.
type strictMembers struct {
	Text string          `json:"text"`
	More string          `json:"more,omitzero"`
	N    *int8           `json:"n,omitzero"`
	Raw  jsontext.Value  `json:"raw,omitzero"`
	Tree *strictMembers  `json:"tree,omitzero"`
	List []strictMembers `json:"list,omitzero"`
}

// set is what whoever scans does: it sets the field of a name, if there is one.
func (m *strictMembers) set(name []byte, value jsontext.Value) bool {
	v := reflect.ValueOf(m).Elem()
	for i := range v.NumField() {
		if tag, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ","); tag == string(name) {
			return json.Unmarshal(value, v.Field(i).Addr().Interface()) == nil
		}
	}
	return false
}

// ScanStrict takes what DecodeStrict takes, nothing else, and hands out what that one
// decodes.
func FuzzScanStrict(f *testing.F) {
	seedsOfStrict(f)
	for _, s := range []string{
		`{"text":"a"}`, `{}`, `{"text":"a","more":null}`, ` { "n" : 12 , "text" : "\u0061\n" , "raw" : null } `, `{"text":"a","raw":{"b":[1 , 2]},"other":1}`, `{"text":"a","Text":"b"}`,
		`{"text":"a","text":"b"}`, `{"text":"a","other":1,"other":2}`, `{"text":"a","n":128}`, `{"text":"a","tree":{"text":"b","list":[{"text":"c"}]}}`, `{"text":"a","tree":{"text":"b","other":1}}`,
		`[]`, `[{"text":"a"},{"text":"b","n":-1}]`, `[{"text":"a"},{}]`, `[{"text":"a"},{"text":"b","other":{}}]`, `[{"text":"a"}] x`, `[[{"text":"a"}]]`, `[{"text":"a","tree":{"text":"b"}},null]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var one, wantOne strictMembers
		took := ScanStrict[strictMembers](data, func(i int, name []byte, value jsontext.Value) bool { return i == 0 && one.set(name, value) })
		if err := DecodeStrict(data, &wantOne); took != (err == nil) || took && !reflect.DeepEqual(one, wantOne) {
			t.Errorf("%s\ntook %t: %+v\nwant %+v, %v", data, took, one, wantOne, err)
		}
		var list, wantList []strictMembers
		took = ScanStrict[[]strictMembers](data, func(i int, name []byte, value jsontext.Value) bool {
			if i == len(list) {
				list = append(list, strictMembers{})
			}
			return i == len(list)-1 && list[i].set(name, value)
		})
		if err := DecodeStrict(data, &wantList); took != (err == nil) || took && len(list)+len(wantList) > 0 && !reflect.DeepEqual(list, wantList) {
			t.Errorf("%s\ntook %t: %+v\nwant %+v, %v", data, took, list, wantList, err)
		}
		// Whatever has no field is handed out, as its bytes are.
		took = ScanStrict[struct{}](data, func(_ int, _ []byte, value jsontext.Value) bool { return value.IsValid() })
		if err := DecodeStrict(data, new(map[string]jsontext.Value)); took != (err == nil) {
			t.Errorf("%s\nas members of no field, took %t; %v", data, took, err)
		}
	})
}
