package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
)

// Bounds of what the heap may grow by over what lives in it, in percent, before garbage
// is collected. The lower is Go's own.
const (
	minGCPercent  = 100
	maxGCPercent  = 1000
	gcPercentStep = 50 // to change it stops the world for a moment
)

// heapFloor is what roomyHeap was told last, in bytes.
var heapFloor atomic.Uint64

// roomyHeap has garbage collected only once the heap has so many bytes; a heap of which
// more than half lives is collected as ever. Requests and events make garbage by the
// gigabyte while a few megabytes live: the collector would run all the time, and with a
// fixed percentage that is large enough for them, a heap of which much lives would grow
// to several times that. It holds for the rest of the process; GOGC, if it is set, is
// left as it is.
func roomyHeap(floor uint64) {
	if _, set := os.LookupEnv("GOGC"); set || heapFloor.Swap(floor) != 0 {
		return
	}
	was := minGCPercent
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	// A finalizer runs after each collection that finds its object unused, and makes the
	// next such object.
	type sentinel struct{ _ [16]byte }
	var collected func(*sentinel)
	collected = func(*sentinel) {
		metrics.Read(live)
		if percent := gcPercent(heapFloor.Load(), live[0].Value.Uint64()); percent != was {
			debug.SetGCPercent(percent)
			was = percent
		}
		runtime.SetFinalizer(new(sentinel), collected)
	}
	collected(nil)
}

// gcPercent is what may be added to what lives until the heap has its floor.
func gcPercent(floor, live uint64) int {
	if live >= floor {
		return minGCPercent
	}
	percent := (floor - live) * 100 / max(live, 1)
	return int(min(max(percent, minGCPercent), maxGCPercent)) / gcPercentStep * gcPercentStep
}
