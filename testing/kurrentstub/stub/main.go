// Command stub serves a KurrentDB cluster in memory, to try a relay on one without
// one. Nothing that it holds outlives it.
//
//	go run ./testing/kurrentstub/stub -nodes 3
//	fleetledger serve --engine "$(the line that it prints)"
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"fleetledger/testing/kurrentstub"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "stub:", err)
		os.Exit(1)
	}
}

func run() error {
	nodes := flag.Int("nodes", 3, "how many nodes")
	listen := flag.String("listen", "", "address of a single node")
	share := flag.Float64("misbehave", 0, "share of calls that each kind of fault befalls, 0 to 0.15")
	seed := flag.Uint64("seed", 1, "of the faults")
	refuse := flag.Duration("refuse-every", 0, "refuse every call for two seconds, this often; 0 is never")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := kurrentstub.Start(kurrentstub.Options{Nodes: *nodes, Listen: *listen})
	if err != nil {
		return err
	}
	defer c.Stop()
	if *share > 0 {
		c.Misbehave(kurrentstub.Faults{Seed: *seed, DropAfterWrite: *share, Reset: *share, Stall: *share, NotLeader: *share,
			Early: *share, Unknown: *share, Lag: *share})
	}
	fmt.Println(strings.Replace(c.ConnectionString(), "esdb://", "kurrentdb://", 1))
	if *refuse == 0 {
		<-ctx.Done()
		return nil
	}
	again := time.NewTicker(*refuse)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			c.RefuseDiscovery(2 * time.Second)
		case <-ctx.Done():
			return nil
		}
	}
}
