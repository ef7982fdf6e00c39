package projections

import (
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// A View is one projection at one position, item by item, in a form that can
// be compared: equal states give equal items.
type View struct {
	Name  string
	Items map[string]string
}

// Views are all projections of a State at one position.
type Views struct {
	Position events.Position
	Views    []View
}

// Snapshot returns every published projection at one moment, for comparing a
// rebuilt state with the live one.
func (s *State) Snapshot() Views {
	s.mu.RLock()
	defer s.mu.RUnlock()
	authority := map[string]string{"revision": encode(s.authority.Revision), "fleet": encode(s.authority.Fleet + "/" + s.authority.LogID)}
	for i, a := range s.authority.Actors() {
		authority["actor "+a.ID] = encode(struct {
			Order int
			Actor Actor
		}{i, *a})
	}
	for i, r := range s.authority.Rules {
		authority["rule "+r.ID] = encode(struct {
			Order int
			Rule  Rule
		}{i, r})
	}
	tokens := map[string]string{}
	for h, t := range s.tokens {
		tokens[h.String()] = encode(t)
	}
	offers := map[string]string{}
	for m, o := range s.offers {
		offers[m] = encode(o)
	}
	counts := map[string]string{"asked": encode(s.asked)}
	for actor, times := range s.denials {
		counts["denials of "+actor] = encode(times)
	}
	ledger := map[string]string{"revision": encode(s.ledgerAt), "rooted": encode(s.rooted), "duty": encode(s.duty)}
	for p, e := range s.erasures {
		ledger["erasure "+encode(p)] = encode(e)
	}
	collective := map[string]string{"revision": encode(s.collective.Revision), "begun": encode(s.collective.begun)}
	for i, x := range s.collective.list {
		collective["section "+x.Slug] = encode(numbered[Section]{i, *x})
	}
	return Views{Position: s.position, Views: []View{
		{"authority", authority},
		{"tokens", tokens},
		{"settings", map[string]string{"settings": fmt.Sprintf("%+v", s.settings)}},
		{"open_tasks", items(s.tasks)},
		{"pending_approvals", items(s.approvals)},
		{"offers", offers},
		{"counts", counts},
		{"ledger", ledger},
		{"collective", collective},
	}}
}

type numbered[T any] struct {
	Order int
	Item  T
}

func items[T any](m map[string]*T) map[string]string {
	out := make(map[string]string, len(m))
	for k, v := range m {
		out[k] = encode(v)
	}
	return out
}

func encode(v any) string {
	b, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("bug: a projection does not encode: " + err.Error())
	}
	return string(b)
}

// Difference is one item that two views do not agree on.
type Difference struct {
	View, Item    string
	Live, Rebuilt string // empty: the item is not there
}

// Compare lists every item in which the live views differ from the rebuilt ones.
func Compare(live, rebuilt Views) []Difference {
	var out []Difference
	for i, v := range live.Views {
		other := rebuilt.Views[i].Items
		names := map[string]bool{}
		for k := range v.Items {
			names[k] = true
		}
		for k := range other {
			names[k] = true
		}
		for _, k := range slices.Sorted(maps.Keys(names)) {
			if v.Items[k] != other[k] {
				out = append(out, Difference{View: v.Name, Item: k, Live: v.Items[k], Rebuilt: other[k]})
			}
		}
	}
	return out
}
