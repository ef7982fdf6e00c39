package commands_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

func (w *world) publish(by string, fields map[string]string, parents ...events.Hash) events.Hash {
	w.t.Helper()
	return first[events.BlockPublished](w, w.ok(w.PublishBlock(w.ctx(), as(by), commands.PublishBlock{Fields: fields, Parents: parents}))).Hash
}

func (w *world) accept(by string, hash events.Hash, narrow ...events.Narrowing) events.BlockAccepted {
	w.t.Helper()
	c := commands.AcceptBlock{Hash: hash}
	for _, n := range narrow {
		c.Narrow = n
	}
	return first[events.BlockAccepted](w, w.ok(w.AcceptBlock(w.ctx(), as(by), c)))
}

// said is a block's fields: each of these names with a text of its own.
func said(names ...string) map[string]string {
	out := map[string]string{}
	for _, n := range names {
		out[n] = "the " + n
	}
	return out
}

func taken(e events.BlockAccepted) string {
	return strings.Join(slices.Sorted(maps.Keys(e.Fields)), " ")
}

func TestPublishBlock(t *testing.T) {
	w := newWorld(t)
	w.people()
	root := w.publish("ana", map[string]string{"focus": "cafe\u0301"})
	if root != events.BlockHash(map[string]string{"focus": "caf\u00e9"}, nil) {
		t.Errorf("published as %s", root)
	}
	b, err := w.Block(w.ctx(), root, 0)
	if err != nil || b.Fields["focus"] != "caf\u00e9" || b.By != "ana" || len(b.Parents) != 0 || len(b.Ancestors) != 0 {
		t.Errorf("got %+v, %v", b, err)
	}
	// The same claim, in whatever spelling and whosever, is here already.
	for _, focus := range []string{"cafe\u0301", "caf\u00e9"} {
		if r := w.ok(w.PublishBlock(w.ctx(), as("carl"), commands.PublishBlock{Fields: map[string]string{"focus": focus}})); len(r.Records) != 0 {
			t.Errorf("published again: %s", kindsOf(r))
		}
	}
	left, right := w.publish("carl", said("issue"), root), w.publish("carl", said("intent"), root)
	top := w.publish("ana", said("mood"), right, left)
	b, err = w.Block(w.ctx(), top, 0)
	if err != nil || !slices.Equal(b.Parents, events.SortedHashes([]events.Hash{left, right})) || !slices.Equal(b.Ancestors, events.SortedHashes([]events.Hash{root, left, right})) {
		t.Errorf("got %+v, %v", b, err)
	}
	before, err := w.Block(w.ctx(), root, b.Position)
	if err != nil || before.Hash != root {
		t.Errorf("got %+v, %v", before, err)
	}
	if _, err := w.Block(w.ctx(), top, b.Position-1); err == nil {
		t.Error("a block was here before it was published")
	}

	gone := events.SumHash("gone")
	for _, c := range []struct {
		name, code, path string
		cmd              commands.PublishBlock
	}{
		{"no field", "INVALID", "/fields", commands.PublishBlock{}},
		{"an unknown field", "INVALID", "/fields", commands.PublishBlock{Fields: said("focus", "colour")}},
		{"a blank field", "INVALID", "/fields/mood", commands.PublishBlock{Fields: map[string]string{"mood": " \n"}}},
		{"a parent that is none", "INVALID", "/parents/1", commands.PublishBlock{Fields: said("mood"), Parents: []events.Hash{root, {}}}},
		{"a parent twice", "INVALID", "/parents/1", commands.PublishBlock{Fields: said("mood"), Parents: []events.Hash{root, root}}},
		{"a parent that is not here", "PARENT_NOT_HERE", "/parents/0", commands.PublishBlock{Fields: said("mood"), Parents: []events.Hash{gone}}},
		{"a secret", "SECRET_IN_TEXT", "/fields/issue", commands.PublishBlock{Fields: map[string]string{"issue": "the token\nis " + leaked}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.refused(c.code, func() (commands.Result, error) { return w.PublishBlock(w.ctx(), as("ana"), c.cmd) })
			if p := r.Facts["problems"].([]events.Problem); len(p) != 1 || p[0].Path != c.path || strings.Contains(r.Error(), leaked) {
				t.Errorf("got %+v", p)
			}
		})
	}
	r := w.refused("FIELD_TOO_LARGE", func() (commands.Result, error) {
		return w.PublishBlock(w.ctx(), as("ana"), commands.PublishBlock{Fields: map[string]string{"mood": strings.Repeat("x", commands.MaxBlockField+1)}})
	})
	if r.Facts["limit"] != commands.MaxBlockField || r.Facts["path"] != "/fields/mood" {
		t.Errorf("got %+v", r.Facts)
	}
	w.refused("LINEAGE_TOO_LONG", func() (commands.Result, error) {
		c := commands.PublishBlock{Fields: said("mood")}
		for i := range commands.MaxBlockParents + 1 {
			c.Parents = append(c.Parents, events.SumHash(fmt.Sprint(i)))
		}
		return w.PublishBlock(w.ctx(), as("ana"), c)
	})

	// Bound to a key, the same again is the same receipt; another body is a conflict.
	one := w.ok(w.PublishBlock(w.ctx(), keyed("ana", "k", "b"), commands.PublishBlock{Fields: said("focus", "mood")}))
	two := w.ok(w.PublishBlock(w.ctx(), keyed("ana", "k", "b"), commands.PublishBlock{Fields: said("focus", "mood")}))
	if !two.Duplicate || two.Records[0].Header.Position != one.Records[0].Header.Position {
		t.Errorf("got %+v", two)
	}
	w.refused("IDEMPOTENCY_MISMATCH", func() (commands.Result, error) {
		return w.PublishBlock(w.ctx(), keyed("ana", "k", "other"), commands.PublishBlock{Fields: said("mood")})
	})

	// Publishing is gated like anything else.
	w.rule("memory.publish", 50)
	asked := w.ok(w.PublishBlock(w.ctx(), as("ana"), commands.PublishBlock{Fields: said("perspective")}))
	rec, ok := asked.Has("approval.requested")
	if !ok {
		t.Fatalf("got %s", kindsOf(asked))
	}
	w.ok(w.settle("carl", rec.Header.ID, events.Granted))
	w.ok(w.PublishBlock(w.ctx(), commands.Caller{Actor: "ana", ApprovalID: rec.Header.ID}, commands.PublishBlock{Fields: said("perspective")}))
}

// As large as a block may be, with as many ancestors as it may have, it is recorded
// and accepted.
func TestLargestBlock(t *testing.T) {
	w := newWorld(t)
	w.people()
	var parents []events.Hash
	for i := range commands.MaxBlockAncestors {
		parents = []events.Hash{w.publish("ana", map[string]string{"focus": fmt.Sprint(i)}, parents...)}
	}
	fields := map[string]string{}
	for _, name := range events.BlockFields {
		fields[name] = strings.Repeat("ü", commands.MaxBlockField/2)
	}
	top := w.publish("ana", fields, parents...)
	if e := w.accept("carl", top); len(e.Ancestors) != commands.MaxBlockAncestors || e.Stored != top {
		t.Errorf("%d ancestors, stored as %s", len(e.Ancestors), e.Stored)
	}
	w.refused("LINEAGE_TOO_LONG", func() (commands.Result, error) {
		return w.PublishBlock(w.ctx(), as("ana"), commands.PublishBlock{Fields: said("mood"), Parents: []events.Hash{top}})
	})
}

func TestAcceptBlock(t *testing.T) {
	w := newWorld(t)
	w.people()
	hash := w.publish("ana", said("focus", "issue", "mood"))
	whole := w.accept("carl", hash)
	if taken(whole) != "focus issue mood" || whole.Stored != hash || whole.OwnThought || len(whole.Decisions) != 3 || whole.Decisions[0].Action != "memory.accept.focus" || whole.Decisions[0].Actor != "ana" {
		t.Errorf("got %+v", whole)
	}

	// The level tested is the publisher's: ana has 20, whoever receives.
	w.rule("memory.accept.mood", 50)
	w.rule("memory.accept.issue", 20)
	for _, receiver := range []string{"carl", "olga", "m1"} {
		e := w.accept(receiver, hash)
		if taken(e) != "focus issue" || e.Stored != events.BlockHash(said("focus", "issue"), nil) {
			t.Errorf("%s took %s, stored as %s", receiver, taken(e), e.Stored)
		}
	}
	high := w.publish("carl", said("mood", "intent"), hash)
	if e := w.accept("ana", high); taken(e) != "intent mood" {
		t.Errorf("took %s", taken(e))
	}

	// A receiver may take less, for itself.
	for _, c := range []struct {
		narrow events.Narrowing
		taken  string
	}{
		{events.Narrowing{Refuse: []string{"mood"}}, "intent"},
		{events.Narrowing{MinLevels: map[string]events.Level{"mood": 61, "intent": 60}}, "intent"},
		{events.Narrowing{MinLevels: map[string]events.Level{"mood": 60, "focus": 100}}, "intent mood"},
		{events.Narrowing{Refuse: []string{"mood", "intent"}}, ""},
	} {
		e := w.accept("olga", high, c.narrow)
		if taken(e) != c.taken || e.Narrowed == nil || len(e.Decisions) != 2 || e.Stored.IsZero() != (c.taken == "") {
			t.Errorf("narrowed by %+v: took %s, stored as %s", c.narrow, taken(e), e.Stored)
		}
	}
	for _, c := range []struct {
		path   string
		narrow events.Narrowing
	}{
		{"/narrow/refuse/0", events.Narrowing{Refuse: []string{"colour"}}},
		{"/narrow/min_levels", events.Narrowing{MinLevels: map[string]events.Level{"colour": 1}}},
		{"/narrow/min_levels/mood", events.Narrowing{MinLevels: map[string]events.Level{"mood": 101}}},
	} {
		r := w.refused("INVALID", func() (commands.Result, error) {
			return w.AcceptBlock(w.ctx(), as("olga"), commands.AcceptBlock{Hash: high, Narrow: c.narrow})
		})
		if p := r.Facts["problems"].([]events.Problem); len(p) != 1 || p[0].Path != c.path {
			t.Errorf("got %+v", p)
		}
	}
	w.refused("BLOCK_NOT_FOUND", func() (commands.Result, error) {
		return w.AcceptBlock(w.ctx(), as("olga"), commands.AcceptBlock{Hash: events.SumHash("none")})
	})

	// Of a publisher who is suspended nothing is taken; what was taken stays.
	suspended := true
	w.ok(w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "ana", Suspended: &suspended}))
	e := w.accept("carl", hash)
	if taken(e) != "" || e.Decisions[0].Decisive.ReasonCode != events.ReasonActorNotActive {
		t.Errorf("got %+v", e)
	}
	w.refused("ACTOR_NOT_ACTIVE", func() (commands.Result, error) {
		return w.AcceptBlock(w.ctx(), as("ana"), commands.AcceptBlock{Hash: high})
	})
	list, all, err := projections.LoadAcceptances(w.ctx(), w.Log(), hash, 0, 2)
	if err != nil || all != 5 || len(list) != 2 || taken(list[0].BlockAccepted) != "" || list[1].By != "m1" || taken(list[1].BlockAccepted) != "focus issue" {
		t.Errorf("%d acceptances: %+v, %v", all, list, err)
	}
}

// Rules that nobody wrote accept nothing.
func TestAcceptWithoutRules(t *testing.T) {
	w := newWorld(t)
	w.people()
	hash := w.publish("olga", said("focus", "mood"))
	for _, r := range w.State().Authority().Rules {
		if r.Rule.Action == "memory.accept.*" {
			w.ok(w.RetireRule(w.ctx(), as("root"), commands.RetireRule{RuleID: r.ID}))
		}
	}
	w.rule("memory.accept.mood", 0)
	e := w.accept("carl", hash)
	if taken(e) != "mood" || e.Decisions[0].Decisive.ReasonCode != events.ReasonNoRule {
		t.Errorf("got %+v", e)
	}
}

func TestOwnThoughts(t *testing.T) {
	w := newWorld(t)
	w.people()
	mine := w.publish("ana", said("focus"))
	theirs := w.publish("carl", said("issue"), mine)
	back := w.publish("olga", said("intent"), theirs)
	other := w.publish("olga", said("mood"))
	for _, c := range []struct {
		who  string
		hash events.Hash
		own  []events.Hash
	}{
		{"ana", mine, []events.Hash{mine}},
		{"ana", back, []events.Hash{mine}},
		{"carl", mine, []events.Hash{}},
		{"carl", back, []events.Hash{theirs}},
		{"olga", back, []events.Hash{back}},
		{"ana", other, []events.Hash{}},
		{"m1", back, []events.Hash{}},
	} {
		if e := w.accept(c.who, c.hash); e.OwnThought != (len(c.own) > 0) || !slices.Equal(e.Own, c.own) {
			t.Errorf("%s accepting %s: own %t %v, want %v", c.who, c.hash, e.OwnThought, e.Own, c.own)
		}
	}
}

// A block goes with its lineage to another fleet, is answered there, and the answer
// comes back as the thought of who had it first.
func TestBlocksTravel(t *testing.T) {
	w, far := newWorld(t), newWorld(t)
	w.people()
	far.people()
	root := w.publish("ana", said("focus"))
	top := w.publish("carl", said("issue"), root)
	export := func(from *world, h events.Hash) commands.ImportBlocks {
		t.Helper()
		f, err := from.ExportBlock(from.ctx(), h, 0)
		if err != nil {
			t.Fatal(err)
		}
		return commands.ImportBlocks{BlockFile: f}
	}
	file := export(w, top)
	if len(file.Blocks) != 2 || file.Blocks[0].Hash != root || file.Blocks[1].Origin.By != "carl" || file.Blocks[1].Origin.Fleet != "default" {
		t.Fatalf("got %+v", file)
	}
	for _, c := range []struct {
		name, code string
		change     func(f *commands.ImportBlocks)
	}{
		{"another text", "BLOCK_TAMPERED", func(f *commands.ImportBlocks) { f.Blocks[0].Fields = map[string]string{"focus": "other"} }},
		{"another field", "BLOCK_TAMPERED", func(f *commands.ImportBlocks) { f.Blocks[0].Fields["mood"] = "x" }},
		{"another hash", "BLOCK_TAMPERED", func(f *commands.ImportBlocks) { f.Blocks[1].Hash = events.SumHash("x") }},
		{"re-rooted", "BLOCK_TAMPERED", func(f *commands.ImportBlocks) { f.Blocks[1].Parents = nil }},
		{"an ancestor less", "BLOCK_TAMPERED", func(f *commands.ImportBlocks) { f.Blocks[1].Ancestors = nil }},
		{"an ancestor more", "BLOCK_TAMPERED", func(f *commands.ImportBlocks) {
			f.Blocks[1].Ancestors = append(f.Blocks[1].Ancestors, events.SumHash("x"))
		}},
		{"without its parent", "PARENT_NOT_HERE", func(f *commands.ImportBlocks) { f.Blocks = f.Blocks[1:] }},
		{"before its parent", "PARENT_NOT_HERE", func(f *commands.ImportBlocks) { slices.Reverse(f.Blocks) }},
		{"nothing", "INVALID", func(f *commands.ImportBlocks) { f.Blocks = nil }},
		{"too much", "FILE_TOO_LARGE", func(f *commands.ImportBlocks) { f.Blocks = slices.Repeat(f.Blocks, 200) }},
		{"another form", "INVALID", func(f *commands.ImportBlocks) { f.Format = "fleetledger-blocks/2" }},
		{"a publisher that is none", "INVALID", func(f *commands.ImportBlocks) { f.Blocks[0].Origin.By = "A B" }},
		{"no time", "INVALID", func(f *commands.ImportBlocks) { f.Blocks[0].Origin.At = time.Time{} }},
		{"a secret as its fleet", "SECRET_IN_TEXT", func(f *commands.ImportBlocks) { f.Blocks[0].Origin.Fleet = strings.ToLower(leaked) }},
		{"a secret as its log", "SECRET_IN_TEXT", func(f *commands.ImportBlocks) { f.Blocks[0].Origin.LogID = leaked }},
		{"a secret as its publisher", "SECRET_IN_TEXT", func(f *commands.ImportBlocks) { f.Blocks[0].Origin.By = strings.ToLower(leaked) }},
		{"a secret", "SECRET_IN_TEXT", func(f *commands.ImportBlocks) {
			f.Blocks[0].Fields = map[string]string{"focus": leaked}
			f.Blocks[0].Hash = events.BlockHash(f.Blocks[0].Fields, nil)
		}},
	} {
		changed := export(w, top)
		c.change(&changed)
		r := far.refused(c.code, func() (commands.Result, error) { return far.ImportBlocks(far.ctx(), as("olga"), changed) })
		if strings.Contains(r.Error(), leaked) {
			t.Errorf("%s: %s", c.name, r)
		}
	}
	r := far.ok(far.ImportBlocks(far.ctx(), as("olga"), file))
	if kindsOf(r) != "block.published block.published" {
		t.Fatalf("recorded %s", kindsOf(r))
	}
	if again := far.ok(far.ImportBlocks(far.ctx(), as("carl"), file)); len(again.Records) != 0 {
		t.Errorf("imported again: %s", kindsOf(again))
	}
	// olga brought it, with olga's level; it is not her thought.
	far.rule("memory.accept.issue", 80)
	if e := far.accept("olga", top); taken(e) != "issue" || e.OwnThought || e.Decisions[0].Actor != "olga" {
		t.Errorf("got %+v", e)
	}
	answer := far.publish("olga", said("intent"), top)
	back := export(far, answer)
	if len(back.Blocks) != 3 || back.Blocks[1].Origin != file.Blocks[1].Origin {
		t.Fatalf("got %+v", back)
	}
	w.ok(w.ImportBlocks(w.ctx(), as("m1"), back))
	for who, own := range map[string][]events.Hash{"ana": {root}, "carl": {top}, "olga": {}, "m1": {}} {
		if e := w.accept(who, answer); !slices.Equal(e.Own, own) {
			t.Errorf("%s: own %v, want %v", who, e.Own, own)
		}
	}
}

func TestConcurrentPublishers(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.racing()
	before := w.Log().Durable()
	results := make(chan int, 20)
	for i := range 20 {
		go func() {
			r, err := w.PublishBlock(w.ctx(), as([]string{"ana", "carl"}[i%2]), commands.PublishBlock{Fields: said("focus")})
			if err != nil {
				t.Error(err)
			}
			results <- len(r.Records)
		}()
	}
	recorded := 0
	for range 20 {
		recorded += <-results
	}
	if n := w.Log().Durable() - before; recorded != 1 || n != 1 {
		t.Errorf("%d answers told of a new block, %d events were recorded", recorded, n)
	}
}

// With a block goes what was taken of it; what stems from it stays, and nothing more
// can be put upon it.
func TestErasedBlock(t *testing.T) {
	w := newWorld(t)
	w.people()
	const leaked = "the plan that nobody is to know"
	hash := w.publish("ana", map[string]string{"focus": leaked, "mood": "calm"})
	w.accept("carl", hash)
	w.accept("olga", hash, events.Narrowing{Refuse: []string{"focus"}})
	child := w.publish("carl", said("issue"), hash)
	w.accept("ana", child)
	published := ""
	for r, err := range w.Log().ReadStream(w.ctx(), events.BlockStream(hash), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Revision == 1 {
			published = r.Header.ID
		}
	}
	erase := commands.ErasePayload{EventID: published, Reason: "not hers to tell"}
	if r := w.ok(w.ErasePayload(w.ctx(), as("root"), erase)); kindsOf(r) != "payload.erased payload.erased payload.erased" {
		t.Errorf("recorded %s", kindsOf(r))
	}
	w.holdsNo(leaked)
	w.refused("ALREADY_ERASED", func() (commands.Result, error) { return w.ErasePayload(w.ctx(), as("root"), erase) })
	b, err := w.Block(w.ctx(), hash, 0)
	if err != nil || !b.Erased || b.By != "ana" || len(b.Fields) != 0 {
		t.Errorf("got %+v, %v", b, err)
	}
	if list, all, err := projections.LoadAcceptances(w.ctx(), w.Log(), hash, 0, 10); err != nil || all != 2 || len(list) != 0 {
		t.Errorf("%d acceptances: %+v, %v", all, list, err)
	}
	for name, again := range map[string]func() (commands.Result, error){
		"published": func() (commands.Result, error) {
			return w.PublishBlock(w.ctx(), as("ana"), commands.PublishBlock{Fields: map[string]string{"focus": leaked, "mood": "calm"}})
		},
		"accepted": func() (commands.Result, error) {
			return w.AcceptBlock(w.ctx(), as("carl"), commands.AcceptBlock{Hash: hash})
		},
		"built upon": func() (commands.Result, error) {
			return w.PublishBlock(w.ctx(), as("carl"), commands.PublishBlock{Fields: said("mood"), Parents: []events.Hash{hash}})
		},
		"exported": func() (commands.Result, error) {
			_, err := w.ExportBlock(w.ctx(), child, 0)
			return commands.Result{}, err
		},
	} {
		t.Run(name, func(t *testing.T) { w.refused("BLOCK_ERASED", again) })
	}
	// Whose thought it was cannot be told any more; what was taken before stands.
	if e := w.accept("carl", child); taken(e) != "issue" || !slices.Equal(e.Own, []events.Hash{child}) {
		t.Errorf("got %+v", e)
	}
}

// However blocks stem from each other, each names all that is behind it, and a fleet
// that imports one has it with all of that, and with the same hashes.
func TestAnyLineageTravels(t *testing.T) {
	w, far := newWorld(t), newWorld(t)
	w.people()
	far.people()
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		var all []events.Hash
		behind := map[events.Hash]map[events.Hash]bool{}
		for range rapid.IntRange(1, 8).Draw(rt, "blocks") {
			n++
			var parents []events.Hash
			for _, h := range all {
				if rapid.IntRange(0, 2).Draw(rt, "stems") == 0 {
					parents = append(parents, h)
				}
			}
			h := w.publish("ana", map[string]string{rapid.SampledFrom(events.BlockFields).Draw(rt, "field"): fmt.Sprint(n)}, parents...)
			behind[h] = map[events.Hash]bool{}
			for _, p := range parents {
				behind[h][p] = true
				maps.Copy(behind[h], behind[p])
			}
			all = append(all, h)
		}
		h := rapid.SampledFrom(all).Draw(rt, "exported")
		file, err := w.ExportBlock(w.ctx(), h, 0)
		if err != nil || len(file.Blocks) != len(behind[h])+1 {
			rt.Fatalf("%d blocks, %d are behind it: %v", len(file.Blocks), len(behind[h]), err)
		}
		if _, err := far.ImportBlocks(far.ctx(), as("carl"), commands.ImportBlocks{BlockFile: file}); err != nil {
			rt.Fatal(err)
		}
		for x := range behind[h] {
			if _, err := far.Block(far.ctx(), x, 0); err != nil {
				rt.Fatal(err)
			}
		}
		here, err1 := w.Block(w.ctx(), h, 0)
		there, err2 := far.Block(far.ctx(), h, 0)
		if err1 != nil || err2 != nil || !slices.Equal(here.Ancestors, there.Ancestors) || !slices.Equal(here.Ancestors, events.SortedHashes(slices.Collect(maps.Keys(behind[h])))) ||
			!maps.Equal(here.Fields, there.Fields) || !slices.Equal(here.Parents, there.Parents) {
			rt.Fatalf("here %+v, there %+v, behind it %v; %v, %v", here, there, behind[h], err1, err2)
		}
	})
}
