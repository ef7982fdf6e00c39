package seal

import (
	"context"
	"errors"
	"fmt"
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
	log   events.Log
	store Store
	key   *Key
	// keep stores the newest checkpoint, whole or not at all.
	keep func(signed []byte) error

	// may reports whether this sealer may sign; nil means always.
	may func() bool

	mu   sync.Mutex
	last signed // the newest that was kept; guarded by mu
}

// ErrNotOnDuty says that another relay signs, and has not yet signed so much.
var ErrNotOnDuty = errors.New("another relay has the duty of signing, and has not signed this yet")

// SignWhile has the sealer sign only while may says so; else it serves what others
// have signed, see Offer. It is called before anything else uses the sealer.
func (s *Sealer) SignWhile(may func() bool) { s.may = may }

// Offer takes a checkpoint that another relay has signed, by one of verifiers. One that
// covers more than is durable here is left for later; one that contradicts what is
// durable here is an *events.CorruptError.
func (s *Sealer) Offer(text []byte, verifiers []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.text != nil && string(text) == string(s.last.text) {
		return nil
	}
	c, err := VerifyCheckpoint(text, verifiers...)
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
	if c.Origin != s.key.Origin() || root != c.Root {
		return &events.CorruptError{Position: 1, Detail: fmt.Sprintf(
			"the Merkle root of the first %d events of %s is %s here, another relay has signed %s with %s", c.Size, s.key.Origin(), root, c.Origin, c.Root)}
	}
	if err := s.keep(text); err != nil {
		return fmt.Errorf("keep the checkpoint: %w", err)
	}
	s.last = signed{c, text}
	return nil
}

type signed struct {
	Checkpoint
	text []byte // nil if there is none
}

// NewSealer returns the sealer of log, whose tree is in store. verifiers are all
// keys that were ever this log's; kept is what keep stored last, nil if nothing
// was. A log that is not the one that was signed is an *events.CorruptError.
func NewSealer(log events.Log, store Store, key *Key, verifiers []string, kept []byte, keep func(signed []byte) error) (*Sealer, error) {
	s := &Sealer{log: log, store: store, key: key, keep: keep}
	if kept == nil {
		return s, nil
	}
	c, err := VerifyCheckpoint(kept, verifiers...)
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
	if c.Origin != key.Origin() || root != c.Root {
		return nil, &events.CorruptError{Position: 1, Detail: fmt.Sprintf(
			"the Merkle root of the first %d events of %s is %s, a checkpoint of %s was signed with %s", c.Size, key.Origin(), root, c.Origin, c.Root)}
	}
	s.last = signed{c, kept}
	return s, nil
}

// Verifier is the public text of the key that signs.
func (s *Sealer) Verifier() string { return s.key.Verifier() }

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
	if s.last.text != nil && (view.Size == s.last.Size || size > 0 && size <= s.last.Size) {
		return s.last, nil
	}
	if s.may != nil && !s.may() {
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
	if err := s.keep(next.text); err != nil {
		if s.last.text != nil && size <= s.last.Size {
			// An older checkpoint is as true: readers go on when the disk is full.
			return s.last, nil
		}
		return signed{}, fmt.Errorf("keep the checkpoint: %w", err)
	}
	s.last = next
	return next, nil
}

// older returns a checkpoint of a tree that is durable.
func (s *Sealer) older(c Checkpoint) (signed, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	switch {
	case last.text != nil && last.Size == c.Size:
		return last, nil
	case s.may != nil && !s.may():
		return signed{}, ErrNotOnDuty
	}
	return s.sign(c)
}

func (s *Sealer) sign(c Checkpoint) (signed, error) {
	c.Origin = s.key.Origin()
	text, err := s.key.sign(c)
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
