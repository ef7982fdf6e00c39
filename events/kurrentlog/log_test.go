package kurrentlog_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"go.uber.org/goleak"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/events/pebblelog"
	"fleetledger/testing/kurrentstub"
	"fleetledger/testing/logtest"
)

func TestMain(m *testing.M) {
	// Each check of the model opens a replica and a cluster.
	if err := flag.Set("rapid.checks", "20"); err != nil {
		panic(err)
	}
	code := m.Run()
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks tells of goroutines that are left. A call that has outlived its context ends
// when the client has given up looking for nodes, seconds after they are gone.
func leaks() (err error) {
	for limit := time.Now().Add(20 * time.Second); time.Now().Before(limit); {
		// When a redirect fails, the client forgets the connection that it was making; it
		// has no goroutine of ours.
		err = goleak.Find(
			goleak.IgnoreAnyFunction("google.golang.org/grpc/internal/grpcsync.(*CallbackSerializer).run"),
			goleak.IgnoreAnyFunction("google.golang.org/grpc.(*addrConn).resetTransport"),
			goleak.IgnoreAnyFunction("google.golang.org/grpc.(*addrConn).resetTransportAndUnlock"),
			goleak.IgnoreAnyFunction("google.golang.org/grpc/internal/transport.(*http2Client).reader"),
			goleak.IgnoreAnyFunction("google.golang.org/grpc/internal/transport.(*loopyWriter).run"),
			goleak.IgnoreAnyFunction("google.golang.org/grpc/internal/transport.(*controlBuffer).get"))
		if err == nil {
			return nil
		}
	}
	return err
}

// realCluster names the cluster that the suite runs on too, in streams of its own.
const realCluster = "FLEETLEDGER_TEST_KURRENTDB"

// TestLog runs the contract on the stub, and on a real cluster if one is named.
func TestLog(t *testing.T) {
	for name, connection := range map[string]string{"stub": "", "cluster": os.Getenv(realCluster)} {
		t.Run(name, func(t *testing.T) {
			if name == "cluster" && connection == "" {
				t.Skipf("%s names no cluster", realCluster)
			}
			logtest.Run(t, logtest.Engine{
				Durable: true, Remote: true, CannotErase: true, MaxBytes: kurrentlog.MaxBatchBytes - 4<<10,
				New: func(t *testing.T) logtest.Open {
					dir, at := t.TempDir(), connection
					if at == "" {
						at = start(t, kurrentstub.Options{}).ConnectionString()
					}
					if connection != "" {
						at = ofItsOwn(connection)
					}
					return func(o logtest.Options) (events.Log, error) {
						return open(filepath.Join(dir, "replica"), kurrentlog.Options{Connection: at, Fleet: o.Fleet, Fold: o.Fold, Now: o.Now})
					}
				},
			})
		})
	}
}

// ofItsOwn is a connection string to streams that nobody has used.
func ofItsOwn(connection string) string {
	sep := "?"
	if strings.Contains(connection, "?") {
		sep = "&"
	}
	return connection + sep + "streamPrefix=test-" + uuid.NewString()
}

func start(t *testing.T, o kurrentstub.Options) *kurrentstub.Cluster {
	t.Helper()
	c, err := kurrentstub.Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	return c
}

// open opens one relay's log, with its replica in dir.
func open(dir string, o kurrentlog.Options) (*kurrentlog.Log, error) {
	quiet := slog.New(slog.DiscardHandler)
	replica, err := pebblelog.OpenReplica(dir, pebblelog.Options{Fleet: o.Fleet, Fold: o.Fold, Now: o.Now, Logger: quiet, MemTableBytes: 1 << 20, MinFreeBytes: 1})
	if err != nil {
		return nil, err
	}
	o.Logger = quiet
	o.Deadline = cmp.Or(o.Deadline, 2*time.Second)
	l, err := kurrentlog.Open(context.Background(), replica, o)
	if err != nil {
		_ = replica.Close() // the first error counts
		return nil, err
	}
	return l, nil
}
