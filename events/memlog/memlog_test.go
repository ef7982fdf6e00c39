package memlog_test

import (
	"testing"

	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/testing/logtest"
)

func TestLog(t *testing.T) {
	logtest.Run(t, logtest.Engine{
		New: func(*testing.T) logtest.Open {
			return func(o logtest.Options) (events.Log, error) {
				return memlog.New(memlog.Options{Fleet: o.Fleet, Fold: o.Fold, Now: o.Now})
			}
		},
	})
}

func TestNewRefusesAnInvalidFleet(t *testing.T) {
	if _, err := memlog.New(memlog.Options{Fleet: "Not Valid"}); err == nil {
		t.Fatal("a log was made for a fleet with an invalid id")
	}
}
