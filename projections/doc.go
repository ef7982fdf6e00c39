// Package projections holds the folds: what the events add up to. Every value
// here can be thrown away and folded again from the log, and comes out the
// same; nothing here asks a clock, a network or the order of a map.
//
// State is the inline fold, kept in step with the log by the engine: authority,
// tokens, settings, open tasks, pending approvals, and the lists that readers
// page through. What is not open any more is folded from its own stream when
// asked for (LoadTask, LoadGate), so that memory is bounded by what is open, but
// for the lists, which hold a few words for each task, approval, run and
// conclusion.
//
// Values that State hands out are immutable: a change makes a new one.
package projections
