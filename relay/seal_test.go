package relay

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
)

// asActor sends an actor's token, and flips one bit of what is answered at a path
// if so wished.
type asActor struct {
	*fleet
	as   string
	flip string
	bit  int
}

func (a asActor) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+a.tokens[a.as])
	resp, err := a.client.Transport.RoundTrip(r)
	if err != nil || r.URL.Path != a.flip {
		return resp, err
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	b[a.bit/8] ^= 1 << (a.bit % 8)
	resp.Body = io.NopCloser(bytes.NewReader(b))
	return resp, nil
}

// fetcher is an unmodified client of C2SP logs.
func (a asActor) fetcher() *torchwood.TileFetcher {
	a.t.Helper()
	f, err := torchwood.NewTileFetcher(a.server.URL+"/log", torchwood.WithHTTPClient(&http.Client{Transport: a, Timeout: 10 * time.Second}))
	if err != nil {
		a.t.Fatal(err)
	}
	return f
}

// policy is what an auditor trusts: the one key that the log names.
func (f *fleet) policy(as string) torchwood.Policy {
	f.t.Helper()
	key := f.do(as, "GET", "/v1/events?stream=ledger&type=key.added", "").want(200).text("items.0.data.verifier_key")
	v, err := note.NewVerifier(key)
	if err != nil {
		f.t.Fatal(err)
	}
	return torchwood.ThresholdPolicy(2, torchwood.SingleVerifierPolicy(v), torchwood.OriginPolicy(v.Name()))
}

// notes appends agents' events until the log has this many.
func (f *fleet) notes(size int) {
	f.t.Helper()
	for n := int(f.ledger.Log().Durable()); n < size; n = int(f.ledger.Log().Durable()) {
		var batch []string
		for i := range min(500, size-n) {
			batch = append(batch, fmt.Sprintf(`{"specversion":"1.0","id":"n%d","source":"/a","type":"ext.a","subject":"ext-a"}`, n+i))
		}
		f.do("root", "POST", "/v1/events", "["+strings.Join(batch, ",")+"]").want(201)
	}
}

func (a asActor) checkpoint(p torchwood.Policy) (torchwood.Checkpoint, error) {
	signed, err := a.fetcher().ReadEndpoint(a.t.Context(), "checkpoint")
	if err != nil {
		return torchwood.Checkpoint{}, err
	}
	c, _, err := torchwood.VerifyCheckpoint(signed, p)
	return c, err
}

// entries reads the whole log of a checkpoint as an auditor does.
func (a asActor) entries(c torchwood.Checkpoint) (leaves [][]byte, err error) {
	client, err := torchwood.NewClient(a.fetcher())
	if err != nil {
		a.t.Fatal(err)
	}
	for _, e := range client.AllEntries(a.t.Context(), c.Tree, 0) {
		leaves = append(leaves, e)
	}
	return leaves, client.Err()
}

func TestServedLogIsAccepted(t *testing.T) {
	f := newFleet(t)
	root, policy := asActor{fleet: f, as: "root"}, f.policy("root")
	var before torchwood.Checkpoint
	for _, size := range []int{int(f.ledger.Log().Durable()), 255, 256, 257, 1300} {
		f.notes(size)
		c, err := root.checkpoint(policy)
		if err != nil || c.N != int64(size) || c.Origin != "relay.test/default" {
			t.Fatalf("the log has %d events, the checkpoint is %+v, %v", size, c, err)
		}
		leaves, err := root.entries(c)
		if err != nil || len(leaves) != size {
			t.Fatalf("size %d: %d entries, %v", size, len(leaves), err)
		}
		var recs []events.Record
		for r, err := range f.ledger.Log().ReadAll(t.Context(), 0) {
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(leaves[len(recs)], r.Leaf) {
				t.Fatalf("entry %d is %s, not %s", len(recs), leaves[len(recs)], r.Leaf)
			}
			recs = append(recs, r)
		}
		if before.N > 0 {
			h, err := tlog.TreeHash(before.N, torchwood.TileHashReaderWithContext(t.Context(), c.Tree, root.fetcher()))
			if err != nil || h != before.Hash {
				t.Fatalf("the tree of %d is not in that of %d: %v", before.N, c.N, err)
			}
		}
		for _, p := range []int{1, size / 2, size} {
			for _, query := range []string{"", fmt.Sprintf("?size=%d", size), fmt.Sprintf("?size=%d", p)} {
				proof := f.do("root", "GET", fmt.Sprintf("/v1/proofs/%d%s", p, query), "").want(200)
				if err := torchwood.VerifyProof(policy, tlog.Hash(recs[p-1].LeafHash), proof.body); err != nil {
					t.Fatalf("position %d%s of %d: %v\n%s", p, query, size, err, proof.body)
				}
			}
		}
		before = c
	}
}

func TestReceiptIsProved(t *testing.T) {
	f := newFleet(t)
	policy := f.policy("root")
	for i := range 5 {
		a := f.do("root", "POST", "/v1/events", fmt.Sprintf(`{"specversion":"1.0","id":"e%d","source":"/a","type":"ext.a","subject":"ext-a"}`, i)).want(201)
		var leaf events.Hash
		if err := leaf.UnmarshalText([]byte(a.text("receipt.leaf_hash"))); err != nil {
			t.Fatal(err)
		}
		proof := f.do("root", "GET", fmt.Sprintf("/v1/proofs/%v", a.get("receipt.position")), "").want(200)
		if err := torchwood.VerifyProof(policy, tlog.Hash(leaf), proof.body); err != nil {
			t.Errorf("%v\n%s", err, proof.body)
		}
	}
}

func TestFlippedBitsAreRejected(t *testing.T) {
	f := newFleet(t)
	f.notes(300)
	root, policy := asActor{fleet: f, as: "root"}, f.policy("root")
	c, err := root.checkpoint(policy)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/log/checkpoint", "/log/tile/0/000", "/log/tile/0/001.p/44", "/log/tile/1/000.p/1", "/log/tile/entries/000", "/log/tile/entries/001.p/44"} {
		for _, bit := range []int{3, 8 * 20, 8*31 + 7} {
			bad := root
			bad.flip, bad.bit = path, bit
			_, err := bad.checkpoint(policy)
			if err == nil {
				_, err = bad.entries(c)
			}
			if err == nil {
				t.Errorf("bit %d of %s was flipped, and the log accepted", bit, path)
			}
		}
	}
}

func TestSealHeaders(t *testing.T) {
	f := newFleet(t)
	f.notes(300)
	const immutable = "private, max-age=31536000, immutable"
	for path, want := range map[string][3]string{
		"/log/checkpoint":             {"text/plain; charset=utf-8", "no-store", ""},
		"/log/tile/0/000":             {"application/octet-stream", immutable, "Authorization"},
		"/log/tile/0/000.p/9":         {"application/octet-stream", "no-store", ""},
		"/log/tile/0/001.p/44":        {"application/octet-stream", "no-store", ""},
		"/log/tile/1/000.p/1":         {"application/octet-stream", "no-store", ""},
		"/log/tile/entries/000":       {"application/octet-stream", immutable, "Authorization"},
		"/log/tile/entries/001.p/44":  {"application/octet-stream", "no-store", ""},
		"/v1/proofs/1":                {"text/plain; charset=utf-8", "no-store", ""},
		"/v1/proofs/300?size=300":     {"text/plain; charset=utf-8", "no-store", ""},
		"/log/tile/entries/000.p/255": {"application/octet-stream", "no-store", ""},
	} {
		a := f.unchanged(func() answer { return f.do("root", "GET", path, "").want(200) })
		got := [3]string{a.header.Get("Content-Type"), a.header.Get("Cache-Control"), a.header.Get("Vary")}
		if got != want {
			t.Errorf("%s: %q, not %q", path, got, want)
		}
		if head := f.do("root", "HEAD", path, "").want(200); len(head.body) > 0 || head.header.Get("Content-Type") != want[0] {
			t.Errorf("HEAD %s: %d bytes, %v", path, len(head.body), head.header)
		}
	}
}

func TestSealRefusals(t *testing.T) {
	f := newFleet(t)
	f.notes(300)
	for path, want := range map[string]string{
		"/log/tile/0/001":                 "404 TILE_NOT_FOUND",
		"/log/tile/0/001.p/45":            "404 TILE_NOT_FOUND",
		"/log/tile/0/1.p/1":               "404 TILE_NOT_FOUND",
		"/log/tile/2/000.p/1":             "404 TILE_NOT_FOUND",
		"/log/tile/entries/001":           "404 TILE_NOT_FOUND",
		"/log/tile/data/000":              "404 TILE_NOT_FOUND",
		"/log/tile/":                      "404 TILE_NOT_FOUND",
		"/log/tile/../tile/0/000":         "404 TILE_NOT_FOUND",
		"/log/tile/0/000?size=1":          "400 UNKNOWN_PARAMETER",
		"/log/checkpoint?size=1":          "400 UNKNOWN_PARAMETER",
		"/v1/proofs/0":                    "400 POSITION_MALFORMED",
		"/v1/proofs/x":                    "400 POSITION_MALFORMED",
		"/v1/proofs/01":                   "400 POSITION_MALFORMED",
		"/v1/proofs/-1":                   "400 POSITION_MALFORMED",
		"/v1/proofs/301":                  "404 EVENT_NOT_FOUND",
		"/v1/proofs/1?size=301":           "422 SIZE_IMPOSSIBLE",
		"/v1/proofs/2?size=1":             "422 SIZE_IMPOSSIBLE",
		"/v1/proofs/2?size=0":             "422 SIZE_IMPOSSIBLE",
		"/v1/proofs/1?size=x":             "400 PARAMETER_INVALID",
		"/v1/proofs/1?size=1&size=2":      "400 PARAMETER_REPEATED",
		"/v1/proofs/301?size=301":         "404 EVENT_NOT_FOUND",
		"/v1/proofs/1?at=3":               "400 UNKNOWN_PARAMETER",
		"/v1/proofs/18446744073709551616": "400 POSITION_MALFORMED",
	} {
		status, code, _ := strings.Cut(want, " ")
		a := f.unchanged(func() answer { return f.do("root", "GET", path, "") })
		if fmt.Sprint(a.status) != status || a.text("code") != code {
			t.Errorf("%s: %d %s, not %s", path, a.status, a.body, want)
		}
	}
	for _, path := range []string{"/log/checkpoint", "/log/tile/0/000", "/log/tile/entries/000", "/v1/proofs/1"} {
		f.do("", "GET", path, "").want(401, "TOKEN_MISSING")
	}
	// Each token sees the tree of its own fleet.
	mine, theirs := f.do("root", "GET", "/log/tile/0/000.p/20", "").want(200), f.do("other:root", "GET", "/log/tile/0/000.p/20", "").want(200)
	if bytes.Equal(mine.body, theirs.body) {
		t.Error("two fleets have the same tile")
	}
	f.do("other:root", "GET", "/log/tile/0/000", "").want(404, "TILE_NOT_FOUND")

	bare := newFleet(t, func(c *Config) { c.Seals = nil })
	for _, path := range []string{"/log/checkpoint", "/log/tile/0/000", "/v1/proofs/1"} {
		bare.do("root", "GET", path, "").want(404, "LOG_NOT_SEALED")
	}
}

func TestAuditVerifiesTheCheckpoint(t *testing.T) {
	f := newFleet(t)
	f.notes(300)
	id := f.do("root", "POST", "/v1/audit", "").want(201).text("audit_id")
	for {
		a := f.do("root", "GET", "/v1/audit/"+id, "").want(200)
		if a.text("status") == "running" {
			continue
		}
		a.has("status", "done", "report.ok", "true", "report.checkpoints_verified", "1", "report.events", "300")
		return
	}
}
