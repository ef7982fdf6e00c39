package gate

import (
	"fmt"
	"slices"

	"fleetledger/events"
)

// Kin is where an actor comes from, as the approval check needs it.
type Kin struct {
	ID string
	// Ancestors are the actors that it acts under, its parent first; nil for an
	// actor without a parent.
	Ancestors []string
	// RegisteredBy is whoever registered it, the actor in the header of its
	// actor.registered; empty for root. It is no ancestor: two people whom root
	// registered are not related.
	RegisteredBy string
	// Backers are whoever it goes back to in any other way: who registered its
	// ancestors, who registered its registrar, the ancestors of these, and so on, in
	// any order. Without them an actor could register a puppet, let the puppet
	// register or derive another, and have that one approve.
	Backers []string
}

// Why an approver may not settle, for programs.
const (
	ApproverNotActive      = "APPROVER_NOT_ACTIVE"
	ApproverIsRequester    = "APPROVER_IS_REQUESTER"
	ApproverDerived        = "APPROVER_DERIVED"
	ApproverRegistered     = "APPROVER_REGISTERED_BY_REQUESTER"
	ApproverIsAncestor     = "APPROVER_IS_ANCESTOR"
	ApproverSibling        = "APPROVER_SIBLING"
	ApproverLevelTooLow    = "APPROVER_LEVEL_TOO_LOW"
	ApproverNotAllowed     = "APPROVER_NOT_ALLOWED"
	RequesterLevelUnusable = "REQUESTER_LEVEL_UNUSABLE"
)

// MayApprove reports whether approver may settle what requester asks, and if
// not, why: a code of those above and a sentence. evaluations are DecideAll of
// the approver, one for each action of the approval; without any nobody may.
// separationOfDuties is the fleet's setting: it forbids what an ancestor may
// otherwise do, approve what its own descendant asks.
func MayApprove(approver Actor, approverKin Kin, requester Actor, requesterKin Kin, evaluations []events.Decision, separationOfDuties bool) (ok bool, code, why string) {
	if !approver.Active {
		return false, ApproverNotActive, fmt.Sprintf("%s is suspended or not registered", approver.ID)
	}
	if approver.ID != approverKin.ID || requester.ID != requesterKin.ID {
		panic(fmt.Sprintf("bug: the kin of %q and %q was handed in for %q and %q", approverKin.ID, requesterKin.ID, approver.ID, requester.ID))
	}
	if code, why := related(approverKin, requesterKin, separationOfDuties); code != "" {
		return false, code, why
	}
	if !requester.Level.Usable() {
		return false, RequesterLevelUnusable, fmt.Sprintf("%s has no usable level, so nobody can approve what it asks: set a level from 0 to 100", requester.ID)
	}
	required := RequiredApproverLevel(requester.Level)
	switch {
	case !approver.Level.Usable():
		return false, ApproverLevelTooLow, fmt.Sprintf("%s has no usable level, and to approve what %s asks takes level %d", approver.ID, requester.ID, required)
	case approver.Level < required:
		return false, ApproverLevelTooLow, fmt.Sprintf("%s has level %d, and to approve what %s (level %d, %s) asks takes level %d",
			approver.ID, approver.Level, requester.ID, requester.Level, BandOf(requester.Level), required)
	case len(evaluations) == 0:
		return false, ApproverNotAllowed, fmt.Sprintf("%s was evaluated for no action, and nobody grants what they may not do themselves", approver.ID)
	}
	for _, d := range evaluations {
		switch {
		case d.Actor != approver.ID:
			return false, ApproverNotAllowed, fmt.Sprintf("the evaluation of %s is that of %s, not of %s", d.Action, d.Actor, approver.ID)
		case d.Verdict != events.Allow:
			return false, ApproverNotAllowed, fmt.Sprintf("%s may not do %s itself: %s", approver.ID, d.Action, reasonOf(d))
		}
	}
	return true, "", ""
}

// reasonOf says why d is not an allow. The reasons of rules name the rule.
func reasonOf(d events.Decision) string {
	if d.Decisive == nil {
		return fmt.Sprintf("its verdict is %q", d.Verdict)
	}
	return d.Decisive.Reason
}

// related returns why the derivation of the two forbids that one approves what
// the other asks; an empty code if it does not.
func related(approver, requester Kin, separationOfDuties bool) (code, why string) {
	switch {
	case approver.ID == requester.ID:
		return ApproverIsRequester, fmt.Sprintf("%s asked for it, and nobody approves what they ask themselves", requester.ID)
	case slices.Contains(approver.Ancestors, requester.ID):
		return ApproverDerived, fmt.Sprintf("%s acts under %s, who asks", approver.ID, requester.ID)
	case approver.RegisteredBy == requester.ID:
		return ApproverRegistered, fmt.Sprintf("%s was registered by %s, who asks", approver.ID, requester.ID)
	case slices.Contains(approver.Backers, requester.ID):
		return ApproverRegistered, fmt.Sprintf("%s goes back to %s, who asks, through whoever registered it", approver.ID, requester.ID)
	case slices.Contains(requester.Ancestors, approver.ID):
		if separationOfDuties {
			return ApproverIsAncestor, fmt.Sprintf("%s acts under %s, and the fleet's setting separation_of_duties forbids approving what one's own descendant asks", requester.ID, approver.ID)
		}
		return "", ""
	}
	for _, ancestor := range approver.Ancestors {
		if slices.Contains(requester.Ancestors, ancestor) {
			return ApproverSibling, fmt.Sprintf("%s and %s, who asks, both act under %s", approver.ID, requester.ID, ancestor)
		}
	}
	return "", ""
}
