package sqlview

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/projections"
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
	case len(words(query)) == 0 && commandForm(query) != "":
		return 0 // signs only are the same command, or nothing
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
// series, in that order; so they are page by page, for one machine, and in one repository.
func TestTriedAgainstALookAtEverything(t *testing.T) {
	// Few words, and some that mostly go together: many series have all of a query's
	// words but one, or all of them in another order.
	few := strings.Fields("go test make build relay events -v ./... 日本語 日本 語 日 x1")
	sorts := append(strings.Fields("go test ./... -run=TestA|TestB --x='a | 'b\" \"c\" | 2>&1 || && $HOME $(ls) * x* \\ C:\\src d:/docu2 日本語 日本 テスト ภาษา 한국어 проверка 🚀 👩\u200d💻 ✈\ufe0f caf\u00e9 cafe\u0301 R\u00c9SUM\u00c9 resume\u0301 \u212b 100% _ a_b a-b NEAR AND"),
		"a b", "it's", "two\nlines", "\u202ereversed", "")
	for seed, c := range []struct {
		vocabulary    []string
		runs, queries int
	}{{few, 700, 60}, {few, 700, 60}, {sorts, 1500, 60}} {
		if testing.Short() {
			c.runs, c.queries = c.runs/3, c.queries/3
		}
		rng := rand.New(rand.NewPCG(uint64(seed), 1))
		some := func(n int) []string {
			var list []string
			for range 1 + rng.IntN(n) {
				list = append(list, c.vocabulary[rng.IntN(len(c.vocabulary))])
			}
			if rng.IntN(2) == 0 {
				list = append([]string{"git", "commit", "-am", "so", "that", "it", "is"}, list...)
			}
			return list
		}
		type one struct {
			command, machine, repo string
			forms, texts           []string
			order                  int
		}
		l := newLedger(t)
		var all []*one
		for i := range c.runs {
			l.now = l.now.Add(time.Second)
			argv, machine, repo, tags := some(5), fmt.Sprintf("m%d", rng.IntN(3)), []string{"", "/src/a"}[rng.IntN(2)], some(1)[:1]
			id := l.ran(0, argv, on(machine), in(repo), func(r *events.MemoryRecord) { r.Tags = tags })
			forms := commandForms(argv)
			at := slices.IndexFunc(all, func(o *one) bool { return o.forms[0] == forms[0] && o.machine == machine && o.repo == repo })
			if at < 0 {
				at = len(all)
				line := projections.CommandLine(argv)
				all = append(all, &one{command: line, machine: machine, repo: repo, forms: forms, texts: []string{line}})
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
		for range c.queries {
			argv, machine, repo := some(4), "", ""
			query := []string{strings.Join(argv, " "), projections.CommandLine(argv)}[rng.IntN(2)]
			if rng.IntN(4) == 0 {
				argv = slices.Clone(all[rng.IntN(len(all))].forms)
				query = argv[len(argv)-1]
			}
			if rng.IntN(3) == 0 {
				machine = "m1"
			}
			if rng.IntN(3) == 0 {
				repo = "/src/a"
			}
			asked := queryForms(query)
			var want []string
			for rank, why := range matchOrder {
				for _, o := range all {
					if machine != "" && o.machine != machine || repo != "" && o.repo != repo {
						continue
					}
					same := slices.ContainsFunc(asked, func(f string) bool { return slices.Contains(o.forms, f) })
					if same && rank == 0 || !same && rank > 0 && plainRank(query, o.texts) == rank {
						want = append(want, why+": "+o.command+" on "+o.machine+" in "+o.repo)
					}
				}
			}
			for _, limit := range []int{1000, 1 + rng.IntN(40)} {
				var got []string
				for cursor := ""; ; {
					found, err := v.Tried(t.Context(), Query{Text: query, Machine: machine, Repo: repo, Limit: limit, Cursor: cursor})
					for try := 0; try < 20 && err == nil && found.Cut; try++ { // the machine is busy
						found, err = v.Tried(t.Context(), Query{Text: query, Machine: machine, Repo: repo, Limit: limit, Cursor: cursor})
					}
					if err != nil {
						t.Fatal(err)
					}
					for _, a := range found.Answers {
						got = append(got, a.WhyMatched+": "+a.Command+" on "+a.Machine+" in "+a.Repo)
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
// of them have, unless looking through them costs more.
func TestTellApart(t *testing.T) {
	hay := func(texts ...string) (out []string) {
		for _, x := range texts {
			out = append(out, haystack([]string{x}))
		}
		return out
	}
	some := hay("the so a", "the so a", "the so a", "the so b")
	for _, c := range []struct {
		name      string
		terms     []weighed
		haystacks []string
		further   float64
		want      string
	}{
		{"those that most lack first", []weighed{{term{"the"}, 1}, {term{"so"}, 1}, {term{"b"}, 1}, {term{"a"}, 1}}, some, 8, "b a"},
		{"no more than it takes", []weighed{{term{"c"}, 1}, {term{"b"}, 1}, {term{"a"}, 1}}, some, 8, "c"},
		{"nothing tells them apart", []weighed{{term{"the"}, 1}}, some, 8, ""},
		{"all were answers", []weighed{{term{"the"}, 1}}, nil, 8, ""},
		{"too common", []weighed{{term{"b"}, 100}, {term{"a"}, 7}}, some, 8, "a"},
		{"worth it for more", []weighed{{term{"b"}, 100}, {term{"a"}, 7}}, some, 80, "b a"},
		{"nothing is further on", []weighed{{term{"b"}, 1}}, some, 0, ""},
	} {
		var got []string
		for _, x := range c.terms[:tellApart(c.terms, slices.Clone(c.haystacks), c.further)] {
			got = append(got, x.indexed())
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: got %q, not %q", c.name, got, c.want)
		}
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
