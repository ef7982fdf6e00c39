package relay

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// Events are decoded by hand, and come out as their fields and tags say; what is
// refused is refused alike.
func FuzzDecodeCloudEvents(f *testing.F) {
	for more := range cloudEventForms {
		event := `{"specversion":"1.0","id":"a","source":"/a","type":"ext.a","subject":"ext-a"` + more + "}"
		f.Add([]byte(event))
		f.Add([]byte("[" + event + " , " + event + "]"))
	}
	for _, s := range []string{
		``, `null`, `[]`, `[null]`, `{}`, `[{}]`, `[[]]`, `{"specversion":"1.0","id":"\u0061\"","source":"a\\\\b","type":"ext.a","subject":"ext-a","region":"eu"} `,
		`[{"specversion":"1.0","id":"a","source":"a\\\\b","type":"t","subject":"s"},{"specversion":"1.0","id":"b","source":"a\\b","type":"t","subject":"s","expectedrevision":7}]`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		sent := bytes.Clone(raw)
		got, err := decodeCloudEvent(raw)
		want, wantErr := decodeByFields(sent)
		if !reflect.DeepEqual(err, wantErr) || err == nil && !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nis   %+v, %v\nwant %+v, %v", raw, got, err, want, wantErr)
		}

		list, err := decodeBatch(raw)
		var members []jsontext.Value
		wantErr = events.DecodeStrict(sent, &members)
		wantList := make([]cloudEvent, len(members))
		for i := 0; i < len(members) && wantErr == nil; i++ {
			if wantList[i], wantErr = decodeByFields(members[i]); wantErr != nil {
				strict, _ := errors.AsType[*events.StrictError](wantErr)
				for j := range strict.Problems {
					strict.Problems[j].Path = fmt.Sprintf("/%d%s", i, strict.Problems[j].Path)
				}
			}
		}
		if !reflect.DeepEqual(err, wantErr) || err == nil && !reflect.DeepEqual(list, wantList) {
			t.Errorf("%s\nas a batch is %+v, %v\nwant %+v, %v", raw, list, err, wantList, wantErr)
		}
		if !bytes.Equal(raw, sent) {
			t.Errorf("%q became %q", sent, raw)
		}
	})
}
