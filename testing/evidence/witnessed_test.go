package evidence_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/commands/evidence"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/testing/witnessstub"
)

// newWitnessed is a log with a cosigned checkpoint, and events behind it.
func newWitnessed(t testing.TB, by ...*witnessstub.Witness) sealed {
	t.Helper()
	s := newLog(t)
	if err := s.ledger.AddKey(t.Context(), s.key); err != nil {
		t.Fatal(err)
	}
	signed, err := s.sealer.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range by {
		if signed, _, err = seal.AddCosignature(signed, w.Cosign(signed), keyOf(t, w)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.ledger.RecordWitnessed(t.Context(), signed); err != nil {
		t.Fatal(err)
	}
	if _, err := s.ledger.Conclude(t.Context(), commands.Caller{Actor: "ana"}, commands.Conclude{About: &events.About{TaskID: s.task}, Text: "on second thoughts"}); err != nil {
		t.Fatal(err)
	}
	return s
}

func keyOf(t testing.TB, w *witnessstub.Witness) seal.WitnessKey {
	t.Helper()
	k, err := seal.ParseWitnessKey(w.Key())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// TestWitnessedEvidence: a file shows how far a witness has cosigned its log, and to
// whoever trusts another witness that it does not.
func TestWitnessedEvidence(t *testing.T) {
	w1, w2, w3 := witnessstub.Offline("w.test/1"), witnessstub.Offline("w.test/2"), witnessstub.Offline("w.test/3")
	s := newWitnessed(t, w1, w2)
	good, size := s.export(t), uint64(s.ledger.State().Witnessed().Size)
	changed := func(change func(w map[string]any)) []byte {
		return edit(t, good, func(l []line) []line { change(l[0]["witnessed"].(map[string]any)); return l })
	}
	text := func(change func(string) string) []byte {
		return changed(func(w map[string]any) { w["checkpoint"] = change(w["checkpoint"].(string)) })
	}
	// The log as somebody who holds its key writes it anew, with what was cosigned.
	anew := s.forged(t, func(_ *events.Record, e events.Event) events.Event {
		if x, ok := e.(events.ConclusionRecorded); ok {
			x.Text = "all was well"
			return x
		}
		return e
	}).export(t)
	type keys = []*witnessstub.Witness
	rows := []struct {
		name      string
		file      []byte
		witnesses keys
		kind      string // of the finding, none if it is good
		reach     uint64
		told      string
	}{
		{"no key of a witness", good, nil, "", 0, "events were cosigned, and no key of a witness was given"},
		{"one", good, keys{w1}, "", size, "witness w.test/1 cosigned the first"},
		{"both", good, keys{w2, w1}, "", size, "witness w.test/2 cosigned the first"},
		{"one of two", good, keys{w3, w1}, "", size, "without asking for a witness"},
		{"a stranger", good, keys{w3}, audit.Witness, 0, ""},
		{"it is left out", edit(t, good, func(l []line) []line { delete(l[0], "witnessed"); return l }), keys{w1}, audit.Witness, 0, ""},
		{"it is left out, and nobody asks", edit(t, good, func(l []line) []line { delete(l[0], "witnessed"); return l }), nil, "", 0, "compare the checkpoint with one"},
		{"never witnessed", newLog(t).export(t), keys{w1}, audit.Witness, 0, ""},
		{"its cosignature is left out", text(func(c string) string { return c[:strings.Index(c, "— w.test/1")] }), keys{w1}, audit.Witness, 0, ""},
		{"a cosignature of something else", text(func(c string) string {
			return c[:strings.Index(c, "— w.test/1")] + string(w1.Cosign(bytes.Replace([]byte(c), []byte("\n"), []byte("\n1"), 1)))
		}), keys{w1}, audit.Witness, 0, ""},
		{"the same, and nobody asks for it", text(func(c string) string {
			return c[:strings.Index(c, "— w.test/1")] + string(w1.Cosign(bytes.Replace([]byte(c), []byte("\n"), []byte("\n1"), 1)))
		}), nil, "", 0, "no key of a witness was given"},
		{"a later time", text(func(c string) string { return strings.Replace(c, "— w.test/1 ", "— w.test/1 AAAA", 1) }), keys{w1}, audit.Witness, 0, ""},
		{"no signatures", text(func(c string) string { return c[:strings.Index(c, "\n\n")+1] }), nil, audit.Witness, 0, ""},
		{"no signature", text(func(c string) string { return c + "thank you\n" }), nil, audit.Witness, 0, ""},
		{"a signature of nothing", text(func(c string) string { return c + "— w.test/3 AAAA\n" }), nil, audit.Witness, 0, ""},
		{"a second signature of one key, which is not looked at", text(func(c string) string {
			return c + string(w1.Cosign(bytes.Replace([]byte(c), []byte("\n"), []byte("\n1"), 1)))
		}), keys{w1}, "", size, "witness w.test/1"},
		{"too many signatures", text(func(c string) string { return c + strings.Repeat("— x AQIDBGFiYw==\n", 100) }), nil, audit.Witness, 0, ""},
		{"a control character", text(func(c string) string { return c + "— x\x01y AQIDBGFiYw==\n" }), nil, audit.Witness, 0, ""},
		{"null", edit(t, good, func(l []line) []line { l[0]["witnessed"] = nil; return l }), nil, "no file", 0, ""},
		{"no checkpoint", text(func(string) string { return "x" }), nil, audit.Witness, 0, ""},
		{"the file's own checkpoint", changed(func(w map[string]any) {
			head, _ := s.sealer.Checkpoint()
			w["checkpoint"], w["proof"] = string(head)+string(w3.Cosign(head)), []any{}
		}), keys{w3}, "", size + 2, "witness w.test/3"},
		{"another log's", changed(func(w map[string]any) {
			w["checkpoint"] = strings.Replace(w["checkpoint"].(string), "ledger.test", "elsewhere.test", 1)
		}), nil, audit.Witness, 0, ""},
		{"a shorter proof", changed(func(w map[string]any) { w["proof"] = w["proof"].([]any)[1:] }), nil, audit.Witness, 0, ""},
		{"a longer proof", changed(func(w map[string]any) { p := w["proof"].([]any); w["proof"] = append(p, p[0]) }), nil, audit.Witness, 0, ""},
		{"an empty hash", changed(func(w map[string]any) { w["proof"].([]any)[0] = "" }), nil, audit.Witness, 0, ""},
		{"an unknown member", changed(func(w map[string]any) { w["note"] = "trust me" }), nil, "no file", 0, ""},
		{"written anew", anew, keys{w1}, audit.Witness, 0, ""},
		{"written anew, and nobody asks", anew, nil, audit.Witness, 0, ""},
	}
	for _, c := range rows {
		options := []string{"--key", s.key}
		var witnesses []seal.WitnessKey
		for _, w := range c.witnesses {
			options = append(options, "--witness", w.Key())
			witnesses = append(witnesses, keyOf(t, w))
		}
		p := runPythonWith(t, options, c.file)[0]
		ours, err := evidence.Verify(c.file, witnesses, s.key)
		if c.kind == "no file" {
			if err == nil || p.OK {
				t.Errorf("%s: it is read: %v %+v", c.name, err, p)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		var reach uint64
		for _, r := range ours.Witnessed.Witnesses {
			reach = max(reach, r.Size)
			if (r.Size == 0) != r.At.IsZero() {
				t.Errorf("%s: %+v", c.name, r)
			}
		}
		found := slices.ContainsFunc(ours.Findings, func(f audit.Finding) bool { return f.Kind == c.kind })
		told := strings.Join(append(ours.Established, ours.NotEstablished...), "\n")
		if ours.OK != (c.kind == "") || c.kind != "" && !found || reach != c.reach || !strings.Contains(told, c.told) {
			t.Errorf("%s: it reaches %d, %+v, told %s", c.name, reach, ours.Findings, told)
		}
		if ours.DecisionsRederived == 0 {
			t.Errorf("%s: no decision was made again", c.name)
		}
		if p.OK != ours.OK || p.Witnessed != reach || p.CompleteTo != ours.CompleteTo {
			t.Errorf("%s: ours says %t %d %+v, verify.py %t %d %+v", c.name, ours.OK, reach, ours.Findings, p.OK, p.Witnessed, p.Findings)
		}
	}
}

// TestFlippedBitsOfWitnessed: both verifiers say the same of what is cosigned with a bit
// flipped, and what one of them takes is the same checkpoint.
func TestFlippedBitsOfWitnessed(t *testing.T) {
	w := witnessstub.Offline("w.test/1")
	s := newWitnessed(t, w)
	good, size := s.export(t), uint64(s.ledger.State().Witnessed().Size)
	from := bytes.Index(good, []byte(`"witnessed":`))
	to := from + bytes.IndexByte(good[from:], '\n')
	step := 97
	if testing.Short() {
		step = 211
	}
	var files [][]byte
	for bit := 8 * from; bit < 8*to; bit += step {
		file := slices.Clone(good)
		file[bit/8] ^= 1 << (bit % 8)
		files = append(files, file)
	}
	taken := 0
	for i, p := range runPythonWith(t, []string{"--key", s.key, "--witness", w.Key()}, files...) {
		ours, err := evidence.Verify(files[i], []seal.WitnessKey{keyOf(t, w)}, s.key)
		if ok := err == nil && ours.OK; ok != p.OK {
			t.Errorf("bit %d: ours says %t %v %+v, verify.py %t %+v", 8*from+i*step, ok, err, ours.Findings, p.OK, p.Findings)
		} else if ok {
			taken++
			if p.Witnessed != size {
				t.Errorf("bit %d: it is taken, and reaches %d", 8*from+i*step, p.Witnessed)
			}
		}
	}
	// Those of the log's own signature on it are not looked at: the proof is.
	if taken > len(files)/3 {
		t.Errorf("%d of %d are taken", taken, len(files))
	}
}
