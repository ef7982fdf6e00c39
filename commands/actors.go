package commands

import (
	"context"
	"slices"

	"fleetledger/commands/gate"
	"fleetledger/events"
)

// RegisterActor adds an actor, and gives it a first token.
type RegisterActor struct {
	ID             string           `json:"id"`
	Kind           events.ActorKind `json:"kind"`
	AuthorityLevel *events.Level    `json:"authority_level,omitzero"`
	Scopes         []string         `json:"scopes,omitzero"`
	Parent         string           `json:"parent,omitzero"`
	Cap            *events.Level    `json:"cap,omitzero"`
}

// RegisterActor carries out c. Refusals: INVALID, SECRET_IN_TEXT, ACTOR_EXISTS, PARENT_NOT_YOURS,
// ABOVE_OWN_LEVEL, SCOPE_NOT_HELD, and what gates answer.
func (l *Ledger) RegisterActor(ctx context.Context, caller Caller, c RegisterActor) (Result, error) {
	return l.execute(ctx, caller, func(v view) (decided, error) { return c.decide(v) })
}

func (c RegisterActor) decide(v view) (decided, error) {
	return c.register(v, named("actor.register", c), func(d *decided, permit *events.Permit) { v.issue(d, c.ID, permit) })
}

// register adds the actor with what credentials gives it, as the command that an
// approval is bound to.
func (c RegisterActor) register(v view, command any, credentials func(*decided, *events.Permit)) (decided, error) {
	if err := c.check(v); err != nil {
		return decided{}, err
	}
	me := v.me()
	if v.auth.Actor(c.ID) != nil {
		return decided{}, refuse(Conflict, "ACTOR_EXISTS", "actor %s is registered already", c.ID)
	}
	reg := events.ActorRegistered{ID: c.ID, Type: c.Kind, AskedLevel: c.AuthorityLevel, Parent: c.Parent, Cap: c.Cap,
		Scopes: append([]string{}, c.Scopes...)}
	action, may := RegisterAction(v.auth, v.caller.Actor, c.Parent)
	if c.Parent != "" {
		if !may {
			return decided{}, refuse(Forbidden, "PARENT_NOT_YOURS", "%s is not %s or its descendant: only a system_admin registers under another actor", c.Parent, v.caller.Actor)
		}
		parent := Standing(v.auth, c.Parent)
		reg.AuthorityLevel, reg.Capped, reg.Reason = gate.Derive(c.AuthorityLevel, parent.Level, c.Cap)
		reg.EffectiveLevel = gate.Effective(reg.AuthorityLevel, c.Cap, &parent.Level)
		for _, s := range c.Scopes {
			if !slices.Contains(parent.Scopes, s) {
				return decided{}, invalid(problem("/scopes", "SCOPE_NOT_PARENTS", "%s is no scope of the parent %s", s, c.Parent))
			}
		}
	} else {
		// A cap without a parent is no reduction of anything but itself.
		reg.AuthorityLevel, reg.Capped, reg.Reason = gate.Derive(c.AuthorityLevel, 100, c.Cap)
		reg.EffectiveLevel = gate.Effective(reg.AuthorityLevel, c.Cap, nil)
	}
	if reg.AuthorityLevel > me.Level {
		return decided{}, refuse(Forbidden, "ABOVE_OWN_LEVEL", "%s has level %d and cannot register level %d: nobody registers above its own level",
			me.ID, me.Level, reg.AuthorityLevel).With("level", me.Level)
	}
	if err := v.holds(c.Scopes); err != nil {
		return decided{}, err
	}
	return v.gated([]string{action}, command, func(permits []events.Permit, d *decided) {
		reg.Permit = &permits[0]
		d.add(events.AuthorityStream, v.newID(), reg)
		if c.Kind == events.Machine && len(c.Scopes) == 1 {
			d.add(events.AuthorityStream, v.newID(), events.RuleWritten{RuleID: v.newID(), Permit: &permits[0], Rule: MachineRule(c.ID, c.Scopes[0])})
		}
		credentials(d, &permits[0])
	})
}

// MachineRule is the rule that comes with a machine of a scope: its own people and
// org_admins may use it, and others ask.
func MachineRule(machine, scope string) events.Rule {
	floor, exempt := events.Level(0), gate.OrgAdmin.Floor()
	return events.Rule{
		Action: "task.submit." + machine, MinLevel: &floor, MatchingExemptLevel: &exempt, Scope: &scope,
		Why: "machine " + machine + " belongs to scope " + scope,
	}
}

func (c RegisterActor) check(v view) error {
	var bad []events.Problem
	if !events.ValidID(c.ID) {
		bad = append(bad, badID("/id", c.ID))
	}
	if c.Kind != events.Human && c.Kind != events.Agent && c.Kind != events.Machine {
		bad = append(bad, problem("/kind", "UNKNOWN_KIND", "%q is none of human, agent, machine", c.Kind))
	}
	bad = append(bad, badLevel("/authority_level", c.AuthorityLevel)...)
	bad = append(bad, badLevel("/cap", c.Cap)...)
	if c.AuthorityLevel == nil && c.Parent == "" {
		bad = append(bad, problem("/authority_level", "REQUIRED", "is needed for an actor without a parent"))
	}
	bad = append(bad, badScopes("/scopes", c.Scopes)...)
	if c.Kind == events.Machine && len(c.Scopes) > 1 {
		bad = append(bad, problem("/scopes", "TOO_MANY", "a machine has at most one scope"))
	}
	if c.Parent != "" && !v.auth.Active(c.Parent) {
		bad = append(bad, problem("/parent", "UNKNOWN_ACTOR", "no active actor %q", c.Parent))
	}
	if len(bad) > 0 {
		return invalid(bad...)
	}
	return noSecretsInNames(c.ID, "/scopes", c.Scopes)
}

func badID(path, id string) events.Problem {
	return problem(path, "INVALID_ID", "%q is not an id: 1 to 64 of a-z 0-9 . _ - and a letter or digit first", id)
}

func badLevel(path string, l *events.Level) []events.Problem {
	if l == nil || l.Usable() {
		return nil
	}
	return []events.Problem{problem(path, "LEVEL_UNUSABLE", "is not an integer from 0 to 100")}
}

func badScopes(path string, scopes []string) (bad []events.Problem) {
	for i, s := range scopes {
		if !events.ValidID(s) {
			bad = append(bad, badID(path, s))
		} else if slices.Contains(scopes[:i], s) {
			bad = append(bad, problem(path, "DUPLICATE", "%s is named twice", s))
		}
	}
	return bad
}

// holds refuses to give a scope that the caller lacks, unless it is a system_admin.
func (v view) holds(scopes []string) error {
	if s := NotGiven(v.auth, v.caller.Actor, scopes); s != "" {
		return refuse(Forbidden, "SCOPE_NOT_HELD", "%s is not a member of %s and cannot give it", v.caller.Actor, s)
	}
	return nil
}

// command is what an approval of a changing command is bound to.
type command struct {
	Command string `json:"command"`
	Args    any    `json:"args"`
}

func named(name string, args any) command { return command{name, args} }

// ChangeActor changes an actor's level, scopes or suspension.
type ChangeActor struct {
	ID             string        `json:"id"`
	AuthorityLevel *events.Level `json:"authority_level,omitzero"`
	AddScopes      []string      `json:"add_scopes,omitzero"`
	RemoveScopes   []string      `json:"remove_scopes,omitzero"`
	Suspended      *bool         `json:"suspended,omitzero"`
}

// ChangeActor carries out c. What changes nothing records nothing. Suspending an
// actor also withdraws its pending approvals and cancels its unclaimed tasks,
// as events of the relay, before it is answered.
func (l *Ledger) ChangeActor(ctx context.Context, caller Caller, c ChangeActor) (Result, error) {
	r, err := l.execute(ctx, caller, func(v view) (decided, error) { return c.decide(v) })
	if err == nil && c.Suspended != nil && *c.Suspended {
		err = l.Sweep(ctx)
	}
	return r, err
}

func (c ChangeActor) decide(v view) (decided, error) {
	target := v.auth.Actor(c.ID)
	if target == nil {
		return decided{}, refuse(NotFound, "ACTOR_NOT_FOUND", "no actor %q", c.ID)
	}
	bad := badLevel("/authority_level", c.AuthorityLevel)
	bad = append(bad, badScopes("/add_scopes", c.AddScopes)...)
	bad = append(bad, badScopes("/remove_scopes", c.RemoveScopes)...)
	for _, s := range c.AddScopes {
		if slices.Contains(c.RemoveScopes, s) {
			bad = append(bad, problem("/remove_scopes", "CONTRADICTION", "%s is both added and removed", s))
		}
		if target.Parent != "" && !slices.Contains(Standing(v.auth, target.Parent).Scopes, s) {
			bad = append(bad, problem("/add_scopes", "SCOPE_NOT_PARENTS", "%s is no scope of the parent %s", s, target.Parent))
		}
	}
	if c.AuthorityLevel == nil && c.Suspended == nil && len(c.AddScopes)+len(c.RemoveScopes) == 0 {
		bad = append(bad, problem("", "NOTHING_ASKED", "name one of authority_level, add_scopes, remove_scopes, suspended"))
	}
	if len(bad) > 0 {
		return decided{}, invalid(bad...)
	}
	if err := noSecretsInNames("", "/add_scopes", c.AddScopes); err != nil {
		return decided{}, err
	}
	if err := v.aboveOrAncestor(c.ID); err != nil {
		return decided{}, err
	}
	me := v.me()
	if c.AuthorityLevel != nil && *c.AuthorityLevel > me.Level {
		return decided{}, refuse(Forbidden, "ABOVE_OWN_LEVEL", "%s has level %d and cannot give level %d", me.ID, me.Level, *c.AuthorityLevel).With("level", me.Level)
	}
	if err := v.holds(c.AddScopes); err != nil {
		return decided{}, err
	}
	add := slices.DeleteFunc(slices.Clone(c.AddScopes), func(s string) bool { return slices.Contains(target.Scopes, s) })
	remove := slices.DeleteFunc(slices.Clone(c.RemoveScopes), func(s string) bool { return !slices.Contains(target.Scopes, s) })
	if target.Kind == events.Machine && len(target.Scopes)+len(add)-len(remove) > 1 {
		return decided{}, invalid(problem("/add_scopes", "TOO_MANY", "a machine has at most one scope"))
	}

	var actions []string
	var build []func(events.Permit) events.Event
	if c.AuthorityLevel != nil && *c.AuthorityLevel != target.Level {
		actions = append(actions, "actor.change")
		build = append(build, func(p events.Permit) events.Event {
			return events.ActorLevelSet{ID: c.ID, AuthorityLevel: *c.AuthorityLevel, Permit: p}
		})
	}
	if len(add)+len(remove) > 0 {
		actions = append(actions, "actor.scope")
		build = append(build, func(p events.Permit) events.Event {
			return events.ActorScopesChanged{ID: c.ID, Added: append([]string{}, add...), Removed: append([]string{}, remove...), Permit: p}
		})
	}
	if c.Suspended != nil && *c.Suspended != target.Suspended {
		actions = append(actions, "actor.change")
		build = append(build, func(p events.Permit) events.Event {
			if *c.Suspended {
				return events.ActorSuspended{ID: c.ID, Permit: p}
			}
			return events.ActorReinstated{ID: c.ID, Permit: p}
		})
	}
	if len(actions) == 0 {
		return decided{}, nil
	}
	return v.gatedAuthority(actions, named("actor.change", c), func(permits []events.Permit, d *decided) {
		for i, f := range build {
			d.add(events.AuthorityStream, v.newID(), f(permits[i]))
		}
	})
}

// gatedAuthority is gated for changes of authority: one that would lock
// everybody out is refused before the gate is asked, since no approval lifts it.
func (v view) gatedAuthority(actions []string, command any, changes func([]events.Permit, *decided)) (decided, error) {
	var trial decided
	changes(make([]events.Permit, len(actions)), &trial)
	if err := v.notLockedOut(trial); err != nil {
		return decided{}, err
	}
	return v.gated(actions, command, changes)
}

// notLockedOut refuses a change of authority that would lock everybody out.
func (v view) notLockedOut(d decided) error {
	auth := v.auth
	for _, c := range d.changes {
		if c.stream != events.AuthorityStream {
			continue
		}
		payload, err := events.Encode(c.event)
		if err != nil {
			return err
		}
		if auth, err = auth.Apply(events.Record{
			Header:  events.Header{Intent: events.Intent{Stream: c.stream, Type: c.kind, Schema: events.Schema, Actor: v.caller.Actor}, Place: events.Place{Revision: auth.Revision + 1}},
			Payload: payload,
		}); err != nil {
			return err
		}
	}
	if auth != v.auth && LockedOut(auth) {
		return refuse(Impossible, "LOCKOUT", "after this no active actor could retire a rule; nobody could mend it")
	}
	return nil
}
