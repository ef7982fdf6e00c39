package relay

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/relay/witness"
)

// metrics are what GET /metrics tells: to everybody what is the process's and of
// nobody's fleet, and of the caller's fleet the rest. Requests are counted as they are
// answered; everything else is looked up when it is asked for.
//
// Labels are bounded: routes as they are registered, statuses, codes, and the names
// of subscriptions and witnesses there are. No actor, id or path of a caller is one.
type metrics struct {
	common   *prometheus.Registry
	requests map[string]*requestMetrics      // by fleet; "" for whom nobody knows
	fleets   map[string]*prometheus.Registry // by name
}

// requestMetrics count the requests of a fleet.
type requestMetrics struct {
	answered *prometheus.CounterVec
	seconds  *prometheus.HistogramVec

	// met are the series that requests have met so far: a lookup by labels costs more
	// than the rest. The map is replaced, under mu, and never changed.
	met atomic.Pointer[map[answeredAs]series]
	mu  sync.Mutex
}

// answeredAs is what requests are counted by.
type answeredAs struct {
	op     *operation // nil for a path or method that there is not
	status int
}

type series struct {
	answered prometheus.Counter
	seconds  prometheus.Observer // nil for event streams
}

// requestSeconds are bounds of durations: from a read out of memory to a wait for a
// position.
var requestSeconds = []float64{.0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}

func newMetrics(s *Relay) *metrics {
	m := &metrics{common: prometheus.NewRegistry(), requests: map[string]*requestMetrics{}, fleets: map[string]*prometheus.Registry{}}
	built := prometheus.NewGauge(prometheus.GaugeOpts{Name: "fleetledger_build_info", Help: "1; the label is the program's version.",
		ConstLabels: prometheus.Labels{"version": s.cfg.Version}})
	built.Set(1)
	m.common.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), built)
	m.requests[""] = newRequestMetrics(m.common, "")
	for name, ledger := range s.fleets {
		registry := prometheus.NewRegistry()
		m.fleets[name], m.requests[name] = registry, newRequestMetrics(registry, name)
		registry.MustRegister(&fleetMetrics{relay: s, fleet: name, ledger: ledger})
	}
	return m
}

func newRequestMetrics(registry *prometheus.Registry, fleet string) *requestMetrics {
	labels := prometheus.Labels{"fleet": fleet}
	r := &requestMetrics{
		answered: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "fleetledger_http_requests_total", ConstLabels: labels,
			Help: "Requests answered, by route and status; event streams once they have ended."}, []string{"method", "route", "status"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "fleetledger_http_request_duration_seconds", ConstLabels: labels,
			Help: "How long requests took, without event streams.", Buckets: requestSeconds}, []string{"method", "route"}),
	}
	registry.MustRegister(r.answered, r.seconds)
	r.met.Store(&map[answeredAs]series{})
	return r
}

// of returns the series of an answer.
func (r *requestMetrics) of(a answeredAs) series {
	if s, ok := (*r.met.Load())[a]; ok {
		return s
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	met := maps.Clone(*r.met.Load())
	// Callers choose the path and the method that there is not: all are one route.
	method, route, stream := "", "none", false
	if a.op != nil {
		method, route, stream = a.op.method, a.op.path, slices.Contains(a.op.media, "text/event-stream")
	}
	s := series{answered: r.answered.WithLabelValues(method, route, strconv.Itoa(a.status))}
	if !stream {
		s.seconds = r.seconds.WithLabelValues(method, route)
	}
	met[a] = s
	r.met.Store(&met)
	return s
}

// answered counts a request that came at start.
func (m *metrics) answered(c *call, start time.Time) {
	r := m.requests[c.fleet]
	if r == nil {
		r = m.requests[""]
	}
	s := r.of(answeredAs{c.op, c.status})
	s.answered.Inc()
	if s.seconds != nil {
		s.seconds.Observe(time.Since(start).Seconds())
	}
}

// getMetrics answers in the format that Prometheus reads.
func (c *call) getMetrics() error {
	c.headers(textType) // the handler sets the type anew
	promhttp.HandlerFor(prometheus.Gatherers{c.metrics.common, c.metrics.fleets[c.fleet]}, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(c.cfg.Logger.Handler(), slog.LevelError), ErrorHandling: promhttp.ContinueOnError,
	}).ServeHTTP(c.w, c.r)
	return nil
}

// fleetMetrics looks up how a fleet stands. It is a prometheus.Collector.
type fleetMetrics struct {
	relay  *Relay
	fleet  string
	ledger *commands.Ledger
}

// Describe implements prometheus.Collector: what there is to tell depends on how the
// fleet stands, so nothing is promised.
func (f *fleetMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (f *fleetMetrics) Collect(ch chan<- prometheus.Metric) {
	g := &gathered{ch: ch, fleet: prometheus.Labels{"fleet": f.fleet}}
	f.log(g)
	f.witnesses(g)
	f.view(g)
	f.work(g)
	f.subscriptions(g)
	f.audits(g)
}

// gathered is what a collector has to tell.
type gathered struct {
	ch    chan<- prometheus.Metric
	fleet prometheus.Labels
}

func (g *gathered) desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("fleetledger_"+name, help, labels, g.fleet)
}

func (g *gathered) gauge(name, help string, value float64) {
	g.ch <- prometheus.MustNewConstMetric(g.desc(name, help), prometheus.GaugeValue, value)
}

// labelled is a gauge with one label.
func (g *gathered) labelled(name, help, label, of string, value float64) {
	g.ch <- prometheus.MustNewConstMetric(g.desc(name, help, label), prometheus.GaugeValue, value, of)
}

func (f *fleetMetrics) log(g *gathered) {
	log := f.ledger.Log()
	g.gauge("log_position", "The newest durable position of the log.", float64(log.Durable()))
	degraded := ""
	if err := f.ledger.Degraded(); err != nil {
		degraded = "LOG_FAILED"
		if p := problemOf(err); p != nil {
			degraded = p.code
		}
		g.labelled("log_degraded", "1 while appends are refused, with the code that they are refused with.", "code", degraded, 1)
	}
	g.gauge("log_writable", "1 if appends are taken, 0 if they are refused.", truth(degraded == ""))
	g.gauge("state_drifted", "1 if the live state was found not to be what the log folds to.", truth(f.ledger.Drift() != nil))
	g.gauge("duty_held", "1 if this relay signs the log and records what expires.", truth(f.ledger.OnDuty()))
	if v, ok := log.(events.Verifying); ok {
		done, of := v.Verified()
		g.gauge("log_unverified_events", "Events from before a quick start that are still to be read and checked.", float64(of-min(done, of)))
	}
	if c, ok := log.(events.Committing); ok {
		counts := c.Commits()
		g.ch <- prometheus.MustNewConstMetric(g.desc("appends_total", "Appends committed since the start; one may hold several events."),
			prometheus.CounterValue, float64(counts.Appends))
		buckets, groups := map[float64]uint64{}, uint64(0)
		for i, n := range counts.Groups {
			groups += n
			buckets[float64(uint64(1)<<i)] = groups
		}
		g.ch <- prometheus.MustNewConstHistogram(g.desc("commit_events", "Events committed together, since the start."), groups, float64(counts.Events), buckets)
	}
}

// witnesses tells how far the log is witnessed, if anybody is asked to.
func (f *fleetMetrics) witnesses(g *gathered) {
	asked := f.relay.cfg.Witnesses[f.fleet]
	if asked == nil {
		return
	}
	w := f.ledger.State().Witnessed()
	g.gauge("witnessed_events", "Events that the newest cosigned checkpoint in the log covers.", float64(w.Size))
	if w.Told > 0 {
		g.gauge("witnessed_timestamp_seconds", "When that checkpoint was recorded.", float64(w.Time.UnixMicro())/1e6)
	}
	for _, s := range asked.Status() {
		g.labelled("witness_agrees", "1 if a witness has cosigned the log as it is here since this relay started.", "witness", s.Witness, truth(s.State == witness.Agrees))
		g.labelled("witness_faulty", "1 if a witness did not cosign when it was asked last.", "witness", s.Witness, truth(s.Fault != ""))
	}
}

func (f *fleetMetrics) view(g *gathered) {
	v := f.relay.cfg.Views[f.fleet]
	if v == nil {
		return
	}
	s := v.Status()
	g.gauge("view_position", "The position up to which the view in SQLite has folded.", float64(s.Position))
	g.gauge("view_lag_events", "Events that the view has still to fold.", float64(s.Head-s.Position))
	g.gauge("view_behind_seconds", "How long ago the last event that the view has folded was recorded; 0 if there is none to fold.", s.Behind.Seconds())
	g.gauge("view_parked_events", "Events that the view could not fold.", float64(s.Parked))
	g.gauge("view_faulty", "1 while something keeps the view from following, or from being made again.", truth(s.Fault != ""))
	g.gauge("view_rebuilding", "1 while the view is made again.", truth(s.Rebuilding))
}

// work tells what is open, and who listens.
func (f *fleetMetrics) work(g *gathered) {
	offered, waiting, approvals := f.ledger.State().Open()
	const tasks = "Tasks that are not settled, by status."
	g.labelled("tasks_open", tasks, "status", projections.TaskOpen, float64(offered))
	g.labelled("tasks_open", tasks, "status", projections.TaskAwaitingApproval, float64(waiting))
	g.gauge("approvals_pending", "Approvals that wait to be settled.", float64(approvals))
	g.gauge("event_streams_open", "Event streams (SSE) that are open.", float64(f.relay.streams.count(f.fleet)))
}

// deliveriesPatience is how long the cursors of deliveries are waited for, which may
// lie with another relay.
const deliveriesPatience = 2 * time.Second

func (f *fleetMetrics) subscriptions(g *gathered) {
	ctx, cancel := context.WithTimeout(context.Background(), deliveriesPatience)
	defer cancel()
	subs, err := projections.LoadSubscriptions(ctx, f.ledger.Log(), 0)
	if err != nil {
		g.ch <- prometheus.NewInvalidMetric(g.desc("subscription_lag_events", "-"), fmt.Errorf("subscriptions of fleet %s: %w", f.fleet, err))
		return
	}
	for _, sub := range subs.List {
		s, err := f.relay.buses[f.fleet].Status(ctx, sub)
		if err != nil {
			g.ch <- prometheus.NewInvalidMetric(g.desc("subscription_lag_events", "-"), fmt.Errorf("subscription %s: %w", sub.Name, err))
			continue
		}
		g.labelled("subscription_lag_events", "Events that a subscription has still to look at.", "subscription", sub.Name, float64(s.Lag))
		g.labelled("subscription_parked_events", "Events that a destination refused for what they are.", "subscription", sub.Name, float64(len(s.Parked)))
		g.labelled("subscription_failing", "1 while a destination does not take what it is sent.", "subscription", sub.Name, truth(s.Failing != ""))
		g.labelled("subscription_paused", "1 while a subscription is paused.", "subscription", sub.Name, truth(sub.Paused))
	}
}

// audits tells of the last audit of this relay that was finished.
func (f *fleetMetrics) audits(g *gathered) {
	a := &f.relay.audits
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, run := range slices.Backward(a.list) {
		if report := run.reply.Report; run.fleet == f.fleet && report != nil && run.reply.EndedAt != nil {
			g.gauge("audit_findings", "Findings of the last audit that was asked of this relay.", float64(len(report.Findings)+report.FindingsOmitted))
			g.gauge("audit_ended_timestamp_seconds", "When that audit ended.", float64(run.reply.EndedAt.UnixMicro())/1e6)
			g.gauge("audit_position", "The position up to which it looked.", float64(report.To))
			return
		}
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
