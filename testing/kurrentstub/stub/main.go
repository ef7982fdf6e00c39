// Command stub serves a KurrentDB cluster in memory, to try a relay on one without
// one. Nothing that it holds outlives it.
//
//	go run ./testing/kurrentstub/stub -nodes 3
//	fleetledger serve --engine "$(the line that it prints)"
package main

import (
	"context"
	"crypto/tls"
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
	cert := flag.String("tls-cert", "", "certificate that the nodes serve with")
	key := flag.String("tls-key", "", "the certificate's key")
	refuse := flag.Duration("refuse-every", 0, "refuse every call for two seconds, this often; 0 is never")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	opts := kurrentstub.Options{Nodes: *nodes, Listen: *listen}
	if *cert != "" {
		pair, err := tls.LoadX509KeyPair(*cert, *key)
		if err != nil {
			return err
		}
		opts.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	}
	c, err := kurrentstub.Start(opts)
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
