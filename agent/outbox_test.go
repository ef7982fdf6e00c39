package agent

import (
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"fleetledger/events"
)

// What a crash can leave in the outbox: whole reports, which are kept in their
// order, half of one, which nobody was told of, and, from other hands, anything.
func TestOutboxAfterACrash(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outbox")
	log := slog.New(slog.DiscardHandler)
	open := func() *outbox {
		t.Helper()
		o, err := openOutbox(dir, log)
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	keys := func(o *outbox) (keys []string) {
		for _, u := range o.list() {
			keys = append(keys, u.Key)
		}
		return keys
	}

	o := open()
	code := 3
	first := unreported{TaskID: "t1", Attempt: 2, Key: NewKey(), Envelope: events.Envelope{
		Outcome: events.Exited, ExitCode: &code, StartedAt: time.Date(2026, 11, 30, 10, 0, 0, 7000, time.UTC), Machine: "m1",
		Stdout: events.Output{Bytes: 4, Tail: "\x00\"\u2028<"},
	}}
	second := unreported{TaskID: "../../t2", Attempt: 1, Key: NewKey()}
	o.put(first)
	o.put(second)
	for name, content := range map[string]string{"half.json.new": `{"task_id":"t`, "notes.txt": "mine", "torn.json": `{"task_id":"t`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	o = open()
	if got := keys(o); !slices.Equal(got, []string{first.Key, second.Key}) {
		t.Fatalf("read back %q", got)
	}
	back := o.list()[0]
	if *back.Envelope.ExitCode != code || back.Envelope.StartedAt != first.Envelope.StartedAt || back.Envelope.Stdout.Tail != first.Envelope.Stdout.Tail ||
		back.TaskID != "t1" || back.Attempt != 2 {
		t.Errorf("read back %+v", back)
	}
	select {
	case <-o.added:
	default:
		t.Error("what is left over wakes nobody")
	}
	o.remove(first)
	if got := keys(o); !slices.Equal(got, []string{second.Key}) {
		t.Errorf("after one was answered: %q", got)
	}
	if got := keys(open()); !slices.Equal(got, []string{second.Key}) {
		t.Errorf("after one was answered and a restart: %q", got)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name())
	}
	if want := []string{second.Key + ".json", "notes.txt", "torn.json"}; !slices.Equal(names, want) {
		t.Errorf("the outbox has %q, want %q", names, want)
	}
}

// A report is not lost because the disk does not take it.
func TestOutboxWithoutADisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "outbox")
	o, err := openOutbox(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	o.put(unreported{TaskID: "t1", Attempt: 1, Key: NewKey()})
	if len(o.list()) != 1 {
		t.Error("it is gone")
	}
	o.remove(o.list()[0])
	if len(o.list()) != 0 {
		t.Error("it stays for ever")
	}
}

// Three of four heartbeats may be lost, whatever the lease is.
func TestBeat(t *testing.T) {
	for lease, want := range map[time.Duration]time.Duration{
		35 * time.Second: 8750 * time.Millisecond, time.Second: 250 * time.Millisecond,
		-time.Second: minBeat, 0: minBeat, 10 * time.Hour: maxBeat,
	} {
		if got := beat(lease); got != want {
			t.Errorf("a lease of %v is held every %v, want %v", lease, got, want)
		}
	}
}

func TestPath(t *testing.T) {
	if got, want := Path("v1", "tasks", "../a b/%?#"), "/v1/tasks/..%2Fa%20b%2F%25%3F%23"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
