// Package load measures how many events a server records per second over HTTP,
// each durable before its acknowledgement, and holds the reference that the
// product is measured beside.
//
//	ref, err := load.OpenReference(dir)
//	srv := httptest.NewServer(ref.Handler())
//	r, err := load.Append(ctx, load.Target{Addr: srv.Listener.Addr().String()}, load.Options{
//		Clients: 64, Batch: 1, Warmup: time.Second / 2, Duration: 3 * time.Second,
//	})
//	fmt.Println(r.PerSecond, r.P99)
//
// The generator is a closed loop: each client has one connection and one request
// under way, and sends the next when the last was answered. Latencies are those
// of a server that is kept busy by so many clients, not of one at a chosen rate.
//
// Nothing is measured that was not checked: every answer must be 201 with a
// position for each event, and afterwards the acknowledged positions must be all
// that the log grew by, each once.
package load
