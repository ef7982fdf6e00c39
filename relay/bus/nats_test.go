package bus

import (
	"github.com/go-json-experiment/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"fleetledger/events"
)

// natsServer is a real one, in this process, that can be stopped and started on
// the same port and store.
type natsServer struct {
	t    testing.TB
	opts server.Options
	*server.Server
}

func newNATS(t testing.TB, o server.Options) *natsServer {
	o.Host, o.Port, o.NoLog, o.NoSigs, o.JetStream, o.StoreDir = "127.0.0.1", -1, true, true, true, t.TempDir()
	n := &natsServer{t: t, opts: o}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

func (n *natsServer) start() {
	n.t.Helper()
	opts := n.opts
	s, err := server.NewServer(&opts)
	if err != nil {
		n.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		n.t.Fatal("NATS is not ready within 10 s")
	}
	n.Server = s
	n.opts.Port = opts.Port
}

func (n *natsServer) stop() {
	n.Shutdown()
	n.WaitForShutdown()
}

// stream makes the JetStream stream that takes the subject.
func (n *natsServer) stream(token string) {
	n.t.Helper()
	js, done := n.connect(token)
	defer done()
	if _, err := js.AddStream(&nats.StreamConfig{Name: "FLEET", Subjects: []string{"fleet.events"}}); err != nil {
		n.t.Fatal(err)
	}
}

func (n *natsServer) connect(token string) (nats.JetStreamContext, func()) {
	n.t.Helper()
	nc, err := nats.Connect(n.ClientURL(), nats.Token(token))
	if err != nil {
		n.t.Fatal(err)
	}
	js, err := nc.JetStream()
	if err != nil {
		n.t.Fatal(err)
	}
	return js, nc.Close
}

// stored are the ids of the events that the stream holds, in order.
func (n *natsServer) stored(token string) (ids []string) {
	n.t.Helper()
	js, done := n.connect(token)
	defer done()
	info, err := js.StreamInfo("FLEET")
	if err != nil {
		n.t.Fatal(err)
	}
	for seq := info.State.FirstSeq; seq <= info.State.LastSeq && info.State.Msgs > 0; seq++ {
		m, err := js.GetMsg("FLEET", seq)
		if err != nil {
			n.t.Fatal(err)
		}
		var e struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal(m.Data, &e); err != nil || e.ID != m.Header.Get(nats.MsgIdHdr) || m.Header.Get("Content-Type") != cloudEventType {
			n.t.Fatalf("message %d: %s, %v (%v)", seq, m.Data, m.Header, err)
		}
		ids = append(ids, e.ID)
	}
	return ids
}

// A server that is restarted in mid-stream has every event afterwards, once and in
// order, though the relay is restarted too.
func TestNATSRestarted(t *testing.T) {
	f, n := newFixture(t), newNATS(t, server.Options{})
	n.stream("")
	f.subscribe(events.Subscription{Name: "n", Types: []string{"ext.*"},
		Destination: events.Destination{Kind: "nats", URL: n.ClientURL(), Subject: "fleet.events"}})
	want := f.record("ext.a", "ext-a", 0, 100)
	f.await("the first", func() bool { return f.status("n").Delivered > 20 })
	n.stop()
	want = append(want, f.record("ext.a", "ext-a", 100, 300)...)
	f.await("a failure shown", func() bool { return f.status("n").Failing != "" })
	n.start()
	f.await("all", func() bool { return f.status("n").Delivered >= 400 })
	f.restart()
	want = append(want, f.record("ext.a", "ext-a", 400, 50)...)
	f.await("no lag", func() bool { s := f.status("n"); return s.Lag == 0 && s.Delivered >= 450 })
	if got := n.stored(""); !slices.Equal(got, want) {
		t.Errorf("the stream has %d events, want %d in the order of the log", len(got), len(want))
	}
}

// What NATS cannot take is parked; a subject that no stream takes, and a token that
// is wrong, are shown and not taken for the events' fault.
func TestNATSRefuses(t *testing.T) {
	f, n := newFixture(t), newNATS(t, server.Options{Authorization: "right", MaxPayload: 4 << 10})
	d := events.Destination{Kind: "nats", URL: n.ClientURL(), Subject: "fleet.events", CredentialEnv: "FLEETLEDGER_TEST_NATS"}
	t.Setenv("FLEETLEDGER_TEST_NATS", "wrong")
	f.subscribe(events.Subscription{Name: "n", Types: []string{"ext.*"}, Destination: d})
	ids := f.record("ext.a", "ext-a", 0, 1)
	ids = append(ids, f.record(events.Kind("ext."+strings.Repeat("b", 100)), "ext-a", 1, 1)...)
	f.await("the token is refused", func() bool { return strings.Contains(strings.ToLower(f.status("n").Failing), "authorization") })
	t.Setenv("FLEETLEDGER_TEST_NATS", "right")
	f.await("no stream", func() bool {
		return strings.Contains(f.status("n").Failing, "no response from stream") || strings.Contains(f.status("n").Failing, "no responders")
	})
	n.stream("right")
	f.await("both", func() bool { return f.status("n").Delivered == 2 })
	f.recordLarge("ext-a", 8<<10)
	after := f.record("ext.a", "ext-a", 2, 1)
	f.await("the large one is parked", func() bool { s := f.status("n"); return len(s.Parked) == 1 && s.Delivered == 3 })
	// The stream may take less than its server.
	js, done := n.connect("right")
	defer done()
	if _, err := js.UpdateStream(&nats.StreamConfig{Name: "FLEET", Subjects: []string{"fleet.events"}, MaxMsgSize: 2 << 10}); err != nil {
		t.Fatal(err)
	}
	f.recordLarge("ext-a", 3<<10)
	after = append(after, f.record("ext.a", "ext-a", 3, 1)...)
	f.await("one too large for the stream is parked", func() bool { s := f.status("n"); return len(s.Parked) == 2 && s.Delivered == 4 })
	if got := n.stored("right"); !slices.Equal(got, append(ids, after...)) {
		t.Errorf("the stream has %v", got)
	}
}
