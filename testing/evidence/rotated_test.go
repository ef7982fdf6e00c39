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
	"fleetledger/testing/smallfleet"
)

// rotated is a log that has changed its key twice: the first and the second are
// retired, the third signs.
type rotated struct {
	sealed
	keys    []*seal.Key // all of them, in the order of their use
	overlap []byte      // the file while the second and the third both signed
}

func newRotated(t testing.TB) rotated {
	t.Helper()
	r := rotated{sealed: unrootedLog(t)}
	ctx, root := t.Context(), smallfleet.As("root")
	r.keys = []*seal.Key{smallfleet.NewKey(t, "first")}
	s := smallfleet.NewSealer(t, r.log, func(keys []*seal.Key) {
		if last := keys[len(keys)-1]; !slices.Contains(r.keys, last) {
			r.keys = append(r.keys, last)
		}
	}, slices.Clone(r.keys)...)
	r.sealer = s
	if err := r.ledger.AddKey(ctx, r.keys[0].Verifier()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		if _, err := r.ledger.RotateKey(ctx, root, s, commands.RotateKey{Reason: "yearly"}); err != nil {
			t.Fatal(err)
		}
		r.overlap = r.export(t)
		if _, err := r.ledger.RetireKey(ctx, root, s, commands.RetireKey{ID: seal.RingKey{Verifier: r.keys[i].Verifier()}.ID(), Reason: "replaced"}); err != nil {
			t.Fatal(err)
		}
	}
	r.root(t)
	r.key = r.keys[2].Verifier()
	return r
}

// TestRotatedKeys: whoever has a key that signs no more follows from it to the one that
// signed the file, and nothing in the file leads anywhere else.
func TestRotatedKeys(t *testing.T) {
	r := newRotated(t)
	good := r.export(t)
	first, second, third := r.keys[0].Verifier(), r.keys[1].Verifier(), r.keys[2].Verifier()
	changed := func(change func(l []line) []line) []byte { return edit(t, good, change) }
	drop := func(kind events.Kind, nth int) func(l []line) []line {
		return func(l []line) []line { return counted(without(l, find(t, l, kind, nth))) }
	}
	keys := func(l []line) []any { return l[0]["keys"].([]any) }
	proofOf := func(l []line, i int) map[string]any { return keys(l)[i].(map[string]any) }

	// The log as somebody who holds a retired key signs it on.
	stolen := r.sealed
	stolen.sealer = smallfleet.NewSealer(t, r.log, nil, r.keys[0])
	// The log as somebody writes it anew who holds the newest key, and no other.
	anew := func(reason string) []byte {
		f := r.forged(t, func(_ *events.Record, e events.Event) events.Event {
			if x, ok := e.(events.KeyAdded); ok && x.VerifierKey == first {
				x.Reason = reason
				return x
			}
			return e
		})
		f.sealer = smallfleet.NewSealer(t, f.log, nil, r.keys[2])
		return f.export(t)
	}

	rows := []struct {
		name  string
		file  []byte
		key   string
		kind  string // of the finding; none if it is good
		words string // told as established
	}{
		{"the key that signs", good, third, "", "a key given signed"},
		{"the one before", good, second, "", "it follows from a key given"},
		{"the first", good, first, "", "it follows from a key given"},
		{"a stranger's", good, smallfleet.NewKey(t, "stranger").Verifier(), audit.Checkpoint, ""},
		{"two that sign, the older", r.overlap, second, "", "a key given signed"},
		{"two that sign, the newer", r.overlap, third, "", "a key given signed"},
		{"two that sign, the first", r.overlap, first, "", "it follows from a key given"},

		{"a retired key signs on", stolen.export(t), first, audit.Checkpoint, ""},
		{"a retired key signs on, for another", stolen.export(t), third, audit.Checkpoint, ""},
		{"the second key was never added", changed(drop("key.added", 1)), first, audit.Order, ""},
		{"the third key was never added", changed(drop("key.added", 2)), first, audit.Order, ""},
		{"the last key was never added", changed(drop("key.added", 2)), third, audit.Order, ""},
		{"the first retirement is not there", changed(drop("key.retired", 0)), first, evidence.Malformed, ""},
		{"the first retirement and its proof are not there", changed(func(l []line) []line {
			l[0]["keys"] = keys(l)[1:]
			return drop("key.retired", 0)(l)
		}), first, audit.Checkpoint, ""},
		{"and whoever has the newest key needs neither", changed(func(l []line) []line {
			l[0]["keys"] = keys(l)[1:]
			return drop("key.retired", 0)(l)
		}), third, "", "a key given signed"},
		{"no proofs", changed(func(l []line) []line { delete(l[0], "keys"); return l }), third, evidence.Malformed, ""},
		{"a proof less", changed(func(l []line) []line { l[0]["keys"] = keys(l)[1:]; return l }), third, evidence.Malformed, ""},
		{"two proofs swapped", changed(func(l []line) []line { slices.Reverse(keys(l)); return l }), third, evidence.Malformed, ""},
		{"a proof twice", changed(func(l []line) []line { l[0]["keys"] = append(keys(l), keys(l)[1]); return l }), third, evidence.Malformed, ""},
		{"a proof of another event", changed(func(l []line) []line { proofOf(l, 0)["position"] = 3; return l }), third, evidence.Malformed, ""},
		{"a shorter proof", changed(func(l []line) []line {
			proofOf(l, 0)["proof"] = proofOf(l, 0)["proof"].([]any)[1:]
			return l
		}), third, audit.Checkpoint, ""},
		{"a longer proof", changed(func(l []line) []line {
			p := proofOf(l, 0)["proof"].([]any)
			proofOf(l, 0)["proof"] = append(p, p[0])
			return l
		}), third, audit.Checkpoint, ""},
		{"another proof", changed(func(l []line) []line {
			p := proofOf(l, 0)["proof"].([]any)
			p[0], p[1] = p[1], p[0]
			return l
		}), first, audit.Checkpoint, ""},
		{"an empty hash in a proof", changed(func(l []line) []line { proofOf(l, 0)["proof"].([]any)[0] = ""; return l }), third, audit.Checkpoint, ""},
		{"another reason", changed(func(l []line) []line {
			i := find(t, l, "key.retired", 0)
			l[i]["payload"] = strings.Replace(l[i]["payload"].(string), "replaced", "stolen!!", 1)
			return l
		}), third, audit.Payload, ""},
		{"a retirement erased", changed(func(l []line) []line { return erase(l, find(t, l, "key.retired", 0)) }), third, audit.Payload, ""},
		{"a retirement of another place", changed(func(l []line) []line {
			i := find(t, l, "key.retired", 0)
			l[i]["proof"] = l[i-1]["proof"]
			return l
		}), third, evidence.Inclusion, ""},
		{"written anew as it was", anew(""), first, "", "it follows from a key given"},
		{"another past under a retired key", anew("otherwise"), first, audit.Checkpoint, ""},
		{"another past under a retired key, for the newest", anew("otherwise"), third, audit.Checkpoint, ""},

		// A file of before has nothing of the keys.
		{"an earlier format", keyless(t, good), third, "", "a key given signed"},
		{"an earlier format, with an old key", keyless(t, good), first, audit.Checkpoint, ""},
		{"an earlier format that has keys", changed(func(l []line) []line { l[0]["format"] = "fleetledger-evidence/2"; return l }), third, evidence.Foreign, ""},
		{"a later format", changed(func(l []line) []line { l[0]["format"] = "fleetledger-evidence/4"; return l }), third, "no file", ""},
	}
	files := map[string][][]byte{}
	for _, c := range rows {
		files[c.key] = append(files[c.key], c.file)
	}
	python := map[string][]python{}
	for key, list := range files {
		python[key] = runPython(t, key, list...)
	}
	for _, c := range rows {
		p := python[c.key][0]
		python[c.key] = python[c.key][1:]
		ours, err := evidence.Verify(c.file, nil, c.key)
		if c.kind == "no file" {
			if err == nil || p.OK {
				t.Errorf("%s: it is read: %v %+v", c.name, err, p)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		found := slices.ContainsFunc(ours.Findings, func(f audit.Finding) bool { return f.Kind == c.kind })
		if ours.OK != (c.kind == "") || c.kind != "" && !found || !strings.Contains(strings.Join(ours.Established, "\n"), c.words) {
			t.Errorf("%s: %+v, established %q", c.name, ours.Findings, ours.Established)
		}
		if p.OK != ours.OK || p.CompleteTo != ours.CompleteTo {
			t.Errorf("%s: ours says %t %+v, verify.py %t %+v", c.name, ours.OK, ours.Findings, p.OK, p.Findings)
		}
	}
}

// keyless is a file as the format before had it.
func keyless(t testing.TB, file []byte) []byte {
	return edit(t, file, func(l []line) []line {
		l[0]["format"] = "fleetledger-evidence/2"
		delete(l[0], "keys")
		return counted(slices.DeleteFunc(l, func(x line) bool {
			return x["leaf"] != nil && strings.HasPrefix(string(x.header(t).Type), "key.")
		}))
	})
}

// TestFlippedBitsOfKeys: what leads from one key to another is no other file by a bit.
func TestFlippedBitsOfKeys(t *testing.T) {
	r := newRotated(t)
	good, key := r.export(t), r.keys[0].Verifier()
	from := bytes.Index(good, []byte(`"keys":`))
	to := from + bytes.IndexByte(good[from:], '\n')
	if from < 0 {
		t.Fatal("the file has no proofs of keys")
	}
	step := 61
	if testing.Short() {
		step = 311
	}
	var files [][]byte
	for bit := 8 * from; bit < 8*to; bit += step {
		file := slices.Clone(good)
		file[bit/8] ^= 1 << (bit % 8)
		files = append(files, file)
	}
	for i, p := range runPython(t, key, files...) {
		if ours, err := evidence.Verify(files[i], nil, key); p.OK || err == nil && ours.OK {
			t.Errorf("bit %d: it is not found: %v, verify.py %t", 8*from+i*step, err, p.OK)
		}
	}
}
