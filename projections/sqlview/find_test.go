package sqlview

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

// plainRank is the rank at which a query finds a command with its notes, by looking at
// every text; 0 for none.
func plainRank(query string, texts []string) int {
	within := func(tokens []string) bool {
		return slices.ContainsFunc(texts, func(text string) bool {
			all := tokensOf(text)
			for i := range all {
				if i+len(tokens) <= len(all) && slices.Equal(all[i:i+len(tokens)], tokens) {
					return true
				}
			}
			return false
		})
	}
	everyWord, everyPart, spaceless := true, true, false
	for _, w := range words(query) {
		everyWord = everyWord && within(w.append(nil, true))
		everyPart = everyPart && within(w.tokens)
		spaceless = spaceless || w.spaceless
	}
	switch {
	case within(tokensOf(query)):
		return 1
	case everyWord:
		return 2
	case everyPart && spaceless:
		return 3
	}
	return 0
}

// Whatever the words and wherever they stand, the answers are those of a look at every
// series, in that order; so they are page by page, and for one machine.
func TestTriedAgainstALookAtEverything(t *testing.T) {
	for seed := range uint64(3) {
		rng := rand.New(rand.NewPCG(seed, 1))
		// Few words, and some that mostly go together: many series have all of a query's
		// words but one, or all of them in another order.
		vocabulary := strings.Fields("go test make build relay events -v ./... 日本語 日本 語 日 x1")
		some := func(n int) []string {
			var list []string
			for range 1 + rng.IntN(n) {
				list = append(list, vocabulary[rng.IntN(len(vocabulary))])
			}
			if rng.IntN(2) == 0 {
				list = append([]string{"git", "commit", "-am", "so", "that", "it", "is"}, list...)
			}
			return list
		}
		type one struct {
			command, machine string
			texts            []string
			order            int
		}
		l := newLedger(t)
		var all []*one
		for i := range 700 {
			l.now = l.now.Add(time.Second)
			argv, machine, tags := some(5), fmt.Sprintf("m%d", rng.IntN(3)), some(1)[:1]
			id := l.ran(0, argv, on(machine), func(r *events.MemoryRecord) { r.Tags = tags })
			command := strings.Join(argv, " ")
			at := slices.IndexFunc(all, func(o *one) bool { return o.command == command && o.machine == machine })
			if at < 0 {
				at = len(all)
				all = append(all, &one{command: command, machine: machine, texts: []string{command}})
			}
			all[at].order = i
			all[at].texts = append(all[at].texts, tags...)
			if rng.IntN(20) == 0 {
				text := strings.Join(some(3), " ")
				l.concluded(id, text)
				all[at].texts = append(all[at].texts, text)
			}
		}
		slices.SortFunc(all, func(a, b *one) int { return b.order - a.order })
		v := l.view()
		for range 60 {
			query, machine := strings.Join(some(4), " "), ""
			if rng.IntN(3) == 0 {
				machine = "m1"
			}
			var want []string
			for rank, why := range matchOrder {
				for _, o := range all {
					if machine != "" && o.machine != machine {
						continue
					}
					same := o.command == query
					if same && rank == 0 || !same && rank > 0 && plainRank(query, o.texts) == rank {
						want = append(want, why+": "+o.command+" on "+o.machine)
					}
				}
			}
			for _, limit := range []int{1000, 1 + rng.IntN(40)} {
				var got []string
				for cursor := ""; ; {
					found, err := v.Tried(t.Context(), Query{Text: query, Machine: machine, Limit: limit, Cursor: cursor})
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range found.Answers {
						got = append(got, a.WhyMatched+": "+a.Command+" on "+a.Machine)
						cursor = a.Cursor
					}
					if !found.More {
						break
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("seed %d, %q on %q, %d at a time: got %d\n%s\nwant %d\n%s", seed, query, machine, limit, len(got), strings.Join(got, "\n"), len(want), strings.Join(want, "\n"))
				}
			}
		}
	}
}

// The terms asked for at last are those that tell the series apart, not those that all
// of them have.
func TestTellApart(t *testing.T) {
	hay := func(texts ...string) (out []string) {
		for _, x := range texts {
			out = append(out, haystack([]string{x}))
		}
		return out
	}
	terms := []term{{"the"}, {"so"}, {"b"}, {"a"}}
	n := tellApart(terms, hay("the so a", "the so a", "the so a", "the so b"), 0)
	if n != 2 || terms[0].indexed() != "b" || terms[1].indexed() != "a" {
		t.Errorf("got %d of %v", n, terms)
	}
	if n := tellApart(terms, hay("the so", "the so"), 2); n != 0 {
		t.Errorf("few enough are left: got %d", n)
	}
	if n := tellApart([]term{{"the"}}, hay("the so", "the so"), 0); n != 0 {
		t.Errorf("nothing tells them apart: got %d", n)
	}
}

// Which words of a query are common is known from the index alone.
func TestRarestFirst(t *testing.T) {
	l := newLedger(t)
	for i := range 6000 {
		l.now = l.now.Add(time.Second)
		l.ran(0, []string{"everywhere", fmt.Sprint(i), []string{"often", "oftener"}[min(i%3, 1)], "always"})
	}
	v := l.view()
	err := v.look(t.Context(), func(r reader) error {
		s := search{reader: r}
		terms, err := s.rarestFirst(t.Context(), []term{{"everywhere"}, {"oftener"}, {"often"}, {"4711"}})
		if err != nil {
			return err
		}
		var got []string
		for _, x := range terms {
			got = append(got, x.indexed())
		}
		if strings.Join(got, " ") != "4711 often oftener everywhere" {
			t.Errorf("got %v", got)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
