package kurrentlog

import (
	"context"
	"sync"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"
)

// channel is a stream beside the log's, in which relays tell each other what need not
// be kept.
type channel struct {
	mu sync.Mutex
	// next is the revision to be read next; guarded by mu.
	next uint64
	// begun is set once the end of the stream was found; guarded by mu.
	begun bool
	// limited is set once the stream's length is; guarded by mu.
	limited bool
}

// channelKept is how many messages are kept: what relays say in some minutes.
const channelKept = 1000

// channelStream is its name; a colon is in no fleet's id.
func (l *Log) channelStream() string { return l.cluster.stream + ":relays" }

// Say tells every relay of the fleet, this one too, what Heard returns there.
func (l *Log) Say(ctx context.Context, message []byte) error {
	ctx, cancel := l.living(ctx)
	defer cancel()
	l.channel.mu.Lock()
	defer l.channel.mu.Unlock()
	if !l.channel.limited {
		if err := l.cluster.limit(ctx, l.channelStream(), channelKept); err != nil {
			return err
		}
		l.channel.limited = true
	}
	return l.cluster.say(ctx, l.channelStream(), esdb.EventData{EventType: "relay.said", ContentType: esdb.ContentTypeJson, Data: message})
}

// Heard returns what was said since it was called last; at first, the last that was
// said.
func (l *Log) Heard(ctx context.Context) ([][]byte, error) {
	ctx, cancel := l.living(ctx)
	defer cancel()
	l.channel.mu.Lock()
	defer l.channel.mu.Unlock()
	if !l.channel.begun {
		last, err := l.cluster.newest(ctx, l.channelStream())
		if err != nil {
			return nil, err
		}
		if last != nil {
			l.channel.next = last.EventNumber
		}
		l.channel.begun = true
	}
	page, _, err := l.cluster.readPage(ctx, l.channelStream(), esdb.ReadStreamOptions{From: esdb.Revision(l.channel.next), Direction: esdb.Forwards}, channelKept)
	if err != nil {
		return nil, err
	}
	var out [][]byte
	for _, e := range page {
		out = append(out, e.Data)
		l.channel.next = e.EventNumber + 1
	}
	return out, nil
}

// living is ctx, ended with the log.
func (l *Log) living(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(l.life, cancel)
	return ctx, func() { stop(); cancel() }
}
