package relay

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections/sqlview"
	"fleetledger/relay/bus"
	"fleetledger/relay/witness"
)

// Config says how a relay behaves.
type Config struct {
	// Version is the program's, for the OpenAPI document; empty means "dev".
	Version string
	// Seals sign and serve the trees of the fleets' logs, by name. Of a fleet without
	// one there is no checkpoint and no proof.
	Seals map[string]*seal.Sealer
	// Witnesses ask the witnesses of the fleets, by name; nil for a fleet without.
	Witnesses map[string]*witness.Collector
	// Hosts are other names under which clients reach the relay, where a proxy
	// changes the header Host: a device may have signed for one of them.
	Hosts []string
	// Backup writes a backup of a fleet, a tar archive, to w; nil if there is none to
	// be had.
	Backup func(ctx context.Context, fleet string, w io.Writer) error
	// RootEvery is after how many events a root over the heads of all streams is
	// recorded; 0 means 10,000.
	RootEvery events.Position
	// SubscriptionDirs are where the deliveries of the fleets keep their cursors, by
	// name; those of a fleet without one are kept in memory.
	SubscriptionDirs map[string]string
	// Shelves keep those of fleets that have several relays, by name.
	Shelves map[string]bus.Store
	// Views are the read models of the fleets, by name. What is asked of the view of a
	// fleet without one is answered 503 VIEW_BEHIND.
	Views map[string]*sqlview.View
	// Logger is told what went wrong inside; nil means slog.Default().
	Logger *slog.Logger
	// Heartbeat is how often a silent event stream says that it is alive; 0 means
	// 10 s.
	Heartbeat time.Duration
	// StreamPatience is how long the reader of an event stream may take nothing of
	// what it is sent before the stream ends; 0 means 30 s.
	StreamPatience time.Duration
	// PositionPatience is how long a read waits for its min_position, and for the view
	// to follow; 0 means 5 s.
	PositionPatience time.Duration
}

func (c Config) withDefaults() Config {
	if c.Version == "" {
		c.Version = "dev"
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.RootEvery == 0 {
		c.RootEvery = standardRootEvery
	}
	for _, d := range []struct {
		value    *time.Duration
		standard time.Duration
	}{
		{&c.Heartbeat, 10 * time.Second},
		{&c.StreamPatience, 30 * time.Second},
		{&c.PositionPatience, 5 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.standard
		}
	}
	return c
}

// Relay serves fleets over HTTP. Methods may be called concurrently.
type Relay struct {
	fleets  map[string]*commands.Ledger
	cfg     Config
	router  *chi.Mux
	doc     *document
	streams streams
	audits  audits
	buses   map[string]*bus.Bus
	metrics *metrics

	signatures map[string]*signatures // by fleet
}

// New returns a relay for fleets, by name. The ledgers are founded.
func New(fleets map[string]*commands.Ledger, cfg Config) *Relay {
	s := &Relay{fleets: fleets, cfg: cfg.withDefaults(), router: chi.NewRouter()}
	s.signatures = map[string]*signatures{}
	for name, ledger := range fleets {
		s.signatures[name] = newSignatures(ledger.Log())
	}
	s.buses = map[string]*bus.Bus{}
	for name, ledger := range fleets {
		s.buses[name] = bus.New(bus.Config{Ledger: ledger, Dir: s.cfg.SubscriptionDirs[name], Shared: s.cfg.Shelves[name], Logger: s.cfg.Logger.With("fleet", name)})
	}
	s.doc = newDocument(s.cfg.Version)
	s.metrics = newMetrics(s)
	s.audits.start()
	s.router.Use(middleware.GetHead)
	s.router.NotFound(s.pathNotFound)
	s.router.MethodNotAllowed(s.methodNotAllowed)
	s.routes()
	s.doc.finish()
	return s
}

// Handler serves the API.
func (s *Relay) Handler() http.Handler { return s.router }

// maxHeaderBytes has room for a command of 32 KiB, which is what a fleet takes unless it
// is set to take more, in the address of GET /v1/tried: three bytes for each of its own.
const maxHeaderBytes = 3*32<<10 + 16<<10

// NewServer returns a server for h with the timeouts that it needs. Event streams
// stay open past them: they keep deadlines of their own.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       time.Minute,
		WriteTimeout:      2 * time.Minute,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeaderBytes,
	}
}

// sweepInterval is how often the passing of time is looked at.
const sweepInterval = time.Second

// Run does every second what nobody asks for: it records what expired or lapsed
// in each fleet, and now and then a root over the heads of its streams, has its log
// witnessed, and ends the event streams of those who may no longer read. It returns when ctx ends.
func (s *Relay) Run(ctx context.Context) error {
	var fleets sync.WaitGroup
	for name, ledger := range s.fleets {
		if errors.Is(ledger.Degraded(), events.ErrReadOnly) {
			continue // nothing is recorded; and nothing delivered, as what was is not known
		}
		fleets.Go(func() { s.sweep(ctx, name, ledger) })
		fleets.Go(func() { s.rootHeads(ctx, name, ledger) })
		if w := s.cfg.Witnesses[name]; w != nil {
			fleets.Go(func() { w.Run(ctx) })
		}
		fleets.Go(func() {
			if err := s.buses[name].Run(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Logger.Error("subscriptions are not run any more", "fleet", name, "error", err)
			}
		})
	}
	fleets.Go(func() {
		every(ctx, sweepInterval, s.streams.endStale)
	})
	fleets.Wait()
	return nil
}

func (s *Relay) sweep(ctx context.Context, fleet string, ledger *commands.Ledger) {
	logged := ""
	every(ctx, sweepInterval, func() {
		// A relay that a witness contradicts goes on telling the others so.
		_, contradicted := errors.AsType[*commands.ContradictedError](ledger.Degraded())
		if ledger.Degraded() != nil && !contradicted {
			return // its own log has said why
		}
		err := ledger.KeepDuty(ctx)
		if err == nil && !contradicted {
			err = ledger.Sweep(ctx)
		}
		if err == nil || ctx.Err() != nil {
			logged = ""
			return
		}
		// The same trouble is told once, not every second.
		if logged != err.Error() {
			logged = err.Error()
			s.cfg.Logger.Error("what expired or lapsed could not be recorded", "fleet", fleet, "error", err)
		}
	})
}

// every calls f now and then at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func()) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		f()
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// Drain ends the event streams and audits that are open, and refuses new ones
// from now on, so that a server's Shutdown can finish. Everything else is still
// served.
func (s *Relay) Drain() {
	s.streams.drain()
	s.audits.stop()
}
