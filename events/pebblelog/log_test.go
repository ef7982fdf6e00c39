package pebblelog_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/logtest"
)

func TestLog(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	logtest.Run(t, engine(func(*pebblelog.Log) {}))
}

// TestLogWithoutMemory runs the suite on a committer that remembers next to
// nothing of what it wrote, and so looks up almost everything again.
func TestLogWithoutMemory(t *testing.T) {
	logtest.Run(t, engine(pebblelog.Forget))
}

// engine is the engine in memory, with each log changed before its first use.
func engine(change func(*pebblelog.Log)) logtest.Engine {
	return logtest.Engine{
		New: func(t *testing.T) logtest.Open {
			fsys := vfs.NewMem()
			return func(o logtest.Options) (events.Log, error) {
				opts := options(fsys)
				opts.Fleet, opts.Fold, opts.Now = o.Fleet, o.Fold, o.Now
				l, err := pebblelog.Open("data", opts)
				if err != nil {
					return nil, err
				}
				change(l)
				return l, nil
			}
		},
		Durable: true,
	}
}
