package kurrentlog

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"fleetledger/events"
)

func handedAppend(id string, n int) events.Append {
	a := events.Append{Key: events.SumHash("key", id), Request: events.SumHash("request", id),
		Expect: []events.Expectation{{Stream: "s", Revision: 7}, {Stream: "authority", Revision: 0}}}
	for i := range n {
		h := events.SumHash("salt", id)
		a.Drafts = append(a.Drafts, events.NewDraft(events.Intent{ID: id + string(rune('a'+i)), Stream: "s", Type: "ext.test", Schema: 1, Actor: "ana",
			Correlation: "c", Key: a.Key, Request: a.Request}, [events.SaltBytes]byte(h[:]), bytes.Repeat([]byte{'x'}, i*100)))
	}
	return a
}

func requestsOf(appends ...events.Append) (out []*request) {
	for _, a := range appends {
		out = append(out, &request{a: a})
	}
	return out
}

func TestHandedReadsBack(t *testing.T) {
	bare := handedAppend("bare", 1)
	bare.Expect = nil
	want := []events.Append{handedAppend("one", 1), handedAppend("two", 5), bare}
	encoded := encodeHanded(requestsOf(want...))
	got, err := decodeHanded(encoded)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) {
		t.Fatalf("%d appends", len(got))
	}
	for i := range want {
		for k := range want[i].Drafts { // an empty payload reads back as one
			if string(got[i].Drafts[k].Payload) != string(want[i].Drafts[k].Payload) {
				t.Errorf("append %d, draft %d: another payload", i, k)
			}
			got[i].Drafts[k].Payload = want[i].Drafts[k].Payload
		}
		if !reflect.DeepEqual(got[i], want[i]) {
			t.Errorf("append %d: %+v, want %+v", i, got[i], want[i])
		}
	}
	// Nothing that was cut off or has one bit changed is taken for something else.
	for n := range encoded {
		if _, err := decodeHanded(encoded[:n]); !errors.Is(err, errHanded) {
			t.Fatalf("cut off at %d: %v", n, err)
		}
	}
	if _, err := decodeHanded(append(bytes.Clone(encoded), 0)); !errors.Is(err, errHanded) {
		t.Errorf("one byte too many: %v", err)
	}
}

func FuzzDecodeHanded(f *testing.F) {
	f.Add(encodeHanded(requestsOf(handedAppend("one", 1), handedAppend("two", 3))))
	f.Add([]byte{})
	f.Add([]byte{1, 255, 255, 255, 255, 255, 255, 255, 255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		appends, err := decodeHanded(b)
		if err != nil {
			return
		}
		again, err := decodeHanded(encodeHanded(requestsOf(appends...)))
		if err != nil || !reflect.DeepEqual(again, appends) {
			t.Fatalf("what was read does not read back: %v", err)
		}
		for _, a := range appends {
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
