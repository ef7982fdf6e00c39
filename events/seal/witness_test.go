package seal_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/testing/witnessstub"
)

// signer grows a log and signs it.
func signer(t *testing.T) (events.Log, *seal.Sealer, string) {
	t.Helper()
	l, k := newLog(t), newKey(t, origin)
	fill(t, l, 1)
	s, err := seal.NewSealer(l, l, (&kept{}).files(k))
	if err != nil {
		t.Fatal(err)
	}
	return l, s, k.Verifier()
}

func witnessKey(t testing.TB, w *witnessstub.Witness) seal.WitnessKey {
	t.Helper()
	k, err := seal.ParseWitnessKey(w.Key())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// A witness that checks takes every request, at sizes around the edges of tiles, and
// none with another log's proof.
func TestWitnessRequest(t *testing.T) {
	l, s, key := signer(t)
	w := witnessstub.Offline("witness.test/w1")
	w.Trust(key)
	ask := func(old uint64, signed []byte) (int, []byte) {
		t.Helper()
		body, err := s.Reader().WitnessRequest(old, signed)
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		w.ServeHTTP(rec, httptest.NewRequest("POST", "/add-checkpoint", bytes.NewReader(body)))
		return rec.Code, rec.Body.Bytes()
	}
	for _, size := range []int{1, 1, 2, 255, 256, 257, 700, 66_000} {
		fill(t, l, size)
		signed, err := s.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		before := uint64(w.Known(origin))
		if before > 1 {
			if code, answer := ask(before-1, signed); code != http.StatusConflict || strings.TrimSpace(string(answer)) == "" {
				t.Errorf("at %d, from another size than it knows: %d", size, code)
			}
		}
		code, answer := ask(before, signed)
		if code != http.StatusOK || w.Known(origin) != int64(size) {
			t.Fatalf("from %d to %d: %d %s", before, size, code, answer)
		}
		both, by, err := seal.AddCosignature(signed, answer, witnessKey(t, w))
		if err != nil || by.Witness != "witness.test/w1" || by.Key != w.Key() || time.Since(by.At) > time.Minute {
			t.Fatalf("at %d: %+v, %v", size, by, err)
		}
		if c, err := seal.VerifyCheckpoint(both, key); err != nil || c.Size != uint64(size) {
			t.Errorf("at %d, cosigned: %+v, %v", size, c, err)
		}
	}
	if _, err := s.Reader().WitnessRequest(66_001, []byte("x\n\n")); err == nil {
		t.Error("a request without a checkpoint")
	}
}

func TestCosignatures(t *testing.T) {
	_, s, _ := signer(t)
	signed, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	a, b, c := witnessstub.Offline("w.test/a"), witnessstub.Offline("w.test/b"), witnessstub.Offline("w.test/c")
	ka, kb, kc := witnessKey(t, a), witnessKey(t, b), witnessKey(t, c)
	both := signed
	for _, w := range []*witnessstub.Witness{b, a} {
		// What else a witness answers is not taken.
		answer := append(c.Cosign(signed), w.Cosign(signed)...)
		if both, _, err = seal.AddCosignature(both, answer, witnessKey(t, w)); err != nil {
			t.Fatal(err)
		}
	}
	names := func(signed []byte, keys ...seal.WitnessKey) string {
		t.Helper()
		list, err := seal.Cosignatures(signed, keys)
		if err != nil {
			return "error: " + err.Error()
		}
		var names []string
		for _, c := range list {
			names = append(names, strings.TrimPrefix(c.Witness, "w.test/"))
		}
		return strings.Join(names, ",")
	}
	other := bytes.Replace(both, []byte("\n1\n"), []byte("\n2\n"), 1)
	for what, c := range map[string]struct{ got, want string }{
		"all":             {names(both, ka, kb, kc), "a,b"},
		"in their order":  {names(both, kb, ka), "b,a"},
		"one":             {names(both, kb), "b"},
		"given twice":     {names(both, kb, kb), "b"},
		"none":            {names(both), ""},
		"another":         {names(both, kc), ""},
		"not cosigned":    {names(signed, ka), ""},
		"of another size": {names(other, ka), `error: the cosignature that names witness "w.test/a" is not by its key`},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, not %q", what, c.got, c.want)
		}
	}
	for what, answer := range map[string][]byte{
		"nothing":                {},
		"another witness's":      c.Cosign(signed),
		"another checkpoint's":   a.Cosign(other),
		"no signature":           []byte("thank you\n"),
		"cut off":                a.Cosign(signed)[:40],
		"far too many":           bytes.Repeat(c.Cosign(signed), 101),
		"the log's own, doubled": bytes.SplitN(signed, []byte("\n\n"), 2)[1],
	} {
		if got, _, err := seal.AddCosignature(signed, answer, ka); err == nil {
			t.Errorf("%s was taken: %s", what, got)
		}
	}
	for _, text := range []string{"", "x", "w.test/a+00000000+" + strings.SplitN(a.Key(), "+", 3)[2], newKey(t, origin).Verifier(), a.Key() + "x"} {
		if _, err := seal.ParseWitnessKey(text); err == nil {
			t.Errorf("%q is taken for the key of a witness", text)
		}
	}
}

func TestCheckConsistency(t *testing.T) {
	l, s, _ := signer(t)
	fill(t, l, 300)
	r := s.Reader()
	at := func(size uint64) seal.Checkpoint {
		root, err := r.RootAt(size)
		if err != nil {
			t.Fatal(err)
		}
		return seal.Checkpoint{Origin: origin, Size: size, Root: root}
	}
	for _, old := range []uint64{1, 2, 255, 256, 257, 299, 300} {
		p, err := r.Consistency(old, 300)
		if err != nil {
			t.Fatal(err)
		}
		proof := make([]events.Hash, len(p))
		for i := range p {
			proof[i] = events.Hash(p[i])
		}
		if err := seal.CheckConsistency(at(old), at(300), proof); err != nil {
			t.Errorf("%d: %v", old, err)
		}
		wrong := at(old)
		wrong.Root[0] ^= 1
		if seal.CheckConsistency(wrong, at(300), proof) == nil {
			t.Errorf("%d: another root is taken", old)
		}
		if seal.CheckConsistency(at(old), at(300), append(proof, events.Hash{})) == nil {
			t.Errorf("%d: a longer proof is taken", old)
		}
	}
	elsewhere := at(2)
	elsewhere.Origin = "other.test/fleet-a"
	for _, old := range []seal.Checkpoint{elsewhere, {Origin: origin}, {Origin: origin, Size: 301}} {
		if seal.CheckConsistency(old, at(300), nil) == nil {
			t.Errorf("%+v is taken for the beginning", old)
		}
	}
}
