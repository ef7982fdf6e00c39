package sqlview

import (
	"slices"

	"fleetledger/events"
)

// authority folds what changes who may do what.
func (f *fold) authority(h *events.Header, e events.Event) error {
	now := timeText(h.Time)
	switch e := e.(type) {
	case events.ActorRegistered:
		return f.insert(`INSERT INTO actors VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?, ?, ?)`, e.ID, int64(h.Position), string(e.Type), int64(e.AuthorityLevel),
			levelOrNull(e.Cap), orNull(e.Parent), jsonText(e.Scopes), h.Actor, now, now)
	case events.ActorLevelSet:
		return f.insert(`UPDATE actors SET authority_level = ?, changed_at = ? WHERE actor_id = ?`, int64(e.AuthorityLevel), now, e.ID)
	case events.ActorScopesChanged:
		var text string
		var scopes []string
		if ok, err := f.row(`SELECT scopes FROM actors WHERE actor_id = ?`, []any{e.ID}, &text); err != nil || !ok {
			return err
		}
		if err := fromJSON(text, &scopes); err != nil {
			return err
		}
		scopes = slices.DeleteFunc(scopes, func(s string) bool { return slices.Contains(e.Removed, s) })
		for _, s := range e.Added {
			if !slices.Contains(scopes, s) {
				scopes = append(scopes, s)
			}
		}
		return f.insert(`UPDATE actors SET scopes = ?, changed_at = ? WHERE actor_id = ?`, jsonText(scopes), now, e.ID)
	case events.ActorSuspended:
		return f.insert(`UPDATE actors SET suspended = 1, changed_at = ? WHERE actor_id = ?`, now, e.ID)
	case events.ActorReinstated:
		return f.insert(`UPDATE actors SET suspended = 0, changed_at = ? WHERE actor_id = ?`, now, e.ID)
	case events.RuleWritten:
		r := e.Rule
		var scope any
		if r.Scope != nil {
			scope = *r.Scope
		}
		return f.insert(`INSERT INTO rules VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL, NULL)`, e.RuleID, int64(h.Position), r.Action,
			levelOrNull(r.MinLevel), levelOrNull(r.MatchingExemptLevel), scope, orNull(r.Why), h.Actor, now)
	case events.RuleRetired:
		return f.insert(`UPDATE rules SET retired_by = ?, retired_at = ? WHERE rule_id = ?`, h.Actor, now, e.RuleID)
	}
	return nil
}

// levelOrNull is a level as a row has it; one that is absent or unusable is NULL.
func levelOrNull(l *events.Level) any {
	if l == nil || !l.Usable() {
		return nil
	}
	return int64(*l)
}
