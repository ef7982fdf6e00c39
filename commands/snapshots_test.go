package commands_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// snapshots takes what KeepSnapshots writes.
type snapshots chan snapshot

type snapshot struct {
	events.Position
	state []byte
}

func (s snapshots) write(_ string, p events.Position, state []byte) error {
	s <- snapshot{p, slices.Clone(state)}
	return nil
}

func (s snapshots) await(t *testing.T) snapshot {
	t.Helper()
	select {
	case one := <-s:
		return one
	case <-time.After(20 * time.Second):
		t.Fatal("no snapshot within 20 s")
		return snapshot{}
	}
}

// kept starts KeepSnapshots and ends it with the test.
func kept(t *testing.T, l *commands.Ledger, every, since events.Position) (snapshots, <-chan error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s, ended := make(snapshots, 100), make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- l.KeepSnapshots(ctx, every, since, s.write)
	}()
	t.Cleanup(func() { cancel(); <-done })
	return s, ended
}

// A snapshot is taken at once if there is none worth having, and then as the log
// grows; a state is taken up from it.
func TestKeepSnapshots(t *testing.T) {
	w := newWorld(t)
	s, _ := kept(t, w.Ledger, 10, 0)
	if first := s.await(t); first.Position != w.Log().Durable() {
		t.Errorf("the first is of position %d, the log ends at %d", first.Position, w.Log().Durable())
	}
	for i := range 40 {
		level := events.Level(i)
		w.ok(w.RegisterActor(w.ctx(), as("root"), commands.RegisterActor{ID: fmt.Sprintf("a%d", i), Kind: events.Human, AuthorityLevel: &level}))
	}
	var last snapshot
	for last.Position < w.Log().Durable()-10 {
		next := s.await(t)
		if next.Position < last.Position+10 {
			t.Errorf("a snapshot at %d after one at %d", next.Position, last.Position)
		}
		last = next
	}
	state := projections.NewState()
	if err := state.RestoreSnapshot(last.Position, last.state); err != nil {
		t.Fatal(err)
	}
	if state.Position() != last.Position || state.Authority().Actor("a5") == nil || w.Drift() != nil {
		t.Errorf("taken up: position %d, %v", state.Position(), w.Drift())
	}
}

// forgetfulLog leaves an event out of what is read.
type forgetfulLog struct {
	events.Log
	kind events.Kind
}

func (l forgetfulLog) ReadAll(ctx context.Context, after events.Position) iter.Seq2[events.Record, error] {
	return func(yield func(events.Record, error) bool) {
		for r, err := range l.Log.ReadAll(ctx, after) {
			if r.Header.Type != l.kind && !yield(r, err) {
				return
			}
		}
	}
}

// A live state that is not what the log folds to is told, and not kept.
func TestDrift(t *testing.T) {
	w := newWorld(t)
	l := commands.New(forgetfulLog{w.Log(), events.SettingsChanged{}.Kind()}, w.State(), commands.Random{})
	s, ended := kept(t, l, 5, 0)
	first := s.await(t)
	grace := 7
	w.ok(w.ChangeSettings(w.ctx(), as("root"), commands.ChangeSettings{Settings: events.SettingsPatch{GraceSeconds: &grace}}))
	for i := range 5 {
		level := events.Level(i)
		w.ok(w.RegisterActor(w.ctx(), as("root"), commands.RegisterActor{ID: fmt.Sprintf("a%d", i), Kind: events.Human, AuthorityLevel: &level}))
	}
	select {
	case err := <-ended:
		var drift *commands.DriftError
		if !errors.As(err, &drift) || drift.Position <= first.Position || len(drift.Differences) == 0 || drift.Differences[0].View != "settings" {
			t.Errorf("it ended with %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the difference was not found")
	}
	if l.Drift() == nil || len(s) != 0 {
		t.Errorf("drift %v, %d snapshots more", l.Drift(), len(s))
	}
}

// What waited when a snapshot was taken goes on after it: a code that was issued before
// is redeemed behind it.
func TestPairingAcrossASnapshot(t *testing.T) {
	w := newWorld(t)
	level := events.Level(5)
	issued := w.ok(w.PairMachine(w.ctx(), as("root"), commands.PairMachine{ID: "m9", AuthorityLevel: &level}))
	p, saved, err := w.State().EncodeSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	w.ok(w.RedeemPairing(w.ctx(), as("m9"), commands.RedeemPairing{Code: issued.Secret, PublicKey: "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}))
	state := projections.NewState()
	if err := state.RestoreSnapshot(p, saved); err != nil {
		t.Fatal(err)
	}
	for r, err := range w.Log().ReadAll(w.ctx(), p) {
		if err != nil {
			t.Fatal(err)
		}
		publish, err := state.Stage([]events.Record{r})
		if err != nil {
			t.Fatal(err)
		}
		publish()
	}
	if d := projections.Compare(w.State().Snapshot(), state.Snapshot()); len(d) > 0 {
		t.Errorf("differs: %+v", d)
	}
}
