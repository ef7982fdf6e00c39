// Package foreign_test has clients that others wrote, unmodified, read a log that is
// served as the relay serves it. It is a module of its own: Tessera brings the clients
// of three clouds with it, which nobody who builds the ledger needs.
package foreign_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"filippo.io/torchwood"
	"github.com/transparency-dev/merkle/compact"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"

	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/events/seal"
)

const origin = "ledger.test/fleet-a"

// sizes lie around the edges of tiles of the first two levels.
var sizes = []int{0, 1, 255, 256, 257, 65_535, 65_536, 65_537}

// log is a log that grows and is served. One bit of the answer at flip is changed.
type log struct {
	*memlog.Log
	key    *seal.Key
	sealer *seal.Sealer
	server *httptest.Server
	flip   atomic.Pointer[string]
	other  *compact.Range // the same tree, by transparency-dev/merkle
}

func newLog(t *testing.T) *log {
	t.Helper()
	l := &log{other: (&compact.RangeFactory{Hash: rfc6962.DefaultHasher.HashChildren}).NewEmptyRange(0)}
	var err error
	if l.Log, err = memlog.New(memlog.Options{Fleet: "fleet-a"}); err != nil {
		t.Fatal(err)
	}
	if l.key, err = seal.NewKey(rand.Reader, origin); err != nil {
		t.Fatal(err)
	}
	l.sealer, err = seal.NewSealer(l.Log, l.Log, seal.Files{Keys: []*seal.Key{l.key}, Keep: func([]byte) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	l.server = httptest.NewServer(http.HandlerFunc(l.serve))
	t.Cleanup(l.server.Close)
	return l
}

func (l *log) serve(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, "/")
	var body []byte
	var err error
	if path == "checkpoint" {
		body, err = l.sealer.Checkpoint()
	} else {
		body, _, err = l.sealer.Tile(r.Context(), path)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotFound)
		return
	}
	if flip := l.flip.Load(); flip != nil && *flip == path {
		body = bytes.Clone(body)
		body[len(body)/2] ^= 1
	}
	_, _ = w.Write(body)
}

// grow appends events until the log has so many.
func (l *log) grow(t *testing.T, size int) {
	t.Helper()
	for n := int(l.Durable()); n < size; {
		var a events.Append
		for ; n < size && len(a.Drafts) < events.MaxAppendEvents; n++ {
			a.Drafts = append(a.Drafts, events.NewDraft(events.Intent{
				ID: fmt.Sprintf("event-%d", n), Stream: "ext-foreign", Type: "ext.test.happened", Schema: events.Schema, Actor: "tester",
			}, [events.SaltBytes]byte{1}, []byte(`{}`)))
		}
		done, err := l.Append(t.Context(), a)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range done.Records {
			if err := l.other.Append(rfc6962.DefaultHasher.HashLeaf(r.Leaf), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// check has Tessera's fsck read everything. It can wait for ever on what is damaged:
// the limit makes that a refusal, as does the number of its workers.
func (l *log) check(t *testing.T, verifier note.Verifier, limit time.Duration) error {
	t.Helper()
	u, err := url.Parse(l.server.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	f, err := client.NewHTTPFetcher(u, &http.Client{Timeout: 10 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- fsck.New(origin, verifier, f, hashes, fsck.Opts{N: 1024}).Check(ctx)
	}()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// hashes are those of a bundle's leaves.
func hashes(bundle []byte) ([][]byte, error) {
	b := api.EntryBundle{}
	if err := b.UnmarshalText(bundle); err != nil {
		return nil, err
	}
	var list [][]byte
	for _, e := range b.Entries {
		list = append(list, rfc6962.DefaultHasher.HashLeaf(e))
	}
	return list, nil
}

func TestTessera(t *testing.T) {
	l := newLog(t)
	verifier, err := note.NewVerifier(l.key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := seal.NewKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	strangers, err := note.NewVerifier(stranger.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(l.server.URL + "/")
	if err != nil {
		t.Fatal(err)
	}
	fetcher, err := client.NewHTTPFetcher(u, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, size := range sizes {
		l.grow(t, size)
		c, _, _, err := client.FetchCheckpoint(t.Context(), fetcher.ReadCheckpoint, verifier, origin)
		if err != nil || c.Size != uint64(size) {
			t.Fatalf("at %d: %+v, %v", size, c, err)
		}
		root, err := l.other.GetRootHash(nil)
		if err != nil || size > 0 && !bytes.Equal(root, c.Hash) || size == 0 && !bytes.Equal(c.Hash, rfc6962.DefaultHasher.EmptyRoot()) {
			t.Errorf("at %d the root is %x, not %x (%v)", size, c.Hash, root, err)
		}
		if _, _, _, err := client.FetchCheckpoint(t.Context(), fetcher.ReadCheckpoint, strangers, origin); err == nil {
			t.Errorf("at %d: verified with a stranger's key", size)
		}
		if size == 0 {
			continue
		}
		if err := l.check(t, verifier, 30*time.Second); err != nil {
			t.Errorf("fsck at %d: %v", size, err)
		}
		builder, err := client.NewProofBuilder(t.Context(), uint64(size), fetcher.ReadTile)
		if err != nil {
			t.Fatal(err)
		}
		for _, index := range []uint64{0, uint64(size) / 2, uint64(size) - 1} {
			p, err := builder.InclusionProof(t.Context(), index)
			if err != nil {
				t.Fatalf("at %d: %v", size, err)
			}
			bundle, err := client.GetEntryBundle(t.Context(), fetcher.ReadEntryBundle, index/256, uint64(size))
			if err != nil {
				t.Fatalf("at %d: %v", size, err)
			}
			leaf := rfc6962.DefaultHasher.HashLeaf(bundle.Entries[index%256])
			if err := proof.VerifyInclusion(rfc6962.DefaultHasher, index, uint64(size), leaf, p, c.Hash); err != nil {
				t.Errorf("leaf %d at %d: %v", index, size, err)
			}
		}
	}
}

func TestTesseraRejectsAFlippedBit(t *testing.T) {
	l := newLog(t)
	verifier, err := note.NewVerifier(l.key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	l.grow(t, 600)
	if err := l.check(t, verifier, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"checkpoint", "tile/0/000", "tile/0/002.p/88", "tile/1/000.p/2", "tile/entries/001", "tile/entries/002.p/88"} {
		l.flip.Store(&path)
		if err := l.check(t, verifier, 3*time.Second); err == nil {
			t.Errorf("a bit of %s was flipped, and fsck has nothing to say", path)
		}
	}
}

func TestTorchwood(t *testing.T) {
	l := newLog(t)
	verifier, err := note.NewVerifier(l.key.Verifier())
	if err != nil {
		t.Fatal(err)
	}
	policy := torchwood.ThresholdPolicy(2, torchwood.SingleVerifierPolicy(verifier), torchwood.OriginPolicy(origin))
	read := func() (int, error) {
		f, err := torchwood.NewTileFetcher(l.server.URL, torchwood.WithHTTPClient(&http.Client{Timeout: 10 * time.Second}))
		if err != nil {
			return 0, err
		}
		c, err := torchwood.NewClient(f)
		if err != nil {
			return 0, err
		}
		signed, err := f.ReadEndpoint(t.Context(), "checkpoint")
		if err != nil {
			return 0, err
		}
		checkpoint, _, err := torchwood.VerifyCheckpoint(signed, policy)
		if err != nil {
			return 0, err
		}
		n := 0
		for range c.AllEntries(t.Context(), checkpoint.Tree, 0) {
			n++
		}
		return n, c.Err()
	}
	for _, size := range sizes {
		l.grow(t, size)
		if n, err := read(); err != nil || n != size {
			t.Errorf("at %d: %d entries, %v", size, n, err)
		}
	}
	for _, path := range []string{"checkpoint", "tile/entries/001", "tile/0/001", "tile/1/000", "tile/2/000.p/1"} {
		l.flip.Store(&path)
		if n, err := read(); err == nil && n == sizes[len(sizes)-1] {
			t.Errorf("a bit of %s was flipped, and all is accepted", path)
		}
	}
}
