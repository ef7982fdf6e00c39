// Package sqlview is the read model for analysts: a SQLite database with the
// tasks, runs, conclusions and all else that people ask about, folded from a
// fleet's log. schema.sql describes its tables.
//
// It is asynchronous: events are recorded whether or not it follows, and a reader
// that must see them waits for a position (View.Wait). Rows and cursor are one
// transaction, so a crash never folds an event twice or leaves one out.
//
// It is disposable. A file is called view-N.db; one that is missing, damaged, of
// another version, of another log or ahead of its log is made again: view-N+1.db is
// filled beside it, takes its place once it has caught up, and only then view-N.db
// goes. Until then the old answers go on, unless there are none that can be
// trusted.
//
// An event that cannot be folded is parked, by position and with the reason, and
// the rest goes on.
package sqlview
