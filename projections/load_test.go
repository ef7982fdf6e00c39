package projections_test

import (
	"context"
	"fmt"
	"testing"

	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/projections"
)

func level(n events.Level) *events.Level { return &n }

// Authority loaded as of any position is what event-by-event folding had there,
// and loading changes nothing that was handed out before.
func TestLoadAuthorityIsTheFold(t *testing.T) {
	log, err := memlog.New(memlog.Options{Fleet: "f"})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	folded := []*projections.Authority{{}}
	describe := func(a *projections.Authority) string {
		s := fmt.Sprint(a.Fleet, a.Revision)
		for _, x := range a.Actors() {
			s += fmt.Sprintf(" %s %d %v %t", x.ID, x.Level, x.Scopes, x.Suspended)
		}
		for _, r := range a.Rules {
			s += fmt.Sprintf(" %s %s", r.ID, r.Rule.Action)
		}
		return s
	}
	var then []string
	add := func(e events.Event) {
		payload, err := events.Encode(e)
		if err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("e", len(folded))
		a, err := log.Append(ctx, events.Append{Drafts: []events.Draft{events.NewDraft(
			events.Intent{ID: id, Stream: events.AuthorityStream, Type: e.Kind(), Schema: events.Schema, Actor: "root"}, [events.SaltBytes]byte{}, payload)}})
		if err != nil {
			t.Fatal(err)
		}
		next, err := folded[len(folded)-1].Apply(a.Records[0])
		if err != nil {
			t.Fatal(err)
		}
		folded = append(folded, next)
		then = append(then, describe(next))
	}
	add(events.FleetFounded{Fleet: "f", LogID: "l"})
	for i := range 3 {
		id := fmt.Sprint("a", i)
		add(events.ActorRegistered{ID: id, Type: events.Human, AuthorityLevel: 50, Scopes: []string{"s"}})
		add(events.RuleWritten{RuleID: fmt.Sprint("r", i), Rule: events.Rule{Action: "x.*", MinLevel: level(1)}})
		add(events.ActorLevelSet{ID: "a0", AuthorityLevel: events.Level(i)})
		add(events.ActorScopesChanged{ID: id, Added: []string{"t"}, Removed: []string{"s"}})
	}
	add(events.RuleRetired{RuleID: "r1"})
	add(events.ActorSuspended{ID: "a2"})
	add(events.RuleWritten{RuleID: "r9", Rule: events.Rule{Action: "y", MinLevel: level(1)}})
	add(events.ActorReinstated{ID: "a2"})

	for i, want := range then {
		loaded, err := projections.LoadAuthority(ctx, log, events.Position(i+1))
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(loaded); got != want {
			t.Errorf("as of %d it is\n%s, not\n%s", i+1, got, want)
		}
		if got := describe(folded[i+1]); got != want {
			t.Errorf("what was folded at %d is now\n%s, not\n%s", i+1, got, want)
		}
	}
	whole, err := projections.LoadAuthority(ctx, log, 0)
	if err != nil || describe(whole) != then[len(then)-1] {
		t.Errorf("the whole is %s: %v", describe(whole), err)
	}
}
