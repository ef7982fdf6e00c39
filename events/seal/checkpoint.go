package seal

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"

	"fleetledger/events"
)

// Origin names a log in its checkpoints. It is the name of its keys too.
func Origin(host, fleet string) (string, error) {
	bad := func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-') }
	if host == "" || len(host) > 253 || strings.ContainsFunc(host, bad) {
		return "", fmt.Errorf("%q is no host name: it has a-z, 0-9, dots and hyphens, at most 253 of them", host)
	}
	if !events.ValidID(fleet) {
		return "", fmt.Errorf("fleet %q is not a valid id", fleet)
	}
	return host + "/" + fleet, nil
}

// Key is a key that signs the checkpoints of one log: Ed25519, in the forms of
// golang.org/x/mod/sumdb/note.
type Key struct {
	private, verifier string
	signer            note.Signer
}

// NewKey makes a key for the log of this origin.
func NewKey(random io.Reader, origin string) (*Key, error) {
	private, _, err := note.GenerateKey(random, origin)
	if err != nil {
		return nil, err
	}
	return ParseKey(private)
}

// ParseKey reads what Private gave.
func ParseKey(private string) (*Key, error) {
	signer, err := note.NewSigner(private)
	if err != nil {
		return nil, err // does not have the text in it
	}
	// PRIVATE+KEY+name+hash+base64(type, seed): NewSigner has checked it.
	raw, err := base64.StdEncoding.DecodeString(strings.SplitN(private, "+", 5)[4])
	if err != nil {
		return nil, err
	}
	public := ed25519.NewKeyFromSeed(raw[1:]).Public().(ed25519.PublicKey)
	verifier, err := note.NewEd25519VerifierKey(signer.Name(), public)
	if err != nil {
		return nil, err
	}
	return &Key{private, verifier, signer}, nil
}

// Private is the secret text of the key.
func (k *Key) Private() string { return k.private }

// Verifier is the public text of the key.
func (k *Key) Verifier() string { return k.verifier }

// Origin is that of the log whose checkpoints the key signs.
func (k *Key) Origin() string { return k.signer.Name() }

// VerifierOrigin is the origin of the log that a verifier key is for.
func VerifierOrigin(verifier string) (string, error) {
	v, err := newVerifier(verifier)
	if err != nil {
		return "", err
	}
	return v.Name(), nil
}

// newVerifier reads a verifier key. Its error does not repeat a private one.
func newVerifier(key string) (note.Verifier, error) {
	v, err := note.NewVerifier(key)
	if err == nil {
		return v, nil
	}
	if err := refusePrivate(key, "the log's own directory"); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("verifier key %+q: %w", key, err)
}

// refusePrivate is an error, without the key, for a private key given where a public
// one belongs. holder is who alone is to have it.
func refusePrivate(key, holder string) error {
	if !strings.Contains(key, "PRIVATE+KEY+") {
		return nil
	}
	return fmt.Errorf("the key given is a private one, which only %s is to hold: give its public part, NAME+HASH+KEY", holder)
}

// Checkpoint says how much of a log there was, and its Merkle root then.
type Checkpoint struct {
	Origin string
	Size   uint64
	Root   events.Hash
}

// sign writes c as C2SP tlog-checkpoint has it, signed by each key. The same c and
// keys give the same bytes.
func sign(c Checkpoint, keys []*Key) ([]byte, error) {
	text := torchwood.Checkpoint{Origin: c.Origin}
	text.N, text.Hash = int64(c.Size), [32]byte(c.Root)
	signers := make([]note.Signer, len(keys))
	for i, k := range keys {
		signers[i] = k.signer
	}
	return note.Sign(&note.Note{Text: text.String()}, signers...)
}

// ParseCheckpoint reads what a checkpoint claims, whoever signed it.
func ParseCheckpoint(signed []byte) (Checkpoint, error) {
	text, _, ok := bytes.Cut(signed, []byte("\n\n"))
	if !ok {
		return Checkpoint{}, errors.New("it has no signatures")
	}
	c, err := torchwood.ParseCheckpoint(string(text) + "\n")
	if err != nil {
		return Checkpoint{}, err
	}
	return checkpoint(c)
}

func checkpoint(c torchwood.Checkpoint) (Checkpoint, error) {
	if c.Extension != "" {
		return Checkpoint{}, errors.New("it has extension lines, which no checkpoint of a ledger has")
	}
	return Checkpoint{Origin: c.Origin, Size: uint64(c.N), Root: events.Hash(c.Hash)}, nil
}

// ErrNotSigned: none of the keys has signed a checkpoint.
var ErrNotSigned = errors.New("it is not signed by a key of this log")

// VerifyCheckpoint reads a signed checkpoint that one of these keys must have
// signed, for the log whose name the key has.
func VerifyCheckpoint(signed []byte, verifiers ...string) (Checkpoint, error) {
	policies := make([]torchwood.Policy, 0, len(verifiers))
	for _, key := range verifiers {
		v, err := newVerifier(key)
		if err != nil {
			return Checkpoint{}, err
		}
		policies = append(policies, torchwood.ThresholdPolicy(2, torchwood.SingleVerifierPolicy(v), torchwood.OriginPolicy(v.Name())))
	}
	if len(policies) == 0 {
		return Checkpoint{}, ErrNotSigned
	}
	c, _, err := torchwood.VerifyCheckpoint(signed, torchwood.ThresholdPolicy(1, policies...))
	if _, unsigned := errors.AsType[*note.UnverifiedNoteError](err); unsigned {
		return Checkpoint{}, ErrNotSigned
	}
	if err != nil {
		return Checkpoint{}, err
	}
	return checkpoint(c)
}
