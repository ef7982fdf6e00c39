package events_test

import (
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

func header() events.Header {
	return events.Header{
		Intent: events.Intent{
			ID: "0192f0c0-0000-7000-8000-000000000001", Stream: events.TaskStream("1"), Type: "task.submitted", Schema: 1,
			Actor: "agent-1", Correlation: "c-1", Key: events.SumHash("key"), Request: events.SumHash("request"),
			Size: 512, Commitment: events.SumHash("payload"),
		},
		Place: events.Place{
			Version: events.FormatVersion, Fleet: "default", Position: 41, Revision: 2,
			Time: time.Date(2026, 3, 1, 12, 0, 0, 120_000, time.UTC), Prev: events.SumHash("prev"),
		},
	}
}

// firstHeader has everything empty that may be.
func firstHeader() events.Header {
	h := header()
	h.Correlation, h.Key, h.Request, h.Prev, h.Revision, h.Size = "", events.Hash{}, events.Hash{}, events.Hash{}, 1, 0
	return h
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, h := range []events.Header{header(), firstHeader()} {
		leaf := h.Encode()
		for _, was := range []events.Header{{}, header(), firstHeader()} {
			if got, quick := events.ScanHeaderAfter(leaf, &was); !quick || got != h {
				t.Errorf("%s is not read the quick way", leaf)
			}
		}
		got, err := events.ParseHeader(leaf)
		if err != nil || got != h {
			t.Errorf("%s came back as %+v, %v", leaf, got, err)
		}
		// The two parts may be encoded at different times.
		if parts := h.Place.AppendTo(h.Intent.AppendTo(nil)); string(parts) != string(leaf) {
			t.Errorf("the parts make %s, the whole makes %s", parts, leaf)
		}
	}
}

// TestParseHeaderRefuses: a header has one spelling.
func TestParseHeaderRefuses(t *testing.T) {
	whole := string(header().Encode())
	for name, leaf := range map[string]string{
		"nothing":             "",
		"null":                "null",
		"a list":              "[]",
		"cut":                 whole[:len(whole)-1],
		"trailing data":       whole + "{}",
		"trailing newline":    whole + "\n",
		"a space":             strings.Replace(whole, `,"size"`, `, "size"`, 1),
		"an escape":           strings.Replace(whole, "agent-1", `\u0061gent-1`, 1),
		"upper-case hash":     strings.Replace(whole, header().Commitment.String(), strings.ToUpper(header().Commitment.String()), 1),
		"a name in capitals":  strings.Replace(whole, `"actor"`, `"Actor"`, 1),
		"a name twice":        strings.Replace(whole, `"size":512`, `"size":512,"size":512`, 1),
		"an unknown name":     strings.Replace(whole, `"size":512`, `"size":512,"more":1`, 1),
		"a missing name":      strings.Replace(whole, `"causation":"",`, "", 1),
		"another order":       strings.Replace(whole, `"id":"0192f0c0-0000-7000-8000-000000000001","stream":"task-1"`, `"stream":"task-1","id":"0192f0c0-0000-7000-8000-000000000001"`, 1),
		"a float":             strings.Replace(whole, `"size":512`, `"size":512.0`, 1),
		"an exponent":         strings.Replace(whole, `"position":41`, `"position":41e0`, 1),
		"a leading zero":      strings.Replace(whole, `"position":41`, `"position":041`, 1),
		"a quoted number":     strings.Replace(whole, `"position":41`, `"position":"41"`, 1),
		"position 0":          strings.Replace(whole, `"position":41`, `"position":0`, 1),
		"another zone":        strings.Replace(whole, "12:00:00.000120Z", "13:00:00.000120+01:00", 1),
		"fewer digits":        strings.Replace(whole, "00.000120Z", "00.00012Z", 1),
		"more digits":         strings.Replace(whole, "00.000120Z", "00.0001200Z", 1),
		"a newer version":     strings.Replace(whole, `"version":1`, `"version":2`, 1),
		"an invalid fleet":    strings.Replace(whole, `"fleet":"default"`, `"fleet":"Default"`, 1),
		"revision 1 and prev": strings.Replace(whole, `"revision":2`, `"revision":1`, 1),
		"no commitment":       strings.Replace(whole, header().Commitment.String(), "", 1),
	} {
		if name != "nothing" && leaf == whole {
			t.Fatalf("%s: nothing was changed", name)
		}
		if h, err := events.ParseHeader([]byte(leaf)); err == nil {
			t.Errorf("%s: was taken as %+v", name, h)
		}
	}
}

func FuzzParseHeader(f *testing.F) {
	f.Add(header().Encode())
	f.Add(firstHeader().Encode())
	f.Fuzz(func(t *testing.T, leaf []byte) {
		h, err := events.ParseHeader(leaf)
		slow, slowErr := events.ParseHeaderSlowly(leaf)
		was := header()
		if after, quick := events.ScanHeaderAfter(leaf, &was); quick && (slowErr != nil || after != slow) {
			t.Fatalf("%q is read after another as\n%+v, by the JSON decoder as\n%+v, %v", leaf, after, slow, slowErr)
		}
		if (err == nil) != (slowErr == nil) || err == nil && h != slow {
			t.Fatalf("%q is read as\n%+v, %v, by the JSON decoder as\n%+v, %v", leaf, h, err, slow, slowErr)
		}
		if err != nil {
			return
		}
		if err := h.Check(); err != nil {
			t.Fatalf("%q was taken and does not pass its own check: %v", leaf, err)
		}
		if got := h.Encode(); string(got) != string(leaf) {
			t.Fatalf("%q was taken and encodes as %q", leaf, got)
		}
	})
}

// Neighbours share the names that they have in common.
func TestScanHeaderSharesNames(t *testing.T) {
	was, leaf := header(), header().Encode()
	if n := testing.AllocsPerRun(100, func() { events.ScanHeaderAfter(leaf, &was) }); n != 1 {
		t.Errorf("%v allocations for a header like the one before: only its id is its own", n)
	}
	for _, wrong := range []string{"", "agent 1", `agent"1`, "agent-1\\", strings.Repeat("a", events.MaxNameBytes+1)} {
		bad := []byte(strings.Replace(string(leaf), "agent-1", wrong, 1))
		if h, quick := events.ScanHeaderAfter(bad, &was); quick {
			t.Errorf("the actor %q was taken: %+v", wrong, h)
		}
	}
}

func BenchmarkParseHeader(b *testing.B) {
	leaf := header().Encode()
	for name, was := range map[string]events.Header{"alone": {}, "neighbour": header()} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, quick := events.ScanHeaderAfter(leaf, &was); !quick {
					b.Fatal("it is not read the quick way")
				}
			}
		})
	}
}
