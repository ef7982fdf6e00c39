// Package gate is the authority model: who may do what, who must ask, and who
// may answer. Everything in it is a pure function of its arguments, so that a
// decision found in the log can be decided again and must come out the same.
//
// Levels lie in four bands (levels.go). A rule covers an action or a family of
// them (actions.go, rules.go). A gate checks one action of one actor against
// the rules (decide.go), and what a gate stops, an approver may grant
// (approve.go).
//
// A worked example. The rule deploy.* asks for level 70, for membership of
// ops, and exempts from the membership at 90:
//
//	ana, level 75, in ops:  allow           MEETS_MINIMUM
//	bo,  level 75:          needs_approval  OUT_OF_SCOPE
//	cy,  level 60, in ops:  needs_approval  BELOW_MINIMUM
//	dee, level 95:          allow           EXEMPT
//
// What bo asks, dee may grant: bo is an org_admin, so it takes level 90, and dee
// passes the rule herself. Ana may not: her level is too low.
//
// Whatever cannot be understood fails closed: an unusable level is denied, a
// malformed rule denies, and one whose action is malformed denies every action,
// since nobody can tell which it was written for.
package gate
