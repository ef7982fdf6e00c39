package projections

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"fleetledger/events"
)

// Authority is who may do what, at one revision of the authority stream. It is
// immutable.
type Authority struct {
	Fleet    string
	LogID    string
	Revision events.Revision

	actors map[string]*Actor
	order  []string
	// Rules are the rules in force, in the order they were written.
	Rules []Rule
}

// Actor is an actor as registered and changed since. Its effective level and
// scopes depend on its ancestors too.
type Actor struct {
	ID           string
	Kind         events.ActorKind
	Level        events.Level
	Scopes       []string // sorted
	Parent       string
	Cap          *events.Level
	RegisteredBy string
	RegisteredAt time.Time
	Suspended    bool
	// Position is that of the newest event about the actor.
	Position events.Position
}

// Rule is a rule in force.
type Rule struct {
	ID        string
	Rule      events.Rule
	WrittenBy string
	WrittenAt time.Time
	Position  events.Position
}

// Actor returns the actor with this id, nil if there is none.
func (a *Authority) Actor(id string) *Actor { return a.actors[id] }

// Actors yields every actor in the order of registration.
func (a *Authority) Actors() []*Actor {
	out := make([]*Actor, len(a.order))
	for i, id := range a.order {
		out[i] = a.actors[id]
	}
	return out
}

// Rule returns the rule in force with this id, nil if there is none.
func (a *Authority) Rule(id string) *Rule {
	for i := range a.Rules {
		if a.Rules[i].ID == id {
			return &a.Rules[i]
		}
	}
	return nil
}

// Lineage returns the actor and its ancestors, the actor first; nil for an
// unknown actor.
func (a *Authority) Lineage(id string) []*Actor {
	var out []*Actor
	for id != "" {
		actor := a.actors[id]
		if actor == nil {
			break
		}
		out = append(out, actor)
		id = actor.Parent
	}
	return out
}

// Ancestors returns the ids of an actor's ancestors, its parent first.
func (a *Authority) Ancestors(id string) []string {
	line := a.Lineage(id)
	if len(line) < 2 {
		return nil
	}
	out := make([]string, 0, len(line)-1)
	for _, actor := range line[1:] {
		out = append(out, actor.ID)
	}
	return out
}

// DerivationRoot is the oldest ancestor of an actor, or the actor itself.
func (a *Authority) DerivationRoot(id string) string {
	line := a.Lineage(id)
	if len(line) == 0 {
		return id
	}
	return line[len(line)-1].ID
}

// Active reports whether an actor and all its ancestors are known and not
// suspended.
func (a *Authority) Active(id string) bool {
	line := a.Lineage(id)
	for _, actor := range line {
		if actor.Suspended {
			return false
		}
	}
	return len(line) > 0
}

// Apply folds one event of the authority stream into a copy of a. It fails for
// an event that does not fit: an engine then refuses the append.
func (a *Authority) Apply(r events.Record) (*Authority, error) { return a.apply(r, false) }

// apply is Apply. If a is the caller's own and not needed any more, owned spares
// the copying: what is returned then takes over a's maps and lists.
func (a *Authority) apply(r events.Record, owned bool) (*Authority, error) {
	if r.Header.Revision != a.Revision+1 {
		return nil, fmt.Errorf("position %d: authority revision %d does not follow %d", r.Header.Position, r.Header.Revision, a.Revision)
	}
	e, err := events.Decode(r)
	if err != nil {
		return nil, err
	}
	n := *a
	n.Revision = r.Header.Revision
	misfit := func(format string, args ...any) error {
		return fmt.Errorf("position %d: %s: %s", r.Header.Position, r.Header.Type, fmt.Sprintf(format, args...))
	}
	actors := func() map[string]*Actor {
		switch {
		case a.actors == nil:
			return map[string]*Actor{}
		case owned:
			return a.actors
		}
		return maps.Clone(a.actors)
	}
	order, rules := a.order, a.Rules
	if !owned {
		// No room at the end: appending copies, and a stays as it is.
		order, rules = slices.Clip(order), slices.Clip(rules)
	}
	change := func(id string, f func(*Actor)) error {
		old := a.actors[id]
		if old == nil {
			return misfit("unknown actor %q", id)
		}
		actor := *old
		f(&actor)
		actor.Position = r.Header.Position
		n.actors = actors()
		n.actors[id] = &actor
		return nil
	}
	switch e := e.(type) {
	case events.FleetFounded:
		n.Fleet, n.LogID = e.Fleet, e.LogID
	case events.ActorRegistered:
		if a.actors[e.ID] != nil {
			return nil, misfit("actor %q is registered already", e.ID)
		}
		n.actors = actors()
		n.actors[e.ID] = &Actor{
			ID: e.ID, Kind: e.Type, Level: e.AuthorityLevel, Scopes: slices.Sorted(slices.Values(e.Scopes)),
			Parent: e.Parent, Cap: e.Cap, RegisteredBy: r.Header.Actor, RegisteredAt: r.Header.Time,
			Position: r.Header.Position,
		}
		n.order = append(order, e.ID)
	case events.ActorLevelSet:
		err = change(e.ID, func(x *Actor) { x.Level = e.AuthorityLevel })
	case events.ActorScopesChanged:
		err = change(e.ID, func(x *Actor) {
			scopes := slices.DeleteFunc(slices.Clone(x.Scopes), func(s string) bool { return slices.Contains(e.Removed, s) })
			scopes = append(scopes, e.Added...)
			slices.Sort(scopes)
			x.Scopes = slices.Compact(scopes)
		})
	case events.ActorSuspended:
		err = change(e.ID, func(x *Actor) { x.Suspended = true })
	case events.ActorReinstated:
		err = change(e.ID, func(x *Actor) { x.Suspended = false })
	case events.RuleWritten:
		if a.Rule(e.RuleID) != nil {
			return nil, misfit("rule %q is written already", e.RuleID)
		}
		n.Rules = append(rules, Rule{
			ID: e.RuleID, Rule: e.Rule, WrittenBy: r.Header.Actor, WrittenAt: r.Header.Time, Position: r.Header.Position,
		})
	case events.RuleRetired:
		if a.Rule(e.RuleID) == nil {
			return nil, misfit("no rule %q is in force", e.RuleID)
		}
		n.Rules = slices.DeleteFunc(slices.Clone(a.Rules), func(x Rule) bool { return x.ID == e.RuleID })
	default:
		return nil, misfit("does not belong in stream %s", r.Header.Stream)
	}
	if err != nil {
		return nil, err
	}
	return &n, nil
}
