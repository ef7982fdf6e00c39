package bus

import (
	"context"
	"crypto/rand"
	"os"
	"testing"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/ThreeDotsLabs/watermill/pubsub/tests"
	"github.com/google/uuid"

	"fleetledger/commands"
	"fleetledger/events/memlog"
	"fleetledger/projections"
)

// newLedger is a founded fleet in memory.
func newLedger(t testing.TB) *commands.Ledger {
	t.Helper()
	state := projections.NewState()
	log, err := memlog.New(memlog.Options{Fleet: "default", Fold: state})
	if err != nil {
		t.Fatal(err)
	}
	l := commands.New(log, state, commands.Random{
		ID:    func() string { return uuid.Must(uuid.NewV7()).String() },
		Bytes: func(b []byte) { _, _ = rand.Read(b) },
	})
	if _, err := l.Found(context.Background(), "default"); err != nil {
		t.Fatal(err)
	}
	return l
}

// Watermill's own suite for every Pub/Sub.
func TestPubSub(t *testing.T) {
	features := tests.Features{
		ConsumerGroups: true, GuaranteedOrder: true, Persistent: true,
		ForceShort: os.Getenv("FLEETLEDGER_LONG") == "",
	}
	ledger, dir := newLedger(t), t.TempDir()
	cursors := NewCursors(dir)
	group := func(_ *testing.T, name string) (message.Publisher, message.Subscriber) {
		return NewPublisher(ledger, "root"), NewSubscriber(SubscriberConfig{Log: ledger.Log(), Cursors: cursors, Name: name})
	}
	tests.TestPubSub(t, features, func(t *testing.T) (message.Publisher, message.Subscriber) { return group(t, "suite") }, group)
}
