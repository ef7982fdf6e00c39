package commands

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// Ledger is one fleet's log with the state folded from it: the one place where
// a decision meets the log. Methods may be called concurrently.
type Ledger struct {
	log    events.Log
	state  *projections.State
	random Random

	rules  atomic.Pointer[ruleList]
	leases leases
	heads  *seal.HeadsProver
	turns  turns
	drift  atomic.Pointer[DriftError]
	duty   duty
	ring   ring

	contradicted atomic.Pointer[ContradictedError]
}

// Random is where ids, salts and secrets come from.
type Random struct {
	// ID returns a new UUIDv7.
	ID func() string
	// Bytes fills b with random bytes.
	Bytes func(b []byte)
}

// New returns the ledger over log, whose fold is state.
func New(log events.Log, state *projections.State, random Random) *Ledger {
	l := &Ledger{log: log, state: state, random: random, heads: seal.NewHeadsProver(log)}
	l.leases.renewAll(state.OpenTasks(), log.Now().Add(state.Settings().Lease()))
	return l
}

// State is the folded state, for reading.
func (l *Ledger) State() *projections.State { return l.state }

// Log is the log, for reading.
func (l *Ledger) Log() events.Log { return l.log }

// Degraded returns why nothing can be recorded, nil if there is no reason: until the
// ledger is opened again, or, for a *ContradictedError, until the witness takes it
// back.
func (l *Ledger) Degraded() error {
	if d, ok := l.log.(events.Degraded); ok {
		if err := d.Degraded(); err != nil {
			return err
		}
	}
	if e := l.contradicted.Load(); e != nil {
		return e
	}
	return nil
}

// Caller is who asks, and how a retry is recognised.
type Caller struct {
	Actor string
	// Key is the idempotency key's hash, zero without one; Request the hash of
	// the request.
	Key, Request events.Hash
	// ApprovalID names a granted approval to spend, empty for none.
	ApprovalID string
}

// Result is what a command recorded.
type Result struct {
	// Records are the events of its append, in order; of the earlier append if
	// Duplicate. Empty when there was nothing to change.
	Records   []events.Record
	Duplicate bool
	// Secret is a new token's text, shown this once.
	Secret string
}

// Has returns the first record of kind k.
func (r Result) Has(k events.Kind) (events.Record, bool) {
	for _, rec := range r.Records {
		if rec.Header.Type == k {
			return rec, true
		}
	}
	return events.Record{}, false
}

// view is all that a decision may look at. It is made anew for each try.
type view struct {
	auth     *projections.Authority
	list     *ruleList
	settings projections.Settings
	now      time.Time
	caller   Caller
	newID    func() string
	random   func(b []byte)
	// approval is the one that the caller names, nil if it names none.
	approval *projections.Gate
}

// change is an event to be, with its stream.
type change struct {
	stream events.Stream
	id     string
	event  events.Event // an agent's own is a *events.Ext
	kind   events.Kind  // for agents' own events; else the event's
	// permit is that of an agent's own event, encoded.
	permit jsontext.Value
	// correlation and causation, if the caller gives them.
	correlation, causation string
}

func (c *change) encode() ([]byte, error) {
	if ext, ok := c.event.(*events.Ext); ok {
		return ext.Encode(c.permit)
	}
	return events.Encode(c.event)
}

// decided is what a decision came to: the events to append and the revisions
// that they rest on. Every decision rests on the authority stream too.
type decided struct {
	changes []change
	expect  []events.Expectation
	// erase are the positions whose payloads go with the append.
	erase []events.Position
	// before bounds the time at which the append may be recorded.
	before time.Time
	secret string
	// denial and asks are what the limiters count.
	denial bool
	asks   bool
}

func (d *decided) add(stream events.Stream, id string, e events.Event) {
	d.changes = append(d.changes, change{stream: stream, id: id, event: e, kind: e.Kind()})
}

func (d *decided) writes(s events.Stream) bool {
	return slices.ContainsFunc(d.changes, func(c change) bool { return c.stream == s })
}

// maxTries bounds how often a decision is made anew because what it rested on
// has moved.
const maxTries = 64

// execute makes a decision and appends what it came to, deciding again when the
// log has moved on meanwhile. A key that is bound answers with what was
// recorded then, whatever the state is now.
func (l *Ledger) execute(ctx context.Context, c Caller, decide func(v view) (decided, error)) (Result, error) {
	if !c.Key.IsZero() {
		if r, found, err := l.replayed(ctx, c); found || err != nil {
			return r, err
		}
	}
	release := func() {}
	defer func() { release() }()
	for try := range maxTries {
		v := l.view(c)
		if c.ApprovalID != "" {
			g, err := l.approvalGate(ctx, c.ApprovalID)
			if err != nil {
				return Result{}, err
			}
			v.approval = g
		}
		d, err := decide(v)
		if err != nil {
			return Result{}, err
		}
		if len(d.changes) == 0 {
			return Result{}, nil
		}
		if err := l.limit(v, d); err != nil {
			return Result{}, err
		}
		appended, err := l.append(ctx, v, d)
		conflict, conflicts := errors.AsType[*events.ConflictError](err)
		mismatch, mismatches := errors.AsType[*events.KeyMismatchError](err)
		_, taken := errors.AsType[*events.DuplicateIDError](err)
		switch {
		case conflicts && strings.HasPrefix(string(conflict.Stream), ExtStreamPrefix):
			// The caller's own expectation: it looks again, not the ledger.
			return Result{}, refuse(Conflict, "REVISION_CONFLICT", "%v", conflict).
				With("stream", conflict.Stream).With("expected", conflict.Expected).With("actual", conflict.Actual)
		case conflicts:
			// Whoever only relied on the stream goes before those who write it, and so
			// mostly finds it still; writers are in each other's way until they queue.
			if try == 0 && d.writes(conflict.Stream) {
				if release, err = l.turns.take(ctx, conflict.Stream); err != nil {
					return Result{}, err
				}
			}
			continue
		case taken, errors.Is(err, events.ErrTooLate):
			continue
		case errors.Is(err, events.ErrCannotErase):
			return Result{}, refuse(Impossible, "ERASURE_UNSUPPORTED", "the engine that keeps this fleet's log cannot erase payloads; nothing was recorded")
		case mismatches:
			return Result{}, keyMismatch(mismatch.First)
		case err != nil:
			return Result{}, err
		case appended.Duplicate:
			r, _, err := l.replayed(ctx, c)
			return r, err
		}
		r := Result{Records: appended.Records, Secret: d.secret}
		return r, denialIn(r)
	}
	return Result{}, refuse(Unavailable, "CONTENTION",
		"the log moved on %d times while this was decided; try again", maxTries).With("retry_after_s", 1)
}

func (l *Ledger) view(c Caller) view {
	auth := l.state.Authority()
	return view{auth: auth, list: l.rulesOf(auth), settings: l.state.Settings(), now: l.log.Now(), caller: c,
		newID: l.random.ID, random: l.random.Bytes}
}

// replayed returns what the caller's key is bound to.
func (l *Ledger) replayed(ctx context.Context, c Caller) (Result, bool, error) {
	a, request, err := l.log.FindKey(ctx, c.Key)
	if err != nil || a.First == 0 {
		return Result{}, false, err
	}
	if request != c.Request {
		return Result{}, true, keyMismatch(a.First)
	}
	recs, err := l.Records(ctx, a.First, a.Last)
	r := Result{Records: recs, Duplicate: true}
	if err == nil {
		err = denialIn(r)
	}
	return r, true, err
}

// readable waits, mostly not at all, until the log shows what the state already
// tells of: a log publishes its folds a moment before it is read up to them.
// Whatever was found in the state is looked up in the log after this.
func (l *Ledger) readable(ctx context.Context) error {
	return l.log.Wait(ctx, l.state.Position())
}

// Records reads the events from position first to last.
func (l *Ledger) Records(ctx context.Context, first, last events.Position) ([]events.Record, error) {
	recs := make([]events.Record, 0, last-first+1)
	for r, err := range l.log.ReadAll(ctx, first-1) {
		if err != nil {
			return nil, err
		}
		recs = append(recs, r)
		if r.Header.Position == last {
			break
		}
	}
	return recs, nil
}

// appendAt reads the whole append whose first event lies at a position: the
// events after it are caused by it.
func (l *Ledger) appendAt(ctx context.Context, first events.Position) ([]events.Record, error) {
	var recs []events.Record
	for r, err := range l.log.ReadAll(ctx, first-1) {
		if err != nil {
			return nil, err
		}
		if len(recs) > 0 && (r.Header.Causation != recs[0].Header.ID || r.Header.Type.IsExt()) {
			break
		}
		recs = append(recs, r)
	}
	return recs, nil
}

func keyMismatch(first events.Position) *Refusal {
	return refuse(Conflict, "IDEMPOTENCY_MISMATCH",
		"this Idempotency-Key was used for another request; use a new key for a new request").With("position", first)
}

func (l *Ledger) append(ctx context.Context, v view, d decided) (events.Appended, error) {
	if e := l.contradicted.Load(); e != nil {
		return events.Appended{}, e
	}
	a := events.Append{
		Expect: append(d.expect, events.Expectation{Stream: events.AuthorityStream, Revision: v.auth.Revision}),
		Key:    v.caller.Key, Request: v.caller.Request, Before: d.before, Erase: d.erase,
	}
	correlation := d.changes[0].id
	if id, ok := entityOf(d.changes[0].stream); ok {
		correlation = id
	}
	salts := make([]byte, events.SaltBytes*len(d.changes))
	l.random.Bytes(salts)
	a.Drafts = make([]events.Draft, 0, len(d.changes))
	for i := range d.changes {
		c := &d.changes[i]
		payload, err := c.encode()
		if err != nil {
			return events.Appended{}, err
		}
		n := events.Intent{
			ID: c.id, Stream: c.stream, Type: c.kind, Schema: events.Schema, Actor: v.caller.Actor,
			Correlation: correlation, Key: v.caller.Key, Request: v.caller.Request,
		}
		if i > 0 {
			n.Causation = d.changes[0].id
		}
		if c.event.Kind() != c.kind { // an agent's own event keeps its own links
			n.Correlation, n.Causation = c.correlation, c.causation
		}
		if len(payload) > v.settings.PayloadBytes {
			return events.Appended{}, refuse(TooLarge, "PAYLOAD_TOO_LARGE",
				"event %s has a payload of %d bytes, at most %d are kept", n.Type, len(payload), v.settings.PayloadBytes).
				With("limit", v.settings.PayloadBytes).With("actual", len(payload))
		}
		a.Drafts = append(a.Drafts, events.NewDraft(n, [events.SaltBytes]byte(salts[i*events.SaltBytes:]), payload))
	}
	return l.log.Append(ctx, a)
}

// entityOf is the id of the task or gate that a stream is about: events about
// it are correlated by it.
func entityOf(s events.Stream) (string, bool) {
	for _, prefix := range []string{"task-", "gate-"} {
		if len(s) > len(prefix) && string(s[:len(prefix)]) == prefix {
			return string(s[len(prefix):]), true
		}
	}
	return "", false
}

// taskOfStream is the task whose stream this is; ok is false for other streams.
func taskOfStream(s events.Stream) (task string, ok bool) {
	return strings.CutPrefix(string(s), string(events.TaskStream("")))
}

// ruleList is the list of rules in force as the gate takes it, and what it has
// decided: the same question at the same authority has the same answer.
type ruleList struct {
	auth  *projections.Authority
	rules []gate.Rule

	mu      sync.RWMutex
	decided map[question]events.Decision
	permits map[question]jsontext.Value // the encoded permit of a decision
}

type question struct{ action, actor string }

// maxDecided bounds the answers that are remembered.
const maxDecided = 4096

func (r *ruleList) decide(action, actor string) events.Decision {
	q := question{action, actor}
	r.mu.RLock()
	dec, ok := r.decided[q]
	r.mu.RUnlock()
	if ok {
		return dec
	}
	dec = gate.Decide(r.rules, action, Standing(r.auth, actor), r.auth.Revision)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.decided) < maxDecided {
		r.decided[q] = dec
	}
	return dec
}

// permit is the permit of decide(action, actor), encoded: most events repeat one that
// was recorded before.
func (r *ruleList) permit(action, actor string) (jsontext.Value, error) {
	q := question{action, actor}
	r.mu.RLock()
	encoded, ok := r.permits[q]
	r.mu.RUnlock()
	if ok {
		return encoded, nil
	}
	encoded, err := events.Permit{Decision: r.decide(action, actor)}.Encode()
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.permits) < maxDecided {
		r.permits[q] = encoded
	}
	return encoded, nil
}

// rulesOf is the list of rules in force at an authority.
func (l *Ledger) rulesOf(auth *projections.Authority) *ruleList {
	if r := l.rules.Load(); r != nil && r.auth == auth {
		return r
	}
	r := &ruleList{auth: auth, rules: Rules(auth), decided: map[question]events.Decision{}, permits: map[question]jsontext.Value{}}
	l.rules.Store(r)
	return r
}
