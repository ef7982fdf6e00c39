package events

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// Draft is an event that is not in the log yet: its intent, and its payload
// with the salt. NewDraft makes one; engines add the place.
type Draft struct {
	Intent  Intent
	Salt    [SaltBytes]byte
	Payload []byte
}

// NewDraft fills in the size and the commitment of intent. salt must be random.
func NewDraft(intent Intent, salt [SaltBytes]byte, payload []byte) Draft {
	intent.Size = len(payload)
	intent.Commitment = Commit(salt, payload)
	return Draft{Intent: intent, Salt: salt, Payload: payload}
}

// Record is an event as the log holds it. Records are shared: nobody changes
// what one points to.
type Record struct {
	Header Header
	// Leaf is the header's exact bytes; LeafHash its Merkle leaf hash.
	Leaf     []byte
	LeafHash Hash
	Salt     [SaltBytes]byte
	// Payload is nil, and Erased true, when the payload was erased.
	Payload []byte
	Erased  bool

	event Event // what Decode returns, if WithEvent has set it
}

// Verify checks that the payload is the one that the header commits to.
func (r Record) Verify() error {
	if r.Erased {
		return nil
	}
	if len(r.Payload) != r.Header.Size {
		return fmt.Errorf("payload has %d bytes, the header says %d", len(r.Payload), r.Header.Size)
	}
	if got := Commit(r.Salt, r.Payload); got != r.Header.Commitment {
		return fmt.Errorf("payload hashes to %s, the header commits to %s", got, r.Header.Commitment)
	}
	return nil
}

// Expectation says which revision a stream must be at for an append to stand.
type Expectation struct {
	Stream   Stream
	Revision Revision
}

// StreamHead is the newest event of a stream.
type StreamHead struct {
	Stream   Stream
	Revision Revision
	LeafHash Hash
}

// Append is one atomic unit: all of its drafts or none.
type Append struct {
	// Drafts go in the log in this order, on adjacent positions. At least one.
	Drafts []Draft
	// Expect names the revisions that the decision was made at: of streams
	// written to and of streams only relied upon. A stream that is written to
	// and not named here may be at any revision.
	Expect []Expectation
	// Key binds the append to an idempotency key; zero without one. Every
	// draft's intent carries the same Key and Request.
	Key     Hash
	Request Hash
	// Before, unless zero, refuses the append with ErrTooLate if it would be
	// stamped at or after that time: a grant is never recorded past its expiry.
	Before time.Time
	// Erase names events in the log, of earlier appends, whose payload and salt go
	// with this one: once it is durable every read tells them as erased, a crash
	// leaves both or neither. What an engine's files still hold of them goes with
	// Scrub.
	Erase []Position
}

// Appended says where an append lies.
type Appended struct {
	// First and Last are the positions of its first and last event.
	First, Last Position
	// Duplicate is true when the key was bound before, to the same request:
	// nothing was written now and the positions are those of then.
	Duplicate bool
	// Records are what was written, in order; nil for a duplicate.
	Records []Record
}

// A Log is the ordered, append-only sequence of one fleet's events. It stores
// bytes and never decodes payloads. Methods may be called concurrently.
//
// Reads see exactly what is durable: an event is visible to any method only
// once it survives power loss, and from then on always.
type Log interface {
	// Append adds a's drafts as one atomic unit. When it returns nil they are on
	// stable storage and the folds the log was opened with have applied them.
	//
	// Checks are made in this order against everything appended before, and the
	// first that fails decides; then nothing is written and no position is used:
	//   - the key: bound to the same request, the earlier Appended is returned
	//     with Duplicate set; bound to another, a *KeyMismatchError;
	//   - the event ids: one already in the log, or named twice: a *DuplicateIDError;
	//   - the expectations: a *ConflictError;
	//   - Before: ErrTooLate;
	//   - the folds: the fold's error.
	//
	// Like every reader, whoever lost or repeated is answered only once what
	// it lost to or repeated is durable. A context that ends, or any error
	// not named here, leaves the outcome unknown; trying again with the same
	// key or ids is safe.
	Append(ctx context.Context, a Append) (Appended, error)

	// ReadStream yields the events of s in revision order, starting after the
	// given revision, as far as they were durable at the call. A stream without
	// events yields nothing.
	ReadStream(ctx context.Context, s Stream, after Revision) iter.Seq2[Record, error]

	// ReadAll yields every event after the given position in order, without
	// gaps, as far as they were durable at the call.
	ReadAll(ctx context.Context, after Position) iter.Seq2[Record, error]

	// Durable is the position up to which events are durable and visible.
	Durable() Position

	// Wait returns nil once Durable is at or past p. It ends with the context's
	// error, or with the log's own if the log is closed or failed first.
	Wait(ctx context.Context, p Position) error

	// FindID returns the position of the event with this id, 0 if there is none.
	FindID(ctx context.Context, id string) (Position, error)

	// FindKey returns the append that bound this key: First is 0 if none did.
	FindKey(ctx context.Context, key Hash) (Appended, Hash, error)

	// Heads yields the newest event of every stream, in the order of the streams'
	// names (bytewise) and after the stream of this name, as they were at a
	// position that is durable.
	Heads(ctx context.Context, after Stream, at Position) iter.Seq2[StreamHead, error]

	// Scrub removes what was erased from the engine's storage, and returns nil when
	// nothing of it is left there. An engine that is stopped before goes on with it
	// when it is opened again, without being asked.
	Scrub(ctx context.Context) error

	// Now is the ledger's time: the time an append would be stamped with now.
	// It never runs backwards, over restarts too.
	Now() time.Time

	// Close waits for appends under way, then releases everything.
	Close() error
}

// A Fold is state kept in step with a log. The log calls it from one goroutine.
type Fold interface {
	// Stage applies the records of one append on top of everything staged
	// before. Its effect is not yet visible to readers: it becomes so when the
	// log calls publish, in the order of staging, after the records are durable.
	// An error refuses the append and must leave what is staged as it was.
	// A start stages what lies in the log already, many appends at a time. It puts other
	// records in the place of those that are published: their Leaf and Payload are not
	// to be kept.
	Stage(recs []Record) (publish func(), err error)
	// Unstage forgets everything that is staged and not published: another relay
	// was first, and what comes next follows what is published.
	Unstage()
}

// Placed is an append that has its place already: another log has decided it.
type Placed struct {
	Records []Record
	// Publish is what Fold.Stage returned for Records; nil if there is no fold.
	Publish func()
}

// Errors of a Log that callers branch on.
var (
	// ErrTooLate: the append would be stamped at or after its Before.
	ErrTooLate = errors.New("the time to append this has passed")
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("the log is closed")
	// ErrFailed: the log's storage failed; nothing more can be appended until
	// it is opened again. The wrapped error says what failed.
	ErrFailed = errors.New("the log's storage failed")
	// ErrReadOnly: the log was opened for reading only. See ReadOnlyError.
	ErrReadOnly = errors.New("the log is open for reading only")
	// ErrTooLarge: an append exceeds MaxAppendEvents or MaxAppendBytes.
	ErrTooLarge = errors.New("the append is too large")
	// ErrNoSpace: too little disk space is left to append safely. Nothing was
	// written; it can be tried again once space was freed.
	ErrNoSpace = errors.New("too little disk space is left to append")
	// ErrCannotErase: this engine cannot erase payloads. Nothing was written.
	ErrCannotErase = errors.New("the log's engine cannot erase payloads")
	// ErrUnavailable: what keeps the log is out of reach. Whether the append was
	// recorded is unknown: trying again with the same key or ids is safe.
	ErrUnavailable = errors.New("the cluster that keeps the log is out of reach")
	// ErrLocked: another process has the log open.
	ErrLocked = errors.New("the data directory is in use by another process")
)

// Limits of one append, in every engine.
const (
	MaxAppendEvents = 1000
	MaxAppendBytes  = 4 << 20
)

// Bounded is a Log that takes less at once than MaxAppendBytes.
type Bounded interface {
	// AppendBytes is what one append holds at most, headers included.
	AppendBytes() int
}

// TooLargeError is an ErrTooLarge that says what is too large by how much.
type TooLargeError struct{ Bytes, Limit int }

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("%v: %d bytes, at most %d", ErrTooLarge, e.Bytes, e.Limit)
}

func (e *TooLargeError) Unwrap() error { return ErrTooLarge }

// ConflictError says that a stream was not at the expected revision.
type ConflictError struct {
	Stream           Stream
	Expected, Actual Revision
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("stream %s is at revision %d, not %d", e.Stream, e.Actual, e.Expected)
}

// DuplicateIDError says that an event id is taken. Position is 0 when the
// same append names the id twice.
type DuplicateIDError struct {
	ID       string
	Position Position
}

func (e *DuplicateIDError) Error() string {
	if e.Position == 0 {
		return fmt.Sprintf("event id %s is named twice in one append", e.ID)
	}
	return fmt.Sprintf("event id %s is taken by the event at position %d", e.ID, e.Position)
}

// KeyMismatchError says that an idempotency key is bound to another request.
type KeyMismatchError struct {
	First Position
}

func (e *KeyMismatchError) Error() string {
	return fmt.Sprintf("the idempotency key was used for another request, recorded at position %d", e.First)
}

// CorruptError says that what is stored is not what was written.
type CorruptError struct {
	// Position is the first event concerned.
	Position Position
	Detail   string
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("position %d: %s", e.Position, e.Detail)
}

// Check reports why no engine can take a, if so. Engines call it before
// anything else.
func (a Append) Check() error {
	if len(a.Drafts) == 0 {
		return errors.New("an append needs at least one event")
	}
	if len(a.Drafts) > MaxAppendEvents {
		return fmt.Errorf("%w: %d events, at most %d", ErrTooLarge, len(a.Drafts), MaxAppendEvents)
	}
	bytes := 0
	ids := make(map[string]bool, len(a.Drafts))
	for i, d := range a.Drafts {
		if err := d.Intent.Check(); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if d.Intent.Key != a.Key {
			return fmt.Errorf("event %d: its key is not the append's", i)
		}
		if d.Intent.Size != len(d.Payload) {
			return fmt.Errorf("event %d: its size is not the payload's", i)
		}
		if ids[d.Intent.ID] {
			return &DuplicateIDError{ID: d.Intent.ID}
		}
		ids[d.Intent.ID] = true
		bytes += len(d.Payload)
	}
	if len(a.Erase) > MaxAppendEvents {
		return fmt.Errorf("%w: it erases %d events, at most %d", ErrTooLarge, len(a.Erase), MaxAppendEvents)
	}
	if bytes > MaxAppendBytes {
		return &TooLargeError{Bytes: bytes, Limit: MaxAppendBytes}
	}
	return nil
}

// CheckErase reports why a cannot erase what it names in a log that is durable up
// to a position, if so. Engines that erase call it.
func (a Append) CheckErase(durable Position) error {
	for _, p := range a.Erase {
		if p == 0 || p > durable {
			return fmt.Errorf("position %d cannot be erased: the log ends at %d", p, durable)
		}
	}
	return nil
}

// Place puts draft i of an append in the log: the one way to make a record.
func (d Draft) Place(p Place) Record {
	h := Header{Intent: d.Intent, Place: p}
	leaf := h.Encode()
	return Record{Header: h, Leaf: leaf, LeafHash: LeafHash(leaf), Salt: d.Salt, Payload: d.Payload}
}

// ReadOnlyError refuses appends to a log that was opened for reading only. It is
// ErrReadOnly.
type ReadOnlyError struct {
	// Lost is the first position of which nothing vouches that it is what was
	// acknowledged, or that is lost; 0 if the log is whole. What can be read after it
	// is what there is.
	Lost Position
	// Detail says what is wrong with it, for the operator.
	Detail string
}

func (e *ReadOnlyError) Error() string {
	if e.Lost == 0 {
		return ErrReadOnly.Error()
	}
	return fmt.Sprintf("%v: it is damaged from position %d on: %s", ErrReadOnly, e.Lost, e.Detail)
}

func (e *ReadOnlyError) Unwrap() error { return ErrReadOnly }

// Degraded is a Log that may end up serving reads only.
type Degraded interface {
	// Degraded returns why nothing can be appended until the log is opened again: an
	// error that is ErrFailed or ErrReadOnly; nil while appends are taken.
	Degraded() error
}

// Verifying is a Log that may go on reading what it holds behind a quick start.
type Verifying interface {
	// Verified returns how far the events were read and found to be what they say, of
	// those that the start left for later; both are 0 if it left none.
	Verified() (done, of Position)
}
