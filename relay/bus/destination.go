package bus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	wmhttp "github.com/ThreeDotsLabs/watermill-http/v2/pkg/http"
	wmnats "github.com/ThreeDotsLabs/watermill-nats/v2/pkg/nats"
	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/go-json-experiment/json"
	"github.com/nats-io/nats.go"

	"fleetledger/events"
)

// cloudEventType is CloudEvents' structured mode in JSON, over HTTP as over NATS.
const cloudEventType = "application/cloudevents+json"

// cloudEventMessage is an event as it is delivered: the message's UUID is the
// event's id, so that whoever gets it twice can tell.
func cloudEventMessage(r events.Record) (*message.Message, error) {
	e, err := events.CloudEvent(r)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(e, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	m := message.NewMessage(r.Header.ID, b)
	m.Metadata.Set("Content-Type", cloudEventType)
	return m, nil
}

// rejectedError says that a destination refuses an event for what it is: sent
// again, it is refused again.
type rejectedError struct{ reason string }

func (e *rejectedError) Error() string { return e.reason }

// laterError says that a destination asks for some time.
type laterError struct {
	reason string
	wait   time.Duration
}

func (e *laterError) Error() string { return e.reason }

// destination is one that is connected to: where to publish, and under which topic.
type destination struct {
	message.Publisher
	topic string
}

const (
	// answerTimeout bounds one request to a webhook or one acknowledgement of NATS.
	answerTimeout = 10 * time.Second
	// maxReason bounds what is kept of a refusal's text.
	maxReason = 300
)

// connect opens a destination. credential is empty if it needs none.
func connect(d events.Destination, credential string, key *WebhookKey) (*destination, error) {
	if d.Kind == "nats" {
		return connectNATS(d, credential)
	}
	p, err := wmhttp.NewPublisher(wmhttp.PublisherConfig{
		MarshalMessageFunc: func(url string, m *message.Message) (*http.Request, error) {
			return webhookRequest(m.Context(), url, m, credential, key)
		},
		Client: &http.Client{
			Timeout: answerTimeout, Transport: judging{http.DefaultTransport},
			// An answer of 3xx is no acknowledgement, and the body is not for others.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		DoNotLogResponseBodyOnServerError: true,
	}, nil)
	if err != nil {
		return nil, err
	}
	return &destination{p, d.URL}, nil
}

// judging makes errors of the answers that are none of acknowledgement.
type judging struct{ next http.RoundTripper }

func (j judging) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := j.next.RoundTrip(req)
	if err != nil || resp.StatusCode >= 200 && resp.StatusCode < 300 {
		return resp, err
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(resp.Body, maxReason)) // it explains, no more
	reason := fmt.Sprintf("answered %s", resp.Status)
	if len(said) > 0 {
		reason += fmt.Sprintf(": %+q", said)
	}
	switch resp.StatusCode {
	case http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity:
		return nil, &rejectedError{reason}
	}
	later := &laterError{reason: reason}
	if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && s > 0 {
		later.wait = time.Duration(s) * time.Second
	}
	return nil, later
}

func connectNATS(d events.Destination, credential string) (*destination, error) {
	options := []nats.Option{
		nats.Name("fleetledger"), nats.Timeout(answerTimeout),
		// A message waits here, in the log, not in the client.
		nats.ReconnectBufSize(-1), nats.MaxReconnects(-1), nats.ReconnectWait(500 * time.Millisecond),
	}
	if credential != "" {
		options = append(options, nats.Token(credential))
	}
	p, err := wmnats.NewPublisher(wmnats.PublisherConfig{
		URL: d.URL, NatsOptions: options, Marshaler: &wmnats.NATSMarshaler{},
		JetStream: wmnats.JetStreamConfig{
			// The server drops an event that it has from before a crash of the relay.
			TrackMsgId:     true,
			ConnectOptions: []nats.JSOpt{nats.MaxWait(answerTimeout)},
		},
	}, nil)
	if err != nil {
		return nil, err
	}
	return &destination{judgingNATS{p}, d.Subject}, nil
}

// exceedsMaximum is the answer of a JetStream stream to a message that is larger than it
// takes.
const exceedsMaximum nats.ErrorCode = 10054

// judgingNATS tells what NATS refuses for what it is, and ends with the context of
// the one message that it is given, which the client of NATS does not look at.
type judgingNATS struct{ message.Publisher }

func (p judgingNATS) Publish(topic string, one ...*message.Message) error {
	ctx, done := one[0].Context(), make(chan error, 1)
	go func() { done <- p.Publisher.Publish(topic, one...) }()
	select {
	case err := <-done:
		answer, _ := errors.AsType[*nats.APIError](err)
		if errors.Is(err, nats.ErrMaxPayload) || answer != nil && answer.ErrorCode == exceedsMaximum {
			return &rejectedError{err.Error()}
		}
		return err
	case <-ctx.Done():
		return ctx.Err() // the rest ends within answerTimeout, or when it is closed
	}
}

// publish sends one message and returns when it was taken, or ctx ends; the
// destination may be closed then.
func (d *destination) publish(ctx context.Context, m *message.Message) error {
	m.SetContext(ctx)
	return d.Publish(d.topic, m)
}
