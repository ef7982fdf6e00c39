package pebblelog

import (
	"errors"
	"log/slog"
	"testing"
)

// Whoever stops waiting for a stuck database must find a log that has failed: Close
// would say that all is well.
func TestStuckIsToldFirst(t *testing.T) {
	var l *pebbleLogger
	cause, told := errors.New("the disk is gone"), error(nil)
	l = newPebbleLogger(slog.New(slog.DiscardHandler), func(err error) {
		if l.isStuck() {
			t.Error("nobody waits any more, and the log has not failed")
		}
		told = err
	})
	l.stick(cause)
	if told != cause || !l.isStuck() {
		t.Errorf("told: %v, stuck: %t", told, l.isStuck())
	}
}
