package seal_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/events/seal"
)

func newLog(t testing.TB) *memlog.Log {
	t.Helper()
	l, err := memlog.New(memlog.Options{Fleet: "fleet-a"})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// fill appends events until there are this many.
func fill(t testing.TB, l events.Log, size int) {
	t.Helper()
	for n := int(l.Durable()); n < size; n = int(l.Durable()) {
		var a events.Append
		for i := range min(events.MaxAppendEvents, size-n) {
			id := fmt.Sprintf("id-%d", n+i)
			a.Drafts = append(a.Drafts, events.NewDraft(events.Intent{ID: id, Stream: "s", Type: "ext.test", Schema: 1, Actor: "tester"},
				[events.SaltBytes]byte{byte(n)}, []byte(`{}`)))
		}
		if _, err := l.Append(context.Background(), a); err != nil {
			t.Fatal(err)
		}
	}
}

func leaf(t testing.TB, l events.Log, p events.Position) []byte {
	t.Helper()
	for r, err := range l.ReadAll(context.Background(), p-1) {
		if err != nil {
			t.Fatal(err)
		}
		return r.Leaf
	}
	t.Fatalf("no position %d", p)
	return nil
}

func newKey(t testing.TB, origin string) *seal.Key {
	t.Helper()
	k, err := seal.NewKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

const origin = "ledger.test/fleet-a"

// kept is where a sealer keeps its checkpoint.
type kept struct {
	mu    sync.Mutex
	texts [][]byte
	keys  []*seal.Key
	err   error
}

func (k *kept) keep(b []byte) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err == nil {
		k.texts = append(k.texts, b)
	}
	return k.err
}

func (k *kept) files(keys ...*seal.Key) seal.Files {
	return seal.Files{Keys: keys, Keep: k.keep, KeepKeys: func(keys []*seal.Key) error {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.err == nil {
			k.keys = keys
		}
		return k.err
	}}
}

func newSealer(t testing.TB, l *memlog.Log, key *seal.Key, k *kept) *seal.Sealer {
	t.Helper()
	s, err := seal.NewSealer(l, l, k.files(key))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func policy(t testing.TB, key *seal.Key) torchwood.Policy {
	t.Helper()
	v, err := note.NewVerifier(key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	return torchwood.ThresholdPolicy(2, torchwood.SingleVerifierPolicy(v), torchwood.OriginPolicy(key.Origin()))
}

// served hands a sealer to a torchwood client, with one bit flipped at a path if
// so wished.
type served struct {
	*seal.Sealer
	flip string
	bit  int
}

func (s served) ReadTiles(ctx context.Context, tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	for i, t := range tiles {
		b, full, err := s.Tile(ctx, torchwood.TilePath(t))
		if err != nil {
			return nil, err
		}
		if full != (t.W == seal.TileWidth) {
			return nil, fmt.Errorf("%v is said to be full: %t", t, full)
		}
		if torchwood.TilePath(t) == s.flip {
			b = bytes.Clone(b)
			b[s.bit/8%len(b)] ^= 1 << (s.bit % 8)
		}
		data[i] = b
	}
	return data, nil
}

func (s served) SaveTiles([]tlog.Tile, [][]byte) {}

func (s served) ReadEndpoint(context.Context, string) ([]byte, error) {
	return nil, errors.New("not here")
}

// TestTorchwoodReadsTheLog has an unmodified client of C2SP logs read logs of many
// sizes, checkpoint, tiles, entries and proofs.
func TestTorchwoodReadsTheLog(t *testing.T) {
	sizes := []int{0, 1, 255, 256, 257, 65535, 65536, 65537}
	if testing.Short() {
		sizes = sizes[:5]
	}
	l, key := newLog(t), newKey(t, origin)
	s := newSealer(t, l, key, &kept{})
	var earlier []torchwood.Checkpoint
	for _, size := range sizes {
		fill(t, l, size)
		signed, err := s.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := torchwood.VerifyCheckpoint(signed, policy(t, key))
		if err != nil {
			t.Fatalf("checkpoint at %d: %v\n%s", size, err, signed)
		}
		if c.N != int64(size) || c.Origin != origin || c.Extension != "" {
			t.Fatalf("checkpoint at %d: %+v", size, c)
		}
		if size == 0 {
			continue
		}
		client, err := torchwood.NewClient(served{Sealer: s})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		next, stop := pull(l)
		for i, entry := range client.AllEntries(t.Context(), c.Tree, 0) {
			if r := next(); i != int64(n) || !bytes.Equal(entry, r.Leaf) {
				t.Fatalf("size %d: entry %d is %s, not %s", size, i, entry, r.Leaf)
			}
			n++
		}
		stop()
		if err := client.Err(); err != nil || n != size {
			t.Fatalf("size %d: %d entries, %v", size, n, err)
		}
		hashes := torchwood.TileHashReaderWithContext(t.Context(), c.Tree, served{Sealer: s})
		for _, old := range earlier {
			if h, err := tlog.TreeHash(old.N, hashes); err != nil || h != old.Hash {
				t.Fatalf("the tree of %d in that of %d: %s, %v, not %s", old.N, size, h, err, old.Hash)
			}
		}
		earlier = append(earlier, c)
		for _, p := range []int{1, (size + 1) / 2, size} {
			proof, err := s.Proof(events.Position(p), 0)
			if err != nil {
				t.Fatal(err)
			}
			if err := torchwood.VerifyProof(policy(t, key), tlog.RecordHash(leaf(t, l, events.Position(p))), proof); err != nil {
				t.Fatalf("position %d of %d: %v", p, size, err)
			}
		}
		for _, path := range []string{"tile/0/000", "tile/entries/000"} {
			if size < seal.TileWidth {
				path += fmt.Sprintf(".p/%d", size)
			}
			for _, bit := range []int{0, 8*40 + 3} {
				client, err := torchwood.NewClient(served{Sealer: s, flip: path, bit: bit})
				if err != nil {
					t.Fatal(err)
				}
				for range client.AllEntries(t.Context(), c.Tree, 0) {
				}
				if client.Err() == nil {
					t.Errorf("size %d: bit %d of %s was flipped, and the log accepted", size, bit, path)
				}
			}
		}
	}
}

// pull yields the records of a log one at a time.
func pull(l events.Log) (next func() events.Record, stop func()) {
	ch, done := make(chan events.Record), make(chan struct{})
	go func() {
		defer close(ch)
		for r := range l.ReadAll(context.Background(), 0) {
			select {
			case ch <- r:
			case <-done:
				return
			}
		}
	}()
	return func() events.Record { return <-ch }, func() { close(done) }
}

// idle reports whether a bit means nothing: base64 of 32 or 68 bytes has two such
// bits before its padding, and neither torchwood nor note looks at them.
func idle(text []byte, bit int) bool { return bit/8+1 < len(text) && text[bit/8+1] == '=' }

// TestProofs: a proof is about one event, and every flipped bit is noticed.
func TestProofs(t *testing.T) {
	l, key := newLog(t), newKey(t, origin)
	s := newSealer(t, l, key, &kept{})
	fill(t, l, 300)
	proof, err := s.Proof(17, 0)
	if err != nil {
		t.Fatal(err)
	}
	h := tlog.RecordHash(leaf(t, l, 17))
	if err := torchwood.VerifyProof(policy(t, key), h, proof); err != nil {
		t.Fatal(err)
	}
	if err := torchwood.VerifyProof(policy(t, key), tlog.RecordHash(leaf(t, l, 18)), proof); err == nil {
		t.Error("the proof of 17 proves 18")
	}
	if err := torchwood.VerifyProof(policy(t, newKey(t, origin)), h, proof); err == nil {
		t.Error("another key verifies it")
	}
	for bit := range 8 * len(proof) {
		bad := bytes.Clone(proof)
		bad[bit/8] ^= 1 << (bit % 8)
		if err := torchwood.VerifyProof(policy(t, key), h, bad); err == nil && !idle(proof, bit) {
			t.Errorf("bit %d flipped (%q) and accepted", bit, bad[bit/8])
		}
	}
	// An earlier size, and one that was not there when the log was first signed.
	fill(t, l, 700)
	for _, size := range []uint64{17, 300, 512, 700} {
		proof, err := s.Proof(17, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := torchwood.VerifyProof(policy(t, key), h, proof); err != nil || !strings.Contains(string(proof), fmt.Sprintf("\n%d\n", size)) {
			t.Errorf("at size %d: %v\n%s", size, err, proof)
		}
	}
	for _, c := range []struct {
		p    events.Position
		size uint64
	}{{0, 0}, {701, 0}, {1, 701}, {18, 17}, {0, 5}} {
		if b, err := s.Proof(c.p, c.size); !errors.Is(err, seal.ErrBeyond) {
			t.Errorf("a proof of %d in %d: %s, %v", c.p, c.size, b, err)
		}
	}
}

func TestTilePaths(t *testing.T) {
	l := newLog(t)
	s := newSealer(t, l, newKey(t, origin), &kept{})
	fill(t, l, 600)
	for path, bytes := range map[string]int{
		"tile/0/000": 8192, "tile/0/001": 8192, "tile/0/000.p/3": 96, "tile/0/002.p/88": 88 * 32, "tile/1/000.p/2": 64, "tile/1/000.p/1": 32,
	} {
		b, full, err := s.Tile(t.Context(), path)
		if err != nil || len(b) != bytes || full != (bytes == 8192) {
			t.Errorf("%s: %d bytes, full %t, %v", path, len(b), full, err)
		}
	}
	for _, path := range []string{
		"tile/0/002", "tile/0/002.p/89", "tile/0/002.p/256", "tile/0/003.p/1", "tile/1/000", "tile/1/000.p/3", "tile/2/000.p/1", "tile/8/000",
		"tile/63/000.p/1", "tile/0/2.p/1", "tile/0/x000/001", "tile/-1/000", "tile/0", "tile/", "", "tile/0/000.p/0", "tile/0/000.p/x", "tile/0/../0/000",
		"tile/entries/002", "tile/entries/002.p/89", "tile/entries/003.p/1", "tile/entries/x999/x999/x999/x999/x999/x999/x999/999",
		"tile/0/x999/x999/x999/x999/x999/x999/x999/x999/999", "tile/data/000", "checkpoint",
	} {
		if b, _, err := s.Tile(t.Context(), path); !errors.Is(err, seal.ErrBeyond) {
			t.Errorf("%q: %d bytes, %v", path, len(b), err)
		}
	}
}

// TestCheckpointsNeverGoBackwards: signed once for each head, kept before it is
// served, and growing only.
func TestCheckpointsNeverGoBackwards(t *testing.T) {
	l, key, k := newLog(t), newKey(t, origin), &kept{}
	s := newSealer(t, l, key, k)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			last := uint64(0)
			for range 200 {
				before := l.Durable()
				signed, err := s.Checkpoint()
				if err != nil {
					t.Error(err)
					return
				}
				c, err := seal.VerifyCheckpoint(signed, key.Verifier())
				if err != nil || c.Size < last || c.Size < uint64(before) || c.Size > uint64(l.Durable()) {
					t.Errorf("size %d after %d, the log was at %d: %v", c.Size, last, before, err)
					return
				}
				last = c.Size
			}
		})
	}
	wg.Go(func() {
		for n := range 150 {
			fill(t, l, 3*n)
		}
	})
	wg.Wait()
	for i, text := range k.texts {
		c, err := seal.VerifyCheckpoint(text, key.Verifier())
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			if before, _ := seal.ParseCheckpoint(k.texts[i-1]); c.Size <= before.Size {
				t.Errorf("size %d was signed after %d", c.Size, before.Size)
			}
		}
	}

	// What cannot be kept is not served.
	old, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	fill(t, l, 1000)
	full := errors.New("the disk is full")
	k.mu.Lock()
	k.err = full
	k.mu.Unlock()
	if now, err := s.Checkpoint(); err != nil || !bytes.Equal(now, old) {
		t.Errorf("the disk is full: %s, %v; %s was served before", now, err, old)
	}
	if b, err := s.Proof(1, 0); err != nil || !bytes.Contains(b, old) {
		t.Errorf("the disk is full: %s, %v", b, err)
	}
	if _, err := s.Proof(1000, 0); !errors.Is(err, full) {
		t.Errorf("a proof that needs a newer checkpoint: %v", err)
	}
	if _, err := newSealer(t, l, key, k).Checkpoint(); !errors.Is(err, full) {
		t.Errorf("the first checkpoint cannot be kept: %v", err)
	}
}

// TestKeptCheckpointIsHeldAgainstTheLog is what a restart does.
func TestKeptCheckpointIsHeldAgainstTheLog(t *testing.T) {
	l, key, k := newLog(t), newKey(t, origin), &kept{}
	s := newSealer(t, l, key, k)
	fill(t, l, 300)
	text, err := s.Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	reopen := func(l *memlog.Log, key *seal.Key, verifiers ...string) (*seal.Sealer, error) {
		f := k.files(key)
		f.Kept = text
		for _, v := range verifiers {
			f.Ring = append(f.Ring, seal.RingKey{Verifier: v})
		}
		return seal.NewSealer(l, l, f)
	}
	again, err := reopen(l, key, key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	if now, err := again.Checkpoint(); err != nil || !bytes.Equal(now, text) || len(k.texts) != 1 {
		t.Errorf("after a restart %s, %v, kept %d times", now, err, len(k.texts))
	}
	fill(t, l, 400)
	next := newKey(t, origin)
	if s, err := reopen(l, next, key.Verifier(), next.Verifier()); err != nil {
		t.Errorf("with a new key: %v", err)
	} else if now, err := s.Checkpoint(); err != nil {
		t.Error(err)
	} else if c, err := seal.VerifyCheckpoint(now, next.Verifier()); err != nil || c.Size != 400 {
		t.Errorf("with a new key: %+v, %v", c, err)
	}

	shorter, other := newLog(t), newLog(t)
	fill(t, shorter, 299)
	fill(t, other, 300) // at other times, so with other headers
	for what, c := range map[string]struct {
		log       *memlog.Log
		key       *seal.Key
		verifiers []string
		position  events.Position // 0 if it is no corruption
	}{
		"a shorter log":    {shorter, key, []string{key.Verifier()}, 300},
		"another log":      {other, key, []string{key.Verifier()}, 1},
		"another origin":   {l, newKey(t, "ledger.test/fleet-b"), []string{key.Verifier()}, 1},
		"a stranger's key": {l, key, []string{next.Verifier()}, 0},
		"no key":           {l, key, nil, 0},
	} {
		_, err := reopen(c.log, c.key, c.verifiers...)
		var corrupt *events.CorruptError
		if c.position == 0 && !errors.Is(err, seal.ErrNotSigned) || c.position > 0 && (!errors.As(err, &corrupt) || corrupt.Position != c.position) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range [][]byte{{}, []byte("x"), text[:len(text)-3], bytes.Replace(text, []byte("\n300\n"), []byte("\n299\n"), 1)} {
		f := k.files(key)
		f.Kept, f.Ring = bad, seal.Keyring{{Verifier: key.Verifier()}}
		if _, err := seal.NewSealer(l, l, f); err == nil {
			t.Errorf("the kept checkpoint %q was taken", bad)
		}
	}
}

func TestVerifyCheckpointRefuses(t *testing.T) {
	l, key := newLog(t), newKey(t, origin)
	fill(t, l, 5)
	text, err := newSealer(t, l, key, &kept{}).Checkpoint()
	if err != nil {
		t.Fatal(err)
	}
	if c, err := seal.VerifyCheckpoint(text, newKey(t, origin).Verifier(), key.Verifier()); err != nil || c.Size != 5 || c.Origin != origin || c.Root != l.Tree().Root {
		t.Errorf("%+v, %v", c, err)
	}
	for bit := range 8 * len(text) {
		bad := bytes.Clone(text)
		bad[bit/8] ^= 1 << (bit % 8)
		if _, err := seal.VerifyCheckpoint(bad, key.Verifier()); err == nil && !idle(text, bit) {
			t.Errorf("bit %d flipped (%q) and accepted", bit, bad[bit/8])
		}
	}
	signer, err := note.NewSigner(key.Private())
	if err != nil {
		t.Fatal(err)
	}
	root := l.Tree().Root
	for what, c := range map[string]torchwood.Checkpoint{
		"another origin":  {Origin: "ledger.test/fleet-b", Tree: tlog.Tree{N: 5, Hash: tlog.Hash(root)}},
		"extension lines": {Origin: origin, Tree: tlog.Tree{N: 5, Hash: tlog.Hash(root)}, Extension: "more\n"},
	} {
		text, err := note.Sign(&note.Note{Text: c.String()}, signer)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := seal.VerifyCheckpoint(text, key.Verifier()); err == nil {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

func TestKeys(t *testing.T) {
	key := newKey(t, origin)
	again, err := seal.ParseKey(key.Private())
	if err != nil || again.Verifier() != key.Verifier() || again.Origin() != origin {
		t.Fatalf("read again: %+v, %v", again, err)
	}
	if o, err := seal.VerifierOrigin(key.Verifier()); err != nil || o != origin {
		t.Errorf("origin of the verifier key: %q, %v", o, err)
	}
	// Given in place of the public one, the secret is in no error.
	_, origin := seal.VerifierOrigin(key.Private())
	_, checkpoint := seal.VerifyCheckpoint(nil, key.Private())
	_, witness := seal.ParseWitnessKey(key.Private())
	for what, err := range map[string]error{"origin": origin, "checkpoint": checkpoint, "witness": witness} {
		if err == nil || strings.Contains(err.Error(), key.Private()[len(key.Private())-8:]) || !strings.Contains(err.Error(), "private") {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, bad := range []string{"", "x", key.Verifier(), key.Private()[:len(key.Private())-8], strings.Replace(key.Private(), "fleet-a", "fleet-b", 1)} {
		if _, err := seal.ParseKey(bad); err == nil {
			t.Errorf("%q is taken for a key", bad)
		} else if len(bad) > 20 && strings.Contains(err.Error(), bad[len(bad)-8:]) {
			t.Errorf("the error tells the key: %v", err)
		}
	}
	for _, c := range [][2]string{{"", "a"}, {"Host", "a"}, {"a b", "a"}, {"a+b", "a"}, {"a/b", "a"}, {"host", "A"}, {"host", ""}, {strings.Repeat("a", 254), "a"}} {
		if o, err := seal.Origin(c[0], c[1]); err == nil {
			t.Errorf("origin %q of %q", o, c)
		}
	}
	if o, err := seal.Origin("ledger.example.org", "default"); err != nil || o != "ledger.example.org/default" {
		t.Errorf("%q, %v", o, err)
	}
}

func TestExtends(t *testing.T) {
	l, key := newLog(t), newKey(t, origin)
	s := newSealer(t, l, key, &kept{})
	var all []seal.Checkpoint
	for _, size := range []int{0, 1, 100, 256, 300, 700} {
		fill(t, l, size)
		text, err := s.Checkpoint()
		if err != nil {
			t.Fatal(err)
		}
		c, err := seal.VerifyCheckpoint(text, key.Verifier())
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	flip := ""
	fetch := func(path string) ([]byte, error) {
		b, _, err := s.Tile(t.Context(), path)
		if path == flip {
			b = bytes.Clone(b)
			b[17] ^= 1
		}
		return b, err
	}
	for i, now := range all {
		for j, old := range all {
			if err := seal.Extends(old, now, fetch); (err == nil) != (j <= i) {
				t.Errorf("%d extends %d: %v", now.Size, old.Size, err)
			}
			if old.Size == 0 {
				continue
			}
			old.Root[3] ^= 1
			if err := seal.Extends(old, now, fetch); err == nil {
				t.Errorf("%d extends %d events that never were", now.Size, old.Size)
			}
		}
	}
	other := all[1]
	other.Origin = "ledger.test/fleet-b"
	if err := seal.Extends(other, all[5], fetch); err == nil {
		t.Error("a log extends another log")
	}
	for _, flip = range []string{"tile/0/001", "tile/1/000.p/2", "tile/0/002.p/188"} {
		if err := seal.Extends(all[4], all[5], fetch); err == nil {
			t.Errorf("a bit of %s was flipped, and the tiles accepted", flip)
		}
	}
}
