package events

import (
	"bytes"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"
)

// The fast way of encoding gives the same bytes as the slow one: what is in old logs
// was encoded so, and a repeated request is compared with it.
func TestExtEncode(t *testing.T) {
	text := rapid.OneOf(rapid.Just(""), rapid.String(), rapid.SampledFrom([]string{"/a", "\u2028", "<&>", "\x00\x1f\"\\", "\xff"}))
	value := rapid.SampledFrom([]jsontext.Value{
		nil, {}, []byte(`{}`), []byte(" {\n\"b\" : [1, 2.50 ,-0, 1e400] , \"a\":null } "), []byte(`"\u0041\ud83d\ude00\/<"`), []byte("true"),
		[]byte(`{"a":1,"a":2}`), []byte(`[1`), []byte(`12345678901234567890123`), []byte("\"\xff\""),
	})
	rapid.Check(t, func(t *rapid.T) {
		x := Ext{
			Source: text.Draw(t, "source"), Time: text.Draw(t, "time"), DataContentType: text.Draw(t, "datacontenttype"), DataSchema: text.Draw(t, "dataschema"),
			Data: value.Draw(t, "data"), DataBase64: text.Draw(t, "data_base64"),
			Permit: Permit{Decision: Decision{Verdict: Allow, Action: "ext.a", Actor: "a", Scopes: []string{}, Evaluated: []Evaluated{}}},
		}
		if n := rapid.IntRange(-1, 2).Draw(t, "extensions"); n >= 0 {
			x.Extensions = map[string]jsontext.Value{}
			for _, name := range []string{"b", "a"}[:n] {
				x.Extensions[name] = value.Draw(t, name)
			}
		}
		want, wantErr := Encode(x)
		permit, err := x.Permit.Encode()
		if err != nil {
			t.Fatal(err)
		}
		got, err := x.Encode(permit)
		if (err != nil) != (wantErr != nil) || !bytes.Equal(got, want) {
			t.Fatalf("%+v\nis    %s, %v\nwant %s, %v", x, got, err, want, wantErr)
		}
	})
}

func BenchmarkExtEncode(b *testing.B) {
	x := Ext{Source: "/bench", Time: "2026-01-01T00:00:00Z", DataContentType: "application/json", Data: jsontext.Value(`{"client":1,"text":"` + string(bytes.Repeat([]byte("a"), 300)) + `"}`),
		Permit: Permit{Decision: Decision{Verdict: Allow, Action: "ext.a", Actor: "a", Scopes: []string{}, Evaluated: []Evaluated{{Verdict: Allow, Reason: "level 100 meets 0"}}}}}
	permit, err := x.Permit.Encode()
	if err != nil {
		b.Fatal(err)
	}
	b.Run("fast", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = x.Encode(permit)
		}
	})
	b.Run("slow", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_, _ = Encode(x)
		}
	})
}
