package kurrentlog_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/testing/kurrentstub"
)

// BenchmarkThreeRelays measures appends per second of three relays that write at once,
// each its own streams, on one stub on the same machine: each by itself, and two handing
// over to the third. Rounds are how often an append of the stub was needed for one of
// theirs.
func BenchmarkThreeRelays(b *testing.B) {
	for _, writers := range []int{1, 16, 128} {
		for _, handing := range []bool{false, true} {
			name := map[bool]string{false: "apart", true: "handed"}[handing]
			b.Run(fmt.Sprintf("writers=%d/%s", 3*writers, name), func(b *testing.B) {
				c, err := kurrentstub.Start(kurrentstub.Options{Nodes: 3})
				if err != nil {
					b.Fatal(err)
				}
				defer c.Stop()
				var logs []*kurrentlog.Log
				for i := range 3 {
					l, err := open(filepath.Join(b.TempDir(), fmt.Sprint(i)), kurrentlog.Options{Connection: c.ConnectionString(), Fleet: fleet, Peers: listenPeers(b)})
					if err != nil {
						b.Fatal(err)
					}
					defer func() {
						if err := l.Close(); err != nil {
							b.Error(err)
						}
					}()
					logs = append(logs, l)
				}
				if handing {
					introduce(b, logs[0], logs[1:]...)
				}
				var next atomic.Int64
				var wg sync.WaitGroup
				before := c.Appends()
				b.ResetTimer()
				for i, l := range logs {
					for w := range writers {
						wg.Go(func() {
							s := events.Stream(fmt.Sprintf("r-%d-%d", i, w))
							for n := next.Add(1); n <= int64(b.N); n = next.Add(1) {
								if _, err := l.Append(b.Context(), one(s, fmt.Sprint(n))); err != nil {
									b.Error(err)
									return
								}
							}
						})
					}
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "appends/s")
				b.ReportMetric(float64(c.Appends()-before)/float64(b.N), "rounds")
			})
		}
	}
}
