package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
	"fleetledger/relay"
	"fleetledger/relay/bus"
)

type serveFlags struct {
	listen          string
	tlsCert, tlsKey string
	insecureHTTP    bool
	originHost      string
	readOnly        bool
	publicHosts     []string
	rootEvery       uint64
	name            string // of the relay
	witness         witnessFlags
	listenRelays    string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the fleets of a data directory",
		Long: strings.TrimSpace(`
Serve the fleets of a data directory over HTTP. On a new or empty directory it
founds the fleet "default", with an actor root whose token it writes to
root.token there. Once ready it prints one line on stdout: listening on URL.
SIGTERM and SIGINT drain it and end it with exit code 0.

A damaged data directory is refused. With --read-only it is served as far as it can
be read, and nothing in it is changed: appends are answered 503 READ_ONLY, with the
first position that is lost, until a backup is restored in a new directory.

With --engine kurrentdb://... the log is in a KurrentDB cluster, and the data
directory holds a replica of it, which is made again when it is lost. Any number of
relays serve one cluster; one of them at a time signs, records what expires, and
delivers subscriptions. The others hand it what they append, which is faster than
appending side by side, over TLS and by keys that they tell each other in the cluster:
it listens for that on a port of its own.

With --witness, others vouch that the log only ever grows: each witness (C2SP
tlog-witness) is asked, beside the commits, to cosign the newest checkpoint, and what
enough of them have cosigned is recorded. At start each is asked before anything is
recorded. If one has cosigned more events than are here, or others, the directory is an
older copy, or another one: reads are served, and appends are answered 503
WITNESS_CONTRADICTS until it agrees. One that does not answer is asked again later, and
nothing waits for it; /readyz tells of each.

Only addresses of this machine are listened on in the clear; any other needs
--tls-cert and --tls-key, or --insecure-http behind a proxy that does TLS.`),
		Example: `  fleetledger serve
  fleetledger serve --data /var/lib/fleetledger --listen 0.0.0.0:7070 --tls-cert cert.pem --tls-key key.pem
  fleetledger serve --witness witness.example.org+a5c5c3d7+BHk...=@https://witness.example.org`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if err := f.check(); err != nil {
				return err
			}
			if engine, err := a.engine(); err != nil {
				return err
			} else if engine != embedded && f.readOnly {
				return misused("--read-only serves the data directory alone: leave --engine out")
			}
			if err := f.witness.parse(f.readOnly); err != nil {
				return err
			}
			return a.serve(cmd.Context(), f)
		}),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", defaultListen, "address to listen on; port 0 takes a free one")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "file with the certificate chain (PEM)")
	flags.StringVar(&f.tlsKey, "tls-key", "", "file with the certificate's key (PEM)")
	flags.BoolVar(&f.insecureHTTP, "insecure-http", false, "listen in the clear on an address that others reach")
	flags.StringArrayVar(&f.publicHosts, "public-host", nil, "host[:port] by which paired devices reach a proxy that changes the header Host (repeat)")
	flags.Uint64Var(&f.rootEvery, "root-every", 10_000, "events after which a root over all streams is recorded, by which evidence shows that nothing was left out; 5 minutes after an event one is in any case")
	flags.BoolVar(&f.readOnly, "read-only", false, "serve reads only, change nothing in the data directory, and open a damaged one as far as it can be read")
	f.witness.add(cmd)
	originHostFlag(cmd, &f.originHost)
	a.engineFlag(cmd)
	flags.StringVar(&f.name, "relay", "", "name of this relay among those of a cluster, which no other has (default: its host and what is in the file relay of the data directory)")
	flags.StringVar(&f.listenRelays, "listen-relays", "", "address at which the other relays of a cluster hand over appends (default: the host of --listen, any free port)")
	return cmd
}

func (f serveFlags) tls() bool { return f.tlsCert != "" }

func (f serveFlags) check() error {
	host, _, err := net.SplitHostPort(f.listen)
	switch {
	case err != nil:
		return misused("--listen %s: it looks like %s: %v", f.listen, defaultListen, err)
	case (f.tlsCert == "") != (f.tlsKey == ""):
		return misused("--tls-cert and --tls-key go together")
	case f.listenRelays != "" && !validListen(f.listenRelays):
		return misused("--listen-relays %s: it looks like db1.example:7071", f.listenRelays)
	case f.rootEvery == 0:
		return misused("--root-every is a number of events, from 1 on")
	case f.tls() && f.insecureHTTP:
		return misused("--insecure-http contradicts --tls-cert")
	case !f.tls() && !f.insecureHTTP && !isLoopbackHost(host):
		return misused("--listen %s is an address that others may reach, and tokens would pass in the clear: give --tls-cert and --tls-key, or --insecure-http behind a proxy that does TLS", f.listen)
	}
	for _, h := range f.publicHosts {
		if u, err := url.Parse("//" + h); err != nil || h == "" || u.Host != h {
			return misused("--public-host %q: it looks like ledger.example.org or ledger.example.org:8443", h)
		}
	}
	return nil
}

func validListen(address string) bool {
	_, _, err := net.SplitHostPort(address)
	return err == nil
}

// serveHeap is what the heap of a server may have before garbage is collected, in bytes.
// With more, collecting costs less, and first use of memory more: on a virtual machine a
// new page can take as long as an event.
const serveHeap = 48 << 20

// drainTime is how long requests under way may take once the server is to stop.
const drainTime = 5 * time.Second

// serve is the server from its first line to its last.
func (a *app) serve(ctx context.Context, f serveFlags) (err error) {
	logger := a.newLogger(slog.LevelInfo)
	roomyHeap(serveHeap)

	// The certificate and the address first: neither must cost a founding.
	var certificates []tls.Certificate
	if f.tls() {
		pair, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
		if err != nil {
			return tryNext(fmt.Errorf("--tls-cert %s, --tls-key %s: %w", f.tlsCert, f.tlsKey, err), "fleetledger serve with a certificate and its own key, both in PEM")
		}
		certificates = append(certificates, pair)
	}
	listener, err := net.Listen("tcp", f.listen)
	if err != nil {
		return tryNext(fmt.Errorf("listen on %s: %w", f.listen, err), "fleetledger serve --listen 127.0.0.1:0, or stop what has the port")
	}
	defer listener.Close()

	open := func(ctx context.Context, originHost string, logger *slog.Logger) (map[string]*commands.Ledger, map[string]*seal.Sealer, bool, error) {
		name, err := a.relayName(f.name)
		if err != nil {
			return nil, nil, false, err
		}
		return a.openFleets(ctx, originHost, name, logger)
	}
	if f.readOnly {
		open = a.openReadOnly
		if err := existingData(a.data); err != nil {
			return err
		}
	} else if err := makeData(a.data); err != nil {
		return err
	}
	lock, err := lockData(a.data, f.readOnly)
	if err != nil {
		return err
	}
	defer lock.Close()
	closePeers, err := a.listenPeers(f.listenRelays, f.listen, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePeers()) }()
	fleets, seals, isNew, err := open(ctx, f.originHost, logger)
	if err != nil {
		return err
	}
	defer func() {
		for name, l := range fleets {
			if seals[name] == nil {
				err = errors.Join(err, l.Log().Close())
				continue
			}
			if err := l.LeaveDuty(context.WithoutCancel(ctx)); err != nil {
				logger.Warn("the other relays could not be told that this one stops", "fleet", name, "error", err)
			}
			if _, err := seals[name].Checkpoint(); err != nil && !errors.Is(err, seal.ErrNotOnDuty) {
				// It is for whoever looks at the directory later; the log is whole without.
				logger.Warn("the last checkpoint could not be signed", "fleet", name, "error", err)
			}
			err = errors.Join(err, l.Log().Close())
		}
	}()

	witnesses := a.askWitnesses(ctx, f.witness, fleets, seals, logger)
	defer func() {
		for _, c := range witnesses {
			c.Close()
		}
	}()
	views, err := openViews(a.data, fleets, f.readOnly, logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeViews(views)) }()
	cursors, shelves := map[string]string{}, map[string]bus.Store{}
	for name, l := range fleets {
		if log, ok := l.Log().(*kurrentlog.Log); ok {
			shelves[name] = kurrentlog.NewShelf(log)
		}
		at := filepath.Join(fleetDir(a.data, name), subscriptionsName)
		if _, err := os.Stat(at); err != nil && f.readOnly {
			continue // it would be made
		}
		cursors[name] = at
	}
	rel := relay.New(fleets, relay.Config{
		Version: version(), Logger: logger, Seals: seals, Witnesses: witnesses, Views: views, Hosts: f.publicHosts, Backup: a.backupOf(fleets), RootEvery: events.Position(f.rootEvery),
		SubscriptionDirs: cursors, Shelves: shelves,
	})
	server := relay.NewServer(rel.Handler())
	server.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	connections := newBoundedListener(listener, connectionBound(openFiles(), len(fleets)), logger)

	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var work sync.WaitGroup
	defer work.Wait()
	defer stop()
	ended := make(chan error, 2)
	work.Go(func() {
		if err := rel.Run(running); err != nil && running.Err() == nil {
			ended <- fmt.Errorf("the relay ended: %w", err)
		}
	})
	for name, l := range fleets {
		a.keepSnapshots(running, &work, name, l, logger)
	}
	work.Go(func() {
		scheme := func() error { return server.Serve(connections) }
		if f.tls() {
			server.TLSConfig = &tls.Config{Certificates: certificates}
			scheme = func() error { return server.ServeTLS(connections, "", "") }
		}
		if err := scheme(); !errors.Is(err, http.ErrServerClosed) {
			ended <- fmt.Errorf("the HTTP server ended: %w", err)
		}
	})

	address := f.address(listener)
	if isNew {
		a.welcome(address)
	}
	if _, err := fmt.Fprintf(a.out, "listening on %s\n", address); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
	case err = <-ended:
	}

	logger.Info("draining")
	rel.Drain()
	limit, cancel := context.WithTimeout(running, drainTime)
	defer cancel()
	if server.Shutdown(limit) != nil {
		// What is under way after drainTime is cut off; its client asks again.
		_ = server.Close()
	}
	return err
}

// snapshotEvery is after how many events the inline state is written down: a start
// folds at most so many.
const snapshotEvery = 100_000

// keepSnapshots keeps snapshots of a fleet's state until ctx ends.
func (a *app) keepSnapshots(ctx context.Context, work *sync.WaitGroup, fleet string, l *commands.Ledger, logger *slog.Logger) {
	log, ok := l.Log().(*pebblelog.Log)
	if !ok || log.Degraded() != nil {
		return
	}
	_, since := log.Verified()
	work.Go(func() {
		if err := l.KeepSnapshots(ctx, snapshotEvery, since, log.WriteSnapshot); err != nil && ctx.Err() == nil {
			logger.Error("snapshots are not kept any more: the next start takes longer", "fleet", fleet, "error", err)
		}
	})
}

// address is the URL under which the server is reached.
func (f serveFlags) address(l net.Listener) string {
	scheme := "http"
	if f.tls() {
		scheme = "https"
	}
	// The host as it was named; the port as it was given out.
	host, _, _ := net.SplitHostPort(f.listen)
	if host == "" { // every address of this machine
		host = "localhost"
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return scheme + "://" + net.JoinHostPort(host, port)
}

// openFleets opens every fleet of the data directory, with what signs its log, and
// founds the default one if there is none yet.
func (a *app) openFleets(ctx context.Context, originHost, relayName string, logger *slog.Logger) (fleets map[string]*commands.Ledger, seals map[string]*seal.Sealer, isNew bool, err error) {
	names, err := fleetNames(a.data)
	if err != nil {
		return nil, nil, false, err
	}
	engine, err := a.engine()
	if err != nil {
		return nil, nil, false, err
	}
	if !slices.Contains(names, defaultFleet) {
		// A replica that is gone is made again.
		if err := lostFleet(a.data); err != nil && engine == embedded {
			return nil, nil, false, err
		}
		names = append(names, defaultFleet)
	}
	fleets, seals = map[string]*commands.Ledger{}, map[string]*seal.Sealer{}
	defer func() {
		if err != nil {
			for _, l := range fleets {
				err = errors.Join(err, l.Log().Close())
			}
		}
	}()
	for _, name := range names {
		l, store, err := a.openFleet(ctx, name, logger)
		if err != nil {
			return fleets, nil, false, err
		}
		fleets[name] = l
		switch founded := l.Log().Durable() > 0; {
		case founded && engine == embedded:
			a.noteRootToken(name)
		case founded: // maybe by another relay, which has root's token
		case name == defaultFleet:
			if err := lostFleet(a.data); err != nil {
				return fleets, nil, false, err
			}
			err := a.found(ctx, l, name, originHost)
			if _, another := errors.AsType[*events.ConflictError](err); err != nil && !another {
				return fleets, nil, false, err
			}
			isNew = err == nil // or another relay was first
		default:
			return fleets, nil, false, tryNext(fmt.Errorf("fleet %s was never founded", name), "fleetledger fleet found "+name+" --data "+shellWord(a.data))
		}
		if seals[name], err = a.openSealer(ctx, l, store, name, originHost); err != nil {
			return fleets, nil, false, err
		}
		if channel, ok := l.Log().(commands.Channel); ok {
			l.Share(relayName, channel, seals[name])
			if err := l.KeepDuty(ctx); err != nil {
				// It is tried again every second.
				logger.Warn("the other relays are not heard", "fleet", name, "error", err)
			}
		}
	}
	return fleets, seals, isNew, nil
}

// noteRootToken tells the way out if a crash between the founding and the writing
// of root's token has left nobody with one.
func (a *app) noteRootToken(fleet string) {
	name := rootTokenFile(a.data, fleet)
	if _, err := os.Stat(name); !errors.Is(err, fs.ErrNotExist) {
		return
	}
	printer{a.err}.f("there is no %s. If root's token is kept nowhere else, stop this server and get a new one:\n  fleetledger root-token reset --data %s --fleet %s\n",
		name, shellWord(a.data), fleet)
}

// welcome says what to do with a new fleet.
func (a *app) welcome(address string) {
	server, data := "", ""
	if address != defaultServer {
		server = " --server " + address
	}
	if a.data != defaultData {
		data = " --data " + shellWord(a.data)
	}
	p := printer{a.err}
	p.f("fleet %s is founded; the token of its root is in %s.\n", defaultFleet, rootTokenFile(a.data, defaultFleet))
	p.f("Next, in another terminal: a machine, its agent, and a task for it:\n")
	me := calledAs()
	p.f("  %s actors register m1 --kind machine --level 10 --save-token m1.token%s%s\n", me, server, data)
	p.f("  %s agent --machine m1 --token-file m1.token --allow whoami%s\n", me, server)
	p.f("  %s task submit --target m1 --wait%s%s -- whoami\n", me, server, data)
}

// calledAs is how the user started this program, so that the next command can be
// copied. What go run builds lies where nobody would call it.
func calledAs() string {
	if strings.Contains(os.Args[0], "go-build") {
		return "go run ./cmd/fleetledger"
	}
	return shellWord(os.Args[0])
}
