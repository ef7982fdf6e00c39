package bus

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"fleetledger/commands"
	"fleetledger/events"
)

// MessageKind is the kind of the events that a Publisher records.
const MessageKind events.Kind = "ext.watermill.message"

// Publisher records Watermill messages as an actor's own events: a message of topic
// T goes into the stream ext-T. It implements message.Publisher and may be used
// concurrently.
type Publisher struct {
	ledger *commands.Ledger
	actor  string

	mu     sync.RWMutex
	closed bool
}

// NewPublisher returns a publisher that records as actor; the rules for
// ext.watermill.message apply to it.
func NewPublisher(l *commands.Ledger, actor string) *Publisher {
	return &Publisher{ledger: l, actor: actor}
}

// recordedMessage is a message as its event's data.
type recordedMessage struct {
	UUID     string           `json:"uuid"`
	Metadata message.Metadata `json:"metadata,omitzero"`
	Payload  []byte           `json:"payload"` // base64, as JSON has it
}

var errClosed = errors.New("it is closed")

// Publish records the messages, a batch that one append takes at a time; it returns
// when they are durable. On an error some batches may be recorded.
func (p *Publisher) Publish(topic string, messages ...*message.Message) error {
	p.mu.RLock()
	defer p.mu.RUnlock()
	if p.closed {
		return errClosed
	}
	var batch []commands.ExtEvent
	size := 0
	ctx := context.Background()
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		_, err := p.ledger.AppendExt(ctx, commands.Caller{Actor: p.actor}, batch)
		batch, size = nil, 0
		return err
	}
	s := p.ledger.State().Settings()
	for _, m := range messages {
		data, err := json.Marshal(recordedMessage{m.UUID, m.Metadata, m.Payload}, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("message %s: %w", m.UUID, err)
		}
		if len(batch) == s.BatchEvents || size+len(data) > s.BatchBytes {
			if err := flush(); err != nil {
				return err
			}
		}
		ctx = m.Context()
		size += len(data)
		batch = append(batch, commands.ExtEvent{
			ID: uuid.Must(uuid.NewV7()).String(), Type: MessageKind, Stream: topicStream(topic),
			Body: events.Ext{Source: "/watermill", DataContentType: "application/json", Data: jsontext.Value(data)},
		})
	}
	return flush()
}

// Close ends it; what is under way is waited for.
func (p *Publisher) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	return nil
}

func topicStream(topic string) events.Stream { return events.Stream(commands.ExtStreamPrefix + topic) }

// SubscriberConfig says what a subscriber reads and how it remembers where it was.
type SubscriberConfig struct {
	Log     events.Log
	Cursors *Cursors
	// Name is the consumer group: of all subscribers of a name to a topic one at a
	// time is sent messages, and the next goes on where it was.
	Name string
}

// Subscriber reads messages that a Publisher recorded. It implements
// message.Subscriber and may be used concurrently.
type Subscriber struct {
	cfg SubscriberConfig
	run reading
}

// NewSubscriber returns a subscriber. Its first message is the topic's first.
func NewSubscriber(cfg SubscriberConfig) *Subscriber { return &Subscriber{cfg: cfg} }

// Subscribe sends the messages of a topic, in their order, each after the one
// before was acknowledged; one that was not is sent again. The channel is closed
// when ctx ends or the subscriber is closed.
func (s *Subscriber) Subscribe(ctx context.Context, topic string) (<-chan *message.Message, error) {
	stream := topicStream(topic)
	if err := events.CheckName("topic", string(stream)); err != nil {
		return nil, err
	}
	cur, err := s.cfg.Cursors.get(ctx, url.PathEscape(s.cfg.Name+"@"+topic), 0)
	if err != nil {
		return nil, err
	}
	return s.run.start(ctx, source{
		log: s.cfg.Log, cursor: cur,
		wants: func(h events.Header) bool { return h.Stream == stream && h.Type == MessageKind },
		message: func(r events.Record) (*message.Message, error) {
			if r.Erased {
				return nil, nil
			}
			e, err := events.DecodeAs[events.Ext](r)
			if err != nil {
				return nil, err
			}
			var m recordedMessage
			if err := json.Unmarshal(e.Data, &m); err != nil {
				return nil, err
			}
			out := message.NewMessage(m.UUID, m.Payload)
			out.Metadata = m.Metadata
			return out, nil
		},
	})
}

// Close ends all that Subscribe began and waits for it.
func (s *Subscriber) Close() error { return s.run.close() }

// reading is a set of running subscriptions.
type reading struct {
	mu     sync.Mutex
	closed bool
	ends   []context.CancelFunc
	all    sync.WaitGroup
}

// source is where messages come from.
type source struct {
	log    events.Log
	cursor *cursor
	wants  func(events.Header) bool
	// message makes one of a record; nil passes the record over.
	message func(events.Record) (*message.Message, error)
	// between, unless nil, is called before each look at the log.
	between func(context.Context) error
	// trouble, unless nil, is told when the cursor cannot be written, and with nil when
	// it can again.
	trouble func(error)
}

func (r *reading) start(ctx context.Context, s source) (<-chan *message.Message, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	ctx, end := context.WithCancel(ctx)
	r.ends = append(r.ends, end)
	out := make(chan *message.Message)
	r.all.Go(func() {
		defer close(out)
		defer end()
		s.read(ctx, out)
	})
	return out, nil
}

func (r *reading) close() error {
	r.mu.Lock()
	r.closed = true
	for _, end := range r.ends {
		end()
	}
	r.mu.Unlock()
	r.all.Wait()
	return nil
}

const (
	// pageEvents and pageBytes bound what a subscription holds of the log.
	pageEvents = 256
	pageBytes  = 256 << 10
	// nackDelay is how long a message that was not taken waits to be sent again.
	nackDelay = 10 * time.Millisecond
	// idleWait bounds how long a subscription waits for the log without a look at
	// its cursor.
	idleWait = time.Second
	// flushTime is how long the last write of a cursor may take.
	flushTime = 2 * time.Second
)

// read sends messages until ctx ends.
func (s source) read(ctx context.Context, out chan<- *message.Message) {
	release, err := s.cursor.acquire(ctx)
	if err != nil {
		return
	}
	defer release()
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTime)
		defer cancel()
		_ = s.cursor.flush(ctx) // what it lacks is sent again
	}()
	troubled := false
	for ctx.Err() == nil {
		if s.between != nil && s.between(ctx) != nil {
			return
		}
		page, last, err := s.page(ctx, s.cursor.get().Position)
		if err != nil {
			return // the log is closed, or ctx ended
		}
		for _, r := range page {
			if !s.send(ctx, out, r) {
				return
			}
		}
		if last > s.cursor.get().Position {
			if !s.moved(ctx, last) {
				return
			}
			continue
		}
		if err = s.cursor.flush(ctx); isLost(err) {
			return
		}
		if s.trouble != nil && (err != nil || troubled) {
			s.trouble(err)
		}
		troubled = err != nil
		wait, cancel := context.WithTimeout(ctx, idleWait)
		err = s.log.Wait(wait, last+1)
		cancel()
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return
		}
	}
}

// page reads what is wanted after a position; last is how far it looked.
func (s source) page(ctx context.Context, after events.Position) (page []events.Record, last events.Position, err error) {
	last = after
	bytes := 0
	for r, err := range s.log.ReadAll(ctx, after) {
		if err != nil {
			return nil, after, err
		}
		last = r.Header.Position
		if s.wants(r.Header) {
			page = append(page, r)
			bytes += len(r.Payload)
		}
		if len(page) == pageEvents || bytes > pageBytes || last >= after+10_000 {
			break
		}
	}
	return page, last, nil
}

// send sends a record until it is acknowledged, and moves the cursor behind it.
func (s source) send(ctx context.Context, out chan<- *message.Message, r events.Record) bool {
	m, err := s.message(r)
	if err != nil || m == nil {
		return err == nil && s.moved(ctx, r.Header.Position)
	}
	for {
		msgCtx, done := context.WithCancel(ctx)
		m.SetContext(msgCtx)
		select {
		case out <- m:
		case <-ctx.Done():
			done()
			return false
		}
		select {
		case <-m.Acked():
			done()
			return s.moved(ctx, r.Header.Position)
		case <-m.Nacked():
			done()
			select {
			case <-time.After(nackDelay):
			case <-ctx.Done():
				return false
			}
			// Read again: its payload may have been erased meanwhile.
			if m, err = s.again(ctx, r.Header.Position); err != nil || m == nil {
				return err == nil && s.moved(ctx, r.Header.Position)
			}
		case <-ctx.Done():
			done()
			return false
		}
	}
}

// again is the message of the event at a position as the log has it now.
func (s source) again(ctx context.Context, p events.Position) (*message.Message, error) {
	r, err := recordAt(ctx, s.log, p)
	if err != nil {
		return nil, err
	}
	return s.message(r)
}

// moved moves the cursor on to a position; false if the reading ends. While the cursor
// cannot be written, nothing more is sent: what was delivered since it was last comes
// again after a crash, and is to be little.
func (s source) moved(ctx context.Context, p events.Position) bool {
	err := s.cursor.change(ctx, false, func(c *cursorState) { c.Position = p })
	for try := 1; err != nil; try++ {
		if isLost(err) {
			return false
		}
		if s.trouble != nil {
			s.trouble(err)
		}
		select {
		case <-time.After(backoff(try)):
		case <-ctx.Done():
			return false
		}
		if err = s.cursor.flush(ctx); err == nil && s.trouble != nil {
			s.trouble(nil)
		}
	}
	return true
}
