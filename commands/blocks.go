package commands

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"golang.org/x/text/unicode/norm"

	"fleetledger/events"
	"fleetledger/projections"
)

// Limits of a block, which no setting changes. Together they keep what is recorded
// of it below the limit of a payload.
const (
	MaxBlockField     = 4 << 10 // bytes of a field's text
	MaxBlockParents   = 16
	MaxBlockAncestors = 256
)

// PublishBlock makes a claim known to the fleet.
type PublishBlock struct {
	Fields  map[string]string `json:"fields"`
	Parents []events.Hash     `json:"parents"`
}

// PublishBlock carries out c. A block that is here already is not published again:
// nothing is recorded then, whoever published it. Refusals: INVALID,
// FIELD_TOO_LARGE, LINEAGE_TOO_LONG, SECRET_IN_TEXT, PARENT_NOT_HERE, BLOCK_ERASED,
// PAYLOAD_TOO_LARGE, and what gates answer.
func (l *Ledger) PublishBlock(ctx context.Context, caller Caller, c PublishBlock) (Result, error) {
	b := events.BlockPublished{Parents: events.SortedHashes(c.Parents)}
	if err := errorOf(blockProblems("", c.Fields, c.Parents)); err != nil {
		return Result{}, err
	}
	b.Fields = normalized(c.Fields)
	if err := checkBlock("", b); err != nil {
		return Result{}, err
	}
	b.Hash = events.BlockHash(b.Fields, b.Parents)
	return l.execute(ctx, caller, func(v view) (decided, error) {
		here, err := l.blockHere(ctx, b.Hash)
		if err != nil || here {
			return decided{}, err
		}
		lineage := lineage{ledger: l}
		if b.Ancestors, err = lineage.ancestors(ctx, "/parents", b.Parents); err != nil {
			return decided{}, err
		}
		return v.gated([]string{"memory.publish"}, named("memory.publish", c), func(permits []events.Permit, d *decided) {
			b.Permit = permits[0]
			d.publish(v, b)
		})
	})
}

// publish adds a block that is not here yet: if somebody is quicker, that is seen.
func (d *decided) publish(v view, b events.BlockPublished) {
	d.add(events.BlockStream(b.Hash), v.newID(), b)
	d.expect = append(d.expect, events.Expectation{Stream: events.BlockStream(b.Hash)})
}

// blockHere reports whether a block was published before.
func (l *Ledger) blockHere(ctx context.Context, hash events.Hash) (bool, error) {
	b, err := projections.LoadBlock(ctx, l.log, hash, 0)
	switch {
	case err != nil || b == nil:
		return false, err
	case b.Erased:
		return true, refuse(Conflict, "BLOCK_ERASED", "block %s was published here, and what it said was erased: it is not published again", hash).With("hash", hash)
	}
	return true, nil
}

// lineage finds ancestors among the blocks that are here, and those on their way.
type lineage struct {
	ledger *Ledger
	coming map[events.Hash][]events.Hash // their ancestors
}

// ancestors are the parents and theirs, up to the roots. A parent that is not here
// is refused: a claim is never given another root than its own.
func (x lineage) ancestors(ctx context.Context, path string, parents []events.Hash) ([]events.Hash, error) {
	out := slices.Clone(parents)
	var missing []events.Hash
	var bad []events.Problem
	for i, p := range parents {
		if theirs, ok := x.coming[p]; ok {
			out = append(out, theirs...)
			continue
		}
		b, err := projections.LoadBlock(ctx, x.ledger.log, p, 0)
		switch {
		case err != nil:
			return nil, err
		case b == nil:
			missing = append(missing, p)
			bad = append(bad, problem(fmt.Sprintf("%s/%d", path, i), "NOT_HERE", "no block %s is here", p))
		case b.Erased:
			return nil, refuse(Conflict, "BLOCK_ERASED", "the parent %s was erased, and with it what it stems from: nothing can be published upon it", p).With("hash", p)
		default:
			out = append(out, b.Ancestors...)
		}
	}
	if bad != nil {
		return nil, refuse(Impossible, "PARENT_NOT_HERE",
			"a block stems from blocks that are not here: publish or import them first; it is not recorded under another root").
			With("missing", missing).With("problems", bad)
	}
	out = events.SortedHashes(out)
	if len(out) > MaxBlockAncestors {
		return nil, tooLarge("LINEAGE_TOO_LONG", len(out), MaxBlockAncestors, "ancestors of a block")
	}
	if out == nil {
		out = []events.Hash{}
	}
	return out, nil
}

func errorOf(bad []events.Problem) error {
	if bad == nil {
		return nil
	}
	return invalid(bad...)
}

// blockProblems names what no block can be.
func blockProblems(path string, fields map[string]string, parents []events.Hash) (bad []events.Problem) {
	add := func(at, code, format string, args ...any) { bad = append(bad, problem(path+at, code, format, args...)) }
	if len(fields) == 0 {
		add("/fields", "REQUIRED", "a block says something: give one of %s at least", strings.Join(events.BlockFields, ", "))
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		switch {
		case !slices.Contains(events.BlockFields, name):
			add("/fields", "UNKNOWN_FIELD", "%q is none of %s", name, strings.Join(events.BlockFields, ", "))
		case strings.TrimSpace(fields[name]) == "":
			add("/fields/"+name, "REQUIRED", "a field says something: leave out one that does not")
		}
	}
	for i, p := range parents {
		switch {
		case p.IsZero():
			add(fmt.Sprintf("/parents/%d", i), "INVALID", "names no block: a block's hash has 64 characters 0-9 and a-f")
		case slices.Index(parents, p) < i:
			add(fmt.Sprintf("/parents/%d", i), "DUPLICATE", "block %s is named twice", p)
		}
	}
	return bad
}

// normalized is fields in the form in which they are hashed and kept.
func normalized(fields map[string]string) map[string]string {
	out := make(map[string]string, len(fields))
	for name, text := range fields {
		out[name] = norm.NFC.String(text)
	}
	return out
}

// checkBlock refuses what is too large, and secrets: a text is kept as it was
// hashed, or not at all.
func checkBlock(path string, b events.BlockPublished) error {
	if len(b.Parents) > MaxBlockParents {
		return tooLarge("LINEAGE_TOO_LONG", len(b.Parents), MaxBlockParents, "parents of a block")
	}
	var texts []text
	for _, name := range events.BlockFields {
		if n := len(b.Fields[name]); n > MaxBlockField {
			return tooLarge("FIELD_TOO_LARGE", n, MaxBlockField, "bytes in the field "+name).With("path", path+"/fields/"+name)
		}
		texts = append(texts, text{path + "/fields/" + name, b.Fields[name]})
	}
	return noSecretsInText("the block", texts...)
}

// AcceptBlock is a receiver's look at a block: it takes those fields that the rules
// let in from the block's publisher, or fewer.
type AcceptBlock struct {
	Hash   events.Hash
	Narrow events.Narrowing
}

// AcceptBlock carries out c. It needs no gate of its own: each field is decided by
// the rules for memory.accept.<field>, with the publisher's level. What is refused
// is absent from what is recorded; that nothing was taken is recorded too.
// Refusals: INVALID, BLOCK_NOT_FOUND, BLOCK_ERASED, ACTOR_NOT_ACTIVE.
func (l *Ledger) AcceptBlock(ctx context.Context, caller Caller, c AcceptBlock) (Result, error) {
	narrowed, bad := c.narrowed()
	if bad != nil {
		return Result{}, invalid(bad...)
	}
	return l.execute(ctx, caller, func(v view) (decided, error) {
		erasures := l.state.LedgerRevision()
		b, err := l.Block(ctx, c.Hash, 0)
		if err != nil {
			return decided{}, err
		}
		if b.Erased {
			return decided{}, refuse(Conflict, "BLOCK_ERASED", "what block %s said was erased: there is nothing to accept", c.Hash).With("hash", c.Hash)
		}
		if !v.me().Active {
			return decided{}, refuse(Forbidden, "ACTOR_NOT_ACTIVE", "%s is suspended, or an actor that it acts under is", caller.Actor)
		}
		own, err := l.ownThoughts(ctx, b, caller.Actor)
		if err != nil {
			return decided{}, err
		}
		e := Accept(b, narrowed, own, func(action string) events.Decision { return v.decide(action, b.By) })
		var d decided
		d.add(events.BlockStream(b.Hash), v.newID(), e)
		// What is erased meanwhile is not copied.
		d.expect = append(d.expect, events.Expectation{Stream: events.LedgerStream, Revision: erasures})
		return d, nil
	})
}

// narrowed is what the receiver asks for in its one form, nil for nothing.
func (c AcceptBlock) narrowed() (*events.Narrowing, []events.Problem) {
	var bad []events.Problem
	known := strings.Join(events.BlockFields, ", ")
	n := events.Narrowing{MinLevels: maps.Clone(c.Narrow.MinLevels)}
	for _, name := range slices.Sorted(maps.Keys(c.Narrow.MinLevels)) {
		switch {
		case !slices.Contains(events.BlockFields, name):
			bad = append(bad, problem("/narrow/min_levels", "UNKNOWN_FIELD", "%q is none of %s", name, known))
		case !c.Narrow.MinLevels[name].Usable():
			bad = append(bad, problem("/narrow/min_levels/"+name, "OUT_OF_RANGE", "a level is an integer from 0 to 100"))
		}
	}
	for i, name := range c.Narrow.Refuse {
		if !slices.Contains(events.BlockFields, name) {
			bad = append(bad, problem(fmt.Sprintf("/narrow/refuse/%d", i), "UNKNOWN_FIELD", "%q is none of %s", name, known))
		}
	}
	for _, name := range events.BlockFields {
		if slices.Contains(c.Narrow.Refuse, name) {
			n.Refuse = append(n.Refuse, name)
		}
	}
	if len(n.MinLevels) == 0 && len(n.Refuse) == 0 {
		return nil, bad
	}
	return &n, bad
}

// Accept decides what a receiver takes of a block. own are its own thoughts in the
// block's lineage; decide asks the rules about the publisher.
func Accept(b *projections.Block, narrowed *events.Narrowing, own []events.Hash, decide func(action string) events.Decision) events.BlockAccepted {
	e := events.BlockAccepted{
		Hash: b.Hash, Fields: map[string]string{}, Parents: b.Parents, Ancestors: b.Ancestors, Narrowed: narrowed,
		Decisions: []events.Decision{}, OwnThought: len(own) > 0, Own: own,
	}
	for _, name := range events.BlockFields {
		said, ok := b.Fields[name]
		if !ok {
			continue
		}
		dec := decide(events.AcceptAction(name))
		e.Decisions = append(e.Decisions, dec)
		if dec.Verdict == events.Allow && narrowed.Takes(name, dec.Level) {
			e.Fields[name] = said
		}
	}
	if len(e.Fields) > 0 {
		e.Stored = events.BlockHash(e.Fields, e.Parents)
	}
	return e
}

// ownThoughts are those blocks that an actor published, of a block and its
// ancestors.
func (l *Ledger) ownThoughts(ctx context.Context, b *projections.Block, actor string) ([]events.Hash, error) {
	own := []events.Hash{}
	for _, h := range append([]events.Hash{b.Hash}, b.Ancestors...) {
		x, err := projections.LoadBlock(ctx, l.log, h, 0)
		if err != nil {
			return nil, err
		}
		if x != nil && x.OwnOf(actor) {
			own = append(own, h)
		}
	}
	return events.SortedHashes(own), nil
}

// Block returns a block as of position at (0: now). Refusal: BLOCK_NOT_FOUND.
func (l *Ledger) Block(ctx context.Context, hash events.Hash, at events.Position) (*projections.Block, error) {
	missing := refuse(NotFound, "BLOCK_NOT_FOUND", "no block %s is here; see GET /v1/blocks", hash)
	if hash.IsZero() {
		return nil, missing
	}
	b, err := projections.LoadBlock(ctx, l.log, hash, at)
	if err == nil && b == nil {
		err = missing
	}
	return b, err
}
