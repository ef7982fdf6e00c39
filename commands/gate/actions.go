package gate

import (
	"strings"

	"fleetledger/events"
)

// submitPrefix starts the action of submitting a task; the machine's id follows.
const submitPrefix = "task.submit."

// ValidAction reports whether action can be asked of a gate: at most
// events.MaxNameBytes bytes of lower-case letters, digits and ._-, in segments
// between dots of which none is empty. Two names come from elsewhere and bring
// their own spelling: behind "task.submit." every id of a machine is valid, and
// behind "ext." upper-case letters are, since CloudEvents types have them.
func ValidAction(action string) bool {
	if action == "" || len(action) > events.MaxNameBytes {
		return false
	}
	if machine, ok := strings.CutPrefix(action, submitPrefix); ok && events.ValidID(machine) {
		return true
	}
	upper := strings.HasPrefix(action, events.ExtPrefix)
	empty := true
	for i := range len(action) {
		switch c := action[i]; {
		case c == '.':
			if empty {
				return false
			}
			empty = true
			continue
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '-':
		case upper && c >= 'A' && c <= 'Z':
		default:
			return false
		}
		empty = false
	}
	return !empty
}

// ValidPattern reports whether a rule may name pattern as its action: a valid
// action, or one followed by ".*". A bare "*" is not one.
func ValidPattern(pattern string) bool {
	if len(pattern) > events.MaxNameBytes {
		return false
	}
	head, _ := strings.CutSuffix(pattern, ".*")
	return ValidAction(head)
}

// Matches reports whether pattern names action: exactly, or as the prefix "a.*",
// which matches a.x and a.x.y but not a. A malformed pattern matches nothing,
// and nothing matches a malformed action.
//
// It is not the question whether a rule has a say: see Rule.Covers.
func Matches(pattern, action string) bool {
	return ValidPattern(pattern) && ValidAction(action) && matches(pattern, action)
}

// matches is Matches for a valid action and pattern. For a malformed pattern it
// may say anything.
func matches(pattern, action string) bool {
	if pattern == action {
		return true
	}
	head, ok := strings.CutSuffix(pattern, "*")
	return ok && len(action) > len(head) && strings.HasPrefix(action, head)
}
