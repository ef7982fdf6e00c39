package commands

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// Channel carries short messages between the relays of a fleet, beside the log: each
// message reaches every relay, soon, or is lost. Nothing that the log promises rests
// on it.
type Channel interface {
	Say(ctx context.Context, message []byte) error
	// Heard returns what was said since it was called last; at first, the last that was
	// said.
	Heard(ctx context.Context) ([][]byte, error)

	// Peer is how other relays hand appends to this one, "" if they do not.
	Peer() string
	// Admit lets a relay, by its Peer, hand over appends for the next minute.
	Admit(peer string)
	// Follow has appends handed to a relay, by its Peer, for speed; "" has them made here.
	Follow(peer string)
}

// duty is what one relay of several does for all: it records what time brings about,
// and signs. Who has it is in the log (duty.taken). Its holder says every second, on
// the channel, that it lives; who has not heard it for dutyPatience takes the duty over.
// Two that both think they have it do no harm: what the duty records rests on the
// duty's own event, so only the newest holder's stands.
type duty struct {
	relay   string
	process string  // tells this process from every other, of the same name too
	channel Channel // nil when the relay is alone: it always has the duty
	sealer  *seal.Sealer

	mu      sync.Mutex
	epoch   int64     // guarded by mu; of the duty that this process took, 0 if it took none
	told    time.Time // guarded by mu; when this process last began to say that it has it, and was heard
	seen    int64     // guarded by mu; the newest epoch whose holder counts as heard
	heard   time.Time // guarded by mu; when the holder was last heard, by a steady clock
	left    bool      // guarded by mu; it said then that it stops
	begun   bool      // guarded by mu; KeepDuty has run once
	greeted time.Time // guarded by mu; when this process last said how it is reached
	renewed []renewal // guarded by mu; heard of here, and not yet told to the others
	deaf    bool      // guarded by mu; the channel has failed, and heartbeats may be missing
}

// said is a message between relays.
type said struct {
	Relay   string `json:"relay"`
	Process string `json:"process"`
	// Epoch is that of the duty which the relay has, 0 if it has none.
	Epoch int64 `json:"epoch,omitzero"`
	// Left says that the relay has just given that duty up.
	Left bool `json:"left,omitzero"`
	// Peer is how the relay takes appends of others.
	Peer string `json:"peer,omitzero"`
	// Renewed are the attempts whose agents the relay has heard of.
	Renewed []renewal `json:"renewed,omitzero"`
	// Checkpoint is the newest that the holder has signed.
	Checkpoint string `json:"checkpoint,omitzero"`
	// Contradicted is what a witness, which only the holder asks, has against the log.
	Contradicted *ContradictedError `json:"contradicted,omitzero"`
}

type renewal struct {
	Task    string    `json:"task"`
	Attempt int       `json:"attempt"`
	Until   time.Time `json:"until"`
}

const (
	// dutyPatience is how long the holder of the duty may be silent.
	dutyPatience = 5 * time.Second
	// dutyMargin is how much earlier the holder itself counts as silent.
	dutyMargin = time.Second
	// greetEvery is how often a relay says how it is reached, if it has nothing else to say.
	greetEvery = 10 * time.Second
	// toldLate is how much later a heartbeat may reach the holder when another relay
	// has heard it.
	toldLate = 3 * time.Second
)

// Share makes this relay one of several on the log. No two of them have the same name;
// it stays when a relay is started again. sealer, unless nil,
// signs only while the relay has the duty. It is called before anything else uses the
// ledger.
func (l *Ledger) Share(relay string, c Channel, sealer *seal.Sealer) {
	l.duty.relay, l.duty.process, l.duty.channel, l.duty.sealer = relay, l.random.ID(), c, sealer
	l.duty.seen, l.duty.heard = l.state.Duty().Epoch, time.Now()
	if sealer != nil {
		sealer.SignWhile(func(keys []string) bool {
			// Another relay may have retired one: nothing is signed with it any more.
			gone, err := l.retired(context.Background(), keys)
			return l.OnDuty() && err == nil && len(gone) == 0
		})
	}
}

// OnDuty reports whether this relay has the duty, as far as it knows.
func (l *Ledger) OnDuty() bool {
	if l.duty.channel == nil {
		return true
	}
	d := l.state.Duty()
	l.duty.mu.Lock()
	defer l.duty.mu.Unlock()
	return d.Epoch > 0 && d.Epoch == l.duty.epoch
}

// HoldsDuty reports whether this relay has the duty and no other can have taken it over
// yet, because the others have heard it. So of what it guards two relays do nothing at
// the same time, but for a process that is stopped for seconds and goes on.
func (l *Ledger) HoldsDuty() bool {
	if l.duty.channel == nil {
		return true
	}
	if !l.OnDuty() {
		return false
	}
	l.duty.mu.Lock()
	defer l.duty.mu.Unlock()
	return time.Since(l.duty.told) < dutyPatience-dutyMargin
}

// Relays tells who has the duty: the relay's name, "" when there is only one.
func (l *Ledger) Relays() (self, onDuty string) { return l.duty.relay, l.state.Duty().Relay }

// KeepDuty listens to the other relays, takes the duty if nobody has it, and tells the
// others what they need to know. It is called every second.
func (l *Ledger) KeepDuty(ctx context.Context) error {
	if l.duty.channel == nil {
		return nil
	}
	err := l.keepDuty(ctx)
	l.duty.mu.Lock()
	wasDeaf := l.duty.deaf
	l.duty.deaf = err != nil
	l.duty.mu.Unlock()
	if err == nil && wasDeaf {
		// Others may have heard of attempts and could not say so: they get the time to.
		l.leases.renewAll(l.state.OpenTasks(), l.log.Now().Add(l.state.Settings().Lease()))
	}
	return err
}

func (l *Ledger) keepDuty(ctx context.Context) error {
	messages, err := l.duty.channel.Heard(ctx)
	if err != nil {
		return fmt.Errorf("listen to the other relays: %w", err)
	}
	for _, text := range messages {
		var m said
		if json.Unmarshal(text, &m) != nil || m.Process == l.duty.process {
			continue // another version's may say what we do not understand
		}
		for _, r := range m.Renewed {
			l.leases.extend(leaseKey{r.Task, r.Attempt}, r.Until.Add(toldLate))
		}
		if m.Peer != "" {
			l.duty.channel.Admit(m.Peer)
		}
		if d := l.state.Duty(); m.Epoch == 0 || m.Epoch != d.Epoch || m.Relay != d.Relay {
			continue
		}
		l.duty.mu.Lock()
		l.duty.heard, l.duty.left = time.Now(), m.Left
		l.duty.mu.Unlock()
		if m.Left {
			m.Peer = ""
		}
		l.duty.channel.Follow(m.Peer)
		l.Contradict(m.Contradicted)
		if m.Checkpoint == "" || l.duty.sealer == nil {
			continue
		}
		ring, err := l.Keys(ctx)
		if err != nil {
			return err
		}
		if err := l.duty.sealer.Offer([]byte(m.Checkpoint), ring); err != nil {
			return fmt.Errorf("the checkpoint of relay %s: %w", m.Relay, err)
		}
	}
	if err := l.takeDuty(ctx); err != nil {
		return err
	}
	if err := l.dropRetired(ctx); err != nil {
		return err
	}
	l.duty.mu.Lock()
	l.duty.begun = true
	l.duty.mu.Unlock()
	return l.tell(ctx)
}

// takeDuty takes the duty if its holder is silent, or, at first, if that was this relay
// before it was started again.
func (l *Ledger) takeDuty(ctx context.Context) error {
	due := func(d projections.Duty) bool {
		l.duty.mu.Lock()
		defer l.duty.mu.Unlock()
		if d.Epoch != l.duty.seen {
			// Whoever has just taken it is heard by that.
			l.duty.seen, l.duty.heard, l.duty.left = d.Epoch, time.Now(), false
		}
		return d.Epoch == 0 || d.Epoch != l.duty.epoch && (l.duty.left || !l.duty.begun && d.Relay == l.duty.relay || time.Since(l.duty.heard) >= dutyPatience)
	}
	if !due(l.state.Duty()) {
		return nil
	}
	// Whoever said so is silent. From now on this relay asks the witnesses itself.
	l.Contradict(nil)
	var epoch int64
	began := time.Now()
	err := l.asRelay(ctx, func(v view) (decided, error) {
		epoch = 0
		d := l.state.Duty()
		if !due(d) {
			return decided{}, nil
		}
		epoch = d.Epoch + 1
		out := decided{expect: []events.Expectation{{Stream: events.LedgerStream, Revision: d.LedgerRevision}}}
		out.add(events.LedgerStream, v.newID(), events.DutyTaken{Epoch: epoch, Relay: l.duty.relay})
		return out, nil
	})
	if err != nil || epoch == 0 {
		return err
	}
	now := l.log.Now()
	l.duty.mu.Lock()
	l.duty.epoch, l.duty.told, l.duty.heard, l.duty.left = epoch, began, time.Now(), false
	l.duty.mu.Unlock()
	l.duty.channel.Follow("")
	// What the earlier holder heard last is not known here.
	l.leases.renewAll(l.state.OpenTasks(), now.Add(l.state.Settings().Lease()))
	return nil
}

// LeaveDuty gives the duty up, so that another relay takes it at once. It is called
// when the relay stops.
func (l *Ledger) LeaveDuty(ctx context.Context) error {
	if l.duty.channel == nil || !l.OnDuty() {
		return nil
	}
	l.duty.mu.Lock()
	m := said{Relay: l.duty.relay, Process: l.duty.process, Epoch: l.duty.epoch, Left: true}
	l.duty.mu.Unlock()
	return l.say(ctx, m)
}

// tell says what the other relays need to know.
func (l *Ledger) tell(ctx context.Context) error {
	onDuty := l.OnDuty()
	l.duty.mu.Lock()
	m := said{Relay: l.duty.relay, Process: l.duty.process, Peer: l.duty.channel.Peer(), Renewed: l.duty.renewed}
	l.duty.renewed = nil
	greet := m.Peer != "" && time.Since(l.duty.greeted) >= greetEvery
	if onDuty {
		m.Epoch = l.duty.epoch
	}
	l.duty.mu.Unlock()
	if !onDuty && len(m.Renewed) == 0 && !greet {
		return nil
	}
	began := time.Now()
	err := l.say(ctx, m)
	if err != nil {
		for _, r := range m.Renewed {
			l.pending(r, false)
		}
		return err
	}
	l.duty.mu.Lock()
	l.duty.told, l.duty.greeted = began, began
	l.duty.mu.Unlock()
	return nil
}

func (l *Ledger) say(ctx context.Context, m said) error {
	if m.Epoch > 0 && l.duty.sealer != nil {
		signed, err := l.duty.sealer.Checkpoint()
		if err != nil {
			return err
		}
		m.Checkpoint = string(signed)
	}
	if m.Epoch > 0 {
		m.Contradicted = l.contradicted.Load()
	}
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := l.duty.channel.Say(ctx, text); err != nil {
		return fmt.Errorf("tell the other relays: %w", err)
	}
	return nil
}

// heardOf notes that an agent was heard of here, for the relay that has the duty.
func (l *Ledger) heardOf(task string, attempt int, until time.Time) {
	l.leases.set(task, attempt, until)
	if l.duty.channel == nil {
		return
	}
	l.pending(renewal{task, attempt, until}, true)
}

// pending keeps r to be told; newest says that it replaces what is kept of its attempt.
func (l *Ledger) pending(r renewal, newest bool) {
	l.duty.mu.Lock()
	defer l.duty.mu.Unlock()
	i := slices.IndexFunc(l.duty.renewed, func(o renewal) bool { return o.Task == r.Task && o.Attempt == r.Attempt })
	switch {
	case i < 0:
		l.duty.renewed = append(l.duty.renewed, r)
	case newest:
		l.duty.renewed[i] = r
	}
}

// onDuty makes a decision that only the holder of the duty makes: it rests on the
// event by which the duty was taken.
func (l *Ledger) onDuty(decide func(v view) (decided, error)) func(v view) (decided, error) {
	if l.duty.channel == nil {
		return decide
	}
	return func(v view) (decided, error) {
		d := l.state.Duty()
		l.duty.mu.Lock()
		mine := d.Epoch > 0 && d.Epoch == l.duty.epoch
		l.duty.mu.Unlock()
		if !mine {
			return decided{}, nil
		}
		out, err := decide(v)
		if err == nil && len(out.changes) > 0 && !out.writes(events.LedgerStream) {
			out.expect = append(out.expect, events.Expectation{Stream: events.LedgerStream, Revision: d.LedgerRevision})
		}
		return out, err
	}
}

// adopt sets the leases of attempts that were claimed at another relay.
func (l *Ledger) adopt(open []*projections.Task) {
	if l.duty.channel == nil {
		return
	}
	for _, t := range open {
		for _, leg := range t.Legs {
			if leg.Status != projections.LegClaimed {
				continue
			}
			a := leg.Attempts[len(leg.Attempts)-1]
			l.leases.adopt(leaseKey{t.ID, a.Number}, a.LeaseExpiresAt.Add(toldLate))
		}
	}
}
