package gate

import (
	"fmt"

	"fleetledger/events"
)

// Band is a range of levels. The four partition 0..100 with no seam.
type Band string

const (
	Ordinary    Band = "ordinary"
	Captain     Band = "captain"
	OrgAdmin    Band = "org_admin"
	SystemAdmin Band = "system_admin"
)

// BandOf returns the band that l lies in, and "" for an unusable level, which
// lies in none.
func BandOf(l events.Level) Band {
	switch {
	case !l.Usable():
		return ""
	case l < Captain.Floor():
		return Ordinary
	case l < OrgAdmin.Floor():
		return Captain
	case l < SystemAdmin.Floor():
		return OrgAdmin
	}
	return SystemAdmin
}

// Floor returns the lowest level of b, and events.Unusable for what is no band.
func (b Band) Floor() events.Level {
	switch b {
	case Ordinary:
		return 0
	case Captain:
		return 50
	case OrgAdmin:
		return 70
	case SystemAdmin:
		return 90
	}
	return events.Unusable
}

// RequiredApproverLevel is the least level that may settle what requester asks:
// the floor of the band above its own. There is none above system_admin, whose
// members answer each other, and an unusable level asks for as much.
func RequiredApproverLevel(requester events.Level) events.Level {
	switch BandOf(requester) {
	case Ordinary:
		return Captain.Floor()
	case Captain:
		return OrgAdmin.Floor()
	}
	return SystemAdmin.Floor()
}

// Derive returns the level of an actor that acts under another: the least of
// what was asked, the parent's effective level and the cap. Nil asked means as
// much as the parent has, nil cap no cap. capped says that the actor got less
// than it asked for, or, having asked for nothing, less than its parent has;
// reason then says why and is empty otherwise.
//
// An unusable value among the three gives events.Unusable, never a level: the
// reason names it, and the registration is to be refused.
func Derive(asked *events.Level, parent events.Level, cap *events.Level) (level events.Level, capped bool, reason string) {
	switch {
	case asked != nil && !asked.Usable():
		return events.Unusable, false, "the level asked for is not an integer from 0 to 100"
	case !parent.Usable():
		return events.Unusable, false, "the parent has no usable level"
	case cap != nil && !cap.Usable():
		return events.Unusable, false, "the cap is not an integer from 0 to 100"
	}
	want, wanted := parent, fmt.Sprintf("the parent's level %d", parent)
	if asked != nil {
		want, wanted = *asked, fmt.Sprintf("the level %d asked for", *asked)
	}
	level = min(want, parent)
	if cap != nil {
		level = min(level, *cap)
	}
	if level == want {
		return level, false, ""
	}
	by := fmt.Sprintf("the parent has %d", parent)
	switch {
	case cap != nil && *cap == parent:
		by += fmt.Sprintf(" and the cap is %d", *cap)
	case cap != nil && *cap < parent:
		by = fmt.Sprintf("the cap is %d", *cap)
	}
	return level, true, fmt.Sprintf("%s was reduced to %d: %s", wanted, level, by)
}

// Effective returns the level that counts at a decision: the least of the
// actor's own level, its cap and its parent's effective level; nil stands for no
// cap and no parent. If one of them is unusable, so is the result.
func Effective(own events.Level, cap *events.Level, parentEffective *events.Level) events.Level {
	level := own
	for _, bound := range [...]*events.Level{cap, parentEffective} {
		if bound == nil {
			continue
		}
		if !bound.Usable() {
			return events.Unusable
		}
		level = min(level, *bound)
	}
	if !own.Usable() {
		return events.Unusable
	}
	return level
}
