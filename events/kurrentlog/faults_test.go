package kurrentlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/esdb"

	"fleetledger/testing/kurrentstub"
)

// The known faults of the client, each shown on the client itself and then not to
// pass client.go. If a newer client has one no more, its half of a test says so.

// faulty is a cluster, the client as it is, and ours.
func faulty(t *testing.T) (*kurrentstub.Cluster, *esdb.Client, *cluster) {
	t.Helper()
	c, err := kurrentstub.Start(kurrentstub.Options{Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Stop)
	connection, err := ParseConnection(c.ConnectionString())
	if err != nil {
		t.Fatal(err)
	}
	ours := newCluster(connection.cfg, connection.Stream("f"), 500*time.Millisecond, slog.New(slog.DiscardHandler))
	t.Cleanup(ours.close)
	for i := range uint64(3) {
		if err := ours.append(t.Context(), i, []esdb.EventData{{EventID: [16]byte{byte(i + 1)}, EventType: "x"}}); err != nil {
			t.Fatal(err)
		}
	}
	client, err := esdb.NewClient(connection.cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return c, client, ours
}

// readOne reads an event of the stream with a client.
func readOne(ctx context.Context, client *esdb.Client, stream string) error {
	r, err := client.ReadStream(ctx, stream, esdb.ReadStreamOptions{From: esdb.Start{}}, 1)
	if err != nil {
		return err
	}
	defer r.Close()
	_, err = r.Recv()
	return err
}

// After one discovery that failed, the client is closed for ever. Ours is made anew.
func TestClientClosedAfterDiscovery(t *testing.T) {
	c, client, ours := faulty(t)
	c.RefuseDiscovery(time.Hour)
	if err := readOne(t.Context(), client, ours.stream); err == nil {
		t.Fatal("it reads from a cluster that refuses")
	}
	if _, _, err := ours.read(t.Context(), 0); err == nil {
		t.Fatal("we read from a cluster that refuses")
	}
	c.RefuseDiscovery(0)
	if err := readOne(t.Context(), client, ours.stream); err == nil {
		t.Log("this client has not the fault: it reads again")
	}
	for limit := time.Now().Add(10 * time.Second); ; {
		page, _, err := ours.read(t.Context(), 0)
		if err == nil && len(page) == 3 {
			return
		}
		if time.Now().After(limit) {
			t.Fatalf("it never reads again: %d events, %v", len(page), err)
		}
	}
}

// A call to a server that does not answer may outlive its context. Ours ends by its
// deadline.
func TestClientOutlivesContexts(t *testing.T) {
	c, _, ours := faulty(t)
	c.Misbehave(kurrentstub.Faults{Stall: 1, StallFor: time.Hour})
	defer c.ResetConnections() // so that the stub can stop
	for what, f := range map[string]func() error{
		"a read": func() error { _, _, err := ours.read(t.Context(), 0); return err },
		"an append": func() error {
			return ours.append(t.Context(), 3, []esdb.EventData{{EventID: [16]byte{9}, EventType: "x"}})
		},
	} {
		began := time.Now()
		if err := f(); err == nil {
			t.Errorf("%s of a server that does not answer ends well", what)
		}
		// The deadline is half a second. What is far more, waits for the server.
		if d := time.Since(began); d > 10*time.Second {
			t.Errorf("%s took %s", what, d)
		}
	}
	c.RefuseDiscovery(time.Hour)
	began := time.Now()
	if _, _, err := ours.read(t.Context(), 0); err == nil || time.Since(began) > 10*time.Second {
		t.Errorf("a discovery that fails: %v after %s", err, time.Since(began))
	}
}

// When the server answers before it was sent all, the client says end of file, with
// code 0. That is taken for an outcome that is not known, and never for a success or
// the end of the stream.
func TestClientHidesEarlyErrors(t *testing.T) {
	c, client, ours := faulty(t)
	c.Misbehave(kurrentstub.Faults{Early: 1})
	e := esdb.EventData{EventID: [16]byte{9}, EventType: "x", Data: make([]byte, 100_000)}
	if _, err := client.AppendToStream(t.Context(), ours.stream, esdb.AppendToStreamOptions{}, e, e, e, e, e, e, e); err == nil {
		t.Fatal("an append that is refused early ends well")
	}
	for range 20 {
		err := ours.append(t.Context(), 3, []esdb.EventData{e, e, e, e, e, e, e})
		if err == nil || errors.Is(err, errWrongHead) || tooLarge(err) || isRefused(err) || isFinal(err) {
			t.Fatalf("an append that is refused early: %v", err)
		}
	}
	c.Misbehave(kurrentstub.Faults{})
	if page, end, err := ours.read(t.Context(), 0); err != nil || len(page) != 3 || !end {
		t.Errorf("afterwards there are %d events: %v", len(page), err)
	}
}

// FromError knows an error of the client only if it is not wrapped. Ours finds it
// wherever it is.
func TestClientMissesWrappedErrors(t *testing.T) {
	_, client, ours := faulty(t)
	bare := readOne(t.Context(), client, "none-such")
	wrapped := fmt.Errorf("twice: %w", fmt.Errorf("wrapped: %w", bare))
	if e, _ := esdb.FromError(wrapped); e != nil && e.Code() == esdb.ErrorCodeResourceNotFound {
		t.Log("this client has not the fault: it finds what is wrapped")
	}
	if !hasCode(bare, esdb.ErrorCodeResourceNotFound) || !hasCode(wrapped, esdb.ErrorCodeResourceNotFound) || hasCode(io.EOF, esdb.ErrorCodeResourceNotFound) {
		t.Errorf("the code of %v is not found", bare)
	}
	if page, end, err := ours.readPage(t.Context(), "none-such", esdb.ReadStreamOptions{From: esdb.Start{}}, 1); err != nil || !end || len(page) > 0 {
		t.Errorf("a stream that is not there: %d events, %v", len(page), err)
	}
}

// Recv panics on a message that the client has no case for. Ours goes on with the next.
func TestClientPanicsOnUnknownMessages(t *testing.T) {
	c, client, ours := faulty(t)
	c.Misbehave(kurrentstub.Faults{Unknown: 1})
	_, err := protect(func() (struct{}, error) { return struct{}{}, readOne(t.Context(), client, ours.stream) })
	if _, panics := errors.AsType[panicked](err); !panics {
		t.Logf("this client has not the fault: %v", err)
	}
	if page, end, err := ours.read(t.Context(), 0); err != nil || len(page) != 3 || !end {
		t.Errorf("%d events, %v", len(page), err)
	}
	if last, err := ours.newest(t.Context(), ours.stream); err != nil || last == nil || last.EventNumber != 2 {
		t.Errorf("the newest: %+v, %v", last, err)
	}
}
