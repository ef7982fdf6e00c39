package witness

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"fleetledger/commands"
	"fleetledger/events/seal"
)

// Config says whom to ask, and how often.
type Config struct {
	Witnesses []Witness
	// Quorum is how many of them must cosign a checkpoint for it to be recorded.
	Quorum int
	// Every is how long after a cosigned checkpoint the next one is asked for, if the
	// log grew.
	Every time.Duration
	// Logger is told what witnesses say that is not a cosignature.
	Logger *slog.Logger
}

const (
	// answerTimeout bounds how long a witness is waited for, all its answers together.
	answerTimeout = 10 * time.Second
	// grace is how long the other witnesses are waited for once there is a quorum: what
	// is recorded must not lie far behind.
	grace = 500 * time.Millisecond
	// firstPause and longestPause are how long a witness that failed is left alone: each
	// time twice as long.
	firstPause   = time.Second
	longestPause = time.Minute
	// lookEvery is how often is looked whether there is anything to ask.
	lookEvery = time.Second
)

// Collector asks the witnesses of one log. Of several relays, the one that has the duty
// asks. Methods may be called concurrently, Ask and Run not at once.
type Collector struct {
	ledger *commands.Ledger
	sealer *seal.Sealer
	cfg    Config
	client *http.Client

	ctx    context.Context // of requests under way, which outlive a round
	cancel context.CancelFunc
	asking sync.WaitGroup

	next time.Time // when the next checkpoint is due; of Ask and Run alone

	mu      sync.Mutex
	members []*member // guarded by mu, with what they hold
}

// member is a witness, and what is known of it.
type member struct {
	Witness
	busy bool // it is being asked
	// known is how many events it has cosigned, as far as is known here, and at when.
	known uint64
	at    time.Time
	// agrees is true once it has cosigned what this process asked it to; contradicts is
	// what it has against the log instead.
	agrees      bool
	contradicts *commands.ContradictedError

	fault     *fault // of the last time, nil if it cosigned
	failures  int    // in a row
	notBefore time.Time
	logged    string
}

// settled reports whether there is no reason to ask it but a log that grew.
func (m *member) settled() bool { return m.agrees && m.contradicts == nil && m.failures == 0 }

// New returns what asks the witnesses of a log, which sealer signs. Whoever calls it
// calls Close.
func New(l *commands.Ledger, s *seal.Sealer, cfg Config) *Collector {
	c := &Collector{ledger: l, sealer: s, cfg: cfg, client: newClient()}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	recorded := l.State().Witnessed()
	for _, w := range cfg.Witnesses {
		m := &member{Witness: w}
		// What cannot be read is found by an audit; here it only saves a question.
		if list, err := seal.Cosignatures([]byte(recorded.Checkpoint), []seal.WitnessKey{w.Key}); err == nil && len(list) > 0 {
			m.known, m.at = uint64(recorded.Size), list[0].At
		}
		c.members = append(c.members, m)
	}
	return c
}

// Close ends the requests under way.
func (c *Collector) Close() {
	c.cancel()
	c.asking.Wait()
	c.client.CloseIdleConnections()
}

// Ask asks every witness once, and waits until all have answered, or a quorum and a
// moment passed, or ctx ends: so a directory that is not what they know takes nothing
// from the start. A witness that does not answer is asked again by Run.
func (c *Collector) Ask(ctx context.Context) {
	if c.ledger.OnDuty() {
		c.round(ctx, func(*member) bool { return true }, true)
	}
}

// Run asks the witnesses when the log grew, and those that failed, are silent or
// contradict after a pause, until ctx ends.
func (c *Collector) Run(ctx context.Context) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		c.look(ctx)
	}
}

func (c *Collector) look(ctx context.Context) {
	if _, contradicted := errors.AsType[*commands.ContradictedError](c.ledger.Degraded()); c.ledger.Degraded() != nil && !contradicted {
		return
	}
	if !c.ledger.OnDuty() {
		c.standDown()
		return
	}
	now := time.Now()
	again := func(m *member) bool { return !m.settled() && !now.Before(m.notBefore) && !m.busy }
	c.mu.Lock()
	settled, unsettled := 0, false
	for _, m := range c.members {
		if m.settled() {
			settled++
		}
		unsettled = unsettled || again(m)
	}
	c.mu.Unlock()
	switch {
	// Without hope for a quorum nobody is asked for one.
	case c.ledger.ToWitness() && !now.Before(c.next) && (settled >= c.cfg.Quorum || unsettled):
		c.round(ctx, func(m *member) bool { return !now.Before(m.notBefore) }, true)
	case unsettled:
		c.round(ctx, again, false)
	}
}

// standDown forgets what witnesses said of the log: another relay asks them now.
func (c *Collector) standDown() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		m.agrees, m.contradicts = false, nil
	}
}

// round asks those of the witnesses that which names for the newest checkpoint, and
// records it if record says so and enough of them cosign.
func (c *Collector) round(ctx context.Context, which func(*member) bool, record bool) {
	begun := time.Now()
	l, err := newest(c.sealer)
	switch {
	case errors.Is(err, seal.ErrNotOnDuty):
		return
	case err != nil:
		c.cfg.Logger.Warn("there is no checkpoint to be witnessed", "error", err)
		return
	case l.Size == 0:
		return
	}
	c.mu.Lock()
	answers := make(chan answer, len(c.members))
	asked := 0
	for i, m := range c.members {
		if m.busy || !which(m) {
			continue
		}
		m.busy = true
		asked++
		known := m.known
		c.asking.Go(func() {
			ctx, cancel := context.WithTimeout(c.ctx, answerTimeout)
			defer cancel()
			got, err := add(ctx, c.client, m.Witness, l, known)
			c.answered(m, l, got, err)
			answers <- answer{i, got, err}
		})
	}
	c.mu.Unlock()
	good := c.gather(ctx, answers, asked, record)
	if !record {
		return
	}
	if len(good) < c.cfg.Quorum || ctx.Err() != nil || !c.ledger.ToWitness() || c.ledger.Degraded() != nil {
		return
	}
	c.next = begun.Add(c.cfg.Every)
	text := l.signed
	for i, m := range c.members {
		if a, ok := good[i]; ok {
			if text, _, err = seal.AddCosignature(text, a.lines, m.Key); err != nil {
				panic("bug: a cosignature that was verified does not verify")
			}
		}
	}
	if err := c.ledger.RecordWitnessed(ctx, text); err != nil && ctx.Err() == nil {
		c.cfg.Logger.Error("a cosigned checkpoint could not be recorded", "size", l.Size, "error", err)
	}
}

type answer struct {
	member int
	cosigned
	err error
}

// gather waits for answers, and returns those with a cosignature. Once there is a
// quorum to be recorded, the others get a moment more.
func (c *Collector) gather(ctx context.Context, answers <-chan answer, n int, record bool) map[int]cosigned {
	good := map[int]cosigned{}
	var enough <-chan time.Time
	for range n {
		select {
		case a := <-answers:
			if a.err != nil {
				continue
			}
			good[a.member] = a.cosigned
			if record && len(good) == c.cfg.Quorum {
				timer := time.NewTimer(grace)
				defer timer.Stop()
				enough = timer.C
			}
		case <-enough:
			return good
		case <-ctx.Done():
			return good
		}
	}
	return good
}

// answered notes what a witness said.
func (c *Collector) answered(m *member, l log, got cosigned, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m.busy = false
	if err != nil && c.ctx.Err() != nil {
		return // it was not let finish
	}
	logger := c.cfg.Logger.With("witness", m.Key.Name(), "url", m.URL)
	if err == nil {
		if m.logged != "" || m.contradicts != nil {
			logger.Info("the witness cosigns", "size", l.Size)
		}
		m.known, m.at = l.Size, got.by.At
		m.agrees, m.contradicts = true, nil
		m.fault, m.failures, m.notBefore, m.logged = nil, 0, time.Time{}, ""
	} else {
		m.notBefore = time.Now().Add(min(firstPause<<min(m.failures, 16), longestPause))
		m.failures++
		if e, ok := errors.AsType[*commands.ContradictedError](err); ok {
			m.agrees, m.contradicts, m.fault = false, e, nil
		} else {
			m.fault, _ = errors.AsType[*fault](err)
		}
		if m.logged != err.Error() {
			m.logged = err.Error()
			if m.fault == nil {
				logger.Error("a witness contradicts: nothing is recorded until it does not any more", "why", err)
			} else {
				logger.Warn("a witness does not cosign, and is asked again", "why", err)
			}
		}
	}
	if !c.ledger.OnDuty() {
		return // what another relay hears counts
	}
	var against *commands.ContradictedError
	for _, m := range c.members {
		if m.contradicts != nil {
			against = m.contradicts
			break
		}
	}
	c.ledger.Contradict(against)
}

// States of a witness.
const (
	Silent      = "silent"      // it has not yet cosigned or contradicted since this process started
	Agrees      = "agrees"      // it has cosigned the log as it is here
	Contradicts = "contradicts" // it has cosigned more, or other events than are here
)

// Status is what is known of a witness.
type Status struct {
	Witness string
	State   string
	// Size is the most events that it is known to have cosigned, and At when; zero if
	// none.
	Size uint64
	At   time.Time
	// Fault is why it did not cosign when it was asked last; empty if it did.
	Fault string
}

// Status tells of each witness.
func (c *Collector) Status() []Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []Status
	for _, m := range c.members {
		s := Status{Witness: m.Key.Name(), State: Silent, Size: m.known, At: m.at}
		switch {
		case m.contradicts != nil:
			s.State, s.Fault = Contradicts, m.contradicts.Error()
		case m.agrees:
			s.State = Agrees
		}
		if m.fault != nil {
			s.Fault = m.fault.told
		}
		list = append(list, s)
	}
	return list
}
