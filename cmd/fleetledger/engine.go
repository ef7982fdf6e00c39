package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// envEngine names the engine where the flag does not: a connection string may hold
// a password, which others see on a command line.
const envEngine = "FLEETLEDGER_ENGINE"

// embedded is the engine of a log that is in the data directory alone.
const embedded = "pebble"

func (a *app) engineFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.engineName, "engine", "", "where the log is: pebble, in the data directory; or kurrentdb://..., in a cluster (default $"+envEngine+", then pebble)")
}

// engine is what keeps the log: embedded, or a connection string.
func (a *app) engine() (string, error) {
	name := a.engineName
	if name == "" {
		name = os.Getenv(envEngine)
	}
	if name == "" || name == embedded {
		return embedded, nil
	}
	if _, err := kurrentlog.ParseConnection(name); err != nil {
		return "", misused("--engine: %v", err)
	}
	return name, nil
}

// relayName is what this relay is called among those of a cluster. What it is given
// is kept in the data directory, which only one process has: a relay that is started
// again is the same relay.
func (a *app) relayName(given string) (string, error) {
	engine, err := a.engine()
	if err != nil || engine == embedded || given != "" {
		return given, err
	}
	file := filepath.Join(a.data, "relay")
	name, err := os.ReadFile(file)
	if err == nil {
		return strings.TrimSpace(string(name)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "relay"
	}
	made := host + "-" + rand.Text()[:8]
	return made, writeDurably(file, []byte(made+"\n"), 0o644)
}

// openFleet opens the log of a fleet with its state, and its tree. Whoever opens it
// closes Log().
func (a *app) openFleet(ctx context.Context, fleet string, logger *slog.Logger) (*commands.Ledger, seal.Store, error) {
	engine, err := a.engine()
	if err != nil {
		return nil, nil, err
	}
	state := projections.NewState()
	dir := fleetDir(a.data, fleet)
	opts := pebblelog.Options{Fleet: fleet, Fold: state, Logger: logger, Now: a.now}
	if engine == embedded {
		log, err := pebblelog.Open(dir, opts)
		if err != nil {
			return nil, nil, explainOpen(err, a.data, fleet)
		}
		return commands.New(log, state, random()), log, nil
	}
	replica, err := pebblelog.OpenReplica(dir, opts)
	if err != nil {
		return nil, nil, explainOpen(err, a.data, fleet)
	}
	log, err := kurrentlog.Open(ctx, replica, kurrentlog.Options{Connection: engine, Fleet: fleet, Fold: state, Logger: logger, Now: a.now, Peers: a.peers})
	if err != nil {
		return nil, nil, errors.Join(explainCluster(err, dir, fleet), replica.Close())
	}
	return commands.New(log, state, random()), log, nil
}

// explainCluster says what to do about a log that cannot be opened in its cluster.
func explainCluster(err error, dir, fleet string) error {
	err = fmt.Errorf("fleet %s: %w", fleet, err)
	if _, ok := errors.AsType[*kurrentlog.ForeignError](err); ok {
		return tryNext(err, "see that --engine names the right cluster; if it does, and it was restored, move "+shellWord(dir)+" away: the replica is made again")
	}
	if errors.Is(err, events.ErrUnavailable) {
		return tryNext(err, "see that the cluster runs, and that --engine names its nodes, its tls settings and its credentials")
	}
	return err
}

// listenPeers takes appends of other relays, if the log is in a cluster: at an address,
// or, without one, at any port of the host that clients talk to.
func (a *app) listenPeers(address, listen string, logger *slog.Logger) (close func() error, err error) {
	none := func() error { return nil }
	if engine, err := a.engine(); err != nil || engine == embedded {
		return none, err
	}
	if address == "" {
		host, _, err := net.SplitHostPort(listen)
		if err != nil {
			return none, err
		}
		address = net.JoinHostPort(host, "0")
	}
	if a.peers, err = kurrentlog.ListenPeers(address, logger); err != nil {
		return none, tryNext(fmt.Errorf("listen for other relays on %s: %w", address, err), "name another address with --listen-relays")
	}
	return a.peers.Close, nil
}

// directoryLog is the log, or the replica, that a log keeps in its directory.
func directoryLog(l events.Log) (*pebblelog.Log, bool) {
	switch l := l.(type) {
	case *pebblelog.Log:
		return l, true
	case *kurrentlog.Log:
		r, ok := l.Replica().(*pebblelog.Replica)
		if ok {
			return r.Log, true
		}
	}
	return nil, false
}

// openDirectory opens what is in a fleet's directory, a log or a replica, as it is.
func openDirectory(dir string, opts pebblelog.Options) (*pebblelog.Log, error) {
	is, err := pebblelog.IsReplica(dir)
	if err != nil {
		return nil, err
	}
	if !is {
		return pebblelog.Open(dir, opts)
	}
	r, err := pebblelog.OpenReplica(dir, opts)
	if err != nil {
		return nil, err
	}
	return r.Log, nil
}

// explainRole says what to do about a directory of the other kind.
func explainRole(err error, dir, fleet string) error {
	data := " --data " + shellWord(dir)
	if fleet != defaultFleet {
		data += " --fleet " + fleet
	}
	if is, _ := pebblelog.IsReplica(fleetDir(dir, fleet)); is {
		return tryNext(fmt.Errorf("fleet %s in %s is a replica of a log that a KurrentDB cluster keeps; nothing was changed", fleet, dir),
			"fleetledger serve --engine kurrentdb://HOST:2113"+data+"; or take it out of the cluster: fleetledger move --from kurrentdb://HOST:2113 --to pebble"+data)
	}
	if strings.Contains(err.Error(), "not a replica") {
		return tryNext(fmt.Errorf("fleet %s in %s is a log of its own, and in no cluster; nothing was changed", fleet, dir),
			"fleetledger serve"+data+"; or move it into the cluster: fleetledger move --from pebble --to kurrentdb://HOST:2113"+data)
	}
	return err
}
