package bus

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"fleetledger/events"
)

// BenchmarkDelivery measures events delivered per second to a destination on this
// machine that takes them at once, from a log that is ahead, and the lag of a
// delivery that keeps up: from the acknowledgement of an append until the
// destination has taken it.
func BenchmarkDelivery(b *testing.B) {
	for _, kind := range []string{"webhook", "nats"} {
		b.Run(kind, func(b *testing.B) {
			f := newFixture(b)
			d := events.Destination{Kind: "nats", Subject: "fleet.events"}
			if kind == "nats" {
				n := newNATS(b, server.Options{})
				n.stream("")
				d.URL = n.ClientURL()
			} else {
				d = webhook(newReceiver(b).URL)
			}
			f.record("ext.a", "ext-a", 0, b.N)
			b.ResetTimer()
			f.subscribe(events.Subscription{Name: "d", Types: []string{"ext.*"}, Destination: d})
			f.awaitQuickly(uint64(b.N))
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			b.StopTimer()
			var lag time.Duration
			const n = 50
			for i := range n {
				f.record("ext.a", "ext-a", b.N+i, 1)
				begun := time.Now()
				f.awaitQuickly(uint64(b.N + i + 1))
				lag += time.Since(begun)
			}
			b.ReportMetric(float64(lag.Microseconds())/n, "µs-lag")
		})
	}
}

func (f *fixture) awaitQuickly(delivered uint64) {
	f.t.Helper()
	for limit := time.Now().Add(time.Minute); f.status("d").Delivered < delivered; time.Sleep(50 * time.Microsecond) {
		if time.Now().After(limit) {
			f.t.Fatal(fmt.Errorf("%d delivered of %d", f.status("d").Delivered, delivered))
		}
	}
}
