package events

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"
)

// scannedKind is a kind with both ways of reading its payload.
type scannedKind struct {
	kind   Kind
	quick  func([]byte) (Event, bool)
	decode decodeFunc
	zero   Event
}

func scannedKindOf[E Event](scan func(*payloadScanner) E) scannedKind {
	kind, decode := decoder[E]()
	var zero E
	return scannedKind{kind: kind, decode: decode, zero: zero, quick: func(b []byte) (Event, bool) { return scanPayload(b, scan) }}
}

var scannedKinds = []scannedKind{
	scannedKindOf(scanTaskSubmitted), scannedKindOf(scanTaskOpened), scannedKindOf(scanTaskClaimed), scannedKindOf(scanTaskReported),
	scannedKindOf(scanTaskSettled), scannedKindOf(scanMemoryRecorded), scannedKindOf(scanGateDecided), scannedKindOf(scanExt),
}

func (k scannedKind) encode(t testing.TB, e any) []byte {
	b, err := Encode(e.(Event))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// filled is an event with something in every field that the scan takes.
func (k scannedKind) filled() any {
	e := reflect.New(reflect.TypeOf(k.zero)).Elem()
	fill(e, "some text")
	switch x := e.Addr().Interface().(type) {
	case *TaskSubmitted:
		x.Command.Env = nil
	case *Ext:
		x.Extensions = nil
	case *MemoryRecorded:
		x.Record.Conclusion = nil
	}
	return e.Interface()
}

// check compares what the two ways make of b, and reports whether the quick one takes it.
func (k scannedKind) check(t testing.TB, b []byte) bool {
	e, quick := k.quick(b)
	if !quick {
		return false
	}
	if want, err := k.decode(b); err != nil || !reflect.DeepEqual(e, want) {
		t.Fatalf("%s: %q is read as\n%#v, by the JSON decoder as\n%#v, %v", k.kind, b, e, want, err)
	}
	return true
}

// Whatever Encode writes is read the quick way.
func TestPayloadScan(t *testing.T) {
	for _, k := range scannedKinds {
		for _, e := range []any{k.zero, k.filled()} {
			if b := k.encode(t, e); !k.check(t, b) {
				t.Errorf("%s: %s is not read the quick way", k.kind, b)
			}
		}
	}
	code, tail := -3, "naïve \"quotes\"\n\ttab \u2028 \x01 </script> 😀"
	reported := TaskReported{Machine: "m1", Attempt: 2, Envelope: Envelope{
		Outcome: Exited, ExitCode: &code, StartedAt: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), EndedAt: time.Date(2026, 3, 1, 12, 0, 0, 1000, time.UTC),
		ElapsedMS: -1, Stdout: Output{Bytes: 1 << 40, SHA256: SumHash(tail), Tail: tail},
	}}
	if b, k := scannedKinds[3].encode(t, reported), scannedKinds[3]; !k.check(t, b) {
		t.Errorf("%s is not read the quick way", b)
	}
	// The decoder reads what the scans leave to it.
	full := TaskSubmitted{TaskID: "t", Command: TaskCommand{Argv: []string{"a"}, Targets: []string{"m"}, Env: map[string]string{"A": "b"}}, Gates: []LegGate{}}
	b := scannedKinds[0].encode(t, full)
	if e, err := Decode(Record{Header: Header{Intent: Intent{Type: full.Kind(), Schema: Schema}}, Payload: b}); err != nil || !reflect.DeepEqual(e, full) {
		t.Errorf("%s is decoded as %+v, %v", b, e, err)
	}
}

// Nothing is read otherwise than by the JSON decoder, and nothing that it refuses is read.
func TestPayloadScanTakesNoMore(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const bytes = "{}[]\",:\\ \n-+.0123456789eEtrufalsn\x00\x1f\x7f\x80\xc3\xa9\xff"
	taken := 0
	for _, k := range scannedKinds {
		seeds := [][]byte{k.encode(t, k.zero), k.encode(t, k.filled())}
		for range 20_000 {
			b := append([]byte(nil), seeds[random.IntN(len(seeds))]...)
			for range 1 + random.IntN(3) {
				i, c := random.IntN(len(b)), bytes[random.IntN(len(bytes))]
				switch random.IntN(4) {
				case 0:
					b[i] = c
				case 1:
					b = append(b[:i], append([]byte{c}, b[i:]...)...)
				case 2:
					if b = append(b[:i], b[i+1:]...); len(b) == 0 {
						b = []byte{c}
					}
				case 3: // some of it once more
					b = append(b[:i:i], b[random.IntN(i+1):]...)
				}
			}
			if k.check(t, b) {
				taken++
			}
		}
	}
	if taken < 1000 {
		t.Errorf("only %d of the changed payloads are read the quick way: what is compared?", taken)
	}
}

func FuzzPayloadScan(f *testing.F) {
	for i, k := range scannedKinds {
		f.Add(i, k.encode(f, k.zero))
		f.Add(i, k.encode(f, k.filled()))
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		if i >= 0 && i < len(scannedKinds) {
			scannedKinds[i].check(t, b)
		}
	})
}

func BenchmarkDecode(b *testing.B) {
	for _, k := range scannedKinds {
		payload := k.encode(b, k.filled())
		for name, decode := range map[string]decodeFunc{"quick": kinds.decode[k.kind], "json": k.decode} {
			b.Run(fmt.Sprintf("%s/%s", k.kind, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if _, err := decode(payload); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
