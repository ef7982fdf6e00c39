package evidence_test

import (
	"bytes"
	"encoding/hex"
	"slices"
	"strings"
	"testing"

	"fleetledger/commands/audit"
	"fleetledger/commands/evidence"
	"fleetledger/events"
)

// Each row is a file that is not what was exported. kind and at are what a finding
// must be of; a row without is one that a verifier of a single file cannot see
// through, or that is told as erased.
var damages = []struct {
	name, kind string
	damage     func(t testing.TB, lines []line) []line
	// at is the line whose position is named, of the good file, 0 for none.
	at func(t testing.TB, lines []line) int
}{
	{"nothing", "", func(_ testing.TB, l []line) []line { return l }, nil},
	{"a payload", audit.Payload, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["payload"] = strings.Replace(l[i]["payload"].(string), `"exit_code":0`, `"exit_code":1`, 1)
		return l
	}, reported},
	{"a payload in another spelling", audit.Payload, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["payload"] = l[i]["payload"].(string) + " "
		return l
	}, reported},
	{"a salt", audit.Payload, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["salt"] = hex.EncodeToString(make([]byte, 16))
		return l
	}, reported},
	{"a salt in capitals", evidence.Malformed, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["salt"] = "ABCDEF" + l[1]["salt"].(string)[6:]
		return l
	}, reported},
	{"an actor in a header", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "approval.settled", 1)
		l[i]["leaf"] = strings.Replace(l[i]["leaf"].(string), `"actor":"carl"`, `"actor":"ana"`, 1)
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "approval.settled", 1) }},
	{"a header with a space", audit.Header, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["leaf"] = strings.Replace(l[i]["leaf"].(string), `,"stream"`, `, "stream"`, 1)
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) - 1 }},
	{"a proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		proof := l[find(t, l, "task.reported", 0)]["proof"].([]any)
		proof[0], proof[1] = proof[1], proof[0]
		return l
	}, reported},
	{"a longer proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		proof := l[i]["proof"].([]any)
		l[i]["proof"] = append(proof, proof[0])
		return l
	}, reported},
	{"a shorter proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["proof"] = l[i]["proof"].([]any)[1:]
		return l
	}, reported},
	{"another's proof", evidence.Inclusion, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i]["proof"] = l[i-1]["proof"]
		return l
	}, reported},
	{"no proof", evidence.Malformed, func(t testing.TB, l []line) []line {
		delete(l[find(t, l, "task.reported", 0)], "proof")
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) - 1 }},
	{"an unknown member", evidence.Malformed, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["note"] = "trust me"
		return l
	}, func(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) - 1 }},
	{"an event dropped", audit.Revision, func(t testing.TB, l []line) []line {
		l[0]["events"] = len(l) - 2
		return without(l, find(t, l, "task.claimed", 0))
	}, func(t testing.TB, l []line) int { return find(t, l, "lease.lapsed", 0) }},
	{"a rule dropped", audit.Revision, func(t testing.TB, l []line) []line {
		l[0]["events"] = len(l) - 2
		return without(l, find(t, l, "actor.registered", 3))
	}, nil},
	{"an event dropped and not counted", evidence.Malformed, func(_ testing.TB, l []line) []line { return l[:len(l)-1] }, nil},
	{"an event twice", audit.Position, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[0]["events"] = len(l)
		return slices.Insert(l, i, l[i])
	}, reported},
	{"two events swapped", audit.Position, func(t testing.TB, l []line) []line {
		i := find(t, l, "task.reported", 0)
		l[i], l[i-1] = l[i-1], l[i]
		return l
	}, nil},
	{"no authority", evidence.Malformed, func(t testing.TB, l []line) []line {
		l = slices.DeleteFunc(l, func(x line) bool { return x["leaf"] != nil && x.header(t).Stream == events.AuthorityStream })
		l[0]["events"] = len(l) - 1
		return l
	}, nil},
	{"no task", evidence.Malformed, func(t testing.TB, l []line) []line {
		l = slices.DeleteFunc(l, func(x line) bool {
			return x["leaf"] != nil && strings.HasPrefix(string(x.header(t).Stream), "task-")
		})
		l[0]["events"] = len(l) - 1
		return l
	}, nil},
	{"no events", evidence.Malformed, func(_ testing.TB, l []line) []line { l[0]["events"] = 0; return l[:1] }, nil},
	{"an erased event with its payload", evidence.Malformed, func(t testing.TB, l []line) []line {
		l[find(t, l, "task.reported", 0)]["erased"] = true
		return l
	}, reported},
	{"no payload", audit.Payload, func(t testing.TB, l []line) []line {
		delete(l[find(t, l, "task.reported", 0)], "payload")
		return l
	}, reported},
	{"another task", evidence.Foreign, func(_ testing.TB, l []line) []line { l[0]["task_id"] = "another"; return l }, nil},
	{"another fleet", evidence.Foreign, func(_ testing.TB, l []line) []line { l[0]["fleet"] = "other"; return l }, nil},
	{"another origin", evidence.Foreign, func(_ testing.TB, l []line) []line { l[0]["origin"] = "ledger.test/other"; return l }, nil},
	{"a larger checkpoint", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		parts := strings.Split(l[0]["checkpoint"].(string), "\n")
		parts[1] += "0"
		l[0]["checkpoint"] = strings.Join(parts, "\n")
		return l
	}, nil},
	{"a checkpoint without a signature", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		text, _, _ := strings.Cut(l[0]["checkpoint"].(string), "—")
		l[0]["checkpoint"] = text
		return l
	}, nil},
	{"another signature", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		text := []byte(l[0]["checkpoint"].(string))
		text[len(text)-20] ^= 1
		l[0]["checkpoint"] = string(text)
		return l
	}, nil},
	{"another signature behind the first of its key, which alone counts", "", func(_ testing.TB, l []line) []line {
		text := l[0]["checkpoint"].(string)
		line := []byte(text[strings.LastIndex(text, "—"):])
		line[len(line)-20] ^= 1
		l[0]["checkpoint"] = text + string(line)
		return l
	}, nil},
	{"signatures of others", "", func(_ testing.TB, l []line) []line {
		l[0]["checkpoint"] = l[0]["checkpoint"].(string) + strings.Repeat("— x AQIDBGFiYw==\n", 99)
		return l
	}, nil},
	{"too many signatures", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		l[0]["checkpoint"] = l[0]["checkpoint"].(string) + strings.Repeat("— x AQIDBGFiYw==\n", 100)
		return l
	}, nil},
	{"a control character in a signature", audit.Checkpoint, func(_ testing.TB, l []line) []line {
		l[0]["checkpoint"] = l[0]["checkpoint"].(string) + "— x\x01y AQIDBGFiYw==\n"
		return l
	}, nil},
	{"no checkpoint", audit.Checkpoint, func(_ testing.TB, l []line) []line { l[0]["checkpoint"] = ""; return l }, nil},

	// By the root over the heads of all streams.
	{"the last event of the task dropped", evidence.Missing, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "conclusion.recorded", 0)))
	}, nil},
	{"the end of the task left out", evidence.Missing, leaveOutTheEnd, nil},
	{"the last event of a gate dropped", evidence.Missing, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "approval.spent", 0)))
	}, nil},
	{"the settings left out", evidence.Missing, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "settings.changed", 0)))
	}, nil},
	{"the root left out", evidence.Malformed, func(t testing.TB, l []line) []line {
		return counted(without(l, find(t, l, "heads.rooted", 0)))
	}, rooted},
	{"the proofs left out", evidence.Foreign, func(_ testing.TB, l []line) []line { delete(l[0], "heads"); return l }, rooted},
	{"another root", evidence.Malformed, func(_ testing.TB, l []line) []line { heads(l)["position"] = 3; return l }, nil},
	{"a proof less", evidence.Malformed, func(_ testing.TB, l []line) []line {
		heads(l)["proofs"] = heads(l)["proofs"].([]any)[1:]
		return l
	}, rooted},
	{"two proofs swapped", evidence.Malformed, func(_ testing.TB, l []line) []line {
		p := heads(l)["proofs"].([]any)
		p[0], p[1] = p[1], p[0]
		return l
	}, rooted},
	{"a proof twice", evidence.Malformed, func(_ testing.TB, l []line) []line {
		p := heads(l)["proofs"].([]any)
		heads(l)["proofs"] = append(p, p[len(p)-1])
		return l
	}, rooted},
	{"the head of another stream", audit.Heads, func(_ testing.TB, l []line) []line {
		proof(l, "task-")["found"] = proof(l, "gate-")["found"]
		proof(l, "task-")["path"] = proof(l, "gate-")["path"]
		return l
	}, rooted},
	{"an earlier head", audit.Heads, func(_ testing.TB, l []line) []line {
		found := proof(l, "task-")["found"].(map[string]any)
		found["revision"] = found["revision"].(float64) - 1
		return l
	}, rooted},
	{"a bit of a proof", audit.Heads, func(_ testing.TB, l []line) []line {
		step := proof(l, "task-")["path"].([]any)[0].(map[string]any)
		step["bit"] = step["bit"].(float64) - 1
		return l
	}, rooted},
	{"a hash of a proof", audit.Heads, func(_ testing.TB, l []line) []line {
		proof(l, "task-")["path"].([]any)[0].(map[string]any)["hash"] = strings.Repeat("ab", 32)
		return l
	}, rooted},
	{"no path in a proof", audit.Heads, func(_ testing.TB, l []line) []line { proof(l, "task-")["path"] = []any{}; return l }, rooted},
	{"a payload left out", audit.Payload, func(t testing.TB, l []line) []line { return erase(l, find(t, l, "conclusion.recorded", 0)) },
		func(t testing.TB, l []line) int { return find(t, l, "conclusion.recorded", 0) }},

	// What one file alone cannot give away, and what is told of it instead.
	{"the end of the task left out, without a root", "", func(t testing.TB, l []line) []line {
		delete(l[0], "heads")
		l = leaveOutTheEnd(t, l)
		return counted(without(l, find(t, l, "heads.rooted", 0)))
	}, nil},
}

// leaveOutTheEnd leaves out the task's last events, from its verdict on.
func leaveOutTheEnd(t testing.TB, l []line) []line {
	settled := l[find(t, l, "task.settled", 0)].header(t)
	return counted(slices.DeleteFunc(l, func(x line) bool {
		return x["leaf"] != nil && x.header(t).Stream == settled.Stream && x.header(t).Revision >= settled.Revision
	}))
}

// counted makes the head say how many events there are.
func counted(l []line) []line {
	l[0]["events"] = len(l) - 1
	return l
}

func heads(l []line) map[string]any { return l[0]["heads"].(map[string]any) }

// proof is that of the stream whose name begins like this.
func proof(l []line, stream string) map[string]any {
	for _, p := range heads(l)["proofs"].([]any) {
		if p := p.(map[string]any); strings.HasPrefix(p["stream"].(string), stream) {
			return p
		}
	}
	panic("no proof of " + stream)
}

func rooted(t testing.TB, l []line) int { return find(t, l, "heads.rooted", 0) }

func reported(t testing.TB, l []line) int { return find(t, l, "task.reported", 0) }

func erase(l []line, i int) []line {
	delete(l[i], "salt")
	delete(l[i], "payload")
	l[i]["erased"] = true
	return l
}

func TestDamagedEvidence(t *testing.T) {
	s := newLog(t)
	good := s.export(t)
	var files [][]byte
	for _, c := range damages {
		at := events.Position(0)
		file := edit(t, good, func(l []line) []line {
			if c.at != nil {
				at = l[c.at(t, l)].header(t).Position
			}
			return c.damage(t, l)
		})
		files = append(files, file)
		r := verify(t, file, s.key)
		switch {
		case c.kind == "":
			if !r.OK || r.DecisionsRederived == 0 {
				t.Errorf("%s: got %+v", c.name, r.Findings)
			}
		case r.OK || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool {
			return f.Kind == c.kind && (c.at == nil || f.Position == at)
		}):
			t.Errorf("%s: no %s at position %d: %+v", c.name, c.kind, at, r.Findings)
		case r.DecisionsRederived != 0 || !slices.ContainsFunc(r.Findings, func(f audit.Finding) bool { return f.Kind == audit.Undetermined }):
			t.Errorf("%s: decisions were made again from events that are not proved", c.name)
		}
	}
	for i, p := range runPython(t, s.key, files...) {
		c := damages[i]
		ours := verify(t, files[i], s.key)
		if p.OK != ours.OK || p.Erased != ours.Erased && ours.OK || p.CompleteTo != ours.CompleteTo {
			t.Errorf("%s: ours says %t %+v, verify.py %t %+v", c.name, ours.OK, ours.Findings, p.OK, p.Findings)
		}
		for _, f := range p.Findings {
			if f.Position > 0 && !slices.ContainsFunc(ours.Findings, func(o audit.Finding) bool { return o.Position == f.Position }) {
				t.Errorf("%s: verify.py finds %+v, ours %+v", c.name, f, ours.Findings)
			}
		}
		if len(p.NotChecked) == 0 || !strings.Contains(p.NotChecked[0], "decisions") {
			t.Errorf("verify.py does not say that it leaves decisions out: %q", p.NotChecked)
		}
	}
}

// One bit flipped anywhere: both verifiers say the same, and good only of what is
// the same file in another spelling.
func TestFlippedBits(t *testing.T) {
	s := newLog(t)
	good := s.export(t)
	step := 193
	if testing.Short() {
		step = 997
	}
	var files [][]byte
	var where []int
	for bit := 0; bit < 8*len(good); bit += step {
		if bit/8 > 1200 && bit%(11*step) != 0 { // densely in the head, which is the one line of its kind
			continue
		}
		file := slices.Clone(good)
		file[bit/8] ^= 1 << (bit % 8)
		files, where = append(files, file), append(where, bit)
	}
	for i, p := range runPython(t, s.key, files...) {
		r, err := evidence.Verify(files[i], nil, s.key)
		if ok := err == nil && r.OK; ok != p.OK {
			t.Errorf("bit %d, %q: ours says %t %v %+v, verify.py %t %+v", where[i], good[max(0, where[i]/8-20):where[i]/8+20], ok, err, r.Findings, p.OK, p.Findings)
		} else if ok {
			t.Errorf("bit %d, %q: it is not found", where[i], good[max(0, where[i]/8-20):where[i]/8+20])
		}
	}
}

func TestCutFiles(t *testing.T) {
	s := newLog(t)
	good := s.export(t)
	head := bytes.IndexByte(good, '\n')
	first := func(old, now string) []byte { return bytes.Replace(good, []byte(old), []byte(now), 1) }
	files := [][]byte{first(`{"format"`, `{"keys":null,"format"`), first(`{"format"`, `{"witnessed":null,"format"`),
		nil, []byte("\n"), good[:10], good[:head], good[:head+1], good[:head+40], good[:len(good)-1], append(slices.Clone(good), '\n'), append(slices.Clone(good), "{}\n"...),
		append([]byte("\xef\xbb\xbf"), good...), bytes.ReplaceAll(good, []byte("\n"), []byte("\n\n")), []byte(`[]` + "\n"), []byte(`"` + strings.Repeat("[", 100_000) + "\n")}
	for i, p := range runPython(t, s.key, files...) {
		r, err := evidence.Verify(files[i], nil, s.key)
		if p.OK || err == nil && r.OK {
			t.Errorf("file %d is taken: %t, verify.py %t", i, r.OK, p.OK)
		}
	}
}

// A verifier meets whatever somebody sends it.
func FuzzVerify(f *testing.F) {
	s := newLog(f)
	good := s.export(f)
	f.Add(good)
	lines := bytes.SplitAfter(good, []byte("\n"))
	for _, n := range []int{1, 2, 20, len(lines) - 2} {
		f.Add(bytes.Join(lines[:n], nil))
	}
	other := newRotated(f)
	f.Add(other.export(f))
	f.Fuzz(func(t *testing.T, file []byte) {
		r, err := evidence.Verify(file, nil, s.key, other.keys[0].Verifier())
		if err == nil && r.OK != (len(r.Findings) == 0) {
			t.Errorf("ok %t with %d findings", r.OK, len(r.Findings))
		}
		if err == nil && r.OK && (r.Proved != r.Events || r.Events == 0) {
			t.Errorf("good with %d of %d events proved", r.Proved, r.Events)
		}
	})
}
