// Package commands holds the decisions: what may be recorded, given what was
// recorded before. Each is a pure function of a view (authority, settings, time,
// ids and randomness are its arguments) and comes to events or to a Refusal;
// Ledger.execute is the one place where a decision meets the log.
//
//	view := state at some revision
//	decided, err := decide(view)       pure
//	log.Append(decided.events, expecting those revisions)
//	conflict? once more from the top
//
// A decision stands only if no authority event lies between its revision and its
// own place in the log: every append expects the authority stream where the
// decision saw it. Gates are asked in gated; what they stop becomes a recorded
// denial, or an approval that the same command, repeated, spends.
package commands
