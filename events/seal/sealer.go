package seal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"filippo.io/torchwood"

	"fleetledger/events"
)

// Sealer signs the tree of one log and serves it. Methods may be called
// concurrently.
//
// It signs what is durable and nothing else, when it is asked to: at most once
// for what one commit made durable, and never a smaller tree than before as the
// newest.
type Sealer struct {
	log    events.Log
	store  Store
	files  Files
	origin string

	changing sync.Mutex // held while keys change

	// may reports whether this sealer may sign with these keys; nil means always.
	may func(verifiers []string) bool

	mu   sync.Mutex
	keys []*Key // those in force that are here: all of them sign; guarded by mu, changed under both
	last signed // the newest that was kept; guarded by mu
	// stale is true when last is not signed by all keys; guarded by mu.
	stale bool
}

// Files is what a Sealer keeps, and how.
type Files struct {
	// Keys are the keys in force that are here, at least one, and all of one log.
	Keys []*Key
	// Ring has all keys that the log names.
	Ring Keyring
	// Kept is the checkpoint that Keep stored last, nil if there was none.
	Kept []byte
	// Keep stores the newest checkpoint, and KeepKeys the keys: whole or not at all.
	Keep     func(signed []byte) error
	KeepKeys func([]*Key) error
}

// ErrNotOnDuty says that another relay signs, and has not yet signed so much.
var ErrNotOnDuty = errors.New("another relay has the duty of signing, and has not signed this yet")

// SignWhile has the sealer sign only while may says so of its keys; else it serves what
// others have signed, see Offer. It is called before anything else uses the sealer.
func (s *Sealer) SignWhile(may func(verifiers []string) bool) { s.may = may }

// maySign asks may. mu is held.
func (s *Sealer) maySign() bool { return s.may == nil || s.may(s.verifiers()) }

// Offer takes a checkpoint that another relay has signed, by a key of the ring. One that
// covers more than is durable here is left for later; one that contradicts what is
// durable here is an *events.CorruptError.
func (s *Sealer) Offer(text []byte, ring Keyring) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.text != nil && string(text) == string(s.last.text) {
		return nil
	}
	c, err := ring.Verify(text)
	if err != nil {
		return err
	}
	r := NewReader(s.store)
	if c.Size > r.Size() || s.last.text != nil && c.Size <= s.last.Size {
		return nil
	}
	root, err := r.RootAt(c.Size)
	if err != nil {
		return err
	}
	if c.Origin != s.origin || root != c.Root {
		return &events.CorruptError{Position: 1, Detail: fmt.Sprintf(
			"the Merkle root of the first %d events of %s is %s here, another relay has signed %s with %s", c.Size, s.origin, root, c.Origin, c.Root)}
	}
	if err := s.files.Keep(text); err != nil {
		return fmt.Errorf("keep the checkpoint: %w", err)
	}
	s.last = signed{c, text}
	return nil
}

type signed struct {
	Checkpoint
	text []byte // nil if there is none
}

// NewSealer returns the sealer of log, whose tree is in store. A log that is not the
// one that was signed is an *events.CorruptError.
func NewSealer(log events.Log, store Store, f Files) (*Sealer, error) {
	s := &Sealer{log: log, store: store, files: f, keys: f.Keys, origin: f.Keys[0].Origin()}
	if f.Kept == nil {
		return s, nil
	}
	c, err := f.Ring.Verify(f.Kept)
	if err != nil {
		return nil, fmt.Errorf("the kept checkpoint: %w", err)
	}
	r := NewReader(store)
	if c.Size > r.Size() {
		return nil, &events.CorruptError{Position: events.Position(r.Size() + 1),
			Detail: fmt.Sprintf("a checkpoint was signed over %d events, %d are there", c.Size, r.Size())}
	}
	root, err := r.RootAt(c.Size)
	if err != nil {
		return nil, err
	}
	if c.Origin != s.origin || root != c.Root {
		return nil, &events.CorruptError{Position: 1, Detail: fmt.Sprintf(
			"the Merkle root of the first %d events of %s is %s, a checkpoint of %s was signed with %s", c.Size, s.origin, root, c.Origin, c.Root)}
	}
	now, err := sign(c, s.keys)
	if err != nil {
		return nil, err
	}
	s.last, s.stale = signed{c, f.Kept}, !bytes.Equal(now, f.Kept)
	return s, nil
}

// Verifiers are the public texts of the keys that sign.
func (s *Sealer) Verifiers() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.verifiers()
}

func (s *Sealer) verifiers() (keys []string) {
	for _, k := range s.keys {
		keys = append(keys, k.Verifier())
	}
	return keys
}

// Rotate makes a key that signs beside those there are, as soon as record has
// recorded it: it gets the verifier key and reports whether it did, or an error if it
// cannot tell. The key is in the files before: a crash before the event, or an error,
// leaves one there that signs nothing.
func (s *Sealer) Rotate(random io.Reader, record func(verifier string) (bool, error)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	key, err := NewKey(random, s.origin)
	if err != nil {
		return err
	}
	both := append(slices.Clone(s.keys), key)
	if err := s.files.KeepKeys(both); err != nil {
		return fmt.Errorf("keep the new key: %w", err)
	}
	switch recorded, err := record(key.Verifier()); {
	case err != nil:
		return err
	case !recorded:
		return s.files.KeepKeys(s.keys)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys, s.stale = both, true
	return nil
}

// Retire ends the use of a key as soon as record has recorded that: it gets the last
// checkpoint that the key signs, and reports whether it did. The files lose the key
// after the event; a crash between leaves one there that signs nothing.
func (s *Sealer) Retire(verifier string, record func(last Checkpoint, signed []byte) (bool, error)) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	last, err := s.newest(0)
	if err != nil {
		return err
	}
	if recorded, err := record(last.Checkpoint, last.text); err != nil || !recorded {
		return err
	}
	return s.drop(verifier)
}

// Drop ends the use of keys that another relay has retired.
func (s *Sealer) Drop(verifiers ...string) error {
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.drop(verifiers...)
}

// drop takes keys out. changing is held.
func (s *Sealer) drop(verifiers ...string) error {
	rest := slices.DeleteFunc(slices.Clone(s.keys), func(k *Key) bool { return slices.Contains(verifiers, k.Verifier()) })
	s.mu.Lock()
	s.keys, s.stale = rest, true
	s.mu.Unlock()
	if err := s.files.KeepKeys(rest); err != nil {
		return fmt.Errorf("the key is retired and signs nothing any more, but it is still in its file: %w", err)
	}
	return nil
}

// Reader returns a reader of everything that is durable now, and so of every
// checkpoint that was served.
func (s *Sealer) Reader() Reader { return NewReader(s.store) }

// Checkpoint returns the signed checkpoint of everything that is durable.
func (s *Sealer) Checkpoint() ([]byte, error) {
	c, err := s.newest(0)
	return c.text, err
}

// newest returns a checkpoint of at least this size, or, if it is 0, of
// everything that is durable.
func (s *Sealer) newest(size uint64) (signed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	// What others made durable, or signed, while this one waited is in it.
	view := s.store.Tree()
	if s.last.text != nil && !s.stale && (view.Size == s.last.Size || size > 0 && size <= s.last.Size) {
		return s.last, nil
	}
	if !s.maySign() {
		if size == 0 && s.last.text != nil {
			return s.last, nil // what others have signed last
		}
		return signed{}, ErrNotOnDuty
	}
	next, err := s.sign(Checkpoint{Size: view.Size, Root: view.Root})
	if err != nil {
		return signed{}, err
	}
	// Kept before anyone sees it. A crash before the next line loses a signature
	// that nobody has.
	if err := s.files.Keep(next.text); err != nil {
		if s.last.text != nil && size <= s.last.Size {
			// An older checkpoint is as true: readers go on when the disk is full.
			return s.last, nil
		}
		return signed{}, fmt.Errorf("keep the checkpoint: %w", err)
	}
	s.last, s.stale = next, false
	return next, nil
}

// older returns a checkpoint of a tree that is durable.
func (s *Sealer) older(c Checkpoint) (signed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.last.text != nil && !s.stale && s.last.Size == c.Size:
		return s.last, nil
	case !s.maySign():
		return signed{}, ErrNotOnDuty
	}
	return s.sign(c)
}

// sign signs c. mu is held.
func (s *Sealer) sign(c Checkpoint) (signed, error) {
	c.Origin = s.origin
	text, err := sign(c, s.keys)
	return signed{c, text}, err
}

// Proof returns a proof, in the form of C2SP tlog-proof, that the event at p is
// in the log: in its first size events, or, if size is 0, in those of a checkpoint
// that was served. ErrBeyond: the event or the size is not there yet.
func (s *Sealer) Proof(p events.Position, size uint64) ([]byte, error) {
	if p == 0 || size > 0 && uint64(p) > size || uint64(p) > s.store.Tree().Size {
		return nil, ErrBeyond
	}
	var (
		c   signed
		err error
		r   = NewReader(s.store)
	)
	if size == 0 {
		c, err = s.newest(uint64(p))
		r = NewReader(s.store)
	} else {
		var root events.Hash
		if root, err = r.RootAt(size); err == nil {
			c, err = s.older(Checkpoint{Size: size, Root: root})
		}
	}
	if err != nil {
		return nil, err
	}
	proof, err := r.Inclusion(p, c.Size)
	if err != nil {
		return nil, err
	}
	return torchwood.FormatProof(int64(p)-1, proof, c.text), nil
}

// Tile returns a tile or a bundle of entries at its path of C2SP tlog-tiles,
// "tile/0/x001/067.p/3", and whether it is full, that is, stays as it is.
// ErrBeyond: there is no such tile, or not yet.
func (s *Sealer) Tile(ctx context.Context, path string) (data []byte, full bool, err error) {
	t, err := torchwood.ParseTilePath(path)
	if err != nil || torchwood.TilePath(t) != path { // it takes a path of another layout too
		return nil, false, ErrBeyond
	}
	r := NewReader(s.store)
	if t.L == -1 {
		data, err = r.Entries(ctx, s.log, t)
	} else {
		data, err = r.Tile(t)
	}
	return data, t.W == TileWidth, err
}
