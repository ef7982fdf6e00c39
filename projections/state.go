package projections

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"fleetledger/events"
)

// State is the inline fold of a fleet. It implements events.Fold: the engine
// stages records on it and publishes them once they are durable. What readers
// get is always what was published. Methods may be called concurrently, Stage
// only by the engine.
type State struct {
	// mu guards everything published: the fields below.
	mu        sync.RWMutex
	position  events.Position
	authority *Authority
	settings  Settings
	// collective is the document; what it said before is read from the log.
	collective *Collective
	tokens     map[events.Hash]Token // by the token's hash
	tokenIDs   map[string]events.Hash
	// tokensRevision is that of the stream of tokens.
	tokensRevision events.Revision
	tasks          map[string]*Task     // not settled, by id
	approvals      map[string]*Approval // pending, by id
	offers         map[string]map[string]events.Position
	denials        map[string][]time.Time      // newest last, within a minute of the newest
	asked          []Asked                     // newest last, within a minute of the newest
	erasures       map[events.Position]Erasure // by the position of what was erased
	ledgerAt       events.Revision             // of the ledger stream
	rooted         Rooted
	witnessed      Witnessed
	newest         Newest

	duty events.DutyTaken

	watchers watchers

	// next is what is staged and not published yet; only Stage and the publish
	// functions it returns use it, next.mu between them.
	next staged
}

// staged holds the newest staged value of whatever was changed and is not
// published yet. A nil task or approval stands for one that is open no more.
type staged struct {
	mu         sync.Mutex
	seq        uint64
	authority  *Authority
	settings   Settings
	collective *Collective
	tasks      map[string]change[*Task]
	approvals  map[string]change[*Approval]
	tokens     map[string]change[*Token]
}

type change[T any] struct {
	seq   uint64
	value T
}

// NewState returns the state of an empty log.
func NewState() *State {
	s := &State{
		authority:  &Authority{},
		settings:   DefaultSettings(),
		collective: &Collective{},
		tokens:     map[events.Hash]Token{},
		tokenIDs:   map[string]events.Hash{},
		tasks:      map[string]*Task{},
		approvals:  map[string]*Approval{},
		offers:     map[string]map[string]events.Position{},
		denials:    map[string][]time.Time{},
		erasures:   map[events.Position]Erasure{},
	}
	s.next = staged{
		authority: s.authority, settings: s.settings, collective: s.collective,
		tasks: map[string]change[*Task]{}, approvals: map[string]change[*Approval]{}, tokens: map[string]change[*Token]{},
	}
	return s
}

// Duty is the duty as it was taken last; Epoch 0 if it never was.
type Duty struct {
	events.DutyTaken
	// LedgerRevision is that of the stream of the ledger, in which it is.
	LedgerRevision events.Revision
}

// Duty returns who has the duty.
func (s *State) Duty() Duty {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return Duty{s.duty, s.ledgerAt}
}

// Position is that of the last event published.
func (s *State) Position() events.Position {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.position
}

// Authority returns the authority state in force.
func (s *State) Authority() *Authority {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.authority
}

// Settings returns the settings in force.
func (s *State) Settings() Settings {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.settings
}

// Collective returns the collective memory as it stands.
func (s *State) Collective() *Collective {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.collective
}

// LedgerRevision is the revision of the ledger's own stream.
func (s *State) LedgerRevision() events.Revision {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.ledgerAt
}

// Rooted is a root over the heads of all streams.
type Rooted struct {
	events.HeadsRooted
	// Told and Time are those of the event that tells of it, zero if there is none.
	Told events.Position
	Time time.Time
}

// Rooted returns the newest root over the heads of all streams.
func (s *State) Rooted() Rooted {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.rooted
}

// Witnessed is a checkpoint that witnesses have cosigned.
type Witnessed struct {
	events.CheckpointWitnessed
	// Told and Time are those of the event that holds it, zero if there is none.
	Told events.Position
	Time time.Time
}

// Witnessed returns the newest cosigned checkpoint that is recorded.
func (s *State) Witnessed() Witnessed {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.witnessed
}

// Newest are the positions of the newest events that are not recorded for the log's
// own sake: a root, or a cosigned checkpoint, must not be what calls for the next.
type Newest struct {
	// Event is neither of both, ToWitness no cosigned checkpoint.
	Event, ToWitness events.Position
}

// Newest returns them.
func (s *State) Newest() Newest {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.newest
}

func (n *Newest) add(h *events.Header) {
	switch h.Type {
	case events.CheckpointWitnessed{}.Kind():
		return
	case events.HeadsRooted{}.Kind():
	default:
		n.Event = h.Position
	}
	n.ToWitness = h.Position
}

// OpenTask returns a task that is not settled, nil if there is none of this id.
func (s *State) OpenTask(id string) *Task {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.tasks[id]
}

// PendingApproval returns a pending approval, nil if there is none of this id.
func (s *State) PendingApproval(id string) *Approval {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.approvals[id]
}

// Stage implements events.Fold.
func (s *State) Stage(recs []events.Record) (func(), error) {
	s.next.mu.Lock()
	defer s.next.mu.Unlock()
	tx := tx{state: s, authority: s.next.authority, settings: s.next.settings, collective: s.next.collective}
	for i := range recs {
		if recs[i].Header.Type.IsExt() {
			continue // nothing here rests on agents' own events, which are most
		}
		if err := tx.apply(recs[i]); err != nil {
			return nil, err
		}
	}
	s.next.seq++
	seq := s.next.seq
	s.next.authority, s.next.settings, s.next.collective = tx.authority, tx.settings, tx.collective
	for id, t := range tx.tasks {
		s.next.tasks[id] = change[*Task]{seq, t}
	}
	for id, a := range tx.approvals {
		s.next.approvals[id] = change[*Approval]{seq, a}
	}
	for id, t := range tx.tokens {
		s.next.tokens[id] = change[*Token]{seq, t}
	}
	return func() { s.publish(&tx, seq, recs) }, nil
}

// Unstage implements events.Fold.
func (s *State) Unstage() {
	s.next.mu.Lock()
	defer s.next.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	s.next.authority, s.next.settings, s.next.collective = s.authority, s.settings, s.collective
	clear(s.next.tasks)
	clear(s.next.approvals)
	clear(s.next.tokens)
}

func (s *State) publish(tx *tx, seq uint64, recs []events.Record) {
	s.mu.Lock()
	s.authority, s.settings, s.collective = tx.authority, tx.settings, tx.collective
	var woken []string
	for id, t := range tx.tasks {
		woken = s.offer(id, t, woken)
		if t == nil {
			delete(s.tasks, id)
		} else {
			s.tasks[id] = t
		}
	}
	for id, a := range tx.approvals {
		if a == nil {
			delete(s.approvals, id)
		} else {
			s.approvals[id] = a
		}
	}
	for _, f := range tx.effects {
		f(s)
	}
	for i := range recs {
		s.newest.add(&recs[i].Header)
	}
	s.position = recs[len(recs)-1].Header.Position
	s.mu.Unlock()

	s.next.mu.Lock()
	for id := range tx.tasks {
		if s.next.tasks[id].seq == seq {
			delete(s.next.tasks, id)
		}
	}
	for id := range tx.approvals {
		if s.next.approvals[id].seq == seq {
			delete(s.next.approvals, id)
		}
	}
	for id := range tx.tokens {
		if s.next.tokens[id].seq == seq {
			delete(s.next.tokens, id)
		}
	}
	s.next.mu.Unlock()
	s.watchers.wake(woken)
}

// tx is the staging of one append: its changes on top of what was staged
// before, thrown away if any record does not fit.
type tx struct {
	state      *State
	authority  *Authority
	settings   Settings
	collective *Collective
	tasks      map[string]*Task     // changed, nil until one is
	approvals  map[string]*Approval // likewise
	tokens     map[string]*Token    // likewise, by id
	// effects change the published maps and lists; they cannot fail.
	effects []func(*State)
}

func (tx *tx) task(id string) *Task {
	if t, ok := tx.tasks[id]; ok {
		return t
	}
	if c, ok := tx.state.next.tasks[id]; ok {
		return c.value
	}
	return tx.state.OpenTask(id)
}

func (tx *tx) setTask(id string, t *Task) {
	if tx.tasks == nil {
		tx.tasks = map[string]*Task{}
	}
	tx.tasks[id] = t
}

func (tx *tx) setApproval(id string, a *Approval) {
	if tx.approvals == nil {
		tx.approvals = map[string]*Approval{}
	}
	tx.approvals[id] = a
}

func (tx *tx) approval(id string) *Approval {
	if a, ok := tx.approvals[id]; ok {
		return a
	}
	if c, ok := tx.state.next.approvals[id]; ok {
		return c.value
	}
	return tx.state.PendingApproval(id)
}

func (tx *tx) effect(f func(*State)) { tx.effects = append(tx.effects, f) }

func (tx *tx) apply(r events.Record) (err error) {
	stream := string(r.Header.Stream)
	switch {
	case r.Header.Stream == events.AuthorityStream:
		tx.authority, err = tx.authority.Apply(r)
		return err
	case r.Header.Stream == events.SettingsStream:
		tx.settings, err = tx.settings.Apply(r)
		return err
	case r.Header.Stream == events.TokensStream:
		return tx.applyToken(r)
	case strings.HasPrefix(stream, "task-"):
		return tx.applyTask(strings.TrimPrefix(stream, "task-"), r)
	case strings.HasPrefix(stream, "gate-"):
		return tx.applyGate(r)
	case r.Header.Stream == events.CollectiveStream:
		tx.collective, err = tx.collective.Apply(r)
		return err
	}
	if r.Header.Stream == events.LedgerStream {
		revision := r.Header.Revision // r itself would be kept on the heap, each one
		tx.effect(func(s *State) { s.ledgerAt = revision })
	}
	if r.Erased {
		return nil
	}
	e, err := events.Decode(r)
	if err != nil {
		return err
	}
	if r.Header.Stream != events.LedgerStream {
		return nil
	}
	switch e := e.(type) {
	case events.PayloadErased:
		return tx.applyErasure(r, e)
	case events.DutyTaken:
		tx.effect(func(s *State) { s.duty = e })
	case events.CheckpointWitnessed:
		tx.effect(func(s *State) {
			s.witnessed = Witnessed{CheckpointWitnessed: e, Told: r.Header.Position, Time: r.Header.Time}
		})
	case events.HeadsRooted:
		rooted := Rooted{HeadsRooted: e, Told: r.Header.Position, Time: r.Header.Time}
		tx.effect(func(s *State) { s.rooted = rooted })
	}
	return nil
}

func (tx *tx) applyTask(id string, r events.Record) error {
	before := tx.task(id)
	if before == nil && r.Header.Type != (events.TaskSubmitted{}).Kind() {
		// Settled, so not held here any more: a conclusion, or a late report. Of an
		// erased one nothing is left to look at.
		if r.Erased {
			return nil
		}
		_, err := events.Decode(r)
		return err
	}
	t, err := before.Apply(r)
	if err != nil {
		return err
	}
	tx.setTask(id, t)
	if t.Status == TaskSettled {
		tx.setTask(id, nil)
	}
	if r.Header.Type == (events.GateDecided{}).Kind() && mayDeny(r) {
		g, err := events.DecodeAs[events.GateDecided](r)
		if err != nil {
			return err
		}
		tx.denied(g, r)
	}
	if t.Approval != nil && (before == nil || before.Approval != t.Approval) {
		tx.approvalChanged(t.Approval)
	}
	return nil
}

// mayDeny reports whether a gate.decided may tell of a denial: whatever does has the
// word in it as it is, since events.Encode alone writes payloads. Most have not, and
// decoding them, with every rule that was looked at, costs more than any other event.
func mayDeny(r events.Record) bool {
	return bytes.Contains(r.Payload, []byte(`"`+events.Deny+`"`))
}

func (tx *tx) applyGate(r events.Record) error {
	if r.Header.Type == (events.GateDecided{}).Kind() && !mayDeny(r) {
		return nil
	}
	e, err := events.Decode(r)
	if err != nil {
		return err
	}
	var before *Approval
	switch e := e.(type) {
	case events.GateDecided:
		tx.denied(e, r)
		return nil
	case events.ApprovalSpent:
		return nil
	case events.ApprovalRequested:
		if tx.approval(e.ApprovalID) != nil {
			return fmt.Errorf("position %d: approval %s is open already", r.Header.Position, e.ApprovalID)
		}
	case events.ApprovalSettled:
		if before = tx.approval(e.ApprovalID); before == nil {
			return fmt.Errorf("position %d: approval %s is not pending", r.Header.Position, e.ApprovalID)
		}
	default:
		return fmt.Errorf("position %d: %s does not belong in stream %s", r.Header.Position, r.Header.Type, r.Header.Stream)
	}
	a, err := before.apply(r)
	if err != nil {
		return err
	}
	tx.approvalChanged(a)
	return nil
}

// denied keeps count of the denials that are recorded for an actor.
func (tx *tx) denied(e events.GateDecided, r events.Record) {
	if e.Decision.Verdict != events.Deny {
		return
	}
	actor, at := e.Decision.Actor, r.Header.Time
	tx.effect(func(s *State) {
		list := append(s.denials[actor], at)
		for at.Sub(list[0]) >= time.Minute {
			list = list[1:]
		}
		s.denials[actor] = list
	})
}

// Denials returns when denials were recorded for an actor after the given time,
// oldest first. It knows of those within a minute of the newest.
func (s *State) Denials(actor string, after time.Time) []time.Time {
	s.mu.RLock()
	defer s.mu.RUnlock()
	list := s.denials[actor]
	for len(list) > 0 && !list[0].After(after) {
		list = list[1:]
	}
	return slices.Clone(list)
}

// approvalChanged keeps the pending approvals.
func (tx *tx) approvalChanged(a *Approval) {
	if a.Pending() {
		tx.setApproval(a.ApprovalID, a)
		tx.asked(a)
		return
	}
	tx.setApproval(a.ApprovalID, nil)
}

// offer keeps the offers of each machine in step with a task, and adds the
// machines that have a new one to woken.
func (s *State) offer(id string, t *Task, woken []string) []string {
	if old := s.tasks[id]; old != nil {
		for _, l := range old.Legs {
			if l.Status == LegOffered {
				delete(s.offers[l.Machine], id)
				if len(s.offers[l.Machine]) == 0 {
					delete(s.offers, l.Machine)
				}
			}
		}
	}
	if t == nil {
		return woken
	}
	for _, l := range t.Legs {
		if l.Status != LegOffered {
			continue
		}
		if s.offers[l.Machine] == nil {
			s.offers[l.Machine] = map[string]events.Position{}
		}
		s.offers[l.Machine][id] = l.Offer
		woken = append(woken, l.Machine)
	}
	return woken
}
