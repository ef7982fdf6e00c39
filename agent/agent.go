package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/agent/runner"
)

// Config says which machine an agent is and what it may run.
type Config struct {
	// Machine is the id of the actor whose offers are taken.
	Machine string
	// Policy is what may be run here.
	Policy runner.Policy
	// StateDir is where memory.jsonl, outbox/, started/ and runs/ lie. It is made if
	// need be, and is one agent's alone.
	StateDir string
	// Version is the agent's, for its envelopes.
	Version string
	// Drain is how long running commands may go on when the agent is to stop; 0 stops
	// them at once.
	Drain time.Duration
	// Parallel is how many commands run at once; 0 means 1.
	Parallel int
	// Logger is told what happens; nil means slog.Default().
	Logger *slog.Logger
}

// Agent works one machine's offers.
type Agent struct {
	client  *Client
	cfg     Config
	log     *slog.Logger
	memory  *runner.Memory
	outbox  *outbox
	started started
	lock    *os.File // of the state directory; Run gives it back
	// hashesOnly is what was last known of Client.HashesOnly.
	hashesOnly atomic.Bool
	// records are the runs that no task asked for.
	records *Records
	offers  *offers
}

// New returns an agent that has read what an earlier run left in its state
// directory, and has ended what that left running. It is run once.
func New(client *Client, cfg Config) (*Agent, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	if cfg.Parallel == 0 {
		cfg.Parallel = 1
	}
	if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	lock, err := runner.Lock(filepath.Join(cfg.StateDir, "agent.lock"), 0)
	if errors.Is(err, runner.ErrHeld) {
		return nil, fmt.Errorf("another agent works on the state directory %s", cfg.StateDir)
	}
	if err != nil {
		return nil, fmt.Errorf("state directory: %w", err)
	}
	a, err := open(client, cfg)
	if err != nil {
		lock.Close()
		return nil, err
	}
	a.lock = lock
	return a, nil
}

// open reads the state directory, which is this agent's.
func open(client *Client, cfg Config) (*Agent, error) {
	if files, err := os.ReadDir(cfg.StateDir); err == nil { // that it cannot be read is told by what follows
		removeLeft(cfg.StateDir, files)
	}
	log := started{dir: filepath.Join(cfg.StateDir, "started"), log: cfg.Logger}
	if err := log.endLeft(); err != nil {
		return nil, err
	}
	box, err := openOutbox(filepath.Join(cfg.StateDir, "outbox"), cfg.Logger)
	if err != nil {
		return nil, fmt.Errorf("outbox: %w", err)
	}
	return &Agent{
		client: client, cfg: cfg, log: cfg.Logger, started: log, memory: runner.NewMemory(cfg.StateDir), outbox: box, records: NewRecords(cfg.StateDir, cfg.Logger),
		offers: &offers{added: make(chan struct{}, 1)},
	}, nil
}

// farewell is how long a stopping agent tries to report what it has stopped.
const farewell = 5 * time.Second

// Run works until ctx ends: then no more offers are taken, commands that still run
// after Config.Drain are stopped, and their ends, as all that is unreported, are
// reported if a relay answers within farewell; the rest stays in the outbox. That is
// no error. Run fails only if the relay refuses this agent at its start.
func (a *Agent) Run(ctx context.Context) error {
	defer a.lock.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	drained, stop := outlive(ctx, a.cfg.Drain)
	defer stop()

	var reporting sync.WaitGroup
	lastWord, stopReporting := context.WithCancel(context.WithoutCancel(ctx))
	defer stopReporting()
	reporting.Go(func() { a.report(lastWord) })

	reporting.Go(func() { a.sendRecords(lastWord) })

	var working sync.WaitGroup
	working.Go(func() {
		if err := a.takeOffers(ctx); err != nil && ctx.Err() == nil {
			cancel(err)
		}
	})
	for range a.cfg.Parallel {
		working.Go(func() { a.work(ctx, drained) })
	}
	working.Wait()

	deadline := time.AfterFunc(farewell, stopReporting)
	defer deadline.Stop()
	for len(a.outbox.list()) > 0 && pause(lastWord, 20*time.Millisecond) == nil {
		// report is at it.
	}
	stopReporting()
	reporting.Wait()
	if left := len(a.outbox.list()); left > 0 {
		a.log.Warn("reports are left for the next start of this agent", "reports", left, "outbox", a.outbox.dir)
	}
	var refused *Problem
	if err := context.Cause(ctx); errors.As(err, &refused) {
		return err
	}
	return nil
}

// takeOffers follows the machine's offers and queues them. It returns only when
// ctx ends, or with the relay's refusal of the very first connection.
func (a *Agent) takeOffers(ctx context.Context) error {
	welcome := false
	s := Subscription{
		Path: Path("v1", "machines", a.cfg.Machine, "offers"),
		Connected: func() {
			if !welcome {
				giveBack()
			}
			welcome = true
			a.log.Info("taking offers", "machine", a.cfg.Machine, "relay", a.client.Address())
		},
		Lost: func(err error, wait time.Duration) {
			a.log.Warn("no offers for now", "error", err, "next_try_ms", wait.Milliseconds())
		},
	}
	for try := 1; ; try++ {
		err := a.client.Subscribe(ctx, s, func(e ServerEvent) error {
			var o offer
			if err := json.Unmarshal(e.Data, &o); err != nil || o.TaskID == "" {
				a.log.Error("an offer that cannot be read was passed over", "id", e.ID, "error", err)
				return nil
			}
			o.key = NewKey()
			s.LastID = e.ID
			a.offers.put(o)
			return nil
		})
		if ctx.Err() != nil || !welcome {
			return err
		}
		// Once welcome, a refusal can pass: the machine may be suspended for a while.
		wait := streamBackoff(try + 5)
		a.log.Error("the relay refuses this machine's offers", "error", err, "next_try_ms", wait.Milliseconds())
		if err := pause(ctx, wait); err != nil {
			return err
		}
	}
}

// offer is a leg that waits for this machine.
type offer struct {
	TaskID string `json:"task_id"`
	// key is the claim's Idempotency-Key: a claim whose answer was lost is
	// repeated, not made anew. It is not kept on disk: an agent that died between
	// claim and run does not know what it ran, so its lease lapses.
	key string
}

// offers is the queue between the stream and the workers.
type offers struct {
	added chan struct{} // has a value while there may be more to take

	mu    sync.Mutex
	queue []offer // guarded by mu
}

func (q *offers) put(o offer) {
	q.mu.Lock()
	q.queue = append(q.queue, o)
	q.mu.Unlock()
	q.wake()
}

func (q *offers) wake() {
	select {
	case q.added <- struct{}{}:
	default:
	}
}

// take waits for an offer; false means that ctx has ended.
func (q *offers) take(ctx context.Context) (offer, bool) {
	for {
		q.mu.Lock()
		if ctx.Err() == nil && len(q.queue) > 0 {
			o := q.queue[0]
			q.queue = q.queue[1:]
			if len(q.queue) > 0 {
				q.wake() // for another worker
			}
			q.mu.Unlock()
			return o, true
		}
		q.mu.Unlock()
		select {
		case <-q.added:
		case <-ctx.Done():
			return offer{}, false
		}
	}
}

// work runs one command after the other until ctx ends; what runs then goes on
// until drained ends.
func (a *Agent) work(ctx, drained context.Context) {
	for {
		o, ok := a.offers.take(ctx)
		if !ok {
			return
		}
		if c, ok := a.claim(ctx, o); ok {
			a.attempt(drained, c)
		}
	}
}

// report sends what the outbox holds until ctx ends, oldest first. What a relay
// has answered for, with yes or no, is removed.
func (a *Agent) report(ctx context.Context) {
	for try := 1; ; {
		failed := false
		for _, u := range a.outbox.list() {
			log := a.log.With("task", u.TaskID, "attempt", u.Attempt)
			err := a.client.Report(ctx, u.TaskID, u.Attempt, u.Envelope, u.Key)
			switch p, refused := errors.AsType[*Problem](err); {
			case err == nil:
				a.outbox.remove(u)
				log.Info("reported", "outcome", u.Envelope.Outcome)
			case ctx.Err() != nil:
				return
			case refused && final(p):
				a.outbox.remove(u)
				log.Error("the relay does not take this report; the machine's memory has it", "code", p.Code, "error", err)
			default:
				failed = true
				log.Warn("not reported yet", "error", err)
			}
		}
		if failed {
			if pause(ctx, min(streamBackoff(try), reportWait)) != nil {
				return
			}
			try++
			continue
		}
		try = 1
		select {
		case <-a.outbox.added:
		case <-ctx.Done():
			return
		}
	}
}

// sendRecords sends what fleetledger run could not, now and from time to time
// until ctx ends.
func (a *Agent) sendRecords(ctx context.Context) {
	for {
		if left, err := a.records.Send(ctx, a.client, a.cfg.Machine, maxRecords); err != nil && ctx.Err() == nil && left > 0 {
			a.log.Warn("runs are not sent yet", "runs", left, "error", err)
		}
		if pause(ctx, recordsWait) != nil {
			return
		}
	}
}

const (
	// recordsWait is between two looks for runs to send, maxRecords how many are sent
	// in one.
	recordsWait = 30 * time.Second
	maxRecords  = 1000
)

// reportWait bounds the wait before a report is tried again. A relay that starts
// again renews leases once: what has ended meanwhile must be told before they
// lapse.
const reportWait = time.Second

// final reports whether a refusal stands for ever. A relay that is over its
// limits, or that does not let this machine in today, may do so tomorrow.
func final(p *Problem) bool {
	switch {
	case p.temporary(), p.Status == http.StatusUnauthorized:
		return false
	case p.Status == http.StatusForbidden:
		return p.Code == "NOT_YOUR_LEG" || p.Code == "NOT_YOUR_MEMORY"
	case p.Status < http.StatusBadRequest, p.Code == "":
		return false // no relay answered
	}
	return true
}
