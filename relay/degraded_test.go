package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
)

// degradedLog is a log that serves reads only.
type degradedLog struct {
	events.Log
	why error
}

func (l degradedLog) Degraded() error { return l.why }

func (l degradedLog) Append(context.Context, events.Append) (events.Appended, error) {
	return events.Appended{}, l.why
}

// TestDegraded has the log of one fleet stop taking appends: reads are served,
// appends are told why not, and whoever asks whether it is ready is told too.
func TestDegraded(t *testing.T) {
	f := newFleet(t).people()
	for _, c := range []struct {
		why  error
		code string
		lost any
	}{
		{fmt.Errorf("%w: sync: input/output error", events.ErrFailed), "LOG_FAILED", nil},
		{&events.ReadOnlyError{}, "READ_ONLY", nil},
		{&events.ReadOnlyError{Lost: 7, Detail: "secret/path is cut"}, "READ_ONLY", 7},
	} {
		ledger := commands.New(degradedLog{f.ledger.Log(), c.why}, f.ledger.State(), randomness())
		second := New(map[string]*commands.Ledger{"default": ledger}, Config{Logger: f.relay.cfg.Logger})
		server := httptest.NewServer(second.Handler())
		t.Cleanup(func() { second.Drain(); server.Close() })
		f.server.Close()
		f.server, f.client = server, server.Client()
		f.do("root", "GET", "/v1/actors", "").want(200)
		f.do("root", "GET", "/v1/events?limit=3", "").want(200)
		f.do("", "GET", "/healthz", "").want(200)
		refused := f.do("root", "POST", "/v1/rules", `{"action":"x.y","min_level":3}`).want(503, c.code)
		ready := f.do("", "GET", "/readyz", "").want(503, c.code).has("fleets.0.fleet", "default", "fleets.0.degraded", c.code)
		shown := f.metricsOf("root")
		if shown[`fleetledger_log_writable{fleet="default"}`] != 0 || shown[`fleetledger_log_degraded{code="`+c.code+`",fleet="default"}`] != 1 {
			t.Errorf("%v: the metrics do not tell", c.why)
		}
		if got := fmt.Sprint(refused.get("first_lost_position")); got != fmt.Sprint(c.lost) {
			t.Errorf("%v: the first lost position is told as %v", c.why, got)
		}
		if got := fmt.Sprint(ready.get("fleets.0.first_lost_position")); got != fmt.Sprint(c.lost) {
			t.Errorf("%v: /readyz tells the first lost position as %v", c.why, got)
		}
		for _, a := range []answer{refused, ready} {
			if got := string(a.body); errors.Is(c.why, events.ErrReadOnly) && strings.Contains(got, "secret/path") {
				t.Errorf("a caller is told what is the operator's: %s", got)
			}
		}
	}
}

// unreadableLog is a log of which no stream can be read.
type unreadableLog struct{ events.Log }

func (unreadableLog) ReadStream(context.Context, events.Stream, events.Revision) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) { yield(events.Record{}, errors.New("the disk is gone")) }
}

// What a caller writes where a name belongs can be a secret: the operator is told
// which operation failed, and not of what.
func TestFailureIsToldWithoutTheNames(t *testing.T) {
	f := newFleet(t).people()
	ledger := commands.New(unreadableLog{f.ledger.Log()}, f.ledger.State(), randomness())
	second := New(map[string]*commands.Ledger{"default": ledger}, Config{Logger: f.relay.cfg.Logger})
	server := httptest.NewServer(second.Handler())
	t.Cleanup(func() { second.Drain(); server.Close() })
	f.server.Close()
	f.server, f.client = server, server.Client()
	f.do("root", "GET", "/v1/tasks/planted?at=3", "").want(500)
	if strings.Contains(f.logged.String(), "planted") {
		t.Errorf("logged: %s", f.logged)
	}
	f.expectLogged("path=/v1/tasks/{id}")
}

// TestBackupBreaksOff ends a backup in the middle: whoever reads it can tell.
func TestBackupBreaksOff(t *testing.T) {
	broken := errors.New("the disk is gone")
	var fail error
	early := true
	f := newFleet(t, func(c *Config) {
		c.Backup = func(_ context.Context, fleet string, w io.Writer) error {
			if fleet != "default" {
				return fmt.Errorf("fleet %s was asked for", fleet)
			}
			if !early {
				if _, err := io.WriteString(w, "the beginning"); err != nil {
					return err
				}
			}
			return fail
		}
	}).people()
	f.do("ana", "GET", "/v1/backup", "").want(403, "ROOT_ONLY")
	fail = &commands.Refusal{Class: commands.Conflict, Code: "BACKUP_RUNNING", Detail: "wait"}
	f.do("root", "GET", "/v1/backup", "").want(409, "BACKUP_RUNNING")
	early = false
	for _, fail = range []error{nil, broken} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", f.server.URL+"/v1/backup", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+f.tokens["root"])
		resp, err := f.client.Do(req)
		if err == nil {
			_, err = io.ReadAll(resp.Body)
			resp.Body.Close()
		}
		if (err == nil) != (fail == nil) {
			t.Errorf("the backup ends with %v, its reader with %v", fail, err)
		}
	}
	if !strings.Contains(f.logged.String(), "a backup broke off") {
		t.Errorf("the operator is told: %s", f.logged)
	}
	f.logged.Reset()
}
