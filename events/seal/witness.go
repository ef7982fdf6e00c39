package seal

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
)

// WitnessKey is the key by which the cosignatures of a witness are verified: Ed25519,
// as C2SP tlog-cosignature has it. A witness cosigns a checkpoint only if the log
// extends the last one that it cosigned.
type WitnessKey struct {
	v    *torchwood.CosignatureVerifier
	text string
}

// ParseWitnessKey reads a key in the form of C2SP signed-note, NAME+HASH+KEY.
func ParseWitnessKey(text string) (WitnessKey, error) {
	v, err := torchwood.NewCosignatureVerifier(text)
	if err != nil {
		if err := refusePrivate(text, "the witness"); err != nil {
			return WitnessKey{}, err
		}
		if _, signs := note.NewVerifier(text); signs == nil {
			return WitnessKey{}, fmt.Errorf("%+q is a key that signs a log, not one of a witness", text)
		}
		return WitnessKey{}, fmt.Errorf("%+q is no key of a witness, NAME+HASH+KEY: %w", text, err)
	}
	return WitnessKey{v, v.String()}, nil
}

// Name is that of the witness.
func (k WitnessKey) Name() string { return k.v.Name() }

// String is the text of the key.
func (k WitnessKey) String() string { return k.text }

// Cosignature says that a witness has cosigned a checkpoint, and when by its own
// clock.
type Cosignature struct {
	Witness string    `json:"witness"`
	Key     string    `json:"key"`
	At      time.Time `json:"at"`
}

// maxCosignatures bounds the signatures of one checkpoint: package note reads no more.
const maxCosignatures = 100

// errNoCosignature: none of the keys has cosigned.
var errNoCosignature = errors.New("it has no cosignature by this witness")

// Cosignatures returns who of these witnesses has cosigned a checkpoint, in the order
// of keys. Whatever others have signed counts for nothing; a cosignature that names one
// of the keys and is not by it is an error, and so is what is no signed note.
func Cosignatures(signed []byte, keys []WitnessKey) ([]Cosignature, error) {
	sigs, err := cosignatures(signed, keys)
	list := make([]Cosignature, 0, len(sigs))
	for _, s := range sigs {
		list = append(list, s.Cosignature)
	}
	return list, err
}

type cosignature struct {
	Cosignature
	line []byte // of the note, with its end
}

func cosignatures(signed []byte, keys []WitnessKey) ([]cosignature, error) {
	var verifiers []note.Verifier
	for i, k := range keys {
		if !slices.ContainsFunc(keys[:i], func(o WitnessKey) bool { return o.text == k.text }) {
			verifiers = append(verifiers, k.v)
		}
	}
	n, err := note.Open(signed, note.VerifierList(verifiers...))
	if _, none := errors.AsType[*note.UnverifiedNoteError](err); none {
		return nil, nil
	}
	if bad, ok := errors.AsType[*note.InvalidSignatureError](err); ok {
		return nil, fmt.Errorf("the cosignature that names witness %+q is not by its key", bad.Name)
	}
	if err != nil {
		return nil, err
	}
	place := func(s note.Signature) int {
		return slices.IndexFunc(keys, func(k WitnessKey) bool { return k.v.Name() == s.Name && k.v.KeyHash() == s.Hash })
	}
	slices.SortStableFunc(n.Sigs, func(a, b note.Signature) int { return cmp.Compare(place(a), place(b)) })
	var list []cosignature
	for _, s := range n.Sigs {
		at, err := torchwood.CosignatureTimestamp(s)
		if err != nil {
			return nil, err
		}
		list = append(list, cosignature{
			Cosignature{s.Name, keys[place(s)].text, time.Unix(at, 0).UTC()},
			[]byte("— " + s.Name + " " + s.Base64 + "\n"),
		})
	}
	return list, nil
}

// AddCosignature adds to a signed checkpoint what its witness answered, one or more
// lines of signatures, as far as they are by its key.
func AddCosignature(signed, answer []byte, k WitnessKey) ([]byte, Cosignature, error) {
	text, _, ok := bytes.Cut(signed, []byte("\n\n"))
	if !ok {
		return nil, Cosignature{}, errors.New("the checkpoint has no signatures")
	}
	// Beside the checkpoint's text alone: what it was signed with already is not asked
	// after again.
	alone := slices.Concat(text, []byte("\n\n"), answer)
	if n := bytes.Count(answer, []byte("\n")); n > maxCosignatures {
		return nil, Cosignature{}, fmt.Errorf("the witness answered %d lines", n)
	}
	sigs, err := cosignatures(alone, []WitnessKey{k})
	if err != nil {
		return nil, Cosignature{}, err
	}
	if len(sigs) == 0 {
		return nil, Cosignature{}, errNoCosignature
	}
	return slices.Concat(signed, sigs[0].line), sigs[0].Cosignature, nil
}

// WitnessRequest is the body of the add-checkpoint of C2SP tlog-witness: it asks a
// witness that knows a log with old events to cosign a checkpoint, whose tree is in r.
func (r Reader) WitnessRequest(old uint64, signed []byte) ([]byte, error) {
	c, err := ParseCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "old %d\n", old)
	if old > 0 {
		proof, err := r.Consistency(old, c.Size)
		if err != nil {
			return nil, err
		}
		for _, h := range proof {
			b.WriteString(h.String() + "\n")
		}
	}
	b.WriteString("\n")
	b.Write(signed)
	return []byte(b.String()), nil
}

// CheckConsistency checks a proof (RFC 6962) that the log of an earlier checkpoint is
// the beginning of that of a later one.
func CheckConsistency(old, now Checkpoint, proof []events.Hash) error {
	switch {
	case old.Origin != now.Origin:
		return fmt.Errorf("they are of different logs: %s and %s", old.Origin, now.Origin)
	case old.Size == 0 || old.Size > now.Size:
		return ErrBeyond
	}
	hashes := make(tlog.TreeProof, len(proof))
	for i, h := range proof {
		hashes[i] = tlog.Hash(h)
	}
	return tlog.CheckTree(hashes, int64(now.Size), tlog.Hash(now.Root), int64(old.Size), tlog.Hash(old.Root))
}
