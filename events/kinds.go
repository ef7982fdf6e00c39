package events

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/go-json-experiment/json"
)

// Kind is the stored name of what happened: noun.past-tense, typed by hand.
type Kind string

// Schema is the version of a payload's shape. A field that is added keeps it;
// a meaning that changes is a new kind.
const Schema = 1

// ExtPrefix starts the kinds of agents' own events, which the ledger stores
// without knowing their shape.
const ExtPrefix = "ext."

// IsExt reports whether k is an agent's own kind.
func (k Kind) IsExt() bool { return strings.HasPrefix(string(k), ExtPrefix) }

// Event is the payload of one of the ledger's own kinds.
type Event interface{ Kind() Kind }

// kinds lists every event the ledger itself writes. To add one: declare the
// struct, add its line, run `go test ./events -run Golden -update`.
var kinds = register(
	// authority
	decoder[FleetFounded],
	decoder[ActorRegistered],
	decoder[ActorLevelSet],
	decoder[ActorScopesChanged],
	decoder[ActorSuspended],
	decoder[ActorReinstated],
	decoder[RuleWritten],
	decoder[RuleRetired],
	// tokens, settings
	decoder[TokenIssued],
	decoder[TokenRevoked],
	decoder[DevicePaired],
	decoder[SettingsChanged],
	// subscriptions
	decoder[SubscriptionCreated],
	decoder[SubscriptionPaused],
	decoder[SubscriptionResumed],
	decoder[SubscriptionRemoved],
	decoder[SubscriptionReplayed],
	decoder[SubscriptionParked],
	// gates and approvals
	scanned(scanGateDecided),
	decoder[ApprovalRequested],
	decoder[ApprovalSettled],
	decoder[ApprovalSpent],
	// tasks
	scanned(scanTaskSubmitted),
	scanned(scanTaskOpened),
	scanned(scanTaskClaimed),
	scanned(scanTaskReported),
	decoder[LeaseLapsed],
	decoder[TaskCancelled],
	scanned(scanTaskSettled),
	// memory
	scanned(scanMemoryRecorded),
	decoder[MemoryConsolidated],
	decoder[ConclusionRecorded],
	decoder[SectionRevised],
	decoder[SectionRetired],
	decoder[BlockPublished],
	decoder[BlockAccepted],
	// council
	decoder[CouncilConvened],
	decoder[CouncilPhaseOpened],
	decoder[ArgumentMade],
	decoder[VoteCast],
	decoder[VoteRefused],
	decoder[MemberRecused],
	decoder[CouncilDecided],
	// the ledger itself
	decoder[KeyAdded],
	decoder[KeyRetired],
	decoder[HeadsRooted],
	decoder[CheckpointWitnessed],
	decoder[DutyTaken],
	decoder[PayloadErased],
)

// Kinds yields the ledger's own kinds in the order of their declaration.
func Kinds() []Kind { return kinds.order }

// Known reports whether k is one of the ledger's own kinds.
func Known(k Kind) bool { return kinds.decode[k] != nil }

// Encode returns the stored form of e's payload: compact JSON, fields in the
// order of their declaration.
func Encode(e Event) ([]byte, error) {
	b, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", e.Kind(), err)
	}
	return b, nil
}

// Decode reads the payload of r. It fails for an erased payload, for a kind
// that this program does not know, and for bytes that are not of its shape.
func Decode(r Record) (Event, error) {
	if r.event != nil {
		return r.event, nil
	}
	d := kinds.decode[r.Header.Type]
	switch {
	case d == nil && r.Header.Type.IsExt():
		d = kinds.decode[extKind]
	case d == nil:
		return nil, fmt.Errorf("position %d: unknown kind %s", r.Header.Position, r.Header.Type)
	}
	if r.Erased {
		return nil, fmt.Errorf("position %d: the payload of %s was erased", r.Header.Position, r.Header.Type)
	}
	if r.Header.Schema != Schema {
		return nil, fmt.Errorf("position %d: %s has schema %d, this program reads %d", r.Header.Position, r.Header.Type, r.Header.Schema, Schema)
	}
	e, err := d(r.Payload)
	if err != nil {
		return nil, fmt.Errorf("position %d: decode %s: %w", r.Header.Position, r.Header.Type, err)
	}
	return e, nil
}

// WithEvent returns r with its event, if it has one, so that Decode costs nothing from
// then on. All who decode it share the event, and change nothing in it.
func WithEvent(r Record) Record {
	if e, err := Decode(r); err == nil {
		r.event = e
	}
	return r
}

// DecodeAs is Decode for a caller that has looked at the kind already.
func DecodeAs[E Event](r Record) (E, error) {
	e, err := Decode(r)
	if err != nil {
		var zero E
		return zero, err
	}
	v, ok := e.(E)
	if !ok {
		return v, fmt.Errorf("position %d: %s is not %s", r.Header.Position, r.Header.Type, v.Kind())
	}
	return v, nil
}

type decodeFunc func([]byte) (Event, error)

type registry struct {
	order  []Kind
	decode map[Kind]decodeFunc
	names  map[string]Kind // so that each is made once
}

func decoder[E Event]() (Kind, decodeFunc) {
	var zero E
	return zero.Kind(), func(b []byte) (Event, error) {
		var e E
		if err := json.Unmarshal(b, &e, json.RejectUnknownMembers(true)); err != nil {
			return nil, err
		}
		return e, nil
	}
}

// scanned is decoder with a scan that is tried first.
func scanned[E Event](scan func(*payloadScanner) E) func() (Kind, decodeFunc) {
	return func() (Kind, decodeFunc) {
		kind, decode := decoder[E]()
		return kind, func(b []byte) (Event, error) {
			if e, ok := scanPayload(b, scan); ok {
				return e, nil
			}
			return decode(b)
		}
	}
}

func register(list ...func() (Kind, decodeFunc)) registry {
	r := registry{decode: make(map[Kind]decodeFunc, len(list)+1), names: make(map[string]Kind, len(list))}
	for _, f := range list {
		k, d := f()
		if r.decode[k] != nil {
			panic("bug: kind " + string(k) + " is declared twice")
		}
		r.order = append(r.order, k)
		r.names[string(k)] = k
		r.decode[k] = d
	}
	_, r.decode[extKind] = scanned(scanExt)()
	return r
}

// Zero returns an empty payload of kind k, for tests and documents; nil for a
// kind that is not known.
func Zero(k Kind) Event {
	d := kinds.decode[k]
	if d == nil {
		return nil
	}
	e, err := d([]byte("{}"))
	if err != nil {
		return nil
	}
	return reflect.Zero(reflect.TypeOf(e)).Interface().(Event)
}
