package main

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
)

// findingTile is the kind of a finding about a tile that the server hands out, which
// audit.Run does not see.
const findingTile = "tile"

// auditRemote reads everything that a server has of its log, and trusts none of it:
// the checkpoint, the leaves, the payloads and the tiles.
func (a *app) auditRemote(cmd *cobra.Command, terms *auditTerms, timeout time.Duration) (jsontext.Value, error) {
	c, err := a.client(cmd)
	if err != nil {
		return nil, err
	}
	ctx := cmd.Context()
	r := &remoteLog{client: c, timeout: timeout, tiles: ownTiles{full: map[string][]byte{}}}
	signed, err := r.get(ctx, "/log/checkpoint", nil)
	if err != nil {
		return nil, a.unanswered(err)
	}
	claims, err := seal.ParseCheckpoint(signed)
	if err != nil {
		return nil, fmt.Errorf("the server's checkpoint cannot be read: %w", err)
	}
	r.size = claims.Size
	if terms.from != nil {
		if other, err := r.goOn(ctx, terms, claims); err != nil {
			return nil, err
		} else if other != nil {
			return json.Marshal(other)
		}
	}
	note := a.newProgress("audited")
	defer note.end()
	report, err := audit.Run(ctx, r.records(ctx), terms.options(audit.Options{
		Progress:    func(done events.Position) { note.at(uint64(done), r.size) },
		Checkpoints: append(slices.Clone(terms.checkpoints), signed),
		Behind:      func() ([]byte, iter.Seq2[events.Stored, error], error) { return r.behind(ctx) },
		Again:       func(list []events.Position) ([]events.Stored, error) { return r.again(ctx, list) },
	}))
	if err != nil {
		return nil, err
	}
	if !r.cut {
		r.compareTiles(ctx)
	}
	for _, f := range r.wrong {
		report.Add(f)
	}
	terms.end(report)
	if len(terms.keys) == 0 && !a.json {
		printer{a.err}.f("no --key was given: the signatures are checked by the keys that the log itself names\n")
	}
	return json.Marshal(report)
}

// remoteLog reads a log of size events from a server.
type remoteLog struct {
	client  *agent.Client
	timeout time.Duration // of one request
	size    uint64
	after   uint64 // so many events an earlier audit has read

	tiles ownTiles
	wrong []audit.Finding
	cut   bool // not all of it could be read
}

func (r *remoteLog) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	resp, err := r.client.Get(ctx, path, query)
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// bundlesAhead is how many bundles are asked for before they are looked at.
const bundlesAhead = 4

// bundle is the events of one tile, as far as they could be read, and what the
// server's tile has for their hashes.
type bundle struct {
	first   uint64 // so many events are before it
	records []events.Record
	tile    []events.Hash
	err     error // stands after the records
}

// records yields the events in order. It ends at the first that cannot be read.
func (r *remoteLog) records(ctx context.Context) iter.Seq2[events.Stored, error] {
	return func(yield func(events.Stored, error) bool) {
		reading, cancel := context.WithCancel(ctx)
		var work sync.WaitGroup
		defer work.Wait()
		defer cancel()
		queue := make(chan chan bundle, bundlesAhead)
		work.Go(func() {
			defer close(queue)
			for n := r.after / seal.TileWidth; n*seal.TileWidth < r.size; n++ {
				next := make(chan bundle, 1)
				select {
				case queue <- next:
				case <-reading.Done():
					return
				}
				work.Go(func() { next <- r.bundle(reading, n) })
			}
		})
		for next := range queue {
			b := <-next
			for i, rec := range b.records {
				if b.first+uint64(i) < r.after {
					continue
				}
				if !yield(rec.Stored(), nil) {
					return
				}
				r.tiles.tree.Append(rec.LeafHash, r.tiles.add)
				if b.tile[i] != rec.LeafHash {
					r.find(rec.Header.Position, b.tile[i], rec.LeafHash, "the server's tile has another hash for this event")
				}
			}
			if b.err == nil {
				continue
			}
			r.cut = true
			if _, ok := errors.AsType[*events.CorruptError](b.err); !ok && ctx.Err() == nil {
				b.err = &events.CorruptError{Position: events.Position(r.tiles.tree.Size() + 1), Detail: "the server did not hand it out: " + b.err.Error()}
			}
			yield(events.Stored{}, b.err)
			return
		}
	}
}

// goOn begins behind what an earlier audit has read, if the server's log still begins
// like that; if it does not, it returns the report.
func (r *remoteLog) goOn(ctx context.Context, terms *auditTerms, claims seal.Checkpoint) (*audit.Report, error) {
	from := terms.from
	if !strings.HasSuffix(claims.Origin, "/"+from.Fleet) {
		return nil, tryNext(fmt.Errorf("the earlier audit was of fleet %s, the server has %s", from.Fleet, claims.Origin), "audit without --resume")
	}
	other := func(p events.Position, detail string) (*audit.Report, error) {
		report := terms.otherBeginning(p, detail)
		return &report, nil
	}
	r.after = uint64(from.Position)
	if claims.Size < r.after {
		return other(events.Position(claims.Size+1), fmt.Sprintf("an earlier audit read %d events, the server's checkpoint has %d", r.after, claims.Size))
	}
	var edge []events.Hash // of the last tile of the lowest level, which is not full
	tree, err := seal.RestoreTree(r.after, func(p events.Position) (events.Hash, error) {
		if edge == nil {
			var err error
			if edge, err = r.tile(ctx, 0, r.after/seal.TileWidth, int(r.after%seal.TileWidth)); err != nil {
				return events.Hash{}, err
			}
		}
		return edge[uint64(p-1)%seal.TileWidth], nil
	}, func(level int, n uint64) ([]byte, error) {
		return r.get(ctx, "/log/"+seal.TilePath(level, n, seal.TileWidth), nil)
	})
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		return other(from.Position, "that the log begins like the one that was audited is not shown: the server did not hand a tile out: "+err.Error())
	case tree.Root() != from.Root:
		return other(1, fmt.Sprintf("the Merkle root of the first %d events is %s, an earlier audit found %s: it is another log, or at least one of them was replaced", r.after, tree.Root(), from.Root))
	}
	r.tiles.tree = tree
	return nil, nil
}

// again reads single events.
func (r *remoteLog) again(ctx context.Context, positions []events.Position) (list []events.Stored, err error) {
	for _, p := range positions {
		n := uint64(p-1) / seal.TileWidth
		b := r.bundle(ctx, n)
		i := int(uint64(p-1) - b.first)
		if i >= len(b.records) {
			return nil, errors.Join(b.err, fmt.Errorf("position %d is not handed out", p))
		}
		list = append(list, b.records[i].Stored())
	}
	return list, nil
}

// behind is what came while the log was read: a checkpoint, and the events up to it.
func (r *remoteLog) behind(ctx context.Context) ([]byte, iter.Seq2[events.Stored, error], error) {
	signed, err := r.get(ctx, "/log/checkpoint", nil)
	if err != nil {
		return nil, nil, err
	}
	claims, err := seal.ParseCheckpoint(signed)
	if err != nil {
		return nil, nil, fmt.Errorf("the server's checkpoint cannot be read: %w", err)
	}
	later := &remoteLog{client: r.client, timeout: r.timeout, size: claims.Size}
	return signed, func(yield func(events.Stored, error) bool) {
		for n := r.size / seal.TileWidth; n*seal.TileWidth < later.size; n++ {
			b := later.bundle(ctx, n)
			for i, rec := range b.records {
				if n*seal.TileWidth+uint64(i) >= r.size && !yield(rec.Stored(), nil) {
					return
				}
			}
			if b.err != nil {
				yield(events.Stored{}, b.err)
				return
			}
		}
	}, nil
}

func (r *remoteLog) find(p events.Position, served, computed events.Hash, detail string) {
	r.wrong = append(r.wrong, audit.Finding{Kind: findingTile, Position: p, Detail: detail, Expected: computed, Actual: served})
}

// bundle reads the events of tile n.
func (r *remoteLog) bundle(ctx context.Context, n uint64) (b bundle) {
	first := n * seal.TileWidth
	b.first = first
	width := int(min(seal.TileWidth, r.size-first))
	leaves, err := r.get(ctx, "/log/"+seal.EntriesPath(n, width), nil)
	if err != nil {
		b.err = err
		return b
	}
	if b.tile, err = r.tile(ctx, 0, n, width); err != nil {
		b.err = err
		return b
	}
	payloads, err := r.payloads(ctx, first, width)
	if err != nil {
		b.err = err
		return b
	}
	for i := range width {
		p := events.Position(first) + events.Position(i) + 1
		var leaf []byte
		if leaf, leaves, err = seal.ReadEntry(leaves); err != nil {
			b.err = &events.CorruptError{Position: p, Detail: "the server's bundle of entries is cut off: " + err.Error()}
			return b
		}
		h, err := events.ParseHeader(leaf)
		if err != nil {
			b.err = &events.CorruptError{Position: p, Detail: err.Error()}
			return b
		}
		rec := events.Record{Header: h, Leaf: leaf, LeafHash: events.LeafHash(leaf), Erased: payloads[i].Erased, Payload: []byte(payloads[i].Payload)}
		if !rec.Erased {
			salt, err := hex.DecodeString(payloads[i].Salt)
			if err != nil || len(salt) != events.SaltBytes {
				b.err = &events.CorruptError{Position: p, Detail: "the server's salt is malformed"}
				return b
			}
			rec.Salt = [events.SaltBytes]byte(salt)
		}
		b.records = append(b.records, rec)
	}
	if len(leaves) > 0 {
		b.err = &events.CorruptError{Position: events.Position(first) + events.Position(width), Detail: "the server's bundle of entries goes on after its last one"}
	}
	return b
}

func (r *remoteLog) tile(ctx context.Context, level int, n uint64, width int) ([]events.Hash, error) {
	path := seal.TilePath(level, n, width)
	b, err := r.get(ctx, "/log/"+path, nil)
	if want := width * len(events.Hash{}); err == nil && len(b) != want {
		err = fmt.Errorf("%s has %d bytes, not %d", path, len(b), want)
	}
	if err != nil {
		return nil, err
	}
	return seal.SplitHashes(b), nil
}

// payload is a line of GET /v1/payloads.
type payload struct {
	Position events.Position `json:"position"`
	Salt     string          `json:"salt,omitzero"`
	Payload  string          `json:"payload,omitzero"`
	Erased   bool            `json:"erased,omitzero"`
}

// payloads reads those of so many events after a position.
func (r *remoteLog) payloads(ctx context.Context, after uint64, width int) ([]payload, error) {
	var list []payload
	for len(list) < width {
		next := after + uint64(len(list))
		text, err := r.get(ctx, "/v1/payloads", url.Values{"after": {strconv.FormatUint(next, 10)}, "limit": {strconv.Itoa(width - len(list))}})
		if err != nil {
			return nil, err
		}
		got := 0
		for line := range bytes.Lines(text) {
			var p payload
			if err := events.DecodeStrict(bytes.TrimSuffix(line, []byte("\n")), &p); err != nil {
				return nil, fmt.Errorf("the payload of position %d: %w", next+uint64(got)+1, err)
			}
			if got++; p.Position != events.Position(next)+events.Position(got) || len(list) == width {
				return nil, fmt.Errorf("the payload of position %d is handed out for position %d", p.Position, next+uint64(got))
			}
			list = append(list, p)
		}
		if got == 0 {
			return nil, fmt.Errorf("the payload of position %d is not handed out", next+1)
		}
	}
	return list, nil
}

// ownTiles are the tiles above the lowest that the events read give.
type ownTiles struct {
	tree seal.Tree
	full map[string][]byte
}

func (o *ownTiles) add(t seal.Tile) {
	if t.Level > 0 {
		o.full[t.String()] = t.AppendTo(nil)
	}
}

func (o *ownTiles) Tree() seal.View { return o.tree.View() }

func (o *ownTiles) FullTile(level int, n uint64) ([]byte, error) {
	return o.full[seal.Tile{Level: level, N: n}.String()], nil
}

// compareTiles compares the server's tiles above the lowest with those that the
// events give; the lowest were compared as the events came.
func (r *remoteLog) compareTiles(ctx context.Context) {
	own := seal.NewReader(&r.tiles)
	for level := 1; r.size>>(seal.TileHeight*level) > 0; level++ {
		nodes := r.size >> (seal.TileHeight * level)
		for n := r.after >> (seal.TileHeight * (level + 1)); n*seal.TileWidth < nodes; n++ {
			width := int(min(seal.TileWidth, nodes-n*seal.TileWidth))
			want, err := own.Hashes(level, n, width)
			if err != nil {
				panic("bug: the tree of the events read has no " + seal.TilePath(level, n, width))
			}
			first := func(i int) events.Position {
				return events.Position((n*seal.TileWidth+uint64(i))<<(seal.TileHeight*level) + 1)
			}
			got, err := r.tile(ctx, level, n, width)
			if err != nil {
				r.wrong = append(r.wrong, audit.Finding{Kind: findingTile, Position: first(0), Detail: "the server did not hand a tile out: " + err.Error()})
				continue
			}
			for i := range want {
				if got[i] != want[i] {
					r.find(first(i), got[i], want[i], "the server's "+seal.TilePath(level, n, width)+" has another hash for the events from here on")
				}
			}
		}
	}
}
