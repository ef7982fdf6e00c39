package pebblelog_test

import (
	"flag"
	"fmt"
	"os"
	"runtime/pprof"
	"testing"
	"time"
)

// TestMain ends a run that hangs at half the time it has, and prints where: equal
// stacks once, so that what matters is not cut off by the many goroutines of
// databases that were made to fail.
func TestMain(m *testing.M) {
	flag.Parse()
	if d, ok := flag.Lookup("test.timeout").Value.(flag.Getter).Get().(time.Duration); ok && d > 0 {
		time.AfterFunc(d/2, func() {
			fmt.Fprintf(os.Stderr, "the tests of this package still run after %v, half their time; their goroutines:\n", d/2)
			_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 1)
			os.Exit(2)
		})
	}
	os.Exit(m.Run())
}
