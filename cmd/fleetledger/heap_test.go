package main

import "testing"

func TestHeapGrowsToItsFloorAndThenToTwiceWhatLives(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, maxGCPercent}, {mib, maxGCPercent}, {16 * mib, 700}, {32 * mib, 300}, {50 * mib, 150},
		{64 * mib, 100}, {100 * mib, 100}, {128 * mib, 100}, {4096 * mib, 100},
	} {
		got := gcPercent(128*mib, c.live)
		if got != c.want {
			t.Errorf("%d MiB live: %d %%, want %d", c.live/mib, got, c.want)
		}
		if heap := c.live + c.live*uint64(got)/100; heap > max(128*mib, 2*c.live) {
			t.Errorf("%d MiB live: the heap grows to %d MiB", c.live/mib, heap/mib)
		}
	}
}
